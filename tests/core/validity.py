"""What a strict provider accepts: the rules of the strictest servers and chat templates, together, as one check."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent.history import text_of

__all__ = ["wrong_history", "wrong_prompt"]


def wrong_prompt(messages: Sequence[BaseMessage]) -> list[str]:
    """What a strict provider would refuse in a prompt; empty when it is valid.

    One system message, first; then a user message; what the last side said is not the assistant's.
    """
    wrong = []
    if not messages or not isinstance(messages[0], SystemMessage):
        wrong.append("the first message is no system message")
    rest = messages[1:]
    if any(isinstance(message, SystemMessage) for message in rest):
        wrong.append("there is a second system message")
    if not rest or isinstance(rest[-1], AIMessage):
        wrong.append("the last message is the assistant's")
    return [*wrong, *wrong_history([message for message in rest if not isinstance(message, SystemMessage)])]


def wrong_history(messages: Sequence[BaseMessage]) -> list[str]:
    """What a strict provider would refuse in a conversation without a system message."""
    wrong = [] if messages and isinstance(messages[0], HumanMessage) else ["the first message is not the user's"]
    ids: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        before = messages[number - 1] if number else None
        if isinstance(message, ToolMessage):
            if not waiting or message.tool_call_id != waiting[0]:
                wrong.append(f"message {number} answers {message.tool_call_id}, waiting are {waiting}")
            waiting = waiting[1:]
            continue
        if waiting:
            wrong.append(f"message {number} comes before {waiting} are answered")
            waiting = []
        if type(message) is type(before):
            wrong.append(f"messages {number - 1} and {number} are both {type(message).__name__}")
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        if isinstance(message, AIMessage) and message.invalid_tool_calls:
            wrong.append(f"message {number} has calls that cannot be sent")
        waiting = [str(call["id"] or "") for call in calls]
        ids += waiting
        if not calls and not has_content(message):
            wrong.append(f"message {number} is empty")
    if waiting:
        wrong.append(f"{waiting} are never answered")
    if len(set(ids)) != len(ids) or "" in ids:
        wrong.append(f"the ids of calls are not unique: {ids}")
    return wrong


def has_content(message: BaseMessage) -> bool:
    """Whether the message says or shows anything."""
    pictures = not isinstance(message.content, str) and any(
        isinstance(part, dict) and part.get("type") != "text" for part in message.content
    )
    return pictures or bool(text_of(message.content).strip())
