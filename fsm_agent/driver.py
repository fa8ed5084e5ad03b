"""The driver: the thread that drives a run on behalf of one that waits for it.

A model or a tool may hang, so neither is called on the caller's own thread: that one must get its time-outs, cancellations and
interrupts on time. Handing each call to a worker costs two changes of thread, more than all the rest of a step. So a run is driven by
one worker, the driver, while the caller watches. When a call is overdue, or the run is cancelled or interrupted in the middle of it,
the watcher takes the run away and goes on with it; the driver is left with the call, whose result is dropped.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from math import inf
from queue import Empty
from typing import Any, Final

from fsm_agent import workers
from fsm_agent.jobs import CALLER_THREAD, CANCEL, GLANCE, CallerThread, CancelRequested, TimedOut, Work, waiting
from fsm_agent.records import RunResult, Token, Transitioned

__all__ = ["Driven", "adriven_to_end", "driven_to_end", "relayed"]

Driven = Generator[Transitioned | RunResult | Work | CallerThread, Any, None]
"""A run that asks for the work that it needs, and is told by `send` or `throw` what came of it."""
_DONE: Final = "done"
_RAISED: Final = "raised"
_SOONER: Final = "sooner"
_PATIENCE: Final = 5.0
"""Seconds that an interrupt waits for the driver to leave the engine's own code."""


def driven_to_end(items: Driven) -> RunResult:
    """Drive `items` to the end and return its last one. What users may have tied to the caller's thread is called on that thread."""
    try:
        result = _driven_to_end(items)
    except BaseException:
        # Ctrl-C between two items: the run must not wait for whoever still has the traceback.
        if getgeneratorstate(items) != GEN_RUNNING:
            items.close()
        raise
    assert result is not None, "the last item is the result"
    return result


async def adriven_to_end(items: AsyncIterator[Transitioned | Token | RunResult]) -> RunResult:
    """The last of `items`, which drive themselves on the event loop."""
    result: RunResult | None = None
    async for item in items:
        result = item if isinstance(item, RunResult) else None
    assert result is not None, "the last item is the result"
    return result


def _driven_to_end(items: Driven) -> RunResult | None:
    advance: Callable[[], Any] = partial(next, items)
    result: RunResult | None = None
    while True:
        try:
            item = advance()
        except StopIteration:
            return result
        advance = partial(next, items)
        if isinstance(item, RunResult):
            result = item
        elif isinstance(item, Work):
            if item.job.observed or item.job.traced:
                return _last(relayed(items, item))
            try:
                advance = _Stretch(items, item).watch()
            except CancelRequested as request:
                advance = partial(items.throw, request)


def relayed(items: Driven, first: Work | None = None) -> Generator[Transitioned | Token | RunResult, None, None]:
    """Drive `items` on this thread, with each piece of work on a worker; yields the items, and tokens while they arrive.

    `first` is work that was asked for already.
    """
    advance: Callable[[], Any] = partial(next, items) if first is None else lambda: first
    try:
        while True:
            try:
                item = advance()
            except StopIteration:
                return
            advance = partial(next, items)
            if isinstance(item, Work):
                try:
                    done = yield from _with_tokens(item)
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - the run decides what it means, of an interrupt too
                    advance = partial(items.throw, error)
                else:
                    advance = partial(items.send, done)
            elif item is not CALLER_THREAD:
                yield item
    finally:
        items.close()


def _with_tokens(work: Work) -> Generator[Token, None, Any]:
    pieces = waiting(work.job, work.run, work.timeout)
    while True:
        try:
            text = next(pieces)
        except StopIteration as done:
            return done.value
        yield Token(work.job.run_id, text)


def _last(items: Generator[Transitioned | Token | RunResult, None, None]) -> RunResult | None:
    result = None
    for item in items:
        result = item if isinstance(item, RunResult) else None
    return result


class _Stretch:
    """One stretch of a run between the driver and the watcher. Whoever changes `_at_work` under the lock has the run."""

    def __init__(self, items: Driven, work: Work) -> None:
        self._items = items
        self._work = work
        self._job = work.job
        self._lock = threading.Lock()
        self._inbox = work.job.open_inbox()
        self._at_work = True
        self._taken = False
        self._due = _due(work)
        self._wakes = self._due
        self._interrupt: BaseException | None = None
        self._ended: tuple[str, Any] | None = None

    def watch(self) -> Callable[[], Any]:
        """Let a worker drive, and wait until the run is to go on on this thread. Returns how; raises what the run raised."""
        try:
            workers.start(self._drive)
            kind, value = self._report()
        except BaseException as interrupt:  # noqa: BLE001 - Ctrl-C, or what a signal's own code raises: the run is told
            if self._take(interrupt):
                return partial(self._items.throw, interrupt)
            kind, value = self._after_interrupt(interrupt)
        finally:
            self._job.close_inbox()
        if kind is _DONE:
            return partial(next, self._items)
        if kind is _RAISED:
            raise value
        return partial(self._items.throw, value)

    def _report(self) -> tuple[str, Any]:
        """How the driver ended its stretch, or why the run was taken from it."""
        while True:
            with self._lock:
                now = time.monotonic()
                self._wakes = wakes = min(self._due if self._at_work else inf, now + GLANCE)
            try:
                kind, value = self._inbox.get(timeout=max(wakes - now, 0.0))
            except Empty:
                kind, value = _SOONER, None
            if kind is _DONE or kind is _RAISED:
                return kind, value
            # Asked to stop between two calls, the run sees it before the next one.
            if kind is CANCEL and self._take(None):
                return CANCEL, CancelRequested(value)
            if self._take(None, overdue=True):
                return CANCEL, TimedOut()

    def _after_interrupt(self, interrupt: BaseException) -> tuple[str, Any]:
        """Interrupted while the driver was not waiting for a call: it passes the interrupt on at the next one, and reports."""
        while self._ended is None:
            try:
                self._inbox.get(timeout=_PATIENCE)
            except Empty:
                break
        kind, value = self._ended or (_RAISED, interrupt)
        return (kind, value) if kind is _RAISED else (CANCEL, interrupt)

    def _take(self, interrupt: BaseException | None, *, overdue: bool = False) -> bool:
        """Take the run from the driver, if it is in the middle of a call (and that one is overdue)."""
        with self._lock:
            if self._at_work and not (overdue and time.monotonic() < self._due):
                self._at_work, self._taken = False, True
                return True
            self._interrupt = self._interrupt or interrupt
            return False

    def _drive(self) -> None:
        """Drive the run until it is taken, has to go on on the caller's thread, or raises."""
        item: Any = self._work
        try:
            while item is not CALLER_THREAD:
                item = self._after(item) if type(item) is Work else next(self._items)
                if item is None:
                    return
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            self._ended = (_RAISED, error)
        else:
            self._ended = (_DONE, None)
        self._inbox.put(self._ended)

    def _after(self, work: Work) -> Any:
        """Do `work` and tell the run. The item after it; None when the run was taken meanwhile."""
        stopped = self._begin(work)
        if stopped is not None:
            return self._items.throw(stopped)
        if self._taken:
            return None
        clock, timeout = self._job.clock, work.timeout
        begun = clock.monotonic()
        error: BaseException | None = None
        done: Any = None
        try:
            # In a context of its own, so that what a tool sets there stays there.
            done = contextvars.copy_context().run(work.run, self._emit)
        except BaseException as raised:  # noqa: BLE001 - the run decides what it means
            error = raised
        if not self._kept():
            return None
        if timeout is not None and clock.monotonic() - begun > timeout:
            error = TimedOut()
        return self._items.send(done) if error is None else self._items.throw(error)

    def _begin(self, work: Work) -> BaseException | None:
        """Enter `work`: from here on it can be taken. Returns what stops the run instead, when something has come up."""
        if work is self._work:
            return None
        due = _due(work)
        with self._lock:
            if self._interrupt is not None:
                return self._interrupt
            if self._job.cancel_reason is not None:
                return CancelRequested(self._job.cancel_reason)
            self._at_work, self._due = True, due
            sooner, self._wakes = due < self._wakes, min(due, self._wakes)
        if sooner:
            self._inbox.put((_SOONER, None))
        return None

    def _kept(self) -> bool:
        """The work is done: True when the run was not taken meanwhile, and now cannot be."""
        with self._lock:
            kept, self._at_work = not self._taken, False
        return kept

    def _emit(self, text: str) -> None:
        """Nobody shows the pieces; but work that was given up on is broken off where it would hand over one."""
        if self._taken:
            raise TimedOut


def _due(work: Work) -> float:
    return inf if work.timeout is None else time.monotonic() + work.timeout
