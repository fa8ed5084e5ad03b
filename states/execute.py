"""EXECUTE: run the calls that VALIDATE or a person let through; on a retry, only those that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context
from fsm_agent.effects import CallTools, Outcome, Result, Returned
from fsm_agent.ladder import retryable_calls
from fsm_agent.rounds import merge_results, runnable
from fsm_agent.states.base import Step, unexpected

EVENTS: Final = frozenset({Event.EXECUTED})


def enter(ctx: Context) -> CallTools:
    """The calls to execute."""
    again = ctx.attempt > 1
    if again:
        # The attempt that is due was counted in RETRY; what may be retried is judged by the attempts already made.
        calls = retryable_calls(ctx.change(attempt=ctx.attempt - 1))
    else:
        calls = runnable(ctx)
    return CallTools(calls=calls, parallel=ctx.limits.max_parallel, time_left=ctx.time_left, attempt=ctx.attempt)


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Keep the results, each in place of an earlier one for the same call."""
    if not isinstance(outcome, Returned):
        raise unexpected("EXECUTE", outcome)
    # Only a retry or a fallback finds earlier results of its calls.
    fresh = tuple([_named(ctx, result) for result in outcome.results]) if ctx.results else outcome.results
    executed = len([result for result in fresh if result.executed])
    results = merge_results(ctx.results, fresh)
    return Step(
        Event.EXECUTED, ctx.change(at=outcome.at, results=results, fresh=fresh, tool_calls=ctx.tool_calls + executed)
    )


def _named(ctx: Context, result: Result) -> Result:
    """The result of a fallback says which tool failed and which one really ran."""
    failed = next((one for one in ctx.results if one.call_id == result.call_id and one.tool != result.tool), None)
    if failed is None or not result.ok:
        return result
    return replace(
        result,
        text=ctx.texts.fallback.format(failed=failed.tool, error=failed.text, tool=result.tool, text=result.text),
    )
