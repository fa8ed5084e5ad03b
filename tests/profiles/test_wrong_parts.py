"""What an agent cannot be made of is refused when it is made, with or without a profile."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bogus": 1}, r"no keyword 'bogus'; there are model, tools, limits, system, .*origin"),
        ({"system_prompt": "Be brief."}, r"no keyword 'system_prompt'; did you mean system=\?"),
        ({"prompt": "Be brief."}, r"no keyword 'prompt'; did you mean system=\?"),
        ({"aprove": print}, r"no keyword 'aprove'; did you mean approve=\?"),
        ({"max_steps": 3}, r"max_steps is a limit: write Agent\(\.\.\., limits=Limits\(max_steps=3\)\)"),
        ({"max_iterations": 3}, r"write Agent\(\.\.\., limits=Limits\(max_steps=3\)\)"),
        ({"max_turns": 3}, r"write Agent\(\.\.\., limits=Limits\(max_steps=3\)\)"),
        ({"tool_timout": 3}, r"tool_timeout is a limit"),
        ({"response_format": dict}, r"model\.with_structured_output\(\.\.\.\)\.invoke\(result\.answer\)"),
        ({"max_token": 9}, r"no keyword 'max_token'; there are model, "),
        ({"needs_approval": True}, r"tool\(theirs, requires_approval=True\)"),
        ({"callbacks": []}, r'agent\.invoke\(task, \{"callbacks": \[\.\.\.\]\}\)'),
        ({"token_buget": "sk-not-to-be-shown"}, r"Limits\(token_budget=\.\.\.\)"),
    ],
    ids=str,
)
def test_an_unknown_keyword_is_refused_with_what_was_meant(given: dict[str, Any], says: str) -> None:
    """What `Agent` does not take is told with what to write instead, with a profile too, and before a model is made."""
    with pytest.raises(DefinitionError, match=says):
        Agent("no such model", **given)
    with pytest.raises(DefinitionError, match=says):
        Agent.from_profile("native", "no such model", **given)


def test_a_class_of_ones_own_may_take_what_it_likes() -> None:
    """The keywords that are judged are those of the class that is called; of what it hands on, Python says what does not fit."""

    class Clerk(Agent):
        def __init__(self, desk: str, **more: Any) -> None:
            super().__init__(ScriptedModel(["Hi."]), system=f"You sit at {desk}.", **more)

    assert Clerk(desk="three", name="clerk").setup.system == "You sit at three."
    with pytest.raises(TypeError, match="prompt"):
        Clerk(desk="three", prompt="Be brief.")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_who_copies_an_agent_is_told_what_to_do_instead(copied: Callable[[Agent], Any]) -> None:
    """Threads and connections cannot be copied: it is said by name, and with another way."""
    with pytest.raises(TypeError, match=r"an agent cannot be pickled or copied; make it by a function"):
        copied(Agent(ScriptedModel(["Hi."])))


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
