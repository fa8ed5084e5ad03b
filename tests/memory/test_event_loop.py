"""Stores of conversations and event loops: one that hangs holds up nobody, and a cancelled await leaves no thread claimed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Approve, Status, tool, workers
from fsm_agent.errors import RunBusy
from fsm_agent.history import Block
from fsm_agent.memory import InMemoryConversations
from fsm_agent.observe import silent_logger
from fsm_agent.runs import Run
from fsm_agent.testing import Delay, ScriptedModel, call
from fsm_agent.trail import MemoryTrail

THREAD: Any = {"configurable": {"thread_id": "t", "run_id": "r"}}
PATIENCE = 10.0


class Remote:
    """A store that tells on which thread it is asked, and answers only when it is let."""

    def __init__(self) -> None:
        self.inner = InMemoryConversations()
        self.asked: list[tuple[str, threading.Thread]] = []
        self.may_open, self.may_close = threading.Event(), threading.Event()
        self.reached, self.closed = threading.Event(), threading.Event()
        self.may_open.set()
        self.may_close.set()

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """As the protocol says, when it may."""
        self.asked.append(("open", threading.current_thread()))
        self.reached.set()
        assert self.may_open.wait(PATIENCE)
        return self.inner.open(thread_id, run_id)

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """As the protocol says, when it may."""
        self.asked.append(("close", threading.current_thread()))
        self.reached.set()
        assert self.may_close.wait(PATIENCE)
        self.inner.close(thread_id, run_id, history)
        self.closed.set()


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def agent_with(conversations: Any, *replies: Any, **options: Any) -> Agent:
    """An agent with these conversations."""
    return Agent(ScriptedModel(list(replies)), [pay], conversations=conversations, logger=silent_logger(), **options)


def others(store: Remote) -> list[str]:
    """What the store was asked, none of it on the thread of the loop."""
    assert all(thread is not threading.main_thread() for _, thread in store.asked), store.asked
    return [what for what, _ in store.asked]


async def streamed(agent: Agent) -> None:
    """All items of a run."""
    async for _ in agent.astream("Hello", THREAD):
        pass


@pytest.mark.parametrize("ask", [lambda agent: agent.ainvoke("Hello", THREAD), streamed], ids=["ainvoke", "astream"])
def test_a_store_is_never_asked_on_the_thread_of_the_loop(ask: Callable[[Agent], Any]) -> None:
    """A run on the event loop takes its thread and gives it back on a worker, and its turn is stored."""
    store = Remote()
    asyncio.run(ask(agent_with(store, "Hi.")))
    assert others(store) == ["open", "close"]
    assert [str(one.messages[0].content) for one in store.inner.open("t", "x")] == ["Hello", "Hi."]


def test_a_run_that_is_gone_on_with_asks_on_a_worker_too() -> None:
    """`aresume` of a stored run takes the thread again, and gives it back, beside the loop."""
    store, trails = Remote(), MemoryTrail()
    agent_with(store, call("pay", to="Ana"), store=trails).invoke("Pay Ana", THREAD)
    store.asked.clear()
    again = agent_with(store, "Paid.", store=trails)
    result = asyncio.run(again.aresume("r", decision=Approve()))
    assert (result.status, others(store)) == (Status.COMPLETED, ["open", "close"])


def test_a_store_that_hangs_does_not_hold_up_the_loop() -> None:
    """While one run waits for its thread, another on the same loop goes through."""
    store = Remote()
    store.may_open.clear()

    async def both() -> str:
        waiting = asyncio.create_task(agent_with(store, "Late.").ainvoke("Hello", THREAD))
        await asyncio.to_thread(store.reached.wait, PATIENCE)
        other = await agent_with(None, "At once.").ainvoke("Hello")
        assert not waiting.done()
        store.may_open.set()
        await waiting
        return str(other.answer)

    assert asyncio.run(both()) == "At once."


def test_a_cancelled_await_gives_a_thread_back_that_was_still_being_opened() -> None:
    """Cancelled while the store hangs, the await ends at once; id and thread are the run's until the store answers, and free then."""
    store = Remote()
    store.may_open.clear()
    agent = agent_with(store, "Hi.")

    async def cancelled() -> None:
        waiting = asyncio.create_task(agent.ainvoke("Hello", THREAD))
        await asyncio.to_thread(store.reached.wait, PATIENCE)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(RunBusy, match="already under way"):
            await agent.ainvoke("Hello", THREAD)

    asyncio.run(cancelled())
    store.may_open.set()
    assert store.closed.wait(PATIENCE)
    assert others(store) == ["open", "close"]
    assert store.inner.open("t", "another") == ()


def test_a_cancelled_run_gives_its_thread_back_on_a_worker() -> None:
    """Cancelled in the middle of a model call, the thread is free when the await has ended."""
    store = Remote()
    agent = agent_with(store, Delay(60, "Late."))

    async def cancelled() -> None:
        waiting = asyncio.create_task(agent.ainvoke("Hello", THREAD))
        await asyncio.to_thread(store.reached.wait, PATIENCE)
        while not isinstance(agent._runner.slots.active.get("r"), Run):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert others(store) == ["open", "close"]
    assert store.inner.open("t", "another") == ()


def test_a_run_that_no_worker_could_begin_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with too many threads refuses the run, and keeps neither its id nor its thread taken."""
    agent = agent_with(Remote(), "Hi.")

    def full(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(workers, "start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            asyncio.run(agent.ainvoke("x", THREAD))
    assert asyncio.run(agent.ainvoke("x", THREAD)).answer == "Hi."


def test_a_run_that_is_refused_its_thread_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time would give up the run of whoever has taken the id meanwhile."""
    store = Remote()
    agent = agent_with(store, "Hi.")
    store.inner.open("t", "another")
    given_up: list[str] = []
    monkeypatch.setattr(agent._runner, "release", lambda slot, _: given_up.append(slot.run_id))
    with pytest.raises(RunBusy):
        asyncio.run(agent.ainvoke("x", THREAD))
    assert given_up == ["r"]


def test_a_turn_is_stored_although_nobody_waits_for_the_store_any_more() -> None:
    """Cancelled while the store hangs at the end of the run, what was said is kept as soon as the store answers."""
    store = Remote()
    store.may_close.clear()

    async def cancelled() -> None:
        waiting = asyncio.create_task(agent_with(store, "Hi.").ainvoke("Hello", THREAD))
        while len(store.asked) < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    store.may_close.set()
    assert store.closed.wait(PATIENCE)
    assert [str(one.messages[0].content) for one in store.inner.open("t", "x")] == ["Hello", "Hi."]


def test_conversations_in_memory_take_no_change_of_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers at once is asked on the loop itself."""
    threads = []
    opened = InMemoryConversations.open

    def told(self: InMemoryConversations, thread_id: str, run_id: str) -> tuple[Block, ...]:
        threads.append(threading.current_thread())
        return opened(self, thread_id, run_id)

    monkeypatch.setattr(InMemoryConversations, "open", told)
    asyncio.run(agent_with(InMemoryConversations(), "Hi.").ainvoke("Hello", THREAD))
    assert threads == [threading.main_thread()]
