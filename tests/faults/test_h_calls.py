"""Family H: every call in a history has its result: in batches, in summaries, and in runs that stop while calls are open."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Agent, Deny, Status, StopReason, Window, tool
from fsm_agent.language import EN
from fsm_agent.memory import InMemoryConversations
from fsm_agent.testing import Call, ScriptedModel, call, reply
from fsm_agent.trail import MemoryTrail, audit, replay
from fsm_agent.trail.fold import fold
from fsm_agent.trail.wording import turn_messages
from tests.faults.histories import Summarised, add, calls_and
from tests.faults.kit import (
    BOTH,
    PATIENCE,
    WAYS,
    Ledger,
    answers_in,
    assert_sendable,
    faults_of,
    in_thread,
    make,
    run,
)

# ---------------------------------------------------------------- H02 a summary's boundary


@pytest.mark.parametrize("dialect", ["native", "json_action"])
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_h02_a_summary_never_parts_a_call_from_its_result(keep: int, dialect: str) -> None:
    """A summary takes whole rounds: a call and its result are both summarised or both kept, with keep-last 1 too."""
    script: list[Any] = calls_and("done", 6)
    if dialect == "json_action":
        acts = [f'{{"action": "add", "action_input": {{"a": {number}, "b": 1}}}}' for number in range(6)]
        script = [*acts, '{"action": "FINISH", "action_input": {"answer": "done"}}']
    memory = Summarised(keep)
    with ScriptedModel(script) as model:
        result = run(make(model, [add], memory=memory, dialect=dialect), "add them")
    assert result.answer == "done"
    assert_sendable(model.requests)
    assert "Summary of" in model.requests[-1].text
    assert all(len(one.messages) == 2 for head in memory.heads for one in head)


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("way", BOTH)
def test_h02_a_window_never_parts_a_call_from_its_result(rounds: int, way: str) -> None:
    """The same for a window of every size, with batches, failures and nudges in it."""

    def boom() -> str:
        """Fail."""
        raise ValueError("no")

    script = [
        [call("add", a=1, b=1), call("add", a=2, b=2)],
        "",
        [call("add", a=3, b=3), call("boom"), call("nothing")],
        Call("add", '{"a": '),
        *calls_and("done", 3),
    ]
    with ScriptedModel(script) as model:
        result = run(make(model, [add, boom], memory=Window(rounds), limits={"max_retries": 0}), "go", way)
    assert result.answer == "done"
    assert_sendable(model.requests)


# ---------------------------------------------------------------- H03 every call of a batch has its result


def batch_tools(ledger: Ledger) -> list[Any]:
    """A tool that works, one that raises, one that a person must approve."""

    def works() -> str:
        """Work."""
        ledger.note(tool="works")
        return "worked"

    def raises() -> str:
        """Raise."""
        ledger.note(tool="raises")
        raise RuntimeError("broken pipe")

    @tool(requires_approval=True)
    def asks() -> str:
        """Ask first."""
        ledger.note(tool="asks")
        return "asked"

    def needs(x: int) -> str:
        """Need a number."""
        ledger.note(tool="needs")
        return str(x)

    return [works, raises, asks, needs]


@pytest.mark.parametrize("way", WAYS)
def test_h03_a_broken_call_keeps_its_place(way: str) -> None:
    """Of calls of which the first cannot be read, each is answered in the order of the reply, streamed or not."""
    batch = [
        Call("add", '{"a": 1,', id="x"),
        Call("add", {"a": 1, "b": 2}, id="y"),
        Call("add", '{"a": 1, "a": 2}', id="z"),
    ]
    with ScriptedModel([batch, "done"]) as model:
        run(make(model, [add]), "go", way)
    told = answers_in(model.requests[1])
    assert [(message.tool_call_id, message.status) for message in told] == [
        ("x", "error"),
        ("y", "success"),
        ("z", "error"),
    ]
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("retries", [0, 1])
def test_h03_a_mixed_batch_has_one_result_for_each_call_in_order(way: str, retries: int) -> None:
    """Works / raises / unknown: three results in call order, each with its id and status; the next request is valid."""
    ledger = Ledger()
    batch = [Call("works", {}, id="a"), Call("raises", {}, id="b"), Call("missing", {}, id="c")]
    with ScriptedModel([batch, "done"]) as model:
        result = run(make(model, batch_tools(ledger), limits={"max_retries": retries}), "go", way)
    told = answers_in(model.requests[1])
    assert [(message.tool_call_id, message.status) for message in told] == [
        ("a", "success"),
        ("b", "error"),
        ("c", "error"),
    ]
    assert told[0].text == "worked"
    assert "broken pipe" in told[1].text
    assert "There is no tool" in told[2].text
    assert sorted(entry["tool"] for entry in ledger.entries) == ["raises"] * (1 + retries) + ["works"]
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 2 + retries)
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_h03_refused_invalid_and_doubled_calls_are_answered_too(way: str) -> None:
    """Denied, invalid, doubled and good calls of one reply: five results in order, and only the good one ran."""
    ledger = Ledger()
    batch = [
        Call("asks", {}, id="a"),
        Call("needs", {"x": "1"}, id="b"),
        Call("works", {}, id="c"),
        Call("works", {}, id="d"),
        Call("needs", {}, id="e"),
    ]
    with ScriptedModel([batch, "done"]) as model:
        result = run(make(model, batch_tools(ledger), approve=lambda _: Deny("too dear")), "go", way)
    told = answers_in(model.requests[1])
    assert [message.tool_call_id for message in told] == ["a", "b", "c", "d", "e"]
    assert [message.status for message in told] == ["error", "error", "success", "error", "error"]
    assert "too dear" in told[0].text
    assert ledger.entries == [{"tool": "works"}]
    assert result.tool_calls == 1
    assert_sendable(model.requests)


def test_h03_a_batch_with_unreadable_arguments_beside_good_ones() -> None:
    """A call whose arguments cannot be read is answered beside its good siblings, which run."""
    ledger = Ledger()
    batch = [Call("works", {}, id="a"), Call("needs", '{"x": ', id="b")]
    with ScriptedModel([batch, "done"]) as model:
        run(make(model, batch_tools(ledger)), "go", "stream")
    assert [message.tool_call_id for message in answers_in(model.requests[1])] == ["a", "b"]
    assert ledger.entries == [{"tool": "works"}]
    assert_sendable(model.requests)


def test_h03_the_order_of_a_streamed_batch_is_the_models() -> None:
    """A bad call before a good one stays before it."""
    ledger = Ledger()
    batch = [Call("needs", '{"x": ', id="a"), Call("works", {}, id="b")]
    with ScriptedModel([batch, "done"]) as model:
        run(make(model, batch_tools(ledger)), "go", "stream")
    assert [message.tool_call_id for message in answers_in(model.requests[1])] == ["a", "b"]


# ---------------------------------------------------------------- H04 a run that stops while calls are open


@pytest.mark.parametrize("batch", [1, 2])
def test_h04_a_cancelled_tool_leaves_a_thread_that_goes_on(batch: int) -> None:
    """Cancelled while its only calls are in flight: each has a synthetic result, and the thread's next turn sees it."""
    started, release = threading.Event(), threading.Event()

    def slow(n: int) -> str:
        """Take long."""
        started.set()
        release.wait(PATIENCE)
        return "too late"

    script = [[call("slow", n=number) for number in range(batch)], "second answer"]
    config: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "r"}}
    with ScriptedModel(script) as model:
        agent = make(model, [slow])
        first = in_thread(lambda: agent.invoke("first task", config))
        assert started.wait(PATIENCE)
        assert agent.cancel("r") is True
        result = first()
        release.set()
        assert (result.status, result.reason, result.answer) == (Status.CANCELLED, StopReason.CANCELLED, None)
        told = [message for message in result.messages if isinstance(message, ToolMessage)]
        assert [message.status for message in told] == ["error"] * batch
        assert all("unknown" in message.text for message in told)
        second = agent.invoke("second task", {"configurable": {"thread_id": "t"}})
    assert second.answer == "second answer"
    assert_sendable(model.requests)
    sent = model.requests[1]
    assert len(answers_in(sent)) == batch, "a call that may have taken effect is not forgotten"
    assert "unknown" in answers_in(sent)[0].text


async def test_h04_a_cancelled_task_leaves_a_thread_that_goes_on() -> None:
    """The same for a task that is cancelled from outside, in async."""
    started = asyncio.Event()

    async def slow() -> str:
        """Take long."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([call("slow"), "second answer"]) as model:
        agent = make(model, [slow])
        task = asyncio.ensure_future(agent.ainvoke("first", {"configurable": {"thread_id": "t"}}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        second = await agent.ainvoke("second", {"configurable": {"thread_id": "t"}})
    assert second.answer == "second answer"
    assert_sendable(model.requests)
    assert len(answers_in(model.requests[1])) == 1


def swift_and(slow: Any) -> list[Any]:
    """A tool that returns at once, and `slow`."""

    def swift(n: int) -> str:
        """Be quick."""
        return f"swift {n}"

    return [swift, slow]


SWIFT_THEN_SLOW = [call("swift", n=1), call("swift", n=2), call("slow", n=3), call("slow", n=4)]


def told_after_a_stop(agent: Agent, model: ScriptedModel) -> None:
    """What had ended is known as it was to the next turn and to the audit; only the others are in the dark."""
    told = answers_in(model.requests[1])
    assert [message.status for message in told] == ["success", "success", "error", "error"]
    assert [message.text for message in told[:2]] == ["swift 1", "swift 2"]
    assert all("unknown" in message.text for message in told[2:])
    assert_sendable(model.requests)
    if agent.trails is not None:
        assert audit(agent.journal, "r", agent.setup).ok
        ctx = replay(agent.journal.entries("r"), agent.setup).folded.ctx
        assert (ctx.tool_calls, [done.result.text for done in ctx.done]) == (2, ["swift 1", "swift 2"])


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("store", [None, "trail"])
def test_h04_what_had_ended_when_the_run_was_cancelled_stays_known(parallel: int, store: str | None) -> None:
    """Two calls had returned when the run was cancelled: their results are kept, and the next turn does not think them unknown."""
    started, release = threading.Event(), threading.Event()

    def slow(n: int) -> str:
        """Take long."""
        started.set()
        release.wait(PATIENCE)
        return "too late"

    config: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "r"}}
    with ScriptedModel([SWIFT_THEN_SLOW, "second answer"]) as model:
        trails = MemoryTrail() if store else None
        agent = make(model, swift_and(slow), limits={"max_parallel": parallel}, store=trails)
        first = in_thread(lambda: agent.invoke("first task", config))
        assert started.wait(PATIENCE)
        assert agent.cancel("r") is True
        result = first()
        release.set()
        agent.invoke("second task", {"configurable": {"thread_id": "t"}})
    assert (result.status, result.tool_calls) == (Status.CANCELLED, 2)
    assert [one.text for one in result.results] == ["swift 1", "swift 2"]
    told_after_a_stop(agent, model)


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("by", ["task", "agent"])
async def test_h04_what_had_ended_when_the_task_was_cancelled_stays_known(parallel: int, by: str) -> None:
    """The same on the event loop, cancelled from outside or by the agent."""
    started = asyncio.Event()

    async def slow(n: int) -> str:
        """Take long."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([SWIFT_THEN_SLOW, "second answer"]) as model:
        agent = make(model, swift_and(slow), limits={"max_parallel": parallel}, store=MemoryTrail())
        config: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "r"}}
        task = asyncio.ensure_future(agent.ainvoke("first task", config))
        await started.wait()
        if by == "task":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            agent.cancel("r")
            await task
        await agent.ainvoke("second task", {"configurable": {"thread_id": "t"}})
    told_after_a_stop(agent, model)


@pytest.mark.parametrize("how", ["retry", "fallback"])
def test_h04_an_earlier_failure_does_not_stand_for_the_attempt_that_was_cancelled(how: str) -> None:
    """Cancelled while a retry, or the fallback, is under way: whether the call took effect is unknown, whatever failed before."""
    started, release = threading.Event(), threading.Event()
    tries: list[int] = []

    def late() -> str:
        started.set()
        release.wait(PATIENCE)
        return "too late"

    @tool
    def spare(n: int) -> str:
        """Stand in."""
        return late()

    @tool(retry=1, fallback=spare)
    def pay(n: int) -> str:
        """Pay."""
        tries.append(n)
        if how == "retry" and len(tries) == 2:
            return late()
        raise ConnectionRefusedError("try again")

    with ScriptedModel([call("pay", n=1), "second answer"]) as model:
        agent = make(model, [pay, spare], store=MemoryTrail())
        config: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "r"}}
        first = in_thread(lambda: agent.invoke("first task", config))
        assert started.wait(PATIENCE)
        agent.cancel("r")
        result = first()
        release.set()
        agent.invoke("second task", {"configurable": {"thread_id": "t"}})
    assert (result.status, len(tries)) == (Status.CANCELLED, 2)
    (told,) = answers_in(model.requests[1])
    assert (told.status, told.text) == ("error", EN.cancelled_result)
    assert_sendable(model.requests)
    assert audit(agent.journal, "r", agent.setup).ok
    assert list(turn_messages(fold(agent.journal.entries("r"), agent.setup))) == list(result.messages)


LIMITS_THAT_STOP = {
    "max_steps": {"max_steps": 2},
    "token_budget": {"token_budget": 260},
    "repeated_action": {"repeat_threshold": 1},
    "max_tool_calls": {"max_tool_calls": 2},
}


@pytest.mark.parametrize("on_limit", ["stop", "answer"])
@pytest.mark.parametrize("dialect", ["native", "json_action"])
@pytest.mark.parametrize("limit", LIMITS_THAT_STOP)
def test_h04_every_limit_leaves_a_thread_that_goes_on(limit: str, dialect: str, on_limit: str) -> None:
    """However a run was stopped, every call of its thread is answered and the next turn's prompt is valid."""
    same = limit == "repeated_action"

    def acts(request: Any) -> Any:
        number = 1 if same else request.number
        if "second" in request.text:
            return "two" if dialect == "native" else '{"action": "FINISH", "action_input": {"answer": "two"}}'
        if dialect == "native":
            return reply("", call("add", a=number, b=1), usage=(60, 20))
        return reply(f'{{"action": "add", "action_input": {{"a": {number}, "b": 1}}}}', usage=(60, 20))

    model = ScriptedModel(acts)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    store = InMemoryConversations()
    limits = LIMITS_THAT_STOP[limit] | {"on_limit": on_limit}
    agent = make(model, [add], dialect=dialect, limits=limits, store=store)
    first = run(agent, "first", config=config)
    assert first.status is Status.FAILED
    assert first.answer is None
    assert first.tool_calls > 0
    assert faults_of([SystemMessage("s"), *first.messages], alternate=False) == []
    second = run(make(model, [add], dialect=dialect, store=store), "second", config=config)
    assert second.answer == "two"
    assert_sendable(model.requests)
    assert "sum 2" in model.requests[-1].text


@pytest.mark.parametrize("on_limit", ["stop", "answer"])
@pytest.mark.parametrize("dialect", ["native", "json_action"])
@pytest.mark.parametrize("limit", LIMITS_THAT_STOP)
def test_h04_a_trail_tells_the_messages_that_the_result_has(limit: str, dialect: str, on_limit: str) -> None:
    """What `show --messages` and the report read of a run that a limit stopped is its history, down to what became of the last calls."""

    def acts(request: Any) -> Any:
        number = 1 if limit == "repeated_action" else request.number
        if dialect == "native":
            return reply("", call("add", a=number, b=1), usage=(60, 20))
        return reply(f'{{"action": "add", "action_input": {{"a": {number}, "b": 1}}}}', usage=(60, 20))

    limits = LIMITS_THAT_STOP[limit] | {"on_limit": on_limit}
    agent = make(ScriptedModel(acts), [add], dialect=dialect, limits=limits, store=MemoryTrail())
    result = run(agent, "go")
    assert result.status is Status.FAILED
    told = turn_messages(fold(agent.journal.entries(result.run_id), agent.setup))
    assert [(one.type, one.text) for one in told] == [(one.type, one.text) for one in result.messages]


@pytest.mark.parametrize("way", BOTH)
def test_h04_a_refused_batch_is_answered_in_the_run_itself(way: str) -> None:
    """The batch that would pass the limit of tool calls is answered call by call before an answer is asked for."""

    def acts(request: Any) -> Any:
        if not request.tools:
            return "from what I know"
        base = 10 * request.number
        return [call("add", a=base + number, b=1) for number in range(3)]

    model = ScriptedModel(acts)
    result = run(make(model, [add], limits={"max_tool_calls": 4}), "go", way)
    assert (result.status, result.reason, result.tool_calls) == (Status.PARTIAL, StopReason.FORCED_ANSWER, 3)
    assert_sendable(model.requests)
    assert len(answers_in(model.requests[-1])) == 6
