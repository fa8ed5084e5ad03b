"""Transition coverage: which rows of a table fired, and which answers its guards gave, while something ran."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.diagrams.dot import as_dot
from fsm_agent.diagrams.graphviz import rendered
from fsm_agent.diagrams.image import tidied
from fsm_agent.diagrams.mermaid import as_mermaid
from fsm_agent.diagrams.picture import pictured
from fsm_agent.diagrams.walk import Passage, Stay, Walk
from fsm_agent.machine import Fired, Machine
from fsm_agent.table import TABLE, Row
from fsm_agent.verify.judge import EXPLORING

__all__ = ["Coverage", "collecting"]


class Coverage:
    """Which rows of `rows` fired, and how often each guard held and did not. Only a machine of exactly these rows counts.

    What `verify` explores does not count: it is no test.
    """

    def __init__(self, rows: Sequence[Row] = TABLE) -> None:
        self.rows: Final = tuple(rows)
        self.fired: Final = [0] * len(self.rows)
        names = dict.fromkeys(guard.name for row in self.rows for guard in row.guards)
        self.asked: Final = {name: {True: 0, False: 0} for name in names}
        self.others = 0
        self._same: WeakKeyDictionary[Machine, dict[int, int]] = WeakKeyDictionary()
        self._lock: Final = threading.Lock()

    def saw(self, machine: Machine, fired: Fired) -> None:
        """Count one transition. Safe from any thread."""
        if fired.ctx.run_id == EXPLORING:
            return
        with self._lock:
            places = self._same.get(machine)
            if places is None:
                same = machine.rows == self.rows
                places = {id(row): place for place, row in enumerate(machine.rows)} if same else {}
                self._same[machine] = places
            if not places:
                self.others += 1
                return
            self.fired[places[id(fired.row)]] += 1
            for one in fired.guards:
                self.asked[one.guard][one.result] += 1

    @property
    def idle_rows(self) -> tuple[Row, ...]:
        """The rows that never fired."""
        return tuple(row for row, times in zip(self.rows, self.fired, strict=True) if not times)

    @property
    def unseen(self) -> tuple[tuple[str, bool], ...]:
        """The guard outcomes that were never seen: the name of the guard, and the answer."""
        return tuple((name, held) for name, seen in self.asked.items() for held in (True, False) if not seen[held])

    @property
    def percent(self) -> float:
        """Rows that fired and guard outcomes that were seen, of all that there are."""
        whole = len(self.rows) + 2 * len(self.asked)
        return 100.0 * (whole - len(self.idle_rows) - len(self.unseen)) / whole

    def __str__(self) -> str:
        rows, outcomes = len(self.rows), 2 * len(self.asked)
        return (
            f"{rows - len(self.idle_rows)} of {rows} rows, {outcomes - len(self.unseen)} of {outcomes} guard outcomes: "
            f"{int(self.percent * 10) / 10:g} %"
        )

    def missing(self) -> str:
        """What was not exercised, a line each; "" when nothing is missing."""
        lines = [f"row never fired: {row}" for row in self.idle_rows]
        lines += [f"guard never seen to {'hold' if held else 'fail'}: {name}" for name, held in self.unseen]
        return "\n".join(lines)

    def table(self) -> str:
        """Every row and every guard with how often, as Markdown."""
        lines = ["| row | fired |", "|---|---:|"]
        lines += [f"| `{row}` | {times or '**never**'} |" for row, times in zip(self.rows, self.fired, strict=True)]
        lines += ["", "| guard | held | did not hold |", "|---|---:|---:|"]
        for name, seen in self.asked.items():
            lines.append(f"| `{name}` | {seen[True] or '**never**'} | {seen[False] or '**never**'} |")
        return "\n".join([*lines, "", f"{self}", ""])

    def diagram(self, format: str = "mermaid") -> str:
        """The machine as "mermaid", "dot" or "svg", with how often each row fired; what never fired is grey and dashed.

        Raises `fsm_agent.errors.DefinitionError` for an svg that cannot be drawn here.
        """
        taken = {place: _Count((), 0.0, (), times) for place, times in enumerate(self.fired) if times}
        entered: Counter[str] = Counter()
        for place, one in taken.items():
            entered[self.rows[place].source] += 0
            entered[self.rows[place].target] += one.times
        visits = {state: Stay(times, 0.0) for state, times in entered.items()}
        picture = pictured(self.rows, walks=(Walk(transitions=(), taken=taken, visits=visits, last=""),))
        if format == "mermaid":
            return as_mermaid(picture)
        dot = as_dot(picture)
        return dot if format == "dot" else tidied(rendered(dot, "svg"))

    def data(self) -> dict[str, Any]:
        """Everything counted, as JSON data."""
        return {
            "percent": round(self.percent, 2),
            "rows": {str(row): times for row, times in zip(self.rows, self.fired, strict=True)},
            "guards": {name: {"held": seen[True], "did_not_hold": seen[False]} for name, seen in self.asked.items()},
            "other_tables": self.others,
        }

    def add(self, data: Mapping[str, Any]) -> None:
        """Count in what another process counted, as its `data` says."""
        with self._lock:
            for place, row in enumerate(self.rows):
                self.fired[place] += data["rows"].get(str(row), 0)
            for name, seen in self.asked.items():
                other = data["guards"].get(name, {})
                seen[True] += other.get("held", 0)
                seen[False] += other.get("did_not_hold", 0)
            self.others += data["other_tables"]


@dataclass(frozen=True, slots=True)
class _Count(Passage):
    """How often a row fired, over many runs."""

    times: int = 0

    def __str__(self) -> str:
        return f"{self.times}x"


@contextmanager
def collecting(coverage: Coverage) -> Iterator[Coverage]:
    """While the block runs, count in `coverage` what every machine of this process fires, in any thread. Nothing is left behind."""
    fire = Machine.fire

    def watched(machine: Machine, state: State, event: Event, ctx: Context) -> Fired:
        fired = fire(machine, state, event, ctx)
        coverage.saw(machine, fired)
        return fired

    # Around the method of the class: an engine that nobody watches pays nothing.
    setattr(Machine, "fire", watched)  # noqa: B010 - mypy: assigning to a method
    try:
        yield coverage
    finally:
        setattr(Machine, "fire", fire)  # noqa: B010 - the same
