"""The table: every row fires in a run that leads to it, and nothing happens that is not a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.clock import SystemClock
from fsm_agent.context import Cause, Context
from fsm_agent.dialects import JsonAction
from fsm_agent.effects import Answered, Approve, AskHuman, Broke, Cancelled, Expired
from fsm_agent.errors import IllegalTransition
from fsm_agent.jobs import Job
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.memory import SummaryWindow
from fsm_agent.reflection import Reflect
from fsm_agent.runs import Run
from fsm_agent.states import BEHAVIOURS, Step
from fsm_agent.table import TABLE, Row
from fsm_agent.tools import tool
from tests.core.builders import (
    ADD,
    ANSWERS,
    APPROVES,
    DENIES,
    STOPS,
    TOOLS,
    Line,
    Moment,
    add,
    asks,
    at,
    crashes,
    down,
    edits,
    fails,
    fold,
    gives,
    make_setup,
    raw,
    says,
    start,
    waits,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that ends with one row: the outcomes that lead there, and the guards that are asked at that row, in order.

    `asked` names each guard with "+" when it held and "-" when it did not.
    """

    script: Sequence[Line]
    asked: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    setup: Mapping[str, Any] = field(default_factory=dict)


@tool(fallback=add, map_fallback=lambda arguments: {"a": arguments["no such argument"]})
def unmappable(q: str) -> str:
    """Find something; the mapping to its fallback is broken."""
    return q


@tool(default="unknown")
def guessed(q: str) -> str:
    """Find something; a default stands in for it."""
    return q


PAY = asks(raw("pay", to="Ada", amount=5))
SHAKY = asks(raw("shaky", q="x"))
THINKS = says('{"action": "THINK", "action_input": {"thought": "hm"}}')
SAME = (ADD, gives("3")) * 2
STOP = {"on_limit": "stop"}


def APPROVES_LATE(effect: AskHuman) -> Answered:  # noqa: N802 - one of the lines of a script, like the others
    """A person's yes when the deadline has passed."""
    return Answered(decisions={call.id: Approve() for call in effect.calls}, at=5.0)


THRICE = (*(ADD, gives("3")), *(asks(raw("add", a=1, b=3)), gives("3")))
TWO_ROUNDS = (ADD, gives("3"), asks(raw("add", a=1, b=3)), gives("4"))
SUMMARY = {"memory": SummaryWindow(rounds=1, every=1)}
TWO_FAIL = (ADD, fails("one"), asks(raw("add", a=1, b=3)), fails("two"))
# A reply that spends most of a budget of 1,000 tokens, so that no further prompt fits.
SPENT = asks(raw("add", a=1, b=2), tokens=899)
REFLECT = {"reflect": Reflect(every=1)}
YES, NO = ('{"go_on": ' + word + ', "next_tool": null}' for word in ("true", "false"))
# What DECIDE asks on an ordinary step, as far as each of its rows.
LATE = "answer_failed- deadline_passed-"
FAILED = f"{LATE} circuit_open-"
BUDGET = f"{FAILED} model_unusable- token_budget_spent-"
RETRY = f"{BUDGET} retry_available-"
NUDGES = f"{RETRY} nudges_spent-"
DEGRADES = f"{NUDGES} failures_reached-"
PROGRESS = f"{DEGRADES} no_progress-"

CASES: Mapping[str, Case] = {
    "PLAN --replied--> VALIDATE": Case(script=[ADD]),
    "PLAN --model_failed--> DECIDE": Case(script=[down()]),
    "PLAN --withheld--> DECIDE": Case(script=[], limits={"token_budget": 1}),
    "PLAN --compacted--> PLAN": Case(script=[*TWO_ROUNDS, says("Notes.")], setup=SUMMARY),
    "PLAN --summary_failed--> PLAN": Case(script=[*TWO_ROUNDS, down()], setup=SUMMARY),
    "PLAN --overflowed--> PLAN": Case(script=[ADD, gives("3" * 4_000), down(overflow=True, retryable=False)]),
    "PLAN --gave_way--> PLAN": Case(script=[down(gives_way=True, retryable=False)]),
    "PLAN --reflected [told_to_stop, can_answer_now]--> DEGRADE": Case(
        script=[ADD, gives("3"), says(NO)], setup=REFLECT, asked="told_to_stop+ can_answer_now+"
    ),
    "PLAN --reflected [told_to_stop]--> ABORT": Case(
        script=[ADD, gives("3"), says(NO)], setup=REFLECT, limits=STOP, asked="told_to_stop+ can_answer_now-"
    ),
    "PLAN --reflected--> PLAN": Case(script=[ADD, gives("3"), says(YES)], setup=REFLECT, asked="told_to_stop-"),
    "PLAN --reflection_failed--> PLAN": Case(script=[ADD, gives("3"), says("maybe")], setup=REFLECT),
    "VALIDATE --answered--> FINISH": Case(script=[says("3")]),
    "VALIDATE --accepted [deadline_passed]--> ABORT": Case(
        script=[asks(raw("add", a=1, b=2), at=5.0)], limits={"deadline": 5.0}, asked="deadline_passed+"
    ),
    "VALIDATE --accepted [repeated_action, can_answer_now]--> DEGRADE": Case(
        script=[*SAME, ADD], asked="deadline_passed- repeated_action+ can_answer_now+"
    ),
    "VALIDATE --accepted [repeated_action]--> ABORT": Case(
        script=[*SAME, ADD], limits=STOP, asked="deadline_passed- repeated_action+ can_answer_now-"
    ),
    "VALIDATE --accepted [tool_calls_spent, can_answer_now]--> DEGRADE": Case(
        script=[ADD],
        limits={"max_tool_calls": 0},
        asked="deadline_passed- repeated_action- tool_calls_spent+ can_answer_now+",
    ),
    "VALIDATE --accepted [tool_calls_spent]--> ABORT": Case(
        script=[ADD],
        limits={"max_tool_calls": 0, **STOP},
        asked="deadline_passed- repeated_action- tool_calls_spent+ can_answer_now-",
    ),
    "VALIDATE --accepted [approval_required]--> REVIEW": Case(
        script=[PAY], asked="deadline_passed- repeated_action- tool_calls_spent- approval_required+"
    ),
    "VALIDATE --accepted--> EXECUTE": Case(
        script=[ADD], asked="deadline_passed- repeated_action- tool_calls_spent- approval_required-"
    ),
    "VALIDATE --thought--> OBSERVE": Case(script=[THINKS], setup={"dialect": JsonAction(think=True)}),
    "VALIDATE --rejected--> OBSERVE": Case(script=[says("")]),
    "REVIEW --approved [deadline_passed]--> ABORT": Case(
        script=[ADD, crashes("?", at=5.0), APPROVES_LATE], limits={"deadline": 5.0}, asked="deadline_passed+"
    ),
    "REVIEW --approved--> EXECUTE": Case(script=[PAY, APPROVES], asked="deadline_passed-"),
    "REVIEW --edited--> VALIDATE": Case(script=[PAY, edits(to="Ada", amount=1)]),
    "REVIEW --denied [stop_requested]--> ABORT": Case(script=[PAY, STOPS], asked="stop_requested+"),
    "REVIEW --denied--> OBSERVE": Case(script=[PAY, DENIES], asked="stop_requested-"),
    "REVIEW --expired--> ABORT": Case(script=[PAY, Expired()]),
    "REVIEW --answered--> OBSERVE": Case(script=[PAY, ANSWERS]),
    "EXECUTE --doubted [person_settles_doubt]--> REVIEW": Case(
        script=[ADD, crashes("?")], asked="person_settles_doubt+"
    ),
    "EXECUTE --doubted--> OBSERVE": Case(
        script=[ADD, crashes("?")], limits={"in_doubt": "tell"}, asked="person_settles_doubt-"
    ),
    "EXECUTE --executed--> OBSERVE": Case(script=[ADD, gives("3")]),
    "OBSERVE --observed--> DECIDE": Case(script=[ADD, gives("3")]),
    "DECIDE --decided [answer_failed]--> ABORT": Case(
        script=[ADD, says("")], limits={"max_tool_calls": 0}, asked="answer_failed+"
    ),
    "DECIDE --decided [circuit_open, model_failing]--> ABORT": Case(
        script=[down(), waits, down(), waits, down()],
        limits={"max_retries": 5},
        asked=f"{LATE} circuit_open+ model_failing+",
    ),
    "DECIDE --decided [circuit_open]--> ABORT": Case(
        script=[*TWO_FAIL, ADD, fails("three")], asked=f"{LATE} circuit_open+ model_failing-"
    ),
    "DECIDE --decided [model_unusable]--> ABORT": Case(
        script=[down(retryable=False)], asked=f"{FAILED} model_unusable+"
    ),
    "DECIDE --decided [token_budget_spent, can_answer_now]--> DEGRADE": Case(
        script=[SPENT, gives("3")],
        limits={"token_budget": 1_000},
        setup={"tools": (add,), "system": "Be brief."},
        asked=f"{FAILED} model_unusable- token_budget_spent+ can_answer_now+",
    ),
    "DECIDE --decided [token_budget_spent]--> ABORT": Case(
        script=[SPENT, gives("3")],
        limits={"token_budget": 1_000, **STOP},
        asked=f"{FAILED} model_unusable- token_budget_spent+ can_answer_now-",
    ),
    "DECIDE --decided [deadline_passed]--> ABORT": Case(
        script=[ADD, gives("3", at=5.0)], limits={"deadline": 5.0}, asked="answer_failed- deadline_passed+"
    ),
    "DECIDE --decided [retry_available]--> RETRY": Case(script=[down()], asked=f"{BUDGET} retry_available+"),
    "DECIDE --decided [nudges_spent]--> ABORT": Case(script=[says("")] * 3, asked=f"{RETRY} nudges_spent+"),
    "DECIDE --decided [failures_reached, can_degrade]--> DEGRADE": Case(
        script=TWO_FAIL, asked=f"{NUDGES} failures_reached+ can_degrade+"
    ),
    "DECIDE --decided [no_progress, can_answer_now]--> DEGRADE": Case(
        script=[*THRICE, *THRICE],
        limits={"no_progress_steps": 2},
        asked=f"{DEGRADES} no_progress+ can_answer_now+",
    ),
    "DECIDE --decided [no_progress]--> ABORT": Case(
        script=[*THRICE, *THRICE],
        limits={"no_progress_steps": 2, **STOP},
        asked=f"{DEGRADES} no_progress+ can_answer_now-",
    ),
    "DECIDE --decided [steps_spent, can_answer_now]--> DEGRADE": Case(
        script=[ADD, gives("3")], limits={"max_steps": 1}, asked=f"{PROGRESS} steps_spent+ can_answer_now+"
    ),
    "DECIDE --decided [steps_spent]--> ABORT": Case(
        script=[ADD, gives("3")], limits={"max_steps": 1, **STOP}, asked=f"{PROGRESS} steps_spent+ can_answer_now-"
    ),
    "DECIDE --decided--> PLAN": Case(script=[ADD, gives("3")], asked=f"{PROGRESS} steps_spent-"),
    "RETRY --waited [retrying_model]--> PLAN": Case(script=[down(), waits], asked="retrying_model+"),
    "RETRY --waited--> EXECUTE": Case(script=[ADD, fails(retryable=True), waits], asked="retrying_model-"),
    "DEGRADE --fallback_chosen--> VALIDATE": Case(script=[SHAKY, fails("one"), SHAKY, fails("two")]),
    "DEGRADE --strategy_changed--> PLAN": Case(script=TWO_FAIL),
    "DEGRADE --defaulted--> PLAN": Case(
        script=[asks(raw("guessed", q="x")), fails("one")],
        limits={"degrade_after": 1},
        setup={"tools": (*TOOLS, guessed), "ladder": ("default",)},
    ),
    "DEGRADE --simplified--> PLAN": Case(
        script=[ADD, fails("one")],
        limits={"degrade_after": 1},
        setup={"ladder": ("simpler",), "simpler": ("look",)},
    ),
    "DEGRADE --answer_forced--> PLAN": Case(script=[ADD], limits={"max_tool_calls": 0}),
    "DEGRADE --exhausted--> ABORT": Case(
        script=[asks(raw("unmappable", q="x")), fails("one")],
        limits={"degrade_after": 1},
        setup={"tools": (*TOOLS, unmappable), "ladder": ("fallback",)},
    ),
}

NO_RUNG_LEFT = Case(
    script=TWO_FAIL,
    limits={"max_degradations": 0},
    asked=f"{NUDGES} failures_reached+ can_degrade- no_progress- steps_spent-",
)
"""A way to the last row of DECIDE on which a guard gives the answer that no other run here gets of it."""


def moments_of(case: Case) -> list[Moment]:
    """The moments of the run of `case`."""
    return list(fold(start(make_setup(limits=case.limits, **case.setup)), case.script))


def outside_moment(row: Row) -> tuple[Context, Step]:
    """A run that arrives in the row's source and is stopped there from outside."""
    ctx = at(row.source)
    return ctx, Step(row.event, ctx.change(at=7.0))


def moment_of(row: Row) -> tuple[Context, Step]:
    """The context of a real run in which `row` is the one that fires, with the step that fires it."""
    if row.event in (Event.CANCELLED, Event.BROKE):
        return outside_moment(row)
    moments = moments_of(CASES[str(row)])
    fired = [moment for moment in moments if moment.fired.row is row]
    assert fired, f"{row} does not fire; what fires is {[str(moment.fired.row) for moment in moments]}"
    ctx = fired[-1].ctx
    return ctx, DEFAULT_MACHINE.behaviours[row.source].resolve(ctx, fired[-1].outcome)


def expected_row(ctx: Context, state: State, event: Event) -> Row:
    """What the table says by itself: the first row of (state, event) whose guards all hold."""
    return next(
        row
        for row in TABLE
        if (row.source, row.event) == (state, event) and all(guard.test(ctx)[0] for guard in row.guards)
    )


def test_every_row_has_a_run_that_leads_to_it_and_no_run_is_left_over() -> None:
    """A new row without a case fails here, and so does a case whose row is gone."""
    written = {str(row) for row in TABLE if row.event not in (Event.CANCELLED, Event.BROKE)}
    assert set(CASES) == written


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_fires_in_a_run_that_leads_to_it(row: Row) -> None:
    """For each row there is a run in which it is the one that fires, and the machine is then in its target."""
    ctx, step = moment_of(row)
    fired = DEFAULT_MACHINE.fire(row.source, step.event, step.ctx)
    assert fired.row is row
    assert fired.row is expected_row(step.ctx, row.source, row.event)
    assert fired.ctx.seq == ctx.seq + 1


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_is_asked_for_its_guards_in_the_order_of_the_table(row: Row) -> None:
    """The record of a transition holds each guard that was asked, once, in order, with its result and its values."""
    _, step = moment_of(row)
    fired = DEFAULT_MACHINE.fire(row.source, step.event, step.ctx)
    asked = [f"{one.guard}{'+' if one.result else '-'}" for one in fired.guards]
    assert asked == (CASES[str(row)].asked.split() if str(row) in CASES else [])
    assert [one.values for one in fired.guards] == [
        next(guard for row in TABLE for guard in row.guards if guard.name == one.guard).test(step.ctx)[1]
        for one in fired.guards
    ]


def test_failures_without_a_rung_left_lead_on_to_the_model() -> None:
    """Where there is nothing to degrade to, the run goes on until a limit is reached: the second guard of the row says no."""
    last = moments_of(NO_RUNG_LEFT)[-1].fired
    assert str(last.row) == "DECIDE --decided--> PLAN"
    assert [f"{one.guard}{'+' if one.result else '-'}" for one in last.guards] == NO_RUNG_LEFT.asked.split()


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_gives_its_reason_as_the_cause(row: Row) -> None:
    """A row with a reason leaves it as the cause, with its first guard and its values; any other keeps the cause."""
    _, step = moment_of(row)
    fired = DEFAULT_MACHINE.fire(row.source, step.event, step.ctx)
    if row.reason is None:
        assert fired.ctx.cause is step.ctx.cause
    else:
        first = row.guards[0] if row.guards else None
        values = {} if first is None else first.test(step.ctx)[1]
        assert fired.ctx.cause == Cause(row.reason, "" if first is None else first.name, values)
    assert row.target is not State.ABORT or fired.ctx.cause is not None


REASONS: Mapping[str, StopReason | None] = {
    "deadline_passed": StopReason.DEADLINE,
    "repeated_action": StopReason.REPEATED_ACTION,
    "tool_calls_spent": StopReason.MAX_TOOL_CALLS,
    "stop_requested": StopReason.DENIED,
    "circuit_open, model_failing": StopReason.MODEL_FAILED,
    "circuit_open": StopReason.CONSECUTIVE_FAILURES,
    "model_unusable": StopReason.MODEL_FAILED,
    "token_budget_spent": StopReason.TOKEN_BUDGET,
    "nudges_spent": StopReason.EMPTY_REPLY,
    "failures_reached": StopReason.CONSECUTIVE_FAILURES,
    "no_progress": StopReason.NO_PROGRESS,
    "told_to_stop": StopReason.REFLECTION,
    "steps_spent": StopReason.MAX_STEPS,
    "expired": StopReason.EXPIRED,
    "cancelled": StopReason.CANCELLED,
    "broke": StopReason.INTERNAL_ERROR,
}
"""Why a run stops, by what a row asks (whether something is left to degrade to aside), or by its event when it asks nothing."""


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_has_the_reason_of_what_it_asks(row: Row) -> None:
    """A limit has one name wherever it stops a run, and a row that stops nothing has none."""
    asks_for = ", ".join(one.name for one in row.guards if one.name not in ("can_answer_now", "can_degrade"))
    assert row.reason is REASONS.get(asks_for or row.event)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_firing_a_row_changes_the_sequence_number_and_the_cause_only(row: Row) -> None:
    """The machine decides; what a run knows is the states' business."""
    _, step = moment_of(row)
    fired = DEFAULT_MACHINE.fire(row.source, step.event, step.ctx)
    assert fired.ctx == step.ctx.change(seq=step.ctx.seq + 1, cause=fired.ctx.cause)


NOT_IN_THE_TABLE = sorted(set(product(State, Event)) - {(row.source, row.event) for row in TABLE})


@pytest.mark.parametrize(("state", "event"), NOT_IN_THE_TABLE, ids=str)
def test_an_event_without_a_row_is_refused(state: State, event: Event) -> None:
    """What is not in the table cannot happen: the run stays where it is, unchanged, and the error names both."""
    ctx = at(state)
    run = Run(ctx=ctx, job=Job(run_id="run-1", clock=SystemClock(), started=0.0), machine=DEFAULT_MACHINE, state=state)
    with pytest.raises(IllegalTransition, match=rf"{event} cannot happen in {state}"):
        run.advance(Step(event, ctx.change(step=99)))
    assert run.state is state
    assert run.ctx is ctx
    assert run.transitions == []


def test_there_are_as_many_refusals_as_the_table_leaves() -> None:
    """Every pair of a state and an event is either in the table or tested to be refused."""
    rows = {(row.source, row.event) for row in TABLE}
    assert len(NOT_IN_THE_TABLE) + len(rows) == len(State) * len(Event)
    assert all(state not in TERMINAL for state, _ in rows)


def test_the_refusal_says_what_can_happen_instead() -> None:
    """The error lists the events of the state, and says of a terminal one that it is."""
    with pytest.raises(IllegalTransition, match=r"events of RETRY: broke, cancelled, waited"):
        DEFAULT_MACHINE.fire(State.RETRY, Event.DECIDED, at(State.RETRY))
    with pytest.raises(IllegalTransition, match=r"events of FINISH: none, it is terminal"):
        DEFAULT_MACHINE.fire(State.FINISH, Event.DECIDED, at(State.FINISH))


def test_the_rows_are_those_of_the_design() -> None:
    """The parts of the design's table that are fixed: who may execute, who may finish, who may wait for a person."""
    targets = {target: {(row.source, row.event) for row in TABLE if row.target is target} for target in State}
    assert targets[State.EXECUTE] == {
        (State.VALIDATE, Event.ACCEPTED),
        (State.REVIEW, Event.APPROVED),
        (State.RETRY, Event.WAITED),
    }
    assert targets[State.FINISH] == {(State.VALIDATE, Event.ANSWERED)}
    assert targets[State.REVIEW] == {(State.VALIDATE, Event.ACCEPTED), (State.EXECUTE, Event.DOUBTED)}
    assert targets[State.RETRY] == targets[State.PLAN] - {
        (State.RETRY, Event.WAITED),
        (State.DEGRADE, Event.DEFAULTED),
        (State.DEGRADE, Event.STRATEGY_CHANGED),
        (State.DEGRADE, Event.SIMPLIFIED),
        (State.DEGRADE, Event.ANSWER_FORCED),
        (State.PLAN, Event.COMPACTED),
        (State.PLAN, Event.SUMMARY_FAILED),
        (State.PLAN, Event.OVERFLOWED),
        (State.PLAN, Event.GAVE_WAY),
        (State.PLAN, Event.REFLECTED),
        (State.PLAN, Event.REFLECTION_FAILED),
    }


def test_each_state_produces_the_events_of_its_rows() -> None:
    """The states and the table agree on what can happen where, cancellation and bugs apart."""
    rows = {(row.source, row.event) for row in TABLE if row.event not in (Event.CANCELLED, Event.BROKE)}
    assert rows == {(state, event) for state, behaviour in BEHAVIOURS.items() for event in behaviour.events}


def test_every_stop_reason_that_a_row_can_give_is_given_by_one() -> None:
    """The reasons of endings come from rows; the others are those of an answer, and of a resume in doubt."""
    given = {row.reason for row in TABLE if row.reason is not None}
    assert set(StopReason) - given == {StopReason.ANSWERED, StopReason.FORCED_ANSWER, StopReason.IN_DOUBT}


def test_a_stop_from_outside_is_taken_in_every_state_that_is_not_terminal() -> None:
    """Cancellation and a bug end a run wherever it is, and nothing stops one that has ended."""
    outcomes: tuple[Cancelled | Broke, ...] = (Cancelled("enough"), Broke(error="KeyError", message="x"))
    for state, outcome in product(State, outcomes):
        job = Job(run_id="run-1", clock=SystemClock(), started=0.0)
        run = Run(ctx=at(state), job=job, machine=DEFAULT_MACHINE, state=state)
        record = run.stop(outcome)
        assert (record is None) is (state in TERMINAL)
        assert run.state is (state if state in TERMINAL else State.ABORT)
