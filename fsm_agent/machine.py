"""The enforcer: a `transitions.Machine` built from the table. The only module that imports `transitions`.

One machine serves all runs. It holds no run: what it moves is a cursor made for one event and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from transitions import EventData, MachineError
from transitions import Machine as TransitionsMachine

from fsm_agent.alphabet import INITIAL, Event, State
from fsm_agent.checks import check_table
from fsm_agent.context import Cause, Context
from fsm_agent.errors import IllegalTransition
from fsm_agent.guards import Guard
from fsm_agent.states import BEHAVIOURS, Behaviour
from fsm_agent.table import TABLE, Row

__all__ = ["DEFAULT_MACHINE", "Evaluated", "Fired", "Machine"]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A guard that was asked, what it said, and the values it compared."""

    guard: str
    result: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fired:
    """One transition: the row that fired, every guard that was asked on the way, and the context in the target."""

    row: Row
    guards: tuple[Evaluated, ...]
    ctx: Context


class _Cursor:
    """What the library moves: a state and nothing else."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state


@dataclass(slots=True)
class _Attempt:
    """One event being fired: guards are asked once each, and the row whose guards all held is noted."""

    ctx: Context
    asked: dict[str, Evaluated] = field(default_factory=dict)
    row: Row | None = None

    def holds(self, guard: Guard) -> bool:
        known = self.asked.get(guard.name)
        if known is None:
            result, values = guard.test(self.ctx)
            known = self.asked[guard.name] = Evaluated(guard.name, result, values)
        return known.result


class Machine:
    """The states, and the rows between them. Raises `fsm_agent.errors.TableError` at construction for a table that breaks a law."""

    def __init__(self, rows: Sequence[Row] = TABLE, behaviours: Mapping[State, Behaviour] = BEHAVIOURS) -> None:
        check_table(rows, {state: behaviour.events for state, behaviour in behaviours.items()})
        self.rows: Final = tuple(rows)
        self.behaviours: Final = MappingProxyType(dict(behaviours))
        self._machine: Final = TransitionsMachine(
            model=None, states=State, initial=INITIAL, auto_transitions=False, ignore_invalid_triggers=False, send_event=True
        )
        for row in self.rows:
            conditions = [*(_condition(guard) for guard in row.guards), _note(row)]
            self._machine.add_transition(row.event.value, row.source, row.target, conditions=conditions)

    def fire(self, state: State, event: Event, ctx: Context) -> Fired:
        """The transition that the table gives for `event` in `state` under `ctx`. Pure: nothing is kept.

        The context of the result has the new sequence number and, on a row with a reason, the cause.
        Raises `fsm_agent.errors.IllegalTransition` when the table has no row for (state, event).
        """
        trigger = self._machine.events.get(event.value)
        cursor, attempt = _Cursor(state), _Attempt(ctx)
        try:
            if trigger is None:
                raise MachineError(f"no row has the event {event!r}")
            trigger.trigger(cursor, attempt=attempt)
        except MachineError as error:
            possible = ", ".join(sorted({row.event for row in self.rows if row.source is state})) or "none, it is terminal"
            raise IllegalTransition(f"{event} cannot happen in {state}; events of {state}: {possible}") from error
        row = attempt.row
        if row is None or cursor.state is not row.target:
            raise IllegalTransition(f"no row for {event} in {state} let it through")
        asked = tuple(attempt.asked.values())
        changes: dict[str, Any] = {"seq": ctx.seq + 1}
        if row.reason is not None:
            first = row.guards[0].name if row.guards else ""
            changes["cause"] = Cause(row.reason, first, attempt.asked[first].values if first else {})
        return Fired(row, asked, ctx.change(**changes))


def _condition(guard: Guard) -> Callable[[EventData], bool]:
    def holds(event: EventData) -> bool:
        attempt: _Attempt = event.kwargs["attempt"]
        return attempt.holds(guard)

    return holds


def _note(row: Row) -> Callable[[EventData], bool]:
    """The last condition of a row: reached only when all its guards held, so the row is the one that fires."""

    def taken(event: EventData) -> bool:
        event.kwargs["attempt"].row = row
        return True

    return taken


DEFAULT_MACHINE: Final = Machine()
