"""The table: every transition there is. It drives the run, and diagrams, tests and proofs are made from it.

Rows of one (source, event) are tried in order and the last one has no guard. `reason` is why the run stops, or degrades, there;
a row to ABORT without one keeps the reason that led to DEGRADE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsm_agent import guards as g
from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.guards import Guard

__all__ = ["TABLE", "Row"]

S, E, R = State, Event, StopReason


@dataclass(frozen=True, slots=True)
class Row:
    """One transition: in `source`, when `event` happened and all `guards` hold, go to `target`."""

    source: State
    event: Event
    target: State
    guards: tuple[Guard, ...] = ()
    reason: StopReason | None = None

    def __str__(self) -> str:
        condition = f" [{', '.join(guard.name for guard in self.guards)}]" if self.guards else ""
        return f"{self.source} --{self.event}{condition}--> {self.target}"


TABLE: Final[tuple[Row, ...]] = (
    Row(S.PLAN, E.REPLIED, S.VALIDATE),
    Row(S.PLAN, E.MODEL_FAILED, S.DECIDE),
    Row(S.PLAN, E.WITHHELD, S.DECIDE),
    Row(S.PLAN, E.COMPACTED, S.PLAN),
    Row(S.PLAN, E.SUMMARY_FAILED, S.PLAN),
    Row(S.PLAN, E.OVERFLOWED, S.PLAN),
    Row(S.VALIDATE, E.ANSWERED, S.FINISH),
    Row(S.VALIDATE, E.ACCEPTED, S.ABORT, (g.deadline_passed,), R.DEADLINE),
    Row(S.VALIDATE, E.ACCEPTED, S.DEGRADE, (g.repeated_action, g.can_answer_now), R.REPEATED_ACTION),
    Row(S.VALIDATE, E.ACCEPTED, S.ABORT, (g.repeated_action,), R.REPEATED_ACTION),
    Row(S.VALIDATE, E.ACCEPTED, S.DEGRADE, (g.tool_calls_spent, g.can_answer_now), R.MAX_TOOL_CALLS),
    Row(S.VALIDATE, E.ACCEPTED, S.ABORT, (g.tool_calls_spent,), R.MAX_TOOL_CALLS),
    Row(S.VALIDATE, E.ACCEPTED, S.REVIEW, (g.approval_required,)),
    Row(S.VALIDATE, E.ACCEPTED, S.EXECUTE),
    Row(S.VALIDATE, E.THOUGHT, S.OBSERVE),
    Row(S.VALIDATE, E.REJECTED, S.OBSERVE),
    Row(S.REVIEW, E.APPROVED, S.EXECUTE),
    Row(S.REVIEW, E.EDITED, S.VALIDATE),
    Row(S.REVIEW, E.DENIED, S.ABORT, (g.stop_requested,), R.DENIED),
    Row(S.REVIEW, E.DENIED, S.OBSERVE),
    Row(S.REVIEW, E.EXPIRED, S.ABORT, (), R.EXPIRED),
    Row(S.REVIEW, E.ANSWERED, S.OBSERVE),
    Row(S.EXECUTE, E.EXECUTED, S.OBSERVE),
    Row(S.EXECUTE, E.DOUBTED, S.REVIEW, (g.person_settles_doubt,)),
    Row(S.EXECUTE, E.DOUBTED, S.OBSERVE),
    Row(S.OBSERVE, E.OBSERVED, S.DECIDE),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.answer_failed,)),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.deadline_passed,), R.DEADLINE),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.circuit_open, g.model_failing), R.MODEL_FAILED),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.circuit_open,), R.CONSECUTIVE_FAILURES),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.model_unusable,), R.MODEL_FAILED),
    Row(S.DECIDE, E.DECIDED, S.DEGRADE, (g.token_budget_spent, g.can_answer_now), R.TOKEN_BUDGET),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.token_budget_spent,), R.TOKEN_BUDGET),
    Row(S.DECIDE, E.DECIDED, S.RETRY, (g.retry_available,)),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.nudges_spent,), R.EMPTY_REPLY),
    Row(S.DECIDE, E.DECIDED, S.DEGRADE, (g.failures_reached, g.can_degrade), R.CONSECUTIVE_FAILURES),
    Row(S.DECIDE, E.DECIDED, S.DEGRADE, (g.no_progress, g.can_answer_now), R.NO_PROGRESS),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.no_progress,), R.NO_PROGRESS),
    Row(S.DECIDE, E.DECIDED, S.DEGRADE, (g.steps_spent, g.can_answer_now), R.MAX_STEPS),
    Row(S.DECIDE, E.DECIDED, S.ABORT, (g.steps_spent,), R.MAX_STEPS),
    Row(S.DECIDE, E.DECIDED, S.PLAN),
    Row(S.RETRY, E.WAITED, S.PLAN, (g.retrying_model,)),
    Row(S.RETRY, E.WAITED, S.EXECUTE),
    Row(S.DEGRADE, E.FALLBACK_CHOSEN, S.VALIDATE),
    Row(S.DEGRADE, E.STRATEGY_CHANGED, S.PLAN),
    Row(S.DEGRADE, E.ANSWER_FORCED, S.PLAN),
    Row(S.DEGRADE, E.EXHAUSTED, S.ABORT),
    *(Row(state, E.CANCELLED, S.ABORT, (), R.CANCELLED) for state in State if state not in TERMINAL),
    *(Row(state, E.BROKE, S.ABORT, (), R.INTERNAL_ERROR) for state in State if state not in TERMINAL),
)
