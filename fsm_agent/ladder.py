"""The degrade ladder as pure choices: which rung is there, for which failed calls, and how long to wait before a retry."""

from __future__ import annotations

import hashlib
import math
from enum import StrEnum

from fsm_agent.alphabet import StopReason
from fsm_agent.context import Context
from fsm_agent.effects import Call, Result
from fsm_agent.tools.spec import Tool

__all__ = ["Rung", "backoff", "fallbacks", "next_rung", "retryable_calls", "rung_key", "wanted_rung"]


class Rung(StrEnum):
    """The steps down, in order: another tool, another way, an answer from what is known."""

    FALLBACK = "fallback"
    STRATEGY = "strategy"
    ANSWER = "answer"


def fallbacks(ctx: Context) -> tuple[tuple[Call, Result, Tool], ...]:
    """The failed calls of the open round whose tool has a fallback, with the failure and the fallback.

    A call that a crash left in doubt has none: it may have taken effect, and the fallback would take effect beside it.
    """
    found = []
    for result in ctx.results:
        call = next((one for one in ctx.calls if one.id == result.call_id), None)
        if call is None or result.ok or not result.executed or result.error == "in_doubt":
            continue
        tool = None if rung_key(call, result) in ctx.fallbacks else ctx.setup.tools.fallback_of(result.tool)
        if tool is not None:
            found.append((call, result, tool))
    return tuple(found)


def rung_key(call: Call, result: Result) -> str:
    """What names a fallback as used up: the call, and the tool that failed at it."""
    return f"{call.id}:{result.tool}"


def next_rung(ctx: Context) -> Rung | None:
    """The rung for the failures in `ctx`: a fallback tool, else a change of strategy; None when neither is left."""
    if ctx.degradations >= ctx.limits.max_degradations or ctx.failure is None or ctx.failure.of == "model":
        return None
    if Rung.FALLBACK in ctx.setup.ladder and ctx.failure.of == "tool" and fallbacks(ctx):
        return Rung.FALLBACK
    another_step = ctx.step < ctx.step_cap
    return Rung.STRATEGY if another_step and Rung.STRATEGY in ctx.setup.ladder else None


def wanted_rung(ctx: Context) -> Rung | None:
    """The rung for the reason that led to DEGRADE: failures go down the ladder, a limit asks for an answer."""
    if ctx.cause is not None and ctx.cause.reason is StopReason.CONSECUTIVE_FAILURES:
        return next_rung(ctx)
    return None if ctx.forced else Rung.ANSWER


def retryable_calls(ctx: Context) -> tuple[Call, ...]:
    """The calls of the open round that failed in a way that a retry may mend, and that have a retry left.

    A call that a person approved is never retried under the same approval.
    """
    calls = []
    for result in ctx.results:
        if result.ok or not result.retryable:
            continue
        call = next((one for one in ctx.calls if one.id == result.call_id), None)
        tool = None if call is None else ctx.setup.tools.resolve(call.tool)
        if call is None or tool is None or call.needs_approval or call.refusal or call.tool != result.tool:
            continue
        if ctx.attempt <= (ctx.limits.max_retries if tool.retry is None else tool.retry):
            calls.append(call)
    return tuple(calls)


def backoff(ctx: Context) -> float:
    """Seconds to wait before the next attempt: the server's wish when it had one, else exponential, plus jitter, up to `backoff_max`.

    The jitter is drawn from the run id and the sequence number, so that it differs between runs and replays the same.
    """
    limits = ctx.limits
    # Past 2**64 the wait is over any limit, and the power of a float would overflow.
    growth = min((ctx.attempt - 1) * math.log2(limits.backoff_factor), 64.0)
    wished = ctx.failure.retry_after if ctx.failure is not None else None
    own = min(limits.backoff * 2**growth, limits.backoff_max)
    base = own if wished is None else max(wished, limits.backoff / 10)
    draw = int.from_bytes(hashlib.blake2b(f"{ctx.origin}:{ctx.seq}".encode(), digest_size=4).digest(), "big") / 2**32
    if wished is not None and wished > 0:
        return base
    return min(base * (1 + limits.jitter * draw), limits.backoff_max)
