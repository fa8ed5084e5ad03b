"""Work that may take long, by itself: its threads, its time-outs, its cancellations, and the one alarm of a run on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Limits, workers
from fsm_agent.clock import SystemClock
from fsm_agent.jobs import CancelRequested, Job, TimedOut, in_thread, on_task, waiting
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call
from tests.core.builders import look

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
PATIENCE = 5.0
"""Seconds after which a test that hangs has failed; none of them waits that long otherwise."""


def new_job(clock: Any = None) -> Job:
    """The edge of a run."""
    made = SystemClock() if clock is None else clock
    return Job(run_id="run-1", clock=made, started=made.monotonic())


def done(job: Job, work: Callable[[Any], Any], timeout: float | None = PATIENCE) -> tuple[list[str], Any]:
    """The pieces and the result of `work`."""
    pieces: list[str] = []
    steps = waiting(job, work, timeout)
    while True:
        try:
            pieces.append(next(steps))
        except StopIteration as end:
            return pieces, end.value


# ---------------------------------------------------------------- worker threads


def test_work_runs_on_a_daemon_thread_of_its_own() -> None:
    """A tool that hangs must not keep the program alive, nor block whoever asked."""
    seen: list[tuple[bool, bool]] = []
    finished = threading.Event()

    def work() -> None:
        seen.append((threading.current_thread().daemon, threading.current_thread() is threading.main_thread()))
        finished.set()

    workers.start(work)
    assert finished.wait(PATIENCE)
    assert seen == [(True, False)]


def test_work_sees_the_callers_context_and_changes_only_its_copy() -> None:
    """A04: the value of the caller is there, and what the work sets stays in it, also when a thread is used again."""
    seen: list[str] = []
    for colour in ("red", "green"):
        finished = threading.Event()
        token = COLOUR.set(colour)

        def work(finished: threading.Event = finished) -> None:
            seen.append(COLOUR.get())
            COLOUR.set("mine")
            finished.set()

        workers.start(work)
        assert finished.wait(PATIENCE)
        seen.append(COLOUR.get())
        COLOUR.reset(token)
    assert seen == ["red", "red", "green", "green"]


def test_a_thread_is_used_again_when_its_work_is_done() -> None:
    """A run of many calls does not leave many threads."""
    idents: set[int] = set()
    for _ in range(50):
        job = new_job()
        done(job, lambda _: idents.add(threading.get_ident()))
        time.sleep(0)
    assert len(idents) < 50


# ---------------------------------------------------------------- waiting for it


def test_what_work_gives_is_what_one_gets() -> None:
    """The result, after the pieces in their order."""
    assert done(new_job(), lambda emit: [emit("a"), emit(""), emit("b")] and "result") == (["a", "b"], "result")


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()])
def test_whatever_work_raises_is_raised_where_it_is_waited_for(error: BaseException) -> None:
    """R09: an interrupt in a tool is one of the program, not lost in a thread."""

    def work(_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        done(new_job(), work)


@pytest.mark.parametrize(("takes", "late"), [(4.999, False), (5.0, False), (5.001, True)])
def test_work_may_take_as_long_as_it_may_and_no_longer(takes: float, late: bool) -> None:
    """The time-out is exact on the run's clock: what came after it is dropped, a result as well as an error."""
    clock = FakeClock()

    def work(_: object) -> str:
        clock.advance(takes)
        return "result"

    def failing_work(_: object) -> None:
        clock.advance(takes)
        raise ZeroDivisionError

    if late:
        with pytest.raises(TimedOut):
            done(new_job(clock), work, 5.0)
    else:
        assert done(new_job(clock), work, 5.0) == ([], "result")
    with pytest.raises(TimedOut if late else ZeroDivisionError):
        done(new_job(clock), failing_work, 5.0)


def test_work_that_hangs_is_given_up_on() -> None:
    """The wait ends at the time-out; the thread is left behind, and its later result is nobody's."""
    release = threading.Event()
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        done(new_job(), lambda _: release.wait(PATIENCE), 0.02)
    assert time.monotonic() - begun < PATIENCE / 2
    release.set()


def test_work_that_was_given_up_on_is_broken_off_at_its_next_piece() -> None:
    """A server must not go on writing for nobody."""
    release, broken = threading.Event(), threading.Event()

    def work(emit: Callable[[str], None]) -> None:
        release.wait(PATIENCE)
        try:
            emit("too late")
        except TimedOut:
            broken.set()
            raise

    with pytest.raises(TimedOut):
        done(new_job(), work, 0.02)
    release.set()
    assert broken.wait(PATIENCE)


def test_a_cancellation_ends_the_wait_at_once_and_says_why() -> None:
    """From any thread, with the reason that was given."""
    job, release = new_job(), threading.Event()

    def work(_: object) -> None:
        threading.Thread(target=job.cancel, args=("user left",)).start()
        release.wait(PATIENCE)

    with pytest.raises(CancelRequested, match="user left"):
        done(job, work)
    release.set()


def test_a_cancellation_counts_before_the_work_begins() -> None:
    """What is cancelled is not started."""
    job = new_job()
    job.cancel("changed my mind")
    started: list[int] = []
    with pytest.raises(CancelRequested, match="changed my mind"):
        done(job, lambda _: started.append(1))
    assert started == []


def test_a_cancellation_counts_between_two_pieces() -> None:
    """A model that is faster than its reader cannot outrun a cancellation."""
    job = new_job()

    def work(emit: Callable[[str], None]) -> None:
        for number in range(100):
            emit(str(number))

    pieces = waiting(job, work, PATIENCE)
    assert next(pieces) == "0"
    job.cancel("enough")
    with pytest.raises(CancelRequested):
        next(pieces)


# ---------------------------------------------------------------- on the event loop


async def test_work_in_a_thread_leaves_the_loop_free() -> None:
    """R06: other tasks go on while a blocking tool runs."""
    release = threading.Event()
    waiter = asyncio.ensure_future(in_thread(lambda: release.wait(PATIENCE)))
    await asyncio.sleep(0)
    release.set()
    assert await waiter


async def test_an_error_in_a_thread_is_raised_where_it_is_awaited() -> None:
    """With its own type."""
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)


async def test_cancelling_the_await_gives_up_on_the_thread() -> None:
    """The task ends at once; the thread's result, when it comes, disturbs nobody."""
    release = threading.Event()
    task = asyncio.ensure_future(in_thread(lambda: release.wait(PATIENCE)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()


def test_a_thread_may_outlive_its_loop() -> None:
    """A result that comes after the loop was closed is dropped without a word."""
    release, finished = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(PATIENCE)
        finished.set()

    async def give_up() -> None:
        task = asyncio.ensure_future(in_thread(work))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(give_up())
    release.set()
    assert finished.wait(PATIENCE)


async def sleeping() -> str:
    """Something that takes for ever."""
    await asyncio.sleep(PATIENCE)
    return "never"


async def test_the_runs_own_cancellation_is_told_from_the_tasks() -> None:
    """The one becomes an ending of the run, the other propagates."""
    job = new_job()
    asyncio.get_running_loop().call_soon(job.cancel, "enough")
    with pytest.raises(CancelRequested, match="enough"):
        await on_task(job, sleeping())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0

    other = asyncio.ensure_future(on_task(new_job(), sleeping()))
    await asyncio.sleep(0)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_both_cancellations_at_once_are_the_tasks() -> None:
    """Whoever cancels the task must see it cancelled."""
    job = new_job()
    task = asyncio.ensure_future(on_task(job, sleeping()))
    await asyncio.sleep(0)
    job.cancel("enough")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_cancelled_before_is_not_started() -> None:
    """The coroutine is closed, so nothing warns that it was never awaited."""
    job = new_job()
    job.cancel("enough")
    with pytest.raises(CancelRequested):
        await on_task(job, sleeping())


async def test_a_result_that_is_there_is_not_cancelled_any_more() -> None:
    """After the effect there is nothing for a cancellation to hit but the next one."""
    job = new_job()

    async def ready() -> str:
        return "result"

    assert await on_task(job, ready()) == "result"
    job.cancel("too late")
    await asyncio.sleep(0)
    with pytest.raises(CancelRequested):
        job.check()


# ---------------------------------------------------------------- one alarm for a whole run


async def test_an_overdue_await_ends_as_timed_out_and_leaves_the_task_as_it_was() -> None:
    """The alarm is the job's own business: nobody else sees a cancellation."""
    job = new_job()
    with pytest.raises(TimedOut):
        await on_task(job, sleeping(), 0.01)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_shorter_time_out_after_a_longer_one_rings_in_time() -> None:
    """The alarm of an earlier effect never delays that of a later one, and never hits it too early."""
    job = new_job()

    async def soon() -> str:
        await asyncio.sleep(0.02)
        return "in time"

    assert await on_task(job, soon(), PATIENCE) == "in time"
    assert await on_task(job, soon(), PATIENCE / 2) == "in time"
    assert await on_task(job, soon(), PATIENCE) == "in time"
    with pytest.raises(TimedOut):
        await on_task(job, sleeping(), 0.02)


async def test_a_time_out_and_a_cancellation_at_once_are_a_cancellation() -> None:
    """Both cancel the task; both are taken back, and the run learns that it was asked to stop."""
    job = new_job()
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, job.cancel, "enough")
    loop.call_later(0.01, job.cancel, "enough")
    with pytest.raises(CancelRequested, match="enough"):
        await on_task(job, sleeping(), 0.01)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_closed_job_leaves_no_alarm_in_the_loop() -> None:
    """A service that serves many runs does not collect their time-outs."""
    job = new_job()

    async def ready() -> str:
        return "result"

    await on_task(job, ready(), PATIENCE)
    assert job._alarm is not None
    alarm = job._alarm
    job.close()
    assert alarm.cancelled()


async def test_a_run_on_the_loop_sets_one_alarm_for_all_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out for each call costs nothing but a look at the clock."""
    loop = asyncio.get_running_loop()
    set_for: list[float] = []
    call_at = loop.call_at

    def counting(when: float, *rest: Any, **options: Any) -> asyncio.TimerHandle:
        set_for.append(when)
        return call_at(when, *rest, **options)

    monkeypatch.setattr(loop, "call_at", counting)
    steps = 20
    model = ScriptedModel([*(call("look", q=f"Oslo {number}") for number in range(steps)), "done"])
    agent = Agent(model, [look], logger=silent_logger(), limits=Limits(max_steps=steps + 1))
    assert (await agent.ainvoke("go")).ok
    assert len(set_for) <= 4, len(set_for)
