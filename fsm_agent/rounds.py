"""Rounds: one assistant message with exactly one result for each of its calls, in order. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from langchain_core.messages import AIMessage

from fsm_agent.context import Context
from fsm_agent.dialects.base import Done
from fsm_agent.effects import Call, Result
from fsm_agent.history import Block, block
from fsm_agent.ladder import calls_to_retry

__all__ = [
    "NOT_FAILURES",
    "answer_message",
    "close_round",
    "closed_history",
    "interrupted",
    "merge_results",
    "newly_executed",
    "not_executed",
    "runnable",
    "with_note",
    "with_results",
]

NOT_FAILURES: Final = frozenset({"denied", "duplicate", "interrupted"})
"""Why a call did not run where that counts as no failure: a person refused it, it stands in the reply already, the run was broken off."""


def runnable(ctx: Context) -> tuple[Call, ...]:
    """The calls of the open round that may be executed: those that nothing refused, and that have no result yet."""
    if not ctx.results:
        return tuple([call for call in ctx.calls if not call.refusal])
    have = {(result.call_id, result.tool) for result in ctx.results}
    return tuple([call for call in ctx.calls if not call.refusal and (call.id, call.tool) not in have])


def merge_results(results: Iterable[Result], newer: Iterable[Result]) -> tuple[Result, ...]:
    """`results` with those of `newer` in place of the ones that answer the same call."""
    return tuple({result.call_id: result for result in (*results, *newer)}.values())


def with_results(ctx: Context, results: tuple[Result, ...], at: float) -> Context:
    """The context with the results of an attempt, each in place of an earlier one for the same call."""
    # Only a retry, a fallback or a call that was in doubt finds earlier results of this round.
    fresh = tuple([_named(ctx, result) for result in results]) if ctx.results else results
    executed = len([result for result in fresh if result.executed])
    return ctx.change(
        at=at,
        results=merge_results(ctx.results, fresh),
        fresh=(*ctx.fresh, *fresh),
        tool_calls=ctx.tool_calls + executed,
    )


def interrupted(ctx: Context, results: tuple[Result, ...], at: float) -> Context:
    """The context of a run that was cancelled: the calls that had ended took effect, and stay known."""
    given = {one.call_id: one for one in results}
    after = with_results(ctx, tuple([given[call.id] for call in ctx.calls if call.id in given]), at)
    done = [Done(call, result) for call, result in newly_executed(after) if result.ok]
    return after.change(done=(*ctx.done, *done))


def newly_executed(ctx: Context) -> list[tuple[Call, Result]]:
    """The calls that were executed since OBSERVE looked last, with their results."""
    calls = {call.id: call for call in ctx.calls}
    return [(calls[result.call_id], result) for result in ctx.fresh if result.executed and result.call_id in calls]


def _named(ctx: Context, result: Result) -> Result:
    """The result of a fallback says which tool failed and which one really ran."""
    failed = next((one for one in ctx.results if one.call_id == result.call_id and one.tool != result.tool), None)
    if failed is None or not result.ok:
        return result
    return replace(
        result,
        text=ctx.texts.fallback.format(failed=failed.tool, error=failed.text, tool=result.tool, text=result.text),
    )


def close_round(ctx: Context, *, unanswered: str = "") -> Context:
    """The context with its open round written as one valid block: every call of the reply has a result.

    A call without one gets its refusal, or `unanswered`, so that no exit leaves a call open in the history.
    """
    if ctx.reply is None or not (ctx.calls or ctx.results):
        return ctx
    asked = _as_decided(ctx)
    have = {result.call_id: result for result in ctx.results} | _in_doubt(ctx, unanswered)
    results = [have.get(call.id) or not_executed(call, unanswered or ctx.texts.interrupted) for call in asked]
    messages = ctx.setup.dialect.keep_round(ctx.reply, asked, results, ctx.texts)
    return ctx.change(round=block("round", *messages, turn=ctx.turn), results=tuple(results), fresh=())


def answer_message(ctx: Context, text: str) -> AIMessage:
    """The answer as a message. Where the reply ends with it, it goes by the id under which the pieces of that may have been shown."""
    reply = ctx.reply
    if reply is not None and reply.text.rstrip().endswith(text):
        return AIMessage(text, id=reply.id or None)
    return AIMessage(text)


def closed_history(ctx: Context, *, executing: bool) -> tuple[Block, ...]:
    """The history of a run that has ended, with every call answered. `executing`: it was stopped while calls were under way.

    What an attempt, or a tool, before the one that was under way gave is no result of the call any more.
    """
    under_way = {call.id for call in (*runnable(ctx), *calls_to_retry(ctx))} if executing else set()
    # Calls were asked for that the history does not hold yet, or not as they stand now.
    if ctx.note or not ctx.asked or not (under_way or ctx.fresh or ctx.round is None):
        return ctx.blocks
    known = ctx.change(results=tuple([one for one in ctx.results if one.call_id not in under_way]))
    return close_round(known, unanswered=ctx.texts.cancelled_result if executing else "").blocks


def _in_doubt(ctx: Context, unanswered: str) -> dict[str, Result]:
    """By call id, what is said of a call in doubt that did not run again; of a fallback, in place of the failure that led to it."""
    given = {(result.call_id, result.tool) for result in ctx.results}
    return {
        call.id: not_executed(call, unanswered or ctx.texts.in_doubt.format(tool=call.tool))
        for call in ctx.calls
        if call.doubt and (call.id, call.tool) not in given
    }


def _as_decided(ctx: Context) -> tuple[Call, ...]:
    """The calls of the reply as they stand now, refused or edited by a person; a fallback goes by the tool asked for."""
    now = {call.id: call for call in ctx.calls}
    return tuple(
        [
            decided if (decided := now.get(call.id)) is not None and decided.tool == call.tool else call
            for call in ctx.asked or ctx.calls
        ]
    )


def not_executed(call: Call, text: str) -> Result:
    """The result of a call that did not run: its refusal, else `text`."""
    return Result(
        call_id=call.id,
        tool=call.tool,
        ok=False,
        text=call.refusal or text,
        error=call.refusal_kind or "interrupted",
        executed=False,
    )


def with_note(ctx: Context, note: str) -> Context:
    """The context with `note` to the model after the open round, in one block with it so that a window keeps both or neither."""
    kept = ctx.setup.dialect.keep_note(note)
    if ctx.round is None:
        return ctx.change(round=block("note", *kept, turn=ctx.turn))
    return ctx.change(round=block(ctx.round.kind, *ctx.round.messages, *kept, turn=ctx.turn))
