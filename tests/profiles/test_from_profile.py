"""`Agent.from_profile`: what a profile gives, what goes on top of it, and what is refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Full, KeyFacts, Limits, MessageWindow, Registry, Window, tool
from fsm_agent.errors import DefinitionError
from fsm_agent.ladder import LADDER
from fsm_agent.memory import Memory
from fsm_agent.profiles import NAMES, profile, profiles
from fsm_agent.testing import ScriptedModel, call, server
from fsm_agent.tools import calculator
from tests.cli.kit import environment
from tests.faults.kit import client
from tests.profiles.kit import by_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", NAMES)
def test_each_profile_is_less_than_sixty_lines_of_data(name: str) -> None:
    """One short module each, with functions only for what has to be made anew for each agent; no class, so no loop of its own."""
    path = ROOT / "fsm_agent" / "profiles" / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert not [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.ClassDef | ast.For | ast.While)]
    assert profile(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_by_name_is_an_agent_of_those_parts(name: str) -> None:
    """It runs the same table, with the limits, memory, ladder and tools that the profile names."""
    chosen = profile(name)
    agent, _ = by_name(name, [])
    assert type(agent) is Agent
    assert agent.limits == Limits(**chosen.limits)
    assert agent.setup.memory == chosen.memory
    assert agent.setup.ladder == (chosen.ladder or LADDER)
    assert agent.tools.names() == tuple(one.name for one in chosen.tools(None))
    assert agent.name == name


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    """The error lists all five."""
    with pytest.raises(
        DefinitionError, match="'brake' does not exist; there are session, lightweight, controlled, breaker, native"
    ):
        Agent.from_profile("brake", ScriptedModel([]))


@pytest.mark.parametrize("limits", [{"max_steps": 3}, Limits(max_steps=3)], ids=["mapping", "Limits"])
def test_limits_go_on_top_of_the_profiles(limits: Any) -> None:
    """One limit is replaced; the others are still the profile's, not the defaults."""
    agent, _ = by_name("breaker", [], limits=limits)
    assert (agent.limits.max_steps, agent.limits.token_budget) == (3, 18_000)


def test_the_environment_stands_between_code_and_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable wins over the profile, and what the code says over both."""
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "4")
    monkeypatch.setenv("FSM_AGENT_TOKEN_BUDGET", "none")
    agent, _ = by_name("breaker", [], limits={"max_steps": 3})
    assert (agent.limits.max_steps, agent.limits.token_budget, agent.limits.degrade_after) == (3, None, 2)


def test_a_wrong_limit_is_refused_by_name() -> None:
    """As `Limits` does."""
    with pytest.raises(DefinitionError, match="max_step"):
        by_name("breaker", [], limits={"max_step": 3})


def test_every_keyword_of_an_agent_may_take_the_place_of_a_part() -> None:
    """Tools, memory, dialect, system text, temperature; None is as the profile says."""
    agent, _ = by_name(
        "breaker", [], [calculator], memory=Full(), dialect="native", system="Be brief.", temperature=0.7, ladder=None
    )
    setup = agent.setup
    assert (agent.tools.names(), setup.memory, setup.dialect.name) == (("calculator",), Full(), "native")
    assert (setup.system, setup.temperature, setup.ladder) == ("Be brief.", 0.7, ("strategy", "answer"))


@pytest.mark.parametrize(
    ("name", "window"), [("controlled", Window(3)), ("native", MessageWindow(10))], ids=["controlled", "native"]
)
def test_a_profile_whose_window_loses_results_can_keep_their_facts(name: str, window: Memory) -> None:
    """Key facts around its own window: the first result has left the last prompt, and its fact is still there."""
    known: dict[bool, str] = {}
    for kept in (False, True):
        script = [*(call("paid", order=number) for number in range(1, 8)), "Done."]
        overrides = {"memory": KeyFacts(window)} if kept else {}
        agent, model = by_name(name, script, [paid], limits={"max_steps": 9}, **overrides)
        assert agent.setup.memory == (KeyFacts(window) if kept else window)
        assert agent.invoke("What was paid?").ok
        known[kept] = model.requests[-1].text
    assert ("Order 1 cost 37 euros." in known[False], "Order 1 cost 37 euros." in known[True]) == (False, True)


@tool
def paid(order: int) -> str:
    """What was paid for an order."""
    return f"Order {order} cost {36 + order} euros."


def test_simpler_tools_may_be_named_for_a_profile() -> None:
    """Where a profile has the usual ladder, the rung for them is in it."""
    setup = by_name("native", [], simpler=["calculator"])[0].setup
    assert (setup.simpler, "simpler" in setup.ladder) == (("calculator",), True)


def test_a_registry_is_taken_as_it_is() -> None:
    """So that tools come and go while runs go on."""
    registry = Registry([calculator])
    assert by_name("native", [], registry)[0].tools is registry


def test_a_model_that_says_how_long_replies_may_be_is_heard() -> None:
    """The cap of a profile is for models without one, given or bound."""
    with server(["Final Answer: a"] * 3) as s:
        for model in (client(s), client(s, max_tokens=99), client(s).bind(max_tokens=77)):
            Agent.from_profile("breaker", model, observers=()).invoke("hello")
        sent = [request.body.get("max_completion_tokens", request.body.get("max_tokens")) for request in s.requests]
    assert sent == [512, 99, 77]


def test_a_local_model_keeps_its_dialect_where_the_profile_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """`controlled` leaves the choice to the model: guided JSON for one on this machine, tool calling for others."""
    monkeypatch.setattr("fsm_agent.profiles.named.capped", lambda model, cap, base_url=None: ScriptedModel([]))
    assert Agent.from_profile("controlled", "local:1.5b").setup.dialect.name == "guided_json"
    assert Agent.from_profile("controlled", "openai:x").setup.dialect.name == "native"
    assert Agent.from_profile("breaker", "local:1.5b").setup.dialect.name == "react"


def test_profiles_are_values_that_nobody_changes() -> None:
    """A profile is shared by all agents that are made from it."""
    for one in profiles():
        with pytest.raises(TypeError):
            one.limits["max_steps"] = 1  # type: ignore[index] # what must not be possible
        with pytest.raises(AttributeError):
            one.memory = Window()  # type: ignore[misc] # the same


def test_profiles_load_no_client_and_no_server() -> None:
    """Looking at all five costs no import of a provider, of Redis, or of LangChain's models and tools."""
    code = (
        "import sys; from fsm_agent.profiles import profiles; [one.tools(None) for one in profiles()]; "
        "print([name for name in ('openai', 'langchain_openai', 'redis', 'langchain_core.language_models.chat_models', "
        "'langchain_core.tools', 'transitions') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
