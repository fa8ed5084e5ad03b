"""Reading what a chat model returned, strictly: LangChain messages and chunks to `Replied`. Pure.

LangChain completes cut JSON while it merges streamed chunks, so nothing it parsed from a stream is believed: the raw text of each
call is kept as text, and VALIDATE reads it strictly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from fsm_agent.dialects.repair.scan import deeper_than_read
from fsm_agent.effects import CAP_REACHED, FILTERED, RawCall, Replied, Usage
from fsm_agent.history import estimate_text, text_of
from fsm_agent.opaque import is_opaque, merged, opaque_of
from fsm_agent.tools.plain import well_formed
from fsm_agent.usage import merge_stream_usage, read_usage, says_output
from fsm_agent.wire import RAW_CALLS

__all__ = ["ChunkReader", "read_message", "replied"]

_CUT: Final = frozenset(
    {
        *("length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded", "incomplete"),
        *("insufficient_system_resource", *FILTERED),
    }
)
_FINISH_KEYS: Final = ("finish_reason", "stop_reason", "done_reason")
_strictly: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
_LONG: Final = 1 << 62
_HALF: Final = re.compile(r"(?<!\\)(\\*)([\ud800-\udfff])")


def read_message(message: BaseMessage, *, estimate: int, cap: int | None, at: float) -> Replied:
    """A whole reply. `estimate` is the prompt in tokens, `cap` the model's own limit on reply tokens where it is known."""
    metadata: Mapping[str, Any] = message.response_metadata or {}
    raw = message.additional_kwargs.get(RAW_CALLS)
    told = (*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())) or _old_calls(message)
    asked = raw or [(one.get("id"), one.get("name"), one.get("args")) for one in told]
    return replied(
        text=text_of(message.content),
        calls=tuple([_raw_call(*one) for one in asked]),
        usage=getattr(message, "usage_metadata", None),
        finish=_finish(metadata),
        refusal=_refusal(message),
        opaque=opaque_of(message) if asked else None,
        id=message.id or "",
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
        arguments = arguments if arguments.isascii() else _spelled(arguments)
    elif arguments is not None and not _is_plain(arguments):
        try:
            text = _strictly(arguments)
            text.encode()
            if deeper_than_read(text):  # nor can it be written down
                arguments = text
        except (ValueError, TypeError, RecursionError):
            arguments = well_formed(json.dumps(arguments, default=str))
    return RawCall(well_formed(str(call_id or "")), well_formed(str(name or "")), arguments)


def _spelled(arguments: str) -> str:
    """The same arguments in characters that UTF-8 has: half a pair is an escape, which VALIDATE refuses as it does in a dict."""
    whole = arguments.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return _HALF.sub(_escaped, whole)


def _escaped(half: re.Match[str]) -> str:
    """The escape of half a pair, behind an even number of backslashes: behind an odd one it would be text."""
    before = half[1] + "\\" * (len(half[1]) % 2)
    return f"{before}\\u{ord(half[2]):04x}"


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
    id: str = ""

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
        self.id = self.id or chunk.id or ""
        if isinstance(chunk, AIMessageChunk) and (self.more or is_opaque(chunk)):
            if self.texts and not self.more:
                self.more.append(AIMessageChunk(content="".join(self.texts)))
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
        return replied(
            text="".join(self.texts),
            calls=tuple(_raw_call(slot[0], slot[1], "".join(slot[2])) for slot in self.calls),
            usage=merge_stream_usage(self.usages),
            finish="length" if cut else self.finish,
            refusal=self.refusal,
            opaque=merged(self.more) if self.more and self.calls else None,
            id=self.id,
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


def replied(
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
    id: str = "",
) -> Replied:
    """A reply with these parts: its usage counted or estimated, marked as cut where its label or its length says so."""
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
        id=well_formed(id),
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
