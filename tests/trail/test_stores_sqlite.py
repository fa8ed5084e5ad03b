"""Trails in an SQLite file: what a file may be, what becomes of one that is edited, and what one commit holds."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.errors import DefinitionError, RunHeld, TrailDamaged, TrailError, TrailVersion, UnknownRun
from fsm_agent.trail import Sha256Chain, SQLiteTrail, Stored
from fsm_agent.trail.reader import checked_entries
from fsm_agent.trail.sqlite_rows import APPLICATION, VERSION
from tests.trail.stores import batch, entries

PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is going to be."""
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteTrail]:
    """A store that does not wait long for others."""
    with closing(SQLiteTrail(path, patience=0.05)) as opened:
        yield opened


def sql(path: Path, script: str) -> None:
    """What a person with an SQL prompt does."""
    with closing(sqlite3.connect(path)) as link:
        link.executescript(script)


def asked(store: SQLiteTrail) -> list[Exception]:
    """What every use of the store raises."""
    found = []
    for ask in (
        lambda: store.append(batch(entries=entries(0, 0))).result(PATIENCE),
        lambda: store.append(batch(entries=entries(3, 3))).result(PATIENCE),
        lambda: store.claim("r", "other", 500.0, 101.0),
        lambda: store.read("r"),
        lambda: store.info("r"),
        lambda: store.value("r", "0" * 64),
        store.runs,
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at the type
            ask()
        found.append(caught.value)
    return found


# ---------------------------------------------------------------- the file


def test_reading_makes_no_file(path: Path, store: SQLiteTrail) -> None:
    """A file that is not there holds no runs, and only an append makes it, with its folder."""
    assert store.runs() == ()
    with pytest.raises(UnknownRun):
        store.read("r")
    assert not path.exists()
    with closing(SQLiteTrail(path.parent / "new" / "folder" / "runs.db")) as deeper:
        deeper.append(batch(entries=entries(0, 0))).result(PATIENCE)
    assert [found.name for found in (path.parent / "new" / "folder").iterdir()] == ["runs.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of the size of a file")
def test_a_file_that_cannot_be_made_leaves_nothing(path: Path, store: SQLiteTrail) -> None:
    """A disk that is full gets no fuller by each try: the drafts of a file go, with their logs."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(TrailError, match="Nothing was written"):
            store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(path.parent.iterdir()) == []
    store.append(batch(entries=entries(0, 0))).result(PATIENCE)


def test_a_name_as_long_as_a_folder_takes_it(tmp_path: Path) -> None:
    """The draft of a file has room for its name, in any script."""
    long = tmp_path / ("记" * 80 + ".db")
    with closing(SQLiteTrail(long)) as store:
        store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    assert list(tmp_path.iterdir()) == [long]


@pytest.mark.parametrize(
    "wrong", [{"path": ":memory:"}, {"path": ""}, {"path": "file:x"}, {"path": "x", "synchronous": "OFF"}]
)
def test_what_would_not_last_is_refused(wrong: dict[str, Any]) -> None:
    """No database in memory, and no setting under which a commit is lost with the process."""
    with pytest.raises(DefinitionError):
        SQLiteTrail(**wrong)


def test_a_link_names_the_file_that_it_leads_to(tmp_path: Path) -> None:
    """The file is made where a link says, be it there yet or not, and its log is looked for beside it."""
    (tmp_path / "disk").mkdir()
    link, file = tmp_path / "runs.db", tmp_path / "disk" / "there.db"
    link.symlink_to(file)
    for number in (0, 1):
        with closing(SQLiteTrail(link)) as opened:
            opened.append(batch(run_id=f"r{number}", entries=entries(0, 0))).result(PATIENCE)
            assert len(opened.runs()) == number + 1
    assert link.is_symlink()
    file.rename(tmp_path / "away.db")
    Path(f"{file}-wal").write_bytes(b"what was written last")
    with closing(SQLiteTrail(link)) as opened, pytest.raises(TrailError, match="is gone and there"):
        opened.append(batch(entries=entries(0, 0))).result(PATIENCE)


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1), ("EXTRA", 3)])
def test_commits_are_synchronous(path: Path, synchronous: Any, number: int) -> None:
    """The writer has a write-ahead log, and syncs as it was told; FULL is the default."""
    store = SQLiteTrail(path) if synchronous == "FULL" else SQLiteTrail(path, synchronous)
    with closing(store):
        store.append(batch(entries=entries(0, 0))).result(PATIENCE)
        assert store._writer is not None
        link = store._writer.link
        assert [link.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")] == [
            number,
            "wal",
        ]


NO_TRAIL = {
    "empty": b"",
    "text": b"no database, but a text that somebody has written\n" * 40,
    "short": b"SQLite format 3\0",
    "zeros": bytes(8192),
}


@pytest.mark.parametrize("kind", NO_TRAIL)
def test_a_file_that_is_no_database_is_refused_and_kept(path: Path, store: SQLiteTrail, kind: str) -> None:
    """Every use fails with an error that names the file, and not a byte of it is changed."""
    path.write_bytes(NO_TRAIL[kind])
    for error in asked(store):
        assert isinstance(error, TrailError)
        assert str(path) in str(error)
        assert kind != "empty" or "is empty, and a trail never is" in str(error)
    store.close()
    assert path.read_bytes() == NO_TRAIL[kind]
    assert [found.name for found in path.parent.iterdir()] == ["runs.db"]


EDITED_SCHEMA = {
    f"PRAGMA user_version = {VERSION + 1}": TrailVersion,
    "PRAGMA user_version = 0": TrailVersion,
    f"PRAGMA application_id = {APPLICATION + 1}": TrailError,
    "DROP TABLE entries": TrailError,
    "DROP TABLE runs": TrailError,
    "DROP TABLE trail_values": TrailError,
    "ALTER TABLE entries RENAME COLUMN seal TO mark": TrailError,
}


@pytest.mark.parametrize("edit", EDITED_SCHEMA)
def test_a_file_of_another_schema_is_refused_and_kept(path: Path, store: SQLiteTrail, edit: str) -> None:
    """Another version, another application, a table or column that is gone: an error with a way out, and nothing is made anew."""
    store.append(batch(entries=entries(0, 2))).result(PATIENCE)
    store.close()
    sql(path, edit)
    before = path.read_bytes()
    with closing(SQLiteTrail(path)) as other:
        for error in asked(other):
            assert type(error) is EDITED_SCHEMA[edit]
            assert str(path) in str(error)
    assert path.read_bytes() == before


def test_a_file_in_which_nothing_is_written_keeps_every_byte(path: Path) -> None:
    """What is refused changes nothing: not even the size in the header, which SQLite puts right with whatever is committed."""
    with closing(SQLiteTrail(path)) as first:
        first.append(batch(entries=entries(0, 0))).result(PATIENCE)
    content = path.read_bytes()
    damaged = content[:24] + bytes(8) + content[32:]
    path.write_bytes(damaged)
    with closing(SQLiteTrail(path)) as again:
        assert isinstance(again.append(batch(entries=entries(0, 0))).exception(PATIENCE), RunHeld)
        with pytest.raises(RunHeld):
            again.claim("r", "other", 101.0, 50.0)
    assert path.read_bytes() == damaged


def test_a_place_where_no_file_can_be_is_refused(path: Path) -> None:
    """A folder, or a path below a file: the error names the place."""
    with pytest.raises(DefinitionError, match=f"{path.parent}' is a directory: name a file in it"):
        SQLiteTrail(path.parent)
    (path.parent / "file").write_text("x")
    wrong = path.parent / "file" / "runs.db"
    with closing(SQLiteTrail(wrong)) as store:
        error = store.append(batch(entries=entries(0, 0))).exception(PATIENCE)
    assert isinstance(error, TrailError)
    assert str(wrong) in str(error)


def unprivileged(act: Callable[[], None]) -> int:
    """The exit code of a child that does `act` with no right to write what this process owns and has closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, of whomever
        child = os.fork()
    if not child:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o755), (0o444, 0o555)])
def test_a_file_that_may_not_be_written_can_be_read(file: int, folder: int) -> None:
    """An append fails by name and leaves nothing; reading works, also where not even a log can be made beside the file."""
    place = Path(tempfile.mkdtemp())  # not pytest's, which nobody else may enter
    path = place / "runs.db"
    try:
        with closing(SQLiteTrail(path)) as store:
            store.append(batch(entries=entries(0, 2))).result(PATIENCE)
        path.chmod(file)
        place.chmod(folder)
        before = path.read_bytes()

        def act() -> None:
            with closing(SQLiteTrail(path)) as other:
                assert isinstance(other.append(batch(entries=entries(3, 3)), here=True).exception(PATIENCE), TrailError)
                assert other.read("r") == entries(0, 2)
                assert other.info("r").entries == 3

        assert unprivileged(act) == 0
        assert path.read_bytes() == before
    finally:
        place.chmod(0o755)
        shutil.rmtree(place)


def test_a_file_that_was_moved_away_is_noticed(path: Path, store: SQLiteTrail) -> None:
    """Nothing is acknowledged into it, nothing begun over the log it left behind; once it is back everything is there."""
    store.append(batch(entries=entries(0, 2))).result(PATIENCE)
    assert len(store.read("r")) == 3
    path.rename(path.with_name("moved.db"))
    assert all(isinstance(error, TrailError) and str(path) in str(error) for error in asked(store))
    assert not path.exists()
    path.with_name("moved.db").rename(path)
    store.append(batch(entries=entries(3, 3))).result(PATIENCE)
    assert store.read("r") == entries(0, 3)


def test_a_file_that_was_replaced_is_noticed(path: Path, store: SQLiteTrail) -> None:
    """The append that comes upon another file fails, then it is the other file that is used."""
    with closing(SQLiteTrail(path.with_name("other.db"))) as other:
        other.append(batch("other", entries=entries(0, 0))).result(PATIENCE)
    store.append(batch(entries=entries(0, 2))).result(PATIENCE)
    with closing(sqlite3.connect(path)) as link:
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.with_name("other.db").replace(path)
    error = store.append(batch(entries=entries(3, 3))).exception(PATIENCE)
    assert isinstance(error, TrailError)
    assert "removed or replaced" in str(error)
    assert isinstance(store.append(batch(entries=entries(3, 3))).exception(PATIENCE), UnknownRun)
    assert [info.run_id for info in store.runs()] == ["other"]


# ---------------------------------------------------------------- rows that were edited

EDITED = [
    "UPDATE entries SET text = replace(text, '1', '2') WHERE seq = 1",
    "UPDATE entries SET seal = 'x' || substr(seal, 2) WHERE seq = 1",
    "UPDATE entries SET seal = 'x' || substr(seal, 2) WHERE seq = 4",
    "UPDATE entries SET text = CAST(text AS BLOB) WHERE seq = 1",
    "UPDATE entries SET text = CAST(x'fffe' AS TEXT) WHERE seq = 1",
    "UPDATE entries SET seq = 'one' WHERE seq = 1",
    "UPDATE entries SET seq = seq + 10",
    "UPDATE entries SET seq = 99 WHERE seq = 4",
    "UPDATE entries SET run_id = 'other' WHERE seq = 4",
    "UPDATE entries SET run_id = 'other'",
    "UPDATE entries SET seq = 9 WHERE seq = 1; UPDATE entries SET seq = 1 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 9",
    "DELETE FROM entries WHERE seq = 0",
    "DELETE FROM entries WHERE seq = 2",
    "DELETE FROM entries WHERE seq = 4",
    "DELETE FROM entries",
    "INSERT INTO entries SELECT run_id, 5, text, seal FROM entries WHERE seq = 4",
    "INSERT INTO entries SELECT run_id, -1, text, seal FROM entries WHERE seq = 0",
    "UPDATE runs SET entries = 4",
    "UPDATE runs SET entries = 6",
    "UPDATE runs SET entries = 4, head = (SELECT seal FROM entries WHERE seq = 3)",
    "UPDATE runs SET head = ''",
    "UPDATE runs SET status = 'completed'",
    "UPDATE runs SET reason = 'another'",
    "UPDATE runs SET owner = 'other'",
    "UPDATE runs SET owner = ''",
    "UPDATE runs SET lease = 0",
    "UPDATE runs SET lease = 'soon'",
    "UPDATE runs SET updated = 0",
    "UPDATE runs SET began = 0",
    "UPDATE runs SET thread_id = 't'",
    "UPDATE runs SET checked = ''",
    "UPDATE runs SET born = x'00'",
    "UPDATE runs SET run_id = 'other'",
    "DELETE FROM runs",
]


def chained() -> tuple[Stored, ...]:
    """Five entries that are what `reader.checked_entries` asks for."""
    chain, seal, found = Sha256Chain(), "", []
    for seq in range(5):
        kind = "started" if seq else "header"
        text = f'{{"body":{{"n":{seq}}},"kind":"{kind}","run":"r","seq":{seq},"time":{seq}.5}}'
        seal = chain.seal(seal, text)
        found.append(Stored(seq, text, seal))
    return tuple(found)


@pytest.mark.parametrize("edit", EDITED)
def test_an_edited_row_is_found(path: Path, store: SQLiteTrail, edit: str) -> None:
    """Entries or what is known of the run, changed, moved, added or taken out: reading it says TrailDamaged, never UnknownRun."""
    written = chained()
    store.append(batch(entries=written[:3])).result(PATIENCE)
    store.append(batch(entries=written[3:])).result(PATIENCE)
    assert len(checked_entries(store.read("r"), "r", Sha256Chain())) == 5
    sql(path, edit)
    with pytest.raises(TrailDamaged) as caught:
        checked_entries(store.read("r"), "r", Sha256Chain())
    assert caught.value.run_id == "r" or edit == "UPDATE runs SET run_id = 'other'"
    error = store.append(batch(entries=entries(0, 0))).exception(PATIENCE)
    assert isinstance(error, RunHeld | TrailError)


@pytest.mark.parametrize("edit", [edit for edit in EDITED if "runs" in edit])
def test_an_edited_row_of_a_run_is_never_built_upon(path: Path, store: SQLiteTrail, edit: str) -> None:
    """Whoever asks for the run, lists the runs or claims it is told, and the row stays as it was found."""
    store.append(batch(entries=chained())).result(PATIENCE)
    sql(path, edit)
    with closing(sqlite3.connect(path)) as link:
        before = link.execute("SELECT * FROM runs").fetchall()
        asks: list[Callable[[], object]] = [
            lambda: store.info("r"), lambda: store.claim("r", "other", 500.0, 101.0)
        ]  # fmt: skip
        for ask in asks:
            with pytest.raises(TrailDamaged):
                ask()
        assert "damaged" in {one.status for one in store.runs()}
        assert link.execute("SELECT * FROM runs").fetchall() == before


# ---------------------------------------------------------------- one commit for many


def test_one_that_breaks_the_commit_hurts_no_other(path: Path, store: SQLiteTrail) -> None:
    """Of many that are committed at once, the one whose entries are there without a run fails, and all others are written."""
    patient = SQLiteTrail(path)
    store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    sql(path, "INSERT INTO entries VALUES ('left', 1, 'x', 'y')")
    with closing(patient), closing(sqlite3.connect(path, isolation_level=None)) as link:
        link.execute("BEGIN IMMEDIATE")
        futures = {name: patient.append(batch(name, entries=entries(0, 2))) for name in ("a", "left", "b", "c")}
        link.execute("ROLLBACK")
        errors = {name: future.exception(PATIENCE) for name, future in futures.items()}
        assert isinstance(errors.pop("left"), TrailDamaged)
        assert errors == {"a": None, "b": None, "c": None}
        assert all(patient.read(name) == entries(0, 2) for name in errors)
        assert link.execute("SELECT seq FROM entries WHERE run_id = 'left'").fetchall() == [(1,)]


def test_what_is_asked_meanwhile_is_committed_at_once(path: Path, store: SQLiteTrail) -> None:
    """Sixteen runs that wait for the file share one transaction, so that they share one sync."""
    store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    with closing(SQLiteTrail(path)) as patient, closing(sqlite3.connect(path, isolation_level=None)) as link:
        patient.append(batch("first", entries=entries(0, 0))).result(PATIENCE)
        assert patient._writer is not None
        statements: list[str] = []
        patient._writer.link.set_trace_callback(statements.append)
        link.execute("BEGIN IMMEDIATE")
        futures = [patient.append(batch(f"run {number}", entries=entries(0, 1))) for number in range(17)]
        link.execute("ROLLBACK")
        assert [future.result(PATIENCE) for future in futures] == [None] * 17
        # The first may have been taken alone before the others were asked.
        assert statements.count("COMMIT") <= 2


def test_the_log_of_a_long_run_does_not_grow(path: Path, store: SQLiteTrail) -> None:
    """The write-ahead log begins anew every few hundred pages: each sync of a log that grows costs twice as much."""
    log, seen = path.with_name("runs.db-wal"), set()
    for seq in range(500):
        store.append(batch(entries=entries(seq, seq, word="x" * 3000)), here=True).result(0)
        seen.add(log.stat().st_size)
    assert max(seen) < 2**20
    assert len(store.read("r")) == 500


def test_ctrl_c_in_a_commit_leaves_the_store_usable(store: SQLiteTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that writes by itself may be interrupted: nothing of the append is there, and the next one works."""
    store.append(batch(entries=entries(0, 0)), here=True).result(0)

    def interrupted(link: sqlite3.Connection, _: object) -> None:
        link.execute("DELETE FROM entries")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fsm_agent.trail.sqlite_store.append_batch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(batch(entries=entries(1, 1)), here=True).result(0)
    store.append(batch(entries=entries(1, 1)), here=True).result(0)
    assert store.read("r") == entries(0, 1)


def test_a_child_of_fork_inherits_no_connection(path: Path, store: SQLiteTrail) -> None:
    """SQLite's locks are lost in a child, so the file is closed while a fork is made, and opened again afterwards."""
    store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    assert store.read("r") == entries(0, 0)
    store.before_fork()
    try:
        assert not path.with_name("runs.db-wal").exists()  # the last connection takes it along
    finally:
        store.after_fork(child=False)
    store.append(batch(entries=entries(1, 1))).result(PATIENCE)
    assert store.read("r") == entries(0, 1)


def test_a_file_that_another_holds_for_long_is_an_error(path: Path, store: SQLiteTrail) -> None:
    """After `patience` the append fails for everybody who waits, nothing is written, and it works again when the file is free."""
    store.append(batch(entries=entries(0, 0))).result(PATIENCE)
    with closing(sqlite3.connect(path, isolation_level=None)) as link:
        link.execute("BEGIN IMMEDIATE")
        futures = [store.append(batch(entries=entries(1, 1))) for _ in range(3)]
        for future in futures:
            with pytest.raises(TrailError, match=r"0\.05 s"):
                future.result(PATIENCE)
        link.execute("ROLLBACK")
    store.append(batch(entries=entries(1, 1))).result(PATIENCE)
    assert store.read("r") == entries(0, 1)


def test_a_run_with_what_cannot_be_stored_is_refused(store: SQLiteTrail) -> None:
    """Half a surrogate pair is no text, and NaN no time, that a file can hold: a named error, and the store goes on."""
    assert isinstance(store.append(batch("\ud800", entries=entries(0, 0))).exception(PATIENCE), TrailError)
    assert isinstance(store.append(batch(entries=(Stored(0, "\ud800", ""),))).exception(PATIENCE), TrailError)
    error = store.append(batch(entries=entries(0, 0), lease=float("nan"))).exception(PATIENCE)
    assert type(error) is TrailError
    assert store.runs() == ()
