"""Scripted replies as LangChain messages: built once, dealt as cheap copies, whole or in the pieces of a stream."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGenerationChunk

from fsm_agent.testing.script import UNSET, Call, Reply
from fsm_agent.wire import RAW_CALLS

__all__ = ["Ready", "arguments_text", "from_message", "from_reply", "pieces", "stream_chunks", "words"]

_WORDS: Final = re.compile(r"\s*\S+|\s+")
_MUTABLE: Final = (
    "content",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
    "response_metadata",
    "additional_kwargs",
)
_PIECE: Final = 8
"""Characters of tool-call arguments in one streamed chunk."""


class Ready:
    """A reply built ahead of its request, so that dealing it is only a copy. `calls` are its calls, good and bad."""

    __slots__ = ("_fresh_calls", "_id_prefix", "_said", "_template", "_written", "calls")

    def __init__(self, template: AIMessage, calls: tuple[Call, ...], said: object, model_name: str) -> None:
        self._template = template
        # As from a server: a message has good and bad calls in two lists, and of their texts what was parsed.
        self._written = isinstance(said, Reply) and any(isinstance(call.args, str) for call in calls)
        self._said = said
        self._id_prefix = f"{model_name}-" if template.id is None else ""
        self.calls = calls
        # Where the message holds each call whose id is fresh: (list, place in that list, number of the call).
        self._fresh_calls: list[tuple[str, int, int]] = []
        places = {"tool_calls": 0, "invalid_tool_calls": 0}
        for number, call in enumerate(calls):
            name = "invalid_tool_calls" if _fault(call) else "tool_calls"
            if call.id is UNSET:
                self._fresh_calls.append((name, places[name], number))
            places[name] += 1

    def __repr__(self) -> str:
        return repr(self._said)

    def call_id(self, request: int, number: int) -> str | None:
        """The id of call `number` when dealt to `request`."""
        given = self.calls[number].id
        return f"call_{request}_{number}" if given is UNSET else given

    def deal(self, request: int) -> AIMessage:
        """A message of its own for `request`: what is done to it never shows in a later one."""
        message = copy.copy(self._template)
        # Written past pydantic's __setattr__, which would cost more than all the rest of a request.
        fields = message.__dict__
        if self._id_prefix:
            fields["id"] = f"{self._id_prefix}{request}"
        for name in _MUTABLE:
            fields[name] = _own(fields[name])
        for name, place, number in self._fresh_calls:
            fields[name][place]["id"] = self.call_id(request, number)
        if self._written:
            fields["additional_kwargs"][RAW_CALLS] = [
                (self.call_id(request, number), call.name, arguments_text(call))
                for number, call in enumerate(self.calls)
            ]
        return message


def from_message(message: AIMessage, model_name: str) -> Ready:
    """The message as it is; a fresh message id where it has none."""
    calls = [Call(call["name"], call["args"], call["id"]) for call in message.tool_calls]
    calls += [Call(bad["name"] or "", bad["args"] or "", bad["id"]) for bad in message.invalid_tool_calls]
    return Ready(message, tuple(calls), message, model_name)


def from_reply(reply: Reply, default_usage: Any, model_name: str) -> Ready:
    """The message that LangChain's OpenAI client makes of such a reply; `default_usage` where it leaves usage unset."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    for call in reply.calls:
        call_id = None if call.id is UNSET else call.id
        if error := _fault(call):
            raw = {"id": call_id, "function": {"name": call.name, "arguments": arguments_text(call)}}
            bad.append(make_invalid_tool_call(raw, error))
        else:
            args = _parsed(call.args) if isinstance(call.args, str) else dict(call.args)
            good.append(ToolCall(name=call.name, args=args, id=call_id, type="tool_call"))
    usage = default_usage if reply.usage is UNSET else reply.usage
    if isinstance(usage, tuple):
        usage = {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": usage[0] + usage[1]}
    metadata: dict[str, Any] = {"model_name": model_name}
    if reply.stop_label is not None:
        metadata["finish_reason"] = reply.stop_label
    text = reply.text
    message = AIMessage(
        content="" if text is None else text if isinstance(text, str) else [_own(block) for block in text],
        id=None if reply.id is UNSET else reply.id,
        tool_calls=good,
        invalid_tool_calls=bad,
        response_metadata=metadata,
        additional_kwargs={} if reply.refusal is None else {"refusal": reply.refusal},
    )
    # Past validation: a usage that no schema would let through is one of the things to test against.
    message.__dict__["usage_metadata"] = None if usage is None else dict(usage)
    return Ready(message, reply.calls, reply, model_name)


def stream_chunks(ready: Ready, request: int) -> Iterator[ChatGenerationChunk]:
    """The reply as a provider streams it: words; each call's name, then its arguments in pieces; label and usage."""
    whole = ready.deal(request)
    whole.additional_kwargs.pop(RAW_CALLS, None)  # the texts are in the pieces

    def chunk(**fields: Any) -> ChatGenerationChunk:
        return ChatGenerationChunk(message=AIMessageChunk(**{"content": "", "id": whole.id} | fields))

    for piece in words(whole.content) if isinstance(whole.content, str) else [whole.content]:
        yield chunk(content=piece)
    for number, call in enumerate(ready.calls):
        opening = tool_call_chunk(name=call.name, args="", id=ready.call_id(request, number), index=number)
        yield chunk(tool_call_chunks=[opening])
        for piece in pieces(call):
            yield chunk(tool_call_chunks=[tool_call_chunk(name=None, args=piece, id=None, index=number)])
    last = chunk(
        response_metadata=whole.response_metadata, additional_kwargs=whole.additional_kwargs, chunk_position="last"
    )
    last.message.__dict__["usage_metadata"] = whole.usage_metadata
    yield last


def words(text: str) -> list[str]:
    """The text in word-wise pieces that join to it again."""
    return _WORDS.findall(text)


def arguments_text(call: Call) -> str:
    """The arguments as they go over the wire."""
    return call.args if isinstance(call.args, str) else json.dumps(call.args, ensure_ascii=False)


def pieces(call: Call) -> list[str]:
    """The arguments as a stream brings them."""
    text = arguments_text(call)
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _parsed(arguments: str) -> Any:
    parsed = parse_tool_call({"function": {"name": "", "arguments": arguments}})
    return parsed and parsed["args"]


def _fault(call: Call) -> str | None:
    """Why the arguments are no JSON object, as LangChain's OpenAI client says it; None when they are one."""
    if not isinstance(call.args, str):
        return None
    try:
        parsed = _parsed(call.args)
    except (ValueError, RecursionError) as error:  # the second: of a nesting that Python does not read
        return str(error)
    return None if isinstance(parsed, dict) else "the arguments are not a JSON object"


def _own(value: Any) -> Any:
    """A copy of JSON-like containers, all the way down."""
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    if type(value) is list:
        return [_own(item) for item in value]
    return value
