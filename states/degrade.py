"""DEGRADE: one rung down the ladder: a fallback tool or a default, another strategy, simpler tools, or an answer from what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from traceback import format_exception_only
from typing import Any, Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Failure, Pending
from fsm_agent.effects import Outcome, RawCall
from fsm_agent.ladder import Rung, defaults, fallbacks, rung_key, wanted_rung
from fsm_agent.offer import offered_tools
from fsm_agent.rounds import close_round, merge_results, with_note
from fsm_agent.states.base import Step
from fsm_agent.tools.spec import Tool

EVENTS: Final = frozenset(
    {
        *(Event.FALLBACK_CHOSEN, Event.DEFAULTED, Event.STRATEGY_CHANGED, Event.SIMPLIFIED),
        *(Event.ANSWER_FORCED, Event.EXHAUSTED),
    }
)


def enter(ctx: Context) -> None:
    """Nothing to ask for."""


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Take the rung that is left for the reason that led here."""
    rung = wanted_rung(ctx)
    ctx = ctx.change(setback="")
    if rung is Rung.FALLBACK:
        pending, setback = _pending(ctx)
        used = ctx.fallbacks | {rung_key(call, result) for call, result, _ in fallbacks(ctx)}
        ctx = ctx.change(fallbacks=used, setback=setback)
        if pending:
            return Step(Event.FALLBACK_CHOSEN, _lower(ctx.change(pending=pending)))
        # The fallback's own mapping of arguments failed: what is left is the next rung.
        rung = wanted_rung(ctx)
    if rung is Rung.DEFAULT:
        return Step(Event.DEFAULTED, _lower(_defaulted(ctx)))
    if rung is Rung.STRATEGY and ctx.failure is not None:
        return Step(Event.STRATEGY_CHANGED, _lower(_changed(ctx, ctx.failure)))
    if rung is Rung.SIMPLER and ctx.failure is not None:
        return Step(Event.SIMPLIFIED, _lower(_simplified(ctx, ctx.failure)))
    if rung is Rung.ANSWER:
        reason = ctx.cause.reason if ctx.cause is not None else ""
        note = ctx.texts.answer_now.format(because=ctx.texts.because.get(reason, ""))
        after = with_note(close_round(ctx), note)
        return Step(Event.ANSWER_FORCED, after.change(forced=True, failure=None, attempt=1))
    return Step(Event.EXHAUSTED, ctx)


def _lower(ctx: Context) -> Context:
    return ctx.change(degradations=ctx.degradations + 1, attempt=1)


def _defaulted(ctx: Context) -> Context:
    """The round closed anew, with the defaults in the place of the failures that they stand in for."""
    stood_in = [
        replace(
            result,
            ok=True,
            executed=False,
            error="default",
            text=ctx.texts.default.format(error=result.text, tool=result.tool, text=default),
        )
        for result, default in defaults(ctx)
    ]
    return close_round(ctx.change(results=merge_results(ctx.results, stood_in)))


def _changed(ctx: Context, failure: Failure) -> Context:
    """The context in which the model is told to choose another way; the tools that failed may be taken away."""
    after = ctx.change(rungs=ctx.rungs | {Rung.STRATEGY})
    if ctx.setup.withhold and failure.of == "tool":
        failed = {result.call_id for result in ctx.results if not result.ok and result.executed}
        after = after.change(withheld=ctx.withheld | {call.tool for call in ctx.asked if call.id in failed})
    return with_note(after, _strategy(after, failure))


def _simplified(ctx: Context, failure: Failure) -> Context:
    """The context in which only the simpler tools are left."""
    after = ctx.change(rungs=ctx.rungs | {Rung.SIMPLER})
    names = ", ".join(offered_tools(after))
    return with_note(after, ctx.texts.simpler.format(failed=failure.what, error=failure.error, tools=names))


def _pending(ctx: Context) -> tuple[tuple[Pending, ...], str]:
    """The fallback calls, their arguments mapped by the tool's own mapping, and which mappings raised: their fallbacks are left out."""
    found, failed_mappings = [], []
    for call, result, tool in fallbacks(ctx):
        failed = ctx.setup.tools.resolve(result.tool)
        mapping = None if failed is None else failed.map_fallback
        try:
            arguments = _known_to(tool, call.arguments) if mapping is None else dict(mapping(dict(call.arguments)))
        except Exception as error:  # noqa: BLE001 - a mapping is somebody else's code
            said = format_exception_only(error)[-1].strip()
            failed_mappings.append(f"{tool.name} could not stand in, map_fallback of {result.tool} raised {said}")
            continue
        found.append(Pending(RawCall(call.id, tool.name, arguments), call.id, instead_of=result.tool))
    return tuple(found), "; ".join(failed_mappings)


def _known_to(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a fallback without a mapping has too."""
    fields = tool.parameters().get("properties", {})
    return {name: value for name, value in arguments.items() if name in fields}


def _strategy(ctx: Context, failure: Failure) -> str:
    texts, names = ctx.texts, ", ".join(offered_tools(ctx))
    if failure.of == "reply":
        return texts.strategy_reply.format(count=ctx.failures, error=failure.error.rstrip(".。"), tools=names)
    return texts.strategy.format(failed=failure.what, error=failure.error, tools=names)
