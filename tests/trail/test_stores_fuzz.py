"""Damage of every kind to the files of the stores: what was written is read exactly, or an error says that it cannot be."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.errors import RunHeld, TrailDamaged, TrailError, UnknownRun
from fsm_agent.trail import JsonLinesTrail, RunInfo, Sha256Chain, Stored, TrailStore
from fsm_agent.trail.chain import GENESIS
from fsm_agent.trail.jsonl_lines import noted, scan
from fsm_agent.trail.store import DAMAGED
from tests.trail.stores import OPEN, batch, sealed

VALUE = bytes(range(256)) * 20
DIGEST = hashlib.sha256(VALUE).hexdigest()
PATIENCE = 60.0
# More for whoever looks for new faults: FUZZ=20000 HYPOTHESIS_PROFILE=dev pytest tests/trail/test_stores_fuzz.py
EXAMPLES = int(os.environ.get("FUZZ", "80"))
SETTINGS = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Written:
    """A folder with what a store of a kind has written, closed, and what that was."""

    kind: str
    folder: Path
    runs: Mapping[str, tuple[tuple[Stored, ...], RunInfo]]

    def files(self) -> list[Path]:
        """The files, those with values left out."""
        return sorted(path for path in self.folder.iterdir() if path.is_file())

    def place(self, folder: Path) -> str:
        """What the store of this kind is opened with."""
        return str(folder / "runs.db" if self.kind == "sqlite" else folder)


def write(kind: str, folder: Path) -> Written:
    """Three runs in turns, each in several appends, one with a value, one given back."""
    written = Written(kind, folder, {})
    with closing(OPEN[kind](written.place(folder))) as store:
        trails = {"one": sealed(12), "two": sealed(5, "long text " * 40), "../three": sealed(3, "z")}
        for first in range(0, 12, 4):
            for run_id, trail in trails.items():
                values = {DIGEST: VALUE} if run_id == "two" else {}
                store.append(batch(run_id, entries=trail[first : first + 4], values=values, thread_id="t")).result(
                    PATIENCE
                )
        store.append(batch("two", status="suspended", reason="asked", lease=0.0)).result(PATIENCE)
        runs = {run_id: (trail, store.info(run_id)) for run_id, trail in trails.items()}
    return Written(kind, folder, runs)


@pytest.fixture(scope="module", params=["sqlite", "jsonl"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One folder for each kind, never changed."""
    return write(request.param, tmp_path_factory.mktemp(request.param))


@st.composite
def damage(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with bytes flipped, overwritten, swapped, taken out, put in, cut off or added."""
    kind = draw(st.sampled_from("flip flip overwrite swap remove insert cut append zero double".split()))
    # Most of an SQLite file is empty: half of the places are where something stands.
    full = [place for place, byte in enumerate(data) if byte] or [0]
    place = draw(st.sampled_from(full) | st.integers(0, len(data) - 1))
    length = draw(st.integers(1, 64) | st.sampled_from([512, 4096]))
    some = data[place : place + length]
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ (1 << draw(st.integers(0, 7)))]) + data[place + 1 :]
    if kind == "overwrite":
        more = draw(st.binary(min_size=1, max_size=8))
        return data[:place] + more + data[place + len(more) :]
    if kind == "swap":
        other = draw(st.sampled_from(full))
        low, high = sorted((place, other))
        step = min(length, high - low) or 1
        return (
            data[:low]
            + data[high : high + step]
            + data[low + step : high]
            + data[low : low + step]
            + data[high + step :]
        )
    if kind == "append":
        return data + draw(st.binary(min_size=1, max_size=64) | st.just(some))
    changed = {
        "remove": data[:place] + data[place + length :],
        "insert": data[:place] + some[::-1] + data[place:],
        "cut": data[:place],
        "zero": data[:place] + bytes(len(some)) + data[place + length :],
        "double": data[:place] + some + data[place:],
    }
    return changed[kind]


def sound(trail: tuple[Stored, ...]) -> bool:
    """Whether every seal holds."""
    chain, before = Sha256Chain(), GENESIS
    for entry in trail:
        if not chain.holds(before, entry.text, entry.seal):
            return False
        before = entry.seal
    return True


def look(store: TrailStore, written: Written) -> None:
    """Each run is read as it was written or refused by name; and none is begun anew."""
    for run_id, (trail, info) in written.runs.items():
        try:
            found = tuple(store.read(run_id))
        except TrailError:
            pass
        else:
            assert found == trail or not sound(found)
        try:
            assert store.info(run_id) == info
        except TrailError:
            pass
        error = store.append(batch(run_id, entries=trail[:1])).exception(PATIENCE)
        assert isinstance(error, RunHeld | TrailError)
    try:
        assert store.value("two", DIGEST) == VALUE
    except TrailError:
        pass
    try:
        listed = {one.run_id: one for one in store.runs() if one.status != DAMAGED}
    except TrailError:
        pass
    else:
        assert listed.items() <= {run_id: info for run_id, (_, info) in written.runs.items()}.items()


def test_what_is_not_damaged_is_read(written: Written) -> None:
    """The check of these tests finds everything as it was written where nothing is wrong."""
    with closing(OPEN[written.kind](written.place(written.folder))) as store:
        for run_id, (trail, info) in written.runs.items():
            assert store.read(run_id) == trail
            assert sound(trail)
            assert store.info(run_id) == info
        assert store.value("two", DIGEST) == VALUE


@SETTINGS
@given(data=st.data())
def test_damage_is_never_read_as_something_else(written: Written, data: st.DataObject) -> None:
    """Any change of the bytes of any file: exact entries or a named error, and the damaged file is left as it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        shutil.copytree(written.folder, folder)
        path = folder / data.draw(st.sampled_from(written.files())).name
        damaged = data.draw(damage(path.read_bytes()))
        path.write_bytes(damaged)
        with closing(OPEN[written.kind](written.place(folder))) as store:
            look(store, written)
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("end", [".jsonl", ".head"])
def test_a_file_of_json_lines_that_is_gone_is_missed(tmp_path: Path, end: str) -> None:
    """Neither of the two files of a run can be taken away unnoticed."""
    written = write("jsonl", tmp_path)
    next(path for path in written.files() if path.name == f"one{end}").unlink()
    with closing(JsonLinesTrail(tmp_path)) as store:
        for ask in (store.read, store.info, lambda run_id: store.claim(run_id, "other", 500.0, 101.0)):
            with pytest.raises(TrailDamaged):
                ask("one")
        assert {one.run_id for one in store.runs() if one.status == DAMAGED} == {"one"}
        assert isinstance(store.append(batch("one", entries=sealed(1))).exception(PATIENCE), TrailError)
        assert store.read("two") == written.runs["two"][0]


def test_json_lines_are_found_cut_at_every_byte(tmp_path: Path) -> None:
    """At no length is the shorter file taken for the whole one, and repair leaves a prefix that was once acknowledged."""
    written = write("jsonl", tmp_path / "whole")
    whole = (tmp_path / "whole" / "one.jsonl").read_bytes()
    head = noted((tmp_path / "whole" / "one.head").read_bytes())
    assert head is not None
    for size in range(len(whole)):
        kept = scan(whole[:size], "one")
        assert kept.size <= size
        assert (head.size, head.check) not in kept.ends
        assert kept.entries == written.runs["one"][0][: len(kept.entries)]
        assert len(kept.entries) % 4 == 0


@SETTINGS
@given(data=st.binary(max_size=200))
def test_no_bytes_make_the_reader_of_json_lines_raise(data: bytes) -> None:
    """What is no trail has a fault and no entries, whatever it is."""
    kept = scan(data, "r")
    assert kept.fault
    assert not kept.entries
    assert noted(data) is None


def test_a_folder_of_another_kind_is_refused_by_name(written: Written, tmp_path: Path) -> None:
    """A JSON Lines file for SQLite, or an SQLite file among JSON Lines, is an error that names it."""
    other = "jsonl" if written.kind == "sqlite" else "sqlite"
    if other == "sqlite":
        shutil.copy(written.folder / "one.jsonl", tmp_path / "runs.db")
        place = str(tmp_path / "runs.db")
    else:
        shutil.copy(written.folder / "runs.db", tmp_path / "one.jsonl")
        place = str(tmp_path)
    with closing(OPEN[other](place)) as store:
        with pytest.raises(TrailError) as caught:
            store.read("one")
        assert not isinstance(caught.value, UnknownRun)
        if other == "sqlite":
            with pytest.raises(TrailError):
                store.runs()
        else:
            assert [(one.run_id, one.status) for one in store.runs()] == [("one", DAMAGED)]
