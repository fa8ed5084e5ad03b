"""A stream that is broken off, and `Agent.cancel`."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from fsm_agent import Approve, Event, State, Status, StopReason, Token, Transitioned, tool
from fsm_agent.errors import RunBusy, RunError, UnknownRun
from fsm_agent.slots import Slot, Slots
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from tests.agent.kit import PATIENCE, RUN, THREAD, WAYS, Seen, add, hanging, make, run
from tests.faults.kit import in_thread

# ---------------------------------------------------------------- breaking off a stream


@pytest.mark.parametrize("at", [Transitioned, Token])
def test_closing_a_stream_cancels_its_run(at: type) -> None:
    """Whoever stops reading stops the run: closed anywhere, it is terminal at once and the thread is free."""
    seen = Seen()
    with ScriptedModel(["one two three", "second"]) as model:
        agent = make(model, observers=[seen])
        stream = agent.stream("go", RUN)
        for item in stream:
            if isinstance(item, at):
                break
        stream.close()  # type: ignore[attr-defined]  # it is a generator
        last = seen.ended()
        assert (last.target, last.reason) == (State.ABORT, StopReason.CANCELLED)
        assert agent.cancel("r") is False
        assert run(agent, "again", "invoke", THREAD).answer == "second"


def test_a_stream_dropped_in_a_loop_cancels_its_run() -> None:
    """A plain `break` is enough."""
    seen = Seen()
    with ScriptedModel([call("add", a=1, b=2)]) as model:
        agent = make(model, [add], observers=[seen])
        for _ in agent.stream("go", RUN):
            break
    assert seen.ended().reason is StopReason.CANCELLED


@pytest.mark.parametrize("stored", [False, True])
def test_a_stream_that_the_garbage_collector_finds_is_ended_on_another_thread(stored: bool) -> None:
    """A collection may begin while its thread holds any lock, of a store too: nothing that takes one is done there."""
    ended, ends = threading.Event(), list[int]()

    def seen(record: Transitioned) -> None:
        if record.target is State.ABORT:
            ends.append(threading.get_ident())
            ended.set()

    class Reader:
        stream: Iterator[Any]
        me: Reader

    with ScriptedModel([call("add", a=1, b=2)]) as model:
        agent = make(model, [add], observers=[seen], store=MemoryTrail() if stored else None)
        reader = Reader()
        reader.stream, reader.me = iter(agent.stream("go", RUN)), reader
        next(reader.stream)
        del reader
        gc.collect()
        assert ended.wait(PATIENCE)
        assert ends != [threading.get_ident()]


def test_a_stream_that_nobody_reads_is_no_run() -> None:
    """Without a first item nothing is asked and no thread is taken."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        unread: Iterator[Any] = agent.stream("go", RUN)
        assert run(agent, "go", "invoke", RUN).answer == "hello"
        del unread
    assert model.count == 1


@pytest.mark.parametrize("at", [Transitioned, Token])
async def test_closing_an_async_stream_cancels_its_run(at: type) -> None:
    """The same for `astream`: when `aclose` has returned, the run is terminal and the model's stream is closed."""
    seen, closed = Seen(), []

    class Closing(ScriptedModel):
        """Notes when its stream is closed."""

        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            try:
                async for chunk in super()._astream(*args, **kwargs):
                    yield chunk
            finally:
                closed.append(True)

    with Closing(["one two three", "second"]) as model:  # type: ignore[call-arg]  # pydantic's plugin forgets __init__
        agent = make(model, observers=[seen])
        async with aclosing(agent.astream("go", RUN)) as stream:  # type: ignore[type-var]  # it is an async generator
            async for item in stream:
                if isinstance(item, at):
                    break
        last = seen.ended()
        assert (last.target, last.reason) == (State.ABORT, StopReason.CANCELLED)
        assert closed
        assert agent.cancel("r") is False
        assert (await agent.ainvoke("again", THREAD)).answer == "second"


async def test_an_async_stream_dropped_in_a_loop_cancels_its_run() -> None:
    """A plain `break` is enough there too, as soon as the loop turns."""
    seen = Seen()
    with ScriptedModel([call("add", a=1, b=2)]) as model:
        agent = make(model, [add], observers=[seen])
        async for _ in agent.astream("go", RUN):
            break
        for _ in range(20):
            await asyncio.sleep(0)
    assert seen.ended().reason is StopReason.CANCELLED


# ---------------------------------------------------------------- agent.cancel


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["model", "tool", "batch"])
def test_cancel_from_another_thread_gives_a_result(where: str, way: str, watched: bool) -> None:
    """`agent.cancel` ends the run as cancelled, with its reason; the caller gets a result, not an exception."""
    release, started = threading.Event(), threading.Event()
    asynchronous = way.startswith("a")

    async def ahangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    def hangs() -> str:
        """Hang."""
        started.set()
        release.wait(PATIENCE)
        return "late"

    model_hangs: Any = ahangs if asynchronous else hanging(release, started)
    first: Any = {"model": model_hangs, "tool": call("hangs"), "batch": [call("hangs"), call("add", a=1, b=2)]}[where]
    with ScriptedModel([first]) as model:
        agent = make(model, [hangs, add], observers=[Seen()] if watched else [])
        join = in_thread(lambda: run(agent, "go", way, RUN))
        assert started.wait(PATIENCE)
        assert agent.cancel("r", "the user went home") is True
        result = join()
    release.set()
    assert (result.status, result.reason, result.answer) == (Status.CANCELLED, StopReason.CANCELLED, None)
    assert "the user went home" in result.detail
    assert result.transitions[-1].event is Event.CANCELLED
    assert agent.cancel("r") is False


def test_cancelling_what_is_not_there_is_false() -> None:
    """An unknown run, and one that has ended, cannot be cancelled."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        assert agent.cancel("r") is False
        run(agent, "go", "invoke", RUN)
        assert agent.cancel("r") is False


@pytest.mark.parametrize("way", WAYS)
def test_cancelling_a_run_that_has_come_to_its_end_is_false(way: str) -> None:
    """Who hears of the last transition, as an observer does, is not told that a run with an answer was stopped."""
    said: list[bool] = []
    with ScriptedModel(["hello"]) as model:
        agent: Any = make(
            model, observers=[lambda record: said.append(record.target is State.FINISH and agent.cancel("r"))]
        )
        assert run(agent, "go", way, RUN).ok
    assert said == [False, False]


def test_cancelling_one_run_leaves_the_others() -> None:
    """Of two runs only the named one stops."""
    release, started = threading.Event(), threading.Semaphore(0)

    def hangs(_: Any) -> str:
        started.release()
        release.wait(PATIENCE)
        return "done"

    model = ScriptedModel(hangs)
    agent = make(model)
    joins = [
        in_thread(lambda run_id=run_id: agent.invoke("go", {"configurable": {"run_id": run_id}}))  # type: ignore[misc]  # a default binds it
        for run_id in ("a", "b")
    ]
    for _ in joins:
        assert started.acquire(timeout=PATIENCE)
    assert agent.cancel("a")
    assert joins[0]().status is Status.CANCELLED
    release.set()
    assert joins[1]().answer == "done"


def test_a_run_id_in_use_is_refused() -> None:
    """Two runs under one id could not be told apart: the second is a named error, the first goes on."""
    release, started = threading.Event(), threading.Event()
    with ScriptedModel([hanging(release, started), "after"]) as model:
        agent = make(model)
        join = in_thread(lambda: agent.invoke("go", RUN))
        assert started.wait(PATIENCE)
        with pytest.raises(RunBusy, match="r"):
            agent.invoke("go", {"configurable": {"run_id": "r"}})
        assert model.count == 1
        release.set()
        assert join().answer == "late"
        assert run(agent, "go", "invoke", RUN).answer == "after"


@pytest.mark.parametrize("way", WAYS)
def test_a_run_may_be_cancelled_before_its_first_step(way: str) -> None:
    """A callback that is told of the beginning of a run can cancel it: nothing is asked."""
    cancelled = list[bool]()

    class Stops(BaseCallbackHandler):
        def on_chain_start(self, *_: Any, **__: Any) -> None:
            cancelled.append(agent.cancel("r", "not today"))

    with ScriptedModel([]) as model:
        agent = make(model)
        result = run(agent, "go", way, {**RUN, "callbacks": [Stops()]})
    assert (result.status, result.reason, cancelled) == (Status.CANCELLED, StopReason.CANCELLED, [True])


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_cannot_begin_keeps_neither_its_id_nor_its_thread(way: str) -> None:
    """What fails while a run is made, as a key server for its trail, is raised, and the same run may be tried again."""

    class Key:
        down = True

        def encrypt(self, text: str) -> str:
            if self.down:
                raise ConnectionError("the key server is down")
            return text

        def decrypt(self, text: str) -> str:
            return text

    key = Key()
    with ScriptedModel(["hello"]) as model:
        agent = make(model, store=MemoryTrail(), cipher=key)
        with pytest.raises(ConnectionError):
            run(agent, "go", way, RUN)
        key.down = False
        assert run(agent, "go", way, RUN).answer == "hello"


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("fits", [False, True])
def test_a_cancellation_during_a_resume_that_leads_nowhere_is_heeded(fits: bool, stored: bool) -> None:
    """A run that is cancelled while it is resumed does not go on waiting: not for the other decisions, nor after one that does not fit."""

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    class Decision(dict[str, Approve]):
        def keys(self) -> Any:
            cancelled.append(agent.cancel("r", "not today"))
            return super().keys()

    cancelled = list[bool]()
    seen = Seen()
    with ScriptedModel([[call("pay", to="Ana"), call("pay", to="Bo")], "after"]) as model:
        agent = make(model, [pay], store=MemoryTrail() if stored else None, observers=[seen])
        asked = agent.invoke("go", RUN).requests
        with suppress(RunError):
            agent.resume("r", decision=Decision({asked[0].call_id if fits else "nobody": Approve()}))
        assert cancelled == [True]
        assert seen.ended().reason is StopReason.CANCELLED
        with pytest.raises(UnknownRun):
            agent.resume("r")
        assert run(agent, "next", "invoke", THREAD).answer == "after"


def test_a_run_that_is_left_takes_nobody_elses_place() -> None:
    """The id of a run is free once; whoever has it then keeps it, however late the run is left again."""
    left: Any = SimpleNamespace(job=SimpleNamespace(run_id="r"))
    slots, next_ = Slots(), Slot("r")
    slots.enter(left)
    slots.leave(left)
    slots.new(next_)
    slots.end(left)
    assert slots.has(next_)
