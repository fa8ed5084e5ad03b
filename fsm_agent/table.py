"""The table: every transition there is. It drives the run, and diagrams, tests and proofs are made from it.

Rows of one (source, event) are tried in order and the last one has no guard. `reason` is why the run stops, or degrades, there;
a row to ABORT without one keeps the reason that led to DEGRADE.

`extend` makes a table with states, events, guards and rows of your own, for `Agent(..., table=...)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, overload

from fsm_agent import guards as g
from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.checks import check_table
from fsm_agent.custom import OwnState, keep, open_calls, refuse, require_approval, state
from fsm_agent.guards import Guard, guard
from fsm_agent.rows import Given, Row, extended, stop_rows

__all__ = [
    "TABLE",
    "Row",
    "Table",
    "extend",
    "guard",
    "keep",
    "open_calls",
    "refuse",
    "require_approval",
    "state",
]

S, E, R = State, Event, StopReason
_NOTHING: Final[Mapping[str, Given]] = MappingProxyType({})

TABLE: Final[tuple[Row, ...]] = (
    Row(S.PLAN, E.REPLIED, S.VALIDATE),
    Row(S.PLAN, E.MODEL_FAILED, S.DECIDE),
    Row(S.PLAN, E.WITHHELD, S.DECIDE),
    Row(S.PLAN, E.COMPACTED, S.PLAN),
    Row(S.PLAN, E.SUMMARY_FAILED, S.PLAN),
    Row(S.PLAN, E.OVERFLOWED, S.PLAN),
    Row(S.PLAN, E.GAVE_WAY, S.PLAN),
    Row(S.PLAN, E.REFLECTED, S.DEGRADE, (g.told_to_stop, g.can_answer_now), R.REFLECTION),
    Row(S.PLAN, E.REFLECTED, S.ABORT, (g.told_to_stop,), R.REFLECTION),
    Row(S.PLAN, E.REFLECTED, S.PLAN),
    Row(S.PLAN, E.REFLECTION_FAILED, S.PLAN),
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
    Row(S.REVIEW, E.APPROVED, S.ABORT, (g.deadline_passed,), R.DEADLINE),
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
    Row(S.DEGRADE, E.DEFAULTED, S.PLAN),
    Row(S.DEGRADE, E.STRATEGY_CHANGED, S.PLAN),
    Row(S.DEGRADE, E.SIMPLIFIED, S.PLAN),
    Row(S.DEGRADE, E.ANSWER_FORCED, S.PLAN),
    Row(S.DEGRADE, E.EXHAUSTED, S.ABORT),
    *stop_rows(State),
)


@dataclass(frozen=True)
class Table(Sequence[Row]):
    """Rows, and the states of one's own among them. Wherever rows are taken (`verify`, `diagram`, `Agent`), a table is.

    Raises `fsm_agent.errors.TableError` for one that breaks a law (`fsm_agent.checks`), naming the row.
    """

    rows: tuple[Row, ...] = TABLE
    states: tuple[OwnState, ...] = ()

    def __post_init__(self) -> None:
        check_table(self.rows, own=self.states)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def extend(
        self,
        *,
        states: Iterable[OwnState] = (),
        rows: Iterable[Row | str] = (),
        before: Mapping[str, Given] = _NOTHING,
        instead: Mapping[str, Given] = _NOTHING,
        guards: Iterable[Guard] = (),
    ) -> Table:
        """This table with `states`, and the `guards` that its new rows ask; what is wrong is refused here, with the row named.

        A row is written as it is printed, with its reason in brackets behind a target that has one: `"COMPLIANCE --cleared--> EXECUTE"`,
        `"DECIDE --decided [unsure, can_answer_now]--> DEGRADE (unsure)"`; a `Row` does as well. `before` puts rows before the one that is
        named, `instead` in its place, `rows` at the end. The rows for `cancelled` and `broke` are made.

        Raises `fsm_agent.errors.TableError`; `.row` is the offending row.
        """
        more = tuple(states)
        made = extended(self.rows, states=more, rows=rows, before=before, instead=instead, guards=tuple(guards))
        return Table(made, (*self.states, *more))


extend: Final = Table().extend
"""The built-in table with more in it: `Table.extend` of it."""
