"""Everything a server of the OpenAI protocol is known to do wrong, as entries for the script of a `server`.

Faults of a reply take the reply as their first argument and can be put around each other:
`fault.wrong_content_type(fault.cut_stream(call("add", a=1, b=2), after_chars=5))`. What is wrong with the *contents* of
a reply needs no fault: `reply(None)` has null content, `Call("add", '{"a": 1')` broken arguments,
`Call("add", {}, id=None)` no id, `reply("x", usage={"prompt_tokens": "12"})` an odd count, and
`reply("x", finish_reason="tool_calls")` a wrong label. A fault that does not pass is `forever(...)`; one that does is
an entry before the good reply.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from fsm_agent.testing.script import Call
from fsm_agent.testing.wire import Raw, Sending, Trouble, as_sending

__all__ = [
    "bad_request",
    "content_filtered",
    "context_length_exceeded",
    "cumulative_usage",
    "cut_stream",
    "drop_connection",
    "empty_choices",
    "error_in_stream",
    "forbidden",
    "held",
    "html_page",
    "http_error",
    "huge_body",
    "invalid_json",
    "no_done",
    "not_found",
    "not_streamed",
    "object_arguments",
    "rate_limited",
    "raw",
    "raw_stream",
    "server_error",
    "tool_call_index",
    "unasked_stream",
    "unauthorized",
    "usage_as",
    "wrong_content_type",
]

_TEXT = "One answer, in several words."


def http_error(
    status: int,
    message: str = "the server refused",
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Raw:
    """An error response with OpenAI's error body."""
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return Raw(status=status, headers=headers or {}, body=json.dumps(body).encode())


def rate_limited(
    retry_after: str | float | datetime | None = None,
    *,
    retry_after_ms: str | float | None = None,
    message: str = "Rate limit reached for requests",
) -> Raw:
    """429. `retry_after` is sent as it is (also "soon", -1 or 86400), a datetime as an HTTP date, None not at all."""
    headers: dict[str, str] = {}
    if isinstance(retry_after, datetime):
        headers["retry-after"] = format_datetime(retry_after, usegmt=True)
    elif retry_after is not None:
        headers["retry-after"] = str(retry_after)
    if retry_after_ms is not None:
        headers["retry-after-ms"] = str(retry_after_ms)
    return http_error(429, message, kind="requests", code="rate_limit_exceeded", headers=headers)


def server_error(message: str = "The server had an error", *, status: int = 500) -> Raw:
    """A 5xx. Alone it passes; as `forever(server_error())` it is deterministic."""
    return http_error(status, message, kind="server_error")


def bad_request(message: str = "Invalid value for 'messages'", *, param: str | None = "messages") -> Raw:
    """400: the request itself is wrong, so that sending it again is useless."""
    return http_error(400, message, param=param)


def unauthorized(message: str = "Incorrect API key provided") -> Raw:
    """401."""
    return http_error(401, message, code="invalid_api_key")


def forbidden(message: str = "Country, region, or territory not supported") -> Raw:
    """403."""
    return http_error(403, message, kind="request_forbidden", code="unsupported_country_region_territory")


def not_found(model: str = "fake") -> Raw:
    """404: the model does not exist."""
    message = f"The model `{model}` does not exist or you do not have access to it."
    return http_error(404, message, code="model_not_found")


def context_length_exceeded(limit: int = 8192, requested: int = 9000) -> Raw:
    """400 for a prompt of `requested` tokens where `limit` fit."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {requested} "
        "tokens. Please reduce the length of the messages."
    )
    return http_error(400, message, code="context_length_exceeded", param="messages")


def content_filtered(message: str = "The prompt was filtered by the content management policy.") -> Raw:
    """400 for a prompt that a filter refuses. A filtered *reply* is `reply("", finish_reason="content_filter")`."""
    return http_error(400, message, code="content_filter", param="prompt")


def drop_connection(item: Any = _TEXT, *, after_chars: int | None = None) -> Sending:
    """Close the connection: before the first byte, or in the middle of `item`, without the end that HTTP promises."""
    return replace(as_sending(item), trouble=Trouble(kind="drop", after=after_chars))


def cut_stream(item: Any = _TEXT, *, after_chars: int) -> Sending:
    """End the body in good order in the middle of `item`: no finish reason, no usage, no `[DONE]`."""
    return replace(as_sending(item), trouble=Trouble(kind="end", after=after_chars))


def error_in_stream(item: Any = _TEXT, *, after_chars: int = 0, message: str = "The server had an error") -> Sending:
    """Status 200, then an error event after some of the stream. Not streamed: an error body with status 200."""
    error = {"error": {"message": message, "type": "server_error", "param": None, "code": None}}
    return replace(as_sending(item), trouble=Trouble(kind="error", after=after_chars, error=error))


def held(item: Any, until: threading.Event, *, after_chars: int | None = None) -> Sending:
    """Wait for `until` before the first byte, or in the middle of `item`; then go on. Closing the server lets go."""
    return replace(as_sending(item), trouble=Trouble(kind="hold", after=after_chars, until=until))


def no_done(item: Any = _TEXT) -> Sending:
    """A complete stream that ends without `[DONE]`."""
    return replace(as_sending(item), done=False)


def not_streamed(item: Any = _TEXT) -> Sending:
    """One JSON body although a stream was asked for."""
    return replace(as_sending(item), stream=False)


def unasked_stream(item: Any = _TEXT) -> Sending:
    """A stream although none was asked for."""
    return replace(as_sending(item), stream=True)


def wrong_content_type(item: Any = _TEXT, content_type: str = "text/plain") -> Sending:
    """A good body under another content type."""
    return replace(as_sending(item), content_type=content_type)


def cumulative_usage(item: Any = _TEXT) -> Sending:
    """Usage on every chunk, each with the count so far, asked for or not."""
    return replace(as_sending(item), usage_on_every_chunk=True)


def usage_as(value: Any, item: Any = _TEXT) -> Sending:
    """`value` as the usage of the body or of the last chunk, whatever it is: None is a JSON null."""

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        last = not body["choices"] or body["choices"][0].get("finish_reason") is not None
        return body | {"usage": value} if last else body

    return _edited(item, edit)


def tool_call_index(item: Any, index: int | None) -> Sending:
    """Every streamed call under the same `index`, or None: without one. Some servers do, and merge calls so."""

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        for choice in body["choices"]:
            for call in choice.get("delta", {}).get("tool_calls", ()):
                call.pop("index")
                if index is not None:
                    call["index"] = index
        return body

    return _edited(item, edit)


def object_arguments(item: Call | Sequence[Call]) -> Sending:
    """Arguments as a JSON object where the protocol wants a string; in a stream, all of them in the first chunk."""
    calls = [item] if isinstance(item, Call) else list(item)
    given = [call.args for call in calls]

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        for choice in body["choices"]:
            for index, call in enumerate(choice.get("message", {}).get("tool_calls", ())):
                call["function"]["arguments"] = given[index]
            for call in choice.get("delta", {}).get("tool_calls", ()):
                first = "name" in call["function"]
                call["function"]["arguments"] = given[call["index"]] if first else ""
        return body

    return _edited(calls, edit)


def empty_choices() -> Sending:
    """A body, or a stream, that holds no choice at all."""
    return _edited(_TEXT, lambda body: body | {"choices": []})


def html_page(status: int = 502) -> Raw:
    """An HTML page of some machine in between, also with status 200."""
    page = f"<!DOCTYPE html><html><head><title>{status}</title></head><body><h1>Bad Gateway</h1></body></html>"
    return raw(page, status=status, content_type="text/html; charset=utf-8")


def invalid_json(body: str = '{"id": "chatcmpl-1", "choices": [') -> Raw:
    """A body that says JSON and is none."""
    return raw(body)


def huge_body(size: int = 10_000_000) -> Sending:
    """A good reply whose text has `size` characters."""
    return as_sending("x" * size)


def raw(
    body: str | bytes | Mapping[str, Any],
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Raw:
    """Exactly this response, streamed or not."""
    if isinstance(body, Mapping):
        body = json.dumps(body)
    data = body.encode() if isinstance(body, str) else body
    return Raw(status=status, headers=headers or {}, content_type=content_type, body=data)


def raw_stream(*events: str | Mapping[str, Any]) -> Raw:
    """Exactly these server-sent events, whatever was asked for; write "[DONE]" as the last to end it well."""
    texts = tuple(event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events)
    return Raw(content_type="text/event-stream", body=None, events=texts)


def _edited(item: Any, edit: Any) -> Sending:
    sending = as_sending(item)
    return replace(sending, edits=(*sending.edits, edit))
