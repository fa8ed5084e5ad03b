"""Scripted replies in the words of OpenAI's chat-completions protocol: pure functions from a reply to JSON.

A `Sending` is a reply together with what goes wrong on its way to the client; `fsm_agent.testing.fault` makes them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fsm_agent.errors import ScriptError
from fsm_agent.testing.ready import arguments_text, pieces, words
from fsm_agent.testing.script import UNSET, Call, Reply, as_reply

__all__ = ["Raw", "Sending", "Trouble", "as_sending", "body_of", "chunks_of", "split_chunks", "sse"]

Edit = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something that happens while a reply is sent.

    `kind`: "end" closes the body as if it were complete, "drop" closes the connection, "error" sends an error event
    and ends, "hold" waits for `until` and goes on. `after` counts characters of text and arguments; None is before the
    first byte. A reply that is not streamed is stopped in the middle of its body, for any `after` that is not None.
    """

    kind: Literal["end", "drop", "error", "hold"]
    after: int | None = None
    until: threading.Event | None = None
    error: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sending:
    """A reply and the way it is sent. `stream` overrides what the client asked for; `done` is the closing `[DONE]`.

    `edits` are applied in order to the body, or to each chunk; `usage_on_every_chunk` repeats the count so far.
    """

    reply: Reply
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    stream: bool | None = None
    done: bool = True
    usage_on_every_chunk: bool = False
    edits: tuple[Edit, ...] = ()
    trouble: Trouble | None = None


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A response given byte for byte. `events` is sent as a stream of server-sent events when `body` is None."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    body: bytes | None = b""
    events: tuple[str, ...] = ()


def as_sending(item: Any) -> Sending:
    """A str, call, list of calls, reply or sending as a sending. Raises `ScriptError` for anything else."""
    if isinstance(item, Sending):
        return item
    reply = as_reply(item)
    if reply is None:
        raise ScriptError(f"{item!r} is no reply that a server can send: give a str, call(...), [calls] or reply(...)")
    return Sending(reply=reply)


def body_of(sending: Sending, *, number: int, model: str, created: int, usage: Any) -> dict[str, Any]:
    """The whole `chat.completion` body. `usage` is what a reply reports that leaves it unset."""
    reply = sending.reply
    message: dict[str, Any] = {"role": "assistant", "content": _content(reply), "refusal": reply.refusal}
    if reply.calls:
        message["tool_calls"] = [
            _without_none(id=_call_id(call, number, index))
            | {"type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
            for index, call in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None} | _without_none(finish_reason=reply.stop_label)
    body = _envelope(reply, "chat.completion", number=number, model=model, created=created) | {"choices": [choice]}
    return _edited(body | _without_none(usage=_usage(reply, usage)), sending.edits)


def chunks_of(
    sending: Sending, *, number: int, model: str, created: int, usage: Any, include_usage: bool
) -> list[dict[str, Any]]:
    """The `chat.completion.chunk` bodies: role, words, each call's name and argument pieces, label, usage if wanted."""
    reply = sending.reply
    envelope = _envelope(reply, "chat.completion.chunk", number=number, model=model, created=created)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": _content(reply) and ""}]
    content = _content(reply)
    said = words(content) if isinstance(content, str) else [content] if content is not None else []
    deltas += [{"content": piece} for piece in said]
    if reply.refusal is not None:
        deltas += [{"refusal": piece} for piece in words(reply.refusal)]
    for index, call in enumerate(reply.calls):
        opening = {"index": index} | _without_none(id=_call_id(call, number, index))
        deltas.append(_tool_delta(opening | {"type": "function", "function": {"name": call.name, "arguments": ""}}))
        deltas += [_tool_delta({"index": index, "function": {"arguments": piece}}) for piece in pieces(call)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}} | _without_none(finish_reason=reply.stop_label))
    chunks: list[dict[str, Any]] = [envelope | {"choices": [choice]} for choice in choices]
    counted = _usage(reply, usage)
    if sending.usage_on_every_chunk:
        chunks = [chunk | {"usage": _so_far(counted, index, len(chunks))} for index, chunk in enumerate(chunks, 1)]
    elif include_usage and counted is not None:
        chunks.append(envelope | {"choices": [], "usage": counted})
    return [_edited(chunk, sending.edits) for chunk in chunks]


def split_chunks(chunks: Sequence[dict[str, Any]], after: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The chunks before and after the first `after` characters of text and arguments; one chunk may be cut in two."""
    before: list[dict[str, Any]] = []
    left = after
    for index, chunk in enumerate(chunks):
        text = _text_of(chunk)
        if text and len(text) > left:
            if left:
                before.append(_with_text(chunk, text[:left]))
            return before, [_with_text(chunk, text[left:]), *chunks[index + 1 :]]
        left -= len(text)
        before.append(chunk)
    return before, []


def sse(data: Mapping[str, Any] | str) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def _envelope(reply: Reply, kind: str, *, number: int, model: str, created: int) -> dict[str, Any]:
    given = f"chatcmpl-{number}" if reply.id is UNSET else reply.id
    return _without_none(id=given) | {"object": kind, "created": created, "model": model}


def _content(reply: Reply) -> Any:
    """Null beside calls or a refusal when there is no text, as OpenAI sends it."""
    return None if reply.text == "" and (reply.calls or reply.refusal is not None) else reply.text


def _call_id(call: Call, number: int, index: int) -> str | None:
    return f"call_{number}_{index}" if call.id is UNSET else call.id


def _usage(reply: Reply, default: Any) -> Any:
    usage = default if reply.usage is UNSET else reply.usage
    if isinstance(usage, tuple):
        return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return usage


def _so_far(usage: Any, index: int, total: int) -> Any:
    """The cumulative count after chunk `index` of `total`; the last one is the true count."""
    if not isinstance(usage, Mapping) or index == total:
        return usage
    done = int(usage.get("completion_tokens", 0)) * index // total
    prompt = int(usage.get("prompt_tokens", 0))
    return {"prompt_tokens": prompt, "completion_tokens": done, "total_tokens": prompt + done}


def _tool_delta(call: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [call]}


def _edited(body: dict[str, Any], edits: Sequence[Edit]) -> dict[str, Any]:
    for edit in edits:
        body = edit(body)
    return body


def _without_none(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _delta(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = chunk.get("choices") or [{}]
    delta: Mapping[str, Any] = choices[0].get("delta") or {}
    return delta


def _text_of(chunk: Mapping[str, Any]) -> str:
    delta = _delta(chunk)
    if delta.get("tool_calls"):
        return str(delta["tool_calls"][0]["function"].get("arguments") or "")
    content = delta.get("content")
    return content if isinstance(content, str) else ""


def _with_text(chunk: dict[str, Any], text: str) -> dict[str, Any]:
    choice, delta = chunk["choices"][0], _delta(chunk)
    if delta.get("tool_calls"):
        call = delta["tool_calls"][0]
        delta = _tool_delta(call | {"function": call["function"] | {"arguments": text}})
    else:
        delta = {**delta, "content": text}
    return chunk | {"choices": [choice | {"delta": delta}]}
