"""What a run may be given: a task as text, messages, or a mapping that holds either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from fsm_agent.errors import RunError
from fsm_agent.history import Block, block, text_of

__all__ = ["AgentInput", "Task", "read_input"]

AgentInput = str | Mapping[str, Any] | Sequence[Any] | PromptValue | BaseMessage
"""A task as text, a message, messages that end with the user's, a prompt value, or `{"task" | "input" | "messages": ...}`."""

_KEYS = ("task", "input", "messages")


@dataclass(frozen=True, slots=True)
class Task:
    """One user turn: its text, its message, and the earlier turns that the caller brought along."""

    text: str
    message: HumanMessage
    earlier: tuple[Block, ...] = ()
    system: str | None = None


def read_input(value: AgentInput) -> Task:
    """The task in `value`: a text, a message, a list of messages, a prompt value, or `{"task" | "input" | "messages": ...}`.

    Of a list of messages the last one must be the user's; earlier ones become earlier turns, a system message among them the system text.
    Raises `fsm_agent.errors.RunError` for anything else, before anything happens.
    """
    if isinstance(value, PromptValue):
        return _of_messages(value.to_messages())
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, BaseMessage):
        return _of_messages([value])
    if isinstance(value, Mapping):
        for key in _KEYS:
            if key in value:
                return read_input(value[key])
        raise RunError(
            f"the input has none of the keys {', '.join(_KEYS)}; it has {', '.join(map(str, value)) or 'none'}"
        )
    if isinstance(value, Sequence) and value:
        return _of_messages(convert_to_messages(list(value)))
    raise RunError(
        f"the input is {'an empty list' if value == [] else type(value).__name__}; give the task as text, or messages that end with the user's"
    )


def _of_text(text: str) -> Task:
    if not text.strip():
        raise RunError("the task is empty; say what the agent should do")
    return Task(text, HumanMessage(text))


def _of_messages(messages: Sequence[AnyMessage | BaseMessage]) -> Task:
    *before, last = messages
    if not isinstance(last, HumanMessage):
        raise RunError(f"the last message is a {type(last).__name__}; it must be the user's (HumanMessage)")
    text = text_of(last.content)
    if isinstance(last.content, str) and not text.strip():
        raise RunError("the task is empty; say what the agent should do")
    earlier: list[Block] = []
    system: str | None = None
    turn = 0
    for message in before:
        if isinstance(message, SystemMessage):
            system = text_of(message.content)
        elif isinstance(message, HumanMessage):
            turn = earlier[-1].turn + 1 if earlier else 0
            earlier.append(block("task", message, turn=turn))
        elif isinstance(message, AIMessage) and not message.tool_calls and text_of(message.content).strip():
            earlier.append(block("answer", AIMessage(text_of(message.content)), turn=turn))
    return Task(text, last, tuple(earlier), system)
