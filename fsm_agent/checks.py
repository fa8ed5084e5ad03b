"""The laws of a table. A table that breaks one is refused when it is built, and the error names the row.

Named: names of one's own are fit to be drawn, kept and told apart. Known: every state, event and guard of a row exists. Ordered: the last
row of a (source, event) has no guard, and no row stands behind one that always fires first. Reachable: every state can be reached, and
from every state a terminal one can. Closed: a terminal state has no row out; a state has rows for exactly the events it produces, and for
those from outside, which end the run. Reasoned: whatever stops a run says why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State, StopReason
from fsm_agent.custom import OwnState, check_states
from fsm_agent.errors import TableError
from fsm_agent.guards import Guard
from fsm_agent.rows import Row

__all__ = ["check_table"]

_FROM_OUTSIDE = frozenset({Event.CANCELLED, Event.BROKE})
_MOST_CHARS: Final = 40
_RESERVED: Final = frozenset({"state", "trigger", "may_trigger", "model", "models", "machine", "initial", "final"})
_PREFIXES: Final = ("_", "is_", "to_", "may_", "on_enter_", "on_exit_")
"""What the object that `transitions` moves has, or is given for each state and event. The engine gives it nothing, but a host may."""


def check_table(
    rows: Sequence[Row],
    produced: Mapping[State, frozenset[Event]] | None = None,
    *,
    own: Sequence[OwnState] = (),
) -> None:
    """Refuse `rows` that break a law. `own` are the states beside those of this package.

    `produced` says which events each state can return; without it that law is checked for `own` only.

    Raises `fsm_agent.errors.TableError`; `.row` is the offending row.
    """
    if not rows:
        raise TableError("the table has no rows")
    _named(own)
    states = (*State, *(one.name for one in own))
    events = frozenset({*Event, *(event for one in own for event in one.events)})
    for row in rows:
        _known(row, states, events)
    _one_guard_a_name(rows)
    groups: dict[tuple[State, Event], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, row.event), []).append(row)
    for group in groups.values():
        _ordered(group)
    _connected(rows, states)
    _reasoned(rows)
    for state in states:
        if state not in TERMINAL:
            for event in sorted(_FROM_OUTSIDE):
                _ends(state, event, groups.get((state, event), ()))
    returned = {one.name: frozenset(one.events) for one in own}
    everyone = states if produced is not None else tuple(returned)
    _total(groups, {**(produced or {}), **returned}, everyone)


def _named(own: Sequence[OwnState]) -> None:
    """Names of one's own: words, in the case of the others, that nothing else has."""
    check_states(own)
    taken = {state.casefold(): state for state in State}
    for one in own:
        _word("state", one.name, upper=True)
        if one.name.casefold() in taken:
            raise TableError(
                f"the state {one.name} has the name of {taken[one.name.casefold()]}: give it a name of its own"
            )
        taken[one.name.casefold()] = one.name
        for event in one.events:
            if not event.is_own:
                raise TableError(
                    f"the state {one.name} cannot return {event}, which is an event of this package: give it one of its own"
                )
            _word("event", event, upper=False)


def _word(what: str, name: str, *, upper: bool, row: str = "") -> None:
    if not name.isidentifier() or len(name) > _MOST_CHARS:
        raise TableError(
            f"the {what} {str(name)!r} must be one word of letters, digits and _, at most {_MOST_CHARS} of them",
            row=row,
        )
    if name != (name.upper() if upper else name.lower()):
        case = "capitals, as in COMPLIANCE" if upper else "small letters, as in cleared"
        raise TableError(
            f"the {what} {str(name)!r} must be written in {case}, so that no two names differ in that only", row=row
        )
    low = name.casefold()
    if low in _RESERVED or low.startswith(_PREFIXES):
        raise TableError(
            f"the {what} {str(name)!r} has the name of an attribute of what the transitions library moves: give it another name",
            row=row,
        )


def _known(row: Row, states: Collection[State], events: Collection[Event]) -> None:
    ends: tuple[object, ...] = (row.source, row.target)
    if not all(isinstance(end, State) and end in states for end in ends):
        raise TableError(f"unknown state: a source and a target must be one of {', '.join(states)}", row=str(row))
    event: object = row.event
    if not isinstance(event, Event) or event not in events:
        known = ", ".join((*Event, *sorted(set(events).difference(Event))))
        raise TableError(f"unknown event: it must be one of {known}", row=str(row))
    for guard in row.guards:
        if not isinstance(guard, Guard):
            raise TableError(
                f"unknown guard {guard!r}: a guard is a fsm_agent.guards.Guard",
                row=f"{row.source} --{row.event}--> {row.target}",
            )
    if row.reason is not None:
        if not isinstance(row.reason, StopReason):
            raise TableError(f"unknown reason {row.reason!r}: a reason is a StopReason", row=str(row))
        if row.reason.is_own:
            _word("reason", row.reason, upper=False, row=str(row))
    if row.source in TERMINAL:
        raise TableError(f"{row.source} is terminal and cannot be left", row=str(row))


def _one_guard_a_name(rows: Iterable[Row]) -> None:
    """A record names guards, so two of one name could not be told apart; and each name is asked once."""
    found: dict[str, Guard] = {}
    for row in rows:
        for guard in row.guards:
            if found.setdefault(guard.name, guard) is not guard:
                raise TableError(f"two guards are named {guard.name!r}: give one of them another name", row=str(row))


def _ordered(group: Sequence[Row]) -> None:
    for index, row in enumerate(group):
        for earlier in group[:index]:
            if set(earlier.guards) <= set(row.guards):
                raise TableError(f"shadowed: it can never fire, because this row fires first: {earlier}", row=str(row))
    if group[-1].guards:
        raise TableError(
            "the last row of a (source, event) must have no guard, or the run could be stuck there", row=str(group[-1])
        )


def _connected(rows: Iterable[Row], states: Iterable[State]) -> None:
    forward: dict[State, set[State]] = {}
    backward: dict[State, set[State]] = {}
    for row in rows:
        forward.setdefault(row.source, set()).add(row.target)
        backward.setdefault(row.target, set()).add(row.source)
    reached = _closure({INITIAL}, forward)
    for state in states:
        if state not in reached:
            named = next((str(row) for row in rows if row.source is state), "")
            raise TableError(f"unreachable: no path of rows leads from {INITIAL} to {state}", row=named)
    ends = _closure(set(TERMINAL), backward)
    for state in states:
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


def _ends(state: State, event: Event, rows: Sequence[Row]) -> None:
    """What comes from outside ends the run, and nothing is asked about it: else a run could be kept from ending, whoever stops it."""
    if not rows:
        raise TableError(
            f"{state} has no row for {event}, which can happen in every state that is not terminal: add one to ABORT"
        )
    for row in rows:
        if row.target is not State.ABORT or row.guards:
            raise TableError(
                f"a row for {event} leads to ABORT and has no guard, so that it ends the run", row=str(row)
            )


def _total(
    groups: Mapping[tuple[State, Event], Sequence[Row]],
    produced: Mapping[State, frozenset[Event]],
    states: Collection[State],
) -> None:
    for state, events in produced.items():
        for event in sorted(events):
            if (state, event) not in groups:
                raise TableError(f"{state} can return {event}, and the table has no row for it")
    for (state, event), group in groups.items():
        known = event in _FROM_OUTSIDE or event in produced.get(state, frozenset())
        if state in states and not known:
            raise TableError(f"{state} never returns {event}, so this row can never fire", row=str(group[0]))
