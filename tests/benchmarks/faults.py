"""What becomes of sixteen scripted faults in LangChain's agents and in this engine.

    python -m tests.benchmarks.faults [--only NAME] [--engine]

Prints for each fault and contender how the run ended, how often the model was called, and the tokens of all prompts
(estimated over the messages received, by one rule for all). A run *ends well* with the right answer; where the fault
cannot be mended, also with an honest answer, or when it is stopped and the caller is told why. Peers are given the
benefit of the doubt: a sentence about a limit in the place of the answer counts as being told. Needs the extra `bench`;
without it only the engine runs. Nothing sleeps: the engine has a fake clock, and the peers' retries wait 0 s.

The engine has its defaults except `max_retries=2`, as many as the middleware makes; with its own default of 1 the tool
that raises twice ends in an honest answer instead of the right one.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from fsm_agent import Agent, Limits, Status
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, reply, server
from tests.benchmarks.fault_scripts import CAP, CAPPED, FAULTS, HONEST, Fault, Turn

__all__ = ["Ending", "Outcome", "engine", "main", "run"]

SYSTEM: Final = "You solve the user's task with the tools."
_TOLD: Final = re.compile(r"limits? (exceeded|reached)|stopped due to|need more steps|failed after", re.IGNORECASE)


class Ending(StrEnum):
    """How a run ended, as its caller sees it."""

    RIGHT = "answered right"
    HONEST = "honest answer"
    STOPPED = "stopped"
    TOLD = "stopped, in words only"
    SILENT = "silently wrong"
    CRASHED = "crashed"
    ENDLESS = "endless"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one fault came to with one contender. `why` is typed reasons, the kind of an exception, or ""."""

    ending: Ending
    well: bool
    calls: int
    tokens: int
    why: str = ""

    def __str__(self) -> str:
        said = f"{self.ending}: {self.why}" if self.why else str(self.ending)
        return (
            f"{'' if self.well else '**✗** '}{said}; {self.calls} call{'s' * (self.calls != 1)}; {self.tokens:,} tokens"
        )


@dataclass(frozen=True)
class Told:
    """What a caller gets back: the answer (None without one), and the typed reasons when the run did not complete."""

    answer: str | None
    why: str = ""


Contender = Callable[[BaseChatModel, Fault], Told]


def engine(model: BaseChatModel, fault: Fault) -> Told:
    """This engine with its defaults, but for two retries of a failed call instead of one: what LangChain's middleware makes."""
    agent = Agent(model, fault.tools(), limits=Limits(max_retries=2), clock=FakeClock(), logger=silent_logger())
    result = agent.invoke(fault.task)
    if result.status is Status.COMPLETED:
        return Told(result.answer)
    reasons = dict.fromkeys(str(one.reason) for one in result.transitions if one.reason is not None)
    return Told(result.answer, ", ".join(reasons))


def create_agent(model: BaseChatModel, fault: Fault, *, middleware: bool) -> Told:
    """LangChain's `create_agent`, bare or with its own middleware, limited to the engine's ten model calls."""
    from langchain.agents import create_agent as created

    agent = created(
        model, _langchain_tools(fault), system_prompt=SYSTEM, middleware=_middleware() if middleware else ()
    )
    messages = agent.invoke({"messages": [("user", fault.task)]})["messages"]
    return Told(str(messages[-1].text))


def agent_executor(model: BaseChatModel, fault: Fault) -> Told:
    """The classic `AgentExecutor` with the tool-calling agent."""
    from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
    from langchain_core.prompts import ChatPromptTemplate

    tools = _langchain_tools(fault)
    lines = [("system", SYSTEM), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
    planner = create_tool_calling_agent(model, tools, ChatPromptTemplate.from_messages(lines))
    executor = AgentExecutor(agent=planner, tools=tools, handle_parsing_errors=True)
    return Told(str(executor.invoke({"input": fault.task})["output"]))


def _middleware() -> list[Any]:
    from langchain.agents import middleware as m

    return [
        m.ModelCallLimitMiddleware(run_limit=10),
        m.ToolCallLimitMiddleware(run_limit=10),
        m.ModelRetryMiddleware(initial_delay=0.0, jitter=False),
        # Around the retries, so that it sees only what they could not mend.
        m.ToolErrorMiddleware(on_error=lambda error, _: f"{type(error).__name__}: {error}"),
        m.ToolRetryMiddleware(initial_delay=0.0, jitter=False, on_failure="error"),
    ]


def _langchain_tools(fault: Fault) -> list[Any]:
    return [StructuredTool.from_function(function) for function in fault.tools()]


CONTENDERS: Final[Mapping[str, tuple[str, Contender]]] = {
    "fsm_agent": ("", engine),
    "create_agent": ("langchain", partial(create_agent, middleware=False)),
    "create_agent + middleware": ("langchain", partial(create_agent, middleware=True)),
    "AgentExecutor": ("langchain_classic", agent_executor),
}


class _Watch:
    """Plays the model of a fault, and counts."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.calls = 0
        self.tokens = 0

    def __call__(self, request: Any) -> Any:
        """The reply to one request; after `CAP` of them, an answer that ends every loop."""
        turn = Turn.of(request)
        self.calls += 1
        self.tokens += turn.tokens
        said = CAPPED if turn.number > CAP else self._fault.play(turn)
        return reply(said) if isinstance(said, str) else said


@contextmanager
def _model(fault: Fault) -> Iterator[tuple[BaseChatModel, _Watch]]:
    watch = _Watch(fault)
    if not fault.wire:
        yield ScriptedModel(watch, usage=fault.usage, record=False), watch
        return
    with server(watch, usage=fault.usage) as s:
        yield ChatOpenAI(base_url=s.base_url, api_key="none", model="fake"), watch


def run(contender: Contender, fault: Fault) -> Outcome:
    """One fault through one contender. Never raises for what the contender does."""
    with _model(fault) as (model, watch):
        try:
            told = contender(model, fault)
        except Exception as error:
            ending, why = Ending.CRASHED, type(error).__name__
        else:
            ending, why = _ending(fault, told), told.why
    if watch.calls > CAP:
        ending, why = Ending.ENDLESS, f"capped at {CAP}"
    well = ending is Ending.RIGHT or (bool(fault.stops) and _stopped_well(fault, ending, why))
    return Outcome(ending=ending, well=well, calls=min(watch.calls, CAP), tokens=watch.tokens, why=why)


def _ending(fault: Fault, told: Told) -> Ending:
    if told.answer is None:
        return Ending.STOPPED
    if re.search(fault.right, told.answer, re.DOTALL):
        return Ending.RIGHT
    if told.answer.startswith(HONEST):
        return Ending.HONEST
    if told.why:
        return Ending.STOPPED
    return Ending.TOLD if _TOLD.search(told.answer) else Ending.SILENT


def _stopped_well(fault: Fault, ending: Ending, why: str) -> bool:
    if ending is Ending.STOPPED:
        return any(word in why for word in fault.stops)
    return ending in {Ending.HONEST, Ending.TOLD}


def table(rows: Mapping[str, Mapping[str, Outcome]]) -> str:
    """The outcomes (fault -> contender -> outcome) as Markdown, with one line for each contender's total."""
    names = list(next(iter(rows.values())))
    lines = [f"| fault | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {fault} | {' | '.join(str(row[name]) for name in names)} |" for fault, row in rows.items()]
    lines.append("")
    for name in names:
        mine = [row[name] for row in rows.values()]
        well = [one for one in mine if one.well]
        silent = sum(one.ending is Ending.SILENT for one in mine)
        lines.append(
            f"- **{name}**: {len(well)} of {len(mine)} ended well, {silent} silently wrong; "
            f"{sum(one.calls for one in mine)} model calls, {sum(one.tokens for one in mine):,} prompt tokens"
        )
    return "\n".join(lines)


def beaten(rows: Mapping[str, Mapping[str, Outcome]], name: str) -> list[str]:
    """Where `name` does not end well, or a contender that does needs fewer model calls."""
    found = []
    for fault, row in rows.items():
        others = {other: one.calls for other, one in row.items() if one.well and one.calls < row[name].calls}
        if not row[name].well or others:
            found.append(
                f"{fault}: {row[name]}{''.join(f'; {other} needs {calls}' for other, calls in others.items())}"
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and print it; 1 when the engine falls behind anywhere."""
    parser = argparse.ArgumentParser(description="What becomes of sixteen scripted faults.")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--engine", action="store_true", help="this engine alone")
    given = parser.parse_args(arguments)
    chosen = {}
    for name, (package, contender) in CONTENDERS.items():
        if package and (given.engine or importlib.util.find_spec(package) is None):
            print(f"{name} is left out{'' if given.engine else f': {package} is not installed (extra: bench)'}.")
        else:
            chosen[name] = contender
    faults = [fault for fault in FAULTS if given.only in fault.name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peers' deprecations are not what is measured
        rows = {fault.name: {name: run(contender, fault) for name, contender in chosen.items()} for fault in faults}
    print(table(rows))
    behind = beaten(rows, "fsm_agent")
    print("\n".join(["", "fsm_agent falls behind:", *behind] if behind else ["", "fsm_agent is nowhere behind."]))
    return 1 if behind else 0


if __name__ == "__main__":
    raise SystemExit(main())
