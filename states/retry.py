"""RETRY: wait before the failed call is made again."""

from __future__ import annotations

from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context
from fsm_agent.effects import Outcome, Wait, Waited
from fsm_agent.ladder import backoff
from fsm_agent.states.base import Step, unexpected

EVENTS: Final = frozenset({Event.WAITED})


def enter(ctx: Context) -> Wait:
    """The wait: what the server asked for, else exponential backoff with jitter."""
    return Wait(backoff(ctx))


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Count the attempt."""
    if not isinstance(outcome, Waited):
        raise unexpected("RETRY", outcome)
    return Step(Event.WAITED, ctx.change(at=outcome.at, attempt=ctx.attempt + 1))
