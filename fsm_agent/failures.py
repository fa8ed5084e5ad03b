"""What an exception of a model call means (a `ModelFailed`, or a reply that the client could not parse), and one of a tool. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from pydantic import ValidationError

from fsm_agent.effects import NO_USAGE, ModelFailed, Replied, Usage
from fsm_agent.overflow import read_overflow
from fsm_agent.redact import redact_text
from fsm_agent.replies import replied
from fsm_agent.tools.plain import well_formed
from fsm_agent.usage import read_usage

__all__ = ["error_text", "lost_midway", "model_failure", "refused", "retry_after"]

_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429})
_HOPELESS_CODES: Final = frozenset(
    {"insufficient_quota", "context_length_exceeded", "content_filter", "model_not_found", "invalid_api_key"}
)
_ERROR_CHARS: Final = 500
_READ_CHARS: Final = 20_000
"""So much of what an exception says is looked at: some quote a whole page or prompt, and to search that for secrets takes seconds."""
_HTTP_ERROR: Final = re.compile("[45][0-9]{2}")
_SERVER_ERROR: Final = 500
_CHAIN: Final = 5
_LOST: Final = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_LOST_NAMES: Final = frozenset({"ReadError", "WriteError", "RemoteProtocolError", "ServerDisconnectedError"})
"""What httpx and aiohttp raise, without the cause that would tell."""
_LOST_CODES: Final = frozenset({-32000, 408})
"""By which an MCP client says that the connection was closed, and that no answer came in time."""
_MESSAGE_KEYS: Final = ("message", "msg", "detail", "error", "errors")
_PARTS: Final = 3


def model_failure(error: Exception, *, at: float, wall: float, estimate: int) -> Replied | ModelFailed:
    """What an exception of the model call means. `wall` is the time now in seconds since the epoch, for a server's HTTP date.

    A reply that the client library could not parse is a reply (unreadable), not a failure to get one.
    """
    if isinstance(error, ValidationError):
        usage, _ = read_usage(None, prompt_estimate=estimate, reply_estimate=0)
        where = ", ".join(
            ".".join(str(part) for part in item["loc"])
            for item in error.errors(include_url=False, include_input=False)[:3]
        )
        return Replied(
            text="", unreadable=f"the reply does not have the form of a message ({where})", usage=usage, at=at
        )
    completion = getattr(error, "completion", None)
    if completion is not None and type(error).__name__ == "LengthFinishReasonError":
        return _cut_completion(completion, estimate=estimate, at=at)
    status, code = _status(error), str(getattr(error, "code", None))
    if status is not None:
        passing = status in _RETRYABLE_STATUS or status >= _SERVER_ERROR
    else:
        # The connection broke, or the answer was no message: one more try may help, and the retries are bounded.
        # LangChain's own errors of a model say themselves whether it may.
        passing = getattr(error, "is_retryable", None) is not False
    retryable = passing and code not in _HOPELESS_CODES
    said = _said(error) if status is not None else _with_cause(error)
    named = any(kind.__name__ == "ContextOverflowError" for kind in type(error).__mro__)
    overflow = read_overflow(status, code, said, named=named)
    words = well_formed(redact_text(said))[:_ERROR_CHARS]
    answered = status is None and any(_had_answered(one) for one in _chain(error))
    return ModelFailed(
        usage=Usage(estimate, 0, estimate, estimate) if answered else NO_USAGE,
        error=type(error).__name__,
        message=words or "no message",
        retryable=retryable and overflow is None,
        retry_after=retry_after(_headers(error), wall=wall),
        status=status,
        overflow=overflow is not None,
        context_tokens=None if overflow is None else overflow.limit,
        prompt_tokens=None if overflow is None else overflow.sent,
        at=at,
    )


def _cut_completion(completion: Any, *, estimate: int, at: float) -> Replied:
    choices = getattr(completion, "choices", None) or ()
    text = str(getattr(getattr(choices[0], "message", None), "content", None) or "") if choices else ""
    reported = getattr(completion, "usage", None)
    usage = {
        "input_tokens": getattr(reported, "prompt_tokens", None),
        "output_tokens": getattr(reported, "completion_tokens", None),
    }
    return replied(text=text, calls=(), usage=usage, finish="length", refusal="", estimate=estimate, cap=None, at=at)


def _status(error: BaseException) -> int | None:
    for one in _chain(error):
        for status in _told_status(one):
            if isinstance(status, int | str) and _HTTP_ERROR.fullmatch(str(status)):
                return int(status)
    return None


def _told_status(one: BaseException) -> Iterator[object]:
    """Where the clients of models and of HTTP put the status of a response; each is looked at only when those before it say nothing."""
    yield getattr(one, "status_code", None)
    yield getattr(getattr(one, "response", None), "status_code", None)  # httpx, requests
    yield getattr(one, "status", None)  # aiohttp
    # Where the error came with status 200, in a stream or as the body, its own code says what went wrong.
    yield getattr(one, "code", None)  # urllib too
    yield one.args[0].get("code") if one.args and isinstance(one.args[0], Mapping) else None


def _headers(error: BaseException) -> Mapping[str, str]:
    for one in _chain(error):
        headers = getattr(getattr(one, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            return headers
    return {}


def _chain(error: BaseException) -> Iterable[BaseException]:
    """The exception and what it was raised from, newest first: the freshest one has the say."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and len(seen) < _CHAIN:
        seen.append(one)
        one = one.__cause__
    return seen


def lost_midway(error: BaseException) -> bool:
    """True when whoever asked cannot know whether it was done: a time-out, or a connection lost midway, by whatever client it is told."""
    one: BaseException | None = error
    for _ in range(_CHAIN):
        if one is None:
            return False
        name = type(one).__name__
        code = getattr(getattr(one, "error", None), "code", None) if name == "McpError" else None
        if isinstance(one, _LOST) or name in _LOST_NAMES or "timeout" in name.casefold() or code in _LOST_CODES:
            return True
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return False


def refused(error: BaseException) -> bool:
    """True when a server refused what it was asked: a 4xx that does not pass."""
    try:
        status = _status(error)
    except Exception:  # noqa: BLE001 - somebody else's property may raise anything
        return False
    return status is not None and status < _SERVER_ERROR and status not in _RETRYABLE_STATUS


def _had_answered(error: BaseException) -> bool:
    """True when the server had begun its reply, which is then paid for: there is a response, or it broke off in the middle."""
    broke_off = type(error).__name__ == "RemoteProtocolError" and "incomplete" in error_text(error)
    return broke_off or getattr(error, "response", None) is not None


def _said(error: Exception) -> str:
    """What an exception of the model call says, with the server's own words where the client leaves them out."""
    words, told = error_text(error), _told(getattr(error, "body", None))
    return words if told in words else f"{words} - {told}"


def _with_cause(error: Exception) -> str:
    """What an exception without a reply says; of a connection that failed also why, and to which server: the client says neither."""
    said = _said(error)
    if "Connection" not in type(error).__name__:
        return said
    root = error_text([*_chain(error)][-1])
    url = getattr(getattr(error, "request", None), "url", None)
    host, port = getattr(url, "host", ""), getattr(url, "port", None)
    at = f"at {host}:{port}" if port else f"at {host}" if host else ""
    more = " ".join(part for part in ("" if root in said else root, at) if part)
    return f"{said} ({more})" if more else said


def _told(body: object, depth: int = 4) -> str:
    """The message in the body of an error, and the field that it is about. Nothing else of it: a server may quote the prompt."""
    if isinstance(body, str):
        return body.strip()[:_READ_CHARS]
    if depth == 0 or not isinstance(body, Mapping | list):
        return ""
    parts = [body[key] for key in _MESSAGE_KEYS if key in body] if isinstance(body, Mapping) else body[:_PARTS]
    said = "; ".join([told for part in parts if (told := _told(part, depth - 1))])
    where = body.get("loc") if isinstance(body, Mapping) else None
    return f"{'.'.join(map(str, where))}: {said}" if said and isinstance(where, list) else said


def error_text(error: BaseException) -> str:
    """What an exception says (the first 20,000 characters), "" when it says nothing or cannot say it."""
    try:
        return str(error).strip()[:_READ_CHARS]
    except Exception:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return ""


def retry_after(headers: Mapping[str, str], *, wall: float) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `retry-after` as seconds or an HTTP date. None for none, or nonsense.

    Source: RFC 9110, section 10.2.3.
    """
    lowered = {str(key).lower(): str(value).strip() for key, value in headers.items()}
    millis = _seconds(lowered.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    text = lowered.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(parsedate_to_datetime(text).timestamp() - wall, 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
