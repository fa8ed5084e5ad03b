"""Trails in this process's memory: for tests, and for runs that need replay and export but no restart."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from fsm_agent.errors import RunHeld, TrailDamaged, UnknownRun
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.store import Batch, RunInfo, alive

__all__ = ["MemoryTrail"]


class MemoryTrail:
    """A `TrailStore` in memory. Safe from any thread."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Stored]] = {}
        self._infos: dict[str, RunInfo] = {}
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def append(self, batch: Batch) -> Future[None]:
        """Append at once."""
        done: Future[None] = Future()
        try:
            with self._lock:
                self._append(batch)
        except Exception as error:  # noqa: BLE001 - the future passes it on
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _append(self, batch: Batch) -> None:
        info = self._infos.get(batch.run_id)
        first = batch.entries[0].seq if batch.entries else None
        if info is None:
            if first != 0:
                raise UnknownRun(f"no run {batch.run_id!r} is stored here")
            info = RunInfo(
                run_id=batch.run_id, status="", reason="", thread_id=batch.thread_id, began=batch.time, updated=batch.time,
                entries=0, head="", owner=batch.owner, lease=batch.lease,
            )  # fmt: skip
        elif info.owner != batch.owner or (first is not None and first != info.entries):
            raise RunHeld(batch.run_id, owner=info.owner or "nobody (it has gone on meanwhile)", until=info.lease)
        self._values.update(batch.values)
        self._entries.setdefault(batch.run_id, []).extend(batch.entries)
        self._infos[batch.run_id] = replace(
            info,
            status=batch.status,
            reason=batch.reason,
            updated=batch.time,
            entries=info.entries + len(batch.entries),
            head=batch.entries[-1].seal if batch.entries else info.head,
            owner=batch.owner if batch.lease else "",
            lease=batch.lease,
        )

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run."""
        with self._lock:
            if run_id not in self._entries:
                raise UnknownRun(f"no run {run_id!r} is stored here")
            return tuple(self._entries[run_id])

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value."""
        with self._lock:
            value = self._values.get(digest)
        if value is None or hashlib.sha256(value).hexdigest() != digest:
            raise TrailDamaged(f"the value {digest} is gone, or is another", run_id=run_id, seq=-1)
        return value

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`."""
        with self._lock:
            info = self._infos.get(run_id)
            if info is None:
                raise UnknownRun(f"no run {run_id!r} is stored here")
            if info.owner not in ("", owner) and info.lease >= time and alive(info.owner):
                raise RunHeld(run_id, owner=info.owner, until=info.lease)
            self._infos[run_id] = replace(info, owner=owner, lease=lease)
            return self._infos[run_id]

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first."""
        with self._lock:
            return tuple(sorted(self._infos.values(), key=lambda info: info.began, reverse=True))

    def info(self, run_id: str) -> RunInfo:
        """One run."""
        with self._lock:
            if run_id not in self._infos:
                raise UnknownRun(f"no run {run_id!r} is stored here")
            return self._infos[run_id]

    def close(self) -> None:
        """Nothing to do."""
