"""Directories with a module of tools, to run commands in."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.room import TOOLS, Room

RUN_TOOLS = """
    import os, subprocess, sys
    from fsm_agent import Registry, tool

    @tool(requires_approval=True)
    def send(to: str) -> str:
        "Send a letter."
        with open("sent.txt", "a") as file:
            file.write(to + "\\n")
        return "sent to " + to

    def shout(text: str) -> str:
        "Print on every way to standard output."
        print("FROM PRINT")
        os.write(1, b"FROM DESCRIPTOR\\n")
        subprocess.run([sys.executable, "-c", "print('FROM CHILD')"])
        return text.upper()

    def both():
        return [send, shout]

    registry = Registry([shout])
    pair = (send, shout)
    number = 5
    def broken(): raise RuntimeError("no tools\\n  today")
    def leave(): sys.exit(0)
"""


@contextmanager
def _directory(path: Path, monkeypatch: pytest.MonkeyPatch, module: str, tools: str) -> Iterator[None]:
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (path / f"{module}.py").write_text(textwrap.dedent(tools), encoding="utf-8")
    yield
    sys.modules.pop(module, None)


@pytest.fixture(name="room")
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """The current directory, with tools `letters` for stored runs, which are forgotten afterwards."""
    with _directory(tmp_path, monkeypatch, "letters", TOOLS):
        yield Room(tmp_path)


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with tools `my_tools` for `run`, which are forgotten afterwards."""
    with _directory(tmp_path, monkeypatch, "my_tools", RUN_TOOLS):
        yield tmp_path
