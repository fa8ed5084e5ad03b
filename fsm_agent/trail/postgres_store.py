"""Trails in PostgreSQL: the store for several machines. Needs the extra `postgres` (psycopg 3).

What an `append` has acknowledged is committed, with `synchronous_commit` on. What was not acknowledged is there whole or not at all. One
thread writes; it commits everything that has been asked meanwhile in one transaction of a few statements, however many runs that is.

A run is one row, locked while it changes: of two writers one waits for the other, and is then refused. A connection that was lost is
made again, and what it was doing is done once more, unless it turns out to be there already.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.errors import DefinitionError, RunError, TrailDamaged, TrailError
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.fences import (
    check_whole,
    checked_value,
    info_after_batch,
    info_after_claim,
    read_for_list,
    unknown_run_error,
)
from fsm_agent.trail.group_commit import GroupCommit, watch
from fsm_agent.trail.store import Batch, Claim, RunInfo

if TYPE_CHECKING:
    from fsm_agent.trail.postgres_link import Connection

__all__ = ["PostgresTrail"]

_PREFIX: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_RACES: Final = 3
_TIMES: Final = frozenset({"began", "updated", "lease"})
_LEFT_ALONE: Final[list[Any]] = []
"""Connections that a forked child inherited. It must not even close them, so it keeps them."""

_LOCK_RUNS: Final = "SELECT {columns}, checked FROM {runs} WHERE run_id = ANY(%s) ORDER BY run_id FOR UPDATE"
_ONE_RUN: Final = "SELECT {columns}, checked FROM {runs} WHERE run_id = %s"
_ALL_RUNS: Final = "SELECT {columns}, checked FROM {runs} ORDER BY began DESC, run_id"
_NEW_RUN: Final = (
    "INSERT INTO {runs} ({columns}, checked) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_CHANGE_RUN: Final = (
    "UPDATE {runs} SET ({columns}, checked) = (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WHERE run_id = %s"
)
_NEW_ENTRIES: Final = (
    "INSERT INTO {entries} (run_id, seq, text, seal) "
    "SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[])"
)
_NEW_VALUES: Final = (
    "INSERT INTO {values} (digest, data) SELECT * FROM unnest(%s::text[], %s::bytea[]) ON CONFLICT DO NOTHING"
)
_ENTRIES: Final = "SELECT seq, text, seal FROM {entries} WHERE run_id = %s ORDER BY seq"
_NEWEST: Final = "SELECT seq, seal FROM {entries} WHERE run_id = %s ORDER BY seq DESC LIMIT 1"
_SOME: Final = "SELECT seq, text, seal FROM {entries} WHERE run_id = %s AND seq >= %s ORDER BY seq LIMIT %s"
_VALUE: Final = "SELECT data FROM {values} WHERE digest = %s"


class _Raced(Exception):
    """Another process has begun one of the runs in the same moment."""


@dataclass(slots=True)
class _Change:
    """What a transaction is going to write, found out before it writes anything. `before` holds the error for a row that is damaged."""

    before: Mapping[str, RunInfo | TrailDamaged]
    after: dict[str, RunInfo] = field(default_factory=dict)
    entries: list[tuple[str, int, str, str]] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)

    def known(self, run_id: str) -> RunInfo | None:
        """What is known of a run at this point."""
        found = self.after.get(run_id) or self.before.get(run_id)
        if isinstance(found, TrailDamaged):
            raise found
        return found

    def add(self, batch: Batch) -> None:
        """Take `batch` in. Raises `RunError` when it is refused, and has taken nothing then."""
        self.after[batch.run_id] = info_after_batch(self.known(batch.run_id), batch)
        self.entries += [(batch.run_id, one.seq, one.text, one.seal) for one in batch.entries]
        self.values.update(batch.values)

    def claim(self, asked: Claim) -> RunInfo:
        """Take a claim in. Raises as `TrailStore.claim`."""
        self.after[asked.run_id] = info = info_after_claim(self.known(asked.run_id), asked)
        return info


class PostgresTrail:
    """A `TrailStore` in a PostgreSQL database (version 12 or newer, encoding UTF8). Safe from any thread, process and machine.

    `conninfo` is a connection string or URL of libpq; what it leaves out comes from the PG... variables, a password best from a
    password file. Connect to the server itself, or through a pooler that pools sessions. The tables `<prefix>version`, `runs`,
    `entries` and `values` are made by the first use; of two stores with different prefixes neither sees the other's runs.

    At most two connections are open, one to write and one to read, each from its first use on. When one is lost, `reconnect` is for
    how many seconds connecting again is tried before `TrailError` says that the server is away; a later call tries again.
    Raises `DefinitionError` for a connection string or prefix that is none, and without the extra.
    """

    shares_values: Final = True

    def __init__(self, conninfo: str, *, prefix: str = "fsm_agent_trail_", reconnect: float = 5.0) -> None:
        try:
            from fsm_agent.trail import postgres_link  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise DefinitionError(
                "trails in PostgreSQL need the package psycopg, which is missing: pip install 'fsm-agent[postgres]'"
            ) from error
        if not _PREFIX.fullmatch(prefix):
            raise DefinitionError(
                f"the prefix {prefix!r} of the tables is none: write up to 40 small letters, digits and underscores, no digit first"
            )
        self._library = postgres_link
        self._sql = postgres_link.Statements(prefix)
        self._writing = postgres_link.Link(conninfo, self._sql, reconnect=reconnect)
        self._reading = postgres_link.Link(conninfo, self._sql, reconnect=reconnect, reads_only=True)
        self.where: Final = self._writing.where
        self._begin()
        watch(self)

    def _begin(self) -> None:
        self._commits: GroupCommit[Batch | Claim] = GroupCommit(
            f"trail {self.where}", self._perform, self._writing.close
        )

    def __repr__(self) -> str:
        return f"PostgresTrail({self.where!r})"

    # ------------------------------------------------------------ writing

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append; the future is done once the batch is committed. As `TrailStore.append`."""
        return self._commits.put(batch)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`. As `TrailStore.claim`; `TrailDamaged` for a run whose row is not as it was written."""
        answer: RunInfo = self._commits.put(Claim(run_id, owner, lease, time)).result()
        return answer

    def _perform(self, asked: Sequence[Batch | Claim]) -> Sequence[Any]:
        try:
            return self._committed(asked)
        except self._library.ServerAway as error:
            return [error] * len(asked)
        except Exception as error:  # noqa: BLE001 - whatever it was is told to those who asked
            if len(asked) == 1:
                return [self._named(error, asked[0])]
        # One of them broke the transaction: each gets its own.
        return [self._perform((one,))[0] for one in asked]

    def _committed(self, asked: Sequence[Batch | Claim]) -> Sequence[Any]:
        lost = False

        def work(connection: Connection, again: bool) -> Sequence[Any]:
            nonlocal lost
            lost = lost or again
            return self._commit(connection, asked, again=lost)

        for _ in range(_RACES):
            try:
                return self._writing.run(work)
            except _Raced:
                continue
        raise TrailError(f"PostgreSQL at {self.where}: others keep beginning the same runs; nothing was written")

    def _commit(self, connection: Connection, asked: Sequence[Batch | Claim], *, again: bool) -> Sequence[Any]:
        with connection.transaction():
            # In one order everywhere, so that no two transactions wait for each other.
            run_ids = sorted({one.run_id for one in asked if _fits(one.run_id)})
            change = _Change(_by_id(connection.execute(self._sql(_LOCK_RUNS), (run_ids,))))
            answers: list[Any] = []
            for one in asked:
                try:
                    if isinstance(one, Claim):
                        answers.append(change.claim(one))
                        continue
                    if not (again and self._is_there(connection, change, one)):
                        change.add(one)
                    answers.append(None)
                except RunError as refusal:
                    answers.append(refusal)
            self._write(connection, change)
        return answers

    def _is_there(self, connection: Connection, change: _Change, batch: Batch) -> bool:
        """True when `batch` was committed in the moment in which the connection was lost."""
        if batch.entries:
            asked = (batch.run_id, batch.entries[0].seq, len(batch.entries))
            rows = connection.execute(self._sql(_SOME), asked).fetchall()
            return tuple(starmap(Stored, rows)) == batch.entries
        info = change.known(batch.run_id)
        holder = batch.owner if batch.lease else ""
        return info is not None and (info.owner, info.lease, info.status, info.updated) == (
            holder,
            batch.lease,
            batch.status,
            batch.time,
        )

    def _write(self, connection: Connection, change: _Change) -> None:
        for run_id, info in sorted(change.after.items(), key=lambda item: item[0]):
            row = (*astuple(info), _checked(info))
            if run_id in change.before:
                connection.execute(self._sql(_CHANGE_RUN), (*row, run_id))
            elif connection.execute(self._sql(_NEW_RUN), row).rowcount != 1:
                raise _Raced
        if change.entries:
            connection.execute(self._sql(_NEW_ENTRIES), [list(column) for column in zip(*change.entries, strict=True)])
        if change.values:
            values = sorted(change.values.items())
            connection.execute(self._sql(_NEW_VALUES), [list(column) for column in zip(*values, strict=True)])

    def _named(self, error: Exception, asked: Batch | Claim) -> Exception:
        """`error` as one of this package."""
        if (
            isinstance(error, TrailError)
            and self._library.is_duplicate_key(error.__cause__)
            and isinstance(asked, Batch)
        ):
            said = "is there already, and the row in the table of runs does not say so; nothing was changed"
            seq = asked.entries[0].seq if asked.entries else -1
            damaged = TrailDamaged(said, run_id=asked.run_id, seq=seq)
            damaged.__cause__ = error
            return damaged
        return error

    # ------------------------------------------------------------ reading

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run. Raises `UnknownRun`; `TrailDamaged` naming the first entry that is gone."""

        def work(connection: Connection, _: bool) -> tuple[RunInfo, tuple[Stored, ...]]:
            with connection.transaction():
                info = self._found(connection, run_id)
                return info, tuple(starmap(Stored, connection.execute(self._sql(_ENTRIES), (run_id,))))

        info, entries = self._reading.run(work)
        check_whole(info, entries)
        return entries

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when it is gone or its SHA-256 is not `digest`."""

        def work(connection: Connection, _: bool) -> bytes | None:
            row = connection.execute(self._sql(_VALUE), (digest,)).fetchone()
            return None if row is None else bytes(row[0])

        return checked_value(self._reading.run(work), run_id, digest)

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first; those whose row was changed as damaged."""
        rows = self._reading.run(lambda connection, _: connection.execute(self._sql(_ALL_RUNS)).fetchall())
        return tuple([read_for_list(partial(_info, row)) for row in rows])

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises `UnknownRun`; `TrailDamaged` when its row was changed or does not match its newest entry."""

        def work(connection: Connection, _: bool) -> RunInfo:
            with connection.transaction():
                info = self._found(connection, run_id)
                newest = connection.execute(self._sql(_NEWEST), (run_id,)).fetchone()
            if newest != (info.entries - 1, info.head):
                said = "is noted as the newest, and is not, or has another seal"
                raise TrailDamaged(said, run_id=run_id, seq=info.entries - 1)
            return info

        return self._reading.run(work)

    def _found(self, connection: Connection, run_id: str) -> RunInfo:
        row = connection.execute(self._sql(_ONE_RUN), (run_id,)).fetchone() if _fits(run_id) else None
        if row is None:
            raise unknown_run_error(run_id)
        return _info(row)

    # ------------------------------------------------------------ the end, and fork()

    def close(self) -> None:
        """Commit what was appended, and close the connections; whatever is asked afterwards fails with `TrailError`."""
        self._commits.close()
        self._writing.close()
        self._reading.close()

    def before_fork(self) -> None:
        """Nothing to do: the connections stay with the parent."""

    def after_fork(self, *, child: bool) -> None:
        """Go on; the child with connections of its own, and nothing of what the parent has yet to write."""
        if child:
            _LEFT_ALONE.extend((self._writing.inherited(), self._reading.inherited()))
            self._begin()


def _fits(text: str) -> bool:
    """False for what no column of PostgreSQL can hold, so that none does: a zero character, half of a pair of surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _checked(info: RunInfo) -> str:
    """A digest over the other columns: an edit of a row, which no entry's seal covers, is found by it."""
    # The columns give back 5.0 for 5.
    row = [float(value) if name in _TIMES else value for name, value in asdict(info).items()]
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()[:16]


def _info(row: tuple[Any, ...]) -> RunInfo:
    """Raises `TrailDamaged` for a row that is not as it was written."""
    run_id, status, reason, thread_id, began, updated, entries, head, owner, lease, checked = row
    info = RunInfo(
        run_id=run_id, status=status, reason=reason, thread_id=thread_id, began=began, updated=updated,
        entries=entries, head=head, owner=owner, lease=lease,
    )  # fmt: skip
    if checked != _checked(info):
        raise TrailDamaged("the row in the table of runs is not as it was written", run_id=run_id, seq=-1)
    return info


def _by_id(rows: Iterable[tuple[Any, ...]]) -> dict[str, RunInfo | TrailDamaged]:
    found: dict[str, RunInfo | TrailDamaged] = {}
    for row in rows:
        try:
            found[row[0]] = _info(row)
        except TrailDamaged as damaged:
            found[row[0]] = damaged
    return found
