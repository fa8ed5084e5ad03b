"""EXECUTE: run the calls that VALIDATE or a person let through; on a retry, only those that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context
from fsm_agent.effects import CallTools, Doubted, Outcome, Result, Returned
from fsm_agent.ladder import calls_to_retry
from fsm_agent.rounds import runnable, with_results
from fsm_agent.states.base import Step, unexpected

EVENTS: Final = frozenset({Event.EXECUTED, Event.DOUBTED})


def enter(ctx: Context) -> CallTools:
    """The calls to execute: those without a result, else those that are due to be tried again."""
    calls = runnable(ctx) + calls_to_retry(ctx)
    limits = ctx.limits
    return CallTools(
        calls=calls,
        parallel=limits.max_parallel,
        timeout=limits.tool_timeout,
        max_chars=limits.max_result_chars,
        time_left=ctx.time_left,
        attempt=ctx.attempt,
    )


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Keep the results, each in place of an earlier one for the same call; after a crash, mark the calls whose outcome is unknown."""
    if isinstance(outcome, Doubted):
        return _doubted(ctx, outcome)
    if not isinstance(outcome, Returned):
        raise unexpected("EXECUTE", outcome)
    return Step(Event.EXECUTED, with_results(ctx, outcome.results, outcome.at))


def _doubted(ctx: Context, outcome: Doubted) -> Step:
    """A person decides about each call in doubt, or the model is told that its outcome is unknown; it counts as executed."""
    doubtful = [call for call in ctx.calls if call.id in outcome.calls]
    if ctx.limits.in_doubt == "tell":
        unknown = [
            Result(
                call_id=one.id, tool=one.tool, ok=False, text=ctx.texts.in_doubt.format(tool=one.tool), error="in_doubt"
            )
            for one in doubtful
        ]
        return Step(Event.DOUBTED, with_results(ctx, (*outcome.results, *unknown), outcome.at))
    # What an attempt before this one gave is no result of the call any more, and the round is open again.
    again = {(call.id, call.tool) for call in doubtful}
    results = tuple(result for result in ctx.results if (result.call_id, result.tool) not in again)
    known = with_results(ctx.change(results=results, round=None), outcome.results, outcome.at)
    marked = {call.id: replace(call, doubt=True, needs_approval=True, approved=False) for call in doubtful}
    calls = tuple(marked.get(call.id, call) for call in ctx.calls)
    return Step(Event.DOUBTED, known.change(calls=calls))
