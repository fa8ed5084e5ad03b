"""Reading what a chat model returned, strictly: LangChain messages and chunks to `Replied`, exceptions to `ModelFailed`. Pure.

LangChain completes cut JSON while it merges streamed chunks, so nothing it parsed from a stream is believed: the raw text of each
call is kept as text, and VALIDATE reads it strictly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from pydantic import ValidationError

from fsm_agent.dialects.repair.scan import deeper_than_read
from fsm_agent.effects import CAP_REACHED, NO_USAGE, ModelFailed, RawCall, Replied, Usage
from fsm_agent.history import estimate_text, text_of
from fsm_agent.opaque import is_opaque, merged, opaque_of
from fsm_agent.overflow import read_overflow
from fsm_agent.redact import redact_text
from fsm_agent.tools.plain import well_formed
from fsm_agent.usage import merge_stream_usage, read_usage, says_output
from fsm_agent.wire import RAW_CALLS

__all__ = ["ChunkReader", "failed", "read_message", "retry_after", "words_of"]

_CUT: Final = frozenset(
    {
        *("length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded", "incomplete"),
        *("content_filter", "content_filtered", "safety", "recitation", "insufficient_system_resource"),
    }
)
_FINISH_KEYS: Final = ("finish_reason", "stop_reason", "done_reason")
_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429})
_HOPELESS_CODES: Final = frozenset(
    {"insufficient_quota", "context_length_exceeded", "content_filter", "model_not_found", "invalid_api_key"}
)
_strictly: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
_ERROR_CHARS: Final = 500
_READ_CHARS: Final = 20_000
"""So much of what an exception says is looked at: some quote a whole page or prompt, and to search that for secrets takes seconds."""
_LONG: Final = 1 << 62
_HTTP_ERROR: Final = re.compile("[45][0-9]{2}")
_SERVER_ERROR: Final = 500
_CHAIN: Final = 5
_MESSAGE_KEYS: Final = ("message", "msg", "detail", "error", "errors")
_PARTS: Final = 3


def read_message(message: BaseMessage, *, estimate: int, cap: int | None, at: float) -> Replied:
    """A whole reply. `estimate` is the prompt in tokens, `cap` the model's own limit on reply tokens where it is known."""
    metadata: Mapping[str, Any] = message.response_metadata or {}
    raw = message.additional_kwargs.get(RAW_CALLS)
    told = (*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())) or _old_calls(message)
    asked = raw or [(one.get("id"), one.get("name"), one.get("args")) for one in told]
    return _replied(
        text=text_of(message.content),
        calls=tuple([_raw_call(*one) for one in asked]),
        usage=getattr(message, "usage_metadata", None),
        finish=_finish(metadata),
        refusal=_refusal(message),
        opaque=opaque_of(message) if asked else None,
        estimate=estimate,
        cap=cap,
        at=at,
    )


def _old_calls(message: BaseMessage) -> list[Mapping[str, Any]]:
    """The call of a server that knows no `tool_calls` yet: `function_call`, one at most, without an id."""
    old = message.additional_kwargs.get("function_call")
    return [{"name": old.get("name"), "args": old.get("arguments")}] if isinstance(old, Mapping) else []


def _raw_call(call_id: object, name: object, arguments: Any) -> RawCall:
    """A call in characters and numbers that JSON has.

    What strict JSON cannot write, or is nested too deep to be read, is kept as text, which VALIDATE refuses.
    """
    if isinstance(arguments, str):
        arguments = well_formed(arguments)
    elif arguments is not None and not _is_plain(arguments):
        try:
            text = _strictly(arguments)
            text.encode()
            if deeper_than_read(text):  # nor can it be written down
                arguments = text
        except (ValueError, TypeError, RecursionError):
            arguments = well_formed(json.dumps(arguments, default=str))
    return RawCall(well_formed(str(call_id or "")), well_formed(str(name or "")), arguments)


def _is_plain(arguments: Any) -> bool:
    """True for what nearly every call has: a few plain values, with which JSON has no difficulty."""
    if type(arguments) is not dict:
        return False
    for name, item in arguments.items():
        if not (type(name) is str and name.isascii()):
            return False
        kind = type(item)
        if not (
            item is None or kind is bool or (kind is str and item.isascii()) or (kind is int and abs(item) < _LONG)
        ):
            return False
    return True


@dataclass(slots=True)
class ChunkReader:
    """Collects the chunks of one streamed reply."""

    texts: list[str] = field(default_factory=list)
    calls: list[list[Any]] = field(default_factory=list)
    open: dict[object, list[Any]] = field(default_factory=dict)
    usages: list[Mapping[str, Any]] = field(default_factory=list)
    finish: str = ""
    refusal: str = ""
    whole: AIMessage | None = None
    more: list[AIMessageChunk] = field(default_factory=list)
    before: str = ""

    @property
    def began(self) -> bool:
        """True when anything of the reply has arrived."""
        return bool(self.texts or self.calls or self.usages or self.finish)

    def charged(self, estimate: int) -> Usage:
        """What a reply that broke off has cost, as an estimate: the prompt and what had arrived."""
        arrived = estimate_text("".join(self.texts)) + sum(estimate_text("".join(slot[2])) for slot in self.calls)
        return Usage(estimate, arrived, estimate + arrived, estimate + arrived)

    def add(self, chunk: BaseMessage) -> str:
        """Take `chunk` and return its text."""
        if isinstance(chunk, AIMessage) and not isinstance(chunk, AIMessageChunk):
            self.whole = chunk
            return text_of(chunk.content)
        text = text_of(chunk.content)
        if isinstance(chunk, AIMessageChunk) and (self.more or is_opaque(chunk)):
            self.before = self.before if self.more else "".join(self.texts)
            self.more.append(chunk)
        if text:
            self.texts.append(text)
        if isinstance(chunk, AIMessageChunk):
            for part in chunk.tool_call_chunks or _old_calls(chunk):
                self._add_call(part)
            if chunk.usage_metadata:
                self.usages.append(chunk.usage_metadata)
        self.finish = _finish(chunk.response_metadata or {}) or self.finish
        self.refusal += _refusal(chunk)
        return text

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """Pieces of one call share an index. Servers without, or with the same for all calls, start one with its name."""
        call_id, name, args = part.get("id") or "", part.get("name") or "", part.get("args") or ""
        index = part.get("index")
        slot = self.open.get(index)
        if slot is None or (name and _starts(slot, index, call_id, name, args)):
            slot = self.open[index] = ["", "", []]
            self.calls.append(slot)
        slot[0] = slot[0] or call_id
        slot[1] += name if name != slot[1] else ""
        slot[2].append(args)

    def replied(self, *, estimate: int, cap: int | None, at: float, must_finish: bool = False) -> Replied:
        """The finished reply. `must_finish`: the protocol says when a stream ends, so one that just stops was cut."""
        if self.whole is not None:
            return read_message(self.whole, estimate=estimate, cap=cap, at=at)
        cut = must_finish and not (self.finish or self.usages)
        return _replied(
            text="".join(self.texts),
            calls=tuple(_raw_call(slot[0], slot[1], "".join(slot[2])) for slot in self.calls),
            usage=merge_stream_usage(self.usages),
            finish="length" if cut else self.finish,
            refusal=self.refusal,
            opaque=merged(self.more, self.before) if self.more and self.calls else None,
            estimate=estimate,
            cap=cap,
            at=at,
        )


def _starts(slot: Sequence[Any], index: object, call_id: str, name: str, args: str) -> bool:
    """Whether a piece with a name begins another call than that of `slot`.

    Some servers repeat the name, or make a new id, for each piece: taken for a call, a piece would be executed with no arguments.
    """
    another = bool(call_id and slot[0]) and call_id != slot[0]
    if name != slot[1]:
        return index is None or another or _is_whole(slot[2])
    if index is None:
        return not call_id or another
    return (another or bool(args and not (call_id and slot[0]))) and _is_whole(slot[2])


def _is_whole(pieces: Iterable[str]) -> bool:
    try:
        json.loads("".join(pieces))
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _replied(
    *,
    text: str,
    calls: tuple[RawCall, ...],
    usage: object,
    finish: str,
    refusal: str,
    estimate: int,
    cap: int | None,
    at: float,
    opaque: Mapping[str, Any] | None = None,
) -> Replied:
    text, refusal = _seen(well_formed(text)), well_formed(refusal)
    written = 0 if says_output(usage) else _written(text, calls)
    counted, prompt_tokens = read_usage(usage, prompt_estimate=estimate, reply_estimate=written)
    cut = finish.lower() in _CUT
    capped = cap is not None and counted.output >= cap
    return Replied(
        text=text,
        calls=calls,
        usage=counted,
        prompt_tokens=prompt_tokens,
        finish=finish,
        truncated=cut,
        refusal=refusal,
        repairs=("cut_by_label",) if cut else (CAP_REACHED,) if capped else (),
        opaque=opaque,
        at=at,
    )


def _seen(text: str) -> str:
    """`text`; "" when nothing of it can be seen, as of a zero-width space: that is an empty reply, and no answer."""
    return text if any(char.isprintable() and char != " " for char in text) else ""


def _written(text: str, calls: tuple[RawCall, ...]) -> int:
    """The reply in tokens, estimated."""
    return estimate_text(text) + sum(
        [estimate_text(call.name) + estimate_text(str(call.arguments or "")) for call in calls]
    )


def _finish(metadata: Mapping[str, Any]) -> str:
    if metadata.get("status") == "incomplete":  # OpenAI's newer protocol has no label, but this
        details = metadata.get("incomplete_details")
        why = details.get("reason") if isinstance(details, Mapping) else None
        return why if isinstance(why, str) and why in _CUT else "incomplete"
    for key in _FINISH_KEYS:
        value = metadata.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _refusal(message: BaseMessage) -> str:
    """What a model says that declines: beside the content, or as OpenAI's newer protocol has it, a block of it."""
    blocks = message.content if isinstance(message.content, list) else ()
    told = [one.get("refusal") for one in blocks if isinstance(one, dict) and one.get("type") == "refusal"]
    return "".join([one for one in (message.additional_kwargs.get("refusal"), *told) if isinstance(one, str)])


def failed(error: Exception, *, at: float, wall: float, estimate: int) -> Replied | ModelFailed:
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
    status = _status(error)
    if status is not None:
        passing = status in _RETRYABLE_STATUS or status >= _SERVER_ERROR
        retryable = passing and getattr(error, "code", None) not in _HOPELESS_CODES
    else:
        # The connection broke, or the answer was no message: one more try may help, and the retries are bounded.
        retryable = True
    said = _said(error)
    overflow = read_overflow(status, getattr(error, "code", None), said)
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
    return _replied(text=text, calls=(), usage=usage, finish="length", refusal="", estimate=estimate, cap=None, at=at)


def _status(error: BaseException) -> int | None:
    for one in _chain(error):
        told = one.args[0] if one.args and isinstance(one.args[0], Mapping) else {}
        for status in (
            getattr(one, "status_code", None),
            getattr(getattr(one, "response", None), "status_code", None),
            # Where the error came with status 200, in a stream or as the body, its own code says what went wrong.
            getattr(one, "code", None),
            told.get("code"),
        ):
            if isinstance(status, int | str) and _HTTP_ERROR.fullmatch(str(status)):
                return int(status)
    return None


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
    while one is not None and one not in seen and len(seen) < _CHAIN:
        seen.append(one)
        one = one.__cause__
    return seen


def _had_answered(error: BaseException) -> bool:
    """True when the server had begun its reply, which is then paid for: there is a response, or it broke off in the middle."""
    broke_off = type(error).__name__ == "RemoteProtocolError" and "incomplete" in words_of(error)
    return broke_off or getattr(error, "response", None) is not None


def _said(error: Exception) -> str:
    """What an exception of the model call says, with the server's own words where the client leaves them out."""
    words, told = words_of(error), _told(getattr(error, "body", None))
    return words if told in words else f"{words} - {told}"


def _told(body: object, depth: int = 4) -> str:
    """The message in the body of an error. Nothing else of it: a server that checks its input may quote the prompt."""
    if isinstance(body, str):
        return body.strip()[:_READ_CHARS]
    if depth == 0 or not isinstance(body, Mapping | list):
        return ""
    parts = [body[key] for key in _MESSAGE_KEYS if key in body] if isinstance(body, Mapping) else body[:_PARTS]
    return "; ".join([told for part in parts if (told := _told(part, depth - 1))])


def words_of(error: BaseException) -> str:
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
