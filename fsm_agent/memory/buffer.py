"""`DualBuffer`: what the model said and what its tools gave, remembered for different lengths. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block, block
from fsm_agent.language import Texts
from fsm_agent.memory.views import at_least_one, is_round, pinned, unsummarised
from fsm_agent.memory.wording import texts_of

__all__ = ["DualBuffer"]


@dataclass(frozen=True, slots=True)
class DualBuffer:
    """The reasoning of the newest `reasoning` rounds (what the model said and called), the tool results of the newest `results` rounds.

    An older result is replaced by a short text that says so, because strict providers take no call without its result. A result whose
    reasoning is gone is sent as the user's message, because they take no result without its call either. Above the ceiling of tokens,
    reasoning is dropped first, oldest first; results stay, and so does the newest round, whole. The first and the current task always stay.

    The ceiling is `max_tokens`, else `share_of_context` of `context_tokens`; an agent fills in the latter from its model's profile, where
    the model has one; without either there is none. It is for the history alone: system text and tools come on top.
    Raises `DefinitionError` for a size below 1 or a share that is not in (0, 1].
    """

    reasoning: int = 6
    results: int = 3
    max_tokens: int | None = None
    share_of_context: float = 0.7
    context_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("reasoning", "results", "max_tokens", "context_tokens"):
            size: object = getattr(self, name)
            if size is not None or name in ("reasoning", "results"):
                at_least_one("DualBuffer", name, size, "use Full() to keep everything")
        share: object = self.share_of_context
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise DefinitionError(
                f"DualBuffer(share_of_context={share!r}): it is a share of the model's context, above 0 and at most 1"
            )

    @property
    def ceiling(self) -> int | None:
        """Tokens that the view may have before reasoning is dropped; None for no ceiling."""
        if self.max_tokens is not None:
            return self.max_tokens
        return None if self.context_tokens is None else int(self.share_of_context * self.context_tokens)

    def for_context(self, tokens: int) -> Self:
        """The same for a model whose context holds `tokens`; what was given stays."""
        return self if self.ceiling is not None else replace(self, context_tokens=tokens)

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """First task + current task + the newest rounds, each with what is still remembered of it."""
        texts = texts_of(history)
        start, parts = len(history), []
        rounds = 0
        while start > 0 and rounds < max(self.reasoning, self.results):
            start -= 1
            one = history[start]
            rounds += is_round(one)
            parts.append(self._remembered(one, rounds, newest=start == len(history) - 1, texts=texts))
        kept = [*((one, one) for one in pinned(history, start)), *parts[::-1]]
        return unsummarised(_within(self.ceiling, kept))

    def _remembered(self, one: Block, number: int, *, newest: bool, texts: Texts) -> _Part:
        """What the view shows of a block in round `number`, counted from the newest, and what is left of it without its reasoning."""
        if one.kind == "task" or newest:
            return one, one
        number = max(number, 1)
        left = _without_reasoning(one, texts) if one.kind == "round" and number <= self.results else None
        if number > self.reasoning:
            return left, left
        shown = _without_results(one, texts) if one.kind == "round" and number > self.results else one
        return shown, left


_Part = tuple[Block | None, Block | None]
"""A block as it is shown, and as it is without its reasoning; None where nothing is left."""


def _within(ceiling: int | None, parts: Sequence[_Part]) -> list[Block]:
    """The blocks as shown; while they are more than the ceiling, the oldest one that has reasoning loses it."""
    shown = [part[0] for part in parts]
    total = sum(one.tokens for one in shown if one is not None)
    for index, (one, left) in enumerate(parts):
        if ceiling is None or total <= ceiling:
            break
        if one is not None and left is not one:
            shown[index] = left
            total += (0 if left is None else left.tokens) - one.tokens
    return [one for one in shown if one is not None]


def _without_results(one: Block, texts: Texts) -> Block:
    """The round with a stand-in for what its calls gave."""
    kept: list[AnyMessage] = []
    for message in one.messages:
        if isinstance(message, ToolMessage):
            kept.append(message.model_copy(update={"content": texts.older_result, "artifact": None}))
        elif isinstance(message, AIMessage):
            kept.append(message)
        elif isinstance(kept[-1] if kept else None, AIMessage):
            kept.append(HumanMessage(texts.older_result))
    return block(one.kind, *kept, turn=one.turn)


def _without_reasoning(one: Block, texts: Texts) -> Block:
    """What the calls of a round gave, told as the user's message."""
    kept: list[AnyMessage] = []
    for message in one.messages:
        if isinstance(message, ToolMessage):
            told = message.content
            if isinstance(told, str):
                told = texts.observation.format(tool=message.name or "?", text=told)
            kept.append(HumanMessage(told))
        elif isinstance(message, HumanMessage):
            kept.append(message)
    return block(one.kind, *kept, turn=one.turn)
