"""Blocks as JSON and back: nothing is lost, and nothing is read that was not written so."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from fsm_agent.errors import ConversationDamaged, ConversationError
from fsm_agent.history import Block, block
from fsm_agent.memory.written import read_block, write_block
from tests.core.strategies import arguments, ids, texts, words

# Half a character cannot be the text of a message, but a model may put one into the arguments of a call.
halves = st.text(st.characters(), max_size=8)
parts = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}), min_size=1, max_size=2)
contents: st.SearchStrategy[Any] = texts | parts
tool_calls = st.lists(
    st.fixed_dictionaries(
        {
            "name": words,
            "args": arguments | st.dictionaries(texts, halves, max_size=2),
            "id": ids,
            "type": st.just("tool_call"),
        }
    ),
    max_size=3,
)
messages: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(HumanMessage, contents, name=st.none() | words, additional_kwargs=arguments),
    st.builds(SystemMessage, contents),
    st.builds(AIMessage, contents, tool_calls=tool_calls, id=st.none() | ids, response_metadata=arguments),
    st.builds(
        ToolMessage, contents, tool_call_id=ids, status=st.sampled_from(["success", "error"]), artifact=arguments
    ),
    st.builds(ChatMessage, content=texts, role=words),
    st.builds(FunctionMessage, content=texts, name=words),
    st.builds(AIMessageChunk, content=texts, id=st.none() | ids),
)
blocks = st.builds(
    Block,
    st.sampled_from(["task", "round", "answer", "note", "summary"]),
    st.lists(messages, min_size=1, max_size=4).map(tuple),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
)


@given(blocks)
def test_a_block_comes_back_equal(one: Block) -> None:
    """All kinds of messages, any script, emoji, nested arguments and half characters in them, as text that UTF-8 takes."""
    text = write_block(one, by="run")
    text.encode()
    again = read_block(text, thread_id="t", position=0)
    assert again == one
    assert [type(message) for message in again.messages] == [type(message) for message in one.messages]
    assert json.loads(text)["by"] == "run"


def test_wide_text_is_written_as_itself() -> None:
    """Chinese is not blown up to escapes, so that a person can read the file."""
    assert "订单已发货" in write_block(block("task", HumanMessage("订单已发货")))


def test_numbers_that_json_lacks_come_back() -> None:
    """A log probability of minus infinity is not the end of a conversation."""
    one = block("answer", AIMessage("a", response_metadata={"logprob": float("-inf")}))
    assert read_block(write_block(one), thread_id="t", position=0) == one


@pytest.mark.parametrize(
    "value", [object(), b"bytes", {1, 2}, dt.date(2026, 1, 1), 1j], ids=lambda value: type(value).__name__
)
def test_what_json_cannot_hold_is_refused_by_name(value: Any) -> None:
    """Nothing is pickled and nothing is turned into its repr: the error says which block and what type."""
    one = block("task", HumanMessage("x", additional_kwargs={"k": [value]}), turn=3)
    with pytest.raises(ConversationError, match=rf"task block of turn 3.*{type(value).__name__}"):
        write_block(one)


def test_what_is_nested_without_end_is_refused() -> None:
    """A list within itself, or a thousand lists deep, is an error and no crash."""
    round_: list[Any] = []
    round_.append(round_)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (round_, deep):
        one = Block("task", (HumanMessage.model_construct(content="x", additional_kwargs={"k": value}),))
        with pytest.raises(ConversationError):
            write_block(one)


WRITTEN = json.loads(write_block(block("task", HumanMessage("x"))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        b"\xff\xfe\xfa",
        "[" * 100_000,
        write_block(block("task", HumanMessage("x")))[:-1],
        json.dumps({**WRITTEN, "kind": "other"}),
        json.dumps({**WRITTEN, "kind": ["task"]}),
        json.dumps({**WRITTEN, "turn": "0"}),
        json.dumps({**WRITTEN, "turn": True}),
        json.dumps({**WRITTEN, "tokens": -1}),
        json.dumps({**WRITTEN, "tokens": 1.5}),
        json.dumps({**WRITTEN, "messages": []}),
        json.dumps({**WRITTEN, "messages": {}}),
        json.dumps({**WRITTEN, "messages": [None]}),
        json.dumps({**WRITTEN, "messages": [{"type": "human"}]}),
        json.dumps({**WRITTEN, "messages": [{"type": "human", "data": {}}]}),
        json.dumps({**WRITTEN, "messages": [{"type": "human", "data": {"content": 7}}]}),
        json.dumps({**WRITTEN, "messages": [{"type": "robot", "data": {"content": "x"}}]}),
        json.dumps({**WRITTEN, "messages": [{"type": "tool", "data": {"content": "x"}}]}),
    ],
    ids=range(24),
)
def test_anything_else_is_damage_with_its_place(text: str | bytes) -> None:
    """What was not written here is never taken for a block, nor for nothing; the error names thread, position and the way out."""
    with pytest.raises(ConversationDamaged, match=r"'t', block 4.*store\.delete\('t'\)") as caught:
        read_block(text, thread_id="t", position=4)
    assert (caught.value.thread_id, caught.value.position) == ("t", 4)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_no_garbage_crashes_the_reader(text: str | bytes) -> None:
    """Any bytes are damage, by name."""
    with pytest.raises(ConversationDamaged):
        read_block(text, thread_id="t", position=0)
