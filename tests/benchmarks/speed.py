"""What one step (plan, then one tool call) costs beside a hand-written loop and LangChain's `create_agent`: CPU time, one interleaved run.

    python -m tests.benchmarks.speed [--rounds 3] [--steps 5 20 100 400] [--no-imports] [--no-async]

Every contender asks the same scripted model and calls the same LangChain tool; this engine also logs each transition through structlog,
configured as structlog's documentation recommends for speed. Set-up (binding tools, building agents) is not timed. Contenders take turns
in an order that rotates, so that a busy machine is equally unfair to all. A contender whose package is missing is left out, with a note.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import structlog
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from fsm_agent import Agent, Limits, Status
from fsm_agent.testing import Delay, ModelRequest, ScriptedModel, call

HAND, CREATE, OURS = "hand-written loop", "create_agent", "fsm_agent"
STEPS: Final = (5, 20, 100, 400)
ROUNDS: Final = {5: 24, 20: 12, 100: 4, 400: 2}
"""Runs of each contender in one round, by the number of steps: about as many steps for each number."""
SYSTEM: Final = "You are an agent."
TASK: Final = "Add the numbers."
RUNS, RUN_STEPS, MODEL_SECONDS = 200, 5, 0.02
IMPORTS: Final = {
    "import fsm_agent": "fsm_agent",
    "from fsm_agent import Agent": "fsm_agent",
    "import langchain_core.runnables": "langchain_core",
    "import langchain.agents": "langchain",
}
PACKAGES: Final = ("fsm-agent", "langchain-core", "langchain", "langgraph", "pydantic", "structlog", "orjson")

Run = Callable[[], Any]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def log_to_nowhere() -> None:
    """Structlog as its page on performance recommends: a filtering logger, cached, that writes bytes (here to the null device)."""
    given: dict[str, Any] = {}
    if _installed("orjson"):
        import orjson

        given["serializer"] = orjson.dumps
    sink: Any = open(os.devnull, "wb" if given else "w")  # noqa: SIM115, PTH123 - the log stays open as long as the program
    structlog.configure(
        cache_logger_on_first_use=True,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(**given),
        ],
        logger_factory=(structlog.BytesLoggerFactory if given else structlog.WriteLoggerFactory)(sink),
    )


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _model(steps: int) -> ScriptedModel:
    return ScriptedModel([*(call("add", a=number, b=2) for number in range(steps)), "done"], record=False)


def by_hand(steps: int) -> Run:
    """The loop that everybody writes: ask, call, append, until the reply has no calls."""
    bound = _model(steps).bind_tools([add])

    def run() -> None:
        messages: list[AnyMessage] = [SystemMessage(SYSTEM), HumanMessage(TASK)]
        while True:
            reply = bound.invoke(messages)
            messages.append(reply)
            if not reply.tool_calls:
                break
            messages.extend(add.invoke({**one, "type": "tool_call"}) for one in reply.tool_calls)
        assert len(messages) == 2 * steps + 3

    return run


def by_create_agent(steps: int) -> Run:
    """LangChain's own agent."""
    from langchain.agents import create_agent

    graph = create_agent(_model(steps), [add], system_prompt=SYSTEM)

    def run() -> None:
        said = graph.invoke({"messages": [("user", TASK)]}, {"recursion_limit": 10 * steps + 10})["messages"]
        assert len(said) == 2 * steps + 2

    return run


def by_us(steps: int) -> Run:
    """This engine with its events on, and all of its guards."""
    agent = Agent(_model(steps), [add], system=SYSTEM, limits=Limits(max_steps=steps + 1, max_tool_calls=steps))

    def run() -> None:
        result = agent.invoke(TASK)
        assert (result.status, result.tool_calls) == (Status.COMPLETED, steps), result.detail

    return run


def contenders() -> dict[str, Callable[[int], Run]]:
    """Those whose packages are installed."""
    found: dict[str, Callable[[int], Run]] = {HAND: by_hand, OURS: by_us}
    if _installed("langchain"):
        found[CREATE] = by_create_agent
    else:
        print("langchain is not installed: create_agent is left out (install the extra `bench`)", file=sys.stderr)
    return found


def timed(run: Run) -> float:
    """Seconds of CPU time of all threads of this program."""
    gc.collect()
    begun = time.process_time()
    run()
    return time.process_time() - begun


def measure_steps(numbers: Sequence[int], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Microseconds a step, of each run of each contender, by (contender, steps)."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    built = contenders()
    order = list(built)
    for name in order:
        built[name](5)()  # what is imported and cached on first use
    for turn in range(rounds):
        for steps in numbers:
            for _ in range(ROUNDS.get(steps, 4)):
                order.append(order.pop(0))
                for name in order:
                    found[name, steps].append(timed(built[name](steps)) / steps * 1e6)
        print(f"round {turn + 1} of {rounds} done", file=sys.stderr)
    return found


def _paced(request: ModelRequest) -> Delay:
    """A model that needs a while, and knows from the messages how far a run is."""
    done = sum(isinstance(one, ToolMessage) for one in request.messages)
    return Delay(MODEL_SECONDS, call("add", a=done, b=2) if done < RUN_STEPS else "done")


def measure_async(rounds: int) -> dict[str, list[float]]:
    """Seconds of CPU time for 200 runs at once."""
    limits = Limits(max_steps=RUN_STEPS + 1)
    agent = Agent(ScriptedModel(_paced, record=False), [add], system=SYSTEM, limits=limits)

    async def ours() -> None:
        assert (await agent.ainvoke(TASK)).ok

    one: dict[str, Callable[[], Awaitable[None]]] = {OURS: ours}
    if _installed("langchain"):
        from langchain.agents import create_agent

        graph = create_agent(ScriptedModel(_paced, record=False), [add], system_prompt=SYSTEM)

        async def theirs() -> None:
            assert len((await graph.ainvoke({"messages": [("user", TASK)]}))["messages"]) == 2 * RUN_STEPS + 2

        one[CREATE] = theirs

    async def all_of(which: Callable[[], Awaitable[None]]) -> None:
        await asyncio.gather(*(which() for _ in range(RUNS)))

    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, which in one.items():
            found[name].append(timed(lambda which=which: asyncio.run(all_of(which))))  # type: ignore[misc]  # a default binds it
    return found


def measure_imports(rounds: int) -> dict[str, list[float]]:
    """Seconds of CPU time of each import, each in an interpreter of its own."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for statement, package in IMPORTS.items():
            if _installed(package):
                code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
                done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
                found[statement].append(float(done.stdout))
    return found


def p10(values: Sequence[float]) -> float:
    """The tenth percentile: what it costs when the machine is quiet."""
    return sorted(values)[len(values) // 10]


def _ratio(mine: float | None, theirs: float | None) -> str:
    return f"{mine / theirs:.2f}" if mine is not None and theirs else "-"


def steps_table(found: dict[tuple[str, int], list[float]], numbers: Sequence[int]) -> list[str]:
    """The costs a step, the ratios, and how they grow."""
    known = {name for name, _ in found}
    names = [name for name in (HAND, CREATE, OURS) if name in known]
    lines = [
        f"| steps | {' | '.join(f'{name}, µs' for name in names)} | ours / hand-written | ours / create_agent |",
        f"|---:|{'---:|' * (len(names) + 2)}",
    ]
    for steps in numbers:
        median = {name: statistics.median(found[name, steps]) for name in names}
        low = {name: p10(found[name, steps]) for name in names}
        cells = " | ".join(f"{median[name]:,.0f} ({low[name]:,.0f})" for name in names)
        ratios = " | ".join(
            f"{_ratio(median[OURS], median.get(name))} ({_ratio(low[OURS], low.get(name))})" for name in (HAND, CREATE)
        )
        lines.append(f"| {steps} | {cells} | {ratios} |")
    if {20, 400} <= set(numbers):
        grown = " | ".join(
            f"x{_ratio(statistics.median(found[name, 400]), statistics.median(found[name, 20]))}"
            f" ({_ratio(p10(found[name, 400]), p10(found[name, 20]))})"
            for name in names
        )
        lines.append(f"| 400 against 20 | {grown} | | |")
    return lines


def plain_table(found: dict[str, list[float]], what: str, against: str) -> list[str]:
    """Seconds of each, and their share of one of them."""
    base = found.get(against)
    lines = [f"| {what} | CPU seconds, median (p10) | against {against} |", "|---|---:|---:|"]
    for name, values in found.items():
        median, low = statistics.median(values), p10(values)
        ratio = f"{_ratio(median, statistics.median(base))} ({_ratio(low, p10(base))})" if base else "-"
        lines.append(f"| {name} | {median:.3f} ({low:.3f}) | {ratio} |")
    return lines


def _versions() -> str:
    known = []
    for package in PACKAGES:
        try:
            known.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return (
        f"Python {platform.python_version()}, {', '.join(known)}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables as Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.speed", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="more rounds, steadier numbers (default: 3)")
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS), help="numbers of steps to measure")
    parser.add_argument("--no-imports", action="store_true", help="leave the imports out")
    parser.add_argument("--no-async", action="store_true", help="leave the 200 runs at once out")
    parser.add_argument("--json", type=Path, help="write every single measurement to this file")
    given = parser.parse_args(arguments)
    log_to_nowhere()
    found = measure_steps(given.steps, given.rounds)
    lines = ["CPU time of one step (plan + one tool call), median (p10):", "", *steps_table(found, given.steps)]
    if not given.no_async:
        what = f"{RUNS} async runs of {RUN_STEPS} steps at once, {MODEL_SECONDS * 1000:.0f} ms a reply"
        lines += ["", *plain_table(measure_async(given.rounds), what, CREATE)]
    if not given.no_imports:
        lines += ["", *plain_table(measure_imports(given.rounds + 2), "import", "import langchain.agents")]
    command = " ".join(["python -m tests.benchmarks.speed", *(sys.argv[1:] if arguments is None else arguments)])
    print("\n".join([*lines, "", f"{_versions()}. Command: `{command}`."]))
    if given.json is not None:
        every = {f"{name}, {steps} steps, µs": values for (name, steps), values in found.items()}
        given.json.write_text(json.dumps(every, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
