"""A view made smaller, for a server whose context it has overflowed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from fsm_agent.history import Block, block, estimate_tokens, text_of

__all__ = ["fit"]

_LEAST_TOKENS: Final = 32


def fit(view: Sequence[Block], room: int, marker: str) -> tuple[Block, ...]:
    """`view` in at most `room` tokens, as far as that can be.

    The oldest rounds, answers and notes go first, whole. Then the longest results of what is left are cut, and end with `marker`. The first
    and the current task, a summary, and what came last are always there; so the result is as valid as `view` is.
    """
    kept, total = list(view), sum(one.tokens for one in view)
    newest = view[-1].turn if view else 0
    index = 0
    while total > room and index < len(kept) - 1:
        if _may_go(kept, index, newest):
            total -= kept.pop(index).tokens
        else:
            index += 1
    return tuple(_cut_results(kept, total - room, marker)) if total > room else tuple(kept)


def _may_go(kept: Sequence[Block], index: int, newest: int) -> bool:
    one = kept[index]
    return one.kind in ("round", "answer", "note") or (one.kind == "task" and index > 0 and one.turn != newest)


def _cut_results(kept: list[Block], excess: int, marker: str) -> list[Block]:
    """Cut the longest results, and summaries, until `excess` tokens are gone or nothing is worth cutting."""
    places = [
        (estimate_tokens([message]), index, number)
        for index, one in enumerate(kept)
        for number, message in enumerate(one.messages)
        if one.kind in ("round", "summary") and _is_result(one, number) and isinstance(message.content, str)
    ]
    for tokens, index, number in sorted(places, reverse=True):
        if excess <= 0:
            break
        one = kept[index]
        message = one.messages[number]
        left = max(tokens - excess, _LEAST_TOKENS)
        if left >= tokens:
            break
        text = text_of(message.content)
        shorter = message.model_copy(update={"content": f"{text[: len(text) * left // tokens]}{marker}"})
        messages: tuple[AnyMessage, ...] = (*one.messages[:number], shorter, *one.messages[number + 1 :])
        kept[index] = block(one.kind, *messages, turn=one.turn)
        excess -= one.tokens - kept[index].tokens
    return kept


def _is_result(one: Block, number: int) -> bool:
    """A tool's message, or in a text dialect the user's message after the model's; what the engine told after it is no result."""
    message = one.messages[number]
    if one.kind == "summary" or isinstance(message, ToolMessage):
        return True
    if not any(isinstance(each, AIMessage) for each in one.messages):
        # Results that a memory shows without their calls.
        return True
    return number > 0 and isinstance(one.messages[number - 1], AIMessage) and not isinstance(message, AIMessage)
