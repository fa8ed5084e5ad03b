"""Runs and entries as rows of SQLite: the schema, and how it is read and written inside a transaction that somebody else began.

Every function raises `sqlite3.Error` as it comes, beside what it says.
"""

from __future__ import annotations

import hashlib
import sqlite3
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, Final

from fsm_agent.errors import TrailDamaged
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.fences import (
    check_batch,
    check_whole,
    damaged_info,
    info_after_batch,
    info_after_claim,
    read_for_list,
    unknown_run_error,
)
from fsm_agent.trail.store import Batch, Claim, RunInfo

__all__ = [
    "APPLICATION",
    "TABLES",
    "VERSION",
    "all_runs",
    "append_batch",
    "claim_run",
    "create",
    "entries_of",
    "run_info",
    "value_of",
]

APPLICATION: Final = 0x46534D54
"""`application_id` of the file: FSMT."""
VERSION: Final = 1
"""`user_version` of the file."""
TABLES: Final = {
    "runs": "run_id, thread_id, began, born, status, reason, updated, entries, head, owner, lease, checked",
    "entries": "run_id, seq, text, seal",
    "trail_values": "digest, bytes",
}
"""Each table with its columns."""

# `born` and `checked` are digests over the columns before them: they find what was changed in a row that no entry's seal covers.
# The entries are a table with an index, not WITHOUT ROWID: that wastes half of the file with texts of about a kilobyte.
_SCHEMA: Final = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, thread_id TEXT, began REAL NOT NULL, born TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT NOT NULL, updated REAL NOT NULL, entries INTEGER NOT NULL, head TEXT NOT NULL,
    owner TEXT NOT NULL, lease REAL NOT NULL, checked TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
    run_id TEXT NOT NULL, seq INTEGER NOT NULL, text TEXT NOT NULL, seal TEXT NOT NULL, PRIMARY KEY (run_id, seq)
);
CREATE TABLE trail_values (digest TEXT PRIMARY KEY, bytes BLOB NOT NULL);
"""
_RUN: Final = """
SELECT run_id, thread_id, began, born, status, reason, updated, entries, head, owner, lease, checked FROM runs
WHERE run_id = ?
"""
_ALL_RUNS: Final = """
SELECT run_id, thread_id, began, born, status, reason, updated, entries, head, owner, lease, checked FROM runs
ORDER BY began DESC
"""
_NEW_RUN: Final = """
INSERT INTO runs (status, reason, updated, entries, head, owner, lease, checked, run_id, thread_id, began, born)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING
"""
_ADVANCE: Final = """
UPDATE runs SET status = ?, reason = ?, updated = ?, entries = ?, head = ?, owner = ?, lease = ?, checked = ?
WHERE run_id = ? AND owner = ? AND entries = ?
"""
_NEW_ENTRY: Final = "INSERT INTO entries (run_id, seq, text, seal) VALUES (?, ?, ?, ?)"
_NEW_VALUE: Final = "INSERT INTO trail_values (digest, bytes) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
_ENTRIES: Final = "SELECT seq, text, seal FROM entries WHERE run_id = ? ORDER BY seq"
_NEWEST: Final = "SELECT seq, seal FROM entries WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_VALUE: Final = "SELECT bytes FROM trail_values WHERE digest = ?"
# Each run that has entries, by jumps through the index.
_LEFT_BEHIND: Final = """
WITH RECURSIVE found (run_id) AS (
    SELECT min(run_id) FROM entries
    UNION ALL SELECT (SELECT min(run_id) FROM entries WHERE run_id > found.run_id) FROM found WHERE found.run_id IS NOT NULL
) SELECT run_id FROM found WHERE run_id IS NOT NULL AND run_id NOT IN (SELECT run_id FROM runs)
"""


def create(path: Path) -> None:
    """Make the file `path` with its tables and without entries. Where that fails nothing stays beside it, on a disk that may be full."""
    link = sqlite3.connect(path, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute(f"PRAGMA application_id = {APPLICATION}")
        link.execute(f"PRAGMA user_version = {VERSION}")
        link.executescript(_SCHEMA)
    except BaseException:
        link.close()
        for log in ("-wal", "-shm"):
            path.with_name(path.name + log).unlink(missing_ok=True)
        raise
    link.close()


# ---------------------------------------------------------------- writing


def append_batch(link: sqlite3.Connection, batch: Batch) -> None:
    """Write `batch`. Raises `RunError` before it has written anything of it."""
    check_batch(batch)
    entries, run_id = batch.entries, batch.run_id
    if entries:
        first, head = entries[0].seq, entries[-1].seal
        count = first + len(entries)
    else:
        info = info_after_batch(_found(link, run_id), batch)
        first, head, count = info.entries, info.head, info.entries
    time, lease = float(batch.time), float(batch.lease)
    holder = batch.owner if lease else ""
    fields = (batch.status, batch.reason, time, count, head, holder, lease)
    row = (*fields, _digest(run_id, *fields), run_id)
    if first == 0 and entries:
        told = link.execute(_NEW_RUN, (*row, batch.thread_id, time, _digest(run_id, batch.thread_id, time)))
    else:
        told = link.execute(_ADVANCE, (*row, batch.owner, first))
    if told.rowcount != 1:
        info_after_batch(_found(link, run_id), batch)  # says why
        raise TrailDamaged("the row in the table of runs is not found by what it says", run_id=run_id, seq=-1)
    if batch.values:
        link.executemany(_NEW_VALUE, batch.values.items())
    link.executemany(_NEW_ENTRY, [(run_id, entry.seq, entry.text, entry.seal) for entry in entries])


def claim_run(link: sqlite3.Connection, claim: Claim) -> RunInfo:
    """Hold a run. Raises `UnknownRun`, `RunHeld`, `TrailDamaged` before it has written anything."""
    before = run_info(link, claim.run_id)
    info = info_after_claim(before, claim._replace(lease=float(claim.lease)))
    fields = (info.status, info.reason, info.updated, info.entries, info.head, info.owner, info.lease)
    link.execute(_ADVANCE, (*fields, _digest(info.run_id, *fields), info.run_id, before.owner, before.entries))
    return info


def _digest(*fields: str | float | None) -> str:
    """Of the columns of a row. Not of their `repr`, which follows the version of Unicode."""
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- reading


def _info(row: tuple[Any, ...]) -> RunInfo:
    """Raises `TrailDamaged` for a row that is not as it was written."""
    run_id, thread_id, began, born, *fields, checked = row
    if born != _digest(run_id, thread_id, began) or checked != _digest(run_id, *fields):
        raise TrailDamaged("its row in the table of runs is not as it was written", run_id=str(run_id), seq=-1)
    status, reason, updated, entries, head, owner, lease = fields
    return RunInfo(
        run_id=run_id,
        status=status,
        reason=reason,
        thread_id=thread_id,
        began=began,
        updated=updated,
        entries=entries,
        head=head,
        owner=owner,
        lease=lease,
    )


def _found(link: sqlite3.Connection, run_id: str) -> RunInfo | None:
    row = link.execute(_RUN, (run_id,)).fetchone()
    if row is None:
        if link.execute(_NEWEST, (run_id,)).fetchone() is not None:
            raise _without_row(run_id)
        return None
    info = _info(row)
    if info.run_id != run_id:
        raise TrailDamaged("its row in the table of runs is that of another run", run_id=run_id, seq=-1)
    return info


def run_info(link: sqlite3.Connection, run_id: str) -> RunInfo:
    """One run. Raises `UnknownRun`, and `TrailDamaged` when its row was changed, is gone, or does not match its newest entry."""
    info = _found(link, run_id)
    if info is None:
        raise unknown_run_error(run_id)
    if link.execute(_NEWEST, (run_id,)).fetchone() != (info.entries - 1, info.head):
        said = "is noted as the newest, and is not, or has another seal"
        raise TrailDamaged(said, run_id=run_id, seq=info.entries - 1)
    return info


def all_runs(link: sqlite3.Connection) -> tuple[RunInfo, ...]:
    """All runs, newest first; those whose row was changed, or is gone while their entries are there, as damaged."""
    rows = [read_for_list(partial(_info, row)) for row in link.execute(_ALL_RUNS)]
    return (*rows, *(damaged_info(_without_row(str(run_id))) for (run_id,) in link.execute(_LEFT_BEHIND)))


def _without_row(run_id: str) -> TrailDamaged:
    return TrailDamaged("has no row in the table of runs any more", run_id=run_id, seq=0)


def entries_of(link: sqlite3.Connection, run_id: str) -> tuple[Stored, ...]:
    """All entries of a run. Raises `UnknownRun`, and `TrailDamaged` naming the first entry that is gone or cannot be read."""
    info = _found(link, run_id)
    if info is None:
        raise unknown_run_error(run_id)
    entries: list[Stored] = []
    try:
        entries.extend(starmap(Stored, link.execute(_ENTRIES, (run_id,))))
    except sqlite3.DatabaseError as error:
        raise TrailDamaged(f"cannot be read ({error})", run_id=run_id, seq=len(entries)) from error
    check_whole(info, entries)
    return tuple(entries)


def value_of(link: sqlite3.Connection, digest: str) -> bytes | None:
    """A large value as it is stored; None when there is none."""
    row = link.execute(_VALUE, (digest,)).fetchone()
    return row[0] if row is not None and type(row[0]) is bytes else None
