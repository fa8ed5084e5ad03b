"""ABORT: the run has stopped without an answer, and says why."""

from __future__ import annotations

from fsm_agent.alphabet import Status, StopReason
from fsm_agent.context import Context
from fsm_agent.states.base import Ending, counted_steps

_SHOWN = 200


def conclude(ctx: Context) -> Ending:
    """`failed` (`cancelled` for a cancelled run), the reason of the row that stopped it, how far it came, and the last useful result."""
    reason = ctx.cause.reason if ctx.cause is not None else StopReason.INTERNAL_ERROR
    parts = [ctx.cause.describe() if ctx.cause is not None else str(reason), f"{counted_steps(ctx.step)} ran"]
    if ctx.failure is not None and reason is not StopReason.CANCELLED:
        parts.append(f"last failure: {ctx.failure.what}: {ctx.failure.error[:_SHOWN]}")
    if ctx.done:
        last = ctx.done[-1]
        parts.append(f"last useful result, from {last.result.tool}: {last.result.text[:_SHOWN]}")
    status = Status.CANCELLED if reason is StopReason.CANCELLED else Status.FAILED
    return Ending(status, reason, None, "; ".join(parts))
