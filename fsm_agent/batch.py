"""Tool calls that run at the same time: what they have given so far, and how long a run waits for the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from fsm_agent.effects import Call, Result
from fsm_agent.jobs import Job

__all__ = ["PATIENCE", "Batch", "Stop", "or_stop"]

PATIENCE: Final = 5.0
"""Seconds that a tool has to clean up when its time is over or the run is cancelled, before the run goes on without it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A tool raised what means "stop the program"."""

    error: BaseException


def or_stop(results: Iterable[Result | Stop]) -> list[Result]:
    """The results, unless one of the calls said stop: then that is raised."""
    returned: list[Result] = []
    for result in results:
        if isinstance(result, Stop):
            raise result.error
        returned.append(result)
    return returned


class Batch:
    """The results of some calls, by call id. Closed, it takes nothing more from a call that was left behind. Safe from any thread."""

    def __init__(self) -> None:
        self.results: dict[str, Result | Stop] = {}
        self._closed = False
        self._lock = threading.Lock()

    def add(self, call: Call, result: Result | Stop, job: Job) -> Future[None] | None:
        """Take a result in, and have it written down: what to wait for."""
        with self._lock:
            if self._closed:
                return None
            self.results[call.id] = result
            return None if isinstance(result, Stop) else job.add_result(result)

    def close(self) -> None:
        """Take nothing more in."""
        with self._lock:
            self._closed = True

    async def gathered(self, calls: Sequence[Coroutine[Any, Any, None]], within: float) -> None:
        """Wait for `calls`, each a task of its own, at most `within` seconds. Raises what one of them raises.

        One that will not be cancelled is left behind: a run must come to an end all the same.
        """
        tasks = [asyncio.ensure_future(call) for call in calls]
        waiting, now = set(tasks), asyncio.get_running_loop().time
        due = now() + within
        try:
            while waiting and (left := due - now()) > 0:
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PATIENCE)
            raise
        finally:
            self.close()
            for task in tasks:
                task.cancel()
                task.add_done_callback(_unheard)


def _unheard(task: asyncio.Task[None]) -> None:
    """Nobody waits for this call any more: what it raises is not told as forgotten."""
    if not task.cancelled():
        task.exception()
