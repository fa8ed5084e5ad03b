"""The stores that every test of the contract is held against."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsm_agent.trail import TrailStore
from tests.trail.stores import OPEN, ROOT


class Shelf:
    """A store, where it is, and how it is opened again."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.place = place
        self.store: TrailStore = OPEN[kind](place)
        self._opened = [self.store]

    def open(self) -> TrailStore:
        """Another store of the same place."""
        self._opened.append(OPEN[self.kind](self.place))
        return self._opened[-1]

    def reopen(self) -> TrailStore:
        """The store after a restart."""
        self.store.close()
        self.store = self.open()
        return self.store

    def elsewhere(self, action: str, run_id: str = "r") -> subprocess.Popen[str]:
        """Another process with a store of the same place; see tests/trail/stores.py."""
        command = [sys.executable, "-m", "tests.trail.stores", action, self.kind, self.place, run_id]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """Close every store."""
        for store in self._opened:
            store.close()


@pytest.fixture(scope="session")
def postgres_of_contract() -> Iterator[object]:
    """A PostgreSQL server for the contract; skips the test where there is none."""
    pytest.importorskip("psycopg")
    from tests.trail.postgres_server import serving  # needs psycopg

    with serving() as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of a kind is kept in this test. The kind is the parameter."""
    kind = request.param
    if kind == "postgres":
        return str(request.getfixturevalue("postgres_of_contract").new_database())
    return str(tmp_path / {"memory": "", "jsonl": "runs", "sqlite": "runs.db"}[kind])


@pytest.fixture
def shelf(request: pytest.FixtureRequest, place: str) -> Iterator[Shelf]:
    """A store of each kind, empty."""
    opened = Shelf(request.node.callspec.params["place"], place)
    yield opened
    opened.close()


@pytest.fixture
def trail_store(shelf: Shelf) -> TrailStore:
    """A store of each kind, empty, for tests that do not open it again."""
    return shelf.store


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a store is held against every kind, or against those that its `kinds` names."""
    if "shelf" in metafunc.fixturenames:
        metafunc.parametrize("place", getattr(metafunc.function, "kinds", tuple(OPEN)), indirect=True)
