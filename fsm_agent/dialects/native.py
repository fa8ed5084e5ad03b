"""The `native` dialect: the provider's own tool calling."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from fsm_agent.dialects.base import (
    Answer,
    Calls,
    Empty,
    Prompt,
    Purpose,
    Reading,
    Requested,
    Unreadable,
    merge_neighbours,
    one_system,
    rejected,
)
from fsm_agent.dialects.repair import (
    CallText,
    Malformed,
    expand_parallel,
    parse_arguments,
    parse_call_text,
    split_thinking,
)
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import MessageTemplate, flatten
from fsm_agent.language import Texts
from fsm_agent.opaque import restored

__all__ = ["Native", "calls_beside", "from_text", "read_text", "requested"]


@dataclass(frozen=True, slots=True)
class Native:
    """Tools are bound to the request; calls come back beside the text.

    `recover_text_calls`: a reply that is nothing but a call of a registered tool written as text is read as that call (small models and
    some servers do this); it passes the same checks and the same approval as any call. False reads it as an answer.
    """

    recover_text_calls: bool = True
    name: str = "native"
    native_tools: bool = True

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """System text, then the blocks as they are."""
        return merge_neighbours((*one_system(prompt.system), *flatten(prompt.blocks)))

    def remind(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """Nothing: the history holds every call with its result."""
        return ()

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """None: the tool schemas constrain the reply."""
        return None

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """Calls win over text beside them; text alone is the answer, unless it was cut or is itself a call."""
        if reply.unreadable:
            return Unreadable("malformed", reply.unreadable)
        if reply.calls:
            _, text = split_thinking(reply.text)
            return Calls(calls_beside(reply), text)
        return read_text(reply, tools, recover=self.recover_text_calls)

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """The assistant message with its calls, and one tool message for each, in order."""
        _, text = split_thinking(reply.text)
        made = [{"name": call.name, "args": dict(call.arguments), "id": call.id, "type": "tool_call"} for call in calls]
        asked = _asked("" if reply.calls == () else text, made, reply.id)
        if reply.opaque is not None and [one.id for one in reply.calls] == [call.id for call in calls]:
            asked = restored(asked, reply.opaque)
        answers = [_answer(call, result) for call, result in zip(calls, results, strict=True)]
        return (asked, *answers)

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """What the model said, when it said anything, and the note."""
        return rejected(reply, note)

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """The note as a user message: strict templates take no second system message."""
        return (HumanMessage(note),)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """The answer as the assistant's message."""
        return (_SAID.cast(content=text) if text.isascii() else AIMessage(text),)


_ASKED: Final = MessageTemplate(
    AIMessage("text", id="id", tool_calls=[{"name": "name", "args": {}, "id": "id", "type": "tool_call"}])
)
_SAID: Final = MessageTemplate(AIMessage("text"))
_ANSWER: Final = MessageTemplate(ToolMessage("text", tool_call_id="id", name="name", status="success"))


def _asked(text: str, calls: list[dict[str, Any]], message_id: str) -> AIMessage:
    plain = text.isascii() and message_id.isascii()
    if calls and plain and not [one for one in calls if not (one["name"].isascii() and one["id"].isascii())]:
        return _ASKED.cast(content=text, tool_calls=calls, id=message_id or None)
    return AIMessage(text, tool_calls=calls, id=message_id or None)


def _answer(call: Call, result: Result) -> ToolMessage:
    text, status = result.text or "(empty)", "success" if result.ok else "error"
    if text.isascii() and call.id.isascii() and call.name.isascii():
        return _ANSWER.cast(content=text, tool_call_id=call.id, name=call.name, status=status)
    return ToolMessage(text, tool_call_id=call.id, name=call.name, status=status)


def calls_beside(reply: Replied) -> tuple[Requested, ...]:
    """The calls that came beside the text of a reply, as read."""
    asked = [requested(raw.id, raw.name, raw.arguments, truncated=reply.may_be_cut) for raw in reply.calls]
    return asked[0] if len(asked) == 1 else tuple([one for several in asked for one in several])


def requested(call_id: str, name: str, arguments: object, *, truncated: bool) -> tuple[Requested, ...]:
    """One call as read, or the several that a "parallel" wrapper holds."""
    parsed = parse_arguments(arguments, truncated=truncated)
    if isinstance(parsed, Malformed):
        return (Requested(call_id, name, parsed),)
    inner = expand_parallel(name, parsed.value)
    if inner is None:
        return (Requested(call_id, name, parsed.value, parsed.repairs),)
    return tuple(Requested("", one, args, (*parsed.repairs, "parallel_wrapper")) for one, args in inner)


def from_text(call: CallText, repairs: tuple[str, ...] = ()) -> Requested:
    """A call that was written as text, without an id."""
    if isinstance(call.arguments, Malformed):
        return Requested("", call.name, call.arguments, (*repairs, *call.arguments.repairs))
    return Requested("", call.name, call.arguments.value, (*repairs, *call.arguments.repairs))


def read_text(reply: Replied, tools: Collection[str], *, recover: bool) -> Reading:
    """A reply without calls: the answer, nothing, or a call written as text."""
    thinking, text = split_thinking(reply.text)
    repairs = ("thinking_dropped",) if thinking else ()
    if recover:
        found = parse_call_text(text, registered=tools)
        if found and not reply.truncated:
            return Calls(tuple(from_text(one, repairs) for one in found), "")
    if reply.truncated:
        return Unreadable("truncated", "the reply was cut")
    if text.strip():
        return Answer(text.strip(), repairs)
    return Answer(reply.refusal, ("refusal",)) if reply.refusal.strip() else Empty()
