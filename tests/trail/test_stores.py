"""The contract of every store of trails."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.alphabet import Status
from fsm_agent.errors import RunHeld, TrailDamaged, TrailError, UnknownRun
from fsm_agent.trail import RunInfo, Stored, TrailStore
from fsm_agent.trail.store import new_owner
from tests.trail.conftest import Shelf
from tests.trail.stores import OPEN, batch, entries

VALUE = b"value"
DIGEST = hashlib.sha256(VALUE).hexdigest()
PATIENCE = 60.0


def durable(test: Any) -> Any:
    """Leave out the store that is gone with its process."""
    test.kinds = ("jsonl", "sqlite", "postgres")
    return test


def refused(store: TrailStore, *args: Any, **kwargs: Any) -> BaseException:
    """What an append fails with."""
    error = store.append(batch(*args, **kwargs)).exception(PATIENCE)
    assert error is not None
    return error


def begun(store: TrailStore, run_id: str = "r", owner: str = "me", count: int = 3, **more: Any) -> tuple[Stored, ...]:
    """A run with some entries."""
    written = entries(0, count - 1)
    store.append(batch(run_id, owner, entries=written, **more)).result(PATIENCE)
    return written


# ---------------------------------------------------------------- what was written is read


def test_it_is_a_store(trail_store: TrailStore) -> None:
    """It has what the protocol asks for, and is empty at first."""
    assert isinstance(trail_store, TrailStore)
    assert trail_store.runs() == ()


def test_entries_are_read_as_they_were_written(trail_store: TrailStore) -> None:
    """Texts and seals come back exactly and in order, whatever is in them, over several appends."""
    texts = [
        '{"a":1}',
        "",
        "no JSON",
        '{"a":"é\u2028\u0085\U0001f600"}',
        '{"a":1',
        '{"a":1}\n',
        '{"text":"\\"seal\\":"}',
        "[1]",
    ]
    written = tuple(Stored(seq, text, f'"{seq},"seal":"') for seq, text in enumerate(texts))
    for first in range(0, len(written), 3):
        trail_store.append(batch(entries=written[first : first + 3])).result(PATIENCE)
    assert trail_store.read("r") == written


def test_info_tells_the_newest_state(trail_store: TrailStore) -> None:
    """Status, reason, times, thread, number of entries, head, owner and lease are those of the last append."""
    begun(trail_store, thread_id="t", time=40.0)
    last = batch(entries=entries(3, 4), status=Status.SUSPENDED, reason="asked", lease=70.0, thread_id="t")
    trail_store.append(last).result(PATIENCE)
    expected = RunInfo(
        run_id="r", status="suspended", reason="asked", thread_id="t", began=40.0, updated=50.0,
        entries=5, head="seal x 4", owner="me", lease=70.0,
    )  # fmt: skip
    assert trail_store.info("r") == expected
    assert trail_store.runs() == (expected,)


def test_a_batch_without_entries_changes_status_and_lease(trail_store: TrailStore) -> None:
    """Entries and head stay; status, reason, lease and time are the new ones."""
    written = begun(trail_store)
    before = trail_store.info("r")
    trail_store.append(batch(status="failed", reason="why", lease=300.0, time=60.0)).result(PATIENCE)
    assert trail_store.info("r") == replace(before, status="failed", reason="why", lease=300.0, updated=60.0)
    assert trail_store.read("r") == written


def test_runs_are_listed_newest_first(trail_store: TrailStore) -> None:
    """By when they began, not by when they were written to."""
    for number, run_id in enumerate("bac"):
        begun(trail_store, run_id, time=float(number))
    trail_store.append(batch("b", time=99.0)).result(PATIENCE)
    assert [info.run_id for info in trail_store.runs()] == ["c", "a", "b"]


HOSTILE = (
    "../x",
    "..",
    "a/b",
    "/x",
    "",
    " ",
    "A",
    "a",
    "a.jsonl",
    "é",
    "e\u0301",
    "x" * 500,
    "a\nb",
    "-r",
    "con",
    "'; --",
    "~",
    "%00",
)


def test_any_text_is_the_id_of_a_run(shelf: Shelf) -> None:
    """No two ids share a run, however alike or hostile they are, and nothing is written outside the place of the store."""
    for run_id in HOSTILE:
        begun(shelf.store, run_id, owner=f"owner of {run_id}", values={DIGEST: VALUE})
    assert {info.run_id: info.owner for info in shelf.store.runs()} == {
        run_id: f"owner of {run_id}" for run_id in HOSTILE
    }
    assert all(shelf.store.value(run_id, DIGEST) == VALUE for run_id in HOSTILE)
    if shelf.kind == "jsonl":
        names = {path.name for path in shelf.store.directory.parent.iterdir()}  # type: ignore[attr-defined]
        assert names == {"runs"}


def test_values_are_kept_by_their_digest(trail_store: TrailStore) -> None:
    """A value comes back as it was; one that is not there, or has no digest for a name, is TrailDamaged."""
    begun(trail_store, values={DIGEST: VALUE})
    trail_store.append(batch(entries=entries(3, 3), values={DIGEST: VALUE})).result(PATIENCE)
    assert trail_store.value("r", DIGEST) == VALUE
    for digest in (hashlib.sha256(b"other").hexdigest(), "../../etc/passwd", ""):
        with pytest.raises(TrailDamaged):
            trail_store.value("r", digest)


def test_a_run_that_nobody_began_is_unknown(trail_store: TrailStore) -> None:
    """Reading, asking, claiming and going on with it all say so, and none of it begins the run."""
    begun(trail_store, "other")
    for ask in (trail_store.read, trail_store.info, lambda run_id: trail_store.claim(run_id, "me", 1.0, 0.0)):
        with pytest.raises(UnknownRun, match="'r'"):
            ask("r")
    assert isinstance(refused(trail_store, entries=entries(3, 3)), UnknownRun)
    assert isinstance(refused(trail_store), UnknownRun)
    assert [info.run_id for info in trail_store.runs()] == ["other"]


# ---------------------------------------------------------------- fences


@pytest.mark.parametrize("first", [0, 1, 2])
def test_an_entry_is_never_written_twice(trail_store: TrailStore, first: int) -> None:
    """A second writer with numbers that are there is refused, even under the owner's name, and nothing changes."""
    written = begun(trail_store)
    before = trail_store.info("r")
    error = refused(trail_store, entries=entries(first, 3, "other"), status="failed")
    assert isinstance(error, RunHeld)
    assert (trail_store.read("r"), trail_store.info("r")) == (written, before)


def test_numbers_must_follow_each_other(trail_store: TrailStore) -> None:
    """A gap after the newest entry or within a batch is refused whole, and the run goes on as it was."""
    written = begun(trail_store)
    for wrong in (
        entries(4, 4),
        (*entries(3, 3), *entries(5, 5)),
        entries(3, 4)[::-1],
        (*entries(3, 3), *entries(3, 3)),
    ):
        assert isinstance(refused(trail_store, entries=wrong), TrailError)
    trail_store.append(batch(entries=entries(3, 3))).result(PATIENCE)
    assert trail_store.read("r") == (*written, *entries(3, 3))


def test_a_writer_that_lost_the_run_is_refused(trail_store: TrailStore) -> None:
    """After another has claimed it, the one before writes nothing more, neither entries nor status."""
    written = begun(trail_store)
    trail_store.claim("r", "other", 500.0, 101.0)
    for more in ({"entries": entries(3, 3)}, {"status": "failed"}, {"lease": 0.0}):
        error = refused(trail_store, **more)
        assert isinstance(error, RunHeld)
        assert (error.owner, error.until) == ("other", 500.0)
    assert trail_store.read("r") == written
    trail_store.append(batch(owner="other", entries=entries(3, 3))).result(PATIENCE)
    assert len(trail_store.read("r")) == 4


def test_a_run_that_was_given_back_needs_a_claim(trail_store: TrailStore) -> None:
    """A lease of 0 frees the run: its writer is refused from then on, and anybody may claim it at once."""
    begun(trail_store)
    trail_store.append(batch(status=Status.SUSPENDED, lease=0.0)).result(PATIENCE)
    assert (trail_store.info("r").owner, trail_store.info("r").lease) == ("", 0.0)
    for owner in ("me", "other"):
        assert isinstance(refused(trail_store, owner=owner, entries=entries(3, 3)), RunHeld)
    assert trail_store.claim("r", "other", 60.0, 50.0).owner == "other"


def test_nobody_writes_without_a_name(trail_store: TrailStore) -> None:
    """A batch or a claim with an empty owner is refused, also where nobody holds the run."""
    begun(trail_store, lease=0.0)
    assert isinstance(refused(trail_store, owner="", entries=entries(3, 3)), TrailError)
    with pytest.raises(TrailError):
        trail_store.claim("r", "", 60.0, 50.0)
    assert trail_store.info("r").entries == 3


def test_a_claim_says_who_has_the_run(trail_store: TrailStore) -> None:
    """While the lease runs, up to its last moment, another is refused with the owner and the end of the lease."""
    begun(trail_store)
    before = trail_store.info("r")
    for time in (50.0, 100.0):
        with pytest.raises(RunHeld) as caught:
            trail_store.claim("r", "other", 500.0, time)
        assert (caught.value.run_id, caught.value.owner, caught.value.until) == ("r", "me", 100.0)
    assert trail_store.info("r") == before


def test_a_lease_that_ran_out_frees_the_run(trail_store: TrailStore) -> None:
    """Another gets it, with everything but owner and lease as it was; the owner itself may always claim again."""
    begun(trail_store)
    before = trail_store.info("r")
    assert trail_store.claim("r", "me", 120.0, 50.0) == replace(before, lease=120.0)
    assert trail_store.claim("r", "other", 500.0, 120.5) == replace(before, owner="other", lease=500.0)
    assert trail_store.info("r") == replace(before, owner="other", lease=500.0)


def test_a_lease_may_be_endless(shelf: Shelf) -> None:
    """As it is while somebody is asked in place: no time frees the run, its owner does."""
    begun(shelf.store, owner=new_owner(), lease=float("inf"))
    store = shelf.store if shelf.kind == "memory" else shelf.reopen()
    info = store.info("r")
    assert info.lease == float("inf")
    with pytest.raises(RunHeld):
        store.claim("r", "other", 1.0, 4e9)
    store.append(batch(owner=info.owner, lease=0.0)).result(PATIENCE)
    assert store.claim("r", "other", 60.0, 50.0).owner == "other"


def test_a_process_that_is_gone_frees_its_runs(shelf: Shelf) -> None:
    """A run whose owner was a process of this machine is free as soon as that has ended; one of another machine is not."""
    with shelf.elsewhere("owner") as child:
        gone = child.communicate(timeout=PATIENCE)[0].strip()
    begun(shelf.store, "gone", owner=gone)
    begun(shelf.store, "here", owner=new_owner())
    begun(shelf.store, "elsewhere", owner=f"another-host:{gone.split(':')[1]}:x")
    assert shelf.store.claim("gone", "other", 500.0, 50.0).owner == "other"
    for held in ("here", "elsewhere"):
        with pytest.raises(RunHeld):
            shelf.store.claim(held, "other", 500.0, 50.0)


def test_of_many_threads_that_claim_a_run_one_gets_it(shelf: Shelf) -> None:
    """Through one store and through several of the same place."""
    begun(shelf.store, lease=0.0)
    stores = [shelf.store] if shelf.kind == "memory" else [shelf.store, shelf.open()]
    barrier = threading.Barrier(8)

    def claim(number: int) -> str | None:
        barrier.wait()
        try:
            return stores[number % len(stores)].claim("r", f"owner {number}", 200.0, 50.0).owner
        except RunHeld as error:
            return None if error.owner.startswith("owner ") else "nobody is said to have it"

    with ThreadPoolExecutor(8) as pool:
        got = [owner for owner in pool.map(claim, range(8)) if owner]
    assert len(got) == 1
    assert shelf.store.info("r").owner == got[0]


@durable
def test_of_two_processes_that_claim_a_run_one_gets_it(shelf: Shelf) -> None:
    """The other is told who has it."""
    begun(shelf.store, lease=0.0)
    children = [shelf.elsewhere("claim") for _ in range(2)]
    said = []
    for child in children:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")  # type: ignore[union-attr]  # it was asked for above
        child.stdin.flush()  # type: ignore[union-attr]  # as above
    said = sorted(child.stdout.readline().split() for child in children)  # type: ignore[union-attr]  # as above
    for child in children:
        child.communicate("end\n", timeout=PATIENCE)
    (got, owner), (held, told) = said
    assert (got, held) == ("got", "held")
    assert told == owner == shelf.store.info("r").owner


# ---------------------------------------------------------------- many at once


def test_appends_are_written_in_the_order_they_were_asked(trail_store: TrailStore) -> None:
    """Without waiting in between; one that is refused in the middle hurts no other, of its run or of another."""
    asked = [trail_store.append(batch(run_id, entries=entries(0, 0))) for run_id in "abc"]
    wrong = []
    for number in range(1, 12):
        asked += [trail_store.append(batch(run_id, entries=entries(number, number))) for run_id in "abc"]
        wrong += [trail_store.append(batch("a", "other", entries=entries(number + 1, number + 1)))]
        wrong += [trail_store.append(batch("b", entries=entries(0, 0, "other")))]
    assert [future.result(PATIENCE) for future in asked] == [None] * 36
    assert all(isinstance(future.exception(PATIENCE), RunHeld) for future in wrong)
    assert [trail_store.read(run_id) for run_id in "abc"] == [entries(0, 11)] * 3


def test_an_append_cannot_be_taken_back(trail_store: TrailStore) -> None:
    """Cancelling its future does not leave a hole in the trail."""
    futures = [trail_store.append(batch(entries=entries(number, number))) for number in range(10)]
    assert [future.cancel() for future in futures] == [False] * 10
    assert [future.result(PATIENCE) for future in futures] == [None] * 10


@durable
def test_a_caller_that_would_wait_writes_by_itself(shelf: Shelf) -> None:
    """With `here` the future is done at once and no thread is begun; behind appends that wait it keeps the order."""
    if shelf.kind == "postgres":
        pytest.skip("it has one thread for each connection")
    threads = threading.active_count()
    for seq in range(3):
        assert shelf.store.append(batch(entries=entries(seq, seq)), here=True).done()
    assert isinstance(shelf.store.append(batch(entries=entries(0, 0)), here=True).exception(0), RunHeld)
    assert threading.active_count() == threads
    futures = [shelf.store.append(batch(entries=entries(seq, seq)), here=seq % 4 == 3) for seq in range(3, 40)]
    assert [future.result(PATIENCE) for future in futures] == [None] * 37
    assert shelf.reopen().read("r") == entries(0, 39)


def test_sixteen_runs_from_threads(trail_store: TrailStore) -> None:
    """Each run has its own entries, whole and in order."""

    def run(number: int) -> None:
        for seq in range(12):
            trail_store.append(batch(f"run {number}", entries=entries(seq, seq, f"w{number}"))).result(PATIENCE)
            assert len(trail_store.read(f"run {number}")) == seq + 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, range(16)))
    assert [trail_store.read(f"run {number}") for number in range(16)] == [
        entries(0, 11, f"w{number}") for number in range(16)
    ]


async def test_sixteen_runs_from_asyncio(trail_store: TrailStore) -> None:
    """The futures can be awaited, and a task that is cancelled while it waits harms nothing."""

    async def run(number: int) -> None:
        for seq in range(12):
            await asyncio.wrap_future(trail_store.append(batch(f"run {number}", entries=entries(seq, seq))))

    tasks = [asyncio.create_task(run(number)) for number in range(17)]
    await asyncio.sleep(0)
    tasks.pop().cancel()
    await asyncio.gather(*tasks)
    assert all(trail_store.read(f"run {number}") == entries(0, 11) for number in range(16))
    begun(trail_store, "after")


@durable
def test_runs_at_rest_hold_no_thread(shelf: Shelf) -> None:
    """However many are suspended, a store has one thread, and no file open for each."""
    many = 100 if shelf.kind == "jsonl" else 1000  # a file for each, which takes its time
    descriptors = Path("/dev/fd")
    threads, files = threading.active_count(), len(list(descriptors.iterdir())) if descriptors.exists() else 0
    futures = [
        shelf.store.append(batch(f"run {number}", entries=entries(0, 0), status=Status.SUSPENDED, lease=0.0))
        for number in range(many)
    ]
    assert all(future.result(PATIENCE) is None for future in futures)
    assert threading.active_count() <= threads + 1
    if descriptors.exists():
        assert len(list(descriptors.iterdir())) <= files + 8
    assert len(shelf.reopen().runs()) == many
    assert {info.status for info in shelf.store.runs()} == {"suspended"}


@durable
def test_a_store_that_nobody_has_any_more_holds_neither_thread_nor_file(shelf: Shelf) -> None:
    """A service that makes an agent for each request drops its stores unclosed: what they were asked is written, and nothing stays."""
    descriptors = Path("/dev/fd")
    files = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    threads = set(threading.enumerate())
    for number in range(5):
        dropped = OPEN[shelf.kind](shelf.place)
        dropped.append(batch(f"run {number}", entries=entries(0, 2)))
        del dropped
    for thread in set(threading.enumerate()) - threads:
        for _ in range(500):
            if thread.is_alive():
                gc.collect()
                thread.join(0.01)
        assert not thread.is_alive()
    if descriptors.exists():
        assert len(list(descriptors.iterdir())) <= files
    assert {len(shelf.store.read(f"run {number}")) for number in range(5)} == {3}


# ---------------------------------------------------------------- after a restart


@durable
def test_everything_is_there_after_a_restart(shelf: Shelf) -> None:
    """Entries, values, status and who holds the run; and it can be gone on with."""
    written = begun(shelf.store, values={DIGEST: VALUE}, reason="because", thread_id="t")
    before = shelf.store.info("r")
    store = shelf.reopen()
    assert (store.read("r"), store.info("r"), store.value("r", DIGEST)) == (written, before, VALUE)
    store.append(batch(entries=entries(3, 3))).result(PATIENCE)
    assert shelf.reopen().read("r") == (*written, *entries(3, 3))


@durable
def test_two_stores_of_one_place_see_each_other(shelf: Shelf) -> None:
    """Neither goes by what it remembers: in turns they go on with a run, claim it and are refused."""
    other = shelf.open()
    for seq in range(6):
        (shelf.store, other)[seq % 2].append(batch(entries=entries(seq, seq))).result(PATIENCE)
    assert shelf.store.read("r") == other.read("r") == entries(0, 5)
    other.claim("r", "other", 500.0, 101.0)
    assert isinstance(refused(shelf.store, entries=entries(6, 6)), RunHeld)
    other.append(batch(owner="other", entries=entries(6, 6))).result(PATIENCE)
    assert shelf.store.info("r") == other.info("r")


@durable
def test_another_process_sees_what_was_acknowledged(shelf: Shelf) -> None:
    """While this one still has the store open."""
    written = begun(shelf.store, values={DIGEST: VALUE}, status=Status.SUSPENDED)
    with shelf.elsewhere("read") as child:
        out = child.communicate(timeout=PATIENCE)[0]
    assert json.loads(out) == [[one.text for one in written], "suspended", "value"]


@durable
def test_a_process_that_is_killed_loses_nothing_that_was_acknowledged(shelf: Shelf) -> None:
    """What it did not have acknowledged is there whole or not at all, and the run can be taken over."""
    with shelf.elsewhere("write") as child:
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(4)][-1]
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait(PATIENCE)
    found = shelf.store.read("r")
    assert len(found) in (acknowledged + 1, acknowledged + 4)
    assert found == entries(0, len(found) - 1)
    shelf.store.claim("r", "other", 500.0, 101.0)
    shelf.store.append(batch(owner="other", entries=entries(len(found), len(found)))).result(PATIENCE)


@durable
def test_a_full_disk_fails_by_name_and_leaves_nothing_half(shelf: Shelf) -> None:
    """What was acknowledged is there, what was refused is not, and once there is room the run goes on."""
    if shelf.kind == "postgres":
        pytest.skip("the server writes its files")
    with shelf.elsewhere("fill") as child:
        told = child.communicate(timeout=PATIENCE)[0].split()
    assert told == [told[0], "TrailError", told[0]]
    assert len(shelf.store.read("r")) == int(told[0]) > 5
    seq = int(told[0])
    shelf.store.append(batch(entries=(Stored(seq, "x" * 1000, "s"),))).result(PATIENCE)


@durable
def test_closing_finishes_what_was_asked(shelf: Shelf) -> None:
    """Every append before `close` is written; one after it fails by name, and closing twice is no fault."""
    futures = [shelf.store.append(batch(entries=entries(number, number))) for number in range(20)]
    shelf.store.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert isinstance(refused(shelf.store, entries=entries(20, 20)), TrailError)
    with pytest.raises(TrailError, match="closed"):
        shelf.store.read("r")
    shelf.store.close()
    assert shelf.reopen().read("r") == entries(0, 19)


@durable
def test_a_child_of_fork_goes_on(shelf: Shelf) -> None:
    """It can read and write, and so can its parent, while appends are under way."""
    begun(shelf.store)
    pending = [shelf.store.append(batch("other", entries=entries(number, number))) for number in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; that is what is tested
        child = os.fork()
    if not child:
        code = 1
        try:
            shelf.store.append(batch(entries=entries(3, 3))).result(PATIENCE)
            code = 0 if len(shelf.store.read("r")) == 4 else 2
            shelf.store.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [future.result(PATIENCE) for future in pending] == [None] * 30
    shelf.store.append(batch(entries=entries(4, 4))).result(PATIENCE)
    assert (shelf.store.read("r"), shelf.store.read("other")) == (entries(0, 4), entries(0, 29))
