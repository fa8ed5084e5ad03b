"""A directory with a module of tools and a store, for the commands about stored runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsm_agent.testing import call, server
from tests.cli.kit import Done, fsm

TOOLS = """
    import os, pathlib, signal
    from fsm_agent import tool

    def fragile(to):
        with open("sent.txt", "a") as file:
            file.write(to + "\\n")
        if not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "sent to " + to

    @tool(requires_approval=True)
    def send(to: str, password: str = "") -> str:
        "Send a letter."
        with open("sent.txt", "a") as file:
            file.write(to + "\\n")
        return "sent to " + to

    @tool(idempotent=True)
    def safe(to: str) -> str:
        "Send a letter, once whatever happens."
        return fragile(to)

    @tool
    def unsafe(to: str) -> str:
        "Send a letter."
        return fragile(to)

    @tool(retry=0)
    def broken(to: str) -> str:
        "Send a letter."
        raise OSError("no stamp")
"""


@dataclass(frozen=True)
class Room:
    """A directory with a module of tools and a store."""

    folder: Path
    store: str = "runs.db"

    def run(self, script: list[object], *args: str, tools: str = "send", task: str = "Write a letter") -> Done:
        """`run` into the store against a server with this script."""
        with server(script) as s:
            return fsm(
                *("run", task, "--base-url", s.base_url, "--tools", f"letters:{tools}", "--approve", "defer"),
                *("--store", self.store, *args),
            )

    def on(self, command: str, *args: str, script: list[object] | None = None) -> Done:
        """A command about the store; with a script, the model is a server that says it."""
        if script is None:
            return fsm(command, *args, "--store", self.store)
        with server(script) as s:
            return fsm(command, *args, "--store", self.store, "--base-url", s.base_url)

    def ids(self) -> list[str]:
        """The runs of the store, newest first."""
        return [one["run_id"] for one in self.on("runs", "--json").document]

    def sent(self) -> list[str]:
        """What the world has seen."""
        file = self.folder / "sent.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def error_of(done: Done, code: int = 2) -> str:
    """The one red line of a command that did nothing."""
    assert (done.code, done.out) == (code, "")
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    return line


ANA, BEN = call("send", to="Ana"), call("send", to="Ben")
