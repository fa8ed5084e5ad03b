"""A clock that only moves when it is told to, so that no test waits."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable

__all__ = ["FakeClock"]


class FakeClock:
    """A `fsm_agent.clock.Clock` for tests: sleeping advances it at once. Safe to share between threads and tasks.

    `start` is the first monotonic reading and `epoch` the first `time()`, both in seconds. `tick` is added after every
    reading, for code that must see time pass. `on_sleep` is called with each sleep's seconds before time moves: the
    place to cancel a run in the middle of a wait. `slept` lists every sleep, in order.
    """

    def __init__(
        self,
        start: float = 1_000.0,
        *,
        epoch: float = 1_767_225_600.0,
        tick: float = 0.0,
        on_sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._start = start
        self._epoch = epoch
        self._elapsed = 0.0
        self._tick = _checked(tick, "tick")
        self._on_sleep = on_sleep
        self._lock = threading.Lock()
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds from `start`; never goes back."""
        return self._start + self._read()

    def time(self) -> float:
        """Seconds since the epoch (UTC); moves together with `monotonic`."""
        return self._epoch + self._read()

    def sleep(self, seconds: float) -> None:
        """Record the sleep and move on by it, at once. Raises `ValueError` when it is negative or not finite."""
        self._sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Like `sleep`, and let the other tasks of the loop run once; a cancellation arrives here."""
        self._sleep(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass without a sleep. Raises `ValueError` when negative or not finite."""
        amount = _checked(seconds, "advance")
        with self._lock:
            self._elapsed += amount

    def _sleep(self, seconds: float) -> None:
        amount = _checked(seconds, "sleep")
        with self._lock:
            self.slept.append(amount)
        if self._on_sleep is not None:
            self._on_sleep(amount)
        self.advance(amount)

    def _read(self) -> float:
        with self._lock:
            elapsed = self._elapsed
            self._elapsed += self._tick
        return elapsed


def _checked(seconds: float, what: str) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{what} of {seconds} seconds: a duration is finite and not negative")
    return float(seconds)
