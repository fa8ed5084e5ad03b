"""Runs whose log is kept, and what every event of it has."""

from __future__ import annotations

from typing import Any

from fsm_agent import Agent, RunResult
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.testing.script import Call
from tests.core.builders import TOOLS

DECIDED = {
    *("run_id", "seq", "source", "fsm_event", "target", "guards", "step", "tokens", "failures", "tool", "signature"),
    *("elapsed_ms", "reason"),
}
LONG: list[Any] = [
    call("add", a=1, b=2),
    RuntimeError("server is down"),
    "",
    call("nothing"),
    reply("", Call("add", '{"a": 1')),
    call("add", a=2, b=2),
    "It is 3.",
]


class Recorder:
    """A logger that keeps what it was given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, /, **fields: Any) -> None:
        """Keep the event."""
        self.events.append((event, fields))


def logged(
    script: list[Any], task: str = "What is 1 + 2?", **given: Any
) -> tuple[RunResult, list[tuple[str, dict[str, Any]]]]:
    """The result of a run, and what it logged."""
    recorder = Recorder()
    agent = Agent(ScriptedModel(script), given.pop("tools", TOOLS), logger=recorder, **given)
    return agent.invoke(task), recorder.events
