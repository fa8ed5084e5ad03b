"""What a provider wants back with the calls of its model, and nobody else reads: thinking with its signature, items of reasoning. Pure.

Anthropic refuses a request, and a reasoning model of OpenAI thinks anew, where the message that asked for tools comes back without them.
They are kept as they came, as JSON data; the calls among them are told as they were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from fsm_agent.tools.plain import plain
from fsm_agent.wire import RAW_CALLS

__all__ = ["is_opaque", "merged", "opaque_of", "restored"]

_READ: Final = frozenset({"tool_calls", "function_call", "refusal", "parsed", RAW_CALLS})
"""What is read of `additional_kwargs` in another way."""
_CALLS: Final = frozenset({"tool_use", "function_call", "tool_call", "tool_call_chunk", "input_json_delta"})
_PLAIN: Final = frozenset({*_CALLS, "text", "output_text", "refusal"})
_FORM: Final = ("model_provider", "output_version")
"""What says in which form the blocks are."""
_ARGUMENTS: Final = ("args", "arguments", "input", "partial_json")


def is_opaque(message: BaseMessage) -> bool:
    """True when `message` holds more than text and calls."""
    content = message.content
    if type(content) is not str and any(map(_is_more, content)):
        return True
    return bool(message.additional_kwargs) and not _READ.issuperset(message.additional_kwargs)


def _is_more(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") not in _PLAIN or "extras" in part)


def opaque_of(message: BaseMessage) -> dict[str, Any] | None:
    """What is to go back with `message`, in the order of its names; None for text and calls alone, and for what JSON does not hold."""
    if not is_opaque(message):
        return None
    found = {
        "content": message.content if any(map(_is_more, message.content)) else None,
        "additional_kwargs": {name: one for name, one in message.additional_kwargs.items() if name not in _READ},
        "response_metadata": {name: one for name, one in message.response_metadata.items() if name in _FORM},
    }
    told = {name: one for name, one in found.items() if one}
    if plain(told) != told:
        return None
    kept: dict[str, Any] = json.loads(json.dumps(told, sort_keys=True))
    return kept


def merged(chunks: Sequence[AIMessageChunk]) -> dict[str, Any] | None:
    """The same for a reply that came as `chunks`."""
    told: dict[str, Any] = {}
    for one in chunks:
        told |= one.response_metadata
    parts = [AIMessageChunk(content=one.content, additional_kwargs=one.additional_kwargs) for one in chunks]
    whole = parts[0] + parts[1:]
    return opaque_of(AIMessage(whole.content, additional_kwargs=whole.additional_kwargs, response_metadata=told))


def restored(message: AIMessage, opaque: Mapping[str, Any]) -> AIMessage:
    """`message` with what `opaque_of` kept of the reply; a call among its blocks has the arguments that it has in `message`."""
    calls = {str(one["id"]): one for one in message.tool_calls}
    blocks = [_as_made(part, calls) for part in opaque.get("content") or ()]
    return AIMessage(
        [one for one in blocks if one is not None] or message.content,
        tool_calls=message.tool_calls,
        id=message.id,
        additional_kwargs=dict(opaque.get("additional_kwargs") or {}),
        response_metadata=dict(opaque.get("response_metadata") or {}),
    )


def _as_made(part: Any, calls: Mapping[str, Any]) -> Any:
    """The block `part`; of a call, with its arguments as they stand now; None for a call that is none of `calls`."""
    if not isinstance(part, dict) or part.get("type") not in _CALLS:
        return part
    call = calls.get(str(part.get("call_id") or part.get("id")))
    if call is None:
        return None
    written = json.dumps(call["args"], ensure_ascii=False)
    given = {key: written if isinstance(part[key], str) else call["args"] for key in _ARGUMENTS if key in part}
    whole = {"type": "tool_call", "args": call["args"]} if part["type"] == "tool_call_chunk" else {}
    return {**part, **given, **whole, "name": call["name"]}
