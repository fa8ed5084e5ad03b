"""Blocks as JSON text and back, by langchain-core's own reading and writing of messages. No pickle, and nothing guessed."""

from __future__ import annotations

import json
from typing import Any, Final, cast, get_args

from langchain_core.messages import AnyMessage, message_to_dict, messages_from_dict

from fsm_agent.errors import ConversationDamaged, ConversationError
from fsm_agent.history import Block, BlockKind

__all__ = ["read_block", "write_block"]

_KINDS: Final = frozenset(get_args(BlockKind))


def write_block(block: Block, *, by: str = "") -> str:
    """`block` as one JSON object that UTF-8 can hold; `by` is kept beside it and says who wrote it.

    Values become what JSON makes of them (a tuple a list). Raises `ConversationError` for a value that JSON does not have.
    """
    body: dict[str, Any] = {"kind": block.kind, "turn": block.turn, "tokens": block.tokens}
    if by:
        body["by"] = by
    body["messages"] = [message_to_dict(message) for message in block.messages]
    try:
        text = json.dumps(body, ensure_ascii=False)
        if text.isascii() or _encodable(text):
            return text
        return json.dumps(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConversationError(
            f"a {block.kind} block of turn {block.turn} cannot be stored, because JSON has no form for what it holds: {error}; "
            "give messages text, numbers, lists and mappings only"
        ) from error


def read_block(text: str | bytes, *, thread_id: str, position: int) -> Block:
    """The block that `write_block` wrote. Raises `ConversationDamaged` for anything else, with the place it was found at."""
    try:
        body = json.loads(text)
        return _block(body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConversationDamaged(f"it cannot be read ({words})", thread_id=thread_id, position=position) from error


def _block(body: Any) -> Block:
    kind, turn, tokens, messages = body["kind"], body["turn"], body["tokens"], body["messages"]
    if kind not in _KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(sorted(_KINDS))}")
    for name, number in (("turn", turn), ("tokens", tokens)):
        if type(number) is not int or number < 0:
            raise ValueError(f"{name} is {number!r}, not a whole number")
    if not isinstance(messages, list) or not messages:
        raise ValueError("it holds no messages")
    return Block(kind, tuple(cast("list[AnyMessage]", messages_from_dict(messages))), tokens, turn)


def _encodable(text: str) -> bool:
    """False for text with half a surrogate pair, which JSON can write as an escape only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
