"""Conversations in SQLite: rows that are added, claims across processes, damage that is named."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from fsm_agent import SQLiteConversations
from fsm_agent.errors import ConversationDamaged, ConversationError, DefinitionError, RunBusy
from fsm_agent.history import block
from fsm_agent.memory import claims, sqlite_store
from tests.faults.kit import PATIENCE, in_thread
from tests.memory.kit import keep, kept, said, worked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database may be."""
    return tmp_path / "conversations.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteConversations]:
    """A store on `path`."""
    with SQLiteConversations(path) as opened:
        yield opened


def rows(path: Path, statement: str, *values: Any) -> list[Any]:
    """What another program sees, or does, in the file."""
    database = sqlite3.connect(path)
    try:
        with database:
            return database.execute(statement, values).fetchall()
    finally:
        database.close()


class Time:
    """The clock that leases go by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000.0
        monkeypatch.setattr(sqlite_store, "_now", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Time that stands still until a test moves it."""
    return Time(monkeypatch)


# ---------------------------------------------------------------- rows


def test_a_turn_adds_rows_and_rewrites_none(store: SQLiteConversations, path: Path) -> None:
    """The cost of a turn is its own blocks, however long the conversation is."""
    keep(store, said(0), run_id="run-0")
    before = rows(path, "SELECT rowid, body FROM conversation_blocks")
    keep(store, (*said(0), *worked(1)), run_id="run-1")
    after = rows(path, "SELECT rowid, body FROM conversation_blocks ORDER BY position")
    assert after[:2] == before
    assert [json.loads(body)["by"] for _, body in after] == ["run-0"] * 2 + ["run-1"] * 3


def test_the_order_is_that_of_insertion(store: SQLiteConversations, time: Time) -> None:
    """A clock that goes back reorders nothing."""
    history: tuple[Any, ...] = ()
    for number in range(4):
        time.now -= 3600
        history = (*history, *said(number))
        keep(store, history)
    assert kept(store) == history


def test_a_turn_is_written_whole_or_not_at_all(store: SQLiteConversations, path: Path) -> None:
    """A database that fails at the second row keeps the conversation as it was, says so, and the thread is free."""
    keep(store, said(0))
    rows(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON conversation_blocks WHEN NEW.position = 3 "
        "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
    )
    store.open("t", "run")
    with pytest.raises(ConversationError, match="disk is full"):
        store.close("t", "run", (*said(0), *said(1)))
    with SQLiteConversations(path) as other:
        assert kept(other) == said(0)


def test_a_turn_that_json_cannot_hold_leaves_the_rest(store: SQLiteConversations) -> None:
    """The error names what cannot be stored; the thread is free, with what it held before."""
    keep(store, said(0))
    store.open("t", "run")
    odd = block("task", HumanMessage("x", additional_kwargs={"k": object()}), turn=1)
    with pytest.raises(ConversationError, match="object"):
        store.close("t", "run", (*said(0), odd))
    assert kept(store) == said(0)


def test_a_run_keeps_its_thread_while_the_database_fails(store: SQLiteConversations, path: Path) -> None:
    """What cannot be read once more, as a run that waits is resumed, is no loss of the thread; once it can be, the run goes on with it."""
    keep(store, said(0))
    store.open("t", "waits")
    rows(path, "ALTER TABLE conversation_blocks RENAME TO elsewhere")
    with pytest.raises(ConversationError):
        store.open("t", "waits")
    rows(path, "ALTER TABLE elsewhere RENAME TO conversation_blocks")
    with pytest.raises(RunBusy):
        store.open("t", "other")
    assert store.open("t", "waits") == said(0)


def test_half_a_character_is_no_name(store: SQLiteConversations) -> None:
    """A thread id that UTF-8 cannot write is refused by name."""
    with pytest.raises(ConversationError, match="half a character"):
        store.open("\ud800", "run")


DAMAGE = {
    "no JSON": ("UPDATE conversation_blocks SET body = 'x' WHERE position = 1", 1),
    "cut": ("UPDATE conversation_blocks SET body = substr(body, 1, 40) WHERE position = 2", 2),
    "bytes": ("UPDATE conversation_blocks SET body = x'ff00' WHERE position = 0", 0),
    "no text": ("UPDATE conversation_blocks SET body = 7 WHERE position = 0", 0),
    "first gone": ("DELETE FROM conversation_blocks WHERE position = 0", 0),
    "middle gone": ("DELETE FROM conversation_blocks WHERE position = 1", 1),
    "last gone": ("DELETE FROM conversation_blocks WHERE position = 3", 3),
    "all gone": ("DELETE FROM conversation_blocks", 0),
    "one more": (
        "INSERT INTO conversation_blocks SELECT thread_id, 4, body FROM conversation_blocks WHERE position = 3",
        4,
    ),
    "head gone": ("DELETE FROM conversations", 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_and_never_taken_for_less(store: SQLiteConversations, path: Path, damage: str) -> None:
    """A row that was changed or is missing stops the thread, by place; the others go on, and `delete` is the way out."""
    statement, position = DAMAGE[damage]
    keep(store, (*said(0), *said(1)))
    rows(path, statement)
    keep(store, said(0), "other")
    with pytest.raises(ConversationDamaged, match=r"'t'") as caught:
        store.open("t", "run")
    assert caught.value.position == position
    assert rows(path, "SELECT * FROM conversation_claims") == []
    assert kept(store, "other") == said(0)
    store.delete("t")
    assert kept(store) == ()


# ---------------------------------------------------------------- the file


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _text(path: Path) -> Path:
    path.write_text("This is no database. " * 100, encoding="utf-8")
    return path


def _newer(path: Path) -> Path:
    SQLiteConversations(path).dispose()
    rows(path, "UPDATE conversation_schema SET version = 99")
    return path


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path / "missing" / "c.db", "unable to open"),
        (_folder, "unable to open"),
        (_text, "not a database"),
        (_newer, "form 99"),
    ],
    ids=["no folder", "a folder", "a text", "a newer form"],
)
def test_a_file_that_cannot_be_used_is_refused_at_once(path: Path, spoil: Callable[[Path], Path], words: str) -> None:
    """The definition is wrong, not the first run: the error names the file and what to look at."""
    with pytest.raises(DefinitionError, match=words) as caught:
        SQLiteConversations(spoil(path))
    assert path.name in str(caught.value) or "c.db" in str(caught.value)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_is_noticed(store: SQLiteConversations, path: Path, replaced: bool) -> None:
    """Nothing is kept where nobody finds it: whoever comes upon that first is told, and then the file that is there is used."""
    keep(store, said(0))
    path.rename(path.with_name("old.db"))
    if replaced:
        with SQLiteConversations(path) as other:
            keep(other, said(1))
    with pytest.raises(ConversationError, match="removed or replaced"):
        store.open("t", "run")
    assert kept(store) == (said(1) if replaced else ())
    keep(store, said(2))
    with SQLiteConversations(path) as again:
        assert kept(again) == said(2)


def test_a_program_that_goes_to_another_directory_keeps_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is that of the directory in which the store was made, also where the file is opened again."""
    (elsewhere := path.parent / "elsewhere").mkdir()
    monkeypatch.chdir(path.parent)
    with SQLiteConversations(path.name) as store:
        keep(store, said(0))
        monkeypatch.chdir(elsewhere)
        assert kept(store) == said(0)
        store.dispose()
        assert kept(store) == said(0)


@pytest.mark.parametrize("lease", [0, -1, float("inf"), float("nan"), True, "60"])
def test_a_wrong_lease_is_refused(path: Path, lease: Any) -> None:
    """A lease is a number of seconds above 0."""
    with pytest.raises(DefinitionError, match="lease"):
        SQLiteConversations(path, lease=lease)


def test_a_file_that_stays_locked_is_a_named_error(path: Path) -> None:
    """Another program's lock is waited for, but not for ever."""
    other = sqlite3.connect(path, isolation_level=None)
    with SQLiteConversations(path, wait=0.01) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConversationError, match="locked"):
            store.open("t", "run")
        other.execute("ROLLBACK")
        assert kept(store) == ()
    other.close()


def test_a_thread_is_taken_in_one_step(store: SQLiteConversations, path: Path) -> None:
    """Another program that writes in just this moment is waited for, and is no error."""
    other, waits = sqlite3.connect(path, isolation_level=None), threading.Event()
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO conversation_claims VALUES ('u', '{}', 0)")
    assert store._database is not None
    store._database.set_trace_callback(
        lambda told: waits.set() if told.startswith(("BEGIN IMMEDIATE", "INSERT")) else None
    )
    join = in_thread(lambda: store.open("t", "run"))
    assert waits.wait(PATIENCE)
    other.execute("COMMIT")
    other.close()
    assert join() == ()


def test_other_tables_in_the_file_are_left_alone(path: Path) -> None:
    """Conversations share a file with whatever else is in it."""
    rows(path, "CREATE TABLE mine (x)")
    with SQLiteConversations(path) as store:
        keep(store, said(0))
        rows(path, "INSERT INTO mine VALUES (1)")
    assert rows(path, "SELECT x FROM mine") == [(1,)]


def test_the_end_of_a_with_block_gives_every_thread_back(path: Path) -> None:
    """Nothing stays claimed, nothing open, and nothing of the unfinished turn is stored."""
    with SQLiteConversations(path) as store:
        keep(store, said(0))
        store.open("t", "run")
    assert not path.with_name(path.name + "-wal").exists()
    assert rows(path, "SELECT * FROM conversation_claims") == []
    store.close("t", "run", said(5))
    with SQLiteConversations(path) as store:
        assert kept(store) == said(0)


def test_a_forgotten_store_closes_its_file(path: Path) -> None:
    """A store that nobody refers to any more leaves no connection and no thread behind."""
    before = threading.enumerate()
    store = SQLiteConversations(path)
    keep(store, said(0))
    renewing = [one for one in threading.enumerate() if one not in before]
    assert len(renewing) == 1
    del store
    gc.collect()
    for one in renewing:
        one.join(PATIENCE)
    assert not [one for one in renewing if one.is_alive()]
    assert not path.with_name(path.name + "-wal").exists()


# ---------------------------------------------------------------- leases


def test_a_claim_that_is_renewed_holds(path: Path, time: Time) -> None:
    """However long a run takes, its thread is its own."""
    with SQLiteConversations(path, lease=60) as one, SQLiteConversations(path, lease=60) as other:
        one.open("t", "run-1")
        for _ in range(10):
            time.now += 50
            one.renew()
            with pytest.raises(RunBusy):
                other.open("t", "run-2")
        one.close("t", "run-1", said(0))
        assert kept(other) == said(0)


def test_claims_are_renewed_in_the_background(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the store's own asks for another lease, three times a lease, while a run has a thread."""
    renewed = threading.Event()
    monkeypatch.setattr(SQLiteConversations, "renew", lambda _: renewed.set())
    with SQLiteConversations(path, lease=0.03) as store:
        store.open("t", "run")
        assert renewed.wait(PATIENCE)


def test_too_many_threads_cost_no_conversation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be begun for the renewing, the turn is kept, its thread is free again, and the next turn begins one."""

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = threading.active_count()
    with SQLiteConversations(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", full)
            keep(store, said(0))
        assert threading.active_count() == before
        keep(store, said(1))
        assert threading.active_count() == before + 1
        assert kept(store) == said(1)


def test_a_lease_that_ran_out_may_be_taken_over(path: Path, time: Time) -> None:
    """A process that hangs loses its thread; what it says afterwards is refused by name and mixes with nothing."""
    with SQLiteConversations(path, lease=60) as one, SQLiteConversations(path, lease=60) as other:
        keep(one, said(0))
        one.open("t", "slow")
        time.now += 61
        assert other.open("t", "quick") == said(0)
        one.renew()  # too late: this claim is gone
        with pytest.raises(RunBusy, match=r"run slow lost thread 't'.*run quick has it now"):
            one.close("t", "slow", (*said(0), *said(1, "slow")))
        other.close("t", "quick", (*said(0), *said(1, "quick")))
        assert kept(one) == (*said(0), *said(1, "quick"))
        one.open("t", "slow")
        time.now += 61
        keep(other, said(0), run_id="quick")
        with pytest.raises(RunBusy, match="another run has had it since"):
            one.close("t", "slow", said(3))
        assert kept(other) == said(0)


def test_a_claim_that_could_not_be_given_back_hinders_its_own_store_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has the thread any more, though the file says so: the next run here takes it at once."""

    def locked(*_: object) -> None:
        raise ConversationError("locked")

    with SQLiteConversations(path) as store:
        store.open("t", "first")
        with monkeypatch.context() as patch:
            patch.setattr(store, "_release", locked)
            with pytest.raises(ConversationError, match="locked"):
                store.close("t", "first", None)
        assert store.open("t", "second") == ()


def test_a_late_turn_is_kept_when_nothing_has_changed(path: Path, time: Time) -> None:
    """A laptop that slept through its lease loses no turn, unless another one was kept meanwhile."""
    with SQLiteConversations(path, lease=60) as one, SQLiteConversations(path, lease=60) as other:
        keep(one, said(0))
        one.open("t", "slow")
        time.now += 61
        assert kept(other) == said(0)  # had it, and gave it back as it was
        one.close("t", "slow", (*said(0), *said(1)))
        assert kept(other) == (*said(0), *said(1))


def test_a_claim_of_another_machine_is_left_to_its_lease(
    path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process id means nothing elsewhere: whether it lives there is not guessed from what lives here."""
    with SQLiteConversations(path, lease=60) as store:
        with monkeypatch.context() as there:
            there.setattr(claims, "_host", lambda: "elsewhere/boot/pid")
            with SQLiteConversations(path, lease=60) as other:
                other.open("t", "far")
                other._held.clear()  # so that it is not given back at the end of the block
        with pytest.raises(RunBusy, match=r"run far \(process \d+ on elsewhere\)"):
            store.open("t", "near")
        time.now += 61
        assert store.open("t", "near") == ()


def test_a_process_id_that_was_used_again_is_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead process's claim is not kept alive by one that got its number."""
    with SQLiteConversations(path) as store:
        with monkeypatch.context() as before:
            before.setattr(claims, "_born", lambda _: "1")
            with SQLiteConversations(path) as other:
                other.open("t", "old")
                other._held.clear()
        assert store.open("t", "new") == ()


# ---------------------------------------------------------------- processes

HOLDS = """
import sys
from fsm_agent.memory import SQLiteConversations
store = SQLiteConversations(sys.argv[1])
store.open("t", "far")
print("has it", flush=True)
sys.stdin.read()
"""
TALKS = """
import sys
from fsm_agent.errors import RunBusy
from fsm_agent.memory import SQLiteConversations
from tests.memory.kit import said
path, name = sys.argv[1:]
store = SQLiteConversations(path)
for number in range(10):
    for thread in (name, "shared"):
        while True:
            try:
                history = store.open(thread, f"{name}-{number}")
                break
            except RunBusy:
                pass
        store.close(thread, f"{name}-{number}", (*history, *said(len(history) // 2, f"{name} {number}")))
"""
FORKS = """
import os, sys, warnings
from fsm_agent.errors import RunBusy
from fsm_agent.memory import SQLiteConversations
from tests.memory.kit import keep, kept, said
warnings.simplefilter("ignore")  # newer versions of Python warn of every fork
store = SQLiteConversations(sys.argv[1])
store.open("t", "parent")
child = os.fork()
if child == 0:
    store.close("t", "parent", said(9))  # it is the parent's to give back
    try:
        store.open("t", "child")
    except RunBusy as error:
        assert "run parent (process" in str(error), error
        keep(store, said(0), "u")
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
store.close("t", "parent", said(1))
assert (kept(store), kept(store, "u")) == (said(1), said(0))
store.dispose()
"""


FORKS_MIDWAY = """
import os, sys, threading, warnings
from fsm_agent.memory import SQLiteConversations
warnings.simplefilter("ignore")  # newer versions of Python warn of every fork
store = SQLiteConversations(sys.argv[1])
inside, leave, left = threading.Event(), threading.Event(), []
def change():
    with store._change():
        inside.set()
        leave.wait()
        left.append(True)
threading.Thread(target=change, daemon=True).start()
inside.wait()
os.register_at_fork(before=leave.set)  # called before the hooks that are there already
child = os.fork()
if child == 0:
    os._exit(0 if left and store.open("t", "child") == () else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert store.open("u", "parent") == ()
store.dispose()
"""


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python that runs `code`."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, text=True, **pipes) as running:
        try:
            yield running
        finally:
            running.kill()


def line(running: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert running.stdout is not None
    return running.stdout.readline().strip()


def test_a_thread_of_another_process_is_busy_until_that_dies(store: SQLiteConversations, path: Path) -> None:
    """Two processes never run one thread at once, and a killed one blocks nobody, not even for the rest of its lease."""
    with process(HOLDS, str(path)) as other:
        assert line(other) == "has it"
        with pytest.raises(RunBusy, match=rf"run far \(process {other.pid} on "):
            store.open("t", "near")
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it is over, and nobody has taken note yet
        assert store.open("t", "near") == ()


def test_processes_at_once_lose_no_turn(path: Path) -> None:
    """Three processes that start on a new file at once, each on a thread of its own and all on a shared one: every turn is kept."""
    with (
        process(TALKS, str(path), "a") as one,
        process(TALKS, str(path), "b") as two,
        process(TALKS, str(path), "c") as three,
    ):
        for running in (one, two, three):
            assert running.communicate(timeout=60)[1] == ""
            assert running.returncode == 0
    with SQLiteConversations(path) as store:
        for name in "abc":
            assert [one.messages[0].text for one in kept(store, name)[::2]] == [
                f"{name} {number}" for number in range(10)
            ]
        together = kept(store, "shared")
        assert [one.turn for one in together[::2]] == list(range(30))
        assert {one.messages[0].text for one in together} == {
            f"{name} {number}" for name in "abc" for number in range(10)
        }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_none_of_its_parents_threads(path: Path) -> None:
    """A store that was made before a fork works in parent and child, with one claim of one of them."""
    with process(FORKS, str(path)) as running:
        assert running.communicate(timeout=60)[1] == ""
        assert running.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_until_no_thread_is_inside_of_the_database(path: Path) -> None:
    """A child that was copied in the middle of a change would wait for ever for a lock of SQLite's own."""
    with process(FORKS_MIDWAY, str(path)) as running:
        assert running.communicate(timeout=60)[1] == ""
        assert running.returncode == 0
