"""DEGRADE: one rung down the ladder: a fallback tool, another strategy, or an answer from what is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Failure, Pending
from fsm_agent.effects import Outcome, RawCall
from fsm_agent.history import Block, block
from fsm_agent.ladder import Rung, fallbacks, rung_key, wanted_rung
from fsm_agent.rounds import close_round
from fsm_agent.states.base import Step
from fsm_agent.tools.spec import Tool

EVENTS: Final = frozenset({Event.FALLBACK_CHOSEN, Event.STRATEGY_CHANGED, Event.ANSWER_FORCED, Event.EXHAUSTED})


def enter(ctx: Context) -> None:
    """Nothing to ask for."""


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Take the rung that is left for the reason that led here."""
    rung = wanted_rung(ctx)
    if rung is Rung.FALLBACK:
        pending = _pending(ctx)
        if pending:
            used = ctx.fallbacks | {rung_key(call, result) for call, result, _ in fallbacks(ctx)}
            after = ctx.change(pending=pending, fallbacks=used, degradations=ctx.degradations + 1, attempt=1)
            return Step(Event.FALLBACK_CHOSEN, after)
        # The fallback's own mapping of arguments failed: what is left is to let the model choose.
        rung = Rung.STRATEGY if Rung.STRATEGY in ctx.setup.ladder and ctx.step < ctx.step_cap else None
    if rung is Rung.STRATEGY and ctx.failure is not None:
        after = _noted(ctx, _strategy(ctx, ctx.failure))
        return Step(Event.STRATEGY_CHANGED, after.change(degradations=ctx.degradations + 1, attempt=1))
    if rung is Rung.ANSWER:
        reason = ctx.cause.reason if ctx.cause is not None else ""
        note = ctx.texts.answer_now.format(because=ctx.texts.because.get(reason, ""))
        after = _noted(close_round(ctx), note)
        return Step(Event.ANSWER_FORCED, after.change(forced=True, failure=None, attempt=1))
    return Step(Event.EXHAUSTED, ctx)


def _pending(ctx: Context) -> tuple[Pending, ...]:
    """The fallback calls, with their arguments mapped by the tool's own mapping. A mapping that raises leaves its fallback out."""
    found = []
    for call, result, tool in fallbacks(ctx):
        failed = ctx.setup.tools.resolve(result.tool)
        mapping = None if failed is None else failed.map_fallback
        try:
            arguments = _known_to(tool, call.arguments) if mapping is None else dict(mapping(dict(call.arguments)))
        except Exception:  # noqa: BLE001 - a mapping is somebody else's code
            continue
        found.append(Pending(RawCall(call.id, tool.name, arguments), call.id, instead_of=result.tool))
    return tuple(found)


def _known_to(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a fallback without a mapping has too."""
    fields = tool.parameters().get("properties", {})
    return {name: value for name, value in arguments.items() if name in fields}


def _strategy(ctx: Context, failure: Failure) -> str:
    texts, names = ctx.texts, ", ".join(ctx.setup.tools.names())
    if failure.of == "reply":
        return texts.strategy_reply.format(count=ctx.failures, error=failure.error, tools=names)
    return texts.strategy.format(failed=failure.what, error=failure.error, tools=names)


def _noted(ctx: Context, note: str) -> Context:
    """The context with `note` to the model after the open round, in one block with it so that a window keeps both or neither."""
    kept = ctx.setup.dialect.keep_note(note)
    if ctx.round is None:
        return ctx.change(round=block("note", *kept, turn=ctx.turn))
    joined = Block(ctx.round.kind, (*ctx.round.messages, *kept), turn=ctx.turn)
    return ctx.change(round=block(joined.kind, *joined.messages, turn=ctx.turn))
