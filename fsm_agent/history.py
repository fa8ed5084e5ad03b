"""The history of a run as blocks that are never torn apart, and what they cost in tokens.

A block is a tuple of messages that is only valid whole: an assistant message with the results of all its calls, a task, a note.
Memory strategies choose blocks, so no choice can part a call from its result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from fsm_agent.frozen import fast_init

__all__ = [
    "THOUGHTS",
    "Block",
    "MessageTemplate",
    "block",
    "call_ids",
    "correction_factor",
    "estimate_text",
    "estimate_tokens",
    "flatten",
    "minted_id",
    "task_block",
    "text_of",
    "with_own_ids",
]

M = TypeVar("M", bound=BaseMessage)
BlockKind = Literal["task", "round", "answer", "note", "summary"]
THOUGHTS: Final = "reasoning_content"
"""The key of `additional_kwargs`, and the field of OpenAI-like servers, with what a model thought."""
_ID_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_PER_MESSAGE = 4
_written = json.JSONEncoder(ensure_ascii=False, default=str).encode
_IMAGE_TOKENS = 1_000
_FACTOR_RANGE = (0.5, 4.0)


@fast_init
@dataclass(frozen=True, slots=True)
class Block:
    """Messages that belong together. `tokens` is their estimate; `turn` counts the user turns of the conversation from 0."""

    kind: BlockKind
    messages: tuple[AnyMessage, ...]
    tokens: int = 0
    turn: int = 0


def block(kind: BlockKind, *messages: AnyMessage, turn: int = 0) -> Block:
    """A block of `messages` with its token estimate."""
    return Block(kind, messages, estimate_tokens(messages), turn)


def flatten(blocks: Iterable[Block]) -> tuple[AnyMessage, ...]:
    """The messages of `blocks` in order."""
    return tuple([message for one in blocks for message in one.messages])


def call_ids(blocks: Iterable[Block]) -> frozenset[str]:
    """The ids of all calls in `blocks`: a new run must not use them again."""
    messages = (message for one in blocks for message in one.messages if isinstance(message, AIMessage))
    return frozenset(str(call["id"]) for message in messages for call in message.tool_calls)


def with_own_ids(one: Block, taken: frozenset[str], seed: str) -> Block:
    """The block, with other ids for those of its calls that are `taken`; the same ones for the same `seed`."""
    others = {call_id: minted_id(f"{seed}:{call_id}") for call_id in call_ids([one]) & taken}
    if not others:
        return one
    messages: list[AnyMessage] = []
    for message in one.messages:
        if isinstance(message, AIMessage):
            calls = [{**call, "id": others.get(str(call["id"]), call["id"])} for call in message.tool_calls]
            messages.append(message.model_copy(update={"tool_calls": calls}))
        elif isinstance(message, ToolMessage) and message.tool_call_id in others:
            messages.append(message.model_copy(update={"tool_call_id": others[message.tool_call_id]}))
        else:
            messages.append(message)
    return replace(one, messages=tuple(messages))


def minted_id(seed: str) -> str:
    """An id of nine letters and digits, the strictest form that a known server demands; the same one for the same `seed`."""
    digest = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=9).digest()
    return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in digest)


def estimate_text(text: str) -> int:
    """Tokens of `text`, estimated by script: 4 ASCII characters a token, 2 of other alphabets, 1 wide character (CJK, emoji, full-width).

    Conservative on purpose: a Chinese character is about one token, not a quarter.
    """
    size = len(text)
    if text.isascii():
        return (size + 3) // 4
    wide = sum(1 for char in text if char >= "\u2e80")
    narrow = sum(1 for char in text if char < "\x80")
    return wide + (narrow + 3) // 4 + (size - wide - narrow + 1) // 2


def text_of(content: Any) -> str:
    """The text of a message's content, whether it is a string or a list of content blocks; "" for none."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = []
    for part in content if isinstance(content, Sequence) else [content]:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"])
    return "".join(parts)


def estimate_tokens(messages: Iterable[AnyMessage], count: Callable[[str], int] = estimate_text) -> int:
    """Tokens of `messages` as a prompt: their text and call arguments by `count`, 4 for each message, 1,000 for a picture."""
    total = 0
    for message in messages:
        content = message.content
        if isinstance(content, str):
            total += _PER_MESSAGE + count(content)
        else:
            total += _PER_MESSAGE + count(text_of(content))
            if isinstance(message, AIMessage):
                total += sum(
                    count(part["thinking"])
                    for part in content
                    if isinstance(part, dict) and type(part.get("thinking")) is str
                )
            else:
                total += _IMAGE_TOKENS * sum(1 for part in content if isinstance(part, dict) and "text" not in part)
        if type(message) is not ToolMessage and isinstance(message, AIMessage):
            if message.additional_kwargs:
                total += count(str(message.additional_kwargs.get(THOUGHTS) or ""))
            for call in message.tool_calls:
                total += 8 + count(call["name"]) + count(_written(call["args"]))
    return total


def correction_factor(counted: float, estimated: float) -> float:
    """What an estimate must be multiplied by to be the count; between 0.5 and 4, so that one odd count cannot mislead a budget."""
    low, high = _FACTOR_RANGE
    return min(max(counted / estimated, low), high)


class MessageTemplate(Generic[M]):
    """Makes messages like one that pydantic has validated, with other words in it: a step makes three, and validation is most of the cost.

    The words must be of the field's own type, text ASCII (pydantic refuses text that is no UTF-8); lists and dicts are never shared.
    """

    def __init__(self, message: M) -> None:
        self._kind = type(message)
        self._fields = dict(message.__dict__)
        self._set = frozenset(message.__pydantic_fields_set__)
        self._extra = message.__pydantic_extra__
        self._own = [(name, type(item)) for name, item in self._fields.items() if type(item) in (dict, list)]

    def cast(self, **words: Any) -> M:
        """The message with `words` in place of the fields of these names."""
        fields = self._fields | words
        for name, kind in self._own:
            if name not in words:
                fields[name] = kind()
        message = object.__new__(self._kind)
        fill = object.__setattr__
        fill(message, "__dict__", fields)
        fill(message, "__pydantic_fields_set__", set(self._set))
        fill(message, "__pydantic_extra__", None if self._extra is None else {})
        fill(message, "__pydantic_private__", None)
        return message


def task_block(text: str) -> Block:
    """The user's task as a block."""
    return block("task", HumanMessage(text))
