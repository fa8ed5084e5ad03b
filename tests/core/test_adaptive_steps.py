"""The adaptive cap on steps: what earns a step, what does not, and that a run is bounded all the same."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent, Limits, Status, StopReason, tool
from fsm_agent.alphabet import Event, State
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, forever
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.verify import verify
from tests.core.builders import Line, asks, fails, gives, mixed, play, raw, says, waits

RUN: Any = {"configurable": {"run_id": "r"}}
LIMITS = Limits(max_steps="adaptive", base_steps=2, earned_steps=1, most_steps=5, no_progress_steps=9)
LOOK, POLL = asks(raw("look", q="x")), asks(raw("poll", job=1))
BOTH = asks(raw("look", q="x"), raw("add", a=1, b=2))
SHAKY = asks(raw("shaky", q="x"))


def useful(*script: Line) -> int:
    """The useful steps after the script."""
    return play(*script, limits={"backoff": 0.0})[-1].fired.ctx.useful_steps


@pytest.mark.parametrize(
    ("script", "count"),
    [
        pytest.param((LOOK, gives("1"), says("ok")), 1, id="a new result"),
        pytest.param((LOOK, gives("1"), POLL, gives("2"), says("ok")), 2, id="two of them"),
        pytest.param((LOOK, gives("1"), LOOK, gives("1"), says("ok")), 1, id="the same result again"),
        pytest.param((LOOK, fails("no"), says("ok")), 0, id="a failure"),
        pytest.param((LOOK, fails("no", retryable=True), waits, gives("1"), says("ok")), 1, id="a retry that succeeds"),
        pytest.param(
            (BOTH, mixed(True, False, retryable=True), waits, gives("3"), says("ok")),
            1,
            id="once, though a retry brings more",
        ),
        pytest.param((SHAKY, fails("1"), SHAKY, fails("2"), gives("3"), says("ok")), 1, id="a fallback that succeeds"),
        pytest.param((says(""), says("ok")), 0, id="an empty reply"),
        pytest.param((asks(raw("nothing")), says("ok")), 0, id="a call that is refused"),
    ],
)
def test_a_step_is_useful_when_a_call_gave_something_new(script: tuple[Line, ...], count: int) -> None:
    """Only results that were not known count, once a step, whichever attempt or tool gave them."""
    assert useful(*script) == count


@tool
def fresh(n: int) -> int:
    """A new result each time."""
    return n


def agent_of(model: ScriptedModel, **options: Any) -> Agent:
    """An agent with an adaptive cap that logs nothing."""
    return Agent(model, [fresh], logger=silent_logger(), clock=FakeClock(), **{"limits": LIMITS, **options})


def test_a_run_that_learns_may_go_on_up_to_the_ceiling() -> None:
    """Each useful step earns one more, until the ceiling; then an answer is asked for, and the detail shows the cap."""
    model = ScriptedModel([*(call("fresh", n=n) for n in range(5)), "enough"])
    result = agent_of(model).invoke("count")
    assert (result.status, result.reason, result.steps) == (Status.PARTIAL, StopReason.FORCED_ANSWER, 5)
    assert "steps_spent: steps=5, max_steps=5, useful_steps=5, most_steps=5" in result.detail


def test_a_run_that_learns_nothing_ends_at_the_base() -> None:
    """Steps that teach nothing earn nothing."""
    model = ScriptedModel([call("fresh", n=1), call("fresh", n=1), call("nothing"), "enough"])
    result = agent_of(model).invoke("count")
    assert (result.reason, result.steps) == (StopReason.FORCED_ANSWER, 3)
    asked = [
        one.values["max_steps"] for record in result.transitions for one in record.guards if one.guard == "steps_spent"
    ]
    assert asked == [3, 3, 3]


def test_a_model_that_never_answers_is_bounded() -> None:
    """However much is learned, the ceiling holds."""
    count = iter(range(1_000))
    model = ScriptedModel([forever(lambda request: call("fresh", n=next(count)))])
    result = agent_of(model, limits=LIMITS.replace(on_limit="stop")).invoke("count")
    assert (result.reason, result.steps) == (StopReason.MAX_STEPS, 5)


def test_a_resumed_run_keeps_what_it_has_earned() -> None:
    """The fold counts useful steps again, from the trail alone."""
    store = MemoryTrail()
    first = agent_of(ScriptedModel([call("fresh", n=n) for n in range(2)]), store=store).pause_at(after_step=2)
    assert first.invoke("count", RUN).status is Status.SUSPENDED
    again = agent_of(ScriptedModel([call("fresh", n=2), "done"]), store=store)
    result = again.resume("r")
    assert (result.status, result.steps) == (Status.COMPLETED, 4)
    assert audit(again.journal, "r").findings == ()


def test_the_strategy_is_changed_only_while_steps_are_left() -> None:
    """The ladder asks the same cap: at the end of what was earned no rung that needs a step is taken."""
    moments = play(LOOK, fails("1"), LOOK, fails("2"), says("ok"), limits=LIMITS)
    assert [one.fired.row.event for one in moments if one.state is State.DEGRADE] == [Event.ANSWER_FORCED]


def test_the_certificate_is_bounded_by_the_ceiling() -> None:
    """`verify` explores steps that are earned back, and counts no more of them than the ceiling."""
    small = Limits(max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2, no_progress_steps=2)
    adaptive = verify(small.replace(max_steps="adaptive", base_steps=2, most_steps=7))
    fixed = verify(small.replace(max_steps=7))
    assert adaptive.ok
    assert adaptive.worst is not None
    assert fixed.worst is not None
    assert adaptive.worst.steps == 7
    assert adaptive.worst.transitions >= fixed.worst.transitions
    assert "steps, up to 7" in adaptive.ranking
