"""The suite's own transition coverage: the runs of the table tests fire every row, and get both answers of every guard."""

from __future__ import annotations

from fsm_agent.alphabet import Event
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.table import TABLE
from fsm_agent.testing.coverage import Coverage, collecting
from tests.core.test_table import CASES, NO_RUNG_LEFT, moments_of, outside_moment


def test_the_runs_of_the_table_tests_reach_every_row_and_both_answers_of_every_guard() -> None:
    """100 %: a new row or guard without a run that reaches it fails here, by name."""
    with collecting(Coverage()) as coverage:
        for case in (*CASES.values(), NO_RUNG_LEFT):
            moments_of(case)
        for row in TABLE:
            if row.event in (Event.CANCELLED, Event.BROKE):
                _, step = outside_moment(row)
                DEFAULT_MACHINE.fire(row.source, step.event, step.ctx)
    assert coverage.missing() == ""
    assert coverage.percent == 100.0
