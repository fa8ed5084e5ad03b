"""`run_until` and the assertions of the kit: a run stopped on its way, and failures that show the path taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approve, Change, Deny, Limits, State
from fsm_agent.effects import AskHuman, CallModel, CallTools
from fsm_agent.errors import DefinitionError
from fsm_agent.observe import silent_logger
from fsm_agent.table import TABLE
from fsm_agent.testing import (
    ScriptedModel,
    ScriptedTool,
    assert_answer,
    assert_called,
    assert_guard,
    assert_path,
    assert_reason,
    assert_status,
    assert_transitions,
    call,
    run_until,
)

S = State
ROUND = [S.PLAN, S.VALIDATE, S.EXECUTE, S.OBSERVE, S.DECIDE]


def paying(**options: Any) -> tuple[Agent, ScriptedTool]:
    """An agent that pays twice and is done, and the tool that it pays with."""
    pay = ScriptedTool("pay", ["paid 5", "paid 6"], args={"to": str, "amount": int}, **options.pop("pay", {}))
    model = ScriptedModel([call("pay", to="Ada", amount=5), call("pay", to="Bob", amount=6), "Paid."])
    return Agent(model, tools=[pay], logger=silent_logger(), **options), pay


# ---------------------------------------------------------------- run_until


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_stops_before_a_state_and_goes_on(stored: bool, tmp_path: Path) -> None:
    """The pending effect and the context are there to look at, nothing of the state has happened, and the run goes on."""
    agent, pay = paying(store=tmp_path / "runs.db" if stored else None)
    stopped = run_until(agent, S.EXECUTE, "Pay both.")
    assert stopped.state is S.EXECUTE
    assert isinstance(stopped.effect, CallTools)
    assert [(one.tool, dict(one.arguments)) for one in stopped.effect.calls] == [("pay", {"to": "Ada", "amount": 5})]
    assert stopped.context is not None
    assert (stopped.context.step, stopped.context.tool_calls) == (1, 0)
    assert pay.count == 0
    assert_path(stopped, [S.PLAN, S.VALIDATE, S.EXECUTE])
    result = stopped.go_on()
    assert_answer(result, "Paid.")
    assert_path(result, [*ROUND, *ROUND, S.PLAN, S.VALIDATE, S.FINISH])
    pay.assert_used_up()


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_can_be_stopped_more_than_once(stored: bool, tmp_path: Path) -> None:
    """`until` goes on to another state, or to the same one the next time; a change takes effect on the way."""
    agent, pay = paying(store=tmp_path / "runs.db" if stored else None)
    first = run_until(agent, "EXECUTE", "Pay both.")
    second = first.until(S.DECIDE).until(S.EXECUTE)
    assert second.context is not None
    assert second.context.step == 2
    ended = second.until(S.DECIDE, change=Change(limits={"max_steps": 2, "on_limit": "stop"})).go_on()
    assert_reason(ended, "max_steps")
    assert_called(pay, times=2)


def test_a_run_stops_where_it_begins_and_where_it_ends() -> None:
    """PLAN is stopped before the first request; a terminal state is the end of the run."""
    agent, _ = paying()
    begun = run_until(agent, S.PLAN, "Pay both.")
    assert isinstance(begun.effect, CallModel)
    assert begun.transitions == ()
    ended = begun.until(S.FINISH)
    assert (ended.state, ended.effect, ended.context) == (S.FINISH, None, None)
    assert ended.result.answer == "Paid."


def test_the_agent_is_left_as_it_was() -> None:
    """The pauses of an agent are put back, and its other runs know nothing of the stop."""
    agent, _ = paying()
    agent.pause_at(S.OBSERVE)
    stopped = run_until(agent, S.DECIDE, "Pay both.")
    assert stopped.state is S.DECIDE
    went_on = stopped.go_on()
    assert went_on.path()[-1] is S.OBSERVE
    assert agent.pause_at().resume(went_on.run_id).answer == "Paid."


def test_a_person_is_answered_for() -> None:
    """Stopped before REVIEW, `decide` lets the question be asked and answers it."""
    agent, pay = paying(pay={"requires_approval": True})
    stopped = run_until(agent, S.REVIEW, "Pay both.")
    assert isinstance(stopped.effect, AskHuman)
    assert_path(stopped.decide(Approve()), [S.PLAN, S.VALIDATE, S.REVIEW, ..., S.REVIEW])
    assert_called(pay, times=1, to="Ada")
    agent, pay = paying(pay={"requires_approval": True})
    assert_status(run_until(agent, S.REVIEW, "Pay both.").decide(Deny(stop=True)), "failed")


def test_a_state_that_is_never_reached_fails_with_the_path() -> None:
    """Where the run went instead, and why, is the message."""
    agent, _ = paying()
    with pytest.raises(AssertionError) as failed:
        run_until(agent, S.REVIEW, "Pay both.")
    said = str(failed.value)
    assert said.startswith("the run never came to REVIEW\nwhat happened:\n   1 PLAN --replied--> VALIDATE\n")
    assert "completed (answered): answered after 3 steps" in said
    waiting, _ = paying(pay={"requires_approval": True})
    with pytest.raises(AssertionError, match=r"never came to EXECUTE(.|\n)*waits for a person to decide about pay"):
        run_until(waiting, S.EXECUTE, "Pay both.")
    with pytest.raises(AssertionError, match=r"never came to ABORT(.|\n)*answered"):
        run_until(paying()[0], S.ABORT, "Pay both.")
    with pytest.raises(DefinitionError, match="there is no state 'EXEC'"):
        run_until(agent, "EXEC", "Pay both.")
    with pytest.raises(DefinitionError, match="agent is of the kind int: give an Agent"):
        run_until(3, S.EXECUTE, "Pay both.")  # type: ignore[arg-type]  # what is tested


# ---------------------------------------------------------------- assertions


def spent() -> Any:
    """The result of a run that stops at its limit of steps."""
    agent, _ = paying(limits=Limits(max_steps=1, on_limit="stop"))
    return agent.invoke("Pay both.")


def test_what_is_true_of_a_run_passes() -> None:
    """States by name or member, transitions in any form, and a gap for what does not matter."""
    result = spent()
    assert_path(result, [*ROUND, S.ABORT])
    assert_path(result, "PLAN VALIDATE EXECUTE OBSERVE DECIDE ABORT".split())
    assert_path(result, [..., S.DECIDE, S.ABORT])
    assert_path(result, [S.PLAN, ..., S.ABORT, ...])
    rows = {str(row): row for row in TABLE}
    assert_transitions(result, [("PLAN", "replied", "VALIDATE"), "VALIDATE --accepted--> EXECUTE", ...])
    assert_transitions(result.transitions, [..., rows["DECIDE --decided [steps_spent]--> ABORT"]])
    assert_transitions(result, list(result.transitions))
    assert_reason(result, "max_steps")
    assert_status(result, "failed")
    assert_guard(result, "steps_spent", times=1)
    assert_guard(result, "no_progress", held=False)
    assert_guard(result, "no_progress", times=0)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            lambda run: assert_path(run, [S.PLAN, S.VALIDATE, S.FINISH]),
            "  expected: PLAN -> VALIDATE -> FINISH\n  taken:    PLAN -> VALIDATE -> EXECUTE -> OBSERVE -> DECIDE -> ABORT\nwhat hap",
        ),
        (lambda run: assert_path(run, [..., S.FINISH]), "expected: ... -> FINISH"),
        (lambda run: assert_path(run, []), "expected: nothing"),
        (
            lambda run: assert_transitions(run, ["PLAN --replied--> VALIDATE", "VALIDATE --answered--> FINISH"]),
            "they part at transition 2: expected VALIDATE --answered--> FINISH, taken VALIDATE --accepted--> EXECUTE",
        ),
        (
            lambda run: assert_transitions(run, run.transitions[:-1]),
            "they part at transition 5: expected nothing more, taken DECIDE --decided--> ABORT",
        ),
        (
            lambda run: assert_transitions(run, [..., "PLAN --withheld--> DECIDE"]),
            "no part of the run fits where ... stands",
        ),
        (lambda run: assert_reason(run, "answered"), "the run stopped as max_steps, not as answered: "),
        (lambda run: assert_status(run, "completed"), "the run is failed, not completed: "),
        (lambda run: assert_answer(run, "Paid."), "the run answered None, not 'Paid.': "),
        (
            lambda run: assert_guard(run, "steps_spent", held=False),
            "did not hold 0 times of 1 that it was asked, not at least once; newest: held with {'steps': 1, 'max_steps': 1}",
        ),
        (
            lambda run: assert_guard(run, "steps_spnt", times=0),
            "no guard steps_spnt was asked; did you mean steps_spent?",
        ),
        (
            lambda run: assert_guard(run, "low_confidence"),
            "the guard low_confidence held 0 times of 0 that it was asked, not at least once",
        ),
    ],
)
def test_what_is_not_true_is_told_with_the_path(check: Any, said: str) -> None:
    """A failure names what was expected and what was, and shows each transition with its guards and the end."""
    with pytest.raises(AssertionError) as failed:
        check(spent())
    message = str(failed.value)
    assert said in message
    assert "DECIDE --decided--> ABORT [" in message
    assert "steps_spent=yes" in message
    assert "failed (max_steps): " in message


def test_a_run_in_which_nothing_happened_is_told_too() -> None:
    """An empty path is a path."""
    with pytest.raises(AssertionError, match="taken:    nothing\nnothing happened"):
        assert_path([], [S.PLAN])
