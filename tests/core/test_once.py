"""`Tool.once`: an effect that a model asks for again is not made again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Answer, Status, StopReason
from fsm_agent.errors import ToolDefinitionError
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, forever
from fsm_agent.tools import Tool, tool
from fsm_agent.trail.audit import audit

REFUND = call("refund", order="A1", euros=5)


class Till:
    """Refunds that really happened, and a tool that makes them."""

    def __init__(self, failing: int = 0, **options: Any) -> None:
        self.paid: list[tuple[str, int]] = []
        self._failing = failing
        self.tool: Tool = tool(once=True, **options)(self.refund)

    def refund(self, order: str, euros: int) -> str:
        """Pay money back."""
        if self._failing:
            self._failing -= 1
            raise ConnectionError("the bank is down")
        self.paid.append((order, euros))
        return f"receipt {len(self.paid)}"


def agent(model: ScriptedModel, till: Till, **options: Any) -> Agent:
    """An agent with that one tool."""
    return Agent(model, [till.tool], clock=FakeClock(), logger=silent_logger(), **options)


@pytest.mark.parametrize("dialect", ["native", "json_action", "react"])
def test_a_repeat_is_told_the_result_and_not_executed(dialect: str) -> None:
    """The effect is there once, the model reads its first result, and the run goes on to its answer."""
    till = Till()
    answer = (
        '{"action": "FINISH", "action_input": {"answer": "Paid back."}}' if dialect == "json_action" else "Paid back."
    )
    with ScriptedModel([REFUND, REFUND, answer]) as model:
        result = agent(model, till, dialect=dialect).invoke("Pay A1 back.")
    assert till.paid == [("A1", 5)]
    assert (result.status, result.tool_calls, len(result.calls)) == (Status.COMPLETED, 1, 1)
    told = model.requests[-1].messages[-1].text if dialect == "native" else model.requests[-1].text
    assert "Not executed again: refund" in told
    assert "receipt 1" in told


def test_another_call_of_the_tool_is_executed() -> None:
    """Only the same call is held back, whatever the order of its arguments."""
    till = Till()
    script = [REFUND, call("refund", order="B2", euros=5), call("refund", euros=5, order="A1"), "Paid back."]
    with ScriptedModel(script) as model:
        assert agent(model, till).invoke("Pay A1 and B2 back.").ok
    assert till.paid == [("A1", 5), ("B2", 5)]


def test_a_call_that_failed_is_executed_again() -> None:
    """Only a success is an effect: the model may try a failed call once more."""
    till = Till(failing=1, retry=0)
    with ScriptedModel([REFUND, REFUND, "Paid back."]) as model:
        assert agent(model, till).invoke("Pay A1 back.").ok
    assert till.paid == [("A1", 5)]


def test_a_call_whose_outcome_is_unknown_is_not_executed_again() -> None:
    """After a time-out the effect may be there, so that the model is told to look instead of trying again."""
    begun = threading.Event()
    paid: list[int] = []

    @tool(once=True, timeout=0.05)
    def refund(order: str, euros: int) -> str:
        """Pay money back, slowly."""
        paid.append(euros)
        begun.wait(10)
        return "too late"

    with ScriptedModel([REFUND, REFUND, "I do not know whether it was paid."]) as model:
        result = Agent(model, [refund], logger=silent_logger()).invoke("Pay A1 back.")
    begun.set()
    assert paid == [5]
    assert result.ok
    assert "refund may have taken effect already" in model.requests[-1].messages[-1].text


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionResetError("lost")], ids=["late", "lost"])
def test_a_call_that_says_itself_that_its_outcome_is_unknown_is_not_executed_again(error: Exception) -> None:
    """A time-out of the tool's own, or a connection lost midway: no repeat, and no fallback or default in the place of the effect."""
    paid: list[str] = []

    def by_post(order: str, euros: int) -> str:
        """Pay money back by post."""
        paid.append("by post")
        return "sent"

    @tool(once=True, fallback="by_post", default="paid")
    def refund(order: str, euros: int) -> str:
        """Pay money back."""
        paid.append(order)
        raise error

    with ScriptedModel([REFUND, REFUND, "I do not know whether it was paid."]) as model:
        result = Agent(model, [refund, by_post], logger=silent_logger()).invoke("Pay A1 back.")
    assert (paid, result.ok) == (["A1"], True)
    assert "refund may have taken effect already" in model.requests[-1].text


def test_what_a_person_says_of_a_call_in_doubt_stands(tmp_path: Path) -> None:
    """The person has looked, so that a model that asks again is told what the person said, and nothing is executed."""
    till, path = Till(requires_approval=True), tmp_path / "runs.db"
    with ScriptedModel([REFUND, REFUND, "It was paid."]) as model:
        made = agent(model, till, store=path)
        asked = made.invoke("Pay A1 back.")
        result = made.resume(asked.run_id, decision=Answer("paid by hand"))
    assert (result.status, till.paid) == (Status.COMPLETED, [])
    assert "paid by hand" in model.requests[-1].messages[-1].text
    assert audit(made.journal, result.run_id).findings == ()


def test_asking_for_ever_ends() -> None:
    """Repeats bring nothing new, so that no progress ends the run; they are no failures."""
    till = Till()
    result = agent(ScriptedModel([forever(REFUND)]), till).invoke("Pay A1 back.")
    assert till.paid == [("A1", 5)]
    assert result.status is Status.FAILED
    assert StopReason.NO_PROGRESS in {one.reason for one in result.transitions}
    assert max(one.failures for one in result.transitions[:-2]) == 0


def test_another_run_makes_the_effect_again() -> None:
    """Once means once a run: the next task may ask for the same."""
    till = Till()
    with ScriptedModel([REFUND, "Paid.", REFUND, "Paid."]) as model:
        made = agent(model, till)
        for task in ("Pay A1 back.", "And again."):
            assert made.invoke(task, config={"configurable": {"thread_id": "t"}}).ok
    assert till.paid == [("A1", 5), ("A1", 5)]


def test_a_trail_with_a_repeat_is_whole(tmp_path: Path) -> None:
    """The fold comes to the same decision, so that the audit finds nothing."""
    till = Till()
    with ScriptedModel([REFUND, REFUND, "Paid back."]) as model:
        made = agent(model, till, store=tmp_path / "runs.db")
        result = made.invoke("Pay A1 back.")
    assert result.ok
    assert audit(made.journal, result.run_id).findings == ()


def test_a_poll_that_happens_once_is_refused() -> None:
    """The two say the opposite, so that the definition is refused."""
    with pytest.raises(ToolDefinitionError, match="once and repeatable exclude each other"):
        tool(once=True, repeatable=True)(Till().refund)
