"""One run's dealings with the outside: its clock, its config, and the waiting that a cancellation can end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig

from fsm_agent import workers
from fsm_agent.clock import Clock
from fsm_agent.effects import Result
from fsm_agent.language import Language

__all__ = [
    "CALLER_THREAD",
    "CANCEL",
    "GLANCE",
    "CallerThread",
    "CancelRequested",
    "Emit",
    "Job",
    "TimedOut",
    "Work",
    "claimed_in_thread",
    "in_thread",
    "on_task",
    "waiting",
]

T = TypeVar("T")
Emit = Callable[[str], None]


class CancelRequested(Exception):
    """Somebody called `agent.cancel` while an effect was under way; becomes the outcome `Cancelled`."""


class TimedOut(Exception):
    """An effect took longer than it may; becomes an outcome."""


_TOKEN: Final = "token"
_DONE: Final = "done"
_RAISED: Final = "raised"
CANCEL: Final = "cancel"
GLANCE: Final = 1.0
"""Seconds that the thread of a caller waits at most at once: a signal that arrives in the moment before a wait is seen only after it."""


class CallerThread(Enum):
    """Asks whoever drives a run to go on with it on the thread of the caller: for code that a user may have tied to it."""

    CALLER_THREAD = "caller_thread"


CALLER_THREAD: Final = CallerThread.CALLER_THREAD


@dataclass(slots=True, kw_only=True)
class Job:
    """The edge of one run. The only shared field is the cancellation, which any thread may ask for at any time.

    `keep` is told each result of a batch as soon as it is there, and returns what to wait for. `ended` holds them until the run moves on.
    `observed`: observers of the user's own are told of each transition, on the thread of the caller.
    """

    run_id: str
    clock: Clock
    started: float
    language: Language = "en"
    config: RunnableConfig = field(default_factory=RunnableConfig)
    traced: bool = False
    streaming: bool = False
    observed: bool = False
    attempt: int = 1
    cancel_reason: str | None = None
    keep: Callable[[Result], Future[None] | None] | None = None
    ended: list[Result] = field(default_factory=list)
    _inbox: SimpleQueue[tuple[str, Any]] | None = None
    _task: asyncio.Task[Any] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _due: float = inf
    _alarm: asyncio.TimerHandle | None = None
    _cancels: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def add_result(self, result: Result) -> Future[None] | None:
        """Keep the result of a call that has ended: what to wait for before anything else happens."""
        kept = None if self.keep is None else self.keep(result)
        self.ended.append(result)
        return kept

    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.monotonic() - self.started

    def cancel(self, why: str) -> None:
        """Ask the run to stop: at once when it waits for an effect, else before the next one."""
        with self._lock:
            self.cancel_reason = why
            if self._inbox is not None:
                self._inbox.put((CANCEL, why))
            task, loop = self._task, self._loop
        if task is not None and loop is not None:
            loop.call_soon_threadsafe(self._cancel_if_current, task)

    def _cancel_if_current(self, task: asyncio.Task[Any]) -> None:
        """Runs in the loop's thread, so the effect cannot end between the look and the cancellation."""
        if self._task is task:
            self._cancels += 1
            task.cancel()

    def check(self) -> None:
        """Raise `CancelRequested` when the run was asked to stop."""
        if self.cancel_reason is not None:
            raise CancelRequested(self.cancel_reason)

    def open_inbox(self) -> SimpleQueue[tuple[str, Any]]:
        """The queue on which the effect under way reports."""
        inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        with self._lock:
            self.check()
            self._inbox = inbox
        return inbox

    def waits_for(self, inbox: SimpleQueue[tuple[str, Any]]) -> bool:
        """True while the effect that reports on `inbox` is the one under way."""
        return self._inbox is inbox

    def close_inbox(self) -> None:
        """Nothing is under way any more."""
        with self._lock:
            self._inbox = None

    def open_task(self, timeout: float | None) -> asyncio.Task[Any]:
        """Let `cancel` reach the current asyncio task, and the alarm after `timeout` seconds."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "a run on an event loop is in a task"
        with self._lock:
            self.check()
            self._loop, self._task, self._cancels = loop, task, 0
        if timeout is not None:
            self._due = loop.time() + timeout
            # One alarm serves the whole run: when it rings too early, it is set again. A new one for each effect would cost more.
            if self._alarm is None or self._alarm.when() > self._due:
                self._set_alarm(loop, self._due)
        return task

    def close_task(self) -> None:
        """Nothing is under way any more."""
        with self._lock:
            self._task = None
        self._due = inf

    def close(self) -> None:
        """The run is over, or waits for a person: nothing of it stays in the event loop."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self.close()
        self._alarm = loop.call_at(when, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        task = self._task
        if task is None or self._due == inf:
            return
        if loop.time() < self._due:
            self._set_alarm(loop, self._due)
        else:
            self._cancels += 1
            task.cancel()

    def uncancel(self, task: asyncio.Task[Any], before: int) -> bool:
        """Take back the cancellations of the job's own. True when there were any and `task` was not cancelled by anybody else besides."""
        mine, self._cancels = self._cancels, 0
        left = task.cancelling()
        for _ in range(mine):
            left = task.uncancel()
        return mine > 0 and left <= before


class Work(NamedTuple):
    """Something that may take long, for whoever drives the run to do: never on the thread of the caller, and at most `timeout` seconds.

    Yielding it gives what `run` gives, or raises what that raises. It ends early on a cancellation (`CancelRequested`), a time-out
    (`TimedOut`), or an interrupt of the caller.
    """

    job: Job
    run: Callable[[Emit], Any]
    timeout: float | None


def waiting(job: Job, work: Callable[[Emit], T], timeout: float | None) -> Generator[str, None, T]:
    """Do `work` on a worker thread and wait for it on this one; yields the pieces that it emits. Raises as `Work` does.

    The work itself cannot be stopped: its thread is given up on, and its result is dropped.
    """
    inbox = job.open_inbox()
    begun = job.clock.monotonic()
    workers.start(lambda: _report(job, inbox, work))
    try:
        while True:
            left = None if timeout is None else max(timeout - (job.clock.monotonic() - begun), 0.0)
            try:
                kind, value = _next(inbox, left)
            except Empty:
                raise TimedOut from None
            if kind is _TOKEN:
                yield value
                job.check()
                continue
            if kind is CANCEL:
                raise CancelRequested(value)
            if timeout is not None and job.clock.monotonic() - begun > timeout:
                raise TimedOut
            if kind is _RAISED:
                raise value
            result: T = value
            return result
    finally:
        job.close_inbox()


def _next(inbox: SimpleQueue[tuple[str, Any]], within: float | None) -> tuple[str, Any]:
    """The next report on `inbox`. Raises `Empty` after `within` seconds."""
    until = inf if within is None else time.monotonic() + within
    while True:
        left = until - time.monotonic()
        try:
            return inbox.get(timeout=max(min(left, GLANCE), 0.0))
        except Empty:
            if left <= GLANCE:
                raise


def _report(job: Job, inbox: SimpleQueue[tuple[str, Any]], work: Callable[[Emit], Any]) -> None:
    def emit(text: str) -> None:
        if not job.waits_for(inbox):
            raise TimedOut  # nobody waits any more: break off whatever still produces
        if text:
            inbox.put((_TOKEN, text))

    try:
        inbox.put((_DONE, work(emit)))
    except BaseException as error:  # noqa: BLE001 - a worker passes on whatever its work raised, an interrupt too
        inbox.put((_RAISED, error))


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` on a worker thread without blocking the event loop. Cancelling the await gives up on the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[bool, Any]] = loop.create_future()

    def settle(outcome: tuple[bool, Any]) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        try:
            outcome: tuple[bool, Any] = (True, work())
        except BaseException as error:  # noqa: BLE001 - passed on to whoever awaits
            outcome = (False, error)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits for this result any more

    workers.start(run)
    ok, value = await future
    if not ok:
        raise value
    result: T = value
    return result


async def claimed_in_thread(claim: Callable[[], T], give_back: Callable[[T], object]) -> T:
    """`in_thread` for what somebody has to give back: when the await is cancelled, `give_back` gets what was claimed, on a worker too.

    It is called as soon as the claim is there, however long that takes. What it raises is nobody's to hear.
    """
    lock = threading.Lock()
    claimed: list[T] = []
    given_up = False

    def give(found: T) -> None:
        with suppress(Exception):
            give_back(found)

    def work() -> None:
        found = claim()
        with lock:
            claimed.append(found)
            late = given_up
        if late:
            give(found)

    try:
        await in_thread(work)
    except BaseException:
        with lock:
            given_up, here = True, tuple(claimed)
        for found in here:
            workers.start(partial(give, found))
        raise
    return claimed[0]


async def on_task(job: Job, work: Coroutine[Any, Any, T], within: float | None = None) -> T:
    """Await `work` so that `job.cancel` ends it: as `CancelRequested` when the job asked, as `CancelledError` when anybody else did.

    After `within` seconds it is cancelled, and ends as `TimedOut` unless it would not be cancelled; then its caller must look at the clock.
    """
    try:
        task = job.open_task(within)
    except CancelRequested:
        work.close()
        raise
    before = task.cancelling()
    try:
        done = await work
    except asyncio.CancelledError:
        if not job.uncancel(task, before):
            raise
        if job.cancel_reason is not None:
            raise CancelRequested(job.cancel_reason) from None
        raise TimedOut from None
    finally:
        job.close_task()
        job.uncancel(task, before)
    return done
