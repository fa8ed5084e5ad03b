"""What an agent cannot be made of is refused when it is made, with or without a profile."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.errors import DefinitionError
from fsm_agent.memory import Window
from fsm_agent.testing import FakeClock, ScriptedModel


async def told_later(record: object) -> None:
    """An observer that nobody awaits."""


class ToldLater:
    """The same, as an object."""

    async def __call__(self, record: object) -> None:
        """Not awaited either."""


WRONG: list[Any] = [
    {"memory": "window:5"},
    {"memory": Window},
    {"reflect": True},
    {"dialect": 3},
    {"limits": "max_steps=3"},
    {"limits": 3},
    *({"system": given} for given in (3, ["Be brief."])),
    {"recall": 3},
    {"conversations": "threads.db"},
    {"chain": "key"},
    {"cipher": b"key"},
    {"approve": True},
    {"ladder": "answer"},
    {"simpler": 3},
    {"withhold": "no"},
    *({"table": given} for given in ("x", 3, [3], ["PLAN --replied--> VALIDATE"])),
    {"base_url": 8000},
    {"name": 3},
    *({"clock": given} for given in (3, FakeClock)),
    *({"logger": given} for given in (3, "root", logging.getLogger("host"))),
    *({"observers": given} for given in (3, [3], print)),
    pytest.param({"observers": [told_later]}, id="an async observer"),
    pytest.param({"observers": [ToldLater()]}, id="an async observer that is an object"),
    {"origin": "cli"},
    {"tools": 3},
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_a_part_of_another_kind_is_refused_by_name(given: dict[str, Any]) -> None:
    """A memory, a reflection, a dialect or limits of another kind make no agent: the error names the argument."""
    (name,) = given
    with pytest.raises(DefinitionError, match=name):
        Agent(ScriptedModel(["Hi."]), **given)
    with pytest.raises(DefinitionError, match=name):
        Agent.from_profile("native", ScriptedModel(["Hi."]), **given)


@pytest.mark.parametrize(
    ("observer", "says"),
    [
        (told_later, "told_later of the observers is async, and nobody would await it"),
        (ToldLater(), "ToldLater of the observers is async"),
        (3, "one of the observers is of the kind int"),
    ],
    ids=["function", "object", "number"],
)
def test_what_is_wrong_with_an_observer_is_said_of_the_observer(observer: Any, says: str) -> None:
    """The list that it stands in is right, and is not what the error is about."""
    with pytest.raises(DefinitionError, match=says):
        Agent(ScriptedModel(["Hi."]), observers=[print, observer])


def test_an_unknown_keyword_of_a_profile_is_refused_by_name() -> None:
    """What `Agent` does not take is told with what it takes, before a model is made."""
    with pytest.raises(DefinitionError, match=r"keyword 'bogus' does not exist; there are limits, system, .*origin"):
        Agent.from_profile("native", "no such model", bogus=1)


def test_an_agent_of_a_profile_may_have_a_name() -> None:
    """`name` is what tracers call its runs, as for any agent; otherwise they have that of the profile."""
    assert Agent.from_profile("native", ScriptedModel(["Hi."]), name="clerk").name == "clerk"
    assert Agent.from_profile("native", ScriptedModel(["Hi."])).name == "native"


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
