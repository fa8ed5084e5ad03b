"""The `guided_json` dialect: `json_action` with guidance, for models of one or two billion parameters.

Measured on such models: they answer at once with invented values, lose what earlier calls gave, and repeat calls when nothing is missing.
So every reply begins with a thought, an answer is possible once a tool was tried, each further prompt is one message with the task and
everything that is known, and a tool that was just called twice in the same way is not offered in the next reply.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AnyMessage, HumanMessage

from fsm_agent.dialects.base import Prompt, Purpose, Reading, merge_neighbours, one_system
from fsm_agent.dialects.json_action import FINISH, JsonAction, answer_variant, variant
from fsm_agent.dialects.textual import describe, without_examples
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import Block, flatten
from fsm_agent.language import Texts
from fsm_agent.tools.spec import Tool

__all__ = ["GuidedJson"]

_LINES: Final = 12
_CHARS: Final = 400
_THOUGHT_CHARS: Final = 160
_PLAIN: Final = JsonAction()


@dataclass(frozen=True, slots=True)
class GuidedJson:
    """`json_action` for small models: a thought before each action, a tool before the answer, one message with all that is known."""

    name: str = "guided_json"
    native_tools: bool = False

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """The tools and the protocol; earlier turns; then the task with what is known, what failed, and what to do now."""
        texts = prompt.texts
        own = "" if prompt.system == texts.system else prompt.system
        system = f"{own}\n\n{_protocol(prompt)}".strip()
        turn = prompt.blocks[-1].turn if prompt.blocks else 0
        earlier = flatten([one for one in prompt.blocks if one.turn < turn])
        now = _situation(prompt) if prompt.task else ()
        return merge_neighbours((*one_system(system), *earlier, *_brought(prompt.blocks, turn, now), *now))

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """The possible actions with their own arguments, each behind a thought; no answer before a tool was tried."""
        if prompt.purpose == "answer" or not prompt.tools:
            return _format([_thoughtful(answer_variant())])
        if prompt.done or prompt.failed:
            offered = [_call(tool) for tool in prompt.tools if tool.name != _just_repeated(prompt)]
            return _format([_thoughtful(one) for one in (answer_variant(), *offered)])
        return _format([_thoughtful(_call(tool)) for tool in prompt.tools])

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """As `json_action` reads it; what stands before the action is for the model alone."""
        return _PLAIN.read(reply, tools, purpose)

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_round(reply, calls, results, texts)

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_rejected(reply, note)

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_note(note)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """As `json_action` keeps it."""
        return _PLAIN.keep_answer(text)


def _brought(blocks: Sequence[Block], turn: int, now: Sequence[AnyMessage]) -> tuple[AnyMessage, ...]:
    """The messages of this turn, where the situation cannot stand for them: without a task text, or with more than text in it."""
    mine = flatten([one for one in blocks if one.turn == turn])
    if now and all(type(message.content) is str for message in mine):
        return ()
    return mine


def _situation(prompt: Prompt) -> tuple[AnyMessage, ...]:
    texts = prompt.texts
    known = {_written(one.call): one.result.text[:_CHARS] for one in prompt.done[-_LINES:]}
    lines = [texts.guided_returned.format(call=call, text=text) for call, text in known.items()]
    lines += [
        texts.guided_failed.format(call=_written(one.call), error=one.result.text[:_CHARS]) for one in prompt.failed
    ]
    parts = [texts.guided_task.format(task=prompt.task)]
    if lines:
        parts.append(f"{texts.guided_known}\n" + "\n".join(lines))
    if prompt.told:
        parts.append(prompt.told)
    if prompt.purpose == "answer":
        parts.append(texts.guided_answer.format(finish=FINISH))
    elif prompt.failed:
        parts.append(texts.guided_retry)
    elif prompt.done:
        parts.append(texts.guided_next.format(finish=FINISH))
    return (HumanMessage("\n".join(parts)),)


def _written(call: Call) -> str:
    arguments = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    return f"{call.tool}({arguments})"


def _protocol(prompt: Prompt) -> str:
    texts = prompt.texts
    if prompt.purpose == "answer" or not prompt.tools:
        return texts.json_answer.format(finish=FINISH)
    tools = "\n".join(describe(tool) for tool in prompt.tools)
    return f"{texts.guided_rules}\n{tools}\n{texts.json_finish.format(finish=FINISH)}\n{texts.guided_first}"


def _call(tool: Tool) -> dict[str, Any]:
    return variant(tool.name, without_examples(tool.parameters()))


def _thoughtful(call: Mapping[str, Any]) -> dict[str, Any]:
    """An action behind a thought: whether anything is missing is said before the action is chosen."""
    thought = {"thought": {"type": "string", "maxLength": _THOUGHT_CHARS}}
    return {**call, "properties": {**thought, **call["properties"]}, "required": [*thought, *call["required"]]}


def _just_repeated(prompt: Prompt) -> str:
    """The tool whose newest call was an exact repeat: it is not offered in the next reply, so that the model moves on."""
    if not prompt.done:
        return ""
    newest = prompt.done[-1].call
    again = any(one.call.signature == newest.signature for one in prompt.done[:-1])
    return newest.tool if again else ""


def _format(variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    schema = dict(variants[0]) if len(variants) == 1 else {"anyOf": list(variants)}
    return {"type": "json_schema", "json_schema": {"name": "action", "schema": schema}}
