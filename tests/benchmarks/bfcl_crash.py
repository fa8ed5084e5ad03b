"""A program that dies, in one process with the benchmark: its stores take nothing more from it, as after `kill -9`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

from fsm_agent.history import Block
from fsm_agent.memory import SQLiteConversations
from fsm_agent.trail import Batch, RunInfo, SQLiteTrail, Stored

__all__ = ["Crash", "Life", "Threads"]


class Crash(BaseException):
    """The program dies."""


class Life:
    """One life of the program, with its stores: after its death nothing of it is written any more."""

    def __init__(self, folder: Path) -> None:
        self.dead = False
        self._trail = SQLiteTrail(folder / "runs.db")

    def die(self) -> NoReturn:
        """End here. Raises `Crash`."""
        self.dead = True
        raise Crash

    def _writes(self) -> None:
        if self.dead:
            raise Crash

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Of `TrailStore`."""
        self._writes()
        return self._trail.append(batch, here=here)

    def read(self, run_id: str) -> Sequence[Stored]:
        """Of `TrailStore`."""
        return self._trail.read(run_id)

    def value(self, run_id: str, digest: str) -> bytes:
        """Of `TrailStore`."""
        return self._trail.value(run_id, digest)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Of `TrailStore`."""
        return self._trail.claim(run_id, owner, lease, time)

    def runs(self) -> Sequence[RunInfo]:
        """Of `TrailStore`."""
        return self._trail.runs()

    def info(self, run_id: str) -> RunInfo:
        """Of `TrailStore`."""
        return self._trail.info(run_id)

    def close(self) -> None:
        """Of `TrailStore`."""
        self._trail.close()


class Threads:
    """The conversations of a life."""

    def __init__(self, life: Life, conversations: SQLiteConversations) -> None:
        self._life = life
        self._conversations = conversations

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """Of `Conversations`."""
        return self._conversations.open(thread_id, run_id)

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Of `Conversations`."""
        if not self._life.dead:
            self._conversations.close(thread_id, run_id, history)
