"""Memory strategies: pure views of the whole history. None changes it, so nothing that happened is ever lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block

__all__ = [
    "Compacting",
    "Full",
    "Memory",
    "MessageWindow",
    "Window",
    "at_least_one",
    "is_memory",
    "is_round",
    "pinned",
    "unsummarised",
]


@runtime_checkable
class Memory(Protocol):
    """A strategy: which blocks of the history the model sees, in order. It must keep the current task."""

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """The blocks to send; every block whole."""


@runtime_checkable
class Compacting(Protocol):
    """A strategy that has the model summarise what leaves its window. PLAN makes the call, and keeps the summary in the history."""

    def leaving(self, history: Sequence[Block], failed_at: int = 0) -> range | None:
        """Where in `history` the blocks stand that are to be summarised now; None when none are.

        They hold at least one round, and a block of kind "summary" will stand right after them. `failed_at` is how many rounds there were
        when a summary failed, 0 when none did: the next attempt must wait for newer ones.
        """


@dataclass(frozen=True, slots=True)
class Full:
    """Everything. The prompt grows with the run."""

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """All of `history`."""
        return unsummarised(history)


@dataclass(frozen=True, slots=True)
class Window:
    """The conversation's first task, the current task, and the newest `rounds` rounds with the notes among them.

    A round is one assistant message with the results of all its calls, or a finished answer of an earlier turn.
    Raises `DefinitionError` for `rounds` < 1.
    """

    rounds: int = 5

    def __post_init__(self) -> None:
        at_least_one("Window", "rounds", self.rounds, "use Full() to keep everything")

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """First task + current task + the last `rounds` rounds; an earlier turn's task is kept when a round of it is."""
        start, left, summarised = len(history), self.rounds, False
        # Without the functions below, which say the same: this is asked three times at every step.
        while start > 0 and left > 0:
            start -= 1
            kind = history[start].kind
            left -= kind == "round" or kind == "answer"  # noqa: PLR1714 - two comparisons are faster than a tuple
            summarised = summarised or kind == "summary"
        if start and not summarised and history[-1].turn == 0 and history[0].kind == "task":
            return (history[0], *history[start:])
        return (*pinned(history, start), *unsummarised(history[start:]))


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """At most `messages` messages: the conversation's first task, the current task, and the newest whole rounds that fit beside them.

    At least the newest two rounds, even where they alone are more. The system message is not counted; messages that a dialect joins are
    counted apart. Raises `DefinitionError` for `messages` < 1.
    """

    messages: int = 10

    def __post_init__(self) -> None:
        at_least_one("MessageWindow", "messages", self.messages, "use Full() to keep everything")

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """First task + current task + as many of the newest blocks as fit, and two rounds in any case."""
        start, rounds = len(history), 0
        while start > 0:
            earlier = start - 1
            # Two rounds are in: what is older must fit.
            if rounds >= _ROUNDS_KEPT and self._count(history, earlier) > self.messages:
                break
            start = earlier
            rounds += is_round(history[start])
        return (*pinned(history, start), *unsummarised(history[start:]))

    @staticmethod
    def _count(history: Sequence[Block], start: int) -> int:
        kept = (*pinned(history, start), *unsummarised(history[start:]))
        return sum(len(one.messages) for one in kept)


_ROUNDS_KEPT = 2


def is_round(one: Block) -> bool:
    """Whether `one` counts as a round: calls with their results, or a finished answer."""
    return one.kind in ("round", "answer")


def unsummarised(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """`blocks` without the summaries of a strategy that the conversation had before: what they tell of is there itself."""
    return tuple([one for one in blocks if one.kind != "summary"])


def pinned(history: Sequence[Block], start: int) -> list[Block]:
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


def is_memory(given: object) -> bool:
    """True for a strategy: an object with a `view`, not its class."""
    return not isinstance(given, type) and callable(getattr(given, "view", None))


def at_least_one(owner: str, name: str, given: object, instead: str) -> None:
    """Check a whole number of a strategy. Raises `DefinitionError` that names it, and what to use `instead`."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise DefinitionError(f"{owner}({name}={given!r}): {name} must be a whole number of at least 1; {instead}")
