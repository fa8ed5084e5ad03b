"""Every request of every run is one that a strict provider takes, over several turns of one conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from fsm_agent import Agent, Limits, Tool, tool
from fsm_agent.dialects import DIALECTS
from fsm_agent.dialects.base import merge_neighbours
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call, forever, reply
from fsm_agent.testing.script import Call
from tests.core.builders import TOOLS
from tests.core.validity import wrong_history, wrong_prompt


@tool
def fails(q: str) -> str:
    """Fail."""
    raise ValueError(f"no {q}")


@tool
def says_nothing() -> str:
    """Return nothing."""
    return ""


class TooLong(RuntimeError):
    """What a client raises for a prompt that the server has no room for."""

    status_code = 400
    code = "context_length_exceeded"


ALL: tuple[Tool, ...] = (*TOOLS, fails, says_nothing)
calls = st.one_of(
    st.builds(lambda q: call("look", q=q), st.sampled_from("xyz")),
    st.builds(lambda q: call("fails", q=q), st.sampled_from("xyz")),
    st.sampled_from([call("says_nothing"), call("nothing"), call("add", a="one"), call("pay", to="Ada", amount=5)]),
    st.sampled_from(
        [Call("look", '{"q": "x"'), Call("look", '{"q": "x"}', id="same"), Call("look", {"q": "y"}, id=None)]
    ),
)
entries = st.one_of(
    st.builds(lambda text, made: reply(text, *made), st.sampled_from(["", "Let me see."]), st.lists(calls, max_size=3)),
    st.sampled_from(["It is 3.", "", " ", "<think>hm</think>"]),
    st.sampled_from(['{"action": "FINISH", "action_input": {"answer": "It is 3."}}', "Final Answer: It is 3."]),
    st.sampled_from(['{"action": "look", "action_input": {"q": "x"}}', 'Action: look\nAction Input: {"q": "x"}']),
    st.builds(lambda made: reply("cut", made, finish_reason="length"), calls),
    st.just(RuntimeError("down")),
    st.just(TooLong("too long")),
)
sizes = st.integers(1, 3)
inner: st.SearchStrategy[Memory] = st.one_of(
    st.just(Full()),
    st.builds(Window, rounds=sizes),
    st.builds(MessageWindow, messages=st.integers(1, 8)),
    st.builds(DualBuffer, reasoning=sizes, results=sizes, max_tokens=st.sampled_from([None, 1, 60])),
    st.builds(SummaryWindow, rounds=sizes, every=sizes),
)
memories = inner | st.builds(KeyFacts, inner=inner)
LIMITS = Limits(backoff=0, max_steps=4, on_limit="answer")


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    turns=st.lists(st.lists(entries, max_size=6), min_size=1, max_size=3),
    memory=memories,
    approves=st.booleans(),
    last=st.sampled_from(["It is 3.", ""]),
)
def test_every_request_of_a_conversation_is_valid(
    dialect: str, turns: list[list[Any]], memory: Memory, approves: bool, last: str
) -> None:
    """Whatever the model says, the tools do and the person decides, in this turn and in those before."""
    entries_left = [entry for turn in turns for entry in turn]
    model = ScriptedModel([*entries_left, forever(last)])
    agent = Agent(
        model,
        ALL,
        dialect=dialect,
        memory=memory,
        limits=LIMITS,
        approve=lambda _: approves,
        logger=silent_logger(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    for number in range(len(turns)):
        result = agent.invoke(f"Task {number}.", config)
        assert wrong_history(merge_neighbours(result.messages)) == [], result.messages
    assert model.requests
    for request in model.requests:
        assert wrong_prompt(request.messages) == [], request.messages
    assert f"Task {len(turns) - 1}." in str(model.requests[-1].messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    given_messages=st.lists(
        st.sampled_from([HumanMessage("Hello."), AIMessage("Hi."), AIMessage(""), SystemMessage("Be kind.")]),
        max_size=6,
    )
)
def test_messages_that_the_caller_brings_are_sent_in_a_valid_form(dialect: str, given_messages: list[Any]) -> None:
    """H07, H08: two of one role in a row, a system message in the middle, an empty one."""
    assert wrong_request(dialect, [HumanMessage("Hello there."), *given_messages]) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_that_begins_with_a_greeting_is_sent_in_a_valid_form(dialect: str) -> None:
    """H08: many chat programs show a first message of the assistant's; strict servers want the user's first."""
    assert wrong_request(dialect, [AIMessage("Hi, how can I help?")]) == []
    assert wrong_request(dialect, [SystemMessage("Be kind."), AIMessage("Hi, how can I help?")]) == []


def wrong_request(dialect: str, earlier: list[Any]) -> list[str]:
    """What a strict provider would refuse in the first request of a run that was given `earlier` messages."""
    model = ScriptedModel([forever("It is 3.")])
    agent = Agent(model, ALL, dialect=dialect, memory=Full(), limits=LIMITS, logger=silent_logger())
    agent.invoke([*earlier, HumanMessage("And now?")])
    return wrong_prompt(model.requests[0].messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_forced_answer_is_asked_for_in_a_valid_form(dialect: str) -> None:
    """The round whose calls may not run any more is answered before the model is told to answer."""
    model = ScriptedModel([reply("", call("look", q="x"), call("look", q="y")), "It is 3.", forever("It is 3.")])
    agent = Agent(model, ALL, dialect=dialect, limits=Limits(max_tool_calls=0), logger=silent_logger())
    agent.invoke("Go on.")
    assert len(model.requests) >= 2
    for request in model.requests:
        assert wrong_prompt(request.messages) == [], request.messages


# ---------------------------------------------------------------- the check itself

TASK, ANSWER = HumanMessage("task"), AIMessage("answer")
ASKS = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([ANSWER], "not the user's"),
        ([TASK, TASK], "both HumanMessage"),
        ([TASK, ANSWER, ANSWER], "both AIMessage"),
        ([TASK, ASKS], "never answered"),
        ([TASK, ASKS, TASK], "before"),
        ([TASK, AIMessage(" ")], "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_check_of_these_tests_sees_what_is_wrong(messages: list[AnyMessage], words: str) -> None:
    """A check that finds nothing wrong with anything would prove nothing."""
    assert [fault for fault in wrong_history(messages) if words in fault]
