"""Diagrams read by the programs that they are written for: Mermaid's own library, Graphviz, and an XML parser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self
from xml.etree import ElementTree as ET

import platformdirs
import pytest

__all__ = ["MermaidReader", "Seen", "missing", "npm_folder", "read_dot", "read_svg"]

_READER: Final = Path(__file__).with_name("mermaid_reader.mjs")
_PACKAGES: Final = ("mermaid@11.17.2", "jsdom@26.1.0")
_SVG: Final = "{http://www.w3.org/2000/svg}"
_INSTALL_SECONDS: Final = 300
_SECONDS: Final = 120


@dataclass(frozen=True)
class Seen:
    """What a reader saw: the text of each box by id, and (source, text, target) of each arrow, in order."""

    boxes: dict[str, str]
    arrows: list[tuple[str, str, str]]


def missing(what: str) -> NoReturn:
    """Skip the test that needs `what`; where CI is set, everything must be there, so it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing", pytrace=False)
    pytest.skip(f"{what} is missing")


class MermaidReader:
    """The real Mermaid, in one node process for all that is read. Skips, or fails in CI, where it cannot be had."""

    def __init__(self) -> None:
        folder = npm_folder(*_PACKAGES)
        self._node = subprocess.Popen(
            ["node", str(_READER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.close()
        self._node.stdout.close()
        self._node.wait(timeout=_SECONDS)

    def read(self, text: str) -> Seen:
        """What is seen in the picture. An error of the parser, and a label that is more than text, fails the test."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(text) + "\n")
        self._node.stdin.flush()
        answer: dict[str, Any] = json.loads(self._node.stdout.readline())
        assert "error" not in answer, f"{answer['error']}\n{text}"
        assert (answer["marks"], answer["pictures"]) == ([], 0), text
        return Seen(answer["boxes"], [(source, said, target) for source, said, target in answer["arrows"]])


def npm_folder(*packages: str) -> Path:
    """The folder with these packages of npm, installed once per user and version. Skips, or fails in CI, where they cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("node with npm")
    folder = Path(platformdirs.user_cache_dir("fsm-agent"), "-".join(packages).replace("@", "-"))
    if not (folder / ".ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        if done.returncode:
            missing(f"{packages[0]}, which npm could not install ({done.stderr.strip()[-200:]}),")
        (folder / ".ready").touch()
    return folder


def read_dot(text: str, program: str) -> Seen:
    """What `program` draws of a digraph. A warning fails the test."""
    done = subprocess.run([program, "-Tjson"], input=text.encode(), capture_output=True, timeout=_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b""), f"{text}\n{done.stderr.decode()}"
    drawn = json.loads(done.stdout)
    names = [one["name"] for one in drawn["objects"]]
    boxes = {one["name"]: _written(one) for one in drawn["objects"]}
    return Seen(boxes, [(names[one["tail"]], _written(one), names[one["head"]]) for one in drawn.get("edges", ())])


def _written(one: dict[str, Any]) -> str:
    return "\n".join(step["text"] for step in one.get("_ldraw_", ()) if step["op"] == "T")


def read_svg(text: str) -> Seen:
    """What stands in an SVG image that Graphviz drew."""
    boxes: dict[str, str] = {}
    arrows: list[tuple[str, str, str]] = []
    for group in ET.fromstring(text.encode()).iter(f"{_SVG}g"):  # noqa: S314 - our own
        said = "\n".join(one.text or "" for one in group.iter(f"{_SVG}text"))
        title = group.findtext(f"{_SVG}title") or ""
        if group.get("class") == "node":
            boxes[title] = said
        elif group.get("class") == "edge":
            source, target = (end.partition(":")[0] for end in title.split("->"))
            arrows.append((source, said, target))
    return Seen(boxes, arrows)
