"""BFCL multi-turn through the engine, with faults injected: does each effect happen once, and does the official check still pass?

    python -m tests.benchmarks.bfcl [--tasks 800] [--seed 1] [--faults 1.0] [--verbose]

A scripted model replays the ground truth of each task (`bfcl_data`: 4 x 200 tasks, 4,625 calls, fetched from PyPI): it reads from the
messages which call of this turn has given its result, and makes the next one. Each turn of the user is a run; a task's runs are one
thread. Replies are broken (arguments fenced, malformed or cut, a call twice in one reply, a whole reply again, unknown tools, empty),
the server answers 429 and 500, tools raise or hang before their effect, and the program dies between an effect and its record: a new
agent on the same files then resumes the run. In every other task the tools are idempotent, as a service that takes the engine's
idempotency key is; in the others a person looks at the world and says whether the call in doubt took effect. All tools are `once`.

Passed: the official check of calls, responses and states accepts the log of effects, the instances that the tools worked on end in the same
state, and the log holds each ground-truth call exactly once and nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import httpx
import openai
from langchain_core.messages import ToolMessage

from fsm_agent import Agent, Answer, Approve, Full, Limits, RunResult, Status
from fsm_agent.memory import SQLiteConversations
from fsm_agent.observe import silent_logger
from fsm_agent.testing import Call as Asked
from fsm_agent.testing import FakeClock, ModelRequest, ScriptedModel, reply
from fsm_agent.tools import current_call
from tests.benchmarks.bfcl_crash import Crash, Life, Threads
from tests.benchmarks.bfcl_data import CATEGORIES, Call, Task, World, available, check, tasks

__all__ = ["RATES", "Fault", "Outcome", "main", "run", "table"]

TIMEOUT: Final = 0.3
_ID: Final = re.compile(r"t(\d+)c(\d+)a\d+")
_LIMITS: Final = Limits(
    # The longest turn has 34 calls, and the same result twice is no sign of a loop here.
    max_steps=150,
    max_tool_calls=500,
    no_progress_steps=50,
    token_budget=None,
    degrade_after=5,
    abort_after=10,
    max_retries=3,
    tool_timeout=TIMEOUT,
)


class Fault(StrEnum):
    """One fault, of a reply, of the model's server, of a tool, or of the program."""

    FENCED = "fenced arguments"
    MALFORMED = "malformed arguments"
    CUT = "cut reply"
    TWICE = "a call twice in a reply"
    AGAIN = "a reply again"
    UNKNOWN = "unknown tool"
    EMPTY = "empty reply"
    LIMITED = "429"
    BROKEN = "500"
    RAISES = "tool raises"
    HANGS = "tool hangs"
    CRASH = "crash after the effect"


RATES: Final = {
    Fault.FENCED: 0.04,
    Fault.MALFORMED: 0.04,
    Fault.CUT: 0.03,
    Fault.TWICE: 0.03,
    Fault.AGAIN: 0.03,
    Fault.UNKNOWN: 0.03,
    Fault.EMPTY: 0.02,
    Fault.LIMITED: 0.02,
    Fault.BROKEN: 0.02,
}
"""Of the requests to the model."""
TOOL_RATES: Final = {Fault.RAISES: 0.04, Fault.CRASH: 0.04, Fault.HANGS: 0.01}
"""Of the executions of a tool; only one that takes idempotency keys hangs, as the outcome of another stays unknown by design."""


@dataclass
class Injected:
    """The faults of one task: what is due next, and what there was."""

    task: Task
    seed: int
    scale: float
    found: Counter[Fault] = field(default_factory=Counter)
    drawn: int = 0

    def draw(self, rates: dict[Fault, float]) -> Fault | None:
        """The fault that strikes now, if any."""
        self.drawn += 1
        chances = [rate * self.scale for rate in rates.values()]
        draw = random.Random(f"{self.seed}/{self.task.id}/{self.drawn}")
        fault = draw.choices([*rates, None], [*chances, max(1 - sum(chances), 0.0)])[0]
        if fault is not None:
            self.found[fault] += 1
        return fault


class Replay:
    """The model: makes the calls of the ground truth one after the other, each until it sees its result."""

    def __init__(self, world: World, faults: Injected) -> None:
        self._world = world
        self._faults = faults
        self._asked = 0

    def __call__(self, request: ModelRequest) -> Any:
        """The reply, or what the server does instead."""
        turn = self._world.turn
        due, calls = self._due(request, turn), self._world.task.calls[turn]
        fault = self._faults.draw(RATES)
        match fault:
            case Fault.LIMITED:
                return _refused(openai.RateLimitError, 429)
            case Fault.BROKEN:
                return _refused(openai.InternalServerError, 500)
            case Fault.EMPTY:
                return reply("")
            case Fault.AGAIN if due > 0:
                return self._said(turn, due - 1, calls[due - 1], None)
        if due == len(calls):
            text = f"Turn {turn} is done: {due} calls." if due else "Something is missing: please tell me more."
            return reply(text[:9], finish_reason="length") if fault is Fault.CUT else reply(text)
        return self._said(turn, due, calls[due], fault)

    def _due(self, request: ModelRequest, turn: int) -> int:
        """The number of the first call of this turn whose result the messages do not show."""
        have = set()
        for message in request.messages:
            if isinstance(message, ToolMessage) and (asked := _ID.fullmatch(message.tool_call_id)):
                told = message.status == "success" or "took effect once" in message.text
                if told and int(asked[1]) == turn:
                    have.add(int(asked[2]))
        return next(number for number in range(len(have) + 1) if number not in have)

    def _said(self, turn: int, number: int, call: Call, fault: Fault | None) -> Any:
        self._asked += 1
        good = Asked(call.name, dict(call.args), f"t{turn}c{number}a{self._asked}")
        text = json.dumps(good.args)
        match fault:
            case Fault.FENCED:
                return reply("", Asked(call.name, f"```json\n{text}\n```", good.id))
            case Fault.MALFORMED:
                return reply("", Asked(call.name, f"{text[:-1]}, and then", good.id))
            case Fault.CUT:
                return reply("", Asked(call.name, text[: len(text) // 2], good.id), finish_reason="length")
            case Fault.UNKNOWN:
                return reply("", Asked(f"{call.name}_now", good.args, good.id))
            case Fault.TWICE:
                return reply("", good, Asked(call.name, good.args, f"{good.id}0"))
        return reply("", good)


def _canonical(call: Call) -> str:
    return f"{call.name}{json.dumps(dict(call.args), sort_keys=True)}"


def _refused(kind: Callable[..., Exception], status: int) -> Exception:
    response = httpx.Response(status, request=httpx.Request("POST", "http://127.0.0.1/v1"))
    return kind(f"the server says {status}", response=response, body=None)


class Service:
    """What executes the calls: raises, hangs, and dies after an effect. One that takes idempotency keys does nothing twice for one key."""

    def __init__(self, faults: Injected, *, keyed: bool) -> None:
        self._faults = faults
        self._keyed = keyed
        self._given: dict[str, Any] = {}
        self._over = threading.Event()

    def live(self, life: Life) -> None:
        """The life of the program that calls from now on."""
        self._life = life

    def close(self) -> None:
        """Let calls that hang end."""
        self._over.set()

    def __call__(self, call: Call, execute: Callable[[], Any]) -> Any:
        """Execute one call, or not."""
        key = current_call().idempotency_key
        if self._keyed and key in self._given:
            return self._given[key]
        rates = dict(TOOL_RATES)
        if not self._keyed:
            del rates[Fault.HANGS]
        fault = self._faults.draw(rates)
        if fault is Fault.RAISES:
            raise RuntimeError(f"{call.name} is out of order")
        if fault is Fault.HANGS:
            self._over.wait(20 * TIMEOUT)
            raise RuntimeError(f"{call.name} hung")
        result = self._given[key] = execute()
        if fault is Fault.CRASH:
            self._life.die()
        return result


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one task came to. `wrong` is "" when it passed; `twice` and `lost` count effects."""

    task: Task
    wrong: str
    twice: int
    lost: int
    calls: int
    resumed: int
    decided: int
    faults: Counter[Fault]


def run(task: Task, folder: Path, *, seed: int = 1, scale: float = 1.0) -> Outcome:
    """One task: a run for each turn, all in one thread, each gone on with until it ends."""
    world, faults = World(task), Injected(task, seed, scale)
    keyed = random.Random(f"{seed}/{task.id}").random() < 0.5
    service = Service(faults, keyed=keyed)
    model = Replay(world, faults)
    counted: Counter[str] = Counter()

    clock = FakeClock()

    def agent() -> Agent:
        """The agent as a process of its own would make it, when nobody holds what the one before held any more."""
        clock.advance(3_600)
        life = Life(folder)
        service.live(life)
        tools = world.tools(service, idempotent=keyed)
        threads = Threads(life, SQLiteConversations(folder / "threads.db"))
        return Agent(
            ScriptedModel(model, record=False), tools, store=life, conversations=threads, memory=Full(), limits=_LIMITS,
            clock=clock, logger=silent_logger(),
        )  # fmt: skip

    wrong = ""
    for turn, said in enumerate(task.said):
        world.turn = turn
        result = _ended(agent, world, said, f"{task.id}-{turn}", counted)
        if result.status is not Status.COMPLETED and not wrong:
            wrong = f"turn {turn}: {result.status} {result.reason}: {result.detail}"
    service.close()
    done = Counter(f"{turn} {_canonical(call)}" for turn, call, _ in world.log)
    due = Counter(f"{turn} {_canonical(call)}" for turn, calls in enumerate(task.calls) for call in calls)
    twice, lost = sum((done - due).values()), sum((due - done).values())
    wrong = wrong or check(world, f"run{seed}") or (f"{twice} too many, {lost} lost" if twice or lost else "")
    return Outcome(
        task=task, wrong=wrong, twice=twice, lost=lost, calls=sum(due.values()), resumed=counted["resumed"],
        decided=counted["decided"], faults=faults.found,
    )  # fmt: skip


def _ended(agent: Callable[[], Agent], world: World, said: str, run_id: str, counted: Counter[str]) -> RunResult:
    """A run begun, and gone on with after each crash and each question, until it has ended."""
    config: Any = {"configurable": {"thread_id": world.task.id, "run_id": run_id}}
    going: Callable[[Agent], RunResult] = lambda one: one.invoke(said, config)  # noqa: E731 - the first of several ways on
    while True:
        try:
            result = going(agent())
        except Crash:
            counted["resumed"] += 1
            going = lambda one: one.resume(run_id)  # noqa: E731 - as above
            continue
        if result.status is not Status.SUSPENDED or result.pending is None:
            return result
        counted["decided"] += 1
        decisions = {call.id: _looked(world, call.tool, call.arguments) for call in result.pending.calls}
        going = lambda one, decisions=decisions: one.resume(run_id, decision=decisions, by="ann")  # type: ignore[misc]  # noqa: E731


def _looked(world: World, tool: str, arguments: Any) -> Answer | Approve:
    """A person looks at the world: a call that took effect is answered with its result, another one may run."""
    seen = [text for turn, call, text in world.log if turn == world.turn and call == Call(tool, dict(arguments))]
    return Answer(seen[0]) if seen else Approve()


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by category, and the faults by kind, as Markdown."""
    heads = "tasks | calls | resumed after a crash | decided by a person | official check passed | effects twice | effects lost"
    lines = [f"| BFCL multi-turn | {heads} |", "|---" + "|---:" * 7 + "|"]
    for name in (*CATEGORIES, "all"):
        mine = [one for one in outcomes if name in (one.task.category, "all")]
        if mine:
            totals = [
                sum(values) for values in zip(*[(one.calls, one.resumed, one.decided) for one in mine], strict=True)
            ]
            ended = [sum(not one.wrong for one in mine), sum(one.twice for one in mine), sum(one.lost for one in mine)]
            lines.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in (len(mine), *totals, *ended))} |")
    faults: Counter[Fault] = sum((one.faults for one in outcomes), Counter())
    told = ", ".join(f"{fault} {faults[fault]:,}" for fault in Fault)
    return "\n".join([*lines, "", f"{sum(faults.values()):,} faults injected: {told}."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks and print the table; 1 when a task does not pass, 2 when they cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bfcl", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--tasks", type=int, default=800, help="every so-manieth of the 800, so that there are this many"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=float, default=1.0, help="times the rates; 0 replays undisturbed")
    parser.add_argument("--verbose", action="store_true", help="print every task that does not pass")
    given = parser.parse_args(arguments)
    if why := available():
        print(why, file=sys.stderr)
        return 2
    work = part(given.tasks)
    begun, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for number, task in enumerate(work, 1):
            outcomes.append(run(task, Path(folder), seed=given.seed, scale=given.faults))
            if outcomes[-1].wrong:
                print(f"{task.id}: {outcomes[-1].wrong}", file=sys.stderr)
            if number % 100 == 0:
                print(f"{number} of {len(work)} in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    print(table(outcomes))
    return 1 if any(one.wrong for one in outcomes) else 0


def part(count: int) -> tuple[Task, ...]:
    """So many of the tasks, spread over all of them."""
    every = tasks()
    return tuple(every[number * len(every) // count] for number in range(min(count, len(every))))


if __name__ == "__main__":
    raise SystemExit(main())
