"""The machine: one enforcer for all runs, that keeps nothing and never says that something happened when it did not."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fsm_agent import guards as g
from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.context import Context
from fsm_agent.errors import GuardFailed, IllegalTransition, TableError
from fsm_agent.guards import Guard
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.states import BEHAVIOURS
from fsm_agent.table import TABLE, Row
from tests.core.builders import ADD, Line, at, down, fold, frozen, gives, path, play, says, start, waits


def counting(name: str, result: bool = False) -> tuple[Guard, list[Context]]:
    """A guard that notes who asks it."""
    asked: list[Context] = []

    def test(ctx: Context) -> tuple[bool, Mapping[str, Any]]:
        asked.append(ctx)
        return result, {"times": len(asked)}

    return Guard(name, "something is counted", test), asked


def custom(*rows: Row) -> Machine:
    """A machine with `rows` before those of the table."""
    return Machine([*rows, *TABLE])


# ---------------------------------------------------------------- pure


def test_firing_keeps_nothing_and_changes_nothing() -> None:
    """The same state, event and context give an equal transition, and the context that was given is as it was."""
    ctx = at(State.DECIDE)
    before = frozen(ctx)
    assert DEFAULT_MACHINE.fire(State.DECIDE, Event.DECIDED, ctx) == DEFAULT_MACHINE.fire(
        State.DECIDE, Event.DECIDED, ctx
    )
    assert frozen(ctx) == before


def test_a_guard_is_asked_once_for_each_event() -> None:
    """Two rows with the same guard get one answer, so a record cannot contradict itself."""
    guard, asked = counting("counted")
    rows = [
        Row(State.RETRY, Event.WAITED, State.ABORT, (guard, g.deadline_passed), StopReason.DEADLINE),
        Row(State.RETRY, Event.WAITED, State.ABORT, (guard, g.circuit_open), StopReason.CONSECUTIVE_FAILURES),
        Row(State.RETRY, Event.WAITED, State.ABORT, (g.no_progress, guard), StopReason.NO_PROGRESS),
    ]
    fired = custom(*rows).fire(State.RETRY, Event.WAITED, at(State.RETRY))
    assert len(asked) == 1
    assert [one.guard for one in fired.guards] == ["counted", "no_progress", "retrying_model"]


def test_a_row_whose_first_guard_fails_asks_no_further() -> None:
    """Guards of a row are asked in order, and the first that does not hold ends the row."""
    guard, asked = counting("counted", result=True)
    row = Row(State.RETRY, Event.WAITED, State.ABORT, (g.deadline_passed, guard), StopReason.DEADLINE)
    custom(row).fire(State.RETRY, Event.WAITED, at(State.RETRY))
    assert asked == []


def test_a_guard_of_another_event_is_not_asked() -> None:
    """Only the rows of (state, event) are looked at."""
    guard, asked = counting("counted", result=True)
    row = Row(State.DECIDE, Event.DECIDED, State.ABORT, (guard,), StopReason.DEADLINE)
    custom(row).fire(State.RETRY, Event.WAITED, at(State.RETRY))
    assert asked == []


def test_the_cause_is_the_first_guard_of_the_row_that_fired() -> None:
    """The cause names the limit; a second guard only chose between degrading and aborting."""
    guard, _ = counting("counted", result=True)
    row = Row(State.RETRY, Event.WAITED, State.ABORT, (guard, g.retrying_model), StopReason.DEADLINE)
    cause = custom(row).fire(State.RETRY, Event.WAITED, at(State.RETRY)).ctx.cause
    assert cause is not None
    assert (cause.reason, cause.guard, cause.values) == (StopReason.DEADLINE, "counted", {"times": 1})


def test_a_guard_that_raises_fires_nothing() -> None:
    """F03: the error of a guard is not swallowed by the library; the caller sees it with the guard's name, and no row has fired."""

    def test(ctx: Context) -> tuple[bool, Mapping[str, Any]]:
        raise KeyError("a bug")

    row = Row(State.RETRY, Event.WAITED, State.ABORT, (Guard("bad", "it breaks", test),), StopReason.DEADLINE)
    with pytest.raises(GuardFailed, match="the guard bad failed: KeyError: 'a bug'"):
        custom(row).fire(State.RETRY, Event.WAITED, at(State.RETRY))


# ---------------------------------------------------------------- the library


@pytest.mark.parametrize("said", [True, False, None])
def test_what_the_library_returns_is_not_believed(said: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """F01: a trigger that says yes and does not move is refused; only where the machine is counts."""
    machine, ctx = Machine(), at(State.RETRY)
    monkeypatch.setattr(type(machine._machine.events["waited"]), "trigger", lambda *args, **kwargs: said)
    with pytest.raises(IllegalTransition, match="no row for waited in RETRY let it through"):
        machine.fire(State.RETRY, Event.WAITED, ctx)


def test_the_library_has_no_way_but_the_rows() -> None:
    """F06: no automatic transitions and no callbacks: as many transitions as rows, and no other event."""
    library = DEFAULT_MACHINE._machine
    assert set(library.events) == {row.event.value for row in TABLE}
    assert len(library.get_transitions()) == len(TABLE)
    for transition in library.get_transitions():
        assert not [*transition.before, *transition.after, *transition.prepare, *transition.conditions]
    for state in library.states.values():
        assert not [*state.on_enter, *state.on_exit]
    assert not [*library.before_state_change, *library.after_state_change, *library.prepare_event]
    assert not [*library.finalize_event, *library.on_exception, *library.on_final]


def test_one_machine_serves_all_runs_and_keeps_none_alive() -> None:
    """F10: a thousand contexts are gone when their runs are, and the machine has no model that would hold them."""
    ctx = at(State.RETRY)
    seen = [
        weakref.ref(DEFAULT_MACHINE.fire(State.RETRY, Event.WAITED, ctx.change(run_id=f"run-{number}")).ctx)
        for number in range(1_000)
    ]
    gc.collect()
    assert [one() for one in seen if one() is not None] == []
    assert DEFAULT_MACHINE._machine.models == []


def test_threads_share_the_machine_without_mixing_their_runs() -> None:
    """F07, A07: concurrent events on one machine each get their own row and their own context."""
    barrier = threading.Barrier(8)

    def many(number: int) -> set[tuple[State, int]]:
        failing = number % 2 == 0
        ctx = at(State.DECIDE, step=number).change(failures=3 if failing else 0)
        barrier.wait()
        fired = [DEFAULT_MACHINE.fire(State.DECIDE, Event.DECIDED, ctx) for _ in range(200)]
        return {(one.row.target, one.ctx.step) for one in fired}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(many, range(8)))
    assert found == [{(State.ABORT if number % 2 == 0 else State.PLAN, number)} for number in range(8)]


def test_the_library_logs_nothing_into_the_hosts_log(caplog: pytest.LogCaptureFixture) -> None:
    """A run has one log event a transition, ours; the library's own lines do not come on top at the usual level."""
    with caplog.at_level(logging.INFO):
        play(ADD, gives("3"), says("3"))
    assert caplog.records == []


# ---------------------------------------------------------------- tables of one's own


def test_a_row_of_ones_own_is_driven_like_any_other() -> None:
    """A custom table is a table: special rows go before general ones."""
    row = Row(State.RETRY, Event.WAITED, State.ABORT, (g.model_failing,), StopReason.MODEL_FAILED)
    script: list[Line] = [down(), waits]
    assert path(list(fold(start(), script, machine=custom(row))))[-1] is State.ABORT
    assert path(list(fold(start(), script)))[-1] is State.PLAN


def test_a_machine_does_not_see_later_changes_of_what_it_was_given() -> None:
    """Rows and behaviours are taken over at construction."""
    rows, behaviours = list(TABLE), dict(BEHAVIOURS)
    machine = Machine(rows, behaviours)
    rows.clear()
    behaviours.clear()
    assert machine.rows == TABLE
    assert machine.fire(State.RETRY, Event.WAITED, at(State.RETRY)).row.target is State.PLAN
    assert set(machine.behaviours) == set(BEHAVIOURS)


def test_a_table_without_the_rows_for_a_behaviour_is_refused() -> None:
    """What the states can return is part of the check, whoever made the states."""
    behaviours = dict(BEHAVIOURS)
    del behaviours[State.RETRY]
    with pytest.raises(TableError, match="RETRY never returns waited"):
        Machine(TABLE, behaviours)


def test_an_event_that_no_row_has_is_refused() -> None:
    """F01: an event that the library does not even know is refused like any other."""
    rows = [row for row in TABLE if row.event is not Event.THOUGHT]
    validate = BEHAVIOURS[State.VALIDATE]
    quiet = type(validate)(validate.events - {Event.THOUGHT}, validate.enter, validate.resolve)
    machine = Machine(rows, {**BEHAVIOURS, State.VALIDATE: quiet})
    with pytest.raises(IllegalTransition, match="thought cannot happen in VALIDATE"):
        machine.fire(State.VALIDATE, Event.THOUGHT, at(State.VALIDATE))


@pytest.mark.parametrize("make", [tuple, list], ids=["a tuple", "a list"])
def test_the_same_rows_make_the_same_machine(make: Callable[[Any], Any]) -> None:
    """Two machines of one table fire alike: nothing depends on which of them a run has."""
    ctx = at(State.DECIDE)
    other = Machine(make(TABLE)).fire(State.DECIDE, Event.DECIDED, ctx)
    assert other == DEFAULT_MACHINE.fire(State.DECIDE, Event.DECIDED, ctx)
