"""What an append to each store of trails costs: alone, and with several runs that write at once.

    python -m tests.benchmarks.trail_store [--appends 600] [--runs 1 16] [--bytes 600] [--folder FOLDER]

An append is durable when it counts. Prints appends a second, CPU time (user and system) of an append, and bytes on disk for each byte of
entries, seals included. Nothing is asserted: a disk is as fast as it is. The folder decides which disk that is.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsm_agent.trail import Batch, JsonLinesTrail, MemoryTrail, Sha256Chain, SQLiteTrail, Stored, TrailStore
from fsm_agent.trail.store import RUNNING, new_owner

__all__ = ["STORES", "Cost", "main", "measure"]

STORES: Final[dict[str, Callable[[Path], TrailStore]]] = {
    "memory": lambda _: MemoryTrail(),
    "SQLite FULL": lambda folder: SQLiteTrail(folder / "runs.db"),
    "SQLite NORMAL": lambda folder: SQLiteTrail(folder / "runs.db", "NORMAL"),
    "JSON Lines": JsonLinesTrail,
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the appends of one measurement took. `ratio` is bytes on disk for each byte of entries; 0 where nothing is on disk."""

    a_second: float
    cpu_us: float
    ratio: float


def batches(run_id: str, count: int, size: int) -> list[Batch]:
    """Appends of one sealed entry of `size` bytes each."""
    owner, chain, seal, found = new_owner(), Sha256Chain(), "", []
    for seq in range(count):
        text = f'{{"body":"{"x" * max(0, size - 60)}","kind":"started","run":"{run_id}","seq":{seq},"time":1}}'
        seal = chain.seal(seal, text)
        entry = Stored(seq, text, seal)
        found.append(
            Batch(run_id=run_id, owner=owner, lease=4e9, time=1.8e9, status=RUNNING, entries=(entry,), thread_id="t")
        )
    return found


def measure(make: Callable[[Path], TrailStore], folder: Path, *, runs: int, appends: int, size: int) -> Cost:
    """`appends` in all, each run waiting for one before it asks for the next."""
    work = [batches(f"{number:032x}", appends // runs, size) for number in range(runs)]

    def drive(mine: list[Batch]) -> None:
        for batch in mine:
            store.append(batch).result()

    with closing(make(folder)) as store:
        store.append(batches("before", 1, size)[0]).result()
        threads = [threading.Thread(target=drive, args=(mine,)) for mine in work]
        gc.collect()
        began, cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    done = runs * (appends // runs)
    stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    entered = sum(len(entry.text) + len(entry.seal) for mine in work for batch in mine for entry in batch.entries)
    return Cost(a_second=done / seconds, cpu_us=cpu / done * 1e6, ratio=stored / entered)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--appends", type=int, default=600, help="in each measurement")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 16], help="that write at once")
    parser.add_argument("--bytes", type=int, default=600, help="of an entry")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; a temporary one when left out")
    options = parser.parse_args()
    print(f"{'store':<15}{'runs':>5}{'appends/s':>12}{'CPU us':>9}{'disk/entries':>14}")
    for name, make in STORES.items():
        for runs in options.runs:
            folder = Path(tempfile.mkdtemp(prefix="trail-store-", dir=options.folder))
            try:
                cost = measure(make, folder, runs=runs, appends=options.appends, size=options.bytes)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            print(f"{name:<15}{runs:>5}{cost.a_second:>12,.0f}{cost.cpu_us:>9.0f}{cost.ratio:>14.2f}")


if __name__ == "__main__":
    main()
