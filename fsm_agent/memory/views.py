"""Memory strategies: pure views of the whole history. None changes it, so nothing that happened is ever lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block

__all__ = ["Full", "Memory", "Window"]


@runtime_checkable
class Memory(Protocol):
    """A strategy: which blocks of the history the model sees, in order. It must keep the current task."""

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """The blocks to send; every block whole."""


@dataclass(frozen=True, slots=True)
class Full:
    """Everything. The prompt grows with the run."""

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """All of `history`."""
        return tuple(history)


@dataclass(frozen=True, slots=True)
class Window:
    """The conversation's first task, the current task, and the newest `rounds` rounds with the notes among them.

    A round is one assistant message with the results of all its calls, or a finished answer of an earlier turn.
    Raises `DefinitionError` for `rounds` < 1.
    """

    rounds: int = 5

    def __post_init__(self) -> None:
        given: object = self.rounds
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise DefinitionError(
                f"Window(rounds={self.rounds!r}): rounds must be a whole number of at least 1; use Full() to keep everything"
            )

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """First task + current task + the last `rounds` rounds; an earlier turn's task is kept when a round of it is."""
        start, left = len(history), self.rounds
        while start > 0 and left > 0:
            start -= 1
            left -= history[start].kind in ("round", "answer")
        return (*_pinned(history, start), *history[start:])


def _pinned(history: Sequence[Block], start: int) -> list[Block]:
    """The tasks before `start` that stay: the first of the conversation, and those of the turns still in the window."""
    if start == 0:
        return []
    newest = history[-1].turn
    if newest == 0:
        return [history[0]] if history[0].kind == "task" else []
    kept: list[Block] = []
    turns = {one.turn for one in history[start:]}
    for one in history[:start]:
        if one.kind == "task" and (not kept or one.turn in turns or one.turn == newest):
            kept.append(one)
    return kept
