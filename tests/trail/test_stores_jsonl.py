"""Trails as JSON Lines: what the files look like, torn ends and their repair, and locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.errors import TrailDamaged, TrailError, UnknownRun
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel
from fsm_agent.trail import JsonLinesTrail, Repaired, Stored, audit
from fsm_agent.trail.files import sync
from fsm_agent.trail.jsonl_files import file_name
from tests.trail.stores import batch, entries

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files are going to be."""
    return tmp_path / "runs"


@pytest.fixture
def store(folder: Path) -> Iterator[JsonLinesTrail]:
    """A store that does not wait long for others."""
    with closing(JsonLinesTrail(folder, patience=0.05)) as opened:
        yield opened


def write(store: JsonLinesTrail, first: int, last: int, **more: Any) -> None:
    """Append entries with these numbers."""
    store.append(batch(entries=entries(first, last), **more)).result(PATIENCE)


# ---------------------------------------------------------------- the files


def test_any_reader_of_json_finds_the_entries(folder: Path, store: JsonLinesTrail) -> None:
    """A line for each entry with its data and seal, and after each append a line with what is known of the run."""
    write(store, 0, 1)
    write(store, 2, 2, status="completed", lease=0.0)
    lines = [json.loads(line) for line in (folder / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(line["entry"], line["seal"]) for line in lines if "entry" in line]
    assert found == [({"x": seq}, f"seal x {seq}") for seq in range(3)]
    known = [(line["run"]["status"], line["run"]["entries"], line["run"]["owner"]) for line in lines if "run" in line]
    assert known == [("running", 2, "me"), ("completed", 3, "")]
    assert sorted(path.name for path in folder.iterdir()) == ["r.head", "r.jsonl"]


def test_the_text_of_an_entry_stands_there_as_it_was_sealed(folder: Path, store: JsonLinesTrail) -> None:
    """Byte for byte where it is a JSON object, as a string where it is not."""
    texts = ['{"b": 1,  "a":[1.0]}', "no JSON", '{"a":1}\n{"run":{}}']
    store.append(batch(entries=tuple(Stored(seq, text, "s") for seq, text in enumerate(texts)))).result(PATIENCE)
    lines = (folder / "r.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f'{{"entry":{texts[0]},"seal":"s"}}'
    assert [json.loads(line).get("text") for line in lines[1:3]] == texts[1:]


def test_large_values_are_files_of_their_own(folder: Path, store: JsonLinesTrail) -> None:
    """Named by their digest; one that was changed is TrailDamaged, one with another name is refused."""
    digest = hashlib.sha256(b"value").hexdigest()
    write(store, 0, 0, values={digest: b"value"})
    path = folder / "r.values" / digest
    assert path.read_bytes() == b"value"
    path.write_bytes(b"other")
    with pytest.raises(TrailDamaged):
        store.value("r", digest)
    error = store.append(batch(entries=entries(1, 1), values={"../../x": b"value"})).exception(PATIENCE)
    assert isinstance(error, TrailError)
    assert store.read("r") == entries(0, 0)
    assert sorted(path.name for path in folder.parent.rglob("*")) == sorted(
        ["runs", "r.head", "r.jsonl", "r.values", digest]
    )


@pytest.mark.parametrize("run_id", ["a", "0123456789abcdef", "my-run_1"])
def test_a_plain_id_is_the_name_of_the_file(run_id: str) -> None:
    """So that a person finds it."""
    assert file_name(run_id) == run_id


def test_other_ids_have_names_that_no_other_has() -> None:
    """Short, of harmless letters, different also where a file system takes upper for lower case."""
    ids = ["A", "a", "a b", "a-b", "../a", "..", "", "x" * 300, "x" * 301, "é", "a~b", "a.jsonl", "\ud800", "a\0b"]
    names = [file_name(run_id) for run_id in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) <= 80 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-~") for name in names)


# ---------------------------------------------------------------- torn ends

TORN = {
    "half an entry": b'{"entry":{"x":3},"se',
    "an entry whose append is not finished": b'{"entry":{"x":3},"seal":"seal x 3"}\n',
    "zeros": bytes(4096),
    "a line end": b"\n",
    "no UTF-8": b'{"entry":{"x":"\xff"},"seal":"s"}\n',
}


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_end_is_refused_until_it_is_repaired(folder: Path, store: JsonLinesTrail, torn: str) -> None:
    """Every use names the entry and the way out, and changes nothing; `repair` keeps the bytes aside and the run goes on."""
    write(store, 0, 2)
    path = folder / "r.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + TORN[torn])
    for ask in (
        lambda: store.read("r"),
        lambda: store.info("r"),
        lambda: store.claim("r", "me", 500.0, 50.0),
        lambda: write(store, 3, 3),
        lambda: write(store, 0, 0),
    ):
        with pytest.raises(TrailDamaged, match="repair") as caught:
            ask()
        assert (caught.value.run_id, caught.value.seq in (3, 4)) == ("r", True)
    assert [(one.run_id, one.status, "repair" in one.reason) for one in store.runs()] == [("r", "damaged", True)]
    assert path.read_bytes() == whole + TORN[torn]
    assert store.repair("r") == Repaired(entries=3, lost=0, aside=folder / "r.torn-1")
    assert (folder / "r.torn-1").read_bytes() == TORN[torn]
    assert path.read_bytes() == whole
    write(store, 3, 3)
    assert store.read("r") == entries(0, 3)


def test_repair_says_what_is_lost(folder: Path, store: JsonLinesTrail) -> None:
    """A file that was cut behind the line of an earlier append lacks entries that were acknowledged."""
    write(store, 0, 1)
    size = (folder / "r.jsonl").stat().st_size
    write(store, 2, 4)
    os.truncate(folder / "r.jsonl", size)
    with pytest.raises(TrailDamaged) as caught:
        store.read("r")
    assert caught.value.seq == 2
    assert store.repair("r") == Repaired(entries=2, lost=3, aside=None)
    assert store.read("r") == entries(0, 1)
    assert store.repair("r") == Repaired(entries=2, lost=0, aside=None)


EDITED = {
    "a status": lambda lines: [line.replace(b'"status":"failed"', b'"status":"paused"') for line in lines],
    "a status that is the newest": lambda lines: [
        line.replace(b'"reason":"newest"', b'"reason":"oldest"') for line in lines
    ],
    "an owner": lambda lines: [line.replace(b'"owner":"me"', b'"owner":"us"') for line in lines],
    "a line about the run taken out": lambda lines: [line for line in lines if b'"failed"' not in line],
    "a line about the run twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "two lines about the run": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "two entries": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "an entry taken out": lambda lines: [*lines[:4], *lines[5:]],
    "an append taken out": lambda lines: [*lines[:2], *lines[4:]],
    "a space": lambda lines: [lines[0].replace(b'":', b'": ', 1), *lines[1:]],
    "the line ends": lambda lines: [line + b"\r" for line in lines],
    "an empty line": lambda lines: [*lines[:2], b"", *lines[2:]],
    "the run of a line": lambda lines: [line.replace(b'"run_id":"r"', b'"run_id":"s"') for line in lines],
}


@pytest.mark.parametrize("edit", EDITED)
def test_an_edited_line_is_found(folder: Path, store: JsonLinesTrail, edit: str) -> None:
    """Also one that no seal covers: what was known of the run, in which order, and when."""
    write(store, 0, 0)
    store.append(batch(status="failed")).result(PATIENCE)
    store.append(batch(status="running")).result(PATIENCE)
    write(store, 1, 2, reason="newest")
    path = folder / "r.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1]
    changed = EDITED[edit](lines)
    assert changed != lines
    path.write_bytes(b"".join(line + b"\n" for line in changed))
    with closing(JsonLinesTrail(folder)) as other:
        for ask in (other.read, other.info, lambda run_id: other.claim(run_id, "me", 500.0, 50.0)):
            with pytest.raises(TrailDamaged):
                ask("r")


@pytest.mark.parametrize("edit", ["removed", "added"])
def test_an_audit_names_the_entry_that_a_byte_was_removed_from_or_added_to(folder: Path, edit: str) -> None:
    """The file has another size then, but nothing was taken out behind it: the first broken seal says where."""
    agent = Agent(ScriptedModel(["Hello."]), store=JsonLinesTrail(folder), logger=silent_logger())
    run_id = agent.invoke("Say hello.").run_id
    (file,) = folder.glob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    assert "Say hello." in lines[0]
    lines[0] = lines[0].replace("Say hello.", "Say helo." if edit == "removed" else "Say helllo.")
    file.write_text("".join(lines))
    found = audit(agent.journal, run_id)
    assert [one.seq for one in found.findings][:1] == [0]


def test_every_repair_keeps_what_it_took(folder: Path, store: JsonLinesTrail) -> None:
    """A second one does not overwrite what the first has set aside."""
    write(store, 0, 0)
    for number in (1, 2):
        with (folder / "r.jsonl").open("ab") as file:
            file.write(b"torn" * number)
        assert store.repair("r").aside == folder / f"r.torn-{number}"
    assert [(folder / f"r.torn-{number}").read_bytes() for number in (1, 2)] == [b"torn", b"torntorn"]


def test_only_the_end_is_repaired(folder: Path, store: JsonLinesTrail) -> None:
    """With whole appends behind the damage, or none before it, `repair` refuses and leaves the file as it is."""
    for seq in range(3):
        write(store, seq, seq)
    path = folder / "r.jsonl"
    whole = path.read_bytes()
    first, second = whole.index(b'{"run":'), whole.index(b'{"x":1}')
    in_first, in_second = (whole[:place] + b"x" + whole[place + 1 :] for place in (first, second))
    for damaged in (in_first, in_second, whole[:20], b""):
        path.write_bytes(damaged)
        with pytest.raises(TrailDamaged, match="copy"):
            store.repair("r")
        assert path.read_bytes() == damaged
    path.unlink()
    with pytest.raises(TrailDamaged):
        store.repair("r")
    with pytest.raises(UnknownRun):
        store.repair("another")


def test_a_note_that_is_behind_is_no_fault(folder: Path, store: JsonLinesTrail) -> None:
    """After a power cut the note beside the file may be older than the file, not newer."""
    write(store, 0, 0)
    head = (folder / "r.head").read_bytes()
    write(store, 1, 2)
    (folder / "r.head").write_bytes(head)
    assert store.read("r") == entries(0, 2)
    write(store, 3, 3)
    assert store.read("r") == entries(0, 3)


# ---------------------------------------------------------------- locks and disks


def test_a_file_that_another_has_locked_is_waited_for(folder: Path, store: JsonLinesTrail) -> None:
    """After `patience` the append fails by name, another run's in the same turn does not, and it works again when the lock is gone."""
    write(store, 0, 0)
    with (folder / "r.jsonl").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        futures = [store.append(batch(entries=entries(1, 1))), store.append(batch("free", entries=entries(0, 0)))]
        assert store.read("r") == entries(0, 0)
        assert isinstance(futures[0].exception(PATIENCE), TrailError)
        assert futures[1].result(PATIENCE) is None
    write(store, 1, 1)
    assert store.read("r") == entries(0, 1)


def test_a_sync_that_fails_leaves_nothing(store: JsonLinesTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may not be on disk is cut off again and not acknowledged."""
    write(store, 0, 0)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("fsm_agent.trail.jsonl_turn.sync", fail)
        error = store.append(batch(entries=entries(1, 1))).exception(PATIENCE)
    assert isinstance(error, TrailError)
    assert "the disk is gone" in str(error)
    assert store.read("r") == entries(0, 0)
    write(store, 1, 1)


def test_every_append_is_synced_before_it_is_acknowledged(
    store: JsonLinesTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync of the run's file for each append that waits, behind the write."""
    write(store, 0, 0)
    synced: list[bytes] = []

    def watched(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        synced.append(os.pread(descriptor, size, 0))
        sync(descriptor)

    monkeypatch.setattr("fsm_agent.trail.jsonl_turn.sync", watched)
    for seq in (1, 2):
        write(store, seq, seq)
        assert len(synced) == seq
        assert f"seal x {seq}".encode() in synced[-1]


def test_what_json_cannot_hold_is_refused(store: JsonLinesTrail) -> None:
    """NaN or half a surrogate pair: a named error, nothing is written, and the next append works."""
    write(store, 0, 0)
    for wrong in (
        batch(entries=entries(1, 1), lease=float("nan")),
        batch(entries=(Stored(1, '{"\ud800":1}', ""),), lease=1e9),
    ):
        assert isinstance(store.append(wrong).exception(PATIENCE), TrailError)
    write(store, 1, 1)
    assert store.read("r") == entries(0, 1)
