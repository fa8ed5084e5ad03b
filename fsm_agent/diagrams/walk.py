"""A run as something to draw: which rows it took, how often, how long, on what values, and where it stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fsm_agent.alphabet import TERMINAL
from fsm_agent.errors import RunError
from fsm_agent.machine import Evaluated
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.redact import redact_text
from fsm_agent.table import Row
from fsm_agent.trail.codec import record_of
from fsm_agent.trail.entries import Entry

__all__ = ["Passage", "Stay", "Trail", "Walk", "compared", "counted", "duration", "walked"]

Trail = RunResult | Iterable[object]
"""A result, or the transitions of a run in order: `Transitioned` records, or the entries of its trail.

Of other things among them (`Token`s, other entries) only a `RunResult` says more.
"""

_SHOWN_TURNS: Final = 5
_VALUE_CHARS: Final = 60
_SECOND: Final = 1000.0
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Passage:
    """How often a row was taken, at which transitions, in how many ms, and the guards that held the last time."""

    seqs: tuple[int, ...]
    elapsed_ms: float
    held: tuple[Evaluated, ...] = ()

    @property
    def count(self) -> int:
        """How often."""
        return len(self.seqs)

    def __str__(self) -> str:
        listed = ", ".join(str(seq) for seq in self.seqs[:_SHOWN_TURNS])
        more = ", ..." if self.count > _SHOWN_TURNS else ""
        times = f"{self.count}x at {listed}{more}"
        if self.elapsed_ms:
            times += f"; {duration(self.elapsed_ms)}"
        values: dict[str, Any] = {}
        for guard in self.held:
            values |= guard.values
        return times + "".join(f"\n{name} = {_short(value)}" for name, value in values.items())


def _short(value: object) -> str:
    """A value that a guard compared, without secrets, on one line."""
    text = " ".join(redact_text(str(value)).split())
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class Stay:
    """How often a run was in a state, and for how many ms in all."""

    count: int
    elapsed_ms: float

    def __str__(self) -> str:
        return f"{self.count}x, {duration(self.elapsed_ms)}" if self.elapsed_ms else f"{self.count}x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A run on a table. `taken` is by the place of the row in the table, then by that in `foreign`, the rows it does not have.

    `told` says how the run ended, line by line.
    """

    transitions: tuple[Transitioned, ...]
    taken: Mapping[int, Passage]
    visits: Mapping[str, Stay]
    last: str
    foreign: tuple[Row, ...] = ()
    told: tuple[str, ...] = ()


def walked(rows: Sequence[Row], trail: Trail, *, foreign: Sequence[Row] = (), letter: str = "") -> Walk:
    """The run on these rows. `foreign`: rows that another run took and the table does not have.

    Raises `fsm_agent.errors.RunError` when there is no transition in it.
    """
    result, transitions = _read(trail)
    if not transitions:
        raise RunError(
            "there is no transition to draw: give a RunResult, the Transitioned records of a run in order, or the entries of its trail"
        )
    whole = [*rows, *foreign]
    taken: dict[int, list[Transitioned]] = {}
    for one in transitions:
        index = _row_of(whole, one)
        if index is None:
            index = len(whole)
            whole.append(Row(one.source, one.event, one.target))
        taken.setdefault(index, []).append(one)
    passages = {index: _passage(whole[index], records) for index, records in taken.items()}
    final = next(one for one in passages.values() if transitions[-1].seq in one.seqs)
    return Walk(
        transitions=transitions,
        taken=passages,
        visits=_visits(transitions),
        last=transitions[-1].target,
        foreign=tuple(whole[len(rows) :]),
        told=_told(result, transitions, final.held, letter),
    )


def compared(rows: Sequence[Row], first: Trail, second: Trail) -> tuple[Walk, Walk]:
    """Two runs on the same rows; the second tells where they part."""
    one = walked(rows, first, letter="A")
    other = walked(rows, second, foreign=one.foreign, letter="B")
    told = (*other.told, _parting(one.transitions, other.transitions))
    return one, replace(other, told=told)


def counted(number: int, one: str, more: str = "") -> str:
    """`1 entry`, `2 entries`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def duration(ms: float) -> str:
    """`12 ms`, `3.4 s`, `2 min 5 s`."""
    if ms < _SECOND:
        return f"{ms:.0f} ms" if ms >= 1 or not ms else "<1 ms"
    seconds = ms / _SECOND
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    return f"{int(seconds // _MINUTE)} min {seconds % _MINUTE:.0f} s"


def _read(trail: Trail) -> tuple[RunResult | None, tuple[Transitioned, ...]]:
    if isinstance(trail, RunResult):
        return trail, trail.transitions
    items = list(trail)
    result = next((item for item in reversed(items) if isinstance(item, RunResult)), None)
    found = tuple(record for record in map(_record, items) if record is not None)
    return result, found or (result.transitions if result is not None else ())


def _record(item: object) -> Transitioned | None:
    if isinstance(item, Transitioned):
        return item
    return record_of(item.body, item.run_id) if isinstance(item, Entry) and item.kind == "transition" else None


def _row_of(rows: Sequence[Row], record: Transitioned) -> int | None:
    """The row that fired: the first that leads there whose guards all held; None when the table has none."""
    held = {guard.guard for guard in record.guards if guard.result}
    for index, row in enumerate(rows):
        same = (row.source, row.event, row.target) == (record.source, record.event, record.target)
        if same and all(guard.name in held for guard in row.guards):
            return index
    return None


def _passage(row: Row, records: Sequence[Transitioned]) -> Passage:
    names = [guard.name for guard in row.guards]
    held = tuple(guard for guard in records[-1].guards if guard.guard in names)
    return Passage(tuple(one.seq for one in records), sum(one.elapsed_ms for one in records), held)


def _visits(transitions: Sequence[Transitioned]) -> dict[str, Stay]:
    entered: dict[str, int] = {transitions[0].source: 1}
    elapsed: dict[str, float] = {}
    for one in transitions:
        entered[one.target] = entered.get(one.target, 0) + 1
        elapsed[one.source] = elapsed.get(one.source, 0.0) + one.elapsed_ms
    return {state: Stay(times, elapsed.get(state, 0.0)) for state, times in entered.items()}


def _told(
    result: RunResult | None, transitions: Sequence[Transitioned], held: Sequence[Evaluated], letter: str
) -> tuple[str, ...]:
    """The run, where it stopped, why (the guards that held at last, where there is no result to say it), and what it took."""
    last = transitions[-1]
    name = f"{letter}: run {last.run_id}" if letter else f"run {last.run_id}"
    if result is not None:
        ended = f"{result.status}: {result.reason}" if result.reason is not None else f"{result.status}"
        detail = result.detail
    else:
        ended = f"{last.reason}" if last.reason is not None else ""
        why = [
            f"{one.guard}: {', '.join(f'{name} = {_short(value)}' for name, value in one.values.items())}"
            for one in held
        ]
        detail = "; ".join([*why, *([last.error] if last.error else [])])
    spent = sum(one.elapsed_ms for one in transitions)
    counts = (
        counted(len(transitions), "transition"),
        counted(last.step, "step"),
        counted(last.model_calls, "model call"),
        counted(last.tool_calls, "tool call"),
        counted(last.tokens, "token"),
    )
    stands = (
        f"{name} stopped in {last.target}"
        if last.target in TERMINAL
        else f"{name} has not ended; it is in {last.target}"
    )
    return (
        f"{stands} ({ended})" if ended else stands,
        *((detail,) if detail else ()),
        ", ".join((*counts, duration(spent))),
    )


def _parting(first: Sequence[Transitioned], second: Sequence[Transitioned]) -> str:
    for one, other in zip(first, second, strict=False):
        if (one.source, one.event, one.target) != (other.source, other.event, other.target):
            return f"They part at transition {one.seq}: A {_step(one)}, B {_step(other)}"
    if len(first) == len(second):
        return "They took the same path"
    longer, letter = (first, "A") if len(first) > len(second) else (second, "B")
    after = min(len(first), len(second))
    return f"They took the same path for {after} transitions; only {letter} goes on: {_step(longer[after])}"


def _step(record: Transitioned) -> str:
    held = [guard.guard for guard in record.guards if guard.result]
    return f"{record.source} {record.event} -> {record.target}" + (f" [{', '.join(held)}]" if held else "")
