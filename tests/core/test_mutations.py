"""The mutation check: whatever one thing is changed in the table or a guard, the laws, the tests or `verify` notice."""

from __future__ import annotations

from fsm_agent.guards import GUARDS
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.table import TABLE
from tests.core.builders import fold
from tests.core.mutants import Mutant, mutants, noticed_by

MUTANTS = list(mutants())


def test_nobody_finds_fault_with_the_table_itself() -> None:
    """What notices a mutant is the change, not the way in which it is looked at; and nothing of that way is left behind."""
    real = dict(GUARDS)
    assert noticed_by(Mutant("unchanged", tuple(TABLE))) == ""
    assert real == GUARDS
    assert fold.__kwdefaults__ is not None
    assert fold.__kwdefaults__["machine"] is DEFAULT_MACHINE


def test_every_row_and_every_guard_is_changed_in_every_way() -> None:
    """Each guard is negated; each row is removed, sent to each other state, given another reason, and moved past its neighbour."""
    what = {one.what for one in MUTANTS}
    assert {f"{name} negated" for name in GUARDS} <= what
    assert {f"{row} removed" for row in TABLE} <= what
    assert {f"{row} with {guard.name} negated" for row in TABLE for guard in row.guards} <= what
    assert all(sum(one.startswith(f"{row} to ") for one in what) == 9 for row in TABLE)
    assert all(sum(one.startswith(f"{row} as ") for one in what) >= 1 for row in TABLE)


def test_no_mutant_survives() -> None:
    """A change that nobody notices is a promise that nobody holds: it is listed here."""
    assert [one.what for one in MUTANTS if not noticed_by(one)] == []
