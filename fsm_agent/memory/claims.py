"""Who has a thread: one run at a time, in this process or in any. A claim names its process, so that a dead one can be told."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from fsm_agent.errors import RunBusy
from fsm_agent.os_fork import through_forks

__all__ = ["Claim", "LocalClaims", "alive", "busy", "lost"]

_PROC: Final = Path("/proc")
_START: Final = 19
"""Where in /proc/<pid>/stat, counted from the state, the time stands at which the process began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """That a run has a thread. `store` is the object that took it, `token` this one claim; `born` tells two processes of one id apart."""

    run_id: str
    store: str
    token: str
    host: str
    pid: int
    born: str

    @classmethod
    def make(cls, run_id: str, store: str) -> Claim:
        """A new claim of this process."""
        pid = os.getpid()
        return cls(run_id=run_id, store=store, token=uuid.uuid4().hex, host=_host(), pid=pid, born=_born(pid))

    @classmethod
    def from_json(cls, text: str | bytes) -> Claim | None:
        """The claim that `to_json` wrote, None for anything else."""
        try:
            claim = cls(**json.loads(text))
        except (ValueError, TypeError):
            return None
        return claim if type(claim.pid) is int else None

    def to_json(self) -> str:
        """The claim as one JSON object, always the same text for the same claim."""
        return json.dumps(asdict(self), sort_keys=True)

    def yields_to(self, other: Claim) -> bool:
        """True when `other` may take the thread over: the same run, gone on with elsewhere, the same store, or a process that is no more.

        That only one process goes on with a run is for the trail to see to.
        """
        return self.run_id == other.run_id or self.store == other.store or self.gone()

    def gone(self) -> bool:
        """True when its process certainly is no more: it ran here, and its id is free, a zombie's, or another process's."""
        return self.host == _host() and not alive(self.pid, self.born)


def busy(thread_id: str, run_id: str, claim: Claim | None = None) -> RunBusy:
    """The error that says who has the thread."""
    elsewhere = claim is not None and (claim.pid != os.getpid() or claim.host != _host())
    where = f" (process {claim.pid} on {claim.host.partition('/')[0]})" if claim is not None and elsewhere else ""
    return RunBusy(
        f"thread {thread_id!r} is in use by run {run_id}{where}; wait for it to end, or resume or cancel it, or give runs that go on at "
        "the same time (in parallel branches, say) a thread_id each"
    )


def lost(thread_id: str, run_id: str, taker: str | None) -> RunBusy:
    """The error of a run whose thread went to another one while it was under way."""
    who = "another run has had it since" if taker is None else f"run {taker} has it now"
    return RunBusy(
        f"run {run_id} lost thread {thread_id!r} before its end, because its claim had not been renewed in time, and {who}; "
        "what was said in this turn is not kept, so that it does not mix with the other's"
    )


class LocalClaims:
    """Which run of this process has which thread. Safe from any thread, and through `fork`."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._lock = threading.RLock()
        through_forks(self)

    def before_fork(self) -> None:
        """No thread is at work with the owners."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on."""
        self._lock.release()

    def take(self, thread_id: str, run_id: str) -> bool:
        """Give `thread_id` to `run_id`; False when that run has it already. Raises `RunBusy` while another has it."""
        with self._lock:
            owner = self._owners.get(thread_id)
            if owner is not None and owner != run_id:
                raise busy(thread_id, owner)
            self._owners[thread_id] = run_id
            return owner is None

    def has(self, thread_id: str, run_id: str) -> bool:
        """Whether `run_id` has `thread_id`."""
        with self._lock:
            return self._owners.get(thread_id) == run_id

    def give_back(self, thread_id: str, run_id: str) -> None:
        """Free `thread_id` when `run_id` has it."""
        with self._lock:
            if self._owners.get(thread_id) == run_id:
                del self._owners[thread_id]

    @contextmanager
    def alone(self, thread_id: str) -> Iterator[None]:
        """Have `thread_id` for something that is no run. Raises `RunBusy` while one has it."""
        name = f"delete-{uuid.uuid4().hex[:8]}"
        self.take(thread_id, name)
        try:
            yield
        finally:
            self.give_back(thread_id, name)


@functools.cache
def _host() -> str:
    """This machine since it was started, and the process ids that count on it: ids mean nothing in another container."""
    parts = [platform.node() or "localhost"]
    try:
        parts.append((_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink(_PROC / "self/ns/pid"))  # noqa: PTH115 - it is a name, not the path of a file
    except OSError:  # not Linux: the name alone
        pass
    return "/".join(parts)


def _born(pid: int) -> str:
    """When the process began, in the system's own ticks; "" where that cannot be read."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    try:
        # The name before the last ")" may hold anything, spaces and brackets too.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", ""
    return (fields[0].decode(), fields[_START].decode()) if len(fields) > _START else ("", "")


def alive(pid: int, born: str = "") -> bool:
    """False only for a process of this machine that is certainly gone; `born` tells it from a later one with its id, where it is known."""
    if sys.platform == "win32":  # no signal asks without harm there: the lease alone decides
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        pass
    state, since = _stat(pid)
    return state not in {"Z", "X"} and (not born or not since or born == since)
