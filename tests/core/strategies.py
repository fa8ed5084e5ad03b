"""Hypothesis strategies for the values of the core: calls, results, outcomes, effects, limits, histories."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent.effects import (
    Answer,
    Answered,
    Approve,
    AskHuman,
    Broke,
    Call,
    CallModel,
    CallTools,
    Cancelled,
    Decision,
    Deny,
    Doubted,
    Edit,
    Effect,
    Expired,
    ModelFailed,
    Outcome,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
    Wait,
    Waited,
)

# What UTF-8 can write: lone surrogates are taken out before anything becomes an outcome.
texts = st.text(st.characters(codec="utf-8"), max_size=20)
words = st.text("abcdefghij_-0123456789", min_size=1, max_size=8)
ids = st.text("abcdef0123456789", min_size=1, max_size=9)
counts = st.integers(0, 10**6)
seconds = st.floats(0, 10**6, allow_nan=False)


def json_values(max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Anything that JSON can hold."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=max_leaves,
    )


arguments = st.dictionaries(texts, json_values(), max_size=3)
usages = st.builds(Usage, counts, counts, counts, counts)
raw_calls = st.builds(RawCall, ids | st.just(""), texts, texts | arguments | st.none())
repairs = st.lists(words, max_size=2).map(tuple)

calls = st.builds(
    Call,
    id=ids,
    name=words,
    tool=words,
    arguments=arguments,
    signature=ids | st.just(""),
    refusal=texts,
    refusal_kind=words | st.just(""),
    needs_approval=st.booleans(),
    approved=st.booleans(),
    repeated=st.booleans(),
    doubt=st.booleans(),
    repairs=repairs,
)
results = st.builds(
    Result,
    call_id=ids,
    tool=words,
    ok=st.booleans(),
    text=texts,
    digest=ids | st.just(""),
    full=texts | st.none(),
    error=texts,
    retryable=st.booleans(),
    executed=st.booleans(),
    seconds=seconds,
    metadata=arguments,
)
batches = st.lists(results, max_size=2, unique_by=lambda one: one.call_id).map(tuple)
decisions: st.SearchStrategy[Decision] = st.one_of(
    st.builds(Approve, ids | st.just("")),
    st.builds(Edit, arguments),
    st.builds(Deny, texts, st.booleans()),
    st.builds(Answer, texts),
)

pictures = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    min_size=1,
    max_size=2,
)


@st.composite
def asking_messages(draw: st.DrawFn) -> AIMessage:
    """An assistant message with calls."""
    made = [
        {"name": draw(words), "args": draw(arguments), "id": draw(ids), "type": "tool_call"}
        for _ in range(draw(st.integers(1, 2)))
    ]
    return AIMessage(draw(texts), tool_calls=made)


messages: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(SystemMessage, texts),
    st.builds(HumanMessage, texts | pictures),
    st.builds(AIMessage, texts),
    asking_messages(),
    st.builds(ToolMessage, texts, tool_call_id=ids, name=words, status=st.sampled_from(["success", "error"])),
)


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """A short tuple."""
    return st.lists(strategy, max_size=2).map(tuple)


effects: st.SearchStrategy[Effect] = st.one_of(
    st.builds(
        CallModel,
        messages=several(messages),
        tools=several(words),
        response_format=st.none() | arguments,
        purpose=st.sampled_from(["plan", "answer", "summary"]),
        timeout=seconds,
        estimate=counts,
        attempt=st.integers(1, 9),
    ),
    st.builds(
        CallTools,
        calls=several(calls),
        parallel=st.integers(1, 9),
        time_left=st.none() | seconds,
        attempt=st.integers(1, 9),
    ),
    st.builds(Wait, seconds),
    st.builds(AskHuman, calls=several(calls), expires_in=st.none() | seconds),
)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(
        Replied,
        text=texts,
        calls=several(raw_calls),
        usage=usages,
        prompt_tokens=st.none() | counts,
        finish=words | st.just(""),
        truncated=st.booleans(),
        refusal=texts,
        unreadable=texts,
        repairs=repairs,
        at=seconds,
    ),
    st.builds(
        ModelFailed,
        error=words,
        message=texts,
        retryable=st.booleans(),
        retry_after=st.none() | seconds,
        status=st.none() | st.integers(100, 599),
        overflow=st.booleans(),
        context_tokens=st.none() | counts,
        prompt_tokens=st.none() | counts,
        gives_way=st.booleans(),
        usage=usages,
        at=seconds,
    ),
    st.builds(Returned, results=batches, at=seconds),
    st.builds(Doubted, calls=several(ids), results=batches, at=seconds),
    st.builds(Waited, seconds),
    st.builds(Answered, decisions=st.dictionaries(ids, decisions, max_size=2), waited=seconds, at=seconds),
    st.builds(Expired, seconds, seconds),
    st.builds(Cancelled, texts, seconds, batches),
    st.builds(Broke, error=words, message=texts, at=seconds),
)
