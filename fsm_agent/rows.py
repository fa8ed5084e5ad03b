"""Rows, and tables made of them: the built-in one, and those that are extended with states, events and guards of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.custom import OwnState, check_states
from fsm_agent.errors import TableError
from fsm_agent.guards import GUARDS, Guard

__all__ = ["Given", "Row", "extended", "parse_row", "stop_rows"]

_TEXT: Final = re.compile(
    r"\s*(?P<source>\w+)\s+--(?P<event>\w+)(?:\s+\[(?P<guards>[^\]]*)\])?-->\s*(?P<target>\w+)(?:\s+\((?P<reason>\w+)\))?\s*"
)
_FORM: Final = "SOURCE --event [guard, guard]--> TARGET (reason), all names without spaces; guards and reason only where there are some"


@dataclass(frozen=True, slots=True)
class Row:
    """One transition: in `source`, when `event` happened and all `guards` hold, go to `target`."""

    source: State
    event: Event
    target: State
    guards: tuple[Guard, ...] = ()
    reason: StopReason | None = None

    def __str__(self) -> str:
        condition = f" [{', '.join(guard.name for guard in self.guards)}]" if self.guards else ""
        return f"{self.source} --{self.event}{condition}--> {self.target}"


Given = Row | str | Sequence[Row | str]
"""Rows as a caller gives them: a `Row`, or its text, or several."""


def stop_rows(states: Iterable[State]) -> tuple[Row, ...]:
    """The rows that each state which can be left has: for a cancelled run, and for a fault of the engine."""
    left = [state for state in states if state not in TERMINAL]
    return (
        *(Row(state, Event.CANCELLED, State.ABORT, (), StopReason.CANCELLED) for state in left),
        *(Row(state, Event.BROKE, State.ABORT, (), StopReason.INTERNAL_ERROR) for state in left),
    )


def parse_row(given: Row | str, guards: Mapping[str, Guard]) -> Row:
    """The row that a text says, as rows are printed: `DECIDE --decided [steps_spent]--> ABORT (max_steps)`.

    Raises `fsm_agent.errors.TableError` for text of another form and for a guard that is not in `guards`, naming the row.
    """
    if isinstance(given, Row):
        return given
    text: object = given
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise TableError(f"a row is written {_FORM}", row=str(given))
    names = [name.strip() for name in (found["guards"] or "").split(",") if name.strip()]
    for name in names:
        if name not in guards:
            raise TableError(
                f"unknown guard {name!r}: give it in guards=[...], made with fsm_agent.table.guard", row=given.strip()
            )
    return Row(
        State.named(found["source"]),
        Event.named(found["event"]),
        State.named(found["target"]),
        tuple(guards[name] for name in names),
        None if found["reason"] is None else StopReason.named(found["reason"]),
    )


class _Edits:
    """The rows of a table while they are edited."""

    def __init__(self, rows: Sequence[Row], guards: Mapping[str, Guard]) -> None:
        self.rows, self.guards = list(rows), guards

    def place(self, name: str) -> int:
        """Where the row of that name stands. Raises `TableError` when none or several have it."""
        wanted = str(parse_row(name, self.guards))
        places = [index for index, row in enumerate(self.rows) if str(row) == wanted]
        if len(places) != 1:
            source = wanted.partition(" ")[0]
            near = "; ".join(str(row) for row in self.rows if row.source == source) or "none starts there"
            raise TableError(f"no such row in the table; rows of {source}: {near}", row=wanted)
        return places[0]

    def several(self, given: Given) -> list[Row]:
        if isinstance(given, Row | str):
            return [parse_row(given, self.guards)]
        return [parse_row(one, self.guards) for one in given]


def extended(
    base: Sequence[Row],
    *,
    states: Sequence[OwnState],
    rows: Iterable[Row | str],
    before: Mapping[str, Given],
    instead: Mapping[str, Given],
    guards: Sequence[Guard],
) -> tuple[Row, ...]:
    """The rows of `base` with those before and instead of others, then `rows`, then those of `states` from outside."""
    own = {guard.name: guard for row in base for guard in row.guards}
    check_states(states)
    for guard in guards:
        if not isinstance(guard, Guard):
            raise TableError(f"guards=[...] holds {guard!r}: a guard is made with fsm_agent.table.guard")
        taken = GUARDS.get(guard.name, guard)
        if own.get(guard.name, taken) is not guard or taken is not guard:
            raise TableError(f"the guard {guard.name!r} has the name of another one: give it a name of its own")
        own[guard.name] = guard
    edits = _Edits(base, GUARDS | own)
    for name, given in before.items():
        place = edits.place(name)
        edits.rows[place:place] = edits.several(given)
    for name, given in instead.items():
        place = edits.place(name)
        edits.rows[place : place + 1] = edits.several(given)
    edits.rows += edits.several(tuple(rows))
    have = {(row.source, row.event) for row in edits.rows}
    more = [row for row in stop_rows(one.name for one in states) if (row.source, row.event) not in have]
    return (*edits.rows, *more)
