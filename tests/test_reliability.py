"""The reliability benchmark in `tests/benchmarks/reliability.py`: its tasks can be done, its faults strike, and the engine's goals hold."""

from __future__ import annotations

from collections import Counter

import pytest

from fsm_agent.testing import Call
from tests.benchmarks.reliability import Ending, Outcome, run, table
from tests.benchmarks.reliability_contenders import CONTENDERS, Contender, Told
from tests.benchmarks.reliability_model import HONEST, RATES, Fault, Native, Seen, next_move
from tests.benchmarks.reliability_tasks import KINDS, Task, Trouble, World, tasks

OWN = [name for name, contender in CONTENDERS.items() if not contender.package]
PARTIAL = {"profile session", "profile controlled", "profile native"}
WHOLE = [name for name in OWN if name not in PARTIAL]
"""Those that complete what can be: the other profiles stop at repeats, or lose earlier results with their window."""
WORK = tasks(count=40)
POSSIBLE = next(one for one in WORK if one.possible)


def test_the_tasks_of_a_seed_are_always_the_same() -> None:
    """Two hundred tasks, fifty of each kind, about three calls each, with troubles of every sort."""
    work = tasks()
    assert work == tasks()
    assert Counter(one.kind for one in work) == dict.fromkeys(KINDS, 50)
    assert 2.8 < sum(len(one.steps) for one in work) / len(work) < 3.3
    assert {one.trouble for one in work} == set(Trouble)
    assert sum(one.huge for one in work) >= 10


def test_the_rates_are_those_that_the_reference_names() -> None:
    """Eight percent are fenced and eighteen are not JSON."""
    assert RATES[Fault.FENCED] == 0.08
    assert sum(rate for fault, rate in RATES.items() if fault.startswith("not JSON")) == pytest.approx(0.18)


def by_hand(task: Task, world: World) -> str:
    """The task as the policy does it when nothing disturbs it: its moves, and what comes of them."""
    told, tools = [task.text], {one.__name__: one for one in world.tools()}
    while True:
        move = next_move(task, Seen("\n".join(told), "", may_call=True))
        if not isinstance(move, Call):
            return move
        try:
            told.append(tools[move.name](**move.args))  # type: ignore[arg-type]  # a move has a mapping
        except ConnectionError as error:
            told.append(str(error))


def test_the_policy_does_every_task_that_can_be_done() -> None:
    """Undisturbed it ends with the right answer and the right world; where nothing can be done it says so."""
    for task in [one for one in tasks() if "hang" not in one.trouble]:
        world = World(task)
        answer = by_hand(task, world)
        assert (answer == f"The result is {task.value}." and world.right()) is task.possible, task
        assert answer.startswith(HONEST) is not task.possible
        assert not world.doubled()


@pytest.mark.parametrize("name", OWN)
def test_the_goals_hold_on_a_part_of_the_tasks(name: str) -> None:
    """No deadlock, crash, silently wrong ending or doubled effect; of all but three profiles, 95 % of what is possible completed."""
    outcomes = [run(CONTENDERS[name], task, 1) for task in WORK]
    ended = Counter(one.ending for one in outcomes)
    possible = [one for one in outcomes if one.task.possible]
    completed = sum(one.ending is Ending.COMPLETED for one in possible)
    assert completed >= (0.95 if name in WHOLE else 0.6) * len(possible)
    assert not any(ended[bad] for bad in (Ending.DEADLOCK, Ending.CRASH, Ending.SILENT))
    assert not any(one.doubled for one in outcomes)
    assert sum(len(one.faults) for one in outcomes) > len(outcomes)


@pytest.mark.parametrize(
    ("told", "ending"),
    [
        (Told("The result is 7777.", complete=True, capped=False), Ending.SILENT),
        (Told("", complete=True, capped=False), Ending.SILENT),
        (Told(f"{HONEST}: add does not work.", complete=True, capped=False), Ending.STOPPED),
        (Told("", complete=False, capped=False, why="no_progress"), Ending.STOPPED),
        (Told("Stopped due to max iterations.", complete=False, capped=True), Ending.DEADLOCK),
        (ValueError("kaput"), Ending.CRASH),
    ],
)
def test_an_ending_is_called_by_its_name(told: Told | Exception, ending: Ending) -> None:
    """What a contender says, with what became of the world, decides what its ending is called."""

    def contender(*_: object) -> Told:
        if isinstance(told, Exception):
            raise told
        return told

    assert run(Contender(contender, Native()), POSSIBLE, 1).ending is ending


def test_a_right_answer_beside_a_wrong_world_is_silently_wrong() -> None:
    """Saying the right number does not make an effect that was left out."""
    task = next(one for one in WORK if one.refunds)
    said = Told(f"The result is {task.value}.", complete=True, capped=False)
    assert run(Contender(lambda *_: said, Native()), task, 1).ending is Ending.SILENT


def test_the_table_counts_what_is_possible() -> None:
    """A task that nobody can do is no missing completion."""
    outcomes = [outcome(POSSIBLE, Ending.COMPLETED), outcome(hopeless(), Ending.STOPPED)]
    assert "| us | 1 of 1 (100.0 %) | 0 | 0 | 0 | 1 |" in table({"us": outcomes})


def hopeless() -> Task:
    """A task that cannot be done."""
    return next(one for one in tasks() if not one.possible)


def outcome(task: Task, ending: Ending) -> Outcome:
    """What a run of it came to."""
    return Outcome(task=task, ending=ending, steps=3, tokens=30, doubled=False, faults=(), why="")
