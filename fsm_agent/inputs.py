"""What a run may be given: a task as text, messages, or a mapping that holds either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.prompt_values import PromptValue

from fsm_agent.dialects import Dialect
from fsm_agent.effects import Call, RawCall, Replied, Result
from fsm_agent.errors import RunError
from fsm_agent.history import Block, block, text_of
from fsm_agent.language import Texts
from fsm_agent.tools.plain import well_formed

__all__ = ["AgentInput", "Task", "earlier_blocks", "read_input"]

AgentInput = str | Mapping[str, Any] | Sequence[Any] | PromptValue | BaseMessage
"""A task as text, a message, messages that end with the user's, a prompt value, or `{"task" | "input" | "messages": ...}`."""

_KEYS = ("task", "input", "messages")


@dataclass(frozen=True, slots=True)
class Task:
    """One user turn: its text, its message, and the earlier turns that the caller brought along."""

    text: str
    message: HumanMessage
    earlier: tuple[BaseMessage, ...] = ()
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
    given: object = value
    if isinstance(given, Sequence) and given and not isinstance(given, bytes | bytearray):
        return _of_messages(_converted(given))
    what = "an empty list" if value == [] else type(value).__name__
    raise RunError(f"the input is {what}; give the task as text, or messages that end with the user's")


def _converted(given: Sequence[Any]) -> list[BaseMessage]:
    try:
        return convert_to_messages(list(given))
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        raise RunError(f"the input is a list that is no list of messages: {error}") from error


def _of_text(text: str) -> Task:
    if not text.strip():
        raise RunError("the task is empty; say what the agent should do")
    text = well_formed(text)
    return Task(text, HumanMessage(text))


def _of_messages(messages: Sequence[AnyMessage | BaseMessage]) -> Task:
    *before, last = [_whole(one) for one in messages]
    if not isinstance(last, HumanMessage):
        raise RunError(f"the last message is a {type(last).__name__}; it must be the user's (HumanMessage)")
    text = text_of(last.content)
    if not text.strip() and isinstance(last.content, str):
        raise RunError("the task is empty; say what the agent should do")
    system = "\n\n".join(text_of(one.content) for one in before if isinstance(one, SystemMessage))
    return Task(text, last, tuple(one for one in before if not isinstance(one, SystemMessage)), system or None)


def _whole(message: BaseMessage) -> BaseMessage:
    """Halves of a character would be joined, or lost, by the first server or file that they meet: they are joined here."""
    content: Any = message.content
    if isinstance(content, str):
        whole: Any = well_formed(content)
    else:
        whole = [
            well_formed(part)
            if isinstance(part, str)
            else {name: well_formed(item) if isinstance(item, str) else item for name, item in part.items()}
            for part in content
        ]
    return message if whole == content else message.model_copy(update={"content": whole})


def earlier_blocks(task: Task, dialect: Dialect, texts: Texts) -> tuple[Block, ...]:
    """The earlier messages as blocks of turns, in the dialect's own form.

    What stands before the first user message (a greeting) is left out, because no strict template takes it there.
    A round is kept when it is whole: an assistant message with calls, followed by the result of each. Half a round is left out, because
    no provider would take it.
    """
    blocks: list[Block] = []
    turn = -1
    said: list[str] = []
    for index, message in enumerate(task.earlier):
        if isinstance(message, HumanMessage):
            turn += 1
            blocks.append(block("task", message, turn=turn))
            said = []
        elif turn < 0 or not isinstance(message, AIMessage):
            continue
        elif message.tool_calls:
            kept = _whole_round(message, said, task.earlier[index + 1 :], dialect, texts)
            if kept:
                # What the model had said just before belongs to the same assistant message.
                blocks = blocks[:-1] if said else blocks
                blocks.append(block("round", *kept, turn=turn))
                said = []
        elif text_of(message.content).strip():
            blocks = blocks[:-1] if said else blocks
            said = [*said, text_of(message.content)]
            blocks.append(block("answer", *dialect.keep_answer("\n\n".join(said)), turn=turn))
    return tuple(blocks)


def _whole_round(
    message: AIMessage, before: Sequence[str], following: Sequence[BaseMessage], dialect: Dialect, texts: Texts
) -> tuple[AnyMessage, ...]:
    answers = {one.tool_call_id: one for one in _leading_tools(following)}
    asked = [call for call in message.tool_calls if call["id"] in answers]
    if len(asked) != len(message.tool_calls):
        return ()
    calls = [Call(id=str(one["id"]), name=one["name"], tool=one["name"], arguments=one["args"]) for one in asked]
    results = [_result(answers[call.id], call) for call in calls]
    raw = tuple(RawCall(call.id, call.name, call.arguments) for call in calls)
    text = "\n\n".join(part for part in (*before, text_of(message.content)) if part)
    return dialect.keep_round(Replied(text=text, calls=raw), calls, results, texts)


def _result(answer: ToolMessage, call: Call) -> Result:
    return Result(call_id=call.id, tool=call.tool, ok=answer.status != "error", text=text_of(answer.content))


def _leading_tools(messages: Sequence[BaseMessage]) -> Iterator[ToolMessage]:
    for message in messages:
        if not isinstance(message, ToolMessage):
            return
        yield message
