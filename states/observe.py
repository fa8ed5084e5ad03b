"""OBSERVE: write the round into the history and count what it means: failure, success, repeats, progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Failure
from fsm_agent.dialects.base import Done
from fsm_agent.effects import Call, Outcome, Result
from fsm_agent.history import block
from fsm_agent.policy_state import next_position
from fsm_agent.repeats import learned_from, times_seen
from fsm_agent.rounds import NOT_FAILURES, close_round, newly_executed, not_executed
from fsm_agent.states.base import Step

EVENTS: Final = frozenset({Event.OBSERVED})
_UNKNOWN: Final = frozenset({"timeout", "in_doubt"})


def enter(ctx: Context) -> None:
    """Nothing to ask for."""


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """A note for a reply without calls; otherwise one result for every call of the reply, in order."""
    if ctx.answer is not None:  # a state of one's own let it come here without a word
        note = ctx.note or ctx.texts.answer_refused.format(reason=ctx.texts.no_reason)
        ctx = ctx.change(answer=None, note=note, note_kind="refused")
    if ctx.note:
        return Step(Event.OBSERVED, _observed_note(ctx))
    executed = newly_executed(ctx)
    counted = ctx.change(**_progress(ctx, executed), **_failures(ctx), position=next_position(ctx))
    return Step(Event.OBSERVED, close_round(_warned(counted, executed)))


def _observed_note(ctx: Context) -> Context:
    assert ctx.reply is not None, "a note answers a reply"
    kept = ctx.setup.dialect.keep_rejected(ctx.reply, ctx.note)
    after = ctx.change(round=block("note", *kept, turn=ctx.turn))
    if ctx.note_kind == "empty":
        return after.change(nudges=ctx.nudges + 1, successes=0)
    if ctx.note_kind == "thought":
        return after.change(idle_steps=ctx.idle_steps + 1)
    return after.change(failures=ctx.failures + 1, successes=0, failure=Failure("reply", ctx.note_kind, ctx.note))


def _progress(ctx: Context, executed: list[tuple[Call, Result]]) -> dict[str, Any]:
    """A step is idle when no call gave a result that its tool had not given before; a tool that may be repeated does not count."""
    news = [result for _, result in executed if result.ok and (result.tool, result.digest) not in ctx.learned]
    idle = 0 if news else ctx.idle_steps + (0 if ctx.attempt > 1 or _only_polled(ctx, executed) else 1)
    done = tuple([Done(call, result) for call, result in executed if result.ok])
    changes = {**learned_from(ctx, executed), **_reported(ctx), "idle_steps": idle, "done": ctx.done + done}
    # A step counts once, though its retry or fallback may bring more.
    return changes | _useful(ctx) if news and ctx.useful_at != ctx.step else changes


def _reported(ctx: Context) -> dict[str, Any]:
    """What is told of calls that may have taken effect, kept for the tools that are `once`."""
    told = {one.call_id: one.text for one in ctx.fresh if one.error in _UNKNOWN or (one.ok and not one.executed)}
    if not told:
        return {}
    return {"reported": {**ctx.reported, **{call.signature: told[call.id] for call in ctx.calls if call.id in told}}}


def _useful(ctx: Context) -> dict[str, Any]:
    return {"useful_steps": ctx.useful_steps + 1, "useful_at": ctx.step}


def _only_polled(ctx: Context, executed: list[tuple[Call, Result]]) -> bool:
    return bool(executed) and all(_may_repeat(ctx, result.tool) and result.ok for _, result in executed)


def _may_repeat(ctx: Context, name: str) -> bool:
    tool = ctx.setup.tools.resolve(name)
    return tool is not None and tool.repeatable


def _warned(ctx: Context, executed: list[tuple[Call, Result]]) -> Context:
    """Tell the model once, with the result that uses up the threshold, that the same call will be refused."""
    threshold = ctx.limits.repeat_threshold
    warned = {
        result.call_id: replace(result, text=f"{result.text}\n{ctx.texts.repeat_warning.format(count=threshold)}")
        for call, result in executed
        if threshold > 1 and times_seen(ctx, call.signature) == threshold and not _may_repeat(ctx, result.tool)
    }
    if not warned:
        return ctx
    return ctx.change(results=tuple(warned.get(result.call_id, result) for result in ctx.results))


def _failures(ctx: Context) -> dict[str, Any]:
    """One success ends a row of failures; a batch is one failure when none of its calls succeeded. Refusals by people do not count."""
    refused = [not_executed(call, "") for call in ctx.calls if call.refusal and not _stands_in(ctx, call)]
    newest = [*ctx.fresh, *refused]
    bad = [result for result in newest if not result.ok and result.error not in NOT_FAILURES]
    failed = next((result for result in bad if result.retryable), bad[0] if bad else None)
    failure = None if failed is None else _failure(failed)
    if any(result.ok for result in newest):
        # A failed call beside a successful one is still worth its retry, but does not count as consecutive.
        return {"failures": 0, "successes": ctx.successes + 1, "failure": failure}
    if failure is None:
        return {}
    return {"failures": _one_more(ctx), "successes": 0, "failure": failure}


def _one_more(ctx: Context) -> int:
    """The failures in a row with this one. The engine's own retries alone never open the circuit: a fallback comes first."""
    if ctx.attempt == 1:
        return ctx.failures + 1
    return max(ctx.failures, min(ctx.failures + 1, ctx.limits.abort_after - 1))


def _stands_in(ctx: Context, call: Call) -> bool:
    """True for a fallback: the model did not ask for it, so a refusal of it is no failure of the model's."""
    return any(asked.id == call.id and asked.tool != call.tool for asked in ctx.asked)


def _failure(result: Result) -> Failure:
    of = "tool" if result.executed else "reply"
    return Failure(of, result.tool, result.text, result.retryable)
