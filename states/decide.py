"""DECIDE: the round is over; the guards of the table choose how the run goes on."""

from __future__ import annotations

from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context
from fsm_agent.effects import Outcome
from fsm_agent.states.base import Step

EVENTS: Final = frozenset({Event.DECIDED})


def enter(ctx: Context) -> None:
    """Nothing to ask for."""


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Always `decided`."""
    return Step(Event.DECIDED, ctx)
