"""The degrade ladder as pure choices: which rung is there, for which failed calls, and how long to wait before a retry."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from fsm_agent.alphabet import StopReason
from fsm_agent.context import Context
from fsm_agent.effects import Call, Result
from fsm_agent.tools.spec import Tool

__all__ = [
    "LADDER",
    "Rung",
    "backoff",
    "calls_to_retry",
    "defaults",
    "fallbacks",
    "next_rung",
    "retryable_calls",
    "rung_key",
    "wanted_rung",
]


class Rung(StrEnum):
    """The steps down: another tool, a result that was declared beforehand, another way, simpler tools, an answer from what is known.

    `STOP` ends the run where nothing else is left, before `abort_after` failures.
    """

    FALLBACK = "fallback"
    DEFAULT = "default"
    STRATEGY = "strategy"
    SIMPLER = "simpler"
    ANSWER = "answer"
    STOP = "stop"


LADDER: Final = tuple(rung for rung in Rung if rung is not Rung.STOP)
"""The rungs of an agent that names none, in order: what stands in for one call first, then what changes the run."""


def fallbacks(ctx: Context) -> tuple[tuple[Call, Result, Tool], ...]:
    """The failed calls of the open round whose tool has a fallback, with the failure and the fallback.

    A call that a crash left in doubt has none: it may have taken effect, and the fallback would take effect beside it.
    """
    found = []
    for call, result in _failed(ctx):
        tool = None if rung_key(call, result) in ctx.fallbacks else ctx.setup.tools.fallback_of(result.tool)
        if tool is not None:
            found.append((call, result, tool))
    return tuple(found)


def defaults(ctx: Context) -> tuple[tuple[Result, str], ...]:
    """The failed calls of the open round whose tool has a default, with that: the tool that ran, else the one that was asked for."""
    asked = {call.id: call.tool for call in ctx.asked}
    found = []
    for _, result in _failed(ctx):
        ran, wanted = (ctx.setup.tools.resolve(name) for name in (result.tool, asked.get(result.call_id, result.tool)))
        default = next((one.default for one in (ran, wanted) if one is not None and one.default is not None), None)
        if default is not None:
            found.append((result, default))
    return tuple(found)


def _failed(ctx: Context) -> tuple[tuple[Call, Result], ...]:
    """The calls of the open round that were executed and failed. One that a crash left in doubt may have taken effect."""
    calls = {call.id: call for call in ctx.calls}
    return tuple(
        (calls[result.call_id], result)
        for result in ctx.results
        if not result.ok and result.executed and result.error != "in_doubt" and result.call_id in calls
    )


def rung_key(call: Call, result: Result) -> str:
    """What names a fallback as used up: the call, and the tool that failed at it."""
    return f"{call.id}:{result.tool}"


def next_rung(ctx: Context) -> Rung | None:
    """The rung for the failures in `ctx`: the first of the ladder that is left, None when none is.

    A change of strategy comes again where nothing below it is left; an answer and a stop come last, wherever they stand. The stop is
    not counted.
    """
    if ctx.failure is None or ctx.failure.of == "model":
        return None
    ladder = ctx.setup.ladder
    if ctx.degradations < ctx.limits.max_degradations:
        another_step = ctx.step < ctx.step_cap
        for rung in ladder:
            if rung in _LEFT and (another_step or rung == Rung.FALLBACK) and _LEFT[rung](ctx):
                return Rung(rung)
        for rung in (Rung.STRATEGY, Rung.ANSWER):
            if another_step and rung in ladder and (rung is Rung.STRATEGY or _may_answer(ctx)):
                return rung
    return Rung.STOP if Rung.STOP in ladder else None


def _may_answer(ctx: Context) -> bool:
    return ctx.limits.on_limit == "answer" and not ctx.forced


def _of_tool(ctx: Context) -> bool:
    return ctx.failure is not None and ctx.failure.of == "tool"


_LEFT: Final[dict[str, Callable[[Context], bool]]] = {
    Rung.FALLBACK: lambda ctx: _of_tool(ctx) and bool(fallbacks(ctx)),
    Rung.DEFAULT: lambda ctx: _of_tool(ctx) and bool(defaults(ctx)),
    Rung.STRATEGY: lambda ctx: Rung.STRATEGY not in ctx.rungs,
    Rung.SIMPLER: lambda ctx: (
        Rung.SIMPLER not in ctx.rungs and any(name in ctx.setup.tools for name in ctx.setup.simpler)
    ),
}
"""Whether a rung can be taken for the failures in a context. All but the fallback need another step."""


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


def calls_to_retry(ctx: Context) -> tuple[Call, ...]:
    """The calls that this attempt is for, without those that it was made for before a crash. None in the first attempt."""
    if ctx.attempt == 1:
        return ()
    made = {result.call_id for result in ctx.fresh}
    # The attempt that is due was counted in RETRY; what may be retried is judged by the attempts already made.
    return tuple(call for call in retryable_calls(ctx.change(attempt=ctx.attempt - 1)) if call.id not in made)


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
