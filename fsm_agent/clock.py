"""Time as a value that can be injected: the engine and its tests ask a `Clock`, never the operating system."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "SystemClock"]


@runtime_checkable
class Clock(Protocol):
    """What the engine asks of time. All durations are seconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def time(self) -> float:
        """Seconds since the epoch (UTC), for records and for HTTP dates."""

    def sleep(self, seconds: float) -> None:
        """Wait, blocking the calling thread."""

    async def asleep(self, seconds: float) -> None:
        """Wait, leaving the event loop free; cancellable."""


class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, blocking the calling thread."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Wait, leaving the event loop free; cancellable."""
        await asyncio.sleep(seconds)
