"""Running loops, time-outs and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from fsm_agent import Approve, Event, RunError, State, Status, StopReason, runner, threads, tool
from fsm_agent import agent as agent_module
from fsm_agent.errors import UnknownRun
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from tests.agent.kit import PATIENCE, RUN, THREAD, Seen, add, hanging, make, run
from tests.faults.kit import in_thread

DRIVING = {one.__file__ for one in (agent_module, runner, threads)}


async def test_sync_calls_work_inside_a_running_loop() -> None:
    """In a notebook cell, where a loop runs, all sync methods work, with async tools too."""

    async def aadd(a: int, b: int) -> str:
        """Add."""
        await asyncio.sleep(0)
        return str(a + b)

    model = ScriptedModel(lambda request: "done" if "3" in request.messages[-1].text else call("aadd", a=1, b=2))
    agent = make(model, [aadd])
    assert agent.invoke("go").answer == "done"
    assert list(agent.stream("go"))[-1].answer == "done"
    assert [result.answer for result in agent.batch(["a", "b"])] == ["done", "done"]


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
def test_without_asyncio_it_says_where_to_call_it(way: str) -> None:
    """Under Trio no model is asked, and nothing is left that was never awaited: the error names the way that works."""
    with ScriptedModel([]) as model:
        agent = make(model)
        running: Any = agent.ainvoke("go") if way == "ainvoke" else anext(agent.astream("go").__aiter__())
        with pytest.raises(RunError, match="call invoke\\(\\) in a thread"):
            running.__await__().send(None)


def interrupt_main(started: threading.Event) -> Callable[[], Any]:
    """Press Ctrl-C once `started` is set and the main thread has gone to sleep.

    The pause is for the operating system: a signal that comes between Python's last look and the sleep wakes nobody.
    """
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert started.wait(PATIENCE)
        threading.Event().wait(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    return in_thread(interrupt)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("where", ["model", "tool", "batch", "stream"])
def test_an_interrupt_stops_a_sync_run_at_once(where: str, watched: bool) -> None:
    """Ctrl-C while model or tool hang: KeyboardInterrupt comes out at once, the run is terminal, the thread is free."""
    release, started = threading.Event(), threading.Event()
    seen = Seen()

    def hangs() -> str:
        """Hang."""
        started.set()
        release.wait(PATIENCE)
        return "late"

    first: Any = (
        hanging(release, started)
        if where in ("model", "stream")
        else [call("hangs"), call("add", a=1, b=2)][: 1 + (where == "batch")]
    )
    with ScriptedModel([first, "second"]) as model:
        agent = make(model, [hangs, add], observers=[seen] if watched else [])
        join = interrupt_main(started)
        with pytest.raises(KeyboardInterrupt):
            run(agent, "go", "stream" if where == "stream" else "invoke", RUN)
        join()
        if watched:
            last = seen.ended()
            assert (last.event, last.reason) == (Event.CANCELLED, StopReason.CANCELLED)
            assert last.source is (State.PLAN if where in ("model", "stream") else State.EXECUTE)
        assert agent.cancel("r") is False
        assert run(agent, "again", "invoke", THREAD).answer == "second"
    release.set()


def interrupted_at(line: int, act: Callable[[], object]) -> bool:
    """Press Ctrl-C before the given one of the lines, counted from 1, that drive a run on the thread of the caller. False past the last."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename not in DRIVING:
            return None
        left -= event == "line"
        if event == "line" and not left:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return left <= 0


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("way", ["invoke", "stream", "resume", "cancel"])
def test_an_interrupt_at_any_line_leaves_no_run_under_way(way: str, stored: bool) -> None:
    """Wherever Ctrl-C comes, in the beginning and at the end of a run too, its id and its thread are free, or it waits as before."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def interrupted(line: int) -> bool:
        waits = way in ("resume", "cancel")
        replies = [call("pay"), "done"] if waits else ["done"]
        with ScriptedModel(lambda request: replies.pop(0) if replies else "again") as model:
            agent = make(model, [pay], store=MemoryTrail() if stored else None)
            acts: dict[str, Callable[[], object]] = {
                "resume": partial(agent.resume, "r", decision=Approve()),
                "cancel": partial(agent.cancel, "r"),
            }
            if waits:
                agent.invoke("go", RUN)
            act = acts.get(way, partial(run, agent, "go", way, RUN))
            broken_off = interrupted_at(line, act)
            assert agent._runner.slots.active == {}
            if broken_off and waits:
                with suppress(UnknownRun):
                    agent.resume("r", decision=Approve())
            assert agent._runner.slots.waiting == {}
            assert agent.invoke("again", THREAD).status is Status.COMPLETED
        return broken_off

    line = 1
    while interrupted(line):
        line += 1
    assert line > 20


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no masks of signals")
@pytest.mark.parametrize("watched", [False, True])
def test_an_interrupt_that_does_not_wake_the_caller_is_seen_all_the_same(watched: bool) -> None:
    """Ctrl-C in the moment before the caller begins to wait ends no wait: it must not last until the call is over."""
    release, ended = threading.Event(), []

    def hangs() -> str:
        """Hang, once a signal has come that another thread took."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        release.wait(8)
        ended.append(True)
        return "late"

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with ScriptedModel([call("hangs")]) as model, pytest.raises(KeyboardInterrupt):
            make(model, [hangs], observers=[Seen()] if watched else []).invoke("go")
        assert not ended
    finally:
        release.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_an_interrupt_as_the_driver_ends_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the worst moment, when the worker's report was just taken: it comes out at once, and the run is over."""
    from fsm_agent import driver

    report = driver._Stretch._report

    def interrupted(self: Any) -> Any:
        report(self)
        raise KeyboardInterrupt

    with ScriptedModel([call("add", a=1, b=2), "3", "second"]) as model:
        agent = make(model, [add])
        with monkeypatch.context() as patch:
            patch.setattr(driver._Stretch, "_report", interrupted)
            patch.setattr(driver, "_PATIENCE", 0.05)
            with pytest.raises(KeyboardInterrupt):
                agent.invoke("go", RUN)
        assert agent.cancel("r") is False
        assert agent.invoke("again", RUN).answer == "second"


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
def test_an_interrupt_stops_an_async_run_at_once(way: str) -> None:
    """The same under `asyncio.run`."""
    started = threading.Event()
    seen = Seen()

    async def hangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([hangs, "second"]) as model:
        agent = make(model, observers=[seen])
        join = interrupt_main(started)
        with pytest.raises(KeyboardInterrupt):
            run(agent, "go", way, RUN)
        join()
        assert seen.ended().reason is StopReason.CANCELLED
        assert run(agent, "again", "invoke", THREAD).answer == "second"


@pytest.mark.parametrize("how", ["timeout", "wait_for", "cancel", "group"])
@pytest.mark.parametrize("where", ["model", "async tool", "sync tool", "batch"])
async def test_async_cancellation_stops_at_once_and_propagates(where: str, how: str) -> None:
    """Time-outs, `cancel` and a failing TaskGroup: their own exception comes out at once, the run is terminal."""
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen = Seen()

    async def hangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def ahangs() -> str:
        """Hang."""
        return await hangs(None)

    def blocks() -> str:
        """Block."""
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)
        return "late"

    scripts: dict[str, Any] = {
        "model": hangs,
        "async tool": call("ahangs"),
        "sync tool": call("blocks"),
        "batch": [call("ahangs"), call("blocks"), call("add", a=1, b=2)],
    }
    with ScriptedModel([scripts[where], "second"]) as model:
        agent = make(model, [ahangs, blocks, add], observers=[seen])
        match how:
            case "timeout":

                async def limited() -> None:
                    async with asyncio.timeout(0.05):
                        await agent.ainvoke("go", RUN)

                with pytest.raises(TimeoutError):
                    await limited()
            case "wait_for":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(agent.ainvoke("go", RUN), 0.05)
            case "cancel":
                task = asyncio.ensure_future(agent.ainvoke("go", RUN))
                await started.wait()
                task.cancel("enough")
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert task.cancelled()
            case _:

                async def fails() -> None:
                    await started.wait()
                    raise LookupError

                async def together() -> None:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(agent.ainvoke("go", RUN))
                        group.create_task(fails())

                with pytest.raises(ExceptionGroup):
                    await together()
        last = seen.ended()
        assert last.event is Event.CANCELLED
        assert last.source is (State.PLAN if where == "model" else State.EXECUTE)
        assert agent.cancel("r") is False
        assert (await agent.ainvoke("again", THREAD)).answer == "second"
    release.set()
