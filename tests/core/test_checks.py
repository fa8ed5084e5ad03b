"""The laws of a table: one deliberately broken table for each, refused at construction with the row that breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import guards as g
from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.checks import check_table
from fsm_agent.errors import DefinitionError, TableError
from fsm_agent.guards import Guard
from fsm_agent.machine import Machine
from fsm_agent.states import BEHAVIOURS
from fsm_agent.table import TABLE, Row

PRODUCED = {state: behaviour.events for state, behaviour in BEHAVIOURS.items()}


def without(source: State, event: Event, *more: Event) -> list[Row]:
    """The table without the rows of these events in `source`."""
    return [row for row in TABLE if not (row.source is source and row.event in (event, *more))]


def refused(rows: Sequence[Row], message: str, row: object) -> TableError:
    """The error with which a machine refuses `rows`; its message matches, and it names `row`."""
    with pytest.raises(TableError, match=message) as caught:
        Machine(rows)
    assert caught.value.row == ("" if row is None else str(row))
    assert str(row or "") in str(caught.value)
    return caught.value


def test_the_table_keeps_its_own_laws() -> None:
    """The table that runs are driven by is accepted, and building a machine of it changes nothing."""
    before = TABLE
    check_table(TABLE, PRODUCED)
    assert Machine(list(TABLE)).rows == before


def test_a_refusal_is_a_definition_error() -> None:
    """A bad table is a wrong definition: it is seen before any run, by the same `except` as every other."""
    assert isinstance(refused([], "the table has no rows", None), DefinitionError)


def foreign(field: str, value: Any) -> Row:
    """A row with something that the alphabet does not know."""
    row = replace(TABLE[0])
    object.__setattr__(row, field, value)
    return row


@pytest.mark.parametrize("field", ["source", "target"])
def test_an_unknown_state_is_refused(field: str) -> None:
    """A text that is spelled like a state is none: source and target are members of `State`."""
    row = foreign(field, "PLANN")
    refused([row, *TABLE], "unknown state: a source and a target must be one of PLAN, VALIDATE", row)


def test_a_text_spelled_like_a_state_is_refused() -> None:
    """`"PLAN"` equals `State.PLAN` but is not it, and a typing slip in a custom table should be seen."""
    row = foreign("target", "PLAN")
    refused([*TABLE, row], "unknown state", row)


def test_an_unknown_event_is_refused() -> None:
    """An event is a member of `Event`."""
    row = foreign("event", "exploded")
    refused([row, *TABLE], "unknown event: it must be one of replied, model_failed", row)


@pytest.mark.parametrize("guard", ["deadline_passed", lambda ctx: True, None], ids=["a name", "a function", "nothing"])
def test_an_unknown_guard_is_refused(guard: Any) -> None:
    """A guard is a `Guard`: it has a sentence and says what it compared; neither a name nor a bare function does."""
    row = Row(State.DECIDE, Event.DECIDED, State.PLAN, (guard,))
    refused([row, *TABLE], "unknown guard", "DECIDE --decided--> PLAN")


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_row_out_of_a_terminal_state_is_refused(state: State) -> None:
    """A run that has ended stays ended."""
    row = Row(state, Event.DECIDED, State.PLAN)
    refused([*TABLE, row], f"{state} is terminal and cannot be left", row)


def test_a_state_that_no_path_leads_to_is_refused() -> None:
    """Every state can be reached; the error names a row out of the one that cannot."""
    rows = [
        Row(row.source, row.event, State.ABORT, row.guards, StopReason.DENIED) if row.target is State.REVIEW else row
        for row in TABLE
    ]
    first = next(row for row in TABLE if row.source is State.REVIEW)
    refused(rows, "unreachable: no path of rows leads from PLAN to REVIEW", first)


def test_a_state_that_only_itself_leads_to_is_refused() -> None:
    """A circle of states that the start does not lead to is no way to be reached."""
    rows = [row for row in TABLE if State.RETRY not in (row.source, row.target)]
    alone = [
        Row(State.RETRY, Event.WAITED, State.RETRY),
        Row(State.RETRY, Event.CANCELLED, State.ABORT, (), StopReason.CANCELLED),
        Row(State.RETRY, Event.BROKE, State.ABORT, (), StopReason.INTERNAL_ERROR),
    ]
    refused([*rows, *alone], "unreachable: no path of rows leads from PLAN to RETRY", alone[0])


def test_a_state_from_which_no_run_can_end_is_refused() -> None:
    """From every state a terminal one can be reached; the error names a row of the trap."""
    trapped = {State.RETRY, State.EXECUTE}
    rows = [row for row in TABLE if row.source not in trapped]
    trap = [Row(State.EXECUTE, Event.EXECUTED, State.RETRY), Row(State.RETRY, Event.WAITED, State.EXECUTE)]
    refused([*rows, *trap], "trap: no path of rows leads from EXECUTE to a terminal state", trap[0])


@pytest.mark.parametrize(
    "guards",
    [(), (g.deadline_passed,), (g.deadline_passed, g.can_answer_now), (g.can_answer_now, g.deadline_passed)],
    ids=["after an unguarded row", "the same row again", "with more guards", "with more guards, in another order"],
)
def test_a_row_that_an_earlier_one_always_beats_is_refused(guards: tuple[Guard, ...]) -> None:
    """A row whose guards include all of an earlier row of its event can never fire; the error names both."""
    earlier = Row(State.DECIDE, Event.DECIDED, State.PLAN, (g.deadline_passed,)) if guards else TABLE[0]
    row = Row(earlier.source, earlier.event, State.PLAN if guards else State.VALIDATE, guards)
    error = refused([earlier, row, *TABLE[1:]] if not guards else [earlier, row, *TABLE], "shadowed", row)
    assert f"this row fires first: {earlier}" in str(error)


def test_a_row_with_fewer_guards_behind_one_with_more_is_accepted() -> None:
    """Special before general is the order that the table is written in."""
    extra = Row(State.DECIDE, Event.DECIDED, State.ABORT, (g.answer_failed, g.no_progress), StopReason.NO_PROGRESS)
    check_table([extra, *TABLE], PRODUCED)


def test_a_group_whose_last_row_has_a_guard_is_refused() -> None:
    """Otherwise a run could be in a state with an event that no row lets through."""
    row = Row(State.RETRY, Event.WAITED, State.EXECUTE, (g.retry_available,))
    rows = [row if (one.source, one.event, one.guards) == (row.source, row.event, ()) else one for one in TABLE]
    refused(rows, r"the last row of a \(source, event\) must have no guard", row)


@pytest.mark.parametrize("target", [State.ABORT, State.DEGRADE])
def test_a_stop_without_a_reason_is_refused(target: State) -> None:
    """Whatever stops or degrades a run says why."""
    row = Row(State.REVIEW, Event.DENIED, target, (g.deadline_passed,))
    refused([row, *TABLE], f"a row to {target} must say why: give it a reason", row)


def test_a_reason_on_a_row_that_stops_nothing_is_refused() -> None:
    """A reason that no ending shows would be noise, or a wrong target."""
    row = replace(TABLE[0], reason=StopReason.MAX_STEPS)
    refused([row, *TABLE[1:]], "a row to VALIDATE does not stop the run, so it cannot have the reason max_steps", row)


@pytest.mark.parametrize("event", [Event.CANCELLED, Event.BROKE])
@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
def test_a_state_that_cannot_be_stopped_from_outside_is_refused(state: State, event: Event) -> None:
    """Every state that is not terminal has a row for a cancellation and one for a bug."""
    refused(without(state, event), f"{state} has no row for {event}, .* add one to ABORT", None)


def test_an_event_that_a_state_produces_needs_a_row() -> None:
    """Else the run would break on the first such event."""
    rows = without(State.PLAN, Event.WITHHELD)
    refused(rows, "PLAN can return withheld, and the table has no row for it", None)


def test_a_row_whose_event_its_state_never_produces_is_refused() -> None:
    """Such a row can never fire, so it says something untrue."""
    row = Row(State.PLAN, Event.WAITED, State.PLAN)
    refused([*TABLE, row], "PLAN never returns waited, so this row can never fire", row)


def test_which_events_are_produced_is_checked_only_when_it_is_known() -> None:
    """A table alone can be checked for all laws but that one."""
    check_table([*TABLE, Row(State.PLAN, Event.WAITED, State.PLAN)])
    with pytest.raises(TableError):
        check_table([*TABLE, Row(State.PLAN, Event.WAITED, State.PLAN)], PRODUCED)


@given(st.permutations([[row for row in TABLE if row.source is state] for state in State]))
def test_states_may_be_listed_in_any_order(groups: list[list[Row]]) -> None:
    """Only rows of one (source, event) are tried in order; the order of the groups says nothing."""
    check_table([row for group in groups for row in group], PRODUCED)
