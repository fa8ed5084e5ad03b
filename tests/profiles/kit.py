"""What the tests of profiles share: an agent by name with a scripted model, and replies in the two text protocols."""

from __future__ import annotations

import json
from typing import Any

from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel


def by_name(name: str, script: Any, tools: Any = None, **overrides: Any) -> tuple[Agent, ScriptedModel]:
    """The agent that the profile `name` makes, which waits for nothing and logs nothing, and its model."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    given: dict[str, Any] = {"clock": FakeClock(), "logger": silent_logger()} | overrides
    return Agent.from_profile(name, model, tools, **given), model


def act(name: str, /, **arguments: Any) -> str:
    """An action as one JSON object."""
    return json.dumps({"action": name, "action_input": arguments}, ensure_ascii=False)


def finish(answer: str) -> str:
    """The final answer as one JSON object."""
    return act("FINISH", answer=answer)


def react(name: str, arguments: str = "{}", thought: str = "Next.") -> str:
    """A thought and an action in labelled lines; the arguments are sent letter for letter."""
    return f"Thought: {thought}\nAction: {name}\nAction Input: {arguments}"


def done(answer: str) -> str:
    """The final answer in labelled lines."""
    return f"Thought: done.\nFinal Answer: {answer}"
