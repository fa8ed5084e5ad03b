"""What a dialect is: how the model is told what it can do, and how its reply is read and kept. Pure.

A dialect never executes, never decides, and never sees limits: it turns data into messages and a reply into a `Reading`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, Protocol

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent.dialects.repair import Fault, Malformed, quoted, split_thinking
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.frozen import fast_init
from fsm_agent.history import Block, MessageTemplate
from fsm_agent.language import Texts
from fsm_agent.tools.spec import Tool

__all__ = [
    "Answer",
    "Calls",
    "Dialect",
    "Done",
    "Empty",
    "Prompt",
    "Reading",
    "Requested",
    "Thought",
    "Unreadable",
    "merge_neighbours",
    "misplaced",
    "one_system",
    "rejected",
]

Purpose = Literal["plan", "answer"]
# `isinstance` with a pydantic class is slow for what is no instance of it, and most messages are one of these.
_SYSTEM: Final = MessageTemplate(SystemMessage("text"))
_NOT_HUMAN: Final = frozenset({AIMessage, SystemMessage, ToolMessage})


@fast_init
@dataclass(frozen=True, slots=True)
class Requested:
    """One call as read from a reply: its arguments, or what is wrong with their text.

    `beside` are keys that stood outside of the arguments and say nothing of the call, unless its tool has an argument of that name which
    `arguments` lack.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | Malformed
    repairs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def misplaced(keys: Sequence[str]) -> Malformed:
    """What is wrong with a call whose arguments stand, or may stand, outside of their place: `keys` do."""
    return Malformed(Fault.AMBIGUOUS, f'found {quoted(keys)} outside of "action_input", which must hold all arguments')


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply is the final answer."""

    text: str
    repairs: tuple[str, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class Calls:
    """The reply asks for these calls. Text beside them is kept in the history, and is not the answer."""

    calls: tuple[Requested, ...]
    text: str = ""
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """The model thought aloud: costs a step, calls nothing, answers nothing."""

    text: str
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Empty:
    """No text and no calls."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reply breaks the protocol. `kind` "truncated" when it was cut; `detail` tells the model what was wrong.

    `json`: what is wanted in its place is a JSON object; else a call or the answer, in the form that the dialect has for them.
    """

    kind: str
    detail: str
    repairs: tuple[str, ...] = ()
    json: bool = False


Reading = Answer | Calls | Thought | Empty | Unreadable


@dataclass(frozen=True, slots=True)
class Done:
    """One executed call of this turn and what it gave, for dialects that show the model what it already has."""

    call: Call
    result: Result


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All that a dialect needs to write a prompt: what to send (`blocks`), what can be called (`tools`), what is known (`done`)."""

    system: str
    blocks: tuple[Block, ...]
    tools: tuple[Tool, ...]
    purpose: Purpose
    texts: Texts
    task: str = ""
    done: tuple[Done, ...] = ()


class Dialect(Protocol):
    """How a model is asked and read."""

    @property
    def name(self) -> str:
        """The name by which `Agent(dialect=...)` and the CLI choose it."""

    @property
    def native_tools(self) -> bool:
        """True when the tools are bound to the request instead of written into the prompt."""

    def compose(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """The messages to send: exactly one system message, first; every call answered; every result after its call."""

    def remind(self, prompt: Prompt) -> tuple[AnyMessage, ...]:
        """What `compose` writes after the history, for this step only; it is counted in the estimate. Nothing for most dialects."""

    def response_format(self, prompt: Prompt) -> Mapping[str, Any] | None:
        """The OpenAI `response_format` that constrains the reply where the server can, else None."""

    def read(self, reply: Replied, tools: Collection[str], purpose: Purpose) -> Reading:
        """What the reply says. Never raises."""

    def keep_round(
        self, reply: Replied, calls: Sequence[Call], results: Sequence[Result], texts: Texts
    ) -> tuple[AnyMessage, ...]:
        """The messages that a finished round leaves in the history."""

    def keep_rejected(self, reply: Replied, note: str) -> tuple[AnyMessage, ...]:
        """The messages that a reply without a usable call leaves in the history, with what the model is told."""

    def keep_note(self, note: str) -> tuple[AnyMessage, ...]:
        """The message that tells the model something of the engine's own."""

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """The message that an answer leaves in the conversation."""


def rejected(reply: Replied, note: str) -> tuple[AnyMessage, ...]:
    """What the model said, when it said anything, and what it is told."""
    _, text = split_thinking(reply.text)
    return (AIMessage(text), HumanMessage(note)) if text.strip() else (HumanMessage(note),)


def merge_neighbours(messages: Sequence[AnyMessage]) -> tuple[AnyMessage, ...]:
    """`messages` with neighbouring user messages joined, because strict chat templates refuse two in a row."""
    human = [type(one) not in _NOT_HUMAN and isinstance(one, HumanMessage) for one in messages]
    if (True, True) not in pairwise(human):
        return tuple(messages)
    merged: list[AnyMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        if isinstance(message, HumanMessage) and isinstance(last, HumanMessage):
            merged[-1] = HumanMessage(_join(last.content, message.content))
        else:
            merged.append(message)
    return tuple(merged)


def _join(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    blocks = [[{"type": "text", "text": part}] if isinstance(part, str) else list(part) for part in (first, second)]
    return blocks[0] + blocks[1]


def one_system(text: str) -> tuple[AnyMessage, ...]:
    """The system message, or nothing for an empty text."""
    if not text:
        return ()
    return (_SYSTEM.cast(content=text) if text.isascii() else SystemMessage(text),)
