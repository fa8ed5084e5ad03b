"""What a call of a run may take, through every method of an agent: its time, its cancellation, and the context that it sees."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from fsm_agent import Agent, Limits, RunResult, Tool, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import Delay, FakeClock, ScriptedModel, call, forever, reply
from tests.core.builders import look

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def ways() -> list[str]:
    """The ways to run an agent."""
    return ["invoke", "ainvoke", "stream"]


def run(agent: Agent, way: str, task: str = "Go on.") -> RunResult:
    """The result of a run, one way or another."""
    if way == "ainvoke":
        return asyncio.run(agent.ainvoke(task))
    return agent.invoke(task) if way == "invoke" else list(agent.stream(task))[-1]


def slow(clock: FakeClock, seconds: float, kind: str, **options: Any) -> Tool:
    """A tool that takes so long on the run's clock."""

    def sync(q: str) -> str:
        """Take long."""
        clock.advance(seconds)
        return "found"

    async def not_sync(q: str) -> str:
        """Take long."""
        clock.advance(seconds)
        return "found"

    return tool("slow", **options)(sync if kind == "sync" else not_sync)


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("calls", [1, 2], ids=["alone", "in a batch"])
@pytest.mark.parametrize(("takes", "late"), [(30.0, False), (30.5, True)])
def test_a_tool_call_may_take_its_time_and_no_longer(way: str, kind: str, calls: int, takes: float, late: bool) -> None:
    """What a tool returned too late is not used: whether it took effect is said to be unknown."""
    clock = FakeClock()
    quick = [call("look", q=f"{number}") for number in range(calls - 1)]
    model = ScriptedModel([reply("", call("slow", q="x"), *quick), "Done."])
    agent = Agent(model, [slow(clock, takes, kind), look], clock=clock, logger=silent_logger())
    run(agent, way)
    (first, *_) = [str(one.content) for one in model.requests[1].messages if one.type == "tool"]
    assert (first == "found") is not late
    assert ("within 30 seconds" in first) is late


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize(
    ("options", "limits", "late"),
    [
        ({"timeout": 3.0}, {}, True),
        ({"timeout": 60.0}, {"tool_timeout": 1.0}, False),
        ({}, {"tool_timeout": 3.0}, True),
        ({}, {"deadline": 3.0}, True),
        ({"timeout": 60.0}, {"deadline": 60.0}, False),
    ],
    ids=["its own", "its own is longer", "the run's", "the deadline", "all longer"],
)
def test_the_time_of_a_call_is_the_shortest_that_applies(
    way: str, options: dict[str, Any], limits: dict[str, Any], late: bool
) -> None:
    """A tool's own time-out goes before the run's; no call goes beyond the deadline."""
    clock = FakeClock()
    agent = Agent(
        ScriptedModel([call("slow", q="x"), "Done."]),
        [slow(clock, 5.0, "sync", **options)],
        limits=Limits(max_retries=0, on_limit="stop", **limits),
        clock=clock,
        logger=silent_logger(),
    )
    assert agent.tools.stats("slow").failures == 0
    run(agent, way)
    assert agent.tools.stats("slow").failures == (1 if late else 0)


@pytest.mark.parametrize(("idempotent", "times"), [(True, 2), (False, 1)])
def test_a_call_with_an_unknown_outcome_is_made_again_only_when_that_does_no_harm(idempotent: bool, times: int) -> None:
    """A time-out says nothing about whether the tool took effect."""
    clock = FakeClock()
    agent = Agent(
        ScriptedModel([call("slow", q="x"), "Done."]),
        [slow(clock, 31.0, "sync", idempotent=idempotent)],
        clock=clock,
        logger=silent_logger(),
    )
    run(agent, "invoke")
    assert agent.tools.stats("slow").usage_count == times


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize(("takes", "late"), [(60.0, False), (60.5, True)])
def test_a_model_call_may_take_its_time_and_no_longer(way: str, takes: float, late: bool) -> None:
    """The reply that came too late is dropped, and the call is tried again."""
    clock = FakeClock()
    model = ScriptedModel([Delay(takes, "late"), "in time"], clock=clock)
    result = run(Agent(model, clock=clock, logger=silent_logger()), way)
    assert result.answer == ("in time" if late else "late")
    assert result.transitions[0].event == ("model_failed" if late else "replied")


@pytest.mark.parametrize("way", ways())
def test_a_cancellation_in_a_backoff_ends_the_run_there(way: str) -> None:
    """A06: no further call is made; a wait that is over at that very moment may still count as waited."""
    agents: list[Agent] = []
    config: Any = {"run_id": "00000000-0000-0000-0000-000000000001"}
    clock = FakeClock(on_sleep=lambda _: agents[0].cancel(config["run_id"], "user left"))
    model = ScriptedModel([forever(RuntimeError("down"))])
    agents.append(Agent(model, clock=clock, limits=Limits(max_retries=9), logger=silent_logger()))
    agent = agents[0]
    if way == "ainvoke":
        result = asyncio.run(agent.ainvoke("x", config))
    else:
        result = agent.invoke("x", config) if way == "invoke" else list(agent.stream("x", config))[-1]
    assert (result.status, result.reason, model.count) == ("cancelled", "cancelled", 1)
    assert result.path()[-2:] in {("RETRY", "ABORT"), ("PLAN", "ABORT")}
    assert "user left" in result.detail


# ---------------------------------------------------------------- A04


def readers(seen: list[tuple[str, str]]) -> list[Tool]:
    """Tools that note the colour that they see, and then set one of their own."""

    def note(name: str) -> str:
        seen.append((name, COLOUR.get()))
        COLOUR.set(f"set by {name}")
        return name

    @tool
    def plain(n: int) -> str:
        """A sync tool."""
        return note("plain")

    @tool
    async def coro(n: int) -> str:
        """An async tool."""
        before = note("coro")
        await asyncio.sleep(0)
        return before

    @tool(timeout=20.0)
    def timed(n: int) -> str:
        """A tool with a time-out."""
        return note("timed")

    failed: list[int] = []

    @tool(retry=1)
    def again(n: int) -> str:
        """A tool that works the second time."""
        note("again")
        if not failed:
            failed.append(1)
            raise OSError("first try")
        return "again"

    return [plain, coro, timed, again]


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one batch"])
def test_a04_every_tool_sees_the_callers_context_and_none_another_tools(way: str, together: bool) -> None:
    """Sync, async, timed, retried, alone and in parallel: the value of the run, never that of a sibling."""
    seen: list[tuple[str, str]] = []
    tools = readers(seen)
    calls = [call(one.name, n=1) for one in tools]
    model = ScriptedModel([reply("", *calls), "Done."] if together else [*calls, "Done."])
    token = COLOUR.set("red")
    try:
        result = run(Agent(model, tools, limits=Limits(backoff=0), logger=silent_logger()), way)
        assert COLOUR.get() == "red"
    finally:
        COLOUR.reset(token)
    assert result.ok
    assert sorted({name for name, _ in seen}) == ["again", "coro", "plain", "timed"]
    assert {colour for _, colour in seen} == {"red"}
    assert len([name for name, _ in seen if name == "again"]) == 2
