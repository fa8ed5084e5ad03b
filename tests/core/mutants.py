"""Mutants of the table, one change each, and who notices: the laws of a table, the tests of the table and the guards, or `verify`.

`python -m tests.core.mutants` prints the table of all of them; `tests/core/test_mutations.py` holds that none survives.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.context import Context
from fsm_agent.errors import TableError
from fsm_agent.guards import GUARDS, Compared, Guard
from fsm_agent.limits import Limits
from fsm_agent.machine import Fired, Machine
from fsm_agent.table import TABLE, Row
from fsm_agent.verify import verify
from tests.core import builders, test_guards, test_table

SMALL: Final = Limits(
    max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2
)
"""Limits under which exploring takes a moment; every row is reached under them, but for those of the deadline."""

PATIENCE: Final = 500
"""Transitions in one test."""


@dataclass(frozen=True)
class Mutant:
    """A table that differs from the real one in one thing. `guards` are those that were changed under their own name."""

    what: str
    rows: tuple[Row, ...]
    guards: tuple[Guard, ...] = ()


def negated(guard: Guard, name: str) -> Guard:
    """The opposite of a guard."""

    def test(ctx: Context) -> Compared:
        result, values = guard.test(ctx)
        return not result, values

    return Guard(name, guard.sentence, test)


def with_row(place: int, *rows: Row) -> tuple[Row, ...]:
    """The table with these rows in the place of one."""
    return (*TABLE[:place], *rows, *TABLE[place + 1 :])


def mutants() -> Iterator[Mutant]:
    """Every mutant: guards negated (everywhere, and in one row), rows removed, retargeted, moved, and given another reason."""
    for name, guard in GUARDS.items():
        other = negated(guard, name)
        rows = tuple(replace(row, guards=tuple(other if one is guard else one for one in row.guards)) for row in TABLE)
        yield Mutant(f"{name} negated", rows, (other,))
    for place, row in enumerate(TABLE):
        yield Mutant(f"{row} removed", with_row(place))
        for position, guard in enumerate(row.guards):
            # A guard is asked once an event, by its name: under the old one, the answer to an earlier row would stand for this one too.
            guards = (*row.guards[:position], negated(guard, f"not_{guard.name}"), *row.guards[position + 1 :])
            yield Mutant(f"{row} with {guard.name} negated", with_row(place, replace(row, guards=guards)))
            fewer = (*row.guards[:position], *row.guards[position + 1 :])
            yield Mutant(f"{row} without {guard.name}", with_row(place, replace(row, guards=fewer)))
        for target in State:
            if target is not row.target:
                yield Mutant(f"{row} to {target}", with_row(place, replace(row, target=target)))
        for reason in {None, _other(row.reason)} - {row.reason}:
            yield Mutant(f"{row} as {reason}", with_row(place, replace(row, reason=reason)))
        later = TABLE[place + 1] if place + 1 < len(TABLE) else None
        if later is not None and (later.source, later.event) == (row.source, row.event):
            yield Mutant(f"{row} after {later}", (*TABLE[:place], later, row, *TABLE[place + 2 :]))


def _other(reason: StopReason | None) -> StopReason:
    """Some other reason."""
    reasons = list(StopReason)
    return reasons[0] if reason is None else reasons[(reasons.index(reason) + 1) % len(reasons)]


# ---------------------------------------------------------------- who notices


class Patient(Machine):
    """A machine that has had enough after so many transitions: a mutant may have no end, and no test has so many."""

    left = 0

    def fire(self, state: State, event: Event, ctx: Context) -> Fired:
        """As every machine does, so many times."""
        self.left -= 1
        assert self.left >= 0, "a run without an end"
        return super().fire(state, event, ctx)


def noticed_by(mutant: Mutant) -> str:
    """Who refuses the mutant, the cheapest first: "laws", "tests" or "verify"; "" when nobody does."""
    try:
        machine = Patient(mutant.rows)
    except TableError:
        return "laws"
    with in_place_of_the_table(mutant, machine):
        for check in checks(mutant.rows):
            machine.left = PATIENCE
            try:
                check()
            except (Exception, pytest.fail.Exception):  # a test that breaks is as red as one that fails
                return "tests"
    return "" if verify(SMALL, rows=mutant.rows).ok else "verify"


@contextmanager
def in_place_of_the_table(mutant: Mutant, machine: Machine) -> Iterator[None]:
    """The tests of the table and of the guards, with the mutant where they have the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_table, "TABLE", mutant.rows)
        patch.setattr(test_table, "DEFAULT_MACHINE", machine)
        patch.setitem(builders.fold.__kwdefaults__ or {}, "machine", machine)
        for guard in mutant.guards:
            patch.setitem(GUARDS, guard.name, guard)
        yield


def checks(rows: Sequence[Row]) -> Iterator[Any]:
    """The tests that a mutant is put to, each ready to be called: what is written down first, then what has to be run."""
    for row in rows:
        yield lambda row=row: test_table.test_a_row_has_the_reason_of_what_it_asks(row)
    yield test_table.test_every_stop_reason_that_a_row_can_give_is_given_by_one
    yield test_table.test_the_rows_are_those_of_the_design
    yield test_table.test_each_state_produces_the_events_of_its_rows
    yield test_table.test_a_stop_from_outside_is_taken_in_every_state_that_is_not_terminal
    yield from guard_checks()
    for row in rows:
        yield lambda row=row: test_table.test_a_row_is_asked_for_its_guards_in_the_order_of_the_table(row)
    yield test_table.test_failures_without_a_rung_left_lead_on_to_the_model
    yield test_table.test_every_row_has_a_run_that_leads_to_it_and_no_run_is_left_over


def guard_checks() -> Iterator[Any]:
    """The cases of the guards that are not what they were."""
    real = {guard.name: guard for row in TABLE for guard in row.guards}
    for case in test_guards.CASES:
        if GUARDS[case.guard] is not real[case.guard]:
            yield lambda case=case: test_guards.test_a_guard_says_whether_it_holds_and_what_it_compared(case)


def main() -> int:
    """Print who notices how many mutants, and those that nobody does; 1 when there are any."""
    begun = time.process_time()
    found: dict[str, str] = {}
    for mutant in mutants():
        found[mutant.what] = noticed_by(mutant)
        print(f"{found[mutant.what] or 'NOBODY':>7} {mutant.what}", flush=True)  # noqa: T201 - a table for a person
    counts = Counter(found.values())
    survivors = [what for what, by in found.items() if not by]
    told = ", ".join(f"{by or 'nobody'} {number}" for by, number in counts.items())
    print(f"{len(found)} mutants in {time.process_time() - begun:.0f} s of CPU: {told}")  # noqa: T201 - the same
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
