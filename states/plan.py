"""PLAN: ask the model what to do next, unless the prompt alone would overrun the token budget.

Four calls lead back here, each as a row of its own: a summary of what leaves the memory, a reflection on whether to go on, a prompt that
the server found too large, and a request with something that the server refuses and can be asked without.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Failure
from fsm_agent.dialects.base import Answer, Purpose
from fsm_agent.dialects.repair import split_thinking
from fsm_agent.effects import CallModel, ModelFailed, Omittable, Outcome, Replied
from fsm_agent.history import correction_factor, estimate_text
from fsm_agent.memory.summary import summary_block
from fsm_agent.memory.views import is_round
from fsm_agent.prompt import (
    blocks_to_summarise,
    estimate_prompt,
    prompt_of,
    room_for_summary,
    smaller_room,
    summary_call,
    usable_tokens,
)
from fsm_agent.reflecting import read_reflection, reflection_call, reflection_due
from fsm_agent.rounds import with_note
from fsm_agent.states.base import Step, unexpected

EVENTS: Final = frozenset(
    {
        *(Event.REPLIED, Event.MODEL_FAILED, Event.WITHHELD),
        *(Event.COMPACTED, Event.SUMMARY_FAILED, Event.OVERFLOWED, Event.GAVE_WAY),
        *(Event.REFLECTED, Event.REFLECTION_FAILED),
    }
)
MOST_GIVEN_WAY: Final = len(get_args(Omittable))
"""How often a run may ask again without something that the server refuses: once for each such thing."""
_SHORT_SUMMARY: Final = 400
"""Tokens that a summary may always have, however little it tells of."""


def enter(ctx: Context) -> CallModel | None:
    """The model call with its prompt, or None when the call would overrun the budget; first a summary of what leaves the memory."""
    limits, left = ctx.limits, ctx.time_left
    timeout = limits.model_timeout if left is None else max(min(limits.model_timeout, left), 0.001)
    gone = blocks_to_summarise(ctx)
    if gone is not None:
        return summary_call(ctx, gone, timeout)
    if reflection_due(ctx):
        return reflection_call(ctx, timeout)
    purpose: Purpose = "answer" if ctx.forced else "plan"
    prompt = prompt_of(ctx, purpose)
    estimate, usable = estimate_prompt(ctx, purpose, prompt.blocks), usable_tokens(ctx)
    if usable is not None and ctx.usage.total + estimate > usable:
        return None
    dialect = ctx.setup.dialect
    return CallModel(
        messages=dialect.compose(prompt),
        tools=tuple([tool.name for tool in prompt.tools]),
        response_format=dialect.response_format(prompt),
        purpose=purpose,
        timeout=timeout,
        estimate=estimate,
        attempt=_attempt(ctx),
        temperature=ctx.temperature,
    )


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Count the call and its tokens. A reply opens a new round; a failure is kept for DECIDE; no outcome means the call was withheld."""
    if outcome is None:
        return Step(Event.WITHHELD, ctx)
    if not isinstance(outcome, ModelFailed | Replied):
        raise unexpected("PLAN", outcome)
    if isinstance(outcome, ModelFailed) and outcome.gives_way and ctx.gave_way < MOST_GIVEN_WAY:
        more = ctx.change(**_called(ctx, outcome), gave_way=ctx.gave_way + 1, setback=_error(outcome))
        return Step(Event.GAVE_WAY, more)
    gone = blocks_to_summarise(ctx)
    if gone is not None:
        return _summarised(ctx, gone, outcome)
    if reflection_due(ctx):
        return _reflected(ctx, outcome)
    return _failed(ctx, outcome) if isinstance(outcome, ModelFailed) else _replied(ctx, outcome)


def _failed(ctx: Context, outcome: ModelFailed) -> Step:
    """The failure is kept for DECIDE, but for a prompt that was too large: a smaller one is sent."""
    room = smaller_room(ctx, outcome, "answer" if ctx.forced else "plan")
    if room is not None:
        less = ctx.change(**_called(ctx, outcome), room=room, overflows=ctx.overflows + 1, setback=_error(outcome))
        return Step(Event.OVERFLOWED, less)
    failure = Failure("model", "model", _error(outcome), outcome.retryable, outcome.retry_after)
    return Step(
        Event.MODEL_FAILED,
        ctx.change(**_counted(ctx, outcome), failures=ctx.failures + 1, successes=0, failure=failure),
    )


def _replied(ctx: Context, outcome: Replied) -> Step:
    """The reply opens a new round."""
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
        setback="",
    )
    return Step(Event.REPLIED, replied)


def _error(outcome: ModelFailed) -> str:
    return f"{outcome.error}: {outcome.message}"


def _attempt(ctx: Context) -> int:
    """Which attempt at this model call is due: past 1 only when the call before it failed."""
    return ctx.attempt if ctx.failure is not None and ctx.failure.of == "model" else 1


def _called(ctx: Context, outcome: Replied | ModelFailed) -> dict[str, Any]:
    """The changes that every call of the model brings, whatever it was for and whatever came of it."""
    return {"at": outcome.at, "usage": ctx.usage + outcome.usage, "model_calls": ctx.model_calls + 1}


def _summarised(ctx: Context, gone: range, outcome: Replied | ModelFailed) -> Step:
    """Keep the summary after the blocks that it tells of. One that is of no use changes nothing but the counts, and is recorded.

    A request that the server found too large is made again, smaller.
    """
    after = ctx.change(**_called(ctx, outcome))
    text, error = _summary_of(ctx, gone, outcome)
    room = room_for_summary(ctx, gone, outcome) if isinstance(outcome, ModelFailed) else None
    if room is not None:
        return Step(Event.OVERFLOWED, after.change(room=room, overflows=ctx.overflows + 1, setback=error))
    if error:
        rounds = sum(is_round(one) for one in ctx.blocks)
        return Step(Event.SUMMARY_FAILED, after.change(summary_failed_at=rounds, setback=error))
    kept = summary_block(text, ctx.texts, ctx.turn)
    history = (*ctx.history[: gone.stop], kept, *ctx.history[gone.stop :])
    return Step(Event.COMPACTED, after.change(history=history, summary_failed_at=0))


def _reflected(ctx: Context, outcome: Replied | ModelFailed) -> Step:
    """Whether the model would go on, with a hint to the tool that it named. What is of no use changes nothing but the counts."""
    after = ctx.change(**_called(ctx, outcome), reflections=ctx.reflections + 1, reflected_at=ctx.step)
    said = read_reflection(ctx, outcome)
    if isinstance(said, str):
        return Step(Event.REFLECTION_FAILED, after.change(setback=said))
    if said.go_on and said.next_tool is not None:
        after = with_note(after, ctx.texts.next_tool.format(tool=said.next_tool))
    return Step(Event.REFLECTED, after.change(go_on=said.go_on))


def _summary_of(ctx: Context, gone: range, outcome: Replied | ModelFailed) -> tuple[str, str]:
    """The text of the summary, or why there is none."""
    if isinstance(outcome, ModelFailed):
        return "", _error(outcome)
    if outcome.unreadable:
        return "", outcome.unreadable
    if outcome.truncated:
        return "", "the summary was cut off before its end"
    reading = ctx.setup.dialect.read(outcome, (), "answer")
    text = reading.text if isinstance(reading, Answer) else split_thinking(outcome.text)[1]
    if not text.strip():
        return "", "the summary was empty"
    covered = sum(ctx.blocks[index].tokens for index in gone)
    if estimate_text(text) > max(covered, _SHORT_SUMMARY):
        return "", "the summary was longer than what it tells of"
    return text.strip(), ""


def _counted(ctx: Context, outcome: Replied | ModelFailed) -> dict[str, Any]:
    """The changes that every attempt at a step brings."""
    attempt = _attempt(ctx)
    return {
        **_called(ctx, outcome),
        "step": ctx.step + (attempt == 1 and not ctx.forced),
        "attempt": attempt,
    }


def _factor(ctx: Context, reply: Replied) -> float:
    """What the server's own prompt count says of our estimate, as it was when there is none."""
    estimate = estimate_prompt(ctx, "answer" if ctx.forced else "plan") / ctx.prompt_factor
    if not reply.prompt_tokens or estimate <= 0:
        return ctx.prompt_factor
    return correction_factor(reply.prompt_tokens, estimate)
