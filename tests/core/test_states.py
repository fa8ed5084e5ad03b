"""What holds for every state: it is pure, returns its own events only, and refuses an outcome that is not its own."""

from __future__ import annotations

import pytest
from hypothesis import given

from fsm_agent.alphabet import INITIAL, TERMINAL, State, Status, StopReason
from fsm_agent.context import Cause, Failure
from fsm_agent.dialects.base import Done
from fsm_agent.effects import (
    Answered,
    AskHuman,
    Broke,
    Call,
    CallModel,
    CallTools,
    Cancelled,
    Doubted,
    Expired,
    ModelFailed,
    Outcome,
    Replied,
    Returned,
    Wait,
    Waited,
)
from fsm_agent.states import BEHAVIOURS, ENDINGS, Step
from fsm_agent.states.base import Ending
from tests.core.builders import (
    ADD,
    APPROVES,
    DENIES,
    STOPS,
    Line,
    at,
    crashes,
    down,
    edits,
    fails,
    frozen,
    gives,
    says,
    waits,
)
from tests.core.builders import ANSWERS as SAYS
from tests.core.strategies import outcomes

# What each state that asks for something is answered with.
ANSWERS: dict[State, tuple[type, ...]] = {
    State.PLAN: (Replied, ModelFailed),
    State.REVIEW: (Answered, Expired),
    State.EXECUTE: (Returned, Doubted),
    State.RETRY: (Waited,),
}
EFFECTS: dict[State, type] = {
    State.PLAN: CallModel,
    State.REVIEW: AskHuman,
    State.EXECUTE: CallTools,
    State.RETRY: Wait,
}
EXAMPLES: tuple[Outcome, ...] = (
    Replied(text="x"),
    ModelFailed(error="E", message="m", retryable=False),
    Returned(results=()),
    Doubted(calls=()),
    Waited(),
    Answered(decisions={}),
    Expired(),
    Cancelled(),
    Broke(error="E", message="m"),
)
SILENCE = Answered(decisions={})
# Every way on from every state.
LINES: list[tuple[State, Line | None]] = [
    *((State.PLAN, line) for line in (ADD, says("3"), says(""), down(), down(retryable=False), None)),
    *(
        (State.REVIEW, line)
        for line in (APPROVES, DENIES, STOPS, SAYS, edits(to="Ada", amount=1), Answered(decisions={}), Expired())
    ),
    *(
        (State.EXECUTE, line)
        for line in (gives("3"), fails("boom"), fails("boom", retryable=True), crashes("?"), crashes("+"))
    ),
    (State.RETRY, waits),
    *((state, None) for state in (State.VALIDATE, State.OBSERVE, State.DECIDE, State.DEGRADE)),
]


def name(value: object) -> str:
    """A parameter by name, the same in every process."""
    if value is None or isinstance(value, State):
        return str(value)
    return getattr(value, "__qualname__", type(value).__name__).partition(".")[0]


def step(state: State, line: Line | None) -> tuple[Step, Step]:
    """The same outcome resolved twice from the same context, which must not change."""
    ctx, behaviour = at(state), BEHAVIOURS[state]
    before = frozen(ctx)
    first, second = behaviour.enter(ctx), behaviour.enter(ctx)
    assert first == second
    outcome = line(first) if callable(line) else line
    found = behaviour.resolve(ctx, outcome), behaviour.resolve(ctx, outcome)
    assert frozen(ctx) == before
    return found


@pytest.mark.parametrize(("state", "line"), LINES, ids=name)
def test_a_state_is_pure(state: State, line: Line | None) -> None:
    """The same context and outcome give an equal effect, event and context, twice, and change nothing in place."""
    first, second = step(state, line)
    assert first == second
    assert frozen(first.ctx) == frozen(second.ctx)


@pytest.mark.parametrize(("state", "line"), LINES, ids=name)
def test_a_state_returns_one_of_its_events(state: State, line: Line | None) -> None:
    """What a state can return is what it says it can; the table is checked against that."""
    assert step(state, line)[0].event in BEHAVIOURS[state].events


def test_every_state_but_the_terminal_ones_has_a_behaviour_and_those_have_an_ending() -> None:
    """A run is driven by behaviours until one of the endings."""
    assert set(BEHAVIOURS) == set(State) - TERMINAL
    assert set(ENDINGS) == TERMINAL
    assert {state for state, _ in LINES} == set(BEHAVIOURS)
    assert INITIAL is State.PLAN


@pytest.mark.parametrize("state", BEHAVIOURS)
def test_a_state_asks_for_its_own_effect_or_for_none(state: State) -> None:
    """Four states ask for something outside; the others only compute."""
    effect = BEHAVIOURS[state].enter(at(state))
    assert type(effect) is EFFECTS.get(state, type(None))


@pytest.mark.parametrize("outcome", EXAMPLES, ids=lambda outcome: outcome.kind)
@pytest.mark.parametrize("state", ANSWERS)
def test_an_outcome_of_another_effect_is_refused(state: State, outcome: Outcome) -> None:
    """A mix-up in whoever performs effects is a `TypeError` that names both, never a silent fold."""
    if isinstance(outcome, ANSWERS[state]):
        BEHAVIOURS[state].resolve(at(state), outcome)
        return
    with pytest.raises(TypeError, match=f"{state} cannot fold {type(outcome).__name__}"):
        BEHAVIOURS[state].resolve(at(state), outcome)


@pytest.mark.parametrize("state", [State.REVIEW, State.EXECUTE, State.RETRY])
def test_a_missing_outcome_is_refused(state: State) -> None:
    """Only PLAN may go without its effect: when the prompt does not fit the budget."""
    with pytest.raises(TypeError, match=f"{state} cannot fold NoneType"):
        BEHAVIOURS[state].resolve(at(state), None)


@pytest.mark.parametrize("state", ANSWERS)
@given(outcome=outcomes)
def test_any_outcome_is_folded_or_refused_and_changes_nothing_in_place(state: State, outcome: Outcome) -> None:
    """For any outcome a state gives an event of its own, twice the same, or refuses it by type."""
    ctx, behaviour = at(state), BEHAVIOURS[state]
    before = frozen(ctx)
    if isinstance(outcome, ANSWERS[state]):
        first = behaviour.resolve(ctx, outcome)
        assert first.event in behaviour.events
        assert behaviour.resolve(ctx, outcome) == first
    else:
        with pytest.raises(TypeError):
            behaviour.resolve(ctx, outcome)
    assert frozen(ctx) == before


# ---------------------------------------------------------------- endings

CAUSE = Cause(StopReason.MAX_STEPS, "steps_spent", {"steps": 10, "max_steps": 10})
CALL = Call(id="a", name="look", tool="look")


def test_an_answer_completes_the_run() -> None:
    """FINISH gives the answer, as it is, with the number of steps."""
    ending = ENDINGS[State.FINISH](at(State.FINISH))
    assert ending == Ending(Status.COMPLETED, StopReason.ANSWERED, "3", "answered after 1 step")


def test_a_forced_answer_is_partial_and_says_at_which_limit() -> None:
    """The guard, the limit and the value are in the detail."""
    ending = ENDINGS[State.FINISH](at(State.FINISH, forced=True, cause=CAUSE))
    assert (ending.status, ending.reason, ending.answer) == (Status.PARTIAL, StopReason.FORCED_ANSWER, "3")
    assert "max_steps (steps_spent: steps=10, max_steps=10)" in ending.detail


def test_an_answer_that_was_not_forced_is_complete_whatever_happened_before() -> None:
    """A run that degraded and then answered by itself has completed."""
    assert ENDINGS[State.FINISH](at(State.FINISH, cause=CAUSE)).status is Status.COMPLETED


def test_an_abort_says_which_guard_compared_what_and_how_far_the_run_came() -> None:
    """The detail has the reason, the guard and its values, the steps, the last failure and the last useful result."""
    done = Done(CALL, gives("42 apples")(CallTools(calls=(CALL,))).results[0])
    failure = Failure("tool", "look", "boom " * 200)
    ending = ENDINGS[State.ABORT](at(State.ABORT, cause=CAUSE, failure=failure, done=(done,), step=7))
    assert (ending.status, ending.reason, ending.answer) == (Status.FAILED, StopReason.MAX_STEPS, None)
    for part in ("steps_spent: steps=10, max_steps=10", "7 steps", "look: boom", "from look: 42 apples"):
        assert part in ending.detail
    assert len(ending.detail) < 600


def test_an_abort_names_what_failed_once() -> None:
    """A failure that begins with the name of its tool stands in the detail as it is."""
    said = ENDINGS[State.ABORT](
        at(State.ABORT, cause=CAUSE, failure=Failure("tool", "look", "look failed: boom"))
    ).detail
    assert said.endswith("; last failure: look failed: boom")


def test_an_error_that_a_guard_compared_is_told_once() -> None:
    """The row of a model that cannot be used has its error among the values: the detail does not repeat it."""
    cause = Cause(StopReason.MODEL_FAILED, "model_unusable", {"failure": "model", "error": "ConnectError: refused"})
    failure = Failure("model", "model", "ConnectError: refused")
    assert ENDINGS[State.ABORT](at(State.ABORT, cause=cause, failure=failure)).detail.count("ConnectError") == 1


def test_a_cancelled_run_is_cancelled_and_blames_nobody() -> None:
    """A cancellation is no failure, and no earlier failure is shown as its reason."""
    ending = ENDINGS[State.ABORT](at(State.ABORT, failure=Failure("tool", "look", "boom")))
    assert (ending.status, ending.reason) == (Status.CANCELLED, StopReason.CANCELLED)
    assert "boom" not in ending.detail


def test_a_bug_ends_the_run_as_an_internal_error_that_says_what_it_was() -> None:
    """Whoever reads the result learns which error of which class it was."""
    ctx = at(State.ABORT, script=[lambda _: Broke(error="KeyError", message="'x'")])
    ending = ENDINGS[State.ABORT](ctx)
    assert (ending.status, ending.reason) == (Status.FAILED, StopReason.INTERNAL_ERROR)
    assert "KeyError" in ending.detail


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason is not StopReason.CANCELLED])
def test_every_other_reason_is_a_failure_with_that_reason(reason: StopReason) -> None:
    """The reason of the row is the reason of the ending."""
    ending = ENDINGS[State.ABORT](at(State.ABORT, cause=Cause(reason)))
    assert (ending.status, ending.reason) == (Status.FAILED, reason)
    assert ending.detail.startswith(reason)


def test_a_context_refuses_a_field_that_it_does_not_have() -> None:
    """A misspelt change would be a silent bug in a state."""
    with pytest.raises(TypeError, match="stepp"):
        at(State.PLAN).change(stepp=1)
