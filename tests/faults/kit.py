"""What these tests share: an agent with a fake clock, its runs in every way, and what makes a prompt sendable."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import openai
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from fsm_agent import Agent, Limits, RunResult, State, Transitioned
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, FaultServer, ModelRequest

WAYS = ("invoke", "ainvoke", "stream", "astream")
BOTH = ("invoke", "stream")
PATIENCE = 10.0
"""Seconds after which a test that waits for another thread gives up: only a failing test waits so long."""


class Seen:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.records: list[Transitioned] = []

    def __call__(self, record: Transitioned) -> None:
        """Keep one."""
        self.records.append(record)

    def of(self, run_id: str) -> list[Transitioned]:
        """The records of one run."""
        return [record for record in self.records if record.run_id == run_id]

    def ends(self) -> list[Transitioned]:
        """The records that ended a run."""
        return [record for record in self.records if record.target in (State.FINISH, State.ABORT)]


class Ledger:
    """Counts what was really executed. `ledger.note(**values)` inside a tool; safe from any thread."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def note(self, **values: Any) -> None:
        """Write down one execution."""
        with self._lock:
            self.entries.append(values)

    def __len__(self) -> int:
        return len(self.entries)


def make(model: Any, tools: Iterable[Any] = (), *, limits: dict[str, Any] | None = None, **options: Any) -> Agent:
    """An agent that waits for nothing and logs nothing, unless `options` say otherwise."""
    given: dict[str, Any] = {"clock": FakeClock(), "logger": silent_logger()} | options
    return Agent(model, list(tools), limits=Limits(**(limits or {})), **given)


def run(agent: Agent, task: Any, way: str = "invoke", config: Any = None) -> RunResult:
    """The result of one run in one of the `WAYS`."""
    match way:
        case "invoke":
            return agent.invoke(task, config)
        case "ainvoke":
            return asyncio.run(agent.ainvoke(task, config))
        case "stream":
            last = list(agent.stream(task, config))[-1]
        case _:
            last = asyncio.run(_collected(agent, task, config))[-1]
    assert isinstance(last, RunResult)
    return last


async def _collected(agent: Agent, task: Any, config: Any) -> list[Any]:
    return [item async for item in agent.astream(task, config)]


@functools.cache
def transports() -> dict[str, Any]:
    """HTTP clients for all tests: to make them anew takes a hundred times as long as a request."""
    return {"http_client": openai.DefaultHttpxClient(), "http_async_client": openai.DefaultAsyncHttpxClient()}


def client(server: FaultServer, **options: Any) -> ChatOpenAI:
    """The real OpenAI client against a server of ours, with its own retries as they are by default."""
    given: dict[str, Any] = {"base_url": server.base_url, "api_key": "none", "model": "fake", **transports()}
    return ChatOpenAI(**given | options)


_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def faults_of(messages: Sequence[BaseMessage], *, alternate: bool = True) -> list[str]:
    """What a strict server would refuse in a prompt; [] for a prompt that is right.

    Exactly one system message, first; a user's message; every call answered once, at once and in order; no result
    without its call; ids unique; names legal; no two users or two assistants in a row (unless not `alternate`).
    """
    found: list[str] = []
    systems = [index for index, message in enumerate(messages) if isinstance(message, SystemMessage)]
    if systems != [0]:
        found.append(f"system messages at {systems}")
    if not any(isinstance(message, HumanMessage) for message in messages):
        found.append("no user turn")
    ids: list[str] = []
    open_: list[str] = []
    before: BaseMessage | None = None
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if not open_ or message.tool_call_id != open_.pop(0):
                found.append(f"{index}: result {message.tool_call_id} out of place")
        elif open_:
            found.append(f"{index}: calls {open_} unanswered")
            open_ = []
        if isinstance(message, AIMessage):
            for one in message.tool_calls:
                ids.append(one["id"] or "")
                open_.append(one["id"] or "")
                if not _LEGAL_NAME.fullmatch(one["name"]):
                    found.append(f"{index}: name {one['name']!r}")
            if message.invalid_tool_calls:
                found.append(f"{index}: invalid calls kept")
        twice = before is not None and isinstance(message, HumanMessage | AIMessage) and type(message) is type(before)
        if alternate and twice:
            found.append(f"{index}: two {message.type} messages in a row")
        content: object = message.content
        if content is None:
            found.append(f"{index}: null content")
        before = message
    if open_:
        found.append(f"calls {open_} unanswered at the end")
    if "" in ids or len(set(ids)) != len(ids):
        found.append(f"ids {ids}")
    return found


def assert_sendable(requests: Iterable[ModelRequest]) -> None:
    """Every prompt that the model was sent is one that a strict server takes."""
    for request in requests:
        assert faults_of(request.messages) == [], [(message.type, message.text[:60]) for message in request.messages]


def answers_in(request: ModelRequest) -> list[ToolMessage]:
    """The tool results of a prompt, in order."""
    return [message for message in request.messages if isinstance(message, ToolMessage)]


def consistent(records: Sequence[Transitioned]) -> bool:
    """One chain of transitions, numbered without a gap, that ends in a terminal state and only there."""
    numbered = [record.seq for record in records] == list(range(1, len(records) + 1))
    joined = all(one.target is two.source for one, two in pairwise(records))
    ends = [record.target in (State.FINISH, State.ABORT) for record in records]
    return numbered and joined and ends == [False] * (len(records) - 1) + [True]


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start `work` on a thread; calling what is returned waits for it, and gives its value or raises its error."""
    box: dict[str, Any] = {}

    def body() -> None:
        try:
            box["value"] = work()
        except BaseException as error:  # handed to whoever waits
            box["error"] = error

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the work did not end"
        if "error" in box:
            raise box["error"]
        return box["value"]

    return join
