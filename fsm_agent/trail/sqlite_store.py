"""Trails in one SQLite file: the store for one machine, with any number of runs, threads and processes.

What an `append` has acknowledged is on disk: write-ahead log, `synchronous=FULL`, so that neither `kill -9` nor a power cut takes it back.
What was not acknowledged is there whole or not at all. One thread writes, and commits at once what was asked meanwhile, so that many
runs share the price of a sync.

A file that is damaged, cut, empty, or of another version is refused by name and never written to. What cannot be seen from inside the file:
that the whole file was put back to an earlier state, or that the write-ahead log was lost. For that keep a run's newest seal elsewhere.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from fsm_agent.errors import DefinitionError, RunError, TrailDamaged, TrailError, TrailVersion
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.fences import checked_value, unknown_run_error
from fsm_agent.trail.files import make_folder, place_new
from fsm_agent.trail.group_commit import GroupCommit, watch
from fsm_agent.trail.sqlite_rows import (
    APPLICATION,
    TABLES,
    VERSION,
    all_runs,
    append_batch,
    claim_run,
    create,
    entries_of,
    run_info,
    value_of,
)
from fsm_agent.trail.store import Batch, Claim, RunInfo

__all__ = ["SQLiteTrail", "Synchronous"]

Synchronous = Literal["EXTRA", "FULL", "NORMAL"]


_LOG_PAGES: Final = 200
"""The write-ahead log begins anew after so many pages. A sync of a log that is written over costs half of one that makes it longer."""
_READ_ONLY: Final = ("SQLITE_READONLY", "SQLITE_CANTOPEN")


class _Link(sqlite3.Connection):
    """Closed with its store, also by one that nobody has closed: Python 3.13 would complain of that connection."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):
            self.close()


class _Opened(NamedTuple):
    """A connection, and which file it has open."""

    link: sqlite3.Connection
    file: tuple[int, int]


class SQLiteTrail:
    """A `TrailStore` in the SQLite file `path`. Safe from any thread and process; a child of `fork` goes on with a connection of its own.

    The file and its folder are made by the first `append`. `synchronous` "FULL" keeps what was acknowledged through a power cut; with
    "NORMAL" a power cut (not the end of the process) may take back the newest commits, whole ones, in exchange for fewer syncs. `patience`
    is how many seconds to wait for another process that writes. The file needs a local disk: SQLite's write-ahead log does not work over
    a network file system. Raises `DefinitionError` for a path or a setting that cannot be used.
    """

    shares_values: Final = True

    def __init__(self, path: str | Path, synchronous: Synchronous = "FULL", *, patience: float = 30.0) -> None:
        if synchronous not in get_args(Synchronous):
            raise DefinitionError(f"synchronous={synchronous!r} is not one of {', '.join(get_args(Synchronous))}")
        if str(path) in ("", ":memory:") or str(path).startswith("file:"):
            raise DefinitionError(f"{str(path)!r} is no path of a file; for trails in memory take MemoryTrail()")
        if Path(path).is_dir():
            raise DefinitionError(
                f"{str(path)!r} is a directory: name a file in it; JsonLinesTrail keeps a file a run in one"
            )
        self.path: Final = Path(os.path.realpath(path))  # SQLite keeps its log beside the file that a link names
        self._log: Final = self.path.with_name(f"{self.path.name}-wal")
        self._synchronous = synchronous
        self._patience = patience
        self._closed = False
        self._rest()
        watch(self)

    def _rest(self) -> None:
        self._commits: GroupCommit[Batch | Claim] = GroupCommit(
            f"trail {self.path.name}", self._perform, self._end_writing
        )
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: _Opened | None = None
        self._reader: _Opened | None = None

    # ------------------------------------------------------------ writing

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append; the future is done once the batch is on disk. As `TrailStore.append`.

        With `here` the calling thread commits by itself when no other is writing: quicker for a caller that would wait for the future.
        """
        return self._commits.put(batch, here=here)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`. As `TrailStore.claim`; `TrailDamaged` for a run whose row is not as it was written."""
        answer: RunInfo = self._commits.put(Claim(run_id, owner, lease, time), here=True).result()
        return answer

    def _perform(self, asked: Sequence[Batch | Claim]) -> Sequence[Any]:
        with self._writing:
            try:
                link = self._link_for_writing()
                link.execute("BEGIN IMMEDIATE")
            except Exception as error:  # noqa: BLE001 - whatever it was is told to those who asked
                self._abandon()
                return [self._named(error, one.run_id) for one in asked]
            try:
                return _commit(link, asked)
            except Exception as error:  # noqa: BLE001 - as above
                self._abandon()
                if len(asked) == 1:
                    return [self._named(error, asked[0].run_id)]
            except BaseException:  # Ctrl-C in a thread that writes by itself
                self._abandon()
                raise
        # One of them broke the transaction: each gets its own.
        return [self._perform((one,))[0] for one in asked]

    def _link_for_writing(self) -> sqlite3.Connection:
        opened = self._writer
        if opened is not None:
            if self._file() == opened.file:
                return opened.link
            self._abandon()
            raise TrailError(
                f"{self.path} was removed or replaced while it was in use; what was appended to it is there"
            )
        if self._file() is None:
            make_folder(self.path.parent)
            place_new(self.path, create)
        self._writer = self._open()
        return self._writer.link

    def _abandon(self) -> None:
        opened, self._writer = self._writer, None
        if opened is not None:
            try:
                if opened.link.in_transaction:
                    opened.link.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # closing rolls back as well
            opened.link.close()

    def _end_writing(self) -> None:
        with self._writing:
            self._abandon()

    # ------------------------------------------------------------ reading

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run. Raises `UnknownRun`; `TrailDamaged` naming the first entry that is gone or unreadable."""
        with self._snapshot(run_id) as link:
            if link is None:
                raise unknown_run_error(run_id)
            return entries_of(link, run_id)

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when it is gone or its SHA-256 is not `digest`."""
        with self._snapshot(run_id) as link:
            found = None if link is None else value_of(link, digest)
        return checked_value(found, run_id, digest)

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first; those whose row was changed, or is gone while their entries are there, as damaged."""
        with self._snapshot("") as link:
            return () if link is None else all_runs(link)

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises `UnknownRun`; `TrailDamaged` when its row was changed or does not match its newest entry."""
        with self._snapshot(run_id) as link:
            if link is None:
                raise unknown_run_error(run_id)
            return run_info(link, run_id)

    @contextmanager
    def _snapshot(self, run_id: str) -> Iterator[sqlite3.Connection | None]:
        """The file as it is at this moment; None when there is none."""
        if self._closed:
            raise TrailError(f"{self.path} is closed; open it again with a new SQLiteTrail")
        with self._reading:
            try:
                file = self._file()
                if self._reader is not None and self._reader.file != file:
                    self._leave()
                if file is not None and self._reader is None:
                    self._reader = self._open(reading=True)
                link = None if self._reader is None else self._reader.link
                if link is not None:
                    link.execute("BEGIN")
                try:
                    yield link
                finally:
                    if link is not None:
                        link.execute("ROLLBACK")
            except RunError:
                raise
            except Exception as error:
                self._leave()
                raise self._named(error, run_id) from error

    def _leave(self) -> None:
        opened, self._reader = self._reader, None
        if opened is not None:
            opened.link.close()

    # ------------------------------------------------------------ the file

    def _file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - once for each commit, and twice as fast as Path.stat
        except FileNotFoundError:
            self._check_log()
            return None
        return found.st_dev, found.st_ino

    def _check_log(self) -> None:
        """Raise `TrailError` for a write-ahead log without its file: it would be read into whatever file is made in its place."""
        if self._log.exists() and self._log.stat().st_size and not self.path.exists():
            raise TrailError(
                f"{self.path} is gone and {self._log.name} is there: put the file back, or take that away too"
            )

    def _open(self, *, reading: bool = False) -> _Opened:
        """A connection to the file, which is there and is a trail of this version. Raises `TrailError`, `TrailVersion`, `sqlite3.Error`."""
        file = self._file()
        if file is None:
            raise TrailError(f"{self.path} was removed while it was opened")
        if not self.path.stat().st_size:
            raise TrailError(
                f"{self.path} is empty, and a trail never is: put back a copy, or remove it if nothing was in it"
            )
        try:
            return _Opened(self._link("mode=rw"), file)
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorname", "")
            if not reading or not code.startswith(_READ_ONLY) or self._log.exists():
                raise
        # Where nothing can be written, nobody writes meanwhile either: the file is whole without a log.
        return _Opened(self._link("mode=ro&immutable=1"), file)

    def _link(self, mode: str) -> sqlite3.Connection:
        link = sqlite3.connect(
            f"{self.path.as_uri()}?{mode}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
            factory=_Link,
        )
        try:
            self._check_kind(link)
            for setting in (
                f"synchronous = {self._synchronous}",
                "fullfsync = ON",
                "cell_size_check = ON",
                "trusted_schema = OFF",
            ):
                link.execute(f"PRAGMA {setting}")
            if "immutable" not in mode:
                (log,) = link.execute("PRAGMA journal_mode = WAL").fetchone()
                if log != "wal":
                    said = f"{self.path} cannot have a write-ahead log (it says {log!r}): put it on a local disk"
                    raise TrailError(said)
                link.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            for table, columns in TABLES.items():
                link.execute(f"SELECT {columns} FROM {table} LIMIT 0")  # noqa: S608 - constants
        except BaseException:
            link.close()
            raise
        return link

    def _check_kind(self, link: sqlite3.Connection) -> None:
        (application,), (version,) = (
            link.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise TrailError(f"{self.path} is an SQLite database, but no trail of this package; give another path")
        if version != VERSION:
            raise TrailVersion(
                f"{self.path} has version {version} of the schema, this package writes {VERSION}: "
                "use the version of fsm-agent that wrote it, or another file"
            )

    def _advice(self) -> str:
        return f"nothing was changed. Put back a copy of {self.path}, or save what is left with the command `.recover` of sqlite3"

    def _named(self, error: Exception, run_id: str) -> Exception:
        """`error` as one of this package."""
        about = f"{self.path}, for run {run_id!r}" if run_id else str(self.path)
        if isinstance(error, RunError):
            return error
        code = getattr(error, "sqlite_errorname", "")
        if code in ("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"):
            said = (
                f"has entries with these numbers, and a row in the table of runs that does not say so; {self._advice()}"
            )
            return TrailDamaged(said, run_id=run_id, seq=0)
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return TrailError(
                f"{about}: another process has been writing for {self._patience:g} s; nothing was written"
            )
        if code.startswith(
            ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")
        ):
            return TrailError(f"{about}: {error} ({code}); look at the disk and the permissions. Nothing was written")
        wrong_data = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.IntegrityError)
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, wrong_data):
            return TrailError(f"{about}: damaged, or no trail ({error}); {self._advice()}")
        return TrailError(f"{about}: {type(error).__name__}: {error}. Nothing was written")

    # ------------------------------------------------------------ the end, and fork()

    def close(self) -> None:
        """Commit what was appended, and close the file; whatever is asked afterwards fails with `TrailError`."""
        self._closed = True
        self._commits.close()
        with self._reading:
            self._leave()

    def before_fork(self) -> None:
        """Close the file: SQLite's locks do not survive being copied into a child."""
        self._writing.acquire()
        self._reading.acquire()
        self._abandon()
        self._leave()

    def after_fork(self, *, child: bool) -> None:
        """Go on; the child with nothing that the parent has yet to write."""
        if child:
            self._rest()
        else:
            self._reading.release()
            self._writing.release()


def _commit(link: sqlite3.Connection, asked: Sequence[Batch | Claim]) -> Sequence[Any]:
    """The answers, once everything that is not refused is committed in the transaction that was begun.

    With nothing to commit it is rolled back: SQLite may have corrected the header in it, which is not ours to do in a damaged file.
    """
    answers: list[Any] = []
    for one in asked:
        try:
            if isinstance(one, Batch):
                append_batch(link, one)
                answers.append(None)
            else:
                answers.append(claim_run(link, one))
        except RunError as refusal:  # found before anything of this one was written
            answers.append(refusal)
    refused = all(isinstance(one, RunError) for one in answers)
    link.execute("ROLLBACK" if refused else "COMMIT")
    return answers
