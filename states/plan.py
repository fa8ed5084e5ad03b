"""PLAN: ask the model what to do next, unless the prompt alone would overrun the token budget."""

from __future__ import annotations

from typing import Any, Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Failure
from fsm_agent.dialects.base import Purpose
from fsm_agent.effects import CallModel, ModelFailed, Outcome, Replied
from fsm_agent.prompt import estimate_prompt, prompt_of, usable_tokens
from fsm_agent.states.base import Step, unexpected

EVENTS: Final = frozenset({Event.REPLIED, Event.MODEL_FAILED, Event.WITHHELD})
_FACTOR_RANGE: Final = (0.5, 4.0)


def enter(ctx: Context) -> CallModel | None:
    """The model call with its prompt, or None when the call would overrun the budget."""
    purpose: Purpose = "answer" if ctx.forced else "plan"
    prompt = prompt_of(ctx, purpose)
    estimate, usable = estimate_prompt(ctx, purpose, prompt.blocks), usable_tokens(ctx)
    if usable is not None and ctx.usage.total + estimate > usable:
        return None
    dialect, limits = ctx.setup.dialect, ctx.limits
    left = ctx.time_left
    return CallModel(
        messages=dialect.compose(prompt),
        tools=tuple([tool.name for tool in prompt.tools]),
        response_format=dialect.response_format(prompt),
        purpose=purpose,
        timeout=limits.model_timeout if left is None else max(min(limits.model_timeout, left), 0.001),
        estimate=estimate,
        attempt=_attempt(ctx),
    )


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Count the call and its tokens. A reply opens a new round; a failure is kept for DECIDE; no outcome means the call was withheld."""
    if outcome is None:
        return Step(Event.WITHHELD, ctx)
    if isinstance(outcome, ModelFailed):
        failure = Failure(
            "model", "model", f"{outcome.error}: {outcome.message}", outcome.retryable, outcome.retry_after
        )
        return Step(
            Event.MODEL_FAILED,
            ctx.change(**_counted(ctx, outcome), failures=ctx.failures + 1, successes=0, failure=failure),
        )
    if not isinstance(outcome, Replied):
        raise unexpected("PLAN", outcome)
    changes = _counted(ctx, outcome)
    # Once the model has replied, the failed attempts of this same call no longer count; earlier failures go on counting.
    changes |= {"attempt": 1, "failures": max(ctx.failures - changes["attempt"] + 1, 0)}
    replied = ctx.change(
        **changes,
        history=ctx.blocks,
        round=None,
        failure=None,
        reply=outcome,
        prompt_factor=_factor(ctx, outcome),
        pending=(),
        asked=(),
        calls=(),
        results=(),
        fresh=(),
        note="",
        note_kind="",
        repairs=outcome.repairs,
    )
    return Step(Event.REPLIED, replied)


def _attempt(ctx: Context) -> int:
    """Which attempt at this model call is due: past 1 only when the call before it failed."""
    return ctx.attempt if ctx.failure is not None and ctx.failure.of == "model" else 1


def _counted(ctx: Context, outcome: Replied | ModelFailed) -> dict[str, Any]:
    """The changes that every call brings, whatever came of it."""
    attempt = _attempt(ctx)
    return {
        "at": outcome.at,
        "usage": ctx.usage + outcome.usage,
        "model_calls": ctx.model_calls + 1,
        "step": ctx.step + (attempt == 1 and not ctx.forced),
        "attempt": attempt,
    }


def _factor(ctx: Context, reply: Replied) -> float:
    """What the server's own prompt count says of our estimate, bounded, so that one odd report cannot mislead the budget."""
    estimate = estimate_prompt(ctx, "answer" if ctx.forced else "plan") / ctx.prompt_factor
    if not reply.prompt_tokens or estimate <= 0:
        return ctx.prompt_factor
    low, high = _FACTOR_RANGE
    return min(max(reply.prompt_tokens / estimate, low), high)
