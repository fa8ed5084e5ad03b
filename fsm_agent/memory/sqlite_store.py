"""Conversations in a SQLite file, for one machine and any number of processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fsm_agent.errors import ConversationDamaged, ConversationError, DefinitionError
from fsm_agent.history import Block
from fsm_agent.memory.claims import Claim, busy, lost
from fsm_agent.memory.stored import LEASE, Held, Stored, StoredConversations, common_prefix, positive
from fsm_agent.memory.written import write_block

__all__ = ["SQLiteConversations"]

_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS conversation_schema (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS conversations (
    thread_id TEXT PRIMARY KEY, revision TEXT NOT NULL, blocks INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS conversation_blocks (
    thread_id TEXT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (thread_id, position));
CREATE TABLE IF NOT EXISTS conversation_claims (
    thread_id TEXT PRIMARY KEY, claim TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
INSERT INTO conversation_schema SELECT {version} WHERE NOT EXISTS (SELECT 1 FROM conversation_schema);
"""
_LEFT_ALONE: Final[list[sqlite3.Connection]] = []
"""Connections that a forked child inherited. It must not even close them, so it keeps them."""


class SQLiteConversations(StoredConversations):
    """Conversations in the SQLite file `path`, made when it does not exist; its folder must.

    One row a block, in the order in which they came; a turn adds rows and rewrites none. Written through at the end of each run; after a
    power cut the newest turns may be missing, never half there. `wait` is how many seconds another writer is waited for. Every call is
    short, so that it may be made on an event loop; the file must be on a disk of this machine, as for every SQLite file in WAL mode.
    Raises `DefinitionError` when the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, lease: float = LEASE, wait: float = 10.0) -> None:
        # A program may go to another directory, as a daemon does.
        self.path = Path(path) if os.fspath(path) == ":memory:" else Path(path).absolute()
        self._wait = positive(type(self).__name__, "wait", wait)
        super().__init__(lease=lease)
        try:
            with self._use, self._named_errors():
                self._connected()
        except ConversationError as error:
            raise DefinitionError(str(error)) from error

    def _begin(self) -> None:
        super()._begin()
        self._use = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._closing: weakref.finalize[..., SQLiteConversations] | None = None

    def before_fork(self) -> None:
        """No thread is inside of SQLite: a child would wait for ever for a lock of its own that it was copied with."""
        self._use.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on; in a child the connection too stays the parent's."""
        if not child:
            self._use.release()
        elif self._database is not None and self._closing is not None:
            self._closing.detach()
            _LEFT_ALONE.append(self._database)
        super().after_fork(child=child)

    def _take(self, thread_id: str, claim: Claim, *, whole: bool = True) -> Stored:
        with self._change() as database:
            row = database.execute(
                "SELECT claim, until FROM conversation_claims WHERE thread_id = ?", (thread_id,)
            ).fetchone()
            if row is not None and _now() < row[1]:
                other = Claim.from_json(row[0])
                # One of this store's own that it no longer knows of was left by a close that failed.
                if other is None or not other.yields_to(claim):
                    raise busy(thread_id, "unknown" if other is None else other.run_id, other)
            database.execute(
                "INSERT OR REPLACE INTO conversation_claims VALUES (?, ?, ?)",
                (thread_id, claim.to_json(), _now() + self.lease),
            )
            revision, count = _head(database, thread_id)
            rows = database.execute(
                "SELECT position, body FROM conversation_blocks WHERE thread_id = ? ORDER BY position", (thread_id,)
            ).fetchall()
            if whole:
                _check(thread_id, [position for position, _ in rows], count)
        return Stored([body for _, body in rows], revision)

    def _write(self, thread_id: str, held: Held, history: tuple[Block, ...]) -> None:
        kept = common_prefix(held.blocks, history)
        texts = [write_block(one, by=held.claim.run_id) for one in history[kept:]]
        with self._change() as database:
            row = database.execute("SELECT claim FROM conversation_claims WHERE thread_id = ?", (thread_id,)).fetchone()
            if row is None or row[0] != held.claim.to_json():
                if row is not None or _head(database, thread_id)[0] != held.stored.mark:
                    taker = None if row is None else Claim.from_json(row[0])
                    raise lost(thread_id, held.claim.run_id, None if taker is None else taker.run_id)
            else:
                database.execute("DELETE FROM conversation_claims WHERE thread_id = ?", (thread_id,))
            database.execute("DELETE FROM conversation_blocks WHERE thread_id = ? AND position >= ?", (thread_id, kept))
            database.executemany(
                "INSERT INTO conversation_blocks VALUES (?, ?, ?)",
                [(thread_id, kept + index, text) for index, text in enumerate(texts)],
            )
            if history:
                database.execute(
                    "INSERT OR REPLACE INTO conversations VALUES (?, ?, ?)",
                    (thread_id, held.claim.token, len(history)),
                )
            else:
                database.execute("DELETE FROM conversations WHERE thread_id = ?", (thread_id,))

    def _release(self, thread_id: str, claim: Claim) -> None:
        with self._change() as database:
            database.execute(
                "DELETE FROM conversation_claims WHERE thread_id = ? AND claim = ?", (thread_id, claim.to_json())
            )

    def _extend(self, claims: dict[str, Claim]) -> None:
        with self._change() as database:
            database.executemany(
                "UPDATE conversation_claims SET until = ? WHERE thread_id = ? AND claim = ?",
                [(_now() + self.lease, thread_id, claim.to_json()) for thread_id, claim in claims.items()],
            )

    def _shut(self) -> None:
        with self._use:
            if self._closing is not None:
                self._closing()
            self._database = self._closing = None

    # ---------------------------------------------------------------- the connection

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """The database within one transaction that nobody else writes in; rolled back by any error."""
        with self._use, self._named_errors():
            database = self._connected()
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def _connected(self) -> sqlite3.Connection:
        if self._database is not None and self._file() != self._opened:
            self._shut()
            raise ConversationError(
                f"{self.path} was removed or replaced while it was in use; what was kept in it went with it"
            )
        if self._database is None:
            self._database = self._connect()
            self._closing = weakref.finalize(self, self._database.close)
            self._opened = self._file()
        return self._database

    def _file(self) -> tuple[int, int] | None:
        """Which file is there now. SQLite goes on writing into one that was taken away, where nobody finds it."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=self._wait, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.format(version=_VERSION).split(";"):
                database.execute(statement)
            (version,) = database.execute("SELECT version FROM conversation_schema").fetchone()
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        if version != _VERSION:
            database.close()
            raise ConversationError(
                f"{self.path} holds conversations in form {version}, this version of fsm_agent reads form {_VERSION}; use the version that "
                "wrote it, or another file"
            )
        return database

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise ConversationError(
                f"the thread id cannot be stored, because it holds half a character ({error}); name threads in valid Unicode"
            ) from error
        except sqlite3.Error as error:
            raise ConversationError(
                f"the conversations in {self.path} cannot be read or written ({error}); see that the folder exists, that this user may "
                "write there, that the disk has room, and that it is a SQLite file which no other program keeps locked"
            ) from error


def _head(database: sqlite3.Connection, thread_id: str) -> tuple[str, int]:
    """Revision and number of blocks, "" and 0 for a new thread."""
    row = database.execute("SELECT revision, blocks FROM conversations WHERE thread_id = ?", (thread_id,)).fetchone()
    return ("", 0) if row is None else (row[0], row[1])


def _check(thread_id: str, positions: list[int], count: int) -> None:
    """Raise `ConversationDamaged` when rows are missing, or there are more than were written."""
    missing = next((index for index, position in enumerate(positions) if index != position), len(positions))
    if len(positions) != count or missing != count:
        raise ConversationDamaged(
            f"{count} blocks were written, and {len(positions)} rows are there",
            thread_id=thread_id,
            position=min(missing, count),
        )


_now = time.time
