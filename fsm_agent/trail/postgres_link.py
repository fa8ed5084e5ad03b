"""A connection to PostgreSQL that is made when it is needed and again when it was lost, with the tables of the trails behind it.

The only module that knows psycopg; imported when a `PostgresTrail` is made.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from fsm_agent.errors import DefinitionError, TrailError, TrailVersion
from fsm_agent.trail.store import RunInfo

__all__ = ["Connection", "Link", "ServerAway", "Statements", "is_duplicate_key"]

VERSION: Final = 1
Connection = psycopg.Connection[tuple[Any, ...]]
Answer = TypeVar("Answer")

_DEFAULTS: Final = {
    "fallback_application_name": "fsm_agent",
    "connect_timeout": "10",
    # A peer that is gone without a word is noticed within a minute, while idle and while it owes an answer.
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "50000",
}
# What has been committed must be on disk, and a writer that was stopped in a transaction must not stop the others for ever.
_SESSION: Final = """
SELECT set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                  false),
       set_config('lock_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '60s', false)
"""
_TABLES: Final[tuple[LiteralString, ...]] = (
    "CREATE TABLE {version} (version integer NOT NULL)",
    """CREATE TABLE {runs} (
        run_id text PRIMARY KEY, thread_id text, status text NOT NULL, reason text NOT NULL,
        began double precision NOT NULL, updated double precision NOT NULL,
        entries bigint NOT NULL, head text NOT NULL, owner text NOT NULL, lease double precision NOT NULL,
        checked text NOT NULL)""",
    "CREATE INDEX ON {runs} (began)",
    """CREATE TABLE {entries} (
        run_id text NOT NULL REFERENCES {runs}, seq bigint NOT NULL, text text NOT NULL, seal text NOT NULL,
        PRIMARY KEY (run_id, seq))""",
    "CREATE TABLE {values} (digest text PRIMARY KEY, data bytea NOT NULL)",
    "INSERT INTO {version} VALUES (1)",
)
_FIRST_USE: Final = 7_161_020_416_001
"""The advisory lock under which tables are made: creating one twice at once is an error, IF NOT EXISTS or not."""
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two tries to connect again."""


class ServerAway(TrailError):
    """The server could not be reached, or was lost twice in a row."""


def is_duplicate_key(error: BaseException | None) -> bool:
    """True when `error` says that a row with this key is there already."""
    return isinstance(error, psycopg.errors.UniqueViolation)


class Statements:
    """Statements over the four tables of one prefix: `{version}`, `{runs}`, `{entries}`, `{values}`.

    `{columns}` are the columns of `{runs}` that make a `RunInfo`, in the order of its fields.
    """

    def __init__(self, prefix: str) -> None:
        names = ("version", "runs", "entries", "values")
        self.tables: Final = {name: f"{prefix}{name}" for name in names}
        self._names: Final[dict[str, sql.Composable]] = {
            **{name: sql.Identifier(table) for name, table in self.tables.items()},
            "columns": sql.SQL(", ").join(sql.Identifier(one.name) for one in fields(RunInfo)),
        }
        self._made: dict[str, sql.Composed] = {}

    def __call__(self, text: LiteralString) -> sql.Composed:
        """`text` with the names of the tables."""
        if text not in self._made:
            self._made[text] = sql.SQL(text).format(**self._names)
        return self._made[text]


class Link:
    """One connection, used by one thread at a time.

    It is opened by the first `run`. When it is lost it is opened again within `reconnect` seconds, and the work done once more. Raises
    `DefinitionError` for a connection string that is none.
    """

    def __init__(self, conninfo: str, statements: Statements, *, reconnect: float, reads_only: bool = False) -> None:
        try:
            given = conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            # Without the cause, which quotes parts of it: there may be a password in them.
            raise DefinitionError(
                'this is no connection string of PostgreSQL; write "postgresql://user@host:5432/database" or "host=... dbname=..."'
            ) from None
        self.where: Final = (
            f"{given.get('host') or 'its default host'}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
        )
        self._parameters: Final[Mapping[str, Any]] = {**_DEFAULTS, **given, "client_encoding": "utf8"}
        self._statements = statements
        self._reconnect = reconnect
        self._reads_only = reads_only
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._dropped: weakref.finalize[..., Link] | None = None
        self._closed = False

    def run(self, work: Callable[[Connection, bool], Answer]) -> Answer:
        """The answer of `work(connection, again)`. `again` is True when the connection was lost the first time.

        What was committed in that moment, if anything, is not known to this side: `work` has to look. Raises `ServerAway` when the server
        cannot be reached, another `TrailError` for what it says, `TrailVersion` for tables of another version, and what `work` raises.
        """
        with self._lock:
            connection = self._connection or self._opened()
            try:
                return work(connection, False)
            except (psycopg.Error, UnicodeError) as error:
                if not connection.closed:
                    raise self._refused(error) from error
            connection = self._opened_again()
            try:
                return work(connection, True)
            except (psycopg.Error, UnicodeError) as error:
                if not connection.closed:
                    raise self._refused(error) from error
                self._taken_away()
                raise self._refused(error, ServerAway) from error

    def _refused(self, error: Exception, kind: type[TrailError] = TrailError) -> TrailError:
        said = " ".join(str(error).split()) or type(error).__name__
        stop = "" if said.endswith((".", "?", "!")) else "."
        return kind(
            f"PostgreSQL at {self.where}: {said}{stop} What was to be written is there as a whole, or not at all"
        )

    def _opened(self) -> Connection:
        if self._closed:
            raise TrailError("this store of trails has been closed; make another")
        try:
            connection = psycopg.connect(**self._parameters, autocommit=True)
        except (psycopg.Error, UnicodeError) as error:
            raise self._refused(error, ServerAway) from error
        try:
            self._prepared(connection)
        except BaseException as error:
            lost = connection.closed
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self._refused(error, ServerAway if lost else TrailError) from error
            raise
        self._connection = connection
        # A store that nobody has any more takes none of the server's connections.
        self._dropped = weakref.finalize(self, connection.close)
        self._dropped.atexit = False
        return connection

    def _opened_again(self) -> Connection:
        self._taken_away()
        until = time.monotonic() + self._reconnect
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return self._opened()
            except ServerAway:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _prepared(self, connection: Connection) -> None:
        """Set the session up, and make the tables when there are none."""
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise TrailError(
                f"PostgreSQL at {self.where}: the database has the encoding {encoding}; make one with ENCODING 'UTF8' TEMPLATE template0"
            )
        connection.execute(_SESSION)
        if not self._exists(connection, "version"):
            self._make_tables(connection)
        levels = psycopg.IsolationLevel
        connection.isolation_level = levels.REPEATABLE_READ if self._reads_only else levels.READ_COMMITTED
        connection.read_only = self._reads_only
        rows = connection.execute(self._statements("SELECT version FROM {version}")).fetchall()
        if rows != [(VERSION,)]:
            said = f"says version {rows[0][0]}" if len(rows) == 1 else f"has {len(rows)} rows"
            raise TrailVersion(
                f"PostgreSQL at {self.where}: the table {self._statements.tables['version']} {said}, and this package writes version "
                f"{VERSION}: use the package that made it, or another prefix"
            )

    def _make_tables(self, connection: Connection) -> None:
        # A lock of the session, taken before the transaction: what a transaction knows of tables may be as old as its beginning.
        connection.execute("SELECT pg_advisory_lock(%s)", (_FIRST_USE,))
        with connection.transaction():
            if not self._exists(connection, "version"):
                for name in ("runs", "entries", "values"):
                    if self._exists(connection, name):
                        table = self._statements.tables[name]
                        raise TrailVersion(
                            f"PostgreSQL at {self.where}: there is a table {table}, but none that says its version: "
                            "bring that back, or use another prefix"
                        )
                for made in _TABLES:
                    connection.execute(self._statements(made))
        connection.execute("SELECT pg_advisory_unlock(%s)", (_FIRST_USE,))

    def _exists(self, connection: Connection, name: str) -> bool:
        row = connection.execute("SELECT to_regclass(%s)::text", (self._statements.tables[name],)).fetchone()
        return row is not None and row[0] is not None

    def close(self) -> None:
        """Close the connection, once the work that it does is done; nothing opens it again."""
        with self._lock:
            self._closed = True
            connection = self._taken_away()
            if connection is not None:
                connection.close()

    def inherited(self) -> Connection | None:
        """The connection, taken away without a word to the server: for a forked child, whose parent goes on using it."""
        self._lock = threading.Lock()
        connection = self._taken_away()
        if connection is not None:
            # As one of a pool, which ends with its program: psycopg does not complain that the child leaves it open.
            connection._pool = None
        return connection

    def _taken_away(self) -> Connection | None:
        if self._dropped is not None:
            self._dropped.detach()
        connection, self._connection = self._connection, None
        return connection
