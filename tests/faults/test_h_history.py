"""Family H: whatever happens, the history is one that a strict server takes."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Agent, Deny, Full, RunError, Status, StopReason, Window, tool
from fsm_agent.history import Block, block
from fsm_agent.language import EN
from fsm_agent.memory import InMemoryConversations
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, fault, reply, server
from fsm_agent.trail import MemoryTrail, audit, replay
from fsm_agent.trail.fold import fold
from fsm_agent.trail.retold import spoken
from tests.faults.kit import (
    BOTH,
    PATIENCE,
    WAYS,
    Ledger,
    answers_in,
    assert_sendable,
    client,
    faults_of,
    in_thread,
    make,
    run,
)


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"sum {a + b}"


def calls_and(answer: str, count: int) -> list[Any]:
    """A script of `count` different calls, then the answer."""
    return [*(call("add", a=number, b=1) for number in range(count)), answer]


# ---------------------------------------------------------------- H02 a summary's boundary


class Summarised:
    """A memory that keeps the task and the last `keep` blocks, and a summary in place of the others."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.heads: list[tuple[Block, ...]] = []

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """The task, a summary, the newest blocks."""
        task, *rest = history
        head, tail = rest[: -self.keep], rest[-self.keep :]
        if not head:
            return tuple(history)
        self.heads.append(tuple(head))
        return (task, block("summary", HumanMessage(f"Summary of {len(head)} rounds."), turn=task.turn), *tail)


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
    assert list(spoken(fold(agent.journal.entries("r"), agent.setup))) == list(result.messages)


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
    told = spoken(fold(agent.journal.entries(result.run_id), agent.setup))
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


# ---------------------------------------------------------------- H06 ids


def _asked(*ids: str, name: str = "add") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {"a": 1, "b": 1}, "id": one} for one in ids])


def _told(text: str, call_id: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


@pytest.mark.parametrize(
    ("brought", "told"),
    [
        ([_asked("c", "c"), _told("one", "c"), _told("two", "c")], ["one", "two"]),
        (
            [_asked("c"), _told("one", "c"), AIMessage("x"), HumanMessage("q"), _asked("c"), _told("two", "c")],
            ["one", "two"],
        ),
        ([_asked("c", "d"), _told("two", "d"), _told("one", "c")], ["one", "two"]),
        ([_asked("c", name="functions.add"), _told("one", "c")], ["one"]),
    ],
)
def test_h06_a_history_that_a_caller_brings_is_made_sendable(brought: list[Any], told: list[str]) -> None:
    """Calls that share an id keep their own results under ids of their own, and a name is one that every server takes."""
    with ScriptedModel([Call("add", {"a": 2, "b": 2}, id="c"), "4"]) as model:
        run(make(model, [add]), [HumanMessage("before"), *brought, HumanMessage("2+2")])
    assert_sendable(model.requests)
    assert [message.text for message in answers_in(model.requests[1])] == [*told, "sum 4"]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("given", [None, ""])
def test_h06_a_missing_id_is_minted_for_both_messages(given: str | None, way: str) -> None:
    """A call without an id gets one, the same in the assistant's message and in the result."""
    with ScriptedModel([Call("add", {"a": 1, "b": 2}, id=given), "3"]) as model:
        run(make(model, [add]), "1+2", way)
    asked, told = model.requests[1].messages[2:4]
    assert isinstance(asked, AIMessage)
    assert isinstance(told, ToolMessage)
    assert asked.tool_calls[0]["id"] == told.tool_call_id
    assert len(told.tool_call_id) == 9
    assert told.tool_call_id.isalnum()


@pytest.mark.parametrize("way", BOTH)
def test_h06_repeated_ids_are_told_apart(way: str) -> None:
    """The same id twice in a reply, and again in the next turn: every call has its own in the history."""
    script = [
        [
            Call("add", {"a": 1, "b": 1}, id="c"),
            Call("add", {"a": 2, "b": 2}, id="c"),
            Call("add", {"a": 3, "b": 3}, id=None),
        ],
        Call("add", {"a": 4, "b": 4}, id="c"),
        "done",
    ]
    with ScriptedModel(script) as model:
        run(make(model, [add], memory=Full()), "go", way)
    assert_sendable(model.requests)
    assert [message.text for message in answers_in(model.requests[2])] == ["sum 2", "sum 4", "sum 6", "sum 8"]


def test_h06_ids_that_restart_with_every_turn_of_a_thread() -> None:
    """A server that counts its ids from call_0 in every reply does not collide across the turns of a thread."""
    script = [Call("add", {"a": 1, "b": 1}, id="call_0"), "2", Call("add", {"a": 2, "b": 2}, id="call_0"), "4"]
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel(script) as model:
        agent = make(model, [add], memory=Full())
        run(agent, "first", config=config)
        run(agent, "second", config=config)
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_h06_through_the_real_client(way: str) -> None:
    """No id on the wire: the next request carries one, in both places."""
    with server([Call("add", {"a": 1, "b": 2}, id=None), "3"]) as s:
        result = run(make(client(s), [add]), "1+2", way)
    asked, told = s.requests[1].messages[2:4]
    assert result.answer == "3"
    assert asked["tool_calls"][0]["id"] == told["tool_call_id"] != ""


# ---------------------------------------------------------------- H07 one system message


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h07_exactly_one_system_message_and_it_is_first(dialect: str) -> None:
    """After nudge, unreadable reply, warning, strategy and forced answer there is one system message, the first."""

    def boom() -> str:
        """Fail."""
        raise ValueError("no")

    native = dialect == "native"
    acts: list[Any] = [
        "",
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        Call("add", "{") if native else '{"action": "add", "action_',
        call("boom") if native else '{"action": "boom", "action_input": {}}',
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        "forced" if native else '{"action": "FINISH", "action_input": {"answer": "forced"}}',
    ]
    with ScriptedModel(acts) as model:
        agent = make(
            model,
            [add, boom],
            system="Be good.",
            memory=Summarised(3),
            dialect=dialect,
            limits={"max_retries": 0, "no_progress_steps": 9},
        )
        result = run(agent, "go")
    assert (result.status, result.answer) == (Status.PARTIAL, "forced")
    assert_sendable(model.requests)
    assert all(request.text.startswith("Be good.") for request in model.requests)
    assert "Summary of" in model.requests[-1].text


def test_h07_a_system_message_of_the_input_is_the_system_text_of_that_run() -> None:
    """A system message that the caller sends first is in the prompt, as the one system message."""
    with ScriptedModel(["hi"]) as model:
        run(make(model, system="Base."), [SystemMessage("Answer in rhyme."), HumanMessage("hello")])
    (request,) = model.requests
    assert_sendable([request])
    assert "Answer in rhyme." in request.messages[0].text


# ---------------------------------------------------------------- H08 no neighbours of one role


@pytest.mark.parametrize("way", WAYS)
def test_h08_a_failed_turn_is_rolled_back(way: str) -> None:
    """A turn that failed before anything happened leaves nothing: the retry's prompt holds the task once, no error."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([RuntimeError("down"), "hello"]) as model:
        agent = make(model, limits={"max_retries": 0})
        failed = run(agent, "say hello", way, config)
        again = run(agent, "say hello", way, config)
    assert (failed.status, failed.reason, failed.answer) == (Status.FAILED, StopReason.MODEL_FAILED, None)
    assert again.answer == "hello"
    assert_sendable(model.requests)
    users = [message for message in model.requests[1].messages if isinstance(message, HumanMessage)]
    assert [message.text for message in users] == ["say hello"]
    assert "down" not in model.requests[1].text


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h08_a_failed_turn_that_did_something_is_kept_valid(dialect: str) -> None:
    """A turn whose tools ran stays; the next one has no neighbours of one role and no error text as an answer."""
    act: Any = call("add", a=1, b=1) if dialect == "native" else '{"action": "add", "action_input": {"a": 1, "b": 1}}'
    end = "two" if dialect == "native" else '{"action": "FINISH", "action_input": {"answer": "two"}}'
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([act, RuntimeError("down"), end]) as model:
        agent = make(model, [add], dialect=dialect, limits={"max_retries": 0})
        failed = run(agent, "go on", config=config)
        again = run(agent, "go on", config=config)
    assert (failed.status, again.answer) == (Status.FAILED, "two")
    assert_sendable(model.requests)
    assert "sum 2" in model.requests[2].text
    assert "down" not in model.requests[2].text


MISPLACED = {
    "mistral": (400, "Unexpected role 'user' after role 'tool'"),
    "template": (400, "After the optional system message, conversation roles must alternate user/assistant/user/..."),
    "llama": (500, "After the optional system message, conversation roles must alternate user and assistant roles"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("refusal", MISPLACED.values(), ids=MISPLACED)
def test_h08_a_server_that_takes_no_user_after_a_result_is_sent_a_word_between(
    refusal: tuple[int, str], way: str
) -> None:
    """Told to answer now, and in the next turn of a thread whose turn got no answer: refused once, and never again."""
    refused: list[int] = []
    asked: list[Any] = [call("look"), "It is open.", call("look"), fault.unauthorized(), "Closed."]

    def strict(request: Any) -> Any:
        roles = [message["role"] for message in request.messages]
        if ("tool", "user") in pairwise(roles):
            refused.append(request.number)
            return fault.http_error(refusal[0], refusal[1])
        return asked.pop(0)

    def look() -> str:
        """Look."""
        return "open"

    thread = {"configurable": {"thread_id": "t"}}
    with server(strict) as s:
        agent = make(client(s), [look], limits={"max_steps": 1})
        first = run(agent, "Is it open?", way, thread)
        second = run(agent, "And now?", way, thread)
        third = run(agent, "And now?", way, thread)
        sent = s.requests[-1].messages
    assert (first.status, first.answer, third.answer) == (Status.PARTIAL, "It is open.", "Closed.")
    assert (second.status, len(refused), asked) == (Status.FAILED, 1, [])
    assert not any("OK." in message.text for message in (*first.messages, *third.messages)), "the history is as it was"
    assert [message["content"] for message in sent if message["role"] == "assistant"][-1] == "OK."


def test_h08_a_model_of_mistrals_is_never_refused_for_a_user_after_a_result() -> None:
    """Its name is known: what is told after two failures would be refused as the third, which ends the run."""
    asked: list[Any] = [call("look", at=1), call("look", at=2), "Nothing."]

    def look(at: int) -> str:
        """Look."""
        raise RuntimeError("dark")

    with server(asked) as s:
        result = run(make(client(s, model="devstral-small"), [look], limits={"max_retries": 0}), "Look.")
        roles = [message["role"] for message in s.requests[-1].messages]
    assert result.answer == "Nothing."
    assert roles[-3:] == ["tool", "assistant", "user"]


def test_a_model_of_mistrals_is_sent_ids_of_nine_letters_and_digits() -> None:
    """It refuses all others, as a history that another server began has them; its own stay as they are, and results go with their calls."""
    told = [
        HumanMessage("Look twice."),
        AIMessage(
            "",
            tool_calls=[
                {"name": "look", "args": {"at": 1}, "id": "call_0123456789abcdef"},
                {"name": "look", "args": {"at": 2}, "id": "aB3456789"},
            ],
        ),
        ToolMessage("dark", tool_call_id="call_0123456789abcdef"),
        ToolMessage("light", tool_call_id="aB3456789"),
        AIMessage("Dark, then light."),
        HumanMessage("And now?"),
    ]
    sent: dict[str, list[str]] = {}
    for name in ("devstral-small", "gpt-4o-mini"):
        with server(["Dark."]) as s:
            run(make(client(s, model=name)), {"messages": told})
            asked = [one["id"] for message in s.requests[0].messages for one in message.get("tool_calls") or ()]
            given = [message["tool_call_id"] for message in s.requests[0].messages if message["role"] == "tool"]
        assert asked == given
        sent[name] = asked
    assert sent["gpt-4o-mini"] == ["call_0123456789abcdef", "aB3456789"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", sent["devstral-small"][0])
    assert sent["devstral-small"][1] == "aB3456789"


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h08_a_conversation_alternates(dialect: str) -> None:
    """Turn after turn the roles alternate, and each turn sees the ones before."""
    ends = ["uno", "due", "tre"]
    script = (
        ends
        if dialect == "native"
        else [f'{{"action": "FINISH", "action_input": {{"answer": "{end}"}}}}' for end in ends]
    )
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel(script) as model:
        agent = make(model, [add], dialect=dialect)
        for turn in ("first", "second", "third"):
            run(agent, turn, config=config)
    assert_sendable(model.requests)
    text = model.requests[2].text
    positions = [text.index(word) for word in ("first", "uno", "second", "due", "third")]
    assert positions == sorted(positions)


def test_h08_neighbours_in_the_callers_own_messages() -> None:
    """Two user messages in a row from the caller are sent as one."""
    with ScriptedModel(["hi"]) as model:
        run(make(model), [HumanMessage("first thing"), HumanMessage("second thing")])
    assert_sendable(model.requests)
    assert "first thing" in model.requests[0].text
    assert "second thing" in model.requests[0].text


# ---------------------------------------------------------------- H09 null content


@pytest.mark.parametrize("way", WAYS)
def test_h09_null_content_beside_a_call_is_replayed_as_a_call(way: str) -> None:
    """An assistant message with null content and a call keeps its call in the next request."""
    with server([reply(None, call("add", a=1, b=2)), "3"]) as s:
        result = run(make(client(s), [add]), "1+2", way)
    asked = s.requests[1].messages[2]
    assert (result.answer, asked["role"]) == ("3", "assistant")
    assert asked["tool_calls"][0]["function"]["name"] == "add"
    assert asked["content"] == "", "null is refused by one server, and by another the message is dropped"
    assert [message["role"] for message in s.requests[1].messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("way", BOTH)
def test_h09_content_in_blocks_is_replayed_as_text(way: str) -> None:
    """Content blocks beside a call are kept as text, so that a server without blocks takes the history."""
    script = [reply([{"type": "text", "text": "Let me see."}], call("add", a=1, b=2)), "3"]
    with ScriptedModel(script) as model:
        run(make(model, [add]), "1+2", way)
    asked = model.requests[1].messages[2]
    assert asked.content == "Let me see."


def test_h09_an_empty_result_is_not_an_empty_message() -> None:
    """A tool that returns nothing has a result with a text, which strict servers ask for."""

    def quiet() -> str:
        """Say nothing."""
        return ""

    with ScriptedModel([call("quiet"), "done"]) as model:
        run(make(model, [quiet]), "go")
    assert answers_in(model.requests[1])[0].text.strip()


# ---------------------------------------------------------------- H10 prompts without a user


@pytest.mark.parametrize("on_limit", ["answer", "stop"])
@pytest.mark.parametrize("way", WAYS)
def test_h10_a_message_beyond_the_budget_is_never_sent(way: str, on_limit: str) -> None:
    """One user message that is larger than everything allowed: no model call, and a named reason."""
    with ScriptedModel([]) as model:
        agent = make(model, limits={"token_budget": 50, "on_limit": on_limit}, system="s")
        result = run(agent, "x" * 4000, way)
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.TOKEN_BUDGET, 0)
    assert (result.usage.total, result.model_calls) == (0, 0)
    assert "token_budget=50" in result.detail


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "task", [[], "", "   ", {"messages": []}, {"input": ""}, [AIMessage("hi")], {"nothing": 1}, None, 5]
)
def test_h10_a_task_without_a_user_turn_is_refused_by_name(task: Any, way: str) -> None:
    """An empty list, an empty text or a list without a user's last message never reaches the model."""
    with ScriptedModel([]) as model, pytest.raises(RunError):
        run(make(model), task, way)
    assert model.count == 0


@pytest.mark.parametrize("rounds", [1, 3])
def test_h10_the_newest_user_message_is_always_sent(rounds: int) -> None:
    """However long the conversation and small the window, the current task is in every prompt, whole."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([*calls_and("one", 4), *calls_and("two", 4)]) as model:
        agent = make(model, [add], memory=Window(rounds))
        run(agent, "first " + "y" * 4000, config=config)
        run(agent, "second " + "z" * 4000, config=config)
    assert_sendable(model.requests)
    assert all("second " + "z" * 4000 in request.text for request in model.requests[5:])


def test_h_the_agents_history_is_the_callers_to_replay() -> None:
    """The messages of a result can be sent as the input of the next run, and are valid there."""
    with ScriptedModel([*calls_and("2", 1), "again"]) as model:
        agent = Agent(model, [add], clock=FakeClock())
        first = agent.invoke("1+1")
        agent.invoke([*first.messages, HumanMessage("sure?")])
    assert_sendable(model.requests)
    assert "1+1" in model.requests[2].text
    assert "sure?" in model.requests[2].text
    assert "sum 1" in model.requests[2].text, "the results of the earlier run are part of what the caller sent"


def test_h_forever_broken_histories_are_never_sent() -> None:
    """Sixty steps of everything at once: each of the prompts is one that a strict server takes."""

    def flaky(n: int) -> str:
        """Work sometimes."""
        if n % 3 == 0:
            raise ValueError("odd")
        return f"n is {n}"

    def acts(request: Any) -> Any:
        number = request.number
        kinds = [
            [Call("flaky", {"n": number}, id="c"), Call("flaky", {"n": number + 1}, id="c")],
            reply("thinking", call("flaky", n=number), call("nothing")),
            Call("flaky", f'{{"n": {number}'),
            call("flaky", n=number),
            call("flaky", n=number + 1),
        ]
        return kinds[number % len(kinds)]

    model = ScriptedModel(acts)
    limits = {"max_steps": 60, "max_tool_calls": 500, "degrade_after": 50, "abort_after": 50, "no_progress_steps": 50}
    limits |= {"repeat_threshold": 50}
    result = run(make(model, [flaky], limits=limits, memory=Window(3)), "go")
    assert result.reason is StopReason.MAX_STEPS
    assert model.count >= 60
    assert_sendable(model.requests)
