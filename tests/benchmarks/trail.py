"""What a durable record of each step costs, beside LangGraph with its SQLite saver: CPU time and bytes on disk, one interleaved run.

    python -m tests.benchmarks.trail [--rounds 3] [--steps 20 100 400] [--synchronous FULL]

Both ask the same scripted model, call the same kind of tool, and commit to an SQLite file in WAL mode at the same `synchronous` setting.
This engine also logs each transition. Set-up is not timed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_core.tools import tool

from fsm_agent import Agent, Limits, Status
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import SQLiteTrail
from tests.benchmarks.speed import log_to_nowhere

BARE, OURS, PEER = "fsm_agent without a store", "fsm_agent, SQLite trail", "create_agent, SqliteSaver"
RUNS: Final = {20: 6, 100: 3, 400: 1}
TASK: Final = "Add the numbers."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(steps: int) -> list[Any]:
    """One call a step, each another, then an answer."""
    return [*([call("add", a=number, b=1)] for number in range(steps)), "done"]


def with_engine(steps: int, path: Path | None, synchronous: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """A run of this engine, and what closes its store."""
    store = None if path is None else SQLiteTrail(path, synchronous=synchronous)
    limits = Limits(max_steps=steps + 1, max_tool_calls=steps, token_budget=None)
    agent = Agent(ScriptedModel(script(steps)), [add], store=store, limits=limits)

    def run() -> None:
        assert agent.invoke(TASK).status is Status.COMPLETED

    return run, (store.close if store is not None else lambda: None)


def with_peer(steps: int, path: Path, synchronous: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """A run of `create_agent` with LangGraph's SQLite saver, and what closes it."""
    from langchain.agents import create_agent
    from langgraph.checkpoint.sqlite import SqliteSaver

    link = sqlite3.connect(path, check_same_thread=False)
    link.execute("PRAGMA journal_mode=WAL")
    link.execute(f"PRAGMA synchronous={synchronous}")
    saver = SqliteSaver(link)
    saver.setup()
    agent = create_agent(ScriptedModel(script(steps)), [add], checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 4 * steps + 10}

    def run() -> None:
        agent.invoke({"messages": [("user", TASK)]}, config)

    return run, link.close


def size_of(path: Path) -> int:
    """Bytes of the database, its log written back."""
    with contextlib.closing(sqlite3.connect(path)) as link:
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def measure(steps: int, rounds: int, synchronous: str, *, peer: bool) -> dict[str, tuple[float, float, int]]:
    """Median CPU microseconds and wall milliseconds a step, and bytes a step, of each contender."""
    found: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    names = [BARE, OURS, *([PEER] if peer else [])]
    for turn in range(rounds * RUNS.get(steps, 1)):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "runs.db"
                make = with_peer if name == PEER else with_engine
                run, close = make(steps, None if name == BARE else path, synchronous)  # type: ignore[arg-type] # a peer gets a path
                gc.collect()
                cpu, wall = time.process_time(), time.perf_counter()
                run()
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                close()
                size = size_of(path) if path.exists() else 0
            found[name].append((cpu / steps * 1e6, wall / steps * 1e3, size // steps))
    return {
        name: (statistics.median(one[0] for one in values), statistics.median(one[1] for one in values), values[0][2])
        for name, values in found.items()
    }


def table(results: dict[int, dict[str, tuple[float, float, int]]]) -> str:
    """Rows of Markdown."""
    lines = [
        "| steps | contender | CPU µs a step | ms a step | bytes a step | CPU to the peer |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for steps, found in results.items():
        peer = found.get(PEER)
        for name, (cpu, wall, size) in found.items():
            ratio = f"{cpu / peer[0]:.2f}" if peer is not None else ""
            lines.append(f"| {steps} | {name} | {cpu:,.0f} | {wall:.1f} | {size:,} | {ratio} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 100, 400])
    parser.add_argument("--synchronous", default="FULL", choices=["FULL", "NORMAL"])
    options = parser.parse_args(arguments)
    log_to_nowhere()
    peer = _has("langgraph.checkpoint.sqlite")
    if not peer:
        print("langgraph-checkpoint-sqlite is not installed: make bench installs it")
    results = {steps: measure(steps, options.rounds, options.synchronous, peer=peer) for steps in options.steps}
    print(table(results))


def _has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    main()
