"""The shape of a state, and of an ending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsm_agent.alphabet import Event, Status, StopReason
from fsm_agent.context import Context
from fsm_agent.effects import Effect, Outcome

__all__ = ["Behaviour", "Ending", "Step", "counted_steps", "unexpected"]


@dataclass(frozen=True, slots=True)
class Step:
    """What a state made of an outcome: the event that happened, and the context after it."""

    event: Event
    ctx: Context


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A state: the events it can return, the effect it asks for on entry (None for a state that only computes), and its fold."""

    events: frozenset[Event]
    enter: Callable[[Context], Effect | None]
    resolve: Callable[[Context, Outcome | None], Step]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: `detail` is one sentence for a person, with the guard, the limit and the value."""

    status: Status
    reason: StopReason
    answer: str | None
    detail: str


def counted_steps(count: int) -> str:
    """How many steps, for a person: `1 step`, `2 steps`."""
    return f"{count} step{'' if count == 1 else 's'}"


def unexpected(state: str, outcome: Outcome | None) -> TypeError:
    """The error for an outcome that does not belong to a state's effect: a bug in whoever performed it."""
    return TypeError(f"{state} cannot fold {type(outcome).__name__}")
