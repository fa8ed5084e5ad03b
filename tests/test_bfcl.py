"""A part of the BFCL benchmark in `tests/benchmarks/bfcl.py`: every fault there is, and each effect once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.bfcl import Fault, Outcome, part, run, table
from tests.benchmarks.bfcl_data import Call, Task, World, available, check, tasks

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def work() -> tuple[Task, ...]:
    """The tasks, from the package index."""
    if why := available():
        pytest.skip(why)
    return tasks()


def replayed(task: Task, *, but: int = -1, twice: int = -1) -> World:
    """The world after the ground truth, without one of its calls or with one made twice."""
    world, number = World(task), 0
    for turn, calls in enumerate(task.calls):
        world.turn = turn
        for call in calls:
            owner = next(one for one in world.instances.values() if hasattr(one, call.name))
            for _ in range((number != but) + (number == twice)):
                result = getattr(owner, call.name)(**call.args)
                world.log.append((turn, call, str(result)))
            number += 1
    return world


def test_there_are_800_tasks_with_4625_calls(work: tuple[Task, ...]) -> None:
    """The whole of the four multi-turn categories is read, every call with its arguments by name."""
    assert len(work) == 800
    assert sum(len(calls) for task in work for calls in task.calls) == 4_625


def test_the_official_check_accepts_a_plain_replay_and_nothing_less(work: tuple[Task, ...]) -> None:
    """The ground truth passes; a lost call, or one made twice, does not unless it changes nothing."""
    task = next(one for one in work if any(call.name == "mkdir" for call in one.calls[0]))
    place = [call.name for call in task.calls[0]].index("mkdir")
    assert check(replayed(task), "plain") == ""
    assert "mismatch" in check(replayed(task, but=place), "lost")
    world = replayed(task)
    world.log.append((0, Call("mkdir", {"dir_name": "another"}), ""))
    assert "state_mismatch" in check(world, "more")


def test_every_effect_happens_once_whatever_breaks(work: tuple[Task, ...], tmp_path: Path) -> None:
    """Under faults at twice their rates the official check passes on every task, and no call is made twice or lost."""
    outcomes = [run(task, tmp_path, seed=2, scale=2.0) for task in part(12)]
    assert [one.wrong for one in outcomes if one.wrong] == []
    assert sum(one.twice + one.lost for one in outcomes) == 0
    found = sum((one.faults for one in outcomes), Counter[Fault]())
    assert {Fault.CRASH, Fault.RAISES, Fault.AGAIN, Fault.TWICE, Fault.MALFORMED} <= set(found)
    assert sum(one.resumed for one in outcomes) == found[Fault.CRASH]
    assert "| all | 12 |" in table(outcomes)


def test_the_table_shows_what_did_not_pass(work: tuple[Task, ...]) -> None:
    """A task that fails is not counted as passed, and its effects are told."""
    outcome = Outcome(
        task=work[0], wrong="lost", twice=1, lost=2, calls=9, resumed=0, decided=0, faults=Counter({Fault.CUT: 3})
    )
    assert "| all | 1 | 9 | 0 | 0 | 0 | 1 | 2 |" in table([outcome])
    assert "3 faults injected" in table([outcome])
