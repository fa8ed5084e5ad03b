"""What must hold of each explored transition, whatever came before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.effects import CallTools
from fsm_agent.guards import GUARDS
from fsm_agent.limits import Limits
from fsm_agent.table import Row
from fsm_agent.verify.configuration import Config
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.outcomes import Choice, Happened
from fsm_agent.verify.own import holds_calls, wrongly_left

__all__ = ["broken_rules"]

Broken = Iterator[tuple[str, str]]
"""The kinds of the faults, each with a sentence."""

_SAYS: Final[Mapping[StopReason, str]] = {
    StopReason.MAX_STEPS: "steps_spent",
    StopReason.MAX_TOOL_CALLS: "tool_calls_spent",
    StopReason.TOKEN_BUDGET: "token_budget_spent",
    StopReason.DEADLINE: "deadline_passed",
    StopReason.REPEATED_ACTION: "repeated_action",
    StopReason.NO_PROGRESS: "no_progress",
    StopReason.REFLECTION: "told_to_stop",
    StopReason.EMPTY_REPLY: "nudges_spent",
    StopReason.CONSECUTIVE_FAILURES: "failures_reached",
    StopReason.MODEL_FAILED: "model_failing",
    StopReason.DENIED: "stop_requested",
}
"""The guard that each reason claims to hold."""
_ANSWERED_AT: Final = frozenset(
    {
        *(StopReason.MAX_STEPS, StopReason.MAX_TOOL_CALLS, StopReason.TOKEN_BUDGET),
        *(StopReason.REPEATED_ACTION, StopReason.NO_PROGRESS, StopReason.REFLECTION),
    }
)
"""The limits at which an answer is asked for before the run is stopped, where it may be."""
_RUN, _SEEN = frozenset({State.EXECUTE, State.REVIEW, State.DEGRADE}), frozenset({State.OBSERVE})
_GOES_ON: Final[Mapping[tuple[State, Event], frozenset[State]]] = {
    (State.PLAN, Event.REPLIED): frozenset({State.VALIDATE, State.DEGRADE}),
    (State.VALIDATE, Event.ANSWERED): frozenset({State.FINISH, State.OBSERVE, State.DEGRADE}),
    (State.VALIDATE, Event.ACCEPTED): _RUN,
    (State.VALIDATE, Event.REJECTED): _SEEN,
    (State.VALIDATE, Event.THOUGHT): _SEEN,
    (State.REVIEW, Event.APPROVED): _RUN,
    (State.REVIEW, Event.EDITED): frozenset({State.VALIDATE}),
    (State.REVIEW, Event.DENIED): _SEEN,
    (State.REVIEW, Event.ANSWERED): _SEEN,
    (State.EXECUTE, Event.EXECUTED): _SEEN,
    (State.EXECUTE, Event.DOUBTED): frozenset({State.REVIEW, State.OBSERVE}),
    (State.RETRY, Event.WAITED): frozenset({State.PLAN, State.EXECUTE}),
    (State.DEGRADE, Event.FALLBACK_CHOSEN): frozenset({State.VALIDATE}),
    (State.DEGRADE, Event.DEFAULTED): frozenset({State.PLAN}),
    (State.DEGRADE, Event.STRATEGY_CHANGED): frozenset({State.PLAN}),
    (State.DEGRADE, Event.SIMPLIFIED): frozenset({State.PLAN}),
    (State.DEGRADE, Event.ANSWER_FORCED): frozenset({State.PLAN}),
}
"""Where a reply and what came of its calls must go on to, unless the run is stopped, so that nothing of it is lost."""


def broken_rules(judge: Judge, config: Config, happened: Happened, row: Row) -> Broken:
    """All the rules that the transition breaks: from `config`, `happened` led by `row`."""
    after, choice = happened.after, happened.choice
    yield from _ending(config, happened, row)
    yield from _entering(judge, config, happened, row)
    yield from _past_a_limit(config, happened, row, judge.bounds.limits)
    yield from _claimed(judge, row, after, choice)
    yield from _lost(happened, row)
    if row.source.is_own and row.target is not State.ABORT:
        yield from wrongly_left(config, row)


def _ending(config: Config, happened: Happened, row: Row) -> Broken:
    event, after = happened.event, happened.after
    if row.target is State.ABORT and row.reason is None and not after.caused:
        yield "reason", "the run is aborted without a reason"
    if row.target is State.FINISH and not (
        row.source.is_own or (row.source, event) == (State.VALIDATE, Event.ANSWERED)
    ):
        yield "answer", "the run finishes without an answer that VALIDATE read"
    asking = ("again", "waited", "forced") if row.source.is_own else ()
    may_ask = row.source in (State.PLAN, State.RETRY) or event is Event.ANSWER_FORCED or config.holds in asking
    if row.target is State.PLAN and after.forced and not may_ask:
        yield "forced", "the forced answer is asked for a second time"
    if event is Event.ANSWER_FORCED and config.forced:
        yield "forced", "an answer is forced a second time"


def _entering(judge: Judge, config: Config, happened: Happened, row: Row) -> Broken:
    event, after = happened.event, happened.after
    runs = row.target in (State.EXECUTE, State.REVIEW)
    if row.target is State.REVIEW and happened.choice.calls != "waiting":
        yield "unchecked", "REVIEW is entered though no call waits for a person"
    if row.source.is_own:
        if runs and holds_calls(config.holds):
            yield from _let_through(judge, row, after, happened.choice)
        return
    retried = row.source is State.RETRY and after.failure == "tool"
    let = (row.source, event) in ((State.VALIDATE, Event.ACCEPTED), (State.REVIEW, Event.APPROVED))
    if row.target is State.EXECUTE and not (retried or let):
        yield "unchecked", f"EXECUTE is entered from {row.source} by {event}, which lets no call run"
    if runs and event is Event.ACCEPTED:
        yield from _let_through(judge, row, after, happened.choice)


def _let_through(judge: Judge, row: Row, after: Config, choice: Choice) -> Broken:
    """What is wrong with the calls that VALIDATE lets through; the real EXECUTE says which those are."""
    ctx = judge.context(after, choice)
    effect = judge.machine.behaviours[State.EXECUTE].enter(ctx)
    assert isinstance(effect, CallTools), "EXECUTE asks for calls"
    if choice.calls == "repeated" or any(call.repeated for call in effect.calls):
        yield "repeat", f"{row.target} is entered with nothing but calls that were executed repeat_threshold times"
    if ctx.tool_calls + len(effect.calls) > ctx.limits.max_tool_calls:
        yield "tool_calls", f"{row.target} is entered with calls that pass max_tool_calls"
    if row.target is State.EXECUTE and any(call.needs_approval and not call.approved for call in effect.calls):
        yield "approval", "a call runs that a person has not approved"


def _past_a_limit(config: Config, happened: Happened, row: Row, limits: Limits) -> Broken:
    """What begins, or is led to by DEGRADE, though a limit was reached."""
    after, choice, own = happened.after, happened.choice, row.source.is_own
    asks = row.target is State.PLAN and row.source is not State.PLAN
    degrades = row.target is State.DEGRADE
    deciding = row.source is State.DECIDE or (own and config.holds.startswith("decided"))
    decided = deciding and row.target in (State.PLAN, State.RETRY)
    if asks and after.failures >= limits.abort_after:
        yield "failures", "the model is asked again though abort_after failures followed each other"
    if asks and after.nudges > limits.max_nudges and not after.forced:
        yield "nudges", "the model is asked again though more than max_nudges replies were empty"
    if asks and decided and after.idle >= limits.no_progress_steps:
        yield "progress", "a step begins though no_progress_steps in a row brought nothing new"
    # What a crash left in doubt is let through by EXECUTE too.
    checked = row.source in (State.VALIDATE, State.REVIEW) or (
        own and config.holds.startswith(("fresh", "waiting", "repeated"))
    )
    runs = checked and row.target in (State.EXECUTE, State.REVIEW)
    if after.late and (decided or runs or degrades):
        yield "deadline", "something begins though the deadline has passed"
    # At a limit DEGRADE asks for an answer, for which some tokens are kept; after failures for a whole step.
    answers = degrades and row.reason is not StopReason.CONSECUTIVE_FAILURES
    if (decided or degrades) and choice.tokens not in ("fit", "answer" if answers else "fit"):
        yield "tokens", "the model is asked again though the token budget is spent"


def _claimed(judge: Judge, row: Row, after: Config, choice: Choice) -> Broken:
    """A reason must be true, and at a limit an answer is asked for where one may be. A guard of your own says itself what is true."""
    claim = None if row.reason is None else _SAYS.get(row.reason)
    if claim is None or any(guard.is_own for guard in row.guards):
        return
    ctx = judge.context(after, choice)
    if not GUARDS[claim].test(ctx)[0]:
        yield "untrue", f"the reason is {row.reason}, though {claim} does not hold"
    if row.target is State.ABORT and row.reason in _ANSWERED_AT and GUARDS["can_answer_now"].test(ctx)[0]:
        yield "unasked", f"the run is aborted at {row.reason} though an answer could still be asked for"


def _lost(happened: Happened, row: Row) -> Broken:
    if happened.choice.stop and row.target is not State.ABORT:
        yield "lost", f"a person asked to stop the run, and {row.target} is entered"
    over = row.source is State.PLAN and happened.event not in (Event.REPLIED, Event.MODEL_FAILED, Event.WITHHELD)
    if over and row.target is State.DEGRADE and row.reason is StopReason.CONSECUTIVE_FAILURES:
        yield "lost", "DEGRADE is entered for the failures of a round that is over"
    on = _GOES_ON.get((row.source, happened.event))
    if on is None or row.target in on or row.target is State.ABORT or row.target.is_own:
        return
    yield "lost", f"after {happened.event}, {row.target} is entered, so that what became of the reply is lost"
