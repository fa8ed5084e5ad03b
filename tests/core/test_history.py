"""Blocks of history: what they cost, what text is in them, and that their messages are ordinary messages."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.effects import Call
from fsm_agent.history import Block, block, estimate_text, estimate_tokens, flatten, text_of
from fsm_agent.language import EN
from tests.core.builders import asks, raw, result_of, says
from tests.core.strategies import json_values, messages, texts


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("é", 1),
        ("éé", 1),
        ("ééé", 2),
        ("\u2e7f", 1),
        ("\u2e80\u2e80", 2),
        ("中文", 2),
        ("１２", 2),
        ("👩", 1),
        ("abcd中é", 3),
        ("\x7f\x80", 2),
    ],
)
def test_the_estimate_is_by_script(text: str, tokens: int) -> None:
    """S01: four ASCII characters a token, two of other alphabets, one wide character; each part is rounded up."""
    assert estimate_text(text) == tokens


@given(st.text(), st.text())
def test_the_estimate_never_shrinks_with_more_text(first: str, second: str) -> None:
    """And it is never below a quarter of the characters, nor above one a character."""
    assert estimate_text(first + second) >= max(estimate_text(first), estimate_text(second))
    assert (len(first) + 3) // 4 <= estimate_text(first) <= len(first)


CALL: Any = {"name": "find", "args": {"q": "x"}, "id": "a"}


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (HumanMessage("abcd"), 5),
        (HumanMessage(""), 4),
        (HumanMessage([{"type": "text", "text": "abcd"}]), 5),
        (HumanMessage([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "abcd"}]), 1_005),
        (AIMessage("", tool_calls=[CALL]), 4 + 8 + 1 + 3),
        (AIMessage("", tool_calls=[CALL, {**CALL, "id": "b"}]), 4 + 2 * (8 + 1 + 3)),
        (ToolMessage("abcd", tool_call_id="a"), 5),
    ],
    ids=["text", "nothing", "a block", "a picture", "a call", "two calls", "a result"],
)
def test_a_message_costs_its_text_its_calls_and_its_envelope(message: AnyMessage, tokens: int) -> None:
    """Four for each message, a thousand for a picture, and a call with its name and arguments."""
    assert estimate_tokens([message]) == tokens
    assert block("task", message).tokens == tokens


@given(st.lists(messages, max_size=4))
def test_a_block_costs_what_its_messages_cost(some: list[AnyMessage]) -> None:
    """Costs add up, so that a memory can count blocks."""
    assert block("round", *some).tokens == sum(estimate_tokens([message]) for message in some)
    assert flatten([Block("round", tuple(some)), Block("note", tuple(some))]) == (*some, *some)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        (None, ""),
        ([], ""),
        (["a", {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}, {"type": "text", "text": 3}], ""),
        (3, ""),
        ({"text": "x"}, "x"),
    ],
)
def test_the_text_of_any_content_is_text(content: Any, text: str) -> None:
    """Servers send text, lists of blocks, and nothing."""
    assert text_of(content) == text


@given(json_values())
def test_no_content_makes_it_raise(content: Any) -> None:
    """A reply may have any content."""
    assert isinstance(text_of(content), str)


@pytest.mark.parametrize("name", DIALECTS)
@given(text=texts, arguments=st.dictionaries(texts, json_values(), max_size=2), ok=st.booleans())
def test_what_a_dialect_keeps_are_ordinary_messages(name: str, text: str, arguments: dict[str, Any], ok: bool) -> None:
    """Equal to what LangChain makes of the same words; they can be copied, stored and changed without touching others."""
    dialect = dialect_for(name)
    call = Call(id="a", name="look", tool="look", arguments=arguments)
    reply = asks(raw("look", q="x"), text=text)
    kept = [
        *dialect.keep_round(reply, [call], [result_of("a", "look", text, ok=ok)], EN),
        *dialect.keep_rejected(says(text), text),
        *dialect.keep_note(text),
        *dialect.keep_answer(text),
    ]
    for message in kept:
        assert type(message).model_validate(message.model_dump()) == message
        assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == message  # noqa: S301 - our own
        spoil(message)
    assert "spoilt" not in call.arguments
    again = dialect.keep_round(reply, [call], [result_of("a", "look", text, ok=ok)], EN)
    assert not any(message.additional_kwargs or message.response_metadata for message in again)
    for message in again:
        assert type(message).model_validate(message.model_dump()) == message


def spoil(message: BaseMessage) -> None:
    """Change everything in `message` that can be changed in place."""
    message.additional_kwargs["spoilt"] = True
    message.response_metadata["spoilt"] = True
    if isinstance(message, AIMessage):
        message.invalid_tool_calls.append(invalid_tool_call(name="x", args="x", id="x", error="x"))
        for call in message.tool_calls:
            call["args"]["spoilt"] = True
        message.tool_calls.clear()
