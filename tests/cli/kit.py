"""Running the command: in this process for what it says, as a process of its own for how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.testing import server

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0
"""Patience with a loaded machine; nothing waits that long unless it hangs."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


def fsm(*args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
    """The command in this process."""
    ended = CliRunner().invoke(app, list(args), input=stdin, env=dict(env or {}), prog_name="fsm-agent")
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Done(ended.exit_code, ended.stdout, ended.stderr)


def environment(**more: str) -> dict[str, str]:
    """The environment of a process of its own: this one's, with the package importable from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDEVMODE": "", **more}


def command(*args: str) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "fsm_agent", *args]


def process(*args: str, cwd: Path, stdin: str = "", **env: str) -> Done:
    """The command as a process of its own, in `cwd`, with pipes for its streams."""
    done = subprocess.run(
        command(*args),
        cwd=cwd,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_with(script: list[object], *args: str, task: str = "What is 2+3*4?", stdin: str = "") -> Done:
    """`run` against a server with this script; the server checks that all of it was used."""
    with server(script) as s:
        return fsm("run", task, "--base-url", s.base_url, *args, stdin=stdin)
