"""Fetching and starting a model of this machine, with progress: a bar at a terminal, a line each tenth elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fsm_agent.cli.console import err, interactive, note
from fsm_agent.local import LocalServer, cached, shared
from fsm_agent.local.weights import SourceName, ensure

__all__ = ["fetch", "start"]

Report = Callable[[int, int, str], None]


@contextlib.contextmanager
def _bar() -> Iterator[Report]:
    """A bar, shown from the first report on."""
    columns = (
        *(TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn()),
        *(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True)),
    )
    with Progress(*columns, console=err(), transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def report(done: int, total: int, what: str) -> None:
            short = what.replace("downloading ", "").replace(", part ", " ").replace(" of ", "/")
            progress.update(task, completed=done, total=total, description=short, visible=True)

        yield report


@contextlib.contextmanager
def _lines() -> Iterator[Report]:
    """A line when the work changes, and at each tenth of the bytes."""
    told: set[tuple[str, int]] = set()

    def report(done: int, total: int, what: str) -> None:
        tenth = done * 10 // total if total else 0
        key = (what.partition(", part")[0], tenth)
        if key not in told:
            told.add(key)
            note(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    yield report


@contextlib.contextmanager
def _nothing() -> Iterator[Report]:
    yield lambda done, total, what: None


def _progress(quiet: bool) -> contextlib.AbstractContextManager[Report]:
    if quiet:
        return _nothing()
    return _bar() if interactive(sys.stderr) else _lines()


def fetch(name: str, *, quiet: bool = False, source: SourceName | None = None) -> None:
    """Have the weights of `name` on this disk. Raises `ModelError`."""
    if cached(name) is not None:
        return
    with _progress(quiet) as report:
        path = ensure(name, progress=report, source=source)
    if not quiet:
        note(f"{name} is here and its hash is right: {path}")


def start(name: str, *, quiet: bool = False) -> LocalServer:
    """Start the server of a local model, fetching its weights first if they are not here. Raises `ModelError`."""
    fetch(name, quiet=quiet)
    begun = time.monotonic()
    waiting = err().status(f"starting {name}") if not quiet and interactive(sys.stderr) else contextlib.nullcontext()
    with waiting:
        server = shared(name)
    if not quiet:
        note(f"{name} started in {time.monotonic() - begun:.1f} s")
    return server
