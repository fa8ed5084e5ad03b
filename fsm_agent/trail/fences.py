"""The rules that every store keeps: who may append to a run, who may take it, and what a whole run looks like. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from fsm_agent.errors import RunHeld, TrailDamaged, TrailError, UnknownRun
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.store import DAMAGED, Batch, Claim, RunInfo, alive

__all__ = [
    "check_batch",
    "check_whole",
    "checked_value",
    "damaged_info",
    "info_after_batch",
    "info_after_claim",
    "read_for_list",
    "unknown_run_error",
]


def unknown_run_error(run_id: str) -> UnknownRun:
    """The error for a run that no store has heard of."""
    return UnknownRun(
        f"no run {run_id!r} is stored here; list those that are with `agent.trails.runs()`, or `fsm-agent runs`"
    )


def read_for_list(look: Callable[[], RunInfo]) -> RunInfo:
    """What `look` finds of a run, for a list of them: one that is damaged hides no other."""
    try:
        return look()
    except TrailDamaged as damage:
        return damaged_info(damage)


def damaged_info(damage: TrailDamaged) -> RunInfo:
    """How a run that is not as it was written stands in a list."""
    return RunInfo(
        run_id=damage.run_id, status=DAMAGED, reason=str(damage), thread_id=None, began=0.0, updated=0.0,
        entries=0, head="", owner="", lease=0.0,
    )  # fmt: skip


def check_batch(batch: Batch) -> None:
    """Raise `TrailError` for a batch that names no owner, or whose entries are not numbered one after the other."""
    if not batch.owner:
        raise TrailError(f"a batch for run {batch.run_id!r} names no owner; make one with `new_owner()`")
    entries = batch.entries
    numbers = [entry.seq for entry in entries]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        said = ", ".join(str(number) for number in numbers[:10])
        raise TrailError(f"the entries of a batch for run {batch.run_id!r} do not follow each other: {said}")


def info_after_batch(info: RunInfo | None, batch: Batch) -> RunInfo:
    """What is known of a run after `batch`, given what was known before (None: nothing).

    Raises `UnknownRun` for a batch that goes on with a run that nobody began, `RunHeld` when somebody else has the run or it has these
    entries already, `TrailError` for a batch that is malformed or leaves out numbers.
    """
    check_batch(batch)
    first = batch.entries[0].seq if batch.entries else None
    if info is None:
        if first != 0:
            raise unknown_run_error(batch.run_id)
        info = RunInfo(
            run_id=batch.run_id, status="", reason="", thread_id=batch.thread_id, began=batch.time, updated=batch.time,
            entries=0, head="", owner=batch.owner, lease=batch.lease,
        )  # fmt: skip
    elif info.owner != batch.owner:
        raise _begun(info) if first == 0 else _held(info, batch.owner)
    elif first is not None and first < info.entries:
        raise RunHeld(
            info.run_id,
            owner=info.owner,
            until=info.lease,
            message=f"run {info.run_id!r} has entry {first} already, it goes on at {info.entries}; read it again first",
        )
    elif first is not None and first > info.entries:
        raise TrailError(f"run {info.run_id!r} goes on with entry {info.entries}, not with {first}")
    return replace(
        info,
        status=batch.status,
        reason=batch.reason,
        updated=batch.time,
        entries=info.entries + len(batch.entries),
        head=batch.entries[-1].seal if batch.entries else info.head,
        owner=batch.owner if batch.lease else "",
        lease=batch.lease,
    )


def info_after_claim(info: RunInfo | None, claim: Claim) -> RunInfo:
    """What is known of a run after `claim`, given what was known before (None: nothing).

    Raises `UnknownRun`, and `RunHeld` while another has the run whose lease runs and who is not known to be gone.
    """
    if info is None:
        raise unknown_run_error(claim.run_id)
    if not claim.owner:
        raise TrailError(f"run {info.run_id!r} is claimed for no owner; make one with `new_owner()`")
    if info.owner not in ("", claim.owner) and info.lease >= claim.time and alive(info.owner):
        raise _held(info, claim.owner)
    return replace(info, owner=claim.owner, lease=claim.lease)


def checked_value(found: bytes | None, run_id: str, digest: str) -> bytes:
    """A large value as it was found. Raises `TrailDamaged` when there is none, or its SHA-256 is not `digest`."""
    if found is None or hashlib.sha256(found).hexdigest() != digest:
        raise TrailDamaged(f"the value {digest} is gone, or is another", run_id=run_id, seq=-1)
    return found


def check_whole(info: RunInfo, entries: Sequence[Stored]) -> None:
    """Raise `TrailDamaged` unless `entries` are the text of all entries of the run, in order, as many as `info` says and up to its head."""
    for place, entry in enumerate(entries):
        if entry.seq != place:
            raise TrailDamaged(f"is gone; entry {entry.seq} stands in its place", run_id=info.run_id, seq=place)
        if type(entry.text) is not str or type(entry.seal) is not str:
            raise TrailDamaged("is no text", run_id=info.run_id, seq=place)
    if len(entries) != info.entries:
        said = f"{info.entries} entries were written, {len(entries)} are there"
        raise TrailDamaged(said, run_id=info.run_id, seq=min(len(entries), info.entries))
    if info.head != (entries[-1].seal if entries else ""):
        raise TrailDamaged(
            "its seal is not the one noted for the newest entry", run_id=info.run_id, seq=len(entries) - 1
        )


def _begun(info: RunInfo) -> RunHeld:
    said = f"a run {info.run_id!r} is stored here already ({info.status}): give each run an id of its own"
    ways = "" if info.ended else f", or go on with this one: agent.resume({info.run_id!r})"
    return RunHeld(info.run_id, owner=info.owner, until=info.lease, message=said + ways)


def _held(info: RunInfo, asked: str) -> RunHeld:
    if info.owner:
        return RunHeld(info.run_id, owner=info.owner, until=info.lease)
    said = f"run {info.run_id!r} is not held by {asked}, or not any more; claim it first"
    return RunHeld(info.run_id, owner="", until=0.0, message=said)
