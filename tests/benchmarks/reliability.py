"""What becomes of 200 seeded tasks with a model and tools that fail at given rates.

    python -m tests.benchmarks.reliability [--tasks 200] [--seed 1] [--only NAME] [--engine] [--own-caps] [--verbose]

The tasks (`reliability_tasks`), the simulated model with its faults (`reliability_model`) and the contenders (`reliability_contenders`)
are the same stream for everybody; a fault has the form of the protocol that the contender speaks. How a run ends:

- completed: the right answer, and the world as the task wants it, each effect there once.
- deadlock: it went on to its cap of steps (or to the 40 replies of the benchmark) without completing, or waited for a call that hung.
- crash: an exception came out of it.
- silently wrong: it ended as if it were done, with a wrong answer or with an effect missing or doubled. An answer that says that the
  task could not be finished is not silent, nor is an ending with a typed status other than completed.
- stopped: it said that it could not go on: right for the tasks whose only tool is down, which are left out of "completed".

A call that hangs is over after 1.2 s; who is still waiting then has no time-out. Steps are replies of the model; tokens are estimated
by one rule over all that is sent (messages and tool schemas) and said. A run that crashes early is cheap, so that tokens are also told per
completed task; "small" leaves out the tasks that read a result of 500 KB. The rates of fenced and non-JSON replies are what practitioners
reported of text protocols, the others are chosen; so look at JSON and ReAct first. Without the extra `bench` only the engine runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fsm_agent.testing import ScriptedModel
from tests.benchmarks.reliability_contenders import CONTENDERS, OWN_CAPS, Contender, Told
from tests.benchmarks.reliability_model import HONEST, Capped, Fault, Simulated
from tests.benchmarks.reliability_tasks import Stuck, Task, World, tasks

__all__ = ["Ending", "Outcome", "ending", "main", "mean", "run", "table"]


class Ending(StrEnum):
    """How a run ended; the docstring of the module says when it is which."""

    COMPLETED = "completed"
    DEADLOCK = "deadlock"
    CRASH = "crash"
    SILENT = "silently wrong"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one task came to. `steps` are replies of the model."""

    task: Task
    ending: Ending
    steps: int
    tokens: int
    doubled: bool
    faults: tuple[Fault, ...]
    why: str


def run(contender: Contender, task: Task, seed: int) -> Outcome:
    """One task. Never raises for what the contender does."""
    world, simulated = World(task), Simulated(task, contender.protocol, seed)
    try:
        told = contender.run(ScriptedModel(simulated, record=False), world)
    except (Capped, Stuck) as error:
        ended, why = Ending.DEADLOCK, f"{type(error).__name__}: {error}"
    except Exception as error:
        ended, why = Ending.CRASH, f"{type(error).__name__}: {str(error)[:120]}"
    else:
        ended, why = ending(task, world, told), f"{told.answer[:120]!r} {told.why}"
    finally:
        world.close()
    return Outcome(
        task=task, ending=ended, steps=simulated.calls, tokens=simulated.tokens, doubled=world.doubled(),
        faults=tuple(simulated.faults), why=why,
    )  # fmt: skip


def ending(task: Task, world: World, told: Told) -> Ending:
    """How a run ended that came to an end by itself."""
    right = re.search(rf"The result is {re.escape(task.value)}\.", told.answer) is not None
    if right and world.right():
        return Ending.COMPLETED
    if told.capped:
        return Ending.DEADLOCK
    return Ending.SILENT if told.complete and HONEST not in told.answer else Ending.STOPPED


def table(rows: Mapping[str, Sequence[Outcome]]) -> str:
    """The outcomes of each contender as Markdown."""
    heads = "completed | deadlocks | crashes | silently wrong | stopped | effects doubled | steps "
    heads += "| tokens | small | tokens per completed | small"
    lines = [f"| | {heads} |", "|---" + "|---:" * 11 + "|"]
    for name, outcomes in rows.items():
        possible = [one for one in outcomes if one.task.possible]
        done = sum(one.ending is Ending.COMPLETED for one in possible)
        count = Counter(one.ending for one in outcomes)
        small = [one.tokens for one in outcomes if not one.task.huge]
        tokens = sum(one.tokens for one in outcomes)
        small_done = sum(one.ending is Ending.COMPLETED for one in possible if not one.task.huge)
        share = f"{done} of {len(possible)} ({100 * done / max(len(possible), 1):.1f} %)"
        ended = [count[one] for one in (Ending.DEADLOCK, Ending.CRASH, Ending.SILENT, Ending.STOPPED)]
        cells = [share, *ended, sum(one.doubled for one in outcomes), f"{mean([one.steps for one in outcomes]):.1f}"]
        cells += [
            f"{tokens / len(outcomes):,.0f}",
            f"{mean(small):,.0f}",
            each(tokens, done),
            each(sum(small), small_done),
        ]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def each(tokens: int, done: int) -> str:
    """Tokens for each of the tasks that were completed."""
    return f"{tokens / done:,.0f}" if done else "-"


def mean(values: Sequence[int]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def chosen(only: str, *, engine: bool, own_caps: bool) -> dict[str, Contender]:
    """The contenders whose name holds `only` and whose package is installed."""
    found = {}
    for name, contender in (OWN_CAPS if own_caps else CONTENDERS).items():
        if only not in name or (engine and contender.package):
            continue
        if contender.package and importlib.util.find_spec(contender.package) is None:
            print(f"{name} is left out: {contender.package} is not installed (extra: bench)", file=sys.stderr)
        else:
            found[name] = contender
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.reliability", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="contenders whose name holds this")
    parser.add_argument("--engine", action="store_true", help="this engine alone")
    parser.add_argument("--own-caps", action="store_true", help="the profiles with their own caps on the steps")
    parser.add_argument("--verbose", action="store_true", help="print every run that did not complete")
    given = parser.parse_args(arguments)
    work = tasks(given.seed, given.tasks)
    rows: dict[str, list[Outcome]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peers' deprecations are not what is measured
        for name, contender in chosen(given.only, engine=given.engine, own_caps=given.own_caps).items():
            rows[name] = [run(contender, task, given.seed) for task in work]
            print(f"{name}: done", file=sys.stderr)
            for one in rows[name] if given.verbose else ():
                if one.ending is not Ending.COMPLETED:
                    faults = ", ".join(one.faults)
                    print(f"{name} #{one.task.number} {one.ending} ({one.task.trouble}; {faults}): {one.why}")
    print(table(rows))


if __name__ == "__main__":
    main()
