"""Bounded reflection: when the model is asked, what it may say, what follows from that, and that nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsm_agent import Agent, DefinitionError, Event, Limits, Reflect, RunResult, Status, StopReason, tool
from fsm_agent.alphabet import State
from fsm_agent.context import Failure
from fsm_agent.effects import Usage
from fsm_agent.language import EN, ZH
from fsm_agent.observe import silent_logger
from fsm_agent.reflecting import reflection_due
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply, server
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.verify import verify
from tests.core.builders import make_setup, start

RUN: Any = {"configurable": {"run_id": "r"}}


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def said(go_on: Any, next_tool: Any = None) -> str:
    """A reflection as the model writes it."""
    return json.dumps({"go_on": go_on, "next_tool": next_tool})


def steps(count: int, first: int = 0) -> list[Any]:
    """Calls that each bring something new."""
    return [call("look", q=f"x{n}") for n in range(first, first + count)]


def agent_of(model: Any, **options: Any) -> Agent:
    """An agent that reflects after each step, twice at most."""
    given = {"reflect": Reflect(every=1, most=2), "clock": FakeClock(), **options}
    return Agent(model, [look], logger=silent_logger(), **given)


def reflections(result: RunResult) -> list[tuple[Event, State]]:
    """What came of reflecting, and where it led."""
    kinds = (Event.REFLECTED, Event.REFLECTION_FAILED)
    return [(record.event, record.target) for record in result.transitions if record.event in kinds]


def test_the_model_is_asked_every_so_many_steps_and_so_often_at_most() -> None:
    """A transition of its own from PLAN to PLAN, no step, counted as a model call, without tools; then no more."""
    model = ScriptedModel([*steps(2), said(True), *steps(2, 2), said(True), *steps(2, 4), "done"])
    result = agent_of(model, reflect=Reflect(every=2, most=2)).invoke("look")
    assert (result.status, result.steps, result.model_calls) == (Status.COMPLETED, 7, 9)
    assert reflections(result) == [(Event.REFLECTED, State.PLAN)] * 2
    assert [index for index, one in enumerate(model.requests) if not one.tool_names] == [2, 5]
    assert "Should the agent go on" in model.requests[2].text
    assert "about x1" in model.requests[2].text
    assert result.usage.total == 9 * 15


def test_go_on_changes_nothing_but_the_counts() -> None:
    """What the model is asked next is what it would have been asked without."""
    plain, asked = ScriptedModel([*steps(1), "done"]), ScriptedModel([*steps(1), said(True), "done"])
    agent_of(plain, reflect=None).invoke("look")
    agent_of(asked).invoke("look")
    assert [one.text for one in asked.requests if one.tool_names] == [one.text for one in plain.requests]


def test_a_tool_that_is_named_is_a_hint() -> None:
    """The model reads which tool it thought of; it is not made to call it."""
    model = ScriptedModel([*steps(1), said(True, "look"), "done"])
    assert agent_of(model).invoke("look").answer == "done"
    assert EN.next_tool.format(tool="look") in model.requests[2].text


def test_do_not_go_on_asks_for_an_answer() -> None:
    """The run ends as partial, with a reason of its own in the detail."""
    model = ScriptedModel([*steps(1), said(False), "what is known"])
    result = agent_of(model).invoke("look")
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert (result.answer, reflections(result)) == ("what is known", [(Event.REFLECTED, State.DEGRADE)])
    assert "after reflection (told_to_stop: go_on=False, reflections=1)" in result.detail
    assert EN.because["reflection"] in model.requests[2].text


def test_do_not_go_on_stops_where_no_answer_may_be_asked_for() -> None:
    """With `on_limit="stop"` the run is aborted, by that reason."""
    model = ScriptedModel([*steps(1), said(False)])
    result = agent_of(model, limits=Limits(on_limit="stop")).invoke("look")
    assert (result.status, result.reason) == (Status.FAILED, StopReason.REFLECTION)


@pytest.mark.parametrize(
    "wrong",
    [
        "I think we should go on.",
        "",
        "[true]",
        "{}",
        '{"go_on": true}',
        said("yes"),
        said(1),
        said(None),
        said(True, "rm"),
        said(True, 7),
        said(True, ["look"]),
        '{"go_on": true, "next_tool": null, "answer": "42"}',
        reply(said(False), finish_reason="length"),
        call("look", q="now"),
        ConnectionError("down"),
    ],
    ids=str,
)
def test_nothing_else_is_accepted(wrong: Any) -> None:
    """Any other reply, and a call that fails, is recorded with what was wrong; nothing of it is executed, and the run goes on."""
    model = ScriptedModel([*steps(1), wrong, *steps(1, 1), wrong, "done"])
    result = agent_of(model).invoke("look")
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    assert reflections(result) == [(Event.REFLECTION_FAILED, State.PLAN)] * 2
    assert all(one.error for one in result.transitions if one.event is Event.REFLECTION_FAILED)
    assert (result.tool_calls, result.transitions[-1].failures) == (2, 0)


@pytest.mark.parametrize("dialect", ["native", "json_action", "react", "guided_json"])
def test_every_dialect_reflects_in_the_same_words(dialect: str) -> None:
    """The call is the engine's own, so that what is asked and accepted does not depend on the dialect; thinking aside."""
    actions: dict[str, list[Any]] = {
        "native": [call("look", q="x"), "done"],
        "react": ['Action: look\nAction Input: {"q": "x"}', "Final Answer: done"],
    }
    spoken = [
        '{"action": "look", "action_input": {"q": "x"}}',
        '{"action": "FINISH", "action_input": {"answer": "done"}}',
    ]
    first, last = actions.get(dialect, spoken)
    model = ScriptedModel([first, f"<think>hm</think>{said(True, 'look')}", last])
    result = agent_of(model, dialect=dialect).invoke("look x")
    assert reflections(result) == [(Event.REFLECTED, State.PLAN)]
    assert result.answer == "done"


def test_a_server_is_given_the_schema() -> None:
    """Where replies can be constrained, the model can say nothing else; the tools are an enumeration."""
    with server([call("look", q="x"), said(True), "done"]) as served:
        agent_of("openai:m", base_url=served.base_url).invoke("look")
        schema = served.requests[1].body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["go_on", "next_tool"]
    assert schema["properties"]["next_tool"] == {"enum": ["look", None]}
    assert schema["additionalProperties"] is False


def test_a_reflection_is_not_streamed_to_the_reader() -> None:
    """What the model says to the engine is no part of the answer."""
    model = ScriptedModel([*steps(1), said(True), "done"])
    pieces = [getattr(one, "text", "") for one in agent_of(model).stream("look")]
    assert not any("go_on" in str(piece) for piece in pieces)


def test_it_is_left_out_where_the_budget_has_no_room() -> None:
    """A reflection never takes the tokens of the step that it is about."""
    setup = make_setup(limits={"token_budget": 10_000}, reflect=Reflect(every=1))
    after = start(setup, step=1)
    assert reflection_due(after)
    assert not reflection_due(after.change(usage=Usage(0, 0, 8_990)))
    assert not reflection_due(after.change(step=0))
    assert not reflection_due(after.change(reflected_at=1))
    assert not reflection_due(after.change(reflections=2))
    assert not reflection_due(after.change(forced=True))
    assert not reflection_due(after.change(failure=Failure("model", "model", "503")))


def test_a_resumed_run_has_reflected_as_often_as_it_had() -> None:
    """The rule stands in the header and the count is folded, so that another agent goes on with both."""
    store = MemoryTrail()
    first = agent_of(ScriptedModel([*steps(1), said(True), *steps(1, 1)]), store=store)
    assert first.pause_at(after_step=2).invoke("look", RUN).status is Status.SUSPENDED
    again = agent_of(ScriptedModel([said(True, "look"), *steps(1, 2), "done"]), store=store, reflect=None)
    result = again.resume("r")
    assert (result.status, len(reflections(result))) == (Status.COMPLETED, 2)
    assert audit(again.journal, "r").findings == ()


def test_chinese_models_reflect_in_chinese() -> None:
    """The question and the hint exist in both languages."""
    model = ScriptedModel([*steps(1), said(True, "look"), "好"])
    agent_of(model).invoke("查一下这个词")
    assert "下一个用哪个工具" in model.requests[1].text
    assert ZH.next_tool.format(tool="look") in model.requests[2].text


@pytest.mark.parametrize("wrong", [{"every": 0}, {"most": 0}, {"every": True}, {"most": 1.5}])
def test_a_rule_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers below one are seen where they are written."""
    with pytest.raises(DefinitionError, match="1 or more"):
        Reflect(**wrong)


def test_a_run_that_reflects_still_ends() -> None:
    """`verify` explores the model's yes, its no and its nonsense, and adds the calls to the worst case."""
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)
    plain, asked = verify(small), verify(small, reflections=3)
    assert asked, str(asked)
    assert plain.worst is not None
    assert asked.worst is not None
    assert asked.worst.model_calls >= plain.worst.model_calls + 3
    assert not any(one.row.event is Event.REFLECTED for one in asked.unused)
