"""FINISH: the run has an answer."""

from __future__ import annotations

from fsm_agent.alphabet import Status, StopReason
from fsm_agent.context import Context
from fsm_agent.states.base import Ending, counted_steps


def conclude(ctx: Context) -> Ending:
    """`completed`, or `partial` when the answer had to be forced at a limit."""
    if ctx.forced and ctx.cause is not None:
        return Ending(
            Status.PARTIAL,
            StopReason.FORCED_ANSWER,
            ctx.answer,
            f"answered without further tools after {ctx.cause.describe()}",
        )
    return Ending(Status.COMPLETED, StopReason.ANSWERED, ctx.answer, f"answered after {counted_steps(ctx.step)}")
