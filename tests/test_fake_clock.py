"""The clock for tests: it moves only when it is told to."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.clock import Clock
from fsm_agent.testing import FakeClock


def test_it_is_a_clock() -> None:
    """FakeClock offers everything that the engine asks of a clock."""
    assert isinstance(FakeClock(), Clock)


def test_sleep_moves_both_readings_at_once() -> None:
    """A sleep advances monotonic and wall time by exactly its length and is recorded."""
    clock = FakeClock(start=5.0, epoch=100.0)
    clock.sleep(2.5)
    clock.sleep(0)
    assert (clock.monotonic(), clock.time(), clock.slept) == (7.5, 102.5, [2.5, 0.0])


def test_advance_is_not_a_sleep() -> None:
    """Time that passes by itself moves the readings and leaves no sleep behind."""
    clock = FakeClock(start=0.0)
    clock.advance(3)
    assert (clock.monotonic(), clock.slept) == (3.0, [])


def test_time_stands_still_unless_told() -> None:
    """Reading the clock does not move it, without a tick."""
    clock = FakeClock()
    assert clock.monotonic() == clock.monotonic()


def test_tick_adds_after_each_reading() -> None:
    """With a tick, every reading of either kind is later than the one before."""
    clock = FakeClock(start=0.0, epoch=10.0, tick=0.5)
    assert [clock.monotonic(), clock.time(), clock.monotonic()] == [0.0, 10.5, 1.0]


def test_asleep_lets_other_tasks_run_once() -> None:
    """An async sleep records, advances, and gives the other tasks one turn."""

    async def main() -> list[str]:
        clock = FakeClock(start=0.0)
        order: list[str] = []

        async def other() -> None:
            order.append(f"other at {clock.monotonic()}")

        task = asyncio.create_task(other())
        await clock.asleep(4)
        order.append(f"woke at {clock.monotonic()}")
        await task
        return order

    assert asyncio.run(main()) == ["other at 4.0", "woke at 4.0"]


def test_a_wait_can_be_cancelled_from_on_sleep() -> None:
    """A task cancelled while it sleeps gets its CancelledError in that sleep, and the sleep is recorded."""

    async def main() -> FakeClock:
        clock = FakeClock(on_sleep=lambda seconds: task.cancel())
        task = asyncio.create_task(clock.asleep(30))
        with pytest.raises(asyncio.CancelledError):
            await task
        return clock

    assert asyncio.run(main()).slept == [30.0]


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_impossible_durations_are_refused(seconds: float) -> None:
    """A negative or endless duration is a bug in the caller and is refused by name, sync and async."""
    clock = FakeClock()
    for wait in (clock.sleep, clock.advance, lambda value: asyncio.run(clock.asleep(value))):
        with pytest.raises(ValueError, match="finite and not negative"):
            wait(seconds)
    assert clock.slept == []


def test_threads_share_it() -> None:
    """Sleeps of several threads all count, and none is lost."""
    clock = FakeClock(start=0.0)

    def sleeper() -> None:
        for _ in range(200):
            clock.sleep(1)

    threads = [threading.Thread(target=sleeper) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (clock.monotonic(), len(clock.slept)) == (1600.0, 1600)


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_it_never_goes_back(sleeps: list[float]) -> None:
    """Over any sleeps the readings never decrease."""
    clock = FakeClock(tick=0.001)
    readings = [clock.monotonic()]
    for seconds in sleeps:
        clock.sleep(seconds)
        readings.append(clock.monotonic())
    assert readings == sorted(readings)
