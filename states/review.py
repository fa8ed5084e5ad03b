"""REVIEW: a person decides about each call that needs it. Nothing runs on a yes that was given to something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Pending
from fsm_agent.effects import (
    Answer,
    Answered,
    Approve,
    AskHuman,
    Call,
    Decision,
    Deny,
    Edit,
    Expired,
    Outcome,
    RawCall,
    Result,
)
from fsm_agent.rounds import merge_results, runnable
from fsm_agent.states.base import Step, unexpected
from fsm_agent.tools.plain import as_json, well_formed

EVENTS: Final = frozenset({Event.APPROVED, Event.EDITED, Event.DENIED, Event.ANSWERED, Event.EXPIRED})


def enter(ctx: Context) -> AskHuman:
    """The calls that wait for a person, exactly as they would run."""
    return AskHuman(
        calls=tuple(call for call in runnable(ctx) if call.needs_approval and not call.approved),
        expires_in=ctx.limits.approval_timeout,
    )


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Each decision is for one call. A denied call is answered with the reason; its siblings are not touched.

    A call that was asked about and not decided counts as denied: silence is not a yes.
    """
    if isinstance(outcome, Expired):
        return Step(Event.EXPIRED, ctx.change(at=outcome.at, waited=ctx.waited + outcome.waited))
    if not isinstance(outcome, Answered):
        raise unexpected("REVIEW", outcome)
    # A decision counts only for a call that was asked about, whatever the outcome holds.
    asked = {call.id for call in runnable(ctx) if call.needs_approval and not call.approved}
    decisions = {call_id: one for call_id, one in outcome.decisions.items() if call_id in asked}
    calls = tuple(_decided(ctx, call, decisions) if call.id in asked else call for call in ctx.calls)
    answers = tuple(_answer(call, one) for call in calls if isinstance(one := decisions.get(call.id), Answer))
    denied = {call.signature for call in calls if call.refusal_kind == "denied"}
    pending = tuple(_edited(call, decisions) for call in calls if isinstance(decisions.get(call.id), Edit))
    stop = any(isinstance(decision, Deny) and decision.stop for decision in decisions.values())
    after = ctx.change(
        at=outcome.at,
        waited=ctx.waited + outcome.waited,
        calls=calls,
        results=merge_results(ctx.results, answers),
        fresh=(*ctx.fresh, *answers),
        pending=() if stop else pending,
        denied=ctx.denied | denied,
        stop_requested=stop,
    )
    if stop or not runnable(after):
        return Step(Event.ANSWERED if answers and not stop else Event.DENIED, after)
    return Step(Event.EDITED if pending else Event.APPROVED, after)


def _decided(ctx: Context, call: Call, decisions: Mapping[str, Decision]) -> Call:
    decision = decisions.get(call.id)
    if isinstance(decision, Approve | Edit | Answer):
        return replace(call, approved=isinstance(decision, Approve))
    reason = well_formed(decision.reason) if isinstance(decision, Deny) else ""
    return replace(call, refusal=ctx.texts.denied.format(reason=reason or ctx.texts.no_reason), refusal_kind="denied")


def _answer(call: Call, decision: Answer) -> Result:
    """What a person says that the call gave stands as its result; nothing ran for it."""
    return Result(
        call_id=call.id, tool=call.tool, ok=True, text=well_formed(decision.text) or "(empty)", executed=False
    )


def _edited(call: Call, decisions: Mapping[str, Decision]) -> Pending:
    decision = decisions[call.id]
    assert isinstance(decision, Edit), "only edits become pending"
    return Pending(RawCall(call.id, call.tool, dict(as_json(decision.args))), call.id, approved=True)
