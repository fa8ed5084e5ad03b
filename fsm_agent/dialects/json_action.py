"""The `json_action` dialect: one JSON object a reply, for models and servers without tool calling.

`{"action": "<tool>", "action_input": {...}}` calls a tool, `FINISH` with `{"answer": ...}` answers, `THINK` with `{"thought": ...}` thinks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

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
    misplaced,
    one_system,
    rejected,
)
from fsm_agent.dialects.native import calls_beside, requested
from fsm_agent.dialects.repair import Malformed, Repair, parse_object, split_thinking
from fsm_agent.dialects.textual import describe, known_so_far, observations, without_examples
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import flatten
from fsm_agent.language import Texts

__all__ = ["FINISH", "THINK", "JsonAction", "action_format", "answer_variant", "variant"]

FINISH: Final = "FINISH"
THINK: Final = "THINK"


@dataclass(frozen=True, slots=True)
class JsonAction:
    """One JSON object a reply.

    `constrain`: send a JSON schema of the possible actions as `response_format`, where the server takes one. `think`: offer `THINK`.
    """

    reserved: ClassVar[frozenset[str]] = frozenset({FINISH, THINK})

    constrain: bool = True
    think: bool = False
    name: str = "json_action"
    native_tools: bool = False

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """System text, the protocol with the tools, then the blocks."""
        text = f"{prompt.system}\n\n{_protocol(prompt, think=self.think)}".strip()
        return merge_neighbours((*one_system(text), *flatten(prompt.blocks), *self.remind(prompt)))

    def remind(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """What is known so far."""
        return known_so_far(prompt, FINISH)

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """A schema that admits exactly the tools with their own arguments, and FINISH; when an answer is forced, only FINISH."""
        if not self.constrain:
            return None
        variants = [variant(tool.name, without_examples(tool.parameters())) for tool in prompt.tools]
        if self.think and prompt.purpose == "plan":
            variants.append(variant(THINK, _one_text("thought")))
        variants.append(answer_variant())
        return action_format(variants)

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """The first object of the reply that has the form of an action."""
        if reply.unreadable:
            return Unreadable("malformed", reply.unreadable, json=True)
        if reply.calls:
            return Calls(calls_beside(reply))
        _, text = split_thinking(reply.text)
        if not text.strip():
            return Unreadable("truncated", "") if reply.truncated else Empty()
        return _read_actions(text, tools, truncated=reply.truncated)

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """The action as clean JSON, and what came of it as the user's message."""
        said = "\n".join(_written(call.name, dict(call.arguments)) for call in calls)
        return (AIMessage(said), observations(results, texts))

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """What the model said, when it said anything, and the note."""
        return rejected(reply, note)

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """The note as a user message."""
        return (HumanMessage(note),)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """The answer in the form in which the model gives it, so that the next turn sees the protocol kept."""
        return (AIMessage(_written(FINISH, {"answer": text})),)


_NAME_KEYS: Final = ("action", "name", "tool", "tool_name")
_INPUT_KEYS: Final = ("action_input", "arguments", "args", "parameters", "tool_input", "input")
_COMMENTARY: Final = frozenset(
    {
        *("thought", "thoughts", "thinking", "reasoning", "reason", "rationale", "explanation", "observation"),
        *("comment", "comments", "note", "notes", "message", "summary", "plan", "step", "next", "next_step"),
        *("status", "solved", "confidence", "id", "type", "index", "call_id", "tool_call_id"),
    }
)
"""What models write beside an action for whoever reads it, and servers around it. VALIDATE looks whether the tool has such an argument."""


@dataclass(frozen=True, slots=True)
class _Form:
    """An object that is an action: its name, its input as it stands there, and what was done to find that."""

    name: str
    given: Any
    repairs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def _read_actions(text: str, tools: Collection[str], *, truncated: bool) -> Reading:
    """The first action. A tool call beside a final answer comes first; two different final answers are no answer."""
    known = {*tools, FINISH, THINK}
    parsed = parse_object(text, accept=lambda value: _form(value, known) is not None, truncated=truncated)
    if isinstance(parsed, Malformed):
        cut = parsed.kind == "truncated" or truncated
        return Unreadable("truncated" if cut else "malformed", parsed.detail, parsed.repairs, json=True)
    form = _form(parsed.value, known)
    assert form is not None, "only such objects are accepted"
    if form.name == FINISH and Repair.FIRST_OF_SEVERAL in parsed.repairs:
        call = parse_object(text, accept=lambda value: _form_of_call(value, known), truncated=truncated)
        if not isinstance(call, Malformed) and (found := _form(call.value, known)) is not None:
            return _action(found, (*call.repairs, "answer_beside_call"), truncated=truncated)
        other = parse_object(text, accept=lambda value: _form(value, known) not in (None, form), truncated=truncated)
        if not isinstance(other, Malformed):
            return Unreadable("malformed", "two different final answers; send one", parsed.repairs, json=True)
    return _action(form, parsed.repairs, truncated=truncated)


def _form(value: Mapping[str, Any], known: Collection[str]) -> _Form | None:
    """The action and its input, under `action` or one of the other names that models use for a tool that exists."""
    for key in _NAME_KEYS:
        name = value.get(key)
        if isinstance(name, str) and (key == "action" or name.strip() in known):
            return _with_input(name.strip(), {one: given for one, given in value.items() if one != key})
    return None


def _with_input(name: str, beside: Mapping[str, Any]) -> _Form:
    """An action and what stands beside its name: nothing that may be an argument is passed over.

    A call that lost one would run with the default in its place, or without the flag that the model relies on.
    """
    keys = [key for key in _INPUT_KEYS if beside.get(key) is not None]
    inner = {FINISH: "answer", THINK: "thought"}.get(name)
    if inner is not None:
        return _Form(name, beside[keys[0]]) if keys else _Form(name, {inner: beside.get(inner)}, ("flat_arguments",))
    said = tuple([key for key in beside if key in _COMMENTARY])
    rest = {key: given for key, given in beside.items() if key not in _INPUT_KEYS and key not in _COMMENTARY}
    if not keys:
        return _Form(name, rest, ("flat_arguments",), said) if rest else _Form(name, None, beside=said)
    odd = [*keys[1:], *(key for key, given in rest.items() if given not in _NOTHING)]
    return _Form(name, misplaced(odd) if odd else beside[keys[0]], beside=said)


_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})


def _form_of_call(value: Mapping[str, Any], known: Collection[str]) -> bool:
    form = _form(value, known)
    return form is not None and form.name not in (FINISH, THINK)


def _action(form: _Form, read: tuple[str, ...], *, truncated: bool) -> Reading:
    given, repairs = form.given, (*read, *form.repairs)
    if form.name == FINISH:
        answer = given.get("answer") if isinstance(given, Mapping) else given
        text = answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer, ensure_ascii=False)
        if text.strip():
            return Answer(text.strip(), repairs)
        return Unreadable("malformed", f'{FINISH} needs {{"answer": "..."}}', repairs, json=True)
    if form.name == THINK:
        thought = given.get("thought") if isinstance(given, Mapping) else given
        return Thought(str(thought or ""))
    if isinstance(given, Malformed):
        return Calls((Requested("", form.name, given, repairs),))
    calls = requested("", form.name, given, truncated=truncated)
    return Calls(
        tuple([Requested(one.id, one.name, one.arguments, (*repairs, *one.repairs), form.beside) for one in calls])
    )


def _written(action: str, action_input: Mapping[str, Any]) -> str:
    return json.dumps({"action": action, "action_input": action_input}, ensure_ascii=False, default=str)


def action_format(variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The `response_format` that admits one of `variants`."""
    schema = variants[0] if len(variants) == 1 else {"anyOf": variants}
    return {"type": "json_schema", "json_schema": {"name": "action", "schema": schema}}


def answer_variant() -> dict[str, Any]:
    """The schema of the final answer."""
    return variant(FINISH, _one_text("answer"))


def variant(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one action with its own arguments."""
    properties = {"action": {"const": name}, "action_input": parameters}
    return {
        "type": "object",
        "properties": properties,
        "required": ["action", "action_input"],
        "additionalProperties": False,
    }


def _one_text(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string"}},
        "required": [name],
        "additionalProperties": False,
    }


def _protocol(prompt: Prompt, *, think: bool) -> str:
    texts = prompt.texts
    if prompt.purpose == "answer":
        return texts.json_answer.format(finish=FINISH)
    tools = [describe(tool) for tool in prompt.tools]
    thinking = [texts.json_think.format(think=THINK)] if think else []
    return "\n".join([texts.json_rules, *tools, *thinking, texts.json_finish.format(finish=FINISH)])
