"""The enforcer: a `transitions.Machine` built from the table. The only module that imports `transitions`.

One machine serves all runs. It holds no run: what it moves is a cursor made for one event and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from transitions import Event as TransitionsEvent
from transitions import Machine as TransitionsMachine
from transitions import MachineError, Transition

from fsm_agent.alphabet import INITIAL, Event, State
from fsm_agent.checks import check_table
from fsm_agent.context import Cause, Context
from fsm_agent.errors import GuardFailed, IllegalTransition
from fsm_agent.guards import Compared, Guard
from fsm_agent.states import BEHAVIOURS, Behaviour
from fsm_agent.states.own import behaviours_of
from fsm_agent.table import TABLE, Row, Table
from fsm_agent.tools.plain import plain

__all__ = ["DEFAULT_MACHINE", "Evaluated", "Fired", "Machine"]


class Evaluated(NamedTuple):
    """A guard that was asked, what it said, and the values it compared."""

    guard: str
    result: bool
    values: Mapping[str, Any]


_Tried = tuple[Row, tuple[tuple[str, Callable[[Context], Compared]], ...]]
"""A row with what its guards are asked by."""


class Fired(NamedTuple):
    """One transition: the row that fired, every guard that was asked on the way, and the context in the target."""

    row: Row
    guards: tuple[Evaluated, ...]
    ctx: Context


class _Cursor:
    """What the library moves: a state and nothing else."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state


class _RowTransition(Transition):
    """A row as the library executes it."""

    row: Row | None = None

    def execute(self, event_data: Any) -> bool:
        """Move the cursor, which is all of `event_data` that is needed: there are no callbacks to hand the rest to.

        What a state does is an effect, and happens outside of the machine.
        """
        if self.row is None:
            return False
        event_data.state = self.row.target
        return True


class _RowEvent(TransitionsEvent):
    """An event as the library keeps it: the transitions of each source. Fired without the queue and callbacks of its own trigger."""

    def __init__(self, name: str, machine: TransitionsMachine) -> None:
        super().__init__(name, machine)
        self.of_row: dict[int, Transition] = {}

    def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
        """Execute the transition of the row, from the model's state. Raises `MachineError` when the state has none for this event."""
        source = model.state._name_
        if source not in self.transitions:
            raise MachineError(f"{self.name} has no transition from {source}")
        transition = self.of_row.get(id(kwargs["row"]))
        return transition is not None and transition.source == source and transition.execute(model)


class _Table(TransitionsMachine):
    event_cls = _RowEvent
    transition_cls = _RowTransition


class Machine:
    """The states, and the rows between them. Raises `fsm_agent.errors.TableError` for a table that breaks a law."""

    def __init__(self, rows: Sequence[Row] = TABLE, behaviours: Mapping[State, Behaviour] = BEHAVIOURS) -> None:
        own = rows.states if isinstance(rows, Table) else ()
        behaviours = {**behaviours, **behaviours_of(rows, own)}
        check_table(rows, {state: behaviour.events for state, behaviour in behaviours.items()}, own=own)
        self.table: Final[Sequence[Row]] = rows if isinstance(rows, Table) else tuple(rows)
        self.states: Final = (*State, *(one.name for one in own))
        self.rows: Final = tuple(rows)
        self.behaviours: Final = MappingProxyType(dict(behaviours))
        self._groups: Final[dict[tuple[str, str], tuple[_Tried, ...]]] = {}
        self._machine: Final = _Table(
            model=None,
            states=list(self.states),
            initial=INITIAL,
            auto_transitions=False,
            ignore_invalid_triggers=False,
            send_event=True,
        )
        for row in self.rows:
            key = (row.source.value, row.event.value)
            tried = (row, tuple((guard.name, _asked_by(guard)) for guard in row.guards))
            self._groups[key] = (*self._groups.get(key, ()), tried)
            self._machine.add_transition(row.event.value, row.source, row.target)
            kept: Any = self._machine.events[row.event.value]
            added = kept.transitions[row.source.name][-1]
            added.row, kept.of_row[id(row)] = row, added

    def fire(self, state: State, event: Event, ctx: Context) -> Fired:
        """The transition that the table gives for `event` in `state` under `ctx`. Pure: nothing is kept.

        Rows are tried in order, and each guard is asked once. The context of the result has the new sequence number and, on a row with a
        reason, the cause. Raises `fsm_agent.errors.IllegalTransition` when the table has no row for (state, event).
        """
        # `_value_` is what `value` reads through two calls of Python; this runs five times a step.
        name = event._value_
        row, asked = _choose(self._groups.get((state._value_, name), ()), ctx)
        trigger = self._machine.events.get(name)
        cursor = _Cursor(state)
        try:
            if trigger is None:
                raise MachineError(f"no row has the event {event!r}")
            trigger.trigger(cursor, row=row)
        except MachineError as error:
            possible = (
                ", ".join(sorted({one.event for one in self.rows if one.source is state})) or "none, it is terminal"
            )
            raise IllegalTransition(f"{event} cannot happen in {state}; events of {state}: {possible}") from error
        # What a trigger returns says little: whether the machine is where the row leads is what counts.
        if row is None or cursor.state is not row.target:
            raise IllegalTransition(f"no row for {event} in {state} let it through")
        cause = ctx.cause
        if row.reason is not None:
            first = row.guards[0].name if row.guards else ""
            cause = Cause(row.reason, first, asked[first].values if first else {})
        return Fired(row, tuple(asked.values()), ctx.change(seq=ctx.seq + 1, cause=cause))


def _asked_by(guard: Guard) -> Callable[[Context], Compared]:
    """How a guard is asked. One of somebody's own is named when it fails, and what it compared is made plain JSON data."""
    if not guard.is_own:
        return guard.test

    def asked(ctx: Context) -> Compared:
        try:
            result, values = guard.test(ctx)
            return bool(result), plain(dict(values))
        except Exception as error:
            raise GuardFailed(f"the guard {guard.name} failed: {type(error).__name__}: {error}") from error

    return asked


def _choose(rows: Sequence[_Tried], ctx: Context) -> tuple[Row | None, dict[str, Evaluated]]:
    """The first row whose guards all hold, with everything that was asked to find it."""
    asked: dict[str, Evaluated] = {}
    for row, guards in rows:
        for name, test in guards:
            known = asked.get(name)
            if known is None:
                result, values = test(ctx)
                # As `Evaluated` itself does it, without its call of Python.
                asked[name] = tuple.__new__(Evaluated, (name, result, values))
            else:
                result = known[1]
            if not result:
                break
        else:
            return row, asked
    return None, asked


DEFAULT_MACHINE: Final = Machine()
