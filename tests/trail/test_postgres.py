"""Trails in PostgreSQL, against a real server: what the contract of every store does not say, and what a server does to a store."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.errors import DefinitionError, RunHeld, TrailDamaged, TrailError, TrailVersion, UnknownRun
from fsm_agent.trail import postgres_link
from fsm_agent.trail.chain import GENESIS, Sha256Chain, broken
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.postgres_store import PostgresTrail
from fsm_agent.trail.store import RUNNING, Batch, TrailStore
from tests.trail.postgres_server import Server, serving
from tests.trail.stores import batch, entries

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "fsm_agent_trail_"


@pytest.fixture(scope="module")
def server(postgres_of_contract: Server) -> Server:
    """The server of the contract. Some tests here stop it and start it again."""
    return postgres_of_contract


@pytest.fixture
def conninfo(server: Server) -> str:
    """A new and empty database."""
    return server.new_database()


@pytest.fixture
def store(conninfo: str) -> Iterator[PostgresTrail]:
    """A store in a new database; it gives up at once when the server is away."""
    with closing(PostgresTrail(conninfo, reconnect=0.0)) as opened:
        yield opened


def named(statement: str) -> bytes:
    """The statement with the names of the tables."""
    return statement.format(**{name: PREFIX + name for name in ("version", "runs", "entries", "values")}).encode()


def sql(conninfo: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a person with an SQL prompt does."""
    with psycopg.connect(conninfo) as connection:
        cursor = connection.execute(named(statement), values or None)
        return cursor.fetchall() if cursor.description else []


# ---------------------------------------------------------------- what is stored


def test_it_is_a_store(store: PostgresTrail) -> None:
    """It has what the protocol asks for, and says where it is without a password."""
    assert isinstance(store, TrailStore)
    with closing(PostgresTrail("postgresql://me:swordfish@db.example:6543/trails")) as other:
        assert repr(other) == "PostgresTrail('db.example:6543/trails')"


TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)
PREFIXES = (f"example_{number}_" for number in itertools.count())


@pytest.fixture(scope="module")
def database_of_examples(server: Server) -> str:
    """One database for all examples of a property; each has tables of its own."""
    return server.new_database()


@settings(max_examples=25)
@given(data=st.data())
def test_what_was_appended_is_read_as_it_was(database_of_examples: str, data: st.DataObject) -> None:
    """Any text, any bytes, any finite number: each comes back exactly, from another connection."""
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
    run_id, thread_id, reason, head = (data.draw(TEXT) for _ in range(4))
    time, lease = data.draw(numbers), data.draw(numbers.filter(bool))
    stored = tuple(
        Stored(seq, text, head) for seq, text in enumerate(data.draw(st.lists(TEXT, min_size=1, max_size=4)))
    )
    value = data.draw(st.binary(max_size=60))
    digest = hashlib.sha256(value).hexdigest()
    asked = batch(
        run_id, time=time, lease=lease, thread_id=thread_id, reason=reason, entries=stored, values={digest: value}
    )
    prefix = next(PREFIXES)
    with (
        closing(PostgresTrail(database_of_examples, prefix=prefix)) as writer,
        closing(PostgresTrail(database_of_examples, prefix=prefix)) as reader,
    ):
        writer.append(asked).result()
        assert reader.read(run_id) == stored
        assert reader.value(run_id, digest) == value
        info = reader.info(run_id)
        assert (info.run_id, info.thread_id, info.reason, info.head) == (run_id, thread_id, reason, head)
        assert (info.began, info.updated, info.lease, info.entries) == (time, time, lease, len(stored))
        assert reader.runs() == (info,)


def test_what_a_text_of_postgresql_cannot_hold_is_refused(store: PostgresTrail) -> None:
    """A zero character or half a pair of surrogates: the batch fails as a whole, a run of that name is unknown, others go on."""
    store.append(batch(entries=entries(0, 0))).result()
    for bad in ("a\0", "\ud800"):
        for refused in (
            batch(bad, entries=entries(0, 0)),
            batch("s", thread_id=bad, entries=entries(0, 0)),
            batch(entries=(*entries(1, 1), Stored(2, bad, "seal"))),
        ):
            with pytest.raises(TrailError) as caught:
                store.append(refused).result()
            assert not isinstance(caught.value, RunHeld | TrailDamaged)
        for ask in (lambda bad=bad: store.read(bad), lambda bad=bad: store.claim(bad, "me", 9.0, 0.0)):
            with pytest.raises(UnknownRun):
                ask()
    assert [info.run_id for info in store.runs()] == ["r"]
    assert store.read("r") == entries(0, 0)


def test_a_large_entry_and_a_large_value_are_stored(store: PostgresTrail) -> None:
    """Megabytes in one batch are no matter."""
    text, value = '"' + "ü" * 1_500_000 + '"', os.urandom(3_000_000)
    digest = hashlib.sha256(value).hexdigest()
    store.append(batch(entries=(Stored(0, text, "s"),), values={digest: value})).result()
    assert store.read("r")[0].text == text
    assert store.value("r", digest) == value


# ---------------------------------------------------------------- many at once


@contextmanager
def row_locked(conninfo: str, run_id: str) -> Iterator[psycopg.Connection[Any]]:
    """Hold the lock of a run's row, so that whoever wants to write it has to wait."""
    with psycopg.connect(conninfo) as holder:
        holder.execute(named("SELECT 1 FROM {runs} WHERE run_id = %s FOR UPDATE"), (run_id,))
        yield holder
        holder.rollback()


def wait_for_a_waiter(conninfo: str) -> None:
    """Return when some session waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while not connection.execute(waiting.encode()).fetchall():
            pass


def error_of(future: Future[None]) -> BaseException | None:
    """How it ended."""
    return future.exception(timeout=60)


def test_what_is_asked_meanwhile_is_committed_at_once(conninfo: str, store: PostgresTrail) -> None:
    """Batches that come while one is being written share a transaction; one that is refused leaves the others alone."""
    for run_id in "abc":
        store.append(batch(run_id, entries=entries(0, 0))).result()
    with row_locked(conninfo, "a"):
        first = store.append(batch("a", entries=entries(1, 1)))
        wait_for_a_waiter(conninfo)
        good = [store.append(batch(run_id, entries=entries(seq, seq))) for seq in (1, 2) for run_id in "bc"]
        unknown = store.append(batch("nobody", entries=entries(1, 1)))
        held = store.append(batch("a", "somebody else", entries=entries(2, 2)))
        twice = store.append(batch("b", entries=entries(2, 2)))
    assert [error_of(future) for future in (first, *good)] == [None] * 5
    assert isinstance(error_of(unknown), UnknownRun)
    assert isinstance(error_of(held), RunHeld)
    assert isinstance(error_of(twice), RunHeld)
    ids = sql(conninfo, "SELECT DISTINCT xmin::text FROM {entries} WHERE run_id IN ('b', 'c') AND seq > 0")
    assert len(ids) == 1


def test_a_batch_that_breaks_a_transaction_fails_alone(conninfo: str, store: PostgresTrail) -> None:
    """When the server refuses a statement, each batch of the group is written by itself."""
    for run_id in "abc":
        store.append(batch(run_id, entries=entries(0, 0))).result()
    with row_locked(conninfo, "a"):
        first = store.append(batch("a", entries=entries(1, 1)))
        wait_for_a_waiter(conninfo)
        before, bad, after = (
            store.append(batch("b", entries=entries(1, 1))),
            store.append(batch("c", entries=(Stored(1, "\0", "s"),))),
            store.append(batch("b", entries=entries(2, 2))),
        )
    assert [error_of(future) for future in (first, before, after)] == [None] * 3
    assert isinstance(error_of(bad), TrailError)
    assert store.read("b") == entries(0, 2)
    assert store.read("c") == entries(0, 0)


def test_sixteen_runs_at_once_are_whole(store: PostgresTrail) -> None:
    """Runs of one store that are driven from many threads do not get in each other's way."""

    def drive(number: int) -> None:
        for seq in range(20):
            store.append(batch(f"r{number}", f"owner {number}", entries=entries(seq, seq, f"w{number}"))).result()

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.read(f"r{number}") for number in range(16)] == [entries(0, 19, f"w{number}") for number in range(16)]


def test_a_store_has_at_most_two_connections(conninfo: str, store: PostgresTrail) -> None:
    """One writes and one reads, however many threads ask; nothing is left in a transaction."""
    assert sql(conninfo, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fsm_agent'") == [(0,)]
    store.append(batch(entries=entries(0, 0))).result()
    threads = [threading.Thread(target=store.read, args=("r",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sessions = (
        "SELECT state FROM pg_stat_activity WHERE application_name = 'fsm_agent' AND datname = current_database()"
    )
    assert sql(conninfo, sessions) == [("idle",), ("idle",)]


def test_a_claim_waits_for_a_writer_and_then_sees_what_it_wrote(conninfo: str, store: PostgresTrail) -> None:
    """The row is locked before it is looked at: whoever comes second is told who came first."""
    store.append(batch(lease=0.0, entries=entries(0, 0))).result()
    told: list[RunHeld] = []

    def claim(other: PostgresTrail, owner: str) -> None:
        try:
            other.claim("r", owner, 99.0, 50.0)
        except RunHeld as error:
            told.append(error)

    with closing(PostgresTrail(conninfo)) as slow, closing(PostgresTrail(conninfo)) as other:
        slow.claim("r", "elsewhere:1:first", 99.0, 50.0)
        slow.append(batch(owner="elsewhere:1:first", lease=0.0)).result()
        with row_locked(conninfo, "r"):
            first = threading.Thread(target=claim, args=(slow, "elsewhere:1:first"))
            first.start()
            wait_for_a_waiter(conninfo)
            second = threading.Thread(target=claim, args=(other, "second"))
            second.start()
        first.join()
        second.join()
    assert [error.owner for error in told] == [store.info("r").owner]


RACER = """
import sys
from fsm_agent.errors import RunHeld
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.postgres_store import PostgresTrail
from fsm_agent.trail.store import Batch, new_owner
store, me = PostgresTrail(sys.argv[1]), new_owner()
store.runs()
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    try:
        store.claim(f"old {number}", me, 1e12, 50.0)
        print("old", number)
    except RunHeld as held:
        assert held.owner != me and held.owner.count(":") == 2, held
    begun = Batch(run_id=f"new {number}", owner=me, lease=1e12, time=50.0, status="running", entries=(Stored(0, "x", "s"),))
    error = store.append(begun).exception()
    if error is None:
        print("new", number)
    else:
        assert isinstance(error, RunHeld), repr(error)
store.close()
print("done", flush=True)
sys.stdin.readline()
"""


def test_of_two_processes_that_race_one_gets_the_run(conninfo: str, store: PostgresTrail) -> None:
    """Each run that is free, and each that does not exist, goes to exactly one of two processes; the other is told who has it."""
    for number in range(25):
        store.append(batch(f"old {number}", lease=0.0, entries=entries(0, 0))).result()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, conninfo], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    # What a program that is gone held is anybody's: both stay until both are done.
    said = [[line.strip() for line in itertools.takewhile("done\n".__ne__, racer.stdout or ())] for racer in racers]
    assert [racer.communicate(timeout=120)[0] for racer in racers] == ["", ""]
    assert sorted(said[0] + said[1]) == sorted(f"{kind} {number}" for kind in ("old", "new") for number in range(25))
    assert [info.entries for info in store.runs()] == [1] * 50


# ---------------------------------------------------------------- a server that goes away


def test_a_connection_that_was_cut_while_idle_is_made_again(conninfo: str, store: PostgresTrail) -> None:
    """A server that was started again in between is not noticed: neither by who writes nor by who reads."""
    store.append(batch(entries=entries(0, 0))).result()
    store.read("r")
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fsm_agent'"
    assert sql(conninfo, kill) == [(True,), (True,)]
    store.append(batch(entries=entries(1, 1))).result()
    assert store.read("r") == entries(0, 1)


def test_while_the_server_is_away_every_call_says_so(server: Server, store: PostgresTrail) -> None:
    """Reading, writing and claiming fail with an error that names the server; afterwards all goes on where it was."""
    store.append(batch(entries=entries(0, 0))).result()
    server.stop()
    try:
        for call in (
            lambda: store.append(batch(entries=entries(1, 1))).result(),
            lambda: store.claim("r", "me", 9.0, 0.0),
            lambda: store.read("r"),
            lambda: store.info("r"),
            lambda: store.value("r", "d"),
            store.runs,
        ):
            with pytest.raises(TrailError, match="PostgreSQL at") as caught:
                call()
            assert not isinstance(caught.value, UnknownRun | TrailDamaged | RunHeld)
            assert "?." not in str(caught.value)
    finally:
        server.start()
    assert store.read("r") == entries(0, 0)
    store.append(batch(entries=entries(1, 1))).result()
    assert store.read("r") == entries(0, 1)


def test_a_server_that_falls_over_leaves_nothing_half_written(
    server: Server, conninfo: str, store: PostgresTrail
) -> None:
    """The connection is lost with a batch half sent: the append fails, the run is as it was, and goes on afterwards."""
    store.append(batch("a", entries=entries(0, 0))).result()
    store.append(batch("b", entries=entries(0, 0))).result()
    with psycopg.connect(conninfo) as holder:
        # The entries wait behind this lock, after the runs were written.
        holder.execute(named("LOCK TABLE {entries} IN SHARE MODE"))
        lost = store.append(batch("a", entries=entries(1, 5), status="completed"))
        wait_for_a_waiter(conninfo)
        behind = [store.append(batch("b", entries=entries(seq, seq))) for seq in (1, 2)]
        # In order it may let the holder of the lock go first, and the batch through.
        server.stop(signal.SIGQUIT)
        try:
            assert {type(error_of(future)) for future in (lost, *behind)} == {postgres_link.ServerAway}
            holder.close()
        finally:
            server.start()
    assert store.read("a") == entries(0, 0)
    assert store.info("a").status == RUNNING
    assert store.read("b") == entries(0, 0)
    store.append(batch("a", entries=entries(1, 2))).result()
    assert store.read("a") == entries(0, 2)


def test_a_server_that_comes_back_in_time_gets_the_batch_once(server: Server, conninfo: str) -> None:
    """Within `reconnect` seconds the batch that was lost is written again, and whoever waits for it never knows."""
    with closing(PostgresTrail(conninfo, reconnect=60.0)) as store:
        store.append(batch(entries=entries(0, 0))).result()
        with psycopg.connect(conninfo) as holder:
            holder.execute(named("LOCK TABLE {entries} IN SHARE MODE"))
            lost = store.append(batch(entries=entries(1, 3)))
            wait_for_a_waiter(conninfo)
            server.stop()
            holder.close()
            server.start()
        assert error_of(lost) is None
        assert store.read("r") == entries(0, 3)


@pytest.mark.parametrize(
    "asked",
    [
        batch("new", entries=entries(0, 2)),
        batch("old", entries=entries(1, 2)),
        batch("old", entries=entries(1, 1), lease=0.0, status="completed"),
        batch("old", lease=0.0, status="suspended", time=51.0),
    ],
    ids=["new", "more", "last", "status"],
)
def test_a_commit_whose_answer_was_lost_is_not_done_twice(
    store: PostgresTrail, monkeypatch: pytest.MonkeyPatch, asked: Batch
) -> None:
    """The connection breaks between the commit and its answer: the append succeeds, and what it wrote is there once."""
    store.append(batch("old", entries=entries(0, 0))).result()
    commit, calls = PostgresTrail._commit, []

    def lose(self: PostgresTrail, connection: postgres_link.Connection, *args: Any, again: bool) -> Any:
        answers = commit(self, connection, *args, again=again)
        calls.append(again)
        if not again:
            connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return answers

    monkeypatch.setattr(PostgresTrail, "_commit", lose)
    assert error_of(store.append(asked)) is None
    assert calls == [False, True]
    assert store.read(asked.run_id)[-len(asked.entries) :] == asked.entries or not asked.entries
    info = store.info(asked.run_id)
    assert (info.status, info.lease, info.owner) == (asked.status, asked.lease, "me" if asked.lease else "")


def test_a_commit_that_lands_late_is_not_taken_for_somebody_elses(
    conninfo: str, store: PostgresTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old session commits a new run while the new one is about to: the run is there once, and the append succeeds."""
    asked, write, calls = batch("new", entries=entries(0, 2)), PostgresTrail._write, []

    def land(self: PostgresTrail, connection: postgres_link.Connection, change: Any) -> None:
        calls.append(self)
        if calls == [store]:
            connection.close()
        elif calls == [store, store]:
            with closing(PostgresTrail(conninfo)) as old:
                old.append(asked).result()
        write(self, connection, change)

    monkeypatch.setattr(PostgresTrail, "_write", land)
    assert error_of(store.append(asked)) is None
    assert store.read("new") == asked.entries


def test_a_batch_of_somebody_else_is_not_taken_for_the_one_that_was_lost(
    conninfo: str, store: PostgresTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks before the commit and another takes the run: the append is refused, and not called done."""
    store.append(batch(entries=entries(0, 0))).result()
    commit = PostgresTrail._commit

    def lose(self: PostgresTrail, connection: postgres_link.Connection, *args: Any, again: bool) -> Any:
        if not again and self is store:
            connection.close()
            with closing(PostgresTrail(conninfo)) as other:
                other.claim("r", "other", 999.0, 101.0)
                other.append(batch(owner="other", entries=entries(1, 1, "other"))).result()
        return commit(self, connection, *args, again=again)

    monkeypatch.setattr(PostgresTrail, "_commit", lose)
    assert isinstance(error_of(store.append(batch(entries=entries(1, 1)))), RunHeld)
    assert store.read("r") == entries(0, 0) + entries(1, 1, "other")


# ---------------------------------------------------------------- tables


def test_the_tables_are_made_by_whoever_comes_first(conninfo: str) -> None:
    """Eight stores that meet an empty database in one moment make its tables once, without an error."""
    stores = [PostgresTrail(conninfo) for _ in range(8)]
    start, seen = threading.Barrier(8), []

    def use(store: PostgresTrail) -> None:
        start.wait()
        seen.append(store.runs())

    threads = [threading.Thread(target=use, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert seen == [()] * 8
    assert sql(conninfo, "SELECT version FROM {version}") == [(postgres_link.VERSION,)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {version} SET version = 2",
        "DELETE FROM {version}",
        "INSERT INTO {version} VALUES (1)",
        "DROP TABLE {version}",
    ],
)
def test_tables_of_another_version_are_left_alone(conninfo: str, damage: str) -> None:
    """A version that this package does not know, or none at all, is refused by name; it is neither used nor made anew."""
    with closing(PostgresTrail(conninfo)) as store:
        store.append(batch(entries=entries(0, 0))).result()
    sql(conninfo, damage)
    with closing(PostgresTrail(conninfo)) as store:
        for call in (store.runs, lambda: store.append(batch("s", entries=entries(0, 0))).result()):
            with pytest.raises(TrailVersion, match=r"_version|none that says its version"):
                call()
    assert sql(conninfo, "SELECT run_id FROM {runs}") == [("r",)]


def test_each_prefix_is_a_store_of_its_own(conninfo: str, store: PostgresTrail) -> None:
    """Two prefixes in one database share nothing."""
    with closing(PostgresTrail(conninfo, prefix="other_")) as other:
        store.append(batch(entries=entries(0, 0))).result()
        assert other.runs() == ()
        with pytest.raises(UnknownRun):
            other.read("r")
        other.append(batch(entries=entries(0, 1, "o"))).result()
        assert other.read("r") == entries(0, 1, "o")
    assert store.read("r") == entries(0, 0)


@pytest.mark.parametrize("prefix", ["", "1_", "Trail_", "a-b", 'a"; DROP TABLE x; --', "x" * 41, "ü", "a\n"])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    """What goes into the text of a statement is a plain name."""
    with pytest.raises(DefinitionError, match="prefix"):
        PostgresTrail("", prefix=prefix)


def test_a_database_that_cannot_hold_every_character_is_refused(server: Server) -> None:
    """A database of another encoding would fail at the first run in another script; it is refused at once, with what to do."""
    conninfo = server.new_database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with closing(PostgresTrail(conninfo)) as store, pytest.raises(TrailError, match=r"LATIN1.*ENCODING 'UTF8'"):
        store.runs()


def test_what_is_committed_is_on_disk_whatever_the_database_says(conninfo: str) -> None:
    """A database that commits in memory only (`synchronous_commit` off) is asked to commit to disk; a stricter setting stays."""
    with psycopg.connect(conninfo) as connection:
        name = connection.info.dbname
    for setting, used in (("off", "on"), ("remote_apply", "remote_apply")):
        sql(conninfo, f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
        link = postgres_link.Link(conninfo, postgres_link.Statements(PREFIX), reconnect=0.0)
        assert link.run(lambda connection, _: connection.execute("SHOW synchronous_commit").fetchone()) == (used,)
        link.close()


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("damage", "seq"),
    [
        ("DELETE FROM {entries} WHERE seq = 0", 0),
        ("DELETE FROM {entries} WHERE seq = 2", 2),
        ("DELETE FROM {entries} WHERE seq = 4", 4),
        ("DELETE FROM {entries}", 0),
        ("UPDATE {entries} SET seal = 'forged' WHERE seq = 4", 4),
        ("UPDATE {entries} SET seq = 9 WHERE seq = 3", 3),
        ("INSERT INTO {entries} VALUES ('r', 5, 'x', 's')", 5),
        ("UPDATE {runs} SET entries = 4, head = 'seal x 3'", -1),
        ("UPDATE {runs} SET status = 'completed'", -1),
        ("UPDATE {runs} SET owner = ''", -1),
        ("UPDATE {runs} SET thread_id = 'x'", -1),
    ],
)
def test_a_row_that_was_changed_by_hand_is_found(conninfo: str, store: PostgresTrail, damage: str, seq: int) -> None:
    """Entries taken out, put in or renumbered, and any column of the run's own row: reading names the first that is wrong."""
    store.append(batch(entries=entries(0, 4))).result()
    sql(conninfo, damage)
    before = sql(conninfo, "SELECT * FROM {runs}"), sql(conninfo, "SELECT * FROM {entries} ORDER BY seq")
    with pytest.raises(TrailDamaged) as caught:
        store.read("r")
    assert caught.value.seq == seq
    if seq == -1:
        assert [one.status for one in store.runs()] == ["damaged"]
        for call in (
            lambda: store.info("r"),
            lambda: store.claim("r", "me", 9.0, 0.0),
            lambda: store.append(batch(entries=entries(5, 5))).result(),
            lambda: store.append(batch(entries=entries(0, 0))).result(),
        ):
            with pytest.raises(TrailDamaged):
                call()
    after = sql(conninfo, "SELECT * FROM {runs}"), sql(conninfo, "SELECT * FROM {entries} ORDER BY seq")
    assert after == before


def test_a_text_that_was_changed_is_found_by_its_seal(conninfo: str, store: PostgresTrail) -> None:
    """The store gives back what is there; the seals show the first entry that is not as it was written."""
    chain, before, stored = Sha256Chain(), GENESIS, []
    for seq in range(3):
        before = chain.seal(before, f"text {seq}")
        stored.append(Stored(seq, f"text {seq}", before))
    store.append(batch(entries=tuple(stored))).result()
    assert broken(chain, store.read("r")) == ()
    sql(conninfo, "UPDATE {entries} SET text = 'Text 1' WHERE seq = 1")
    assert broken(chain, store.read("r")) == (1,)


def test_an_entry_that_the_row_of_its_run_does_not_know_is_not_overwritten(conninfo: str, store: PostgresTrail) -> None:
    """Writing where an entry is already is damage, with its number; nothing of the batch is written."""
    store.append(batch(entries=entries(0, 0))).result()
    sql(conninfo, "INSERT INTO {entries} VALUES ('r', 1, 'x', 's')")
    with pytest.raises(TrailDamaged, match="is there already") as caught:
        store.append(batch(entries=entries(1, 2), status="completed")).result()
    assert caught.value.seq == 1
    assert sql(conninfo, "SELECT seq, text FROM {entries} WHERE seq > 0") == [(1, "x")]
    assert sql(conninfo, "SELECT status FROM {runs}") == [(RUNNING,)]


@pytest.mark.parametrize("damage", ["UPDATE {values} SET data = 'other'", "DELETE FROM {values}"])
def test_a_value_that_was_changed_is_damage(conninfo: str, store: PostgresTrail, damage: str) -> None:
    """A value is what its digest says, or an error that names it."""
    digest = hashlib.sha256(b"value").hexdigest()
    store.append(batch(entries=entries(0, 0), values={digest: b"value"})).result()
    sql(conninfo, damage)
    with pytest.raises(TrailDamaged, match=digest):
        store.value("r", digest)


def test_a_run_with_entries_cannot_lose_its_row(conninfo: str, store: PostgresTrail) -> None:
    """The tables themselves keep a run from being forgotten, and its entries from being read as nothing."""
    store.append(batch(entries=entries(0, 0))).result()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        sql(conninfo, "DELETE FROM {runs}")


# ---------------------------------------------------------------- secrets, closing, forking, extras


@pytest.mark.parametrize(
    "conninfo", ["host=x swordfish", "postgresql://me:sword fish@h/d", "password='swordfish", "pass=swordfish"]
)
def test_a_wrong_connection_string_is_refused_without_being_shown(conninfo: str) -> None:
    """The error says how one is written; what was given may have a password in it."""
    with pytest.raises(DefinitionError, match="connection string") as caught:
        PostgresTrail(conninfo)
    assert "fish" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_an_error_of_the_server_shows_no_password(server: Server) -> None:
    """Neither a server that is away nor one that refuses the user is a reason to print a secret."""
    for bad in (f"host={server.folder} user=nobody password=swordfish", "host=/nonexistent password=swordfish"):
        with closing(PostgresTrail(bad, reconnect=0.0)) as store, pytest.raises(TrailError) as caught:
            store.runs()
        assert "swordfish" not in f"{caught.value}{caught.value.__cause__}"


def test_closing_writes_what_was_appended(conninfo: str) -> None:
    """Every batch that was appended before `close` is there after it; what comes later fails; closing twice is nothing."""
    store = PostgresTrail(conninfo)
    futures = [store.append(batch(entries=entries(seq, seq))) for seq in range(50)]
    store.close()
    store.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert isinstance(error_of(store.append(batch(entries=entries(50, 50)))), TrailError)
    for call in (store.runs, lambda: store.read("r"), lambda: store.claim("r", "me", 9.0, 0.0)):
        with pytest.raises(TrailError, match="closed"):
            call()
    with closing(PostgresTrail(conninfo)) as other:
        assert other.read("r") == entries(0, 49)


FORK = """
import os, sys
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.postgres_store import PostgresTrail
from fsm_agent.trail.store import Batch
store = PostgresTrail(sys.argv[1])
def append(seq):
    entry = Stored(seq, "x", f"s{seq}")
    store.append(Batch(run_id="r", owner="me", lease=9.0, time=1.0, status="running", entries=(entry,))).result(60)
def sessions():
    return {link.run(lambda connection, _: connection.info.backend_pid) for link in (store._writing, store._reading)}
append(0)
before = sessions()
child = os.fork()
if not child:
    append(1)
    assert len(store.read("r")) == 2
    assert not sessions() & before
    store.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
append(2)
print(len(store.read("r")))
assert sessions() == before
store.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_goes_on_with_connections_of_its_own(conninfo: str, store: PostgresTrail) -> None:
    """Parent and child both write and read after a fork, and neither breaks the other's connection."""
    store.runs()
    command = [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", FORK, conninfo]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_without_the_library_the_extra_is_named() -> None:
    """`PostgresTrail` without psycopg says what to install."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fsm_agent.trail.postgres_store import PostgresTrail\n"
        "try: PostgresTrail('')\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install 'fsm-agent[postgres]'" in done.stdout


def test_trails_load_no_extra_before_it_is_used() -> None:
    """Importing the trail, its stores and its ciphers loads neither psycopg nor cryptography."""
    code = (
        "import sys, fsm_agent.trail, fsm_agent.trail.cipher, fsm_agent.trail.postgres_store\n"
        "print([name for name in ('psycopg', 'cryptography') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_server_is_a_failure_in_ci_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without PostgreSQL these tests are left out, but CI, which installs it, must not leave them out."""
    monkeypatch.setattr("tests.trail.postgres_server.binaries", lambda: None)
    for ci, outcome in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="apt-get install postgresql"), serving():
            pass
