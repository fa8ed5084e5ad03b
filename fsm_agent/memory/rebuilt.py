"""Blocks from a plain list of messages, whoever wrote it: only whole rounds, in a form that every provider takes.

Messages of ours carry a mark that says which block they are a part of, so that blocks come back as they were. Of other messages what is
plain is made a block of: a user's message begins a turn, an assistant's with calls is a round with the results of all its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, get_args

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from fsm_agent.dialects import Dialect
from fsm_agent.dialects.repair import sanitise_name
from fsm_agent.effects import Call, RawCall, Replied, Result
from fsm_agent.history import Block, BlockKind, block, call_ids, text_of
from fsm_agent.language import Texts
from fsm_agent.opaque import opaque_of

__all__ = ["MARK", "marked", "rebuilt", "result_messages"]

MARK: Final = "fsm_agent"
"""The key of `additional_kwargs` under which a message says which part of which kind of block it is."""
_KINDS: Final = frozenset(get_args(BlockKind))


@dataclass(frozen=True, slots=True)
class _Mark:
    kind: BlockKind
    index: int
    size: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """What an assistant called, and the answer to each call."""

    message: AIMessage
    answers: tuple[ToolMessage, ...]


def marked(one: Block) -> list[BaseMessage]:
    """The messages of a block, each with its mark."""
    marks = [
        {"kind": one.kind, "index": index, "size": len(one.messages), "tokens": one.tokens}
        for index in range(len(one.messages))
    ]
    return [
        message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, MARK: mark}})
        for message, mark in zip(one.messages, marks, strict=True)
    ]


def result_messages(blocks: Sequence[Block], answer: AIMessage | None) -> list[AnyMessage]:
    """The messages of a turn for its result: `answer` as the user reads it, and with its mark what would be taken for something else.

    Given back as messages, they are rebuilt as the dialect had them.
    """
    messages: list[AnyMessage] = []
    for one in blocks:
        if one.kind == "answer" and answer is not None:
            messages.append(answer)
        elif one.kind == "task" or _speaks_for_itself(one):
            messages += one.messages
        else:
            messages += cast("list[AnyMessage]", marked(one))
    return messages


def _speaks_for_itself(one: Block) -> bool:
    """True for a round of LangChain's own messages."""
    first, *others = one.messages
    return isinstance(first, AIMessage) and bool(first.tool_calls) and all(isinstance(x, ToolMessage) for x in others)


def rebuilt(messages: Sequence[BaseMessage], dialect: Dialect, texts: Texts) -> tuple[Block, ...]:
    """`messages` as blocks. System messages, half rounds, and what stands before the first user's message are left out.

    A call with an id that another call has already gets one of its own.
    """
    blocks: list[Block] = []
    turn = -1
    for found in _pieces(messages, dialect, texts):
        turn += found.kind == "task"
        if turn < 0:
            continue
        before = blocks[-1] if blocks else None
        if before is not None and _both_said(before, found):
            blocks[-1] = _joined(before, found)
        else:
            blocks.append(Block(found.kind, found.messages, found.tokens, turn))
    return tuple(blocks)


def _pieces(messages: Sequence[BaseMessage], dialect: Dialect, texts: Texts) -> Iterator[Block]:
    """Blocks one after the other. What another program's assistant said in several messages is one: strict providers take no two."""
    said: list[str] = []
    used: set[str] = set()
    for unit in _units(messages):
        if isinstance(unit, str):
            said.append(unit)
            continue
        if isinstance(unit, _Asked):
            yield _round(unit, said, used, dialect, texts)
        else:
            used |= call_ids([unit])
            yield from _answer(said, dialect)
            yield unit
        said = []
    yield from _answer(said, dialect)


def _units(messages: Sequence[BaseMessage]) -> Iterator[Block | _Asked | str]:
    """What can be told apart: a block of ours, a task, calls with all their results, or what else an assistant said."""
    position = 0
    while position < len(messages):
        message = messages[position]
        mark = _mark_of(message)
        if mark is not None:
            group = messages[position : position + mark.size]
            if [_mark_of(one) for one in group] == [replace(mark, index=index) for index in range(mark.size)]:
                yield Block(mark.kind, tuple(_plain(one) for one in group), mark.tokens)
                position += mark.size
                continue
        elif isinstance(message, HumanMessage):
            yield block("task", message)
        elif isinstance(message, AIMessage) and message.tool_calls:
            answers = _answers(message, messages[position + 1 :])
            if answers is not None:
                yield _Asked(message, answers)
        elif isinstance(message, AIMessage) and text_of(message.content).strip():
            yield text_of(message.content)
        position += 1


def _answers(asked: AIMessage, following: Sequence[BaseMessage]) -> tuple[ToolMessage, ...] | None:
    """The answer to each call, in the order of the calls; None when one has none. Calls that share an id share its answers, in order."""
    by_id: dict[str, list[ToolMessage]] = {}
    for message in following:
        if not isinstance(message, ToolMessage):
            break
        by_id.setdefault(message.tool_call_id, []).append(message)
    found = []
    for call in asked.tool_calls:
        left = by_id.get(str(call["id"]))
        if not left:
            return None
        found.append(left.pop(0) if len(left) > 1 else left[0])
    return tuple(found)


def _answer(said: Sequence[str], dialect: Dialect) -> Iterator[Block]:
    if said:
        yield block("answer", *dialect.keep_answer("\n\n".join(said)))


def _round(asked: _Asked, said: Sequence[str], used: set[str], dialect: Dialect, texts: Texts) -> Block:
    message = asked.message
    calls = [_call(one, used) for one in message.tool_calls]
    results = [
        Result(call_id=call.id, tool=call.tool, ok=answer.status != "error", text=text_of(answer.content))
        for call, answer in zip(calls, asked.answers, strict=True)
    ]
    raw = tuple(RawCall(call.id, call.name, call.arguments) for call in calls)
    text = "\n\n".join(part for part in (*said, text_of(message.content)) if part)
    reply = Replied(text=text, calls=raw, opaque=None if said else opaque_of(_plain(message)))
    return block("round", *dialect.keep_round(reply, calls, results, texts))


def _call(given: ToolCall, used: set[str]) -> Call:
    """A call under a name and an id that every provider takes."""
    call_id, number = str(given["id"]), 1
    while call_id in used:
        number += 1
        call_id = f"{given['id']}_{number}"
    used.add(call_id)
    name = sanitise_name(given["name"])
    return Call(id=call_id, name=name, tool=name, arguments=given["args"])


def _both_said(before: Block, found: Block) -> bool:
    """True for an answer of ours that another program has added to."""
    last, first = before.messages[-1], found.messages[0]
    return isinstance(last, AIMessage) and isinstance(first, AIMessage) and not last.tool_calls


def _joined(before: Block, found: Block) -> Block:
    last, first = before.messages[-1], found.messages[0]
    text = "\n\n".join(part for part in (text_of(last.content), text_of(first.content)) if part)
    one = first.model_copy(update={"content": text})
    return block(found.kind, *before.messages[:-1], one, *found.messages[1:], turn=before.turn)


def _mark_of(message: BaseMessage) -> _Mark | None:
    mark: Any = message.additional_kwargs.get(MARK)
    try:
        kind, index, size, tokens = (mark[name] for name in ("kind", "index", "size", "tokens"))
    except (KeyError, TypeError):
        return None
    numbers = all(type(number) is int and number >= 0 for number in (index, size, tokens))
    return _Mark(kind, index, size, tokens) if numbers and kind in _KINDS and index < size else None


def _plain(message: BaseMessage) -> AnyMessage:
    kept = {name: value for name, value in message.additional_kwargs.items() if name != MARK}
    return cast("AnyMessage", message.model_copy(update={"additional_kwargs": kept}))
