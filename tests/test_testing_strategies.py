"""`fsm_agent.testing.strategies`: whatever can come of an effect, for property tests of agents, tools and tables."""

from __future__ import annotations

from typing import Any

from hypothesis import find, given, settings
from hypothesis import strategies as st

from fsm_agent import Limits, State
from fsm_agent.alphabet import TERMINAL
from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.effects import Answered, CallTools, Doubted, Expired, ModelFailed, Replied, Returned, Wait, Waited
from fsm_agent.history import Block
from fsm_agent.ladder import Rung
from fsm_agent.testing import at, call
from fsm_agent.testing.strategies import arguments, calls, histories, ladders, limits, outcomes, replies
from fsm_agent.tools.validation import Valid
from tests.core.builders import TOOLS, add, pay
from tests.core.histories import sent
from tests.core.validity import wrong_prompt

STEPS = 400
"""More transitions than any run under the drawn limits makes."""


@settings(max_examples=40)
@given(data=st.data(), chosen=limits(), rungs=ladders())
def test_a_run_can_be_driven_through_anything(data: st.DataObject, chosen: Limits, rungs: Any) -> None:
    """Every outcome that is drawn is one that its state can fold, and the run ends: with `at` alone, without a loop of the engine."""
    here = at(State.PLAN, tools=TOOLS, limits=chosen, ladder=[rung for rung in Rung if rung in rungs])
    for _ in range(STEPS):
        if here.state in TERMINAL:
            break
        effect = here.enter()
        outcome = None if effect is None else data.draw(outcomes(effect, TOOLS, at=here.context.at, crashes=True))
        here = here.resolve(outcome).then
    assert here.state in TERMINAL


@settings(max_examples=40)
@given(data=st.data(), tool=st.sampled_from(TOOLS))
def test_arguments_fit_their_tool(data: st.DataObject, tool: Any) -> None:
    """What is drawn for a tool is what its schema takes."""
    assert isinstance(tool.validate(data.draw(arguments(tool))), Valid)


def found(strategy: st.SearchStrategy[Any], wanted: Any) -> Any:
    """The simplest value of that kind."""
    return find(strategy, wanted, settings=settings(database=None, max_examples=3_000))


def test_everything_that_can_happen_is_drawn() -> None:
    """Replies and failures, results and doubts, decisions and silence: none of them is out of reach."""
    for wanted in (
        lambda one: isinstance(one, ModelFailed) and one.overflow,
        lambda one: isinstance(one, Replied) and one.truncated,
        lambda one: isinstance(one, Replied) and one.unreadable != "",
        lambda one: isinstance(one, Replied) and any(made.name == "pay" for made in one.calls),
    ):
        found(replies([add, pay]), wanted)
    batch = at(State.EXECUTE, tools=[add], reply=[call("add", a=1, b=2), call("add", a=2, b=2)]).enter()
    assert isinstance(batch, CallTools)
    found(outcomes(batch), lambda one: isinstance(one, Returned) and {r.ok for r in one.results} == {True, False})
    found(outcomes(batch, crashes=True), lambda one: isinstance(one, Doubted))
    person = at(State.REVIEW, tools=[pay], reply=call("pay", to="Ada", amount=5)).enter()
    assert person is not None
    found(outcomes(person), lambda one: isinstance(one, Expired))
    found(outcomes(person), lambda one: isinstance(one, Answered) and not one.decisions)
    assert found(outcomes(Wait(2.0), at=3.0), lambda _: True) == Waited(5.0)
    found(calls(), lambda one: one.name == "nothing")


@settings(max_examples=30)
@given(data=st.data(), dialect=st.sampled_from(sorted(DIALECTS)))
def test_histories_are_valid_in_their_dialect(data: st.DataObject, dialect: str) -> None:
    """A drawn history is whole blocks: what the dialect sends of it is what a strict provider takes, and the last turn is open."""
    blocks: list[Block] = data.draw(histories(dialect))
    assert blocks[0].kind == "task"
    assert blocks[-1].kind != "answer"
    assert wrong_prompt(sent(dialect_for(dialect), blocks)) == []
