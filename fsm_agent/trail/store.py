"""Where trails are kept: the protocol that every store fulfils, and what it is asked and answers with."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol, runtime_checkable

from fsm_agent.alphabet import Status
from fsm_agent.frozen import fast_init
from fsm_agent.memory import claims
from fsm_agent.trail.entries import Stored

__all__ = ["DAMAGED", "RUNNING", "Batch", "Claim", "RunInfo", "TrailStore", "alive", "new_owner"]

RUNNING: Final = "running"
"""The status of a run that has neither ended nor waits for anybody; the others are those of `Status`."""
DAMAGED: Final = "damaged"
"""The status in a list of runs of one that is not as it was written."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries to append to one run, all or none, with what the store keeps beside them.

    `owner` writes them and holds the run until `lease` (seconds since the epoch); a lease of 0 gives the run back. `entries` may be empty:
    then only status and lease change. `values` are large values by the SHA-256 of their bytes, which entries refer to. An entry number 0
    begins a run.
    """

    run_id: str
    owner: str
    lease: float
    time: float
    status: str
    entries: tuple[Stored, ...] = ()
    values: Mapping[str, bytes] = field(default_factory=dict)
    thread_id: str | None = None
    reason: str = ""


class Claim(NamedTuple):
    """As the arguments of `TrailStore.claim`."""

    run_id: str
    owner: str
    lease: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a store knows of a run without reading its trail. `entries` is how many it has, `head` the seal of the newest.

    Of a run that is `DAMAGED` nothing is known but its id; `reason` says what is wrong.
    """

    run_id: str
    status: str
    reason: str
    thread_id: str | None
    began: float
    updated: float
    entries: int
    head: str
    owner: str
    lease: float

    @property
    def ended(self) -> bool:
        """True when the run is in a terminal state."""
        return self.status not in (RUNNING, DAMAGED, Status.SUSPENDED)


@runtime_checkable
class TrailStore(Protocol):
    """A store of trails. Safe from any thread; every method may block, and none waits for a run.

    One that keeps a value once for all its runs says so by an attribute `shares_values = True`: of a long conversation its runs then keep
    one copy together.
    """

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append, durably, all or nothing; the future is done once it is on disk.

        `here` says that the caller waits for the future at once, so that the store may write on its thread if that is quicker.

        The future raises `fsm_agent.errors.RunHeld` when another owner holds the run, or the run has an entry with one of these
        numbers, or (for entry 0) exists; `TrailError` when the store cannot write. Numbers must go on from the newest one.
        """

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run, in order, as stored. Raises `UnknownRun`; `TrailDamaged` for what cannot even be read as entries."""

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when it is gone or its SHA-256 is not `digest`."""

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`, atomically: exactly one of two that race gets it.

        Free is a run whose lease has run out (`lease` < `time`), or whose owner is a process of this machine that is gone.
        Raises `UnknownRun`, and `RunHeld` when another owner holds it.
        """

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first. One that is not as it was written is `DAMAGED`, and hides no other."""

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises `UnknownRun`."""

    def close(self) -> None:
        """Finish what was appended, and let go of files and connections."""


def _here() -> str:
    """This machine, and where it has several, the space in which its process ids count (containers may share a hostname)."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        space = ""
    return "/".join(part.replace(":", "_") for part in (socket.gethostname(), space) if part)


_HOST: Final = _here()


def new_owner() -> str:
    """A name for a writer that no other has: host, process and a random token."""
    return f"{_HOST}:{os.getpid()}:{uuid.uuid4().hex}"


def alive(owner: str) -> bool:
    """False when `owner` is a process of this machine that is gone; True when it runs, or runs elsewhere, so that only its lease tells."""
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if not owner or host != _HOST or not pid.isdigit():
        return bool(owner)
    return claims.alive(int(pid))
