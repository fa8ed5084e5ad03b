"""Tables that are broken on purpose: each is refused, by the laws of a table or by exploring it, with the row to blame."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fsm_agent import guards as g
from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.diagrams import diagram
from fsm_agent.errors import TableError
from fsm_agent.guards import Guard
from fsm_agent.limits import Limits
from fsm_agent.machine import Machine
from fsm_agent.table import TABLE, Row
from fsm_agent.verify import Certificate, Fault, verify
from fsm_agent.verify.wording import PROVED
from tests.core.mutants import negated, with_row

S, E, R = State, Event, StopReason
SMALL = Limits(max_steps=3, no_progress_steps=2, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)


def without(*names: str) -> tuple[Row, ...]:
    """The table without these rows."""
    gone = [row for row in TABLE if str(row) in names]
    assert len(gone) == len(names), f"no such rows: {names}"
    return tuple(row for row in TABLE if row not in gone)


def put(name: str, *rows: Row) -> tuple[Row, ...]:
    """The table with `rows` in the place of one."""
    return with_row([str(row) for row in TABLE].index(name), *rows)


def moved(name: str, before: str) -> tuple[Row, ...]:
    """The table with one row moved before another."""
    rows = {str(row): row for row in TABLE}
    rest = [row for row in TABLE if row is not rows[name]]
    place = rest.index(rows[before])
    return (*rest[:place], rows[name], *rest[place:])


def fault(found: Certificate, kind: str) -> Fault:
    """The first fault of a kind."""
    assert not found.ok
    kinds = [one.kind for one in found.faults]
    assert kind in kinds, f"{kinds}\n{found}"
    return found.faults[kinds.index(kind)]


def ends(path: Sequence[Row]) -> list[str]:
    """A path, as the states that it leads through."""
    return [str(path[0].source), *(str(row.target) for row in path)]


TOOL_FAILED = Guard(
    "tool_failed", "a tool failed", lambda ctx: (ctx.failure is not None and ctx.failure.of == "tool", {})
)
ACCEPTED = "VALIDATE --accepted--> EXECUTE"
NO_STEPS_SPENT = without(
    "DECIDE --decided [steps_spent, can_answer_now]--> DEGRADE", "DECIDE --decided [steps_spent]--> ABORT"
)
NO_REPEATED = without(
    "VALIDATE --accepted [repeated_action, can_answer_now]--> DEGRADE", "VALIDATE --accepted [repeated_action]--> ABORT"
)
NO_TOOL_LIMIT = without(
    "VALIDATE --accepted [tool_calls_spent, can_answer_now]--> DEGRADE",
    "VALIDATE --accepted [tool_calls_spent]--> ABORT",
)
NO_BUDGET = without(
    "DECIDE --decided [token_budget_spent, can_answer_now]--> DEGRADE", "DECIDE --decided [token_budget_spent]--> ABORT"
)
APPROVAL_NEGATED = put(
    "VALIDATE --accepted [approval_required]--> REVIEW",
    Row(S.VALIDATE, E.ACCEPTED, S.REVIEW, (negated(g.approval_required, "not_approval_required"),)),
)
NO_PROGRESS = without(
    "DECIDE --decided [no_progress, can_answer_now]--> DEGRADE", "DECIDE --decided [no_progress]--> ABORT"
)
# A guard of that name is taken at its word: it ends a run that was cut short before, for the reason of then.
NOT_FORCED = Guard("answer_failed", "the answer was not forced", lambda ctx: (not ctx.forced, {}))
DEGRADE_FIRST = "DECIDE --decided [failures_reached, can_degrade]--> DEGRADE"
NO_CIRCUIT = without(
    "DECIDE --decided [circuit_open, model_failing]--> ABORT", "DECIDE --decided [circuit_open]--> ABORT"
)


BROKEN = [
    pytest.param(NO_STEPS_SPENT, "steps", "PLAN --replied--> VALIDATE", id="the rows for max_steps removed"),
    pytest.param(NO_REPEATED, "repeat", ACCEPTED, id="the rows for repeated calls removed"),
    pytest.param(NO_TOOL_LIMIT, "tool_calls", ACCEPTED, id="the rows for max_tool_calls removed"),
    pytest.param(NO_BUDGET, "tokens", "DECIDE --decided--> PLAN", id="the rows for the token budget removed"),
    pytest.param(
        without("VALIDATE --accepted [deadline_passed]--> ABORT"), "deadline", ACCEPTED, id="a deadline removed"
    ),
    pytest.param(
        without("DECIDE --decided [nudges_spent]--> ABORT"),
        "nudges",
        "DECIDE --decided--> PLAN",
        id="the row for empty replies removed",
    ),
    pytest.param(NO_CIRCUIT, "failures", "DECIDE --decided--> PLAN", id="the circuit breaker removed"),
    pytest.param(NO_PROGRESS, "progress", "DECIDE --decided--> PLAN", id="the rows for no progress removed"),
    pytest.param(
        moved(DEGRADE_FIRST, "DECIDE --decided [deadline_passed]--> ABORT"),
        "deadline",
        DEGRADE_FIRST,
        id="another strategy after the deadline",
    ),
    pytest.param(
        moved(DEGRADE_FIRST, "DECIDE --decided [token_budget_spent, can_answer_now]--> DEGRADE"),
        "tokens",
        DEGRADE_FIRST,
        id="another strategy without tokens",
    ),
    pytest.param(
        put("DECIDE --decided [answer_failed]--> ABORT", Row(S.DECIDE, E.DECIDED, S.ABORT, (NOT_FORCED,))),
        "reason",
        "DECIDE --decided [answer_failed]--> ABORT",
        id="aborted before there is a reason",
    ),
    pytest.param(APPROVAL_NEGATED, "approval", ACCEPTED, id="a guard negated"),
    pytest.param(
        put("REVIEW --edited--> VALIDATE", Row(S.REVIEW, E.EDITED, S.EXECUTE)),
        "unchecked",
        "REVIEW --edited--> EXECUTE",
        id="a target changed",
    ),
    pytest.param(
        put("PLAN --replied--> VALIDATE", Row(S.PLAN, E.REPLIED, S.EXECUTE)),
        "unchecked",
        "PLAN --replied--> EXECUTE",
        id="EXECUTE entered from PLAN",
    ),
    pytest.param(
        without("VALIDATE --accepted [repeated_action, can_answer_now]--> DEGRADE"),
        "unasked",
        "VALIDATE --accepted [repeated_action]--> ABORT",
        id="the way to a forced answer removed",
    ),
    pytest.param(
        put(
            "VALIDATE --accepted [tool_calls_spent, can_answer_now]--> DEGRADE",
            Row(S.VALIDATE, E.ACCEPTED, S.DEGRADE, (g.approval_required, g.can_answer_now), R.MAX_TOOL_CALLS),
        ),
        "untrue",
        "VALIDATE --accepted [approval_required, can_answer_now]--> DEGRADE",
        id="a reason that does not hold",
    ),
    pytest.param(
        put("EXECUTE --executed--> OBSERVE", Row(S.EXECUTE, E.EXECUTED, S.DECIDE)),
        "lost",
        "EXECUTE --executed--> DECIDE",
        id="results that nobody observes",
    ),
    pytest.param(
        put("PLAN --replied--> VALIDATE", Row(S.PLAN, E.REPLIED, S.DECIDE)),
        "lost",
        "PLAN --replied--> DECIDE",
        id="a reply that nobody reads",
    ),
    pytest.param(
        put(
            "VALIDATE --answered--> FINISH",
            Row(S.VALIDATE, E.ANSWERED, S.DECIDE, (g.steps_spent,)),
            Row(S.VALIDATE, E.ANSWERED, S.FINISH),
        ),
        "lost",
        "VALIDATE --answered [steps_spent]--> DECIDE",
        id="an answer that nobody gets",
    ),
    pytest.param(
        without("REVIEW --denied [stop_requested]--> ABORT"),
        "lost",
        "REVIEW --denied--> OBSERVE",
        id="a stop not heard",
    ),
    pytest.param(
        put("PLAN --overflowed--> PLAN", Row(S.PLAN, E.OVERFLOWED, S.FINISH)),
        "answer",
        "PLAN --overflowed--> FINISH",
        id="finished without an answer",
    ),
    pytest.param(
        without("DECIDE --decided [answer_failed]--> ABORT"),
        "forced",
        "DECIDE --decided--> PLAN",
        id="an answer forced twice",
    ),
    pytest.param(
        put(
            "DECIDE --decided [no_progress]--> ABORT",
            Row(S.DECIDE, E.DECIDED, S.ABORT, (g.no_progress,), R.NO_PROGRESS),
            Row(S.DECIDE, E.DECIDED, S.ABORT, (g.model_failing,), R.MODEL_FAILED),
        ),
        "dead",
        "DECIDE --decided [model_failing]--> ABORT",
        id="a row shadowed by its neighbours together",
    ),
]


@pytest.mark.parametrize(("rows", "kind", "row"), BROKEN)
def test_a_broken_table_is_blamed_on_the_right_row(rows: tuple[Row, ...], kind: str, row: str) -> None:
    """What the laws of a table let pass is found by exploring it, and the fault names the row."""
    Machine(rows)
    found = verify(SMALL.replace(deadline=9.0) if kind == "deadline" else SMALL, rows=rows)
    blamed = [str(one.row) for one in found.faults if one.kind == kind]
    assert row in blamed, str(found)
    assert PROVED[kind] not in found.proved
    assert not found
    assert "NOT VERIFIED" in str(found)


def test_nothing_is_proved_of_a_table_that_breaks_it_among_much_else() -> None:
    """However many faults a table has, each kind is told, and none of those sentences stands under what was proved."""
    guards = ("steps_spent", "tool_calls_spent", "token_budget_spent", "circuit_open", "no_progress", "nudges_spent")
    more = ("repeated_action", "deadline_passed", "approval_required", "stop_requested", "answer_failed")
    rows = tuple(row for row in TABLE if not {guard.name for guard in row.guards} & {*guards, *more})
    found = verify(SMALL.replace(deadline=9.0), rows=rows)
    broken = {"steps", "tool_calls", "tokens", "failures", "progress", "nudges", "repeat", "deadline", "approval"}
    assert {one.kind for one in found.faults} >= broken | {"lost", "endless"}
    assert not {PROVED[one.kind] for one in found.faults} & set(found.proved)
    assert found.worst is None


def test_no_claim_is_without_a_table_that_breaks_it() -> None:
    """Each sentence of a certificate is taken away by a broken table: those above, one without end, or one that the laws refuse."""
    assert {str(case.values[1]) for case in BROKEN} | {"endless", "refused"} == set(PROVED)


@pytest.mark.parametrize(
    ("rows", "circle"),
    [
        pytest.param(
            put("OBSERVE --observed--> DECIDE", Row(S.OBSERVE, E.OBSERVED, S.OBSERVE)),
            {"OBSERVE --observed--> OBSERVE"},
            id="a state that leads to itself",
        ),
        pytest.param(
            put("REVIEW --edited--> VALIDATE", Row(S.REVIEW, E.EDITED, S.REVIEW)),
            {"REVIEW --edited--> REVIEW"},
            id="a person asked for ever",
        ),
        pytest.param(
            put("DECIDE --decided [retry_available]--> RETRY", Row(S.DECIDE, E.DECIDED, S.RETRY, (TOOL_FAILED,))),
            {
                "DECIDE --decided [tool_failed]--> RETRY",
                "RETRY --waited--> EXECUTE",
                "EXECUTE --executed--> OBSERVE",
                "OBSERVE --observed--> DECIDE",
            },
            id="a retry without bound",
        ),
        pytest.param(
            NO_BUDGET, {"PLAN --withheld--> DECIDE", "DECIDE --decided--> PLAN"}, id="a call withheld again and again"
        ),
    ],
)
def test_a_run_without_end_is_shown_as_a_circle(rows: tuple[Row, ...], circle: set[str]) -> None:
    """A table under which a run need not end has no worst case; the fault shows the way into the cycle, and the cycle."""
    found = verify(SMALL, rows=rows)
    endless = fault(found, "endless")
    assert {str(row) for row in endless.circle} == circle
    assert found.worst is None
    assert "every run ends" not in found.proved
    assert endless.circle[-1].target is endless.circle[0].source
    assert (endless.path or endless.circle)[0].source is S.PLAN


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        pytest.param(
            put("VALIDATE --answered--> FINISH", Row(S.VALIDATE, E.ANSWERED, S.OBSERVE)),
            "FINISH",
            id="no way to FINISH",
        ),
        pytest.param(
            put("REVIEW --expired--> ABORT", Row(S.REVIEW, E.EXPIRED, S.ABORT)),
            "REVIEW --expired--> ABORT",
            id="an ABORT without a reason",
        ),
        pytest.param(
            (TABLE[0], Row(S.PLAN, E.REPLIED, S.DECIDE), *TABLE[1:]),
            "PLAN --replied--> DECIDE",
            id="a row shadowed by one",
        ),
        pytest.param(without(ACCEPTED), "VALIDATE --accepted [approval_required]--> REVIEW", id="a last row removed"),
        pytest.param(without("RETRY --broke--> ABORT"), "RETRY", id="no row for a fault of the engine"),
    ],
)
def test_what_the_laws_refuse_is_a_certificate_too(rows: tuple[Row, ...], named: str) -> None:
    """A table that cannot even be built raises at construction, and `verify` says the same without raising."""
    with pytest.raises(TableError) as refused:
        Machine(rows)
    found = verify(SMALL, rows=rows)
    assert str(refused.value) == fault(found, "refused").sentence
    assert named in str(found)
    assert found.worst is None
    assert not found.proved


def test_a_counterexample_is_the_shortest_way_there() -> None:
    """The path to a fault is a walk through the table from its beginning, no longer than it need be, and drawn as a run."""
    rows = put("REVIEW --edited--> VALIDATE", Row(S.REVIEW, E.EDITED, S.EXECUTE))
    blamed = fault(verify(SMALL, rows=rows), "unchecked")
    assert ends(blamed.path) == ["PLAN", "VALIDATE", "REVIEW", "EXECUTE"]
    assert blamed.path[-1] is blamed.row
    assert all(row in rows for row in blamed.path)
    assert [str(one.target) for one in blamed.trail] == ends(blamed.path)[1:]
    drawn = diagram("mermaid", blamed.trail, rows=rows, limits=SMALL)
    assert drawn != diagram("mermaid", rows=rows, limits=SMALL)
    assert "1x" in drawn


def test_a_counterexample_takes_the_steps_that_it_needs() -> None:
    """A fault that only shows once all steps are spent has a path with that many steps."""
    blamed = fault(verify(SMALL, rows=NO_STEPS_SPENT), "steps")
    begun = [row for row in blamed.path if row.source is S.PLAN and row.event in (E.REPLIED, E.MODEL_FAILED)]
    assert len(begun) == SMALL.step_bound + 1
