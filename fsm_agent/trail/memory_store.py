"""Trails in this process's memory: for tests, and for runs that need replay and export but no restart."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from fsm_agent.errors import RunError
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.fences import checked_value, info_after_batch, info_after_claim, unknown_run_error
from fsm_agent.trail.store import Batch, Claim, RunInfo

__all__ = ["MemoryTrail"]


class MemoryTrail:
    """A `TrailStore` in memory: gone with the process. Safe from any thread."""

    shares_values: Final = True

    def __init__(self) -> None:
        self._entries: dict[str, list[Stored]] = {}
        self._infos: dict[str, RunInfo] = {}
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append at once; the future is done when this returns."""
        done: Future[None] = Future()
        try:
            with self._lock:
                info = info_after_batch(self._infos.get(batch.run_id), batch)
                self._values.update(batch.values)
                self._entries.setdefault(batch.run_id, []).extend(batch.entries)
                self._infos[batch.run_id] = info
        except RunError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run. Raises `UnknownRun`."""
        with self._lock:
            self._known(run_id)
            return tuple(self._entries[run_id])

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when there is none with that digest."""
        with self._lock:
            value = self._values.get(digest)
        return checked_value(value, run_id, digest)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`. Raises `UnknownRun`, `RunHeld`."""
        with self._lock:
            self._infos[run_id] = info_after_claim(self._infos.get(run_id), Claim(run_id, owner, lease, time))
            return self._infos[run_id]

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first."""
        with self._lock:
            return tuple(sorted(self._infos.values(), key=lambda info: info.began, reverse=True))

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises `UnknownRun`."""
        with self._lock:
            return self._known(run_id)

    def _known(self, run_id: str) -> RunInfo:
        if run_id not in self._infos:
            raise unknown_run_error(run_id)
        return self._infos[run_id]

    def close(self) -> None:
        """Nothing to do: what was appended stays readable as long as the object lives."""
