"""ABORT: the run has stopped without an answer, and says why."""

from __future__ import annotations

from fsm_agent.alphabet import Status, StopReason
from fsm_agent.context import Context
from fsm_agent.redact import redact_text
from fsm_agent.states.base import Ending, counted_steps

_SHOWN = 200
_READ = 2_000


def conclude(ctx: Context) -> Ending:
    """`failed` (`cancelled` for a cancelled run), the reason of the row that stopped it, how far it came, and the last useful result."""
    reason = ctx.cause.reason if ctx.cause is not None else StopReason.INTERNAL_ERROR
    parts = [ctx.cause.describe() if ctx.cause is not None else str(reason), f"{counted_steps(ctx.step)} ran"]
    told = ctx.cause.values.get("error") if ctx.cause is not None else None
    if ctx.failure is not None and ctx.failure.error != told and reason is not StopReason.CANCELLED:
        what, error = ctx.failure.what, _beginning(ctx.failure.error)
        parts.append(f"last failure: {error if error.startswith(what) else f'{what}: {error}'}")
    if ctx.done:
        last = ctx.done[-1]
        parts.append(f"last useful result, from {last.result.tool}: {_beginning(last.result.text)}")
    status = Status.CANCELLED if reason is StopReason.CANCELLED else Status.FAILED
    return Ending(status, reason, None, "; ".join(parts))


def _beginning(text: str) -> str:
    """Without secrets before it is cut: half of one does not look like one."""
    return redact_text(text[:_READ])[:_SHOWN]
