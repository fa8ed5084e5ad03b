"""`SummaryWindow`: what leaves the window is summarised by the model. Pure: this says what, PLAN asks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent.dialects.textual import shortened
from fsm_agent.history import Block, block, text_of
from fsm_agent.language import Texts
from fsm_agent.memory.views import at_least_one, is_round, pinned

__all__ = ["MESSAGE_CHARS", "SummaryWindow", "summary_block", "summary_prompt"]

MESSAGE_CHARS: Final = 2_000
"""Of a message that is longer, a summary is made from so much of its beginning and end."""


@dataclass(frozen=True, slots=True)
class SummaryWindow:
    """The first task, the current task, a summary of what has left the window, and the newest rounds.

    At least `rounds` rounds are whole; once `every` more have come, those are summarised together, with the summary before, by a call of
    the model that is a transition of its own (`compacted`). It takes no step, but it counts in tokens and model calls. When it fails, or is
    empty or cut, the rounds stay as they are (`summary_failed`) until `every` more have come. `chunk_tokens` bounds what one call is
    given, so that a long conversation is summarised piece by piece. The history keeps every block and every summary.
    Raises `DefinitionError` for a size below 1.
    """

    rounds: int = 5
    every: int = 3
    chunk_tokens: int = 6_000

    def __post_init__(self) -> None:
        for name in ("rounds", "every", "chunk_tokens"):
            at_least_one("SummaryWindow", name, getattr(self, name), "use Full() to keep everything")

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """First task + current task + the newest summary + all that it does not tell of."""
        at = _newest_summary(history)
        if at < 0:
            return tuple(history)
        return (*pinned(history, at + 1), *history[at:])

    def leaving(self, history: Sequence[Block], failed_at: int = 0) -> range | None:
        """The blocks after the newest summary and before the newest `rounds` rounds, as many as one call is given."""
        begin = _newest_summary(history) + 1
        rounds = [index for index in range(begin, len(history)) if is_round(history[index])]
        if len(rounds) < self.rounds + self.every:
            return None
        if failed_at and sum(is_round(one) for one in history) < failed_at + self.every:
            return None
        end, last, tokens = begin, rounds[-self.rounds], 0
        while end < last and (tokens <= self.chunk_tokens or end <= rounds[0]):
            tokens += history[end].tokens
            end += 1
        return range(begin, end)


def _newest_summary(history: Sequence[Block]) -> int:
    return next((index for index in range(len(history) - 1, -1, -1) if history[index].kind == "summary"), -1)


def summary_prompt(
    history: Sequence[Block], leaving: range, task: str, texts: Texts, chars: int = MESSAGE_CHARS
) -> tuple[AnyMessage, ...]:
    """What the model is asked: the task, the summary before, and the real text of what leaves, at most `chars` of each message."""
    at = _newest_summary(history[: leaving.start])
    before = "\n".join(text_of(message.content) for message in history[at].messages) if at >= 0 else ""
    steps = transcript([history[index] for index in leaving], chars)
    asked = texts.summarise_steps.format(task=task, before=before or "-", steps=steps)
    return (SystemMessage(texts.summarise), HumanMessage(asked))


def transcript(blocks: Sequence[Block], chars: int = MESSAGE_CHARS) -> str:
    """What was said and done in these blocks, line by line, very long texts without their middle."""
    return "\n".join(line for one in blocks for message in one.messages for line in _told(message, chars))


def _told(message: AnyMessage, chars: int) -> list[str]:
    """A message as lines of a transcript; a very long text without its middle."""
    if isinstance(message, AIMessage):
        calls = [
            f"{call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})"
            for call in message.tool_calls
        ]
        said = [text_of(message.content), *calls]
        return [f"assistant: {shortened(one, chars)}" for one in said if one.strip()]
    who = f"tool {message.name or ''}".strip() if isinstance(message, ToolMessage) else "user"
    return [f"{who}: {shortened(text_of(message.content), chars)}"]


def summary_block(text: str, texts: Texts, turn: int) -> Block:
    """The summary as the history keeps it."""
    return block("summary", HumanMessage(texts.summary.format(text=text)), turn=turn)
