"""What each memory strategy costs and loses: the same seeded tasks of 4 to 12 calls, through the engine, with a model that forgets.

    python -m tests.benchmarks.memory [--tasks 200] [--seed 1] [--only NAME]

The tasks are those of the reliability benchmark, longer, without its troubles and without results of 500 KB. The model is simulated
(`memory_model` says how, with its rates): it decides only from what its prompt shows. A result that has left the prompt it asks for again
or guesses, and a long prompt may distract it, so that a full history is not free. The percentages are of that model and those rates, not
of a real one; the tokens, steps and calls depend on them too. What is compared is the strategies, under the same model.

- right: the right answer, and the world as the task wants it. wrong: told as done, but is not. gave up: it said so, or was stopped.
- asked again: calls for a result that was there before. tokens: prompts (tool schemas included) and replies, estimated by one rule;
  summary calls count in tokens and model calls, and take no step. largest prompt: of a run, on average.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsm_agent import Agent, DualBuffer, Full, KeyFacts, Limits, MessageWindow, SummaryWindow, Window
from fsm_agent.memory import Memory
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ModelRequest, Reply, ScriptedModel
from tests.benchmarks.memory_model import Forgetful, WordyWorld
from tests.benchmarks.reliability import Ending, ending, mean
from tests.benchmarks.reliability_contenders import SYSTEM, own_tools, told_by
from tests.benchmarks.reliability_model import Capped
from tests.benchmarks.reliability_tasks import Task, Trouble, tasks

__all__ = ["MEMORIES", "Outcome", "main", "run", "table", "work"]

MEMORIES: Final[Mapping[str, Memory]] = {
    "Full()": Full(),
    "Window(5)": Window(5),
    "Window(3)": Window(3),
    "MessageWindow(10)": MessageWindow(10),
    "DualBuffer()": DualBuffer(),
    "SummaryWindow()": SummaryWindow(),
    "SummaryWindow(3)": SummaryWindow(3),
    "KeyFacts(Window(5))": KeyFacts(Window(5)),
    "KeyFacts(Window(3))": KeyFacts(Window(3)),
    "KeyFacts(SummaryWindow(3))": KeyFacts(SummaryWindow(3)),
}
SIZES: Final[Mapping[int, int]] = {4: 1, 6: 1, 8: 1, 10: 1, 12: 1}
MAX_STEPS: Final = 30


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one task came to."""

    ending: Ending
    again: int
    tokens: int
    largest: int
    steps: int
    calls: int


def work(seed: int = 1, count: int = 200, sizes: Mapping[int, int] = SIZES) -> tuple[Task, ...]:
    """The tasks: the four kinds of the reliability benchmark, nothing troubled, nothing huge."""
    made = [one for one in tasks(seed, 2 * count, sizes) if not one.huge][:count]
    return tuple(replace(one, trouble=Trouble.NONE, broken="") for one in made)


def run(memory: Memory, task: Task, seed: int, watch: Callable[[ModelRequest], object] | None = None) -> Outcome:
    """One task with one memory; `watch` is shown each request."""
    world, model = WordyWorld(task), Forgetful(task, seed)

    def script(request: ModelRequest) -> Reply:
        if watch is not None:
            watch(request)
        return model(request)

    agent = Agent(
        ScriptedModel(script, record=False),
        own_tools(world),
        limits=Limits(max_steps=MAX_STEPS),
        dialect="native",
        system=SYSTEM,
        memory=memory,
        clock=FakeClock(),
        logger=silent_logger(),
    )
    try:
        result = agent.invoke(task.text)
    except Capped:
        ended, steps = Ending.DEADLOCK, MAX_STEPS
    else:
        ended, steps = ending(task, world, told_by(result)), result.steps
    return Outcome(
        ending=ended, again=model.again, tokens=model.tokens, largest=model.largest, steps=steps, calls=model.calls
    )


def table(rows: Mapping[str, Sequence[Outcome]]) -> str:
    """The outcomes with each memory as Markdown."""
    lines = [
        "| memory | tokens a task | right | wrong | gave up | asked again | steps | model calls | largest prompt |"
    ]
    lines.append("|---" + "|---:" * 8 + "|")
    for name, outcomes in rows.items():
        count = Counter(one.ending for one in outcomes)
        right, wrong = count[Ending.COMPLETED], count[Ending.SILENT]
        shares = [f"{100 * some / len(outcomes):.0f} %" for some in (right, wrong, len(outcomes) - right - wrong)]
        cells = [
            f"{mean([one.tokens for one in outcomes]):,.0f}",
            *shares,
            *(f"{mean([getattr(one, each) for one in outcomes]):.1f}" for each in ("again", "steps", "calls")),
            f"{mean([one.largest for one in outcomes]):,.0f}",
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.memory", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="memories whose name holds this")
    given = parser.parse_args(arguments)
    todo = work(given.seed, given.tasks)
    chosen = {name: memory for name, memory in MEMORIES.items() if given.only in name}
    print(table({name: [run(memory, task, given.seed) for task in todo] for name, memory in chosen.items()}))


if __name__ == "__main__":
    main()
