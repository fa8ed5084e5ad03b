"""The `react` dialect: `Thought: / Action: / Action Input: {json}`, and `Final Answer:`, for models trained on that text protocol."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from fsm_agent.dialects.base import (
    Answer,
    Calls,
    Empty,
    Prompt,
    Purpose,
    Reading,
    Requested,
    Thought,
    Unreadable,
    merge_neighbours,
    one_system,
    rejected,
)
from fsm_agent.dialects.native import calls_beside, from_text, requested
from fsm_agent.dialects.react_text import ReactReply, parse_react
from fsm_agent.dialects.repair import CallText, Fault, Malformed, Repair, parse_call_text, split_thinking
from fsm_agent.dialects.repair.scan import past_object
from fsm_agent.dialects.textual import describe, known_so_far, observation, observations
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import flatten
from fsm_agent.language import Texts

__all__ = ["React"]

_ANSWER_LABEL = "Final Answer:"


@dataclass(frozen=True, slots=True)
class React:
    """One thought and one action a reply, in labelled lines; the labels stay English in every language.

    `recover_text_calls`: a reply without labels that is nothing but a call of a registered tool, as the model was trained to write
    one, is read as that call, and so is one behind `Action:`. False reads the first as an answer, and tells the second.
    """

    recover_text_calls: bool = True
    name: str = "react"
    native_tools: bool = False

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """System text, the protocol with the tools, then the blocks, and what is known though they leave it out."""
        texts = prompt.texts
        tools = [describe(tool) for tool in prompt.tools]
        protocol = texts.react_answer if prompt.purpose == "answer" else "\n".join([texts.react_rules, *tools])
        text = f"{prompt.system}\n\n{protocol}".strip()
        return merge_neighbours((*one_system(text), *flatten(prompt.blocks), *self.remind(prompt)))

    def remind(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """What is known so far, of results that do not stand in the history as they were told: nothing while all of them do."""
        shown = "".join(f"{message.text}\n" for message in flatten(prompt.blocks))
        left = tuple(one for one in prompt.done if f"{observation(one.result, prompt.texts)}\n" not in shown)
        return known_so_far(replace(prompt, done=left), f'write "{_ANSWER_LABEL}"')

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """None: the protocol is text."""
        return None

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """The first action; else the final answer; a thought alone costs a step. Plain text without any label is an answer."""
        if reply.unreadable:
            return Unreadable("malformed", reply.unreadable)
        if reply.calls:
            return Calls(calls_beside(reply))
        _, text = split_thinking(reply.text)
        if not text.strip():
            return Unreadable("truncated", "") if reply.truncated else Empty()
        said = _named(parse_react(reply.text, truncated=reply.may_be_cut), tools)
        if not (said.labelled or reply.truncated):
            return _unlabelled(text, said.repairs, tools if self.recover_text_calls else ())
        if self.recover_text_calls and (found := _called_in_label(said, tools)):
            return Calls(tuple([from_text(one) for one in found]), said.thought, said.repairs)
        return _reading(said, truncated=reply.truncated)

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """The thought and the action in clean form, and what came of it as the user's message."""
        parsed = parse_react(reply.text)
        thought = parsed.thought if parsed.labelled or reply.calls else ""  # else the text was the call itself
        said = [f"Thought: {thought}"] if thought else []
        for call in calls:
            written = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
            said += [f"Action: {call.name}", f"Action Input: {written}"]
        return (AIMessage("\n".join(said)), observations(results, texts))

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """What the model said, when it said anything, and the note; a result that it invented is left out."""
        said = parse_react(reply.text)
        if Repair.DROPPED_OBSERVATION in said.repairs:
            return rejected(replace(reply, text=f"Thought: {said.thought}" if said.thought else ""), note)
        return rejected(reply, note)

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """The note as a user message."""
        return (HumanMessage(note),)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """The answer under its label, so that the next turn sees the protocol kept."""
        return (AIMessage(f"{_ANSWER_LABEL} {text}"),)


def _named(said: ReactReply, tools: Collection[str]) -> ReactReply:
    """With the tool that the action names: it may be written as a call, `Action: look(order: "A17")`. Its input is what counts."""
    name = (said.action or "").partition("(")[0].strip()
    if said.action in tools or name not in tools:
        return said
    return replace(said, action=name, repairs=(*said.repairs, Repair.CALL_AS_TEXT))


def _called_in_label(said: ReactReply, tools: Collection[str]) -> tuple[CallText, ...] | None:
    """The call that stands behind the label as a whole, `Action: {"name": ..., "arguments": {...}}`; what follows the object is dropped."""
    arguments = said.arguments
    if not said.written or not isinstance(arguments, Malformed) or arguments.kind is not Fault.MISSING:
        return None
    end = past_object(said.written, 0)
    return None if end is None else parse_call_text(said.written[:end], registered=tools)


def _unlabelled(text: str, repairs: tuple[str, ...], tools: Collection[str]) -> Reading:
    found = parse_call_text(text, registered=tools)
    if found:
        return Calls(tuple([from_text(one) for one in found]), "", (*repairs, "no_label"))
    return Answer(text.strip(), (*repairs, "no_label"))


def _reading(said: ReactReply, *, truncated: bool) -> Reading:
    if said.action is not None:
        if isinstance(said.arguments, Malformed):
            return Calls((Requested("", said.action, said.arguments),), said.thought, said.repairs)
        given = {} if said.arguments is None else said.arguments.value
        calls = requested("", said.action, given, truncated=truncated)
        repairs = () if said.arguments is None else said.arguments.repairs
        return Calls(
            tuple(Requested(one.id, one.name, one.arguments, repairs) for one in calls), said.thought, said.repairs
        )
    if truncated:
        return Unreadable("truncated", "the reply was cut")
    if isinstance(said.arguments, Malformed):
        return Unreadable("malformed", said.arguments.detail, said.repairs)
    if said.answer is not None and said.answer.strip():
        return Answer(said.answer.strip(), said.repairs)
    return Thought(said.thought, said.repairs) if said.thought else Empty()
