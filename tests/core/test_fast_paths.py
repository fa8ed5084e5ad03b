"""Every fast path gives what the slow one gives."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent import Agent, Limits
from fsm_agent.dialects import Native
from fsm_agent.dialects.base import merge_neighbours, one_system
from fsm_agent.dialects.repair import strict
from fsm_agent.driver import _Stretch
from fsm_agent.effects import Call, RawCall, Replied, Result
from fsm_agent.language import EN
from fsm_agent.observe import silent_logger
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import results

TEXT = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT


def _same(made: BaseMessage, built: BaseMessage) -> None:
    assert type(made) is type(built)
    assert made == built
    assert made.__dict__ == built.__dict__
    assert made.__pydantic_fields_set__ == built.__pydantic_fields_set__
    assert made.__pydantic_extra__ == built.__pydantic_extra__
    assert made.__pydantic_private__ == built.__pydantic_private__
    assert made.model_dump() == built.model_dump()
    assert made.model_copy(deep=True) == built


@given(
    text=TEXT,
    name=TEXT,
    call_id=TEXT,
    arguments=st.dictionaries(TEXT, SCALARS.filter(lambda one: not isinstance(one, float))),
    ok=st.booleans(),
    message_id=TEXT,
)
def test_the_messages_of_a_round_are_those_that_their_constructors_make(
    text: str, name: str, call_id: str, arguments: dict[str, Any], ok: bool, message_id: str
) -> None:
    """Field by field, private parts included, for any text."""
    one = Call(id=call_id, name=name, tool=name, arguments=arguments)
    result = Result(call_id=call_id, tool=name, ok=ok, text=text)
    reply = Replied(text=text.replace("<", ""), calls=(RawCall(call_id, name, arguments),), id=message_id)
    asked, answer = Native().keep_round(reply, [one], [result], EN)
    made = [{"name": name, "args": arguments, "id": call_id, "type": "tool_call"}]
    _same(asked, AIMessage(reply.text, tool_calls=made, id=message_id or None))
    status: Any = "success" if ok else "error"
    _same(answer, ToolMessage(text or "(empty)", tool_call_id=call_id, name=name, status=status))
    for system in one_system(text):
        _same(system, SystemMessage(text))
    for said in Native().keep_answer(text):
        _same(said, AIMessage(text))


def test_two_messages_of_one_mould_share_nothing() -> None:
    """What is done to one message never shows in another one."""
    first, second = (one_system("same")[0] for _ in range(2))
    first.additional_kwargs["a"] = first.response_metadata["b"] = 1
    first.content = "changed"
    _same(second, SystemMessage("same"))


@given(st.dictionaries(TEXT, SCALARS | st.lists(SCALARS, max_size=2), max_size=4))
def test_flat_arguments_are_held_to_the_same_bounds(arguments: dict[str, Any]) -> None:
    """The look at a few plain values lets nothing through that the walk refuses, and changes nothing."""
    quick = strict.checked(arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict, "_FEW", 0)
        assert repr(quick) == repr(strict.checked(arguments))


@given(st.integers() | st.text() | st.integers(min_value=2**63, max_value=2**70), st.none() | st.integers(0, 20))
def test_a_plain_value_is_rendered_as_any_other(value: Any, cap: int | None) -> None:
    """Text and whole numbers, cut or not, are rendered as inside a `ToolResult`."""
    quick = results.render_result(value, max_chars=cap)
    assert quick == results.render_result(results.ToolResult(content=value), max_chars=cap)


@given(st.lists(st.sampled_from([HumanMessage("a"), AIMessage("b"), ToolMessage("c", tool_call_id="1")]), max_size=6))
def test_neighbours_are_merged_only_where_there_are_any(messages: list[Any]) -> None:
    """No two user messages in a row come out, and no text is lost."""
    merged = merge_neighbours(messages)
    humans = [isinstance(one, HumanMessage) for one in merged]
    assert not any(first and second for first, second in pairwise(humans))
    words = [part for one in merged for part in str(one.content).split("\n\n")]
    assert words == [one.content for one in messages]


def test_a_record_made_at_once_is_the_one_that_the_constructor_makes() -> None:
    """Every record of a run has every field, in order, and equals its constructed twin."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        records = Agent(model, [_add], logger=silent_logger()).invoke("go").transitions
    for record in records:
        twin = Transitioned(**{one.name: getattr(record, one.name) for one in fields(Transitioned)})
        assert (record, repr(record), vars(record)) == (twin, repr(twin), vars(twin))


def test_a_result_made_at_once_is_the_one_that_pydantic_makes() -> None:
    """Every field is there, in order, and the result is equal to its constructed twin in every part."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = Agent(model, [_add], logger=silent_logger()).invoke("go")
    twin = RunResult.model_construct(**{name: getattr(result, name) for name in RunResult.model_fields})
    assert list(vars(result)) == list(RunResult.model_fields)
    assert (result, repr(result), result.model_fields_set) == (twin, repr(twin), twin.model_fields_set)
    assert result.model_copy() == twin


def test_the_watcher_sleeps_while_calls_come_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run wakes its watcher when its stretch is done and never before, though its tools have less time than its model."""
    woken: list[str] = []
    report = _Stretch._report

    def counting(self: Any) -> Any:
        get = self._inbox.get
        inbox = self._inbox

        class Counting:
            """The inbox, with its receipts counted."""

            def get(self, timeout: float | None = None) -> Any:
                """Take one."""
                item = get(timeout=timeout)
                woken.append(item[0])
                return item

            put = inbox.put

        self._inbox = Counting()
        return report(self)

    monkeypatch.setattr(_Stretch, "_report", counting)
    steps = 40
    model = ScriptedModel([*(call("add", a=number, b=2) for number in range(steps)), "done"])
    agent = Agent(model, [_add], logger=silent_logger(), limits=Limits(max_steps=steps + 1))
    assert agent.invoke("go").ok
    assert woken == ["done"]


def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


_add.__name__ = "add"
