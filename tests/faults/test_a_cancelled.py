"""Family A06: whatever cancels a run, and wherever, it has one ending."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from fsm_agent import Approve, Event, State, Status, StopReason, tool
from fsm_agent.errors import UnknownRun
from fsm_agent.history import Block
from fsm_agent.testing import FakeClock, ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from tests.faults.kit import PATIENCE, WAYS, Ledger, Seen, consistent, in_thread, make, run

RUN: RunnableConfig = {"configurable": {"run_id": "r", "thread_id": "t"}}
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


class CancelOnSleep(FakeClock):
    """Cancels run "r" in the middle of a backoff."""

    def __init__(self) -> None:
        super().__init__(on_sleep=lambda _: self.cancel())
        self.cancel: Callable[[], Any] = lambda: None


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a06_cancelled_in_a_backoff(way: str, watched: bool) -> None:
    """A cancellation during the wait before a retry: no further model call, one ending."""
    clock = CancelOnSleep()
    with ScriptedModel([RuntimeError("down")]) as model:
        agent = make(model, clock=clock, observers=[Seen()] if watched else [])
        clock.cancel = lambda: agent.cancel("r")
        result = run(agent, "go", way, RUN)
    assert (result.status, result.reason, model.count) == (Status.CANCELLED, StopReason.CANCELLED, 1)
    assert (result.transitions[-1].source, result.transitions[-1].event) == (State.RETRY, Event.CANCELLED)
    assert consistent(result.transitions)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a06_cancelled_while_the_model_thinks(way: str, watched: bool) -> None:
    """A cancellation during PLAN comes back at once, although the model never answers."""
    started, release = threading.Event(), threading.Event()

    async def ahang(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    def hang(_: Any) -> str:
        started.set()
        release.wait(PATIENCE)
        return "late"

    with ScriptedModel([ahang if way.startswith("a") else hang]) as model:
        agent = make(model, observers=[Seen()] if watched else [])
        join = in_thread(lambda: run(agent, "go", way, RUN))
        assert started.wait(PATIENCE)
        assert agent.cancel("r") is True
        result = join()
    release.set()
    assert (result.status, result.reason, result.model_calls) == (Status.CANCELLED, StopReason.CANCELLED, 0)
    assert [(record.source, record.event) for record in result.transitions] == [(State.PLAN, Event.CANCELLED)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", ["PLAN", "VALIDATE", "OBSERVE", "DECIDE", "EXECUTE"])
def test_a06_cancelled_between_two_effects(state: str, way: str) -> None:
    """Asked to stop while the engine computes, the run stops before its next effect."""
    ledger = Ledger()

    def observer(record: Any) -> None:
        if record.target == state:
            agent.cancel("r")

    def noted() -> str:
        """Work."""
        ledger.note()
        return "worked"

    seen = Seen()
    model = ScriptedModel([call("noted"), "done"])
    agent = make(model, [noted], observers=[observer, seen])
    result = run(agent, "go", way, RUN)
    assert (result.status, result.reason) == (Status.CANCELLED, StopReason.CANCELLED)
    executed = {"VALIDATE": 0, "EXECUTE": 0, "OBSERVE": 1, "DECIDE": 1, "PLAN": 1}[state]
    assert (len(ledger), model.count) == (executed, 1)
    assert consistent(seen.records)


class Meddling:
    """A memory that does something at its nth view: in the engine's own code, between two calls."""

    def __init__(self, at: int, act: Callable[[], Any]) -> None:
        self.at, self.act, self.views = at, act, 0

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """Everything."""
        self.views += 1
        if self.views == self.at:
            self.act()
        return tuple(history)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a06_cancelled_in_the_middle_of_a_computation(at: int, way: str) -> None:
    """A cancellation that comes while a prompt is made: no call begins after it, and there is one ending."""
    asked: list[int] = []

    def stop() -> None:
        asked.append(model.count)
        agent.cancel("r")

    model = ScriptedModel(lambda request: call("add", a=request.number, b=1))
    agent = make(model, [add], memory=Meddling(at, stop))
    result = run(agent, "go", way, RUN)
    assert (result.status, result.reason) == (Status.CANCELLED, StopReason.CANCELLED)
    assert [model.count] == asked
    assert consistent(result.transitions)


@pytest.mark.parametrize("way", WAYS)
def test_a06_cancelled_while_a_person_is_asked(way: str) -> None:
    """A cancellation from inside the approval, even beside a yes, executes nothing."""
    ledger = Ledger()

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        ledger.note()
        return "paid"

    def approve(_: Any) -> bool:
        agent.cancel("r")
        return True

    with ScriptedModel([call("pay")]) as model:
        agent = make(model, [pay], approve=approve)
        result = run(agent, "go", way, RUN)
    assert (result.status, result.reason, len(ledger)) == (Status.CANCELLED, StopReason.CANCELLED, 0)


def test_a06_a_suspended_run_is_cancelled_for_good() -> None:
    """A run that waits for a person can be cancelled; it cannot be resumed then, and its thread is free."""
    ledger, seen = Ledger(), Seen()

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        ledger.note()
        return "paid"

    with ScriptedModel([call("pay"), "second"]) as model:
        agent = make(model, [pay], observers=[seen])
        assert run(agent, "go", config=RUN).status is Status.SUSPENDED
        assert agent.cancel("r") is True
        assert agent.cancel("r") is False
        with pytest.raises(UnknownRun):
            agent.resume("r", decision=Approve())
        assert run(agent, "go on", config=THREAD).answer == "second"
    assert len(ledger) == 0
    first = seen.of("r")
    assert consistent(first)
    assert (first[-1].source, first[-1].event) == (State.REVIEW, Event.CANCELLED)


async def test_a06_a_task_cancelled_before_it_began_has_no_run() -> None:
    """Cancelled before its first step, nothing was asked, nothing is recorded, and the thread is free."""
    seen = Seen()
    with ScriptedModel(["hello"]) as model:
        agent = make(model, observers=[seen])
        task = asyncio.ensure_future(agent.ainvoke("go", RUN))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (seen.records, agent.cancel("r")) == ([], False)
        assert (await agent.ainvoke("go", RUN)).answer == "hello"


@pytest.mark.parametrize("where", ["PLAN", "EXECUTE", "RETRY", "REVIEW"])
async def test_a06_task_cancel_propagates_and_leaves_a_terminal_run(where: str) -> None:
    """Cancelled in any waiting state: CancelledError reaches the awaiter, the run is terminal, the thread is free."""
    waiting = asyncio.Event()

    async def hangs(*_: Any) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    class Clock(FakeClock):
        """Hangs in its async sleep."""

        async def asleep(self, seconds: float) -> None:
            await hangs()

    @tool("act", requires_approval=where == "REVIEW")
    async def act() -> str:
        """Act."""
        await hangs()
        return "never"

    first: Any = {"PLAN": hangs, "RETRY": RuntimeError("down")}.get(where, call("act"))
    seen = Seen()
    with ScriptedModel([first, "second"]) as model:
        agent = make(model, [act], clock=Clock(), observers=[seen], approve=hangs)
        task = asyncio.ensure_future(agent.ainvoke("go", RUN))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        first_run = seen.of("r")
        assert consistent(first_run)
        assert (first_run[-1].source, first_run[-1].event, first_run[-1].reason) == (
            where,
            Event.CANCELLED,
            StopReason.CANCELLED,
        )
        assert agent.cancel("r") is False
        assert (await agent.ainvoke("again", THREAD)).answer == "second"


def hanging() -> tuple[Callable[[], Awaitable[str]], asyncio.Event]:
    """An async tool that never returns, and the event that says that it was called."""
    waiting = asyncio.Event()

    async def hangs() -> str:
        """Hang."""
        waiting.set()
        await asyncio.Event().wait()
        return "never"

    return hangs, waiting


async def test_a06_a_time_out_of_the_caller_is_a_time_out() -> None:
    """`asyncio.timeout` around a run raises TimeoutError at once; the run is terminal."""
    seen = Seen()

    async def hangs(_: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([hangs]) as model:
        agent = make(model, observers=[seen])

        async def limited() -> None:
            async with asyncio.timeout(0.02):
                await agent.ainvoke("go", RUN)

        with pytest.raises(TimeoutError):
            await limited()
    assert consistent(seen.records)
    assert agent.cancel("r") is False


async def test_a06_a_failing_sibling_of_a_task_group_stops_the_run() -> None:
    """In a TaskGroup the failure of another task cancels the run, and only the real error comes out."""
    seen, (hangs, waiting) = Seen(), hanging()

    async def fails() -> None:
        await waiting.wait()
        raise LookupError("elsewhere")

    with ScriptedModel([call("hangs")]) as model:
        agent = make(model, [hangs], observers=[seen])

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(agent.ainvoke("go", RUN))
                group.create_task(fails())

        with pytest.raises(ExceptionGroup) as caught:
            await together()
    assert [type(error) for error in caught.value.exceptions] == [LookupError]
    assert consistent(seen.records)


async def test_a06_cancelled_by_the_agent_and_by_the_task_at_once() -> None:
    """Both at once: the task's own cancellation is not swallowed, and there is one ending."""
    seen, (hangs, waiting) = Seen(), hanging()

    with ScriptedModel([call("hangs")]) as model:
        agent = make(model, [hangs], observers=[seen])
        task = asyncio.ensure_future(agent.ainvoke("go", RUN))
        await waiting.wait()
        agent.cancel("r")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert task.cancelled() or task.result().status is Status.CANCELLED
    assert consistent(seen.records)
    assert len(seen.ends()) == 1


async def test_a06_a_task_cancelled_after_its_run_is_not_uncancelled() -> None:
    """Cancelling the run leaves the surrounding task alive and well: what follows it in the task goes on."""
    hangs, waiting = hanging()

    with ScriptedModel([call("hangs")]) as model:
        agent = make(model, [hangs])

        async def body() -> str:
            result = await agent.ainvoke("go", RUN)
            await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            return f"{result.status} {task.cancelling()}"

        task = asyncio.ensure_future(body())
        await waiting.wait()
        agent.cancel("r")
        assert await task == "cancelled 0"


HUNG = """
import threading
from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call

started = threading.Event()

def hangs() -> str:
    "Hang for ever."
    started.set()
    threading.Event().wait()
    return "never"

agent = Agent(ScriptedModel([call("hangs")]), [hangs], logger=silent_logger())
threading.Thread(target=lambda: (started.wait(), agent.cancel("r")), daemon=True).start()
print(agent.invoke("go", {"configurable": {"run_id": "r"}}).status)
"""


def test_a06_a_tool_that_hangs_for_ever_does_not_keep_the_program_alive() -> None:
    """After its run was cancelled, a hung tool's thread does not hold up the end of the program."""
    done = subprocess.run(
        [sys.executable, "-c", HUNG],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "cancelled"
    assert done.stderr == ""


class Stubborn:
    """An async tool that will not be cancelled until it is let go, as one whose `except:` retries for ever."""

    def __init__(self) -> None:
        self.released = False
        self.started = asyncio.Event()
        self.again: Callable[[], object] = lambda: None

    async def stubborn(self) -> str:
        """Go on for ever."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.again = lambda: loop.call_soon_threadsafe(task.cancel)
        self.started.set()
        while not self.released:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return "late"

    def release(self, _: Any) -> str:
        """Let it end, and answer."""
        self.released = True
        return "done"


@pytest.mark.parametrize(
    "calls", [[call("stubborn")], [call("stubborn"), call("add", a=1, b=2)]], ids=["alone", "beside"]
)
@pytest.mark.parametrize("way", WAYS)
def test_a06_a_tool_that_will_not_be_cancelled_is_left_behind(
    way: str, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over the run goes on without it, with the results of the others, and what it gives later counts no more."""
    for module in ("batch", "perform_tools"):
        monkeypatch.setattr(f"fsm_agent.{module}.PATIENCE", 0.05)
    tool_ = Stubborn()
    with ScriptedModel([calls, tool_.release]) as model:
        agent = make(model, [tool_.stubborn, add], store=MemoryTrail(), limits={"tool_timeout": 0.05})
        result = run(agent, "go", way, RUN)
    with contextlib.suppress(RuntimeError):
        tool_.again()
    texts = ["stubborn gave no result within 0.05 seconds. Whether it took effect is unknown.", "3"]
    assert (result.status, [one.text for one in result.messages[2:-1]]) == (Status.COMPLETED, texts[: len(calls)])
    assert audit(agent.journal, "r", agent.setup).ok


@pytest.mark.parametrize("store", [None, "trail"])
async def test_a06_a_tool_that_was_left_behind_is_told_so_when_the_run_is_cancelled_later(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That its time was over is its result, which stays known when the run is cancelled at the next call."""
    monkeypatch.setattr("fsm_agent.batch.PATIENCE", 0.05)
    monkeypatch.setattr("fsm_agent.perform_tools.PATIENCE", 0.05)
    tool_, slow = Stubborn(), asyncio.Event()

    @tool(timeout=PATIENCE)
    async def hang() -> str:
        """Take long."""
        slow.set()
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([[call("stubborn"), call("add", a=1, b=2), call("hang")]]) as model:
        limits = {"tool_timeout": 0.05, "max_parallel": 2}
        agent = make(model, [tool_.stubborn, add, hang], limits=limits, store=MemoryTrail() if store else None)
        under_way = asyncio.create_task(agent.ainvoke("go", RUN))
        await slow.wait()
        agent.cancel("r")
        result = await under_way
    tool_.release(None)
    tool_.again()
    told = [one.text for one in result.messages if one.type == "tool"]
    assert (result.status, result.tool_calls) == (Status.CANCELLED, 2)
    assert told[:2] == ["stubborn gave no result within 0.05 seconds. Whether it took effect is unknown.", "3"]
    assert store is None or audit(agent.journal, "r", agent.setup).ok


@pytest.mark.parametrize("by", ["agent", "task", "time-out"])
async def test_a06_a_tool_that_will_not_be_cancelled_does_not_hold_a_cancelled_run(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled in any way, the run ends although its tool goes on, and its thread is free."""
    monkeypatch.setattr("fsm_agent.batch.PATIENCE", 0.05)
    tool_ = Stubborn()
    with ScriptedModel([call("stubborn"), tool_.release]) as model:
        agent = make(model, [tool_.stubborn])
        under_way = asyncio.create_task(agent.ainvoke("go", RUN))
        await tool_.started.wait()
        if by == "agent":
            agent.cancel("r")
            assert (await under_way).status is Status.CANCELLED
        elif by == "task":
            under_way.cancel()
            with pytest.raises(asyncio.CancelledError):
                await under_way
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await under_way
        assert (await agent.ainvoke("again", THREAD)).status is Status.COMPLETED
    tool_.again()


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
def test_a06_a_tool_that_says_cancelled_does_not_wait_for_those_beside_it(way: str) -> None:
    """`CancelledError` out of one of two calls ends the run at once; the other one is cancelled, and its clean-up runs."""
    cleaned: list[str] = []

    async def says_cancelled() -> str:
        """Give up."""
        raise asyncio.CancelledError

    async def waits() -> str:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("waits")
        return "never"

    with ScriptedModel([[call("says_cancelled"), call("waits")]]) as model:
        agent = make(model, [says_cancelled, waits], limits={"tool_timeout": PATIENCE})
        begun = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            run(agent, "go", way, RUN)
    assert (cleaned, time.monotonic() - begun < PATIENCE / 2) == (["waits"], True)
