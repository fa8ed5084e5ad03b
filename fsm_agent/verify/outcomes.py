"""For each state, everything that its `resolve` can make of an outcome, on abstract configurations.

It errs on the side of more: tools, people, servers and clock are held to nothing. The tests drive real runs and assert that each of
their transitions is among these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Final, NamedTuple

from fsm_agent.alphabet import Event, State
from fsm_agent.ladder import Rung
from fsm_agent.verify.configuration import Bounds, Config

__all__ = ["OUTCOMES", "Choice", "Happened", "deadline_outcomes"]


class Choice(NamedTuple):
    """What the configuration leaves open and a guard may ask for.

    `calls` are "fresh", "waiting" (for approval) or "repeated"; `over`: they would pass the limit of tool calls. `tokens` are "fit",
    "answer" (spent, but for one answer) or "over". `enough`: the model said not to go on.
    """

    calls: str = ""
    over: bool = False
    tokens: str = "fit"
    stop: bool = False
    enough: bool = False


class Happened(NamedTuple):
    """One outcome: the event, the configuration after it (still in the source), and what the guards may find beside it.

    `counts` names the counter that grows, of those that are bounded from outside the configuration: "step", "again" (a prompt that is
    sent again, changed), "summary", "reflection", "crash".
    """

    event: Event
    after: Config
    choice: Choice = Choice()
    counts: str = ""


RungOf = Callable[[Config], Rung | None]
"""Says which rung DEGRADE would take in a configuration."""
_CALLS: Final = ("fresh", "waiting", "repeated")


def deadline_outcomes(config: Config, bounds: Bounds) -> tuple[bool, ...]:
    """Whether the deadline has passed after something that takes time."""
    return (config.late,) if config.late or bounds.limits.deadline is None else (False, True)


def _plan(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    attempt = config.attempt if config.failure == "model" else 1
    counts = "step" if attempt == 1 and not config.forced else ""
    full = bounds.limits.abort_after
    least = max(config.failures - attempt + 1, 0)
    # Past the last failure that is counted, what is left of them is not known.
    left = range(least, full + 1) if config.failures == full else (least,)
    for late in deadline_outcomes(config, bounds):
        now = config._replace(late=late)
        for failures in left:
            yield Happened(
                Event.REPLIED,
                now._replace(attempt=1, failures=failures, failure="", holds="", fallback=False),
                counts=counts,
            )
        failed = now._replace(failures=config.failures + 1, attempt=attempt, fallback=False)
        if attempt <= bounds.limits.max_retries and not late:
            yield Happened(Event.MODEL_FAILED, failed._replace(failure="model+"), counts=counts)
        yield Happened(Event.MODEL_FAILED, failed._replace(failure="model-"), counts=counts)
        yield Happened(Event.OVERFLOWED, now, counts="again")
        yield Happened(Event.GAVE_WAY, now, counts="again")
        if not config.forced and config.failure != "model" and not config.late:
            yield Happened(Event.COMPACTED, now, counts="summary")
            yield Happened(Event.SUMMARY_FAILED, now, counts="summary")
            if bounds.reflections:
                yield from _reflection(now, bounds)
    if bounds.limits.token_budget is not None:
        yield from _withheld(config, bounds)


def _reflection(config: Config, bounds: Bounds) -> Iterator[Happened]:
    yield Happened(Event.REFLECTION_FAILED, config, counts="reflection")
    yield Happened(Event.REFLECTED, config, counts="reflection")
    for tokens in ("fit",) if bounds.limits.token_budget is None else ("fit", "over"):
        yield Happened(Event.REFLECTED, config, Choice(tokens=tokens, enough=True), "reflection")


def _withheld(config: Config, bounds: Bounds) -> Iterator[Happened]:
    held = config._replace(holds="withheld")
    if config.failure == "model":
        if config.attempt <= bounds.limits.max_retries and not config.late:
            yield Happened(Event.WITHHELD, held._replace(failure="model+"))
        yield Happened(Event.WITHHELD, held._replace(failure="model-"))
        return
    # What failed before this step is not kept in PLAN, as nothing else asks for it there.
    for attempt in range(1, bounds.tool_retries + 2):
        for newest in _newest(bounds, attempt, late=config.late, kept="tool"):
            yield Happened(Event.WITHHELD, held._replace(**newest._asdict(), attempt=attempt))
    yield Happened(Event.WITHHELD, held._replace(failure="reply-"))
    yield Happened(Event.WITHHELD, held)


class _Newest(NamedTuple):
    """The newest failure as DECIDE may find it."""

    failure: str = ""
    fallback: bool = False
    default: bool = False


def _newest(bounds: Bounds, attempt: int, *, late: bool, kept: str) -> Iterator[_Newest]:
    """A failure of tools: to be tried again or not, with a fallback or not, with a default or not. Nothing for a `kept` of nothing."""
    if not kept:
        yield _Newest()
        return
    for fallback, default in product((False, True), (False, True) if bounds.defaults else (False,)):
        yield _Newest("tool-", fallback, default)
        if attempt <= bounds.tool_retries and not late:
            yield _Newest("tool+", fallback, default)


def _validate(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    kinds: tuple[str, ...] = _CALLS
    refusals: tuple[str, ...] = ("quiet",)
    if config.holds == "edited":
        kinds, refusals = ("fresh", "repeated"), ("refused", "quiet", "ran")
    elif not config.holds:
        yield Happened(Event.ANSWERED, config)
        yield Happened(Event.THOUGHT, config._replace(holds="thought"))
        kinds, refusals = ((), ("empty", "note")) if config.forced else (_CALLS, ("empty", "note", "refused", "quiet"))
    for refusal in refusals:
        yield Happened(Event.REJECTED, config._replace(holds=refusal))
    affordable = ("fit",) if bounds.limits.token_budget is None else ("fit", "over")
    for calls, over, tokens in product(kinds, (False, True), affordable):
        if not (over and calls == "repeated"):
            yield Happened(Event.ACCEPTED, config._replace(holds=""), Choice(calls, over, tokens))


def _review(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    for late in deadline_outcomes(config, bounds):
        now = config._replace(late=late, holds="ran")
        for event in (Event.APPROVED, Event.DENIED, Event.ANSWERED, Event.EXPIRED):
            yield Happened(event, now)
        yield Happened(Event.DENIED, now, Choice(stop=True))
        yield Happened(Event.EDITED, now._replace(holds="edited"))


def _execute(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    for late in deadline_outcomes(config, bounds):
        now = config._replace(late=late, holds="ran")
        yield Happened(Event.EXECUTED, now)
        yield Happened(Event.DOUBTED, now, Choice("waiting"), "crash")


def _observe(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    holds, idle = config.holds, config.idle + (config.attempt == 1)
    now = config._replace(holds="", fallback=False, default=False)
    if holds == "empty":
        yield Happened(Event.OBSERVED, now._replace(nudges=config.nudges + 1, failure=""))
    elif holds == "thought":
        yield Happened(Event.OBSERVED, now._replace(idle=config.idle + 1, failure=""))
    elif holds == "note":
        yield Happened(Event.OBSERVED, now._replace(failures=config.failures + 1, failure="reply-"))
    else:
        yield from _observed_calls(config, now, idle, bounds)


def _observed_calls(config: Config, now: Config, idle: int, bounds: Bounds) -> Iterator[Happened]:
    def tools(kept: str) -> Iterator[_Newest]:
        return _newest(bounds, config.attempt, late=config.late, kept=kept)

    more = config.failures + 1
    if config.attempt > 1:
        more = max(config.failures, min(more, bounds.limits.abort_after - 1))
    if config.holds != "refused":
        for newest in tools(config.failure):
            yield Happened(Event.OBSERVED, now._replace(idle=idle, **newest._asdict()))
    if config.holds != "quiet":
        yield Happened(Event.OBSERVED, now._replace(idle=idle, failures=more, failure="reply-"))
    if config.holds not in ("refused", "quiet"):
        for newest in tools("tool"):
            yield Happened(Event.OBSERVED, now._replace(idle=idle, failures=more, **newest._asdict()))
        for news in sorted({0, config.idle, idle}):
            found = now._replace(idle=news, failures=0)
            # What was new may have earned steps where none was left.
            earned = {config.spent, False} if bounds.adaptive and not news else {config.spent}
            for newest, spent in product((_Newest(), _Newest("reply-"), *tools("tool")), sorted(earned)):
                yield Happened(Event.OBSERVED, found._replace(**newest._asdict(), spent=spent))


def _decide(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    tokens = ["over"]
    if bounds.limits.answer_reserve and not config.forced:
        tokens.append("answer")
    if bounds.limits.token_budget is None:
        tokens = ["fit"]
    elif config.holds != "withheld":
        tokens.append("fit")
    for one in tokens:
        yield Happened(Event.DECIDED, config, Choice(tokens=one))


def _retry(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    for late in deadline_outcomes(config, bounds):
        yield Happened(Event.WAITED, config._replace(late=late, attempt=config.attempt + 1))


def _degrade(config: Config, bounds: Bounds, rung: RungOf) -> Iterator[Happened]:
    lower = config._replace(degradations=config.degradations + 1, attempt=1)
    taken = rung(config)
    if taken is Rung.FALLBACK:
        yield Happened(Event.FALLBACK_CHOSEN, lower._replace(holds="fallback"))
        # The fallback's own mapping of arguments may fail.
        taken = rung(config._replace(fallback=False))
    if taken is Rung.DEFAULT:
        yield Happened(Event.DEFAULTED, lower)
    elif taken is Rung.STRATEGY:
        yield Happened(Event.STRATEGY_CHANGED, lower._replace(changed=True))
    elif taken is Rung.SIMPLER:
        yield Happened(Event.SIMPLIFIED, lower._replace(simplified=True))
    elif taken is Rung.ANSWER:
        forced = config._replace(forced=True, failure="", fallback=False, default=False, attempt=1)
        yield Happened(Event.ANSWER_FORCED, forced)
    else:
        yield Happened(Event.EXHAUSTED, config)


OUTCOMES: Final[Mapping[State, Callable[[Config, Bounds, RungOf], Iterator[Happened]]]] = {
    State.PLAN: _plan,
    State.VALIDATE: _validate,
    State.REVIEW: _review,
    State.EXECUTE: _execute,
    State.OBSERVE: _observe,
    State.DECIDE: _decide,
    State.RETRY: _retry,
    State.DEGRADE: _degrade,
}
"""What can happen in each state, given the rung that DEGRADE would take in a configuration."""
