"""The laws of a table. A table that breaks one is refused when it is built, and the error names the row.

Known: every state, event and guard of a row exists. Ordered: the last row of a (source, event) has no guard, and no row stands
behind one that always fires first. Reachable: every state can be reached, and from every state a terminal one can. Closed: a terminal
state has no row out; a state has rows for exactly the events it produces. Reasoned: whatever stops a run says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State
from fsm_agent.errors import TableError
from fsm_agent.guards import Guard
from fsm_agent.table import Row

__all__ = ["check_table"]

_FROM_OUTSIDE = frozenset({Event.CANCELLED, Event.BROKE})


def check_table(rows: Sequence[Row], produced: Mapping[State, frozenset[Event]] | None = None) -> None:
    """Refuse `rows` that break a law. `produced` says which events each state can return; without it that law is not checked.

    Raises `fsm_agent.errors.TableError`; `.row` is the offending row.
    """
    if not rows:
        raise TableError("the table has no rows")
    for row in rows:
        _known(row)
    groups: dict[tuple[State, Event], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, row.event), []).append(row)
    for group in groups.values():
        _ordered(group)
    _connected(rows)
    _reasoned(rows)
    for state in State:
        if state not in TERMINAL:
            for event in sorted(_FROM_OUTSIDE):
                if (state, event) not in groups:
                    raise TableError(
                        f"{state} has no row for {event}, which can happen in every state that is not terminal: add one to ABORT"
                    )
    if produced is not None:
        _total(groups, produced)


def _known(row: Row) -> None:
    ends: tuple[object, ...] = (row.source, row.target)
    if not all(isinstance(end, State) for end in ends):
        raise TableError(f"unknown state: a source and a target must be one of {', '.join(State)}", row=str(row))
    if not isinstance(row.event, Event):
        raise TableError(f"unknown event: it must be one of {', '.join(Event)}", row=str(row))
    for guard in row.guards:
        if not isinstance(guard, Guard):
            raise TableError(
                f"unknown guard {guard!r}: a guard is a fsm_agent.guards.Guard",
                row=f"{row.source} --{row.event}--> {row.target}",
            )
    if row.source in TERMINAL:
        raise TableError(f"{row.source} is terminal and cannot be left", row=str(row))


def _ordered(group: Sequence[Row]) -> None:
    for index, row in enumerate(group):
        for earlier in group[:index]:
            if set(earlier.guards) <= set(row.guards):
                raise TableError(f"shadowed: it can never fire, because this row fires first: {earlier}", row=str(row))
    if group[-1].guards:
        raise TableError(
            "the last row of a (source, event) must have no guard, or the run could be stuck there", row=str(group[-1])
        )


def _connected(rows: Iterable[Row]) -> None:
    forward: dict[State, set[State]] = {}
    backward: dict[State, set[State]] = {}
    for row in rows:
        forward.setdefault(row.source, set()).add(row.target)
        backward.setdefault(row.target, set()).add(row.source)
    reached = _closure({INITIAL}, forward)
    for state in State:
        if state not in reached:
            named = next((str(row) for row in rows if row.source is state), "")
            raise TableError(f"unreachable: no path of rows leads from {INITIAL} to {state}", row=named)
    ends = _closure(set(TERMINAL), backward)
    for state in State:
        if state not in ends:
            named = next((str(row) for row in rows if row.source is state), "")
            raise TableError(f"trap: no path of rows leads from {state} to a terminal state", row=named)


def _closure(start: set[State], steps: Mapping[State, set[State]]) -> set[State]:
    reached, open_ = set(start), list(start)
    while open_:
        for state in steps.get(open_.pop(), ()):
            if state not in reached:
                reached.add(state)
                open_.append(state)
    return reached


def _reasoned(rows: Iterable[Row]) -> None:
    for row in rows:
        stops = row.target is State.ABORT or row.target is State.DEGRADE
        inherits = row.source is State.DEGRADE or any(guard.name == "answer_failed" for guard in row.guards)
        if stops and row.reason is None and not inherits:
            raise TableError(f"a row to {row.target} must say why: give it a reason", row=str(row))
        if not stops and row.reason is not None:
            raise TableError(
                f"a row to {row.target} does not stop the run, so it cannot have the reason {row.reason}", row=str(row)
            )


def _total(groups: Mapping[tuple[State, Event], Sequence[Row]], produced: Mapping[State, frozenset[Event]]) -> None:
    for state, events in produced.items():
        for event in sorted(events):
            if (state, event) not in groups:
                raise TableError(f"{state} can return {event}, and the table has no row for it")
    for (state, event), group in groups.items():
        if event not in _FROM_OUTSIDE and event not in produced.get(state, frozenset()):
            raise TableError(f"{state} never returns {event}, so this row can never fire", row=str(group[0]))
