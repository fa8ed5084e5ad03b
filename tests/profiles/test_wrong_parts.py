"""What an agent cannot be made of is refused when it is made, with or without a profile."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.errors import DefinitionError
from fsm_agent.memory import Window
from fsm_agent.testing import ScriptedModel

WRONG: list[dict[str, Any]] = [
    {"memory": "window:5"},
    {"memory": Window},
    {"reflect": True},
    {"dialect": 3},
    {"limits": "max_steps=3"},
    {"limits": 3},
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_a_part_of_another_kind_is_refused_by_name(given: dict[str, Any]) -> None:
    """A memory, a reflection, a dialect or limits of another kind make no agent: the error names the argument."""
    (name,) = given
    with pytest.raises(DefinitionError, match=name):
        Agent(ScriptedModel(["Hi."]), **given)
    with pytest.raises(DefinitionError, match=name):
        Agent.from_profile("native", ScriptedModel(["Hi."]), **given)


def test_limits_in_a_mapping_are_for_profiles() -> None:
    """`Agent(limits={...})` is refused with what to write, and a profile takes them."""
    with pytest.raises(DefinitionError, match=r"Limits\(max_steps=5\)"):
        Agent(ScriptedModel(["Hi."]), limits={"max_steps": 2})  # type: ignore[arg-type]  # what is tested
    assert Agent.from_profile("native", ScriptedModel(["Hi."]), limits={"max_steps": 2}).limits.max_steps == 2


@pytest.mark.parametrize("most", [0, -5, True, "512"])
def test_a_cap_of_replies_is_a_whole_number(most: Any) -> None:
    """A `max_tokens` that no reply could have is refused, not passed over."""
    with pytest.raises(DefinitionError, match="max_tokens"):
        Agent.from_profile("native", ScriptedModel(["Hi."]), max_tokens=most)
