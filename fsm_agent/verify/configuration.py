"""Abstract configurations: of a run, only what can decide how it goes on. Finitely many for any limits.

Counters that guards compare are kept up to where no guard tells them apart any more. Steps are kept only as "spent or not": what a run
may do in a step does not depend on how many went before, and they are counted apart (`fsm_agent.verify.graph`). Tokens, tool calls
so far and signatures are left out; where a guard asks for them, both answers are explored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.context import Context
from fsm_agent.guards import GUARDS
from fsm_agent.ladder import Rung, defaults, fallbacks
from fsm_agent.limits import Limits
from fsm_agent.rounds import NOT_FAILURES, not_executed

__all__ = ["HOLDS", "Bounds", "Config", "abstracted", "cause_class", "settled"]

HOLDS: Final[dict[State, frozenset[str]]] = {
    State.VALIDATE: frozenset({"fallback", "edited"}),
    State.OBSERVE: frozenset({"ran", "refused", "quiet", "empty", "thought", "note"}),
    State.DECIDE: frozenset({"withheld"}),
}
"""What is open on arrival in a state. In VALIDATE a fallback's calls or those that a person edited, else the reply.

In OBSERVE what happened to the calls: something ran or was answered; all were refused (`quiet`: in ways that are no failure); or there
were none and a note says so. In DECIDE that the model call was withheld. States without an entry hold nothing;
of those of one's own see `fsm_agent.verify.own`.
"""


class Config(NamedTuple):
    """A state, and what of the context decides how the run goes on.

    `failure` is "", or what failed ("model", "tool", "reply"), in DECIDE with "+" when it may be tried again and "-" when not;
    `fallback` and `default` say that a failed call has one left, `changed` and `simplified` that the strategy was changed, and the tools
    were, where anything below that may follow. `caused` is why the run left its ordinary path: "", "failures", "limit",
    or "set" where it no longer matters which.
    """

    state: State
    spent: bool = False
    failures: int = 0
    idle: int = 0
    nudges: int = 0
    degradations: int = 0
    attempt: int = 1
    forced: bool = False
    late: bool = False
    caused: str = ""
    holds: str = ""
    failure: str = ""
    fallback: bool = False
    default: bool = False
    changed: bool = False
    simplified: bool = False

    def __str__(self) -> str:
        told = [
            f"{name}={value}" if value is not True else name
            for name, value in zip(self._fields[1:], self[1:], strict=True)
            if value and (name, value) != ("attempt", 1)
        ]
        return f"{self.state} ({', '.join(told)})" if told else str(self.state)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the exploration is of: the limits, the rungs of the ladder, and how often a tool may be retried at most.

    `simpler`: there are simpler tools to be left with; `defaults`: a tool has a default. `reflections`: so often the
    model is asked at most whether to go on.
    """

    limits: Limits
    ladder: tuple[str, ...]
    tool_retries: int
    simpler: bool = False
    defaults: bool = False
    reflections: int = 0

    @property
    def adaptive(self) -> bool:
        """Whether useful steps earn more steps, so that steps that were spent may be left again."""
        return self.limits.max_steps == "adaptive"

    @property
    def most_attempts(self) -> int:
        """One more than any attempt that a retry may lead to; from there on attempts are not told apart."""
        return max(self.tool_retries, self.limits.max_retries) + 2

    @property
    def counters(self) -> int:
        """A rough count of configurations: the product of the counters that are kept."""
        one = self.limits
        return (one.abort_after + 1) * (one.no_progress_steps + 1) * (one.max_nudges + 2) * (one.max_degradations + 1)


def settled(config: Config, bounds: Bounds) -> Config:
    """The normal form: counters up to where they matter, and nothing that the state does not look at."""
    state, limits = config.state, bounds.limits
    if state in TERMINAL:
        return Config(state)
    if state.is_own:
        return _capped(config, bounds)
    of = config.failure.rstrip("+-")
    if state is State.DECIDE:
        failure, counted = config.failure, config.failure == "tool+" or of == "model"
    elif state is State.PLAN:
        failure, counted = of if of == "model" else "", of == "model"
    elif state is State.DEGRADE:
        # Failures go down the ladder; a limit asks for an answer, whatever failed.
        of = of if config.caused == "failures" else ""
        failure, counted = of, False
    elif state is State.RETRY:
        failure, counted = of, True
    else:
        failure, counted = "tool" if of else "", True
    caused = config.caused if state is State.DEGRADE or not config.caused else "set"
    return Config(
        state,
        config.spent,
        min(config.failures, limits.abort_after),
        min(config.idle, limits.no_progress_steps),
        min(config.nudges, limits.max_nudges + 1),
        min(config.degradations, limits.max_degradations),
        min(config.attempt, bounds.most_attempts) if counted else 1,
        config.forced,
        config.late,
        caused,
        config.holds if config.holds in HOLDS.get(state, ()) else "",
        failure,
        config.fallback and of == "tool" and state in (State.DECIDE, State.DEGRADE),
        config.default and bounds.defaults and of == "tool" and state in (State.DECIDE, State.DEGRADE),
        config.changed and (bounds.simpler or bounds.defaults),
        config.simplified and bounds.simpler,
    )


def _capped(config: Config, bounds: Bounds) -> Config:
    """In a state of one's own everything stays, because it may lead to any other; counters go up to where they matter."""
    limits = bounds.limits
    return config._replace(
        failures=min(config.failures, limits.abort_after),
        idle=min(config.idle, limits.no_progress_steps),
        nudges=min(config.nudges, limits.max_nudges + 1),
        degradations=min(config.degradations, limits.max_degradations),
        attempt=min(config.attempt, bounds.most_attempts),
        caused="set" if config.caused else "",
    )


def cause_class(reason: StopReason | None) -> str:
    """As much of a reason as DEGRADE looks at."""
    if reason is None:
        return ""
    return "failures" if reason is StopReason.CONSECUTIVE_FAILURES else "limit"


def abstracted(ctx: Context, state: State, event: Event | None, bounds: Bounds) -> Config:
    """The configuration of a real run that has come to `state` by `event` (None at its beginning)."""
    limit = ctx.limits.deadline
    of = ctx.failure.of if ctx.failure is not None else ""
    sign = "" if not of else "+" if GUARDS["retry_available"].test(ctx)[0] else "-"
    config = Config(
        state=state,
        spent=ctx.step >= ctx.step_cap,
        failures=ctx.failures,
        idle=ctx.idle_steps,
        nudges=ctx.nudges,
        degradations=ctx.degradations,
        attempt=ctx.attempt,
        forced=ctx.forced,
        late=limit is not None and ctx.elapsed >= limit,
        caused=cause_class(ctx.cause.reason if ctx.cause is not None else None),
        holds=_holding(ctx, state, event),
        failure=of + sign,
        fallback=of == "tool" and bool(fallbacks(ctx)),
        default=of == "tool" and bool(defaults(ctx)),
        changed=Rung.STRATEGY in ctx.rungs,
        simplified=Rung.SIMPLER in ctx.rungs,
    )
    return settled(config, bounds)


def _holding(ctx: Context, state: State, event: Event | None) -> str:
    if state is State.VALIDATE and ctx.pending:
        return "fallback" if ctx.pending[0].instead_of else "edited"
    if state is State.DECIDE:
        return "withheld" if event is Event.WITHHELD else ""
    if state is not State.OBSERVE:
        return ""
    if ctx.note:
        return ctx.note_kind if ctx.note_kind in ("empty", "thought") else "note"
    if event is not Event.REJECTED or ctx.fresh:
        return "ran"
    asked = {call.id: call.tool for call in ctx.asked}
    refused = [not_executed(call, "") for call in ctx.calls if asked.get(call.id, call.tool) == call.tool]
    return "refused" if any(result.error not in NOT_FAILURES for result in refused) else "quiet"
