"""How many of the forty small tasks a local model answers right, through the engine as it is set up by default.

`--held-out` takes the twenty other tasks instead, `--plain` adds the same model in a plain loop, `--profiles` each profile with the
tools of the task (all of them, or those named), the plain loop beside them.

    python -m tests.benchmarks.local [local:0.5b local:1.5b] [--held-out] [--plain] [--kind two-step] [--verbose]
    python -m tests.benchmarks.local local:1.5b --profiles
    python -m tests.benchmarks.local local:1.5b --profiles session native

Needs the extra `local`; fetches the weights on first use. Greedy decoding, so a run can be repeated.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage

from fsm_agent import Agent, Registry, RunResult
from fsm_agent.language import EN
from fsm_agent.memory import InMemoryConversations
from fsm_agent.observe import silent_logger
from fsm_agent.profiles import NAMES
from tests.benchmarks.local_tasks import HELD_OUT, KINDS, TASKS, Task

MODELS = ("local:0.5b", "local:1.5b")
PLAIN_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one task came to."""

    task: Task
    answer: str
    ended: str
    calls: tuple[str, ...]
    model_calls: int
    seconds: float

    @property
    def right(self) -> bool:
        """True when the checker of the task says so."""
        return self.task.right(self.answer)

    @property
    def repeated(self) -> int:
        """Calls beyond the second of the same call."""
        return sum(count - 2 for count in Counter(self.calls).values() if count > 2)


def with_engine(model: Any, task: Task) -> Outcome:
    """The task through an agent with nothing set but its model and tools."""
    return _outcome(task, Agent(model, task.tools, logger=silent_logger()).invoke(task.text))


def with_profile(model: Any, task: Task, *, name: str, max_tokens: int | None) -> Outcome:
    """The task through a profile as it is, but for its tools and its store of threads, which nothing here uses."""
    agent = Agent.from_profile(
        name,
        model,
        task.tools,
        conversations=InMemoryConversations(),
        logger=silent_logger(),
        max_tokens=max_tokens,
    )
    return _outcome(task, agent.invoke(task.text))


def _outcome(task: Task, result: RunResult) -> Outcome:
    calls = tuple(
        f"{call.tool}({dict(call.arguments)})={one.text}"
        for call, one in zip(result.calls, result.results, strict=True)
    )
    ended = f"{result.status} {result.reason}"
    return Outcome(
        task=task,
        answer=result.answer or "",
        ended=ended,
        calls=calls,
        model_calls=result.model_calls,
        seconds=result.elapsed,
    )


def with_plain_loop(model: Any, task: Task) -> Outcome:
    """The task through the loop that a tutorial would write: bound tools, no checks, a cap on the steps."""
    begun = time.monotonic()
    registry = Registry(task.tools)
    schemas = [
        {
            "type": "function",
            "function": {"name": one.name, "description": one.description, "parameters": one.parameters()},
        }
        for one in registry
    ]
    bound = model.bind_tools(schemas)
    messages: list[AnyMessage] = [SystemMessage(EN.system), HumanMessage(task.text)]
    calls: list[str] = []
    for step in range(PLAIN_STEPS):
        reply = bound.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return Outcome(
                task=task, answer=str(reply.content), ended="answered", calls=tuple(calls), model_calls=step + 1,
                seconds=time.monotonic() - begun,
            )  # fmt: skip
        for call in reply.tool_calls:
            tool = registry.get(call["name"])
            calls.append(f"{call['name']}({call['args']})")
            try:
                text = str(tool.func(**call["args"])) if tool is not None and tool.func is not None else "no such tool"
            except Exception as error:
                text = str(error)
            messages.append(ToolMessage(text, tool_call_id=call["id"] or ""))
    return Outcome(
        task=task,
        answer="",
        ended="step cap",
        calls=tuple(calls),
        model_calls=PLAIN_STEPS,
        seconds=time.monotonic() - begun,
    )


def table(name: str, outcomes: Sequence[Outcome]) -> str:
    """One row of Markdown: right answers by kind, model calls, repeats beyond the threshold, and how the runs ended."""
    kinds = " | ".join(
        f"{sum(one.right for one in outcomes if one.task.kind == kind)}/{sum(one.task.kind == kind for one in outcomes)}"
        for kind in KINDS
    )
    right, calls = sum(one.right for one in outcomes), sum(one.model_calls for one in outcomes)
    seconds = sum(one.seconds for one in outcomes) / max(calls, 1)
    repeats = sum(one.repeated for one in outcomes)
    ended = ", ".join(f"{count} {how}" for how, count in Counter(one.ended for one in outcomes).most_common())
    return f"| {name} | **{right}/{len(outcomes)}** | {kinds} | {calls} | {seconds:.1f} | {repeats} | {ended} |"


def main() -> None:
    """Run the tasks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--plain", action="store_true", help="also run the plain loop")
    parser.add_argument(
        "--profiles",
        nargs="*",
        choices=NAMES,
        help="run these profiles, or all, and the plain loop, instead of the engine's defaults",
    )
    parser.add_argument("--max-tokens", type=int, help="most tokens of a reply to a profile; by default its own")
    parser.add_argument("--kind", choices=KINDS, help="only tasks of this kind")
    parser.add_argument("--held-out", action="store_true", help="run the twenty held-out tasks instead")
    parser.add_argument("--verbose", action="store_true", help="print every task")
    options = parser.parse_args()
    tasks = [task for task in (HELD_OUT if options.held_out else TASKS) if options.kind in (None, task.kind)]
    rows = [
        f"| set-up | right | {' | '.join(KINDS)} | model calls | s a call | repeats | ended |",
        "|" + "---|" * (len(KINDS) + 6),
    ]
    for model in options.models:
        agent_model = Agent(model, [], logger=silent_logger()).model
        contenders: list[tuple[str, Callable[[Any, Task], Outcome], Any]] = [("engine", with_engine, model)]
        if options.profiles is not None:
            names = options.profiles or NAMES
            contenders = [
                (f"profile {name}", partial(with_profile, name=name, max_tokens=options.max_tokens), model)
                for name in names
            ]
        if options.plain or options.profiles is not None:
            contenders.append(("plain loop", with_plain_loop, agent_model))
        for name, contender, given in contenders:
            outcomes = []
            for task in tasks:
                outcomes.append(contender(given, task))
                last = outcomes[-1]
                if options.verbose or not last.right:
                    mark = "ok " if last.right else "BAD"
                    print(
                        f"{mark} {task.text}\n      {last.answer!r} ({last.ended}) {'; '.join(last.calls)}", flush=True
                    )
            rows.append(table(f"{model}, {name}", outcomes))
            print(rows[-1], flush=True)
    print("\n" + "\n".join(rows))


if __name__ == "__main__":
    main()
