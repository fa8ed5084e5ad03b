"""What hurt all five of those whose agents the profiles are: each sentence of it, for each profile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsm_agent import InMemoryConversations, Status, StopReason, tool
from fsm_agent.profiles import NAMES
from fsm_agent.reflection import Reflect
from fsm_agent.testing import ModelRequest, ScriptedModel, call, forever, reply
from fsm_agent.tools import ToolResult
from tests.profiles.kit import act, by_name, done, finish, react

JSON_SPOKEN = ("session", "lightweight")


def asks(name: str, tool_name: str, **arguments: Any) -> Any:
    """A call in the protocol of the profile."""
    if name in JSON_SPOKEN:
        return act(tool_name, **arguments)
    return react(tool_name, json.dumps(arguments)) if name == "breaker" else call(tool_name, **arguments)


def answers(name: str, text: str) -> str:
    """An answer in the protocol of the profile."""
    return finish(text) if name in JSON_SPOKEN else done(text) if name == "breaker" else text


@tool
def run_tests(path: str) -> str:
    """Run the tests."""
    return f"3 of 40 fail in {path}"


def tools_offered(request: ModelRequest) -> bool:
    """Whether the model may call anything, whatever the protocol."""
    return bool(request.tools) or "run_tests(" in request.messages[0].text


@pytest.mark.parametrize("name", NAMES)
def test_the_loop_is_no_black_box(name: str) -> None:
    """Each transition is told as it happens, with every guard that was asked and what it compared."""
    seen: list[Any] = []
    agent, _ = by_name(
        name, [asks(name, "run_tests", path="a"), answers(name, "3")], [run_tests], observers=(seen.append,)
    )
    result = agent.invoke("Run the tests.")
    assert result.ok
    assert tuple(seen) == result.transitions
    guards = {guard.guard: guard.values for one in seen for guard in one.guards}
    assert guards["steps_spent"]["max_steps"] == agent.limits.max_steps
    assert {"repeated_action", "token_budget_spent", "circuit_open", "no_progress"} <= guards.keys()


@pytest.mark.parametrize("name", NAMES)
def test_eighteen_identical_test_runs_are_two_at_most(name: str) -> None:
    """The same call for ever is made twice at most, and the run ends for that reason, long before the cap on steps."""

    def script(request: ModelRequest) -> Any:
        return asks(name, "run_tests", path="a") if tools_offered(request) else answers(name, "3 fail")

    agent, model = by_name(name, ScriptedModel(script), [run_tests])
    result = agent.invoke("Mend the tests.")
    assert result.tool_calls <= 2
    assert model.count <= 4
    assert "repeated_action" in result.detail


@pytest.mark.parametrize("name", ["session", "breaker"])
def test_seven_identical_thoughts_are_three_at_most(name: str) -> None:
    """Thinking the same again and again brings nothing new, and ends the run."""
    thought = act("THINK", thought="I need to look.") if name == "session" else "Thought: I need to look."
    agent, model = by_name(name, [forever(thought)], [run_tests], limits={"on_limit": "stop"})
    result = agent.invoke("Mend the tests.")
    assert (model.count, result.reason, result.answer) == (3, StopReason.NO_PROGRESS, None)


@pytest.mark.parametrize("name", ["session", "lightweight"])
def test_rounds_of_self_talk_end(name: str) -> None:
    """Talk that is no action is refused three times, and then the run ends; nothing of it is taken for an answer."""
    agent, model = by_name(name, [forever("Let us think about what we should do next.")], [run_tests])
    result = agent.invoke("Mend the tests.")
    assert model.count <= 3
    assert (result.status, result.answer) == (Status.FAILED, None)


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_of_a_tool_does_not_end_the_run(name: str) -> None:
    """The model reads it, and goes on."""

    @tool(retry=0)
    def broken(path: str) -> str:
        """Fail."""
        raise ZeroDivisionError("division by zero")

    agent, model = by_name(
        name,
        [asks(name, "broken", path="a"), asks(name, "run_tests", path="a"), answers(name, "3")],
        [broken, run_tests],
    )
    result = agent.invoke("go")
    assert (result.status, result.answer) == (Status.COMPLETED, "3")
    assert "ZeroDivisionError: division by zero" in model.requests[1].text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "given", [b"\xff\xfe", object(), float("nan"), {"a": {1: {2}}}, None, ToolResult(content=["x", 1])]
)
def test_a_badly_formatted_reply_of_a_tool_does_not_end_the_run(name: str, given: Any) -> None:
    """Whatever a tool returns becomes text that the model can read."""

    @tool
    def odd(path: str) -> Any:
        """Return something odd."""
        return given

    agent, _ = by_name(name, [asks(name, "odd", path="a"), answers(name, "ok")], [odd])
    result = agent.invoke("go")
    assert result.ok
    assert all(isinstance(one.text, str) for one in result.results)


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_does_not_grow_fourfold_over_five_turns(name: str) -> None:
    """Turns of two rounds each in one conversation: what is sent stays flat once the window is full."""

    def scripted(request: ModelRequest) -> Any:
        n = request.number % 3
        return answers(name, "Done.") if n == 0 else asks(name, "long_one", n=request.number)

    agent, model = by_name(
        name,
        ScriptedModel(scripted),
        [long_one],
        conversations=InMemoryConversations(),
        limits={"max_result_chars": 400},
        reflect=Reflect(every=100),
    )

    sizes = []
    for turn in range(8):
        assert agent.invoke(f"Turn {turn}.", {"configurable": {"thread_id": "t"}}).ok
        sizes.append(len(model.requests[-1].text))
    assert sizes[-1] < 4 * sizes[0]
    assert sizes[-1] < 1.35 * sizes[4]


@tool
def long_one(n: int) -> str:
    """Give a long text without a fact in it."""
    return "abcdefghijklmnopqrstuvwxyz"[n] + " word" * 70


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_counted_though_nobody_says_how_many(name: str) -> None:
    """A server that reports no usage: prompts and replies are estimated, and a budget holds."""
    agent, _ = by_name(
        name,
        ScriptedModel(lambda request: reply(answers(name, "x " * 40)), usage=None),
        [run_tests],
        limits={"token_budget": 50_000},
    )
    result = agent.invoke("go")
    assert result.usage.total == result.usage.estimated > 50
    small, model = by_name(
        name,
        ScriptedModel(lambda request: reply(answers(name, "x")), usage=None),
        [run_tests],
        limits={"token_budget": 20},
    )
    assert small.invoke("go").reason is StopReason.TOKEN_BUDGET
    assert model.count == 0
