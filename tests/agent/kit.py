"""Agents for the tests of `Agent`, the ways to call one, and who listens."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig

from fsm_agent import Agent, Limits, RunResult, State, Transitioned, tool
from fsm_agent.observe import silent_logger
from fsm_agent.runs import Run
from fsm_agent.testing import FakeClock

WAYS = ("invoke", "ainvoke", "stream", "astream")


PATIENCE = 10.0


RUN: RunnableConfig = {"configurable": {"run_id": "r", "thread_id": "t"}}


THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


class Seen:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.records: list[Transitioned] = []

    def __call__(self, record: Transitioned) -> None:
        """Keep one."""
        self.records.append(record)

    def ended(self, run_id: str = "r") -> Transitioned:
        """The last record of a run, which is the only terminal one of an unbroken chain."""
        records = [record for record in self.records if record.run_id == run_id]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert all(one.target is two.source for one, two in pairwise(records))
        terminal = [record.target in (State.FINISH, State.ABORT) for record in records]
        assert terminal == [False] * (len(records) - 1) + [True]
        return records[-1]


def make(model: Any, tools: Any = (), *, limits: dict[str, Any] | None = None, **options: Any) -> Agent:
    """An agent that waits for nothing and logs nothing, unless `options` say otherwise."""
    given: dict[str, Any] = {"clock": FakeClock(), "logger": silent_logger()} | options
    return Agent(model, tools, limits=Limits(**(limits or {})), **given)


def items_of(runnable: Runnable[Any, Any], task: Any, way: str, config: Any = None) -> list[Any]:
    """All that one run gives, in one of the `WAYS`; a single item for the two that do not stream."""
    match way:
        case "invoke":
            return [runnable.invoke(task, config)]
        case "ainvoke":
            return [asyncio.run(_awaited(runnable.ainvoke(task, config)))]
        case "stream":
            return list(runnable.stream(task, config))
        case _:
            return asyncio.run(_collected(runnable.astream(task, config)))


async def _awaited(work: Any) -> Any:
    return await work


async def _collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def run(agent: Runnable[Any, Any], task: Any, way: str = "invoke", config: Any = None) -> RunResult:
    """The result of one run."""
    last = items_of(agent, task, way, config)[-1]
    assert isinstance(last, RunResult)
    return last


@dataclasses.dataclass(frozen=True)
class Noted:
    """One callback: its name, what it is about, and its place in the tree."""

    name: str
    label: str
    run_id: UUID
    parent: UUID | None
    tags: tuple[str, ...] = ()
    metadata: Any = None
    said: Any = None
    thread: int = 0
    loop: int = 0


class Recorder(BaseCallbackHandler):
    """Writes down every callback that it gets."""

    def __init__(self) -> None:
        self.events: list[Noted] = []

    def note(self, kind: str, label: str, said: Any, given: dict[str, Any]) -> None:
        """Write one down."""
        try:
            loop = id(asyncio.get_running_loop())
        except RuntimeError:
            loop = 0
        tags = tuple(given.get("tags") or ())
        self.events.append(
            Noted(
                kind,
                label,
                given["run_id"],
                given.get("parent_run_id"),
                tags,
                given.get("metadata"),
                said,
                threading.get_ident(),
                loop,
            )
        )

    def names(self) -> list[str]:
        """What was called, in order, without the tokens."""
        return [event.name for event in self.events if event.name != "on_llm_new_token"]

    def of(self, name: str) -> list[Noted]:
        """The callbacks of one kind."""
        return [event for event in self.events if event.name == name]

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        """A chain starts."""
        self.note("on_chain_start", kwargs.get("name") or "", inputs, kwargs)

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """A chain ends."""
        self.note("on_chain_end", "", outputs, kwargs)

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        """A chain is broken off."""
        self.note("on_chain_error", type(error).__name__, None, kwargs)

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        """A model is asked."""
        self.note("on_chat_model_start", "", messages, kwargs)

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """A model writes."""
        self.note("on_llm_new_token", token, None, kwargs)

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        """A model has replied."""
        self.note("on_llm_end", "", response, kwargs)

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        """A model fails."""
        self.note("on_llm_error", type(error).__name__, None, kwargs)

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        """A tool starts."""
        self.note("on_tool_start", serialized["name"], kwargs.get("inputs"), kwargs)

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        """A tool has returned."""
        self.note("on_tool_end", "", output, kwargs)

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        """A tool fails."""
        self.note("on_tool_error", type(error).__name__, None, kwargs)


class Tap(BaseCallbackHandler):
    """A handler that LangChain streams for, as LangGraph has one for its stream mode "messages"."""

    run_inline = True

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """Pass them on."""
        return output

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass them on."""
        return output

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """Keep it."""
        self.tokens.append(token)


def hanging(release: threading.Event, started: threading.Event) -> Any:
    """A model reply, for sync and async, that does not come before `release`."""

    def hangs(_: Any) -> str:
        started.set()
        release.wait(PATIENCE)
        return "late"

    return hangs


def transfer(amount: int) -> str:
    """Transfer money."""
    return f"transferred {amount}"


ASKING = tool(requires_approval=True)(transfer)


def new_run(agent: Agent, task: str = "task", run_id: str | None = None) -> Run:
    """A run of `agent` that nobody drives."""
    return agent._begin(agent._setup_now(), agent._new_run(task, (run_id, None)), (), (), streaming=False)
