"""Every kind of store, by name; and what another process does with one: `python -m tests.trail.stores ACTION KIND PLACE RUN`."""

from __future__ import annotations

import hashlib
import json
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fsm_agent.errors import RunHeld
from fsm_agent.trail import Batch, JsonLinesTrail, MemoryTrail, SQLiteTrail, Stored, TrailStore
from fsm_agent.trail.chain import GENESIS, Sha256Chain
from fsm_agent.trail.store import RUNNING, new_owner

__all__ = ["OPEN", "ROOT", "batch", "entries", "sealed"]

ROOT: Final = Path(__file__).resolve().parents[2]


def _postgres(place: str) -> TrailStore:
    from fsm_agent.trail.postgres_store import PostgresTrail  # an extra

    return PostgresTrail(place)


OPEN: Final[Mapping[str, Callable[[str], TrailStore]]] = {
    "memory": lambda _: MemoryTrail(),
    "jsonl": JsonLinesTrail,
    "sqlite": SQLiteTrail,
    "postgres": _postgres,
}
"""Opens the store of a kind at a place: a path, or for PostgreSQL a connection string."""


def entries(first: int, last: int, word: str = "x") -> tuple[Stored, ...]:
    """Entries with these numbers, both included."""
    return tuple(Stored(seq, f'{{"{word}":{seq}}}', f"seal {word} {seq}") for seq in range(first, last + 1))


def sealed(count: int, word: str = "x") -> tuple[Stored, ...]:
    """Entries that are sealed to each other, from 0 on."""
    chain, seal, found = Sha256Chain(), GENESIS, []
    for seq in range(count):
        text = f'{{"seq":{seq},"text":"{word * (seq % 7 + 1)} é"}}'
        seal = chain.seal(seal, text)
        found.append(Stored(seq, text, seal))
    return tuple(found)


def batch(run_id: str = "r", owner: str = "me", *, lease: float = 100.0, **more: Any) -> Batch:
    """A batch with what does not matter filled in."""
    return Batch(**{"run_id": run_id, "owner": owner, "lease": lease, "time": 50.0, "status": RUNNING, **more})


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _read(store: TrailStore, run_id: str) -> None:
    info = store.info(run_id)
    digest = hashlib.sha256(b"value").hexdigest()
    _say(json.dumps([[one.text for one in store.read(run_id)], info.status, store.value(run_id, digest).decode()]))


def _claim(store: TrailStore, run_id: str) -> None:
    """Claim once the other process is ready too."""
    store.info(run_id)
    owner = new_owner()
    _say("ready")
    sys.stdin.readline()
    try:
        store.claim(run_id, owner, 200.0, 50.0)
    except RunHeld as error:
        _say(f"held {error.owner}")
    else:
        _say(f"got {owner}")
    sys.stdin.readline()


def _write(store: TrailStore, run_id: str) -> None:
    """Append three entries at a time until somebody kills this process; say each time what was acknowledged."""
    for first in range(0, 30_000, 3):
        store.append(batch(run_id, entries=entries(first, first + 2))).result()
        _say(first + 2)


def _fill(store: TrailStore, run_id: str) -> None:
    """Append until a file may not grow any more; say how much was acknowledged, and what the first refusal was."""
    store.append(batch(run_id, entries=(Stored(0, "x" * 1000, "0"),))).result()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
    for seq in range(1, 1000):
        error = store.append(batch(run_id, entries=(Stored(seq, "x" * 1000, str(seq)),))).exception()
        if error is not None:
            _say(f"{seq} {type(error).__name__}")
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _say(len(store.read(run_id)))


def _owner(_: TrailStore, __: str) -> None:
    _say(new_owner())


if __name__ == "__main__":
    _, action, kind, place, run = sys.argv
    opened = OPEN[kind](place)
    {"read": _read, "claim": _claim, "write": _write, "fill": _fill, "owner": _owner}[action](opened, run)
    opened.close()
