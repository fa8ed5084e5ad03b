"""Turns of one thread, and who may go on with it."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from fsm_agent import Approve, Status, tool
from fsm_agent.errors import RunBusy, TrailError, UnknownRun
from fsm_agent.memory import InMemoryConversations
from fsm_agent.testing import FakeClock, ScriptedModel, call
from fsm_agent.trail import Batch, MemoryTrail
from fsm_agent.trail.store import RUNNING
from tests.agent.kit import PATIENCE, RUN, THREAD, WAYS, Recorder, add, hanging, make, run
from tests.core.validity import wrong_prompt
from tests.faults.kit import in_thread


@pytest.mark.parametrize("way", WAYS)
def test_the_second_turn_sees_the_first(way: str) -> None:
    """With a thread id the next run sees the one before, tool results included; its own result holds only its turn."""
    with ScriptedModel([call("add", a=1, b=2), "It is 3.", "I said 3."]) as model:
        agent = make(model, [add])
        run(agent, "What is 1+2?", way, THREAD)
        second = run(agent, "What did you say?", way, THREAD)
    assert [(message.type, message.text) for message in model.requests[2].messages[1:]] == [
        ("human", "What is 1+2?"),
        ("ai", ""),
        ("tool", "3"),
        ("ai", "It is 3."),
        ("human", "What did you say?"),
    ]
    assert (second.thread_id, [message.type for message in second.messages]) == ("t", ["human", "ai"])
    assert (second.steps, second.usage.total) == (1, 15)


def test_without_a_thread_nothing_is_remembered() -> None:
    """Runs without a thread id start from nothing."""
    with ScriptedModel(["a", "b"]) as model:
        agent = make(model)
        run(agent, "first")
        run(agent, "second")
    assert "first" not in model.requests[1].text


@pytest.mark.parametrize("way", WAYS)
def test_a_busy_thread_is_refused(way: str) -> None:
    """While a run has the thread, another one is a named error, before any model call and any callback."""
    release, started, handler = threading.Event(), threading.Event(), Recorder()
    with ScriptedModel([hanging(release, started), "after"]) as model:
        agent = make(model)
        join = in_thread(lambda: agent.invoke("go", THREAD))
        assert started.wait(PATIENCE)
        with pytest.raises(RunBusy):
            run(agent, "me too", way, {**THREAD, "callbacks": [handler]})
        assert (model.count, handler.events) == (1, [])
        release.set()
        join()
        assert run(agent, "me too", way, THREAD).answer == "after"


def test_a_suspended_run_keeps_its_thread() -> None:
    """A thread whose run waits for a person is in use until that run is resumed or cancelled."""
    with ScriptedModel([call("pay"), "paid it", "next"]) as model:
        agent = make(model, [pay])
        run(agent, "pay", "invoke", RUN)
        with pytest.raises(RunBusy):
            run(agent, "another", "invoke", THREAD)
        agent.resume("r", decision=Approve())
        assert run(agent, "another", "invoke", THREAD).answer == "next"
    assert "paid it" in model.requests[2].text


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kept", ["file", "memory"])
def test_a_thread_is_free_once_its_run_has_ended_elsewhere(kept: str, way: str, tmp_path: Path) -> None:
    """A run that waits here and is brought to its end by another process has its thread no longer, wherever conversations are kept."""
    store: Any = str(tmp_path / "runs.db") if kept == "file" else MemoryTrail()
    with ScriptedModel([call("pay"), "next"]) as here, ScriptedModel(["paid it"]) as there:
        agent = make(here, [pay], store=store)
        run(agent, "pay", way, RUN)
        assert make(there, [pay], store=store).resume("r", decision=Approve()).answer == "paid it"
        assert run(agent, "another", way, THREAD).answer == "next"
    assert ("paid it" in here.requests[1].text) is (kept == "file")


def test_a_thread_is_kept_while_its_run_waits_elsewhere(tmp_path: Path) -> None:
    """One that another process has gone on with, and that waits again, keeps its thread until it ends, here too."""
    store = str(tmp_path / "runs.db")
    with ScriptedModel([call("pay"), "after"]) as here, ScriptedModel([call("pay")]) as there:
        agent, other = make(here, [pay], store=store), make(there, [pay], store=store)
        run(agent, "pay", "invoke", RUN)
        assert other.resume("r", decision=Approve()).status is Status.SUSPENDED
        with pytest.raises(RunBusy):
            run(agent, "another", "invoke", THREAD)
        assert other.cancel("r")
        assert run(agent, "another", "invoke", THREAD).answer == "after"


def test_a_run_that_comes_back_from_elsewhere_keeps_what_was_said(tmp_path: Path) -> None:
    """Approved by one process and the next time by another, in turns: the one that ends it stores its turn."""
    store = str(tmp_path / "runs.db")
    with ScriptedModel([call("pay"), "paid twice", "next"]) as here, ScriptedModel([call("pay")]) as there:
        agent = make(here, [pay], store=store)
        run(agent, "pay", "invoke", RUN)
        make(there, [pay], store=store).resume("r", decision=Approve())
        assert "could not be stored" not in agent.resume("r", decision=Approve()).detail
        run(agent, "another", "invoke", THREAD)
    assert "paid twice" in here.requests[2].text


def test_a_removed_trail_keeps_no_thread() -> None:
    """A run that waited, and whose trail is gone, can be ended by nobody: its thread is free; while the store fails it is not."""

    class Forgetful(MemoryTrail):
        failure: Exception | None = None

        def info(self, run_id: str) -> Any:
            if self.failure is not None:
                raise self.failure
            return super().info(run_id)

    store = Forgetful()
    with ScriptedModel([call("pay"), "next"]) as model:
        agent = make(model, [pay], store=store, conversations=InMemoryConversations())
        run(agent, "pay", "invoke", RUN)
        store.failure = OSError("down")
        with pytest.raises(RunBusy):
            run(agent, "another", "invoke", THREAD)
        store.failure = UnknownRun("gone")
        assert run(agent, "another", "invoke", THREAD).answer == "next"


@tool(idempotent=True)
def twice(n: int) -> int:
    """Double a number."""
    return 2 * n


class Filling(MemoryTrail):
    """A store whose disk is full behind so many appends, until there is room."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append, or fail."""
        self.room -= 1
        if self.room >= 0:
            return super().append(batch)
        failed: Future[None] = Future()
        failed.set_exception(TrailError("the disk is full"))
        return failed


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_can_be_resumed_keeps_its_turn_once(way: str) -> None:
    """Where the store could not write that a run was broken off, the run goes on later, and its turn is not kept twice."""
    found: set[str] = set()
    for room in range(1, 6):
        clock, store, conversations = FakeClock(), Filling(room), InMemoryConversations()
        kept: Any = {"store": store, "conversations": conversations, "clock": clock}
        agent = make(ScriptedModel([call("twice", n=1), "done"]), [twice], **kept)
        with contextlib.suppress(TrailError):
            run(agent, "go", way, RUN)
        store.room, found = 100, {*found, store.info("r").status}
        clock.advance(1_000_000)
        if store.info("r").status == RUNNING:
            make(
                ScriptedModel(lambda request: "done" if "2" in request.text else call("twice", n=1)), [twice], **kept
            ).resume("r")
        history = conversations.open("t", "another")
        assert [one.kind for one in history] == ["task", "round", "answer"], room
    assert found == {RUNNING, Status.COMPLETED}


def test_a_turn_that_follows_another_has_call_ids_of_its_own() -> None:
    """Strict providers take no two calls with one id: a run that goes on after others had its thread uses none of theirs there."""
    clock, store, conversations = FakeClock(), Filling(3), InMemoryConversations()
    kept: Any = {"conversations": conversations, "clock": clock}
    with contextlib.suppress(TrailError):
        make(ScriptedModel([call("twice", n=1), "done"]), [twice], store=store, **kept).invoke("first", RUN)
    assert store.info("r").status == RUNNING
    make(ScriptedModel([call("twice", n=2), "4"]), [twice], **kept).invoke("second", THREAD)
    store.room = 100
    clock.advance(1_000_000)
    resumed = make(ScriptedModel(["2"]), [twice], store=store, **kept).resume("r")
    model = ScriptedModel(["bye"])
    make(model, [twice], **kept).invoke("third", THREAD)
    messages = model.requests[0].messages
    assert resumed.ok
    assert [message.content for message in messages[1:]] == ["second", "", "4", "4", "first", "", "2", "2", "third"]
    assert not wrong_prompt(messages)


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_turn_is_rolled_back_or_valid(way: str) -> None:
    """A turn that failed before anything happened is forgotten; one whose tools ran is kept, without error texts."""
    script = [ValueError("no"), call("add", a=1, b=2), ValueError("no"), "fine"]
    with ScriptedModel(script) as model:
        agent = make(model, [add], limits={"max_retries": 0})
        for task in ("one", "two", "three"):
            run(agent, task, way, THREAD)
    sent = [(message.type, message.text) for message in model.requests[3].messages[1:]]
    assert sent == [("human", "two"), ("ai", ""), ("tool", "3"), ("human", "three")]


def test_a_store_of_ones_own_is_used() -> None:
    """Anything with open and close can keep conversations, and is told every turn."""

    class Store:
        """Keeps histories and a log."""

        def __init__(self) -> None:
            self.log: list[tuple[str, ...]] = []
            self.kept: dict[str, Any] = {}

        def open(self, thread_id: str, run_id: str) -> Any:
            """Open."""
            self.log.append(("open", thread_id, run_id))
            return self.kept.get(thread_id, ())

        def close(self, thread_id: str, run_id: str, history: Any) -> None:
            """Close."""
            self.log.append(("close", thread_id, run_id))
            if history is not None:
                self.kept[thread_id] = history

    store = Store()
    with ScriptedModel(["a", "b"]) as model:
        agent = make(model, store=store)
        run(agent, "first", "invoke", RUN)
        run(agent, "second", "invoke", RUN)
    assert store.log == [("open", "t", "r"), ("close", "t", "r")] * 2
    assert "first" in model.requests[1].text


SAID: dict[str, list[Any]] = {
    "native": [call("add", a=1, b=2), "It is 3.", "It is 4."],
    "json_action": [
        '{"action": "add", "action_input": {"a": 1, "b": 2}}',
        '{"action": "FINISH", "action_input": {"answer": "It is 3."}}',
        '{"action": "FINISH", "action_input": {"answer": "It is 4."}}',
    ],
    "react": [
        'Thought: so\nAction: add\nAction Input: {"a": 1, "b": 2}',
        "Thought: so\nFinal Answer: It is 3.",
        "Thought: so\nFinal Answer: It is 4.",
    ],
}


@pytest.mark.parametrize("dialect", SAID)
@pytest.mark.parametrize("before", [[], [""]], ids=["at once", "after an empty reply"])
def test_messages_of_a_result_can_be_given_back(dialect: str, before: list[Any]) -> None:
    """A graph that keeps the messages of an agent asks its model what a thread of its own would: calls, notes and answers alike."""
    kept = ScriptedModel([*before, *SAID[dialect]])
    agent = make(kept, [add], dialect=dialect)
    agent.invoke("1 + 2?", THREAD)
    agent.invoke("And 2 + 2?", THREAD)
    given = ScriptedModel([*before, *SAID[dialect]])
    agent = make(given, [add], dialect=dialect)
    first = agent.invoke("1 + 2?")
    second = agent.invoke({"messages": [*first.messages, HumanMessage("And 2 + 2?")]})
    assert [(one.type, one.content) for one in given.requests[-1].messages] == [
        (one.type, one.content) for one in kept.requests[-1].messages
    ]
    assert (first.messages[-1].content, second.messages[-1].content) == ("It is 3.", "It is 4.")
    if dialect == "native" and not before:
        assert [one.additional_kwargs for one in first.messages] == [{}] * 4, "LangChain's own messages need no mark"
