"""`Agent` as a LangChain `Runnable`: every way to call it, callbacks, cancellation, conversations, people, inputs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    AsyncCallbackManagerForToolRun,
    BaseCallbackHandler,
    CallbackManagerForToolRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool
from langchain_core.tools import tool as langchain_tool
from langchain_core.tracers import _streaming
from langchain_core.tracers.context import collect_runs

from fsm_agent import (
    Agent,
    Approve,
    Deny,
    Edit,
    Event,
    Limits,
    RunError,
    RunResult,
    State,
    Status,
    StopReason,
    Token,
    Tool,
    Transitioned,
    tool,
)
from fsm_agent.errors import DefinitionError, ModelError, RunBusy, UnknownRun
from fsm_agent.inputs import read_input
from fsm_agent.models import resolve
from fsm_agent.observe import silent_logger
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, fault, reply, server

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


# ---------------------------------------------------------------- every way to call it


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_result(way: str) -> None:
    """The four ways to run a task end in the same result."""
    with ScriptedModel([reply("Let me see.", call("add", a=1, b=2)), "It is 3."]) as model:
        result = run(make(model, [add]), "1+2?", way)
    assert (result.status, result.reason, result.answer) == (Status.COMPLETED, StopReason.ANSWERED, "It is 3.")
    assert result.ok
    assert (result.steps, result.model_calls, result.tool_calls, result.usage.total) == (2, 2, 1, 30)
    assert [message.type for message in result.messages] == ["human", "ai", "tool", "ai"]
    assert [one.text for one in result.results] == ["3"]
    assert result.path()[0] is State.PLAN
    assert result.path()[-1] is State.FINISH


def comparable(result: RunResult) -> list[Any]:
    """What must not depend on how a run was asked for."""
    rows = [(str(row), row.tokens, row.tools, row.signatures, row.reason, row.error) for row in result.transitions]
    return [result.status, result.reason, result.answer, result.detail, result.usage, *rows, *map(str, result.messages)]


SCRIPTS: dict[str, list[Any]] = {
    "plain": ["hello there, friend"],
    "tools": [reply("Let me see.", call("add", a=1, b=2), call("add", a=3, b=4)), call("add", a=5, b=6), "done"],
    "trouble": [RuntimeError("down"), "", call("nothing"), call("add", a="x"), call("add", a=1, b=2), "done"],
    "repeats": [*[call("add", a=1, b=2)] * 3, "enough"],
    "fails": [RuntimeError("down")] * 2,
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("way", ["stream", "astream", "ainvoke"])
def test_the_last_item_of_a_stream_is_what_invoke_gives(script: str, way: str) -> None:
    """Streaming, and the event loop, never change the outcome: same transitions, tokens, history and result."""
    results = []
    for one in ("invoke", way):
        with ScriptedModel(SCRIPTS[script]) as model:
            results.append(run(make(model, [add]), "go", one, RUN))
    assert comparable(results[0]) == comparable(results[1])


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_a_stream_gives_transitions_as_they_happen_and_tokens_of_the_answer(way: str) -> None:
    """Transitions and pieces of the reply in order, one result at the end; the pieces join to the answer."""
    with ScriptedModel([call("add", a=1, b=2), "one two three"]) as model:
        items = items_of(make(model, [add]), "go", way)
    *before, result = items
    assert isinstance(result, RunResult)
    assert [item for item in before if isinstance(item, Transitioned)] == list(result.transitions)
    tokens = [item for item in before if isinstance(item, Token)]
    assert "".join(token.text for token in tokens) == result.answer == "one two three"
    assert len(tokens) > 1
    assert {token.run_id for token in tokens} == {result.run_id}
    replied = before.index(result.transitions[-2])
    assert all(before.index(token) < replied for token in tokens)


def test_a_stream_is_live() -> None:
    """The first token comes while the model is still writing the rest."""
    hold = threading.Event()
    with server([fault.held("one two three four", hold, after_chars=5)]) as s:
        from langchain_openai import ChatOpenAI

        agent = make(ChatOpenAI(base_url=s.base_url, api_key="none", model="fake"))
        stream = agent.stream("count")
        first = next(item for item in stream if isinstance(item, Token))
        assert not hold.is_set()
        hold.set()
        rest = list(stream)
    assert rest[-1].answer == "one two three four"
    assert rest[-1].answer.startswith(first.text)


def test_batch_keeps_the_order_and_the_inputs_apart() -> None:
    """Fifty tasks in a batch: each answer at its own place."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    results = make(model).batch([f"t{n}" for n in range(50)], {"max_concurrency": 8})
    assert [result.answer for result in results] == [f"echo t{n}" for n in range(50)]
    assert len({result.run_id for result in results}) == 50


async def test_abatch_keeps_the_order_and_the_inputs_apart() -> None:
    """The same on the event loop, with a config for each."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    configs: list[RunnableConfig] = [{"configurable": {"thread_id": str(n)}} for n in range(20)]
    results = await make(model).abatch([f"t{n}" for n in range(20)], configs)
    assert [result.answer for result in results] == [f"echo t{n}" for n in range(20)]
    assert [result.thread_id for result in results] == [str(n) for n in range(20)]


def test_batch_can_return_what_a_wrong_input_raises() -> None:
    """One wrong input among good ones is an error at its own place; what a model does is a result as ever."""
    model = ScriptedModel(by_task={"good": ["fine"], "bad model": [ValueError("no")] * 2})
    results: list[Any] = make(model).batch(["good", "", "bad model"], return_exceptions=True)
    assert results[0].answer == "fine"
    assert isinstance(results[1], RunError)
    assert results[2].reason is StopReason.MODEL_FAILED


def test_batch_as_completed_gives_every_index_once() -> None:
    """The other form of a batch works too."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    pairs = dict(make(model).batch_as_completed(["a", "b", "c"]))
    assert {index: result.answer for index, result in pairs.items()} == {0: "echo a", 1: "echo b", 2: "echo c"}


# ---------------------------------------------------------------- in a chain


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_a_chain(way: str) -> None:
    """A prompt before it and a function behind it: the chain gives the answer in every way."""
    prompt = ChatPromptTemplate.from_messages([("system", "Answer in {language}."), ("human", "{question}")])
    with ScriptedModel([call("add", a=1, b=2), "tre"]) as model:
        chain = prompt | make(model, [add]) | RunnableLambda(lambda result: result.answer.upper())
        items = items_of(chain, {"language": "Italian", "question": "1+2?"}, way)
    assert items == ["TRE"]
    assert "1+2?" in model.requests[0].text
    assert "Answer in Italian." in model.requests[0].messages[0].text
    assert [message.type for message in model.requests[0].messages] == ["system", "human"]


@pytest.mark.parametrize("way", WAYS)
def test_at_both_ends_of_a_chain(way: str) -> None:
    """First and last: the answer of one agent is the task of the next."""
    with ScriptedModel(by_task={"topic": ["draft one"], "Polish: draft": ["final one"]}) as model:
        writer, editor = make(model, name="writer"), make(model, name="editor")
        chain = writer | RunnableLambda(lambda result: f"Polish: {result.answer}") | editor
        result = run(chain, "topic", way)
    assert result.answer == "final one"


def test_a_chain_that_ends_in_an_agent_streams_its_items() -> None:
    """As the last part of a chain, tokens and transitions come through."""
    with ScriptedModel(["one two"]) as model:
        chain = PromptTemplate.from_template("Say {what}") | make(model)
        items = list(chain.stream({"what": "it"}))
    assert [item.text for item in items if isinstance(item, Token)] == ["one", " two"]
    assert items[-1].answer == "one two"


def test_in_parallel_and_assigned() -> None:
    """Two agents in parallel on one input, and one whose result is assigned to a key."""
    with ScriptedModel(["x", "y", "z"]) as model:
        agent = make(model)
        both = RunnableParallel(one=agent, other=agent).invoke("task")
        assert {both["one"].answer, both["other"].answer} == {"x", "y"}
        chain: Any = RunnablePassthrough.assign(result=lambda given: agent.invoke(given["task"]))
        assert chain.invoke({"task": "t", "keep": 1})["result"].answer == "z"


def test_map_over_a_list() -> None:
    """`map()` runs the agent for each element."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    assert [result.answer for result in make(model).map().invoke(["a", "b"])] == ["echo a", "echo b"]


def test_with_config_binds_thread_tags_and_name() -> None:
    """`with_config` gives every run its thread, tags and name."""
    handler = Recorder()
    with ScriptedModel(["a", "b"]) as model:
        bound = make(model).with_config(
            {"configurable": {"thread_id": "t"}, "tags": ["mine"], "run_name": "named", "callbacks": [handler]}
        )
        bound.invoke("first")
        result = bound.invoke("second")
    assert result.thread_id == "t"
    assert "first" in model.requests[1].text
    chains = [event for event in handler.events if event.name == "on_chain_start"]
    assert [event.label for event in chains] == ["named", "named"]
    assert all("mine" in event.tags for event in handler.events)


@pytest.mark.parametrize("what", ["get_input_jsonschema", "get_output_jsonschema", "get_config_jsonschema"])
def test_its_schemas_can_be_asked_for(what: str) -> None:
    """What serves a runnable asks for its schemas."""
    assert isinstance(getattr(make(ScriptedModel([])), what)(), dict)


def test_it_has_a_name_and_a_graph() -> None:
    """Its name shows in traces and in the drawing of a chain."""
    agent = make(ScriptedModel([]), name="accountant")
    assert agent.get_name() == "accountant"
    assert agent.OutputType is RunResult
    chain = agent | RunnableLambda(lambda result: result.answer)
    assert "accountant" in chain.get_graph().draw_mermaid()


def test_an_agent_among_the_tools_is_refused_with_what_to_do() -> None:
    """An agent is no tool by itself; the error names the way that makes one of it."""
    with pytest.raises(DefinitionError, match="make one of it with its as_tool") as raised:
        make(ScriptedModel([]), [make(ScriptedModel([]))])
    with pytest.raises(DefinitionError) as other:
        make(ScriptedModel([]), [5])
    assert "arg_types" in str(raised.value)
    assert "as_tool" not in str(other.value)


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
def test_an_agent_is_a_tool_of_another_one() -> None:
    """`as_tool` makes an agent a LangChain tool: the outer model reads the inner answer, and only that."""
    inner_model = ScriptedModel(["the capital is Oslo"])
    inner = make(inner_model)
    as_tool = inner.as_tool(name="geographer", description="Knows capitals.", arg_types={"task": str})
    with ScriptedModel([call("geographer", task="capital of Norway?"), "Oslo"]) as model:
        result = run(make(model, [as_tool]), "go")
    assert result.answer == "Oslo"
    told = model.requests[1].messages[-1].text
    assert "the capital is Oslo" in told
    assert len(told) < 500, "the log of the inner run is no text for the outer model"


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_inside_of_a_tool_is_a_run_of_its_own(way: str, watched: bool, tmp_path: Path) -> None:
    """It has neither the id nor the thread of the run around it, whoever listens and however the config got there; or one of its own."""
    said = ScriptedModel(["one", "two", "three", "four"])
    inner = make(said, name="inner", store=tmp_path / "runs.db")
    chain = RunnableLambda(lambda task: task) | inner

    def ask(task: str, config: RunnableConfig) -> str:
        """Ask the other one."""
        result = {
            "around": lambda: inner.invoke(task),
            "handed": lambda: inner.invoke(task, config),
            "chain": lambda: chain.invoke(task, config),
            "named": lambda: inner.invoke(task, {"configurable": {"thread_id": "named"}}),
        }[task]()
        assert (result.thread_id, result.run_id == "r") == ("named" if task == "named" else None, False)
        return str(result.answer)

    script = [*(call("ask", task=task) for task in ("around", "handed", "chain", "named")), "done"]
    config: RunnableConfig = {"configurable": RUN["configurable"], "callbacks": [Recorder()] if watched else []}
    result = run(make(ScriptedModel(script), [ask], store=tmp_path / "runs.db"), "go", way, config)
    assert [one.text for one in result.results] == ["one", "two", "three", "four"]
    assert [len(request.messages) for request in said.requests] == [2, 2, 2, 2]
    assert (result.run_id, result.thread_id) == ("r", "t")


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_takes_over_nothing_of_a_run_further_out(way: str, watched: bool) -> None:
    """Each of three runs, one inside of the other, has an id of its own, and the outermost alone has the thread."""
    found: list[RunResult] = []

    def ask(left: int) -> str:
        """Ask one that asks on."""
        script = [call("ask", left=left - 1), "done"] if left else ["done"]
        found.append(make(ScriptedModel(script), [ask]).invoke("go"))
        return "asked"

    config: RunnableConfig = {"configurable": RUN["configurable"], "callbacks": [Recorder()] if watched else []}
    found.append(run(make(ScriptedModel([call("ask", left=1), "done"]), [ask]), "go", way, config))
    assert [one.thread_id for one in found] == [None, None, "t"]
    assert found[-1].run_id == "r"
    assert len({one.run_id for one in found}) == 3


def test_the_messages_of_a_result_are_a_list_of_their_own() -> None:
    """`messages` is a list, as a graph of LangGraph adds to its state (a tuple it takes for one message), and each result has its own."""
    agent = make(ScriptedModel([call("add", a=1, b=2), "3", "again"]), [add])
    first = agent.invoke("1+2", THREAD)
    assert isinstance(first.messages, list)
    first.messages.clear()
    second = agent.invoke([HumanMessage("once more", id="7")], THREAD)
    assert [message.type for message in second.messages] == ["human", "ai"]
    assert second.messages[0].id == "7", "what the graph knows already is not added again"


# ---------------------------------------------------------------- callbacks


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


class AsyncRecorder(AsyncCallbackHandler):
    """The same, as an async handler: every method hands over to a `Recorder` after giving way once."""

    def __init__(self) -> None:
        self.inner = Recorder()

    async def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        """A chain starts."""
        await asyncio.sleep(0)
        self.inner.on_chain_start(serialized, inputs, **kwargs)

    async def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """A chain ends."""
        await asyncio.sleep(0)
        self.inner.on_chain_end(outputs, **kwargs)

    async def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        """A chain is broken off."""
        self.inner.on_chain_error(error, **kwargs)

    async def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        """A model is asked."""
        await asyncio.sleep(0)
        self.inner.on_chat_model_start(serialized, messages, **kwargs)

    async def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        """A model has replied."""
        await asyncio.sleep(0)
        self.inner.on_llm_end(response, **kwargs)

    async def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        """A model fails."""
        self.inner.on_llm_error(error, **kwargs)

    async def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        """A tool starts."""
        await asyncio.sleep(0)
        self.inner.on_tool_start(serialized, input_str, **kwargs)

    async def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        """A tool has returned."""
        await asyncio.sleep(0)
        self.inner.on_tool_end(output, **kwargs)

    async def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        """A tool fails."""
        self.inner.on_tool_error(error, **kwargs)


ONE_TOOL = [
    "on_chain_start",
    *("on_chat_model_start", "on_llm_end", "on_tool_start", "on_tool_end", "on_chat_model_start", "on_llm_end"),
    "on_chain_end",
]


@pytest.mark.parametrize("kind", ["sync", "async", "langchain"])
@pytest.mark.parametrize("way", WAYS)
def test_callbacks_reach_model_and_tools_as_children_of_the_run(way: str, kind: str) -> None:
    """Chain, model and tool callbacks in order, each with its end, children of the run, with its tags and metadata."""

    @tool("add")
    async def aadd(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    @langchain_tool("add")
    def ladd(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    given = {"sync": add, "async": aadd, "langchain": ladd}[kind]
    handler = Recorder()
    config: RunnableConfig = {"callbacks": [handler], "tags": ["mine"], "metadata": {"user": "u1"}}
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        run(make(model, [given], name="adder"), "1+2", way, config)
    assert handler.names() == ONE_TOOL
    (chain,) = handler.of("on_chain_start")
    assert (chain.label, chain.parent) == ("adder", None)
    assert chain.said == {"input": "1+2"}
    for name in ("on_chat_model_start", "on_tool_start"):
        assert {event.parent for event in handler.of(name)} == {chain.run_id}
    for start, end in (("on_chat_model_start", "on_llm_end"), ("on_tool_start", "on_tool_end")):
        assert [event.run_id for event in handler.of(start)] == [event.run_id for event in handler.of(end)]
    (started,) = handler.of("on_tool_start")
    assert (started.label, started.said) == ("add", {"a": 1, "b": 2})
    (ended,) = handler.of("on_tool_end")
    assert str(getattr(ended.said, "content", ended.said)) == "3"
    (finished,) = handler.of("on_chain_end")
    assert (finished.run_id, finished.said["output"]) == (chain.run_id, "3")
    starts = [event for event in handler.events if event.name.endswith("_start")]
    assert all("mine" in event.tags for event in starts)
    assert all((event.metadata or {}).get("user") == "u1" for event in starts)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_of_calls_is_traced_call_by_call(way: str) -> None:
    """Every call of a batch has its own start and end, with its own id, under the run."""
    handler = Recorder()
    with ScriptedModel([[call("add", a=n, b=1) for n in range(4)], "ok"]) as model:
        run(make(model, [add]), "go", way, {"callbacks": [handler]})
    starts, ends = handler.of("on_tool_start"), handler.of("on_tool_end")
    assert sorted(event.said["a"] for event in starts) == [0, 1, 2, 3]
    assert {event.run_id for event in starts} == {event.run_id for event in ends}
    assert len({event.run_id for event in starts}) == 4
    assert len({event.parent for event in starts}) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_a_retried_tool_is_traced_at_every_attempt(way: str, kind: str) -> None:
    """A tool that fails once and then works has two starts, an error and an end; a refused call has none."""
    attempts: list[int] = []

    def body() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("down")
        return "up"

    @tool("flaky")
    def flaky() -> str:
        """Work the second time."""
        return body()

    @tool("flaky")
    async def aflaky() -> str:
        """Work the second time."""
        return body()

    handler = Recorder()
    script = [RuntimeError("model down"), [call("flaky"), call("unknown")], "done"]
    with ScriptedModel(script) as model:
        run(make(model, [flaky if kind == "sync" else aflaky]), "go", way, {"callbacks": [handler]})
    assert [name for name in handler.names() if "tool" in name] == [
        *("on_tool_start", "on_tool_error", "on_tool_start", "on_tool_end"),
    ]
    assert [name for name in handler.names() if "llm" in name or "chat" in name] == [
        *(
            "on_chat_model_start",
            "on_llm_error",
            "on_chat_model_start",
            "on_llm_end",
            "on_chat_model_start",
            "on_llm_end",
        ),
    ]
    assert handler.of("on_tool_error")[0].label == "ConnectionError"
    assert len({event.run_id for event in handler.of("on_tool_start")}) == 2


@pytest.mark.parametrize("way", WAYS)
def test_async_handlers_get_every_callback(way: str) -> None:
    """An async handler gets the same callbacks in the same order, from sync and async runs."""
    handler = AsyncRecorder()
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        run(make(model, [add]), "1+2", way, {"callbacks": [handler]})
    assert handler.inner.names() == ONE_TOOL


async def test_async_handlers_run_on_the_loop_of_the_run() -> None:
    """In an async run an async handler always runs on that run's loop, where the host's own clients and locks live."""

    async def aadd(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    handler = AsyncRecorder()
    with ScriptedModel([call("aadd", a=1, b=2), "3"]) as model:
        await make(model, [aadd]).ainvoke("1+2", {"callbacks": [handler]})
    assert handler.inner.names() == ONE_TOOL
    assert {event.loop for event in handler.inner.events} == {id(asyncio.get_running_loop())}


@pytest.mark.parametrize("kind", ["sync", "async", "langchain"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_tool_runs_is_a_child_of_the_tool(way: str, kind: str) -> None:
    """A runnable that a tool invokes, without passing anything on, appears below that tool's call."""
    wrapped: Runnable[Any, Any] = RunnableLambda(lambda text: f"<{text}>")
    inner = wrapped.with_config({"run_name": "inner"})

    def wraps(text: str) -> str:
        """Wrap."""
        return str(inner.invoke(text))

    @tool("wraps")
    async def awraps(text: str) -> str:
        """Wrap."""
        return str(await inner.ainvoke(text))

    given: Any = {"sync": wraps, "async": awraps, "langchain": langchain_tool(wraps)}[kind]
    handler = Recorder()
    with ScriptedModel([call("wraps", text="x"), "done"]) as model:
        result = run(make(model, [given]), "go", way, {"callbacks": [handler]})
    assert result.results[0].text == "<x>"
    (started,) = handler.of("on_tool_start")
    nested = [event for event in handler.of("on_chain_start") if event.label == "inner"]
    assert [event.parent for event in nested] == [started.run_id]


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_may_ask_for_the_config(way: str) -> None:
    """A parameter of type RunnableConfig gets the run's configurable values and callbacks; the model never sees it."""
    got: list[Any] = []

    def who(config: RunnableConfig, q: str = "") -> str:
        """Say who is asking."""
        got.append(config)
        return str(config["configurable"]["user"])

    handler = Recorder()
    config: Any = {"configurable": {"user": "u1", "thread_id": "t"}, "callbacks": [handler], "tags": ["mine"]}
    with ScriptedModel([call("who", q="x"), "done"]) as model:
        result = run(make(model, [who]), "go", way, config)
    assert result.results[0].text == "u1"
    assert "mine" in got[0]["tags"]
    assert list(model.requests[0].tools[0]["function"]["parameters"]["properties"]) == ["q"]


@pytest.mark.parametrize("way", WAYS)
def test_without_handlers_nothing_is_traced(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler, no callback machinery: tools are called directly."""
    from langchain_core.callbacks import AsyncCallbackManager, CallbackManager

    def forbidden(*_: Any) -> Any:
        raise AssertionError("traced without a handler")

    monkeypatch.setattr(CallbackManager, "on_tool_start", forbidden)
    monkeypatch.setattr(AsyncCallbackManager, "on_tool_start", forbidden)
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add]), "1+2", way)
    assert result.results[0].text == "3"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_callbacks_of_a_tool_itself_are_told_its_calls(way: str, kind: str) -> None:
    """A LangChain tool's own callbacks, tags and metadata are of its calls, also where nobody listens to the run."""
    inner: RunnableLambda[int, int] = RunnableLambda(lambda value: value + 1)

    async def abump(a: int) -> int:
        """Add one."""
        return int(await inner.ainvoke(a))

    @langchain_tool
    def bump(a: int) -> int:
        """Add one."""
        return inner.invoke(a)

    own, outer = Recorder(), Recorder()
    made = StructuredTool.from_function(coroutine=abump, name="bump") if kind == "async" else bump
    made.callbacks, made.tags, made.metadata = [own], ["slow"], {"team": "a"}
    with ScriptedModel([call("bump", a=1), "2", call("bump", a=1), "2"]) as model:
        agent = make(model, [made])
        run(agent, "go", way)
        assert own.names() == ["on_tool_start", "on_tool_end"]
        run(agent, "go", way, {"callbacks": [outer], "tags": ["host"]})
    assert own.names() == ["on_tool_start", "on_tool_end"] * 2
    (told,) = outer.of("on_tool_start")
    assert set(told.tags) == {"slow", "host"}
    assert told.metadata["team"] == "a"
    (child,) = [event for event in outer.of("on_chain_start") if event.parent == told.run_id]
    assert set(child.tags) == {"host"}


class Bump(BaseTool):
    """A tool that is written as LangChain's documentation writes one."""

    name: str = "bump"
    description: str = "Add one."

    def _run(self, a: int, run_manager: CallbackManagerForToolRun | None = None) -> int:
        assert run_manager is not None
        adding: RunnableLambda[int, int] = RunnableLambda(lambda value: value + 1)
        return adding.invoke(a, {"callbacks": run_manager.get_child()})

    async def _arun(self, a: int, run_manager: AsyncCallbackManagerForToolRun | None = None) -> int:
        assert run_manager is not None
        return self._run(a, run_manager=run_manager.get_sync())


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_gets_the_callback_manager_of_its_call(way: str, watched: bool) -> None:
    """`run_manager` is there whether anybody listens or not, async for an async tool; what the tool runs with it is a child of the call."""
    outer = Recorder()
    config: RunnableConfig = {"callbacks": [outer] if watched else []}

    async def apart(a: int, run_manager: AsyncCallbackManagerForToolRun) -> int:
        """Add one."""
        return Bump()._run(a, run_manager.get_sync())

    with ScriptedModel([[call("bump", a=1), call("apart", a=5)], "done"]) as model:
        result = run(make(model, [Bump(), apart]), "go", way, config)
    assert [one.text for one in result.results] == ["2", "6"]
    calls = {event.run_id for event in outer.of("on_tool_start")}
    assert {event.parent for event in outer.of("on_chain_start")[1:]} == calls
    assert len(calls) == 2 * watched


@pytest.mark.parametrize("way", WAYS)
def test_the_name_and_id_of_a_run_are_not_those_of_what_runs_inside(way: str) -> None:
    """Callbacks of the model itself see its calls, each with an id of its own, also where nobody listens to the run."""
    own = Recorder()
    inside: list[RunnableConfig] = []

    def look(a: int, config: RunnableConfig) -> str:
        """Look."""
        inside.append(config)
        return str(a)

    model = ScriptedModel([call("look", a=1), "1"])
    model.callbacks = [own]
    run_id = uuid4()
    result = run(make(model, [look]), "go", way, {"run_id": run_id, "run_name": "mine"})
    assert result.run_id == str(run_id)
    assert len({run_id, *(event.run_id for event in own.of("on_chat_model_start"))}) == 3
    assert not {"run_id", "run_name"} & inside[0].keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_raises_changes_nothing(way: str) -> None:
    """Like everywhere in LangChain, a handler's own error is a warning in the log and no more."""

    class Angry(Recorder):
        """Raises in every callback."""

        def note(self, kind: str, label: str, said: Any, given: dict[str, Any]) -> None:
            """Raise."""
            raise LookupError(kind)

    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add]), "1+2", way, {"callbacks": [Angry()]})
    assert (result.answer, result.results[0].text) == ("3", "3")


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_may_stop_the_run_leaves_the_thread_free(way: str) -> None:
    """A handler with raise_error refuses the run at its start: its error comes out, and the thread is not in use."""

    class Guarding(BaseCallbackHandler):
        """Lets nobody in."""

        raise_error = True

        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            """Refuse."""
            raise PermissionError("not you")

    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        with pytest.raises(PermissionError):
            run(agent, "go", way, {**THREAD, "callbacks": [Guarding()]})
        assert run(agent, "go", "invoke", THREAD).answer == "hello"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("once", [False, True])
def test_a_callback_that_fails_over_what_a_tool_returned_does_not_double_the_effect(way: str, once: bool) -> None:
    """With raise_error its error is told to the model as that of a call that took effect: no retry, no fallback, and `once` holds."""
    paid: list[str] = []

    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    class Failing(BaseCallbackHandler):
        """Cannot take in what tools return."""

        raise_error = True

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            """Fail."""
            raise RuntimeError("disk full")

    ask = call("pay", to="Ana")
    with ScriptedModel([ask, ask, "Paid."] if once else [ask, "Paid."]) as model:
        agent = make(model, [tool(once=once, fallback=tool("pay_anyway")(pay))(pay)])
        result = run(agent, "go", way, {"callbacks": [Failing()]})
    assert (result.status, paid) == ("completed", ["Ana"])
    assert "it returned, but a callback failed when told so (RuntimeError: disk full)" in result.messages[2].content


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", ["nothing", "config"])
@pytest.mark.parametrize("heard", [False, True])
def test_a_tool_dispatches_events_of_its_own_whether_or_not_anybody_listens(way: str, given: str, heard: bool) -> None:
    """LangChain refuses an event from outside of a run, and a run without callbacks is one too."""

    async def report(config: RunnableConfig) -> str:
        """Report."""
        await adispatch_custom_event("progress", 50, **({"config": config} if given == "config" else {}))
        return "told"

    def tell(config: RunnableConfig) -> str:
        """Tell."""
        dispatch_custom_event("progress", 100, **({"config": config} if given == "config" else {}))
        return "told"

    class Listening(BaseCallbackHandler):
        """Keeps what tools say."""

        def __init__(self) -> None:
            self.said: list[Any] = []

        def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            """Keep it."""
            self.said.append(data)

    handler = Listening()
    with ScriptedModel([call("report"), call("tell"), "Done."]) as model:
        result = run(make(model, [report, tell]), "go", way, {"callbacks": [handler]} if heard else None)
    assert [done.text for done in result.results] == ["told", "told"]
    assert handler.said == ([50, 100] if heard else [])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("traced", [False, True])
def test_what_a_model_is_configured_with_holds_in_a_run(way: str, traced: bool) -> None:
    """Callbacks and tags of `model.with_config` reach each call of the model, beside those of the run."""

    class Asked(BaseCallbackHandler):
        """Keeps the tags of each call of a model."""

        def __init__(self) -> None:
            self.tags: list[list[str]] = []

        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            """Keep them."""
            self.tags.append(sorted(kwargs["tags"]))

    own, of_run = Asked(), Asked()
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        configured = model.with_config(callbacks=[own], tags=["small"]).bind(stop=None)
        config: RunnableConfig = {"callbacks": [of_run], "tags": ["run"]} if traced else {}
        assert run(make(configured, [add]), "1+2", way, config).answer == "3"
    assert own.tags == [["run", "small"] if traced else ["small"]] * 2
    assert of_run.tags == (own.tags if traced else [])


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_run_ends_its_chain_and_a_broken_off_one_reports_an_error(way: str) -> None:
    """A typed failure is the chain's output; only what propagates is an error of the chain."""
    handler = Recorder()
    with ScriptedModel([ValueError("no")] * 2) as model:
        result = run(make(model), "go", way, {"callbacks": [handler]})
    (ended,) = handler.of("on_chain_end")
    assert ended.said == {"output": None, "status": "failed", "reason": "model_failed", "detail": result.detail}
    handler = Recorder()

    def interrupts() -> str:
        """Interrupt."""
        raise KeyboardInterrupt

    with ScriptedModel([call("interrupts")]) as model, pytest.raises(KeyboardInterrupt):
        run(make(model, [interrupts]), "go", way, {"callbacks": [handler]})
    assert handler.names()[-1] == "on_chain_error"
    assert "on_chain_end" not in handler.names()


def test_a_collector_of_runs_sees_the_whole_tree() -> None:
    """LangChain's own run collector, active by context only, gets one run with the model and tool runs below it."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model, collect_runs() as collected:
        run(make(model, [add], name="adder"), "1+2")
    (root,) = collected.traced_runs
    assert (root.name, root.run_type, root.error) == ("adder", "chain", None)
    assert [child.run_type for child in root.child_runs] == ["llm", "tool", "llm"]
    assert root.child_runs[1].name == "add"
    assert root.outputs is not None
    assert root.outputs["output"] == "3"


def test_a_run_inside_another_runnable_is_its_child() -> None:
    """Invoked inside a function of a chain, without passing the config on, the run is a child of that function."""
    handler = Recorder()
    with ScriptedModel(["hello"]) as model:
        agent = make(model, name="inside")
        outer_chain: Runnable[Any, Any] = RunnableLambda(lambda text: agent.invoke(text).answer)
        outer_chain.with_config({"run_name": "outer"}).invoke("hi", {"callbacks": [handler]})
    outer, inner = handler.of("on_chain_start")
    assert (outer.label, inner.label, inner.parent) == ("outer", "inside", outer.run_id)


def test_the_run_id_of_the_config_is_the_id_everywhere() -> None:
    """`config["run_id"]` is the run's id in the result and in the trace."""
    run_id, handler = uuid4(), Recorder()
    with ScriptedModel(["hello"]) as model:
        result = run(make(model), "hi", "invoke", {"run_id": run_id, "callbacks": [handler]})
    assert result.run_id == str(run_id)
    assert handler.of("on_chain_start")[0].run_id == run_id


@pytest.mark.parametrize("asynchronous", [False, True])
def test_callbacks_go_on_after_a_pause(asynchronous: bool) -> None:
    """A resumed run reports its further model and tool calls under the same run."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    handler = Recorder()
    with ScriptedModel([call("pay", amount=1), "done"]) as model:
        agent = make(model, [pay])
        config: Any = RUN | {"callbacks": [handler]}
        assert run(agent, "go", "ainvoke" if asynchronous else "invoke", config).status is Status.SUSPENDED
        agent.resume("r", decision=Approve())
    chain = handler.of("on_chain_start")[0]
    assert [event.parent for event in handler.of("on_tool_start")] == [chain.run_id]
    assert [event.parent for event in handler.of("on_chat_model_start")] == [chain.run_id] * 2


def approved(agent: Agent, config: Any, asynchronous: bool) -> RunResult:
    """The run "r", gone on with after an approval."""
    if asynchronous:
        return asyncio.run(agent.aresume("r", decision=Approve(), config=config))
    return agent.resume("r", decision=Approve(), config=config)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_that_another_process_goes_on_with_takes_a_config(asynchronous: bool, tmp_path: Path) -> None:
    """`resume` gives callbacks and tools the config that it is called with: no trail holds that of the process before."""

    @tool(requires_approval=True)
    def pay(amount: int, config: RunnableConfig) -> str:
        """Pay."""
        return f"{config['configurable']['user']} paid {amount}"

    before, handler = Recorder(), Recorder()
    store = tmp_path / "runs.db"
    with ScriptedModel([call("pay", amount=1)]) as model:
        run(make(model, [pay], store=store), "go", "invoke", RUN | {"callbacks": [before]})
    config: Any = {"configurable": {"user": "Ana"}, "callbacks": [handler], "run_name": "desk"}
    with ScriptedModel(["done"]) as model:
        result = approved(make(model, [pay], store=store), config, asynchronous)
    assert [one.text for one in result.results] == ["Ana paid 1"]
    (chain,) = handler.of("on_chain_start")
    assert chain.label == "desk"
    assert [event.parent for event in handler.of("on_tool_start")] == [chain.run_id]
    assert [event.parent for event in handler.of("on_chat_model_start")] == [chain.run_id]
    assert handler.names()[-1] == "on_chain_end"
    assert before.of("on_tool_start") == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_that_another_process_goes_on_with_is_seen_by_the_tracers_of_the_environment(
    asynchronous: bool, tmp_path: Path
) -> None:
    """Without a config, a resumed run is one chain for the tracers that are on for everything, as LangSmith is, tool calls included."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store = tmp_path / "runs.db"
    with ScriptedModel([call("pay", amount=1)]) as model:
        run(make(model, [pay], store=store), "go", "invoke", RUN)
    with ScriptedModel(["done"]) as model, collect_runs() as runs:
        approved(make(model, [pay], store=store), None, asynchronous)
    (root,) = runs.traced_runs
    assert (root.run_type, root.inputs) == ("chain", {"input": {"resume": "r"}})
    assert [child.run_type for child in root.child_runs] == ["tool", "llm"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_that_may_stop_a_resumed_run_leaves_it_waiting(asynchronous: bool) -> None:
    """A callback that raises before a run goes on leaves it as it was, for whoever resumes it next."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    class Strict(Recorder):
        """Raises when a chain starts."""

        raise_error = True

        def note(self, kind: str, label: str, said: Any, given: dict[str, Any]) -> None:
            """Raise."""
            raise LookupError(kind)

    with ScriptedModel([call("pay", amount=1), "done"]) as model:
        agent = make(model, [pay])
        run(agent, "go", "invoke", RUN)
        with pytest.raises(LookupError):
            approved(agent, {"callbacks": [Strict()]}, asynchronous)
        result = agent.resume("r", decision=Approve())
    assert [one.text for one in result.results] == ["paid 1"]


async def test_astream_events_shows_tokens_and_tools_and_changes_nothing() -> None:
    """The host's event stream has tokens, tool calls and the end; a cut call is not run although LangChain mends it."""
    executed: list[str] = []

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    script = [Call("purge", '{"scope": "tm'), call("add", a=1, b=2), "one two three"]
    with ScriptedModel(script) as model:
        events = [event async for event in make(model, [add, purge]).astream_events("go", version="v2")]
    kinds = [event["event"] for event in events]
    tokens = [event["data"]["chunk"].text for event in events if event["event"] == "on_chat_model_stream"]
    assert executed == []
    assert "".join(tokens).endswith("one two three")
    assert kinds.count("on_tool_start") == kinds.count("on_tool_end") == 1
    assert (kinds[0], kinds[-1]) == ("on_chain_start", "on_chain_end")


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


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_handler_that_wants_tokens_gets_them_and_a_cut_call_is_not_run(way: str) -> None:
    """LangGraph's stream of messages: `invoke` streams for its handler too, and what was cut off is read as strictly as ever."""
    executed: list[str] = []

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    tap = Tap()
    model = ScriptedModel([Call("purge", '{"scope": "tm'), "one two three"])
    items_of(make(model, [purge]), "go", way, {"callbacks": [tap]})
    assert executed == []
    assert "".join(tap.tokens) == "one two three"
    asked = Tap()
    with server(["one two three"]) as openai:
        items_of(make("openai:fake", base_url=openai.base_url), "go", way, {"callbacks": [asked]})
        assert [request.stream for request in openai.requests] == [True]
    assert "".join(asked.tokens) == "one two three"


# ---------------------------------------------------------------- loops, time-outs, interrupts


async def test_sync_calls_work_inside_a_running_loop() -> None:
    """In a notebook cell, where a loop runs, all sync methods work, with async tools too."""

    async def aadd(a: int, b: int) -> str:
        """Add."""
        await asyncio.sleep(0)
        return str(a + b)

    model = ScriptedModel(lambda request: "done" if "3" in request.messages[-1].text else call("aadd", a=1, b=2))
    agent = make(model, [aadd])
    assert agent.invoke("go").answer == "done"
    assert list(agent.stream("go"))[-1].answer == "done"
    assert [result.answer for result in agent.batch(["a", "b"])] == ["done", "done"]


def interrupt_main(started: threading.Event) -> Callable[[], Any]:
    """Press Ctrl-C once `started` is set and the main thread has gone to sleep.

    The pause is for the operating system: a signal that comes between Python's last look and the sleep wakes nobody.
    """
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert started.wait(PATIENCE)
        threading.Event().wait(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    return in_thread(interrupt)


def hanging(release: threading.Event, started: threading.Event) -> Any:
    """A model reply, for sync and async, that does not come before `release`."""

    def hangs(_: Any) -> str:
        started.set()
        release.wait(PATIENCE)
        return "late"

    return hangs


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("where", ["model", "tool", "batch", "stream"])
def test_an_interrupt_stops_a_sync_run_at_once(where: str, watched: bool) -> None:
    """Ctrl-C while model or tool hang: KeyboardInterrupt comes out at once, the run is terminal, the thread is free."""
    release, started = threading.Event(), threading.Event()
    seen = Seen()

    def hangs() -> str:
        """Hang."""
        started.set()
        release.wait(PATIENCE)
        return "late"

    first: Any = (
        hanging(release, started)
        if where in ("model", "stream")
        else [call("hangs"), call("add", a=1, b=2)][: 1 + (where == "batch")]
    )
    with ScriptedModel([first, "second"]) as model:
        agent = make(model, [hangs, add], observers=[seen] if watched else [])
        join = interrupt_main(started)
        with pytest.raises(KeyboardInterrupt):
            run(agent, "go", "stream" if where == "stream" else "invoke", RUN)
        join()
        if watched:
            last = seen.ended()
            assert (last.event, last.reason) == (Event.CANCELLED, StopReason.CANCELLED)
            assert last.source is (State.PLAN if where in ("model", "stream") else State.EXECUTE)
        assert agent.cancel("r") is False
        assert run(agent, "again", "invoke", THREAD).answer == "second"
    release.set()


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_handler_that_wants_events_gets_those_of_langchain_and_a_cut_call_is_not_run(way: str) -> None:
    """A handler of LangChain's newer streams is told events in the place of chunks: a stream of our own would leave it without any."""
    kind: Any = getattr(_streaming, "_V2StreamingCallbackHandler", None)
    if kind is None:
        pytest.skip("this LangChain has no such streams")
    executed: list[str] = []
    events: list[Any] = []

    class Events(Tap, kind):  # type: ignore[misc]  # a class that not every LangChain has
        """Both kinds at once, as LangGraph's newer handler."""

        def on_stream_event(self, event: Any, **kwargs: Any) -> None:
            """Keep it."""
            events.append(event)

    def purge(scope: str = "all") -> str:
        """Purge."""
        executed.append(scope)
        return "purged"

    model = ScriptedModel([Call("purge", '{"scope": "tm'), "one two three"])
    tap = Events()
    items_of(make(model, [purge]), "go", way, {"callbacks": [tap]})
    assert (executed, tap.tokens) == ([], [])
    assert events


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no masks of signals")
@pytest.mark.parametrize("watched", [False, True])
def test_an_interrupt_that_does_not_wake_the_caller_is_seen_all_the_same(watched: bool) -> None:
    """Ctrl-C in the moment before the caller begins to wait ends no wait: it must not last until the call is over."""
    release, ended = threading.Event(), []

    def hangs() -> str:
        """Hang, once a signal has come that another thread took."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        release.wait(8)
        ended.append(True)
        return "late"

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with ScriptedModel([call("hangs")]) as model, pytest.raises(KeyboardInterrupt):
            make(model, [hangs], observers=[Seen()] if watched else []).invoke("go")
        assert not ended
    finally:
        release.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_an_interrupt_as_the_pilot_lands_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the worst moment, when the worker's report was just taken: it comes out at once, and the run is over."""
    from fsm_agent import pilot

    report = pilot._Flight._report

    def interrupted(self: Any) -> Any:
        report(self)
        raise KeyboardInterrupt

    with ScriptedModel([call("add", a=1, b=2), "3", "second"]) as model:
        agent = make(model, [add])
        with monkeypatch.context() as patch:
            patch.setattr(pilot._Flight, "_report", interrupted)
            patch.setattr(pilot, "_PATIENCE", 0.05)
            with pytest.raises(KeyboardInterrupt):
                agent.invoke("go", RUN)
        assert agent.cancel("r") is False
        assert agent.invoke("again", RUN).answer == "second"


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
def test_an_interrupt_stops_an_async_run_at_once(way: str) -> None:
    """The same under `asyncio.run`."""
    started = threading.Event()
    seen = Seen()

    async def hangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    with ScriptedModel([hangs, "second"]) as model:
        agent = make(model, observers=[seen])
        join = interrupt_main(started)
        with pytest.raises(KeyboardInterrupt):
            run(agent, "go", way, RUN)
        join()
        assert seen.ended().reason is StopReason.CANCELLED
        assert run(agent, "again", "invoke", THREAD).answer == "second"


@pytest.mark.parametrize("how", ["timeout", "wait_for", "cancel", "group"])
@pytest.mark.parametrize("where", ["model", "async tool", "sync tool", "batch"])
async def test_async_cancellation_stops_at_once_and_propagates(where: str, how: str) -> None:
    """Time-outs, `cancel` and a failing TaskGroup: their own exception comes out at once, the run is terminal."""
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen = Seen()

    async def hangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def ahangs() -> str:
        """Hang."""
        return await hangs(None)

    def blocks() -> str:
        """Block."""
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)
        return "late"

    scripts: dict[str, Any] = {
        "model": hangs,
        "async tool": call("ahangs"),
        "sync tool": call("blocks"),
        "batch": [call("ahangs"), call("blocks"), call("add", a=1, b=2)],
    }
    with ScriptedModel([scripts[where], "second"]) as model:
        agent = make(model, [ahangs, blocks, add], observers=[seen])
        match how:
            case "timeout":

                async def limited() -> None:
                    async with asyncio.timeout(0.05):
                        await agent.ainvoke("go", RUN)

                with pytest.raises(TimeoutError):
                    await limited()
            case "wait_for":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(agent.ainvoke("go", RUN), 0.05)
            case "cancel":
                task = asyncio.ensure_future(agent.ainvoke("go", RUN))
                await started.wait()
                task.cancel("enough")
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert task.cancelled()
            case _:

                async def fails() -> None:
                    await started.wait()
                    raise LookupError

                async def together() -> None:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(agent.ainvoke("go", RUN))
                        group.create_task(fails())

                with pytest.raises(ExceptionGroup):
                    await together()
        last = seen.ended()
        assert last.event is Event.CANCELLED
        assert last.source is (State.PLAN if where == "model" else State.EXECUTE)
        assert agent.cancel("r") is False
        assert (await agent.ainvoke("again", THREAD)).answer == "second"
    release.set()


# ---------------------------------------------------------------- breaking off a stream


@pytest.mark.parametrize("at", [Transitioned, Token])
def test_closing_a_stream_cancels_its_run(at: type) -> None:
    """Whoever stops reading stops the run: closed anywhere, it is terminal at once and the thread is free."""
    seen = Seen()
    with ScriptedModel(["one two three", "second"]) as model:
        agent = make(model, observers=[seen])
        stream = agent.stream("go", RUN)
        for item in stream:
            if isinstance(item, at):
                break
        stream.close()  # type: ignore[attr-defined]  # it is a generator
        last = seen.ended()
        assert (last.target, last.reason) == (State.ABORT, StopReason.CANCELLED)
        assert agent.cancel("r") is False
        assert run(agent, "again", "invoke", THREAD).answer == "second"


def test_a_stream_dropped_in_a_loop_cancels_its_run() -> None:
    """A plain `break` is enough."""
    seen = Seen()
    with ScriptedModel([call("add", a=1, b=2)]) as model:
        agent = make(model, [add], observers=[seen])
        for _ in agent.stream("go", RUN):
            break
    assert seen.ended().reason is StopReason.CANCELLED


def test_a_stream_that_nobody_reads_is_no_run() -> None:
    """Without a first item nothing is asked and no thread is taken."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        unread: Iterator[Any] = agent.stream("go", RUN)
        assert run(agent, "go", "invoke", RUN).answer == "hello"
        del unread
    assert model.count == 1


@pytest.mark.parametrize("at", [Transitioned, Token])
async def test_closing_an_async_stream_cancels_its_run(at: type) -> None:
    """The same for `astream`: when `aclose` has returned, the run is terminal and the model's stream is closed."""
    seen, closed = Seen(), []

    class Closing(ScriptedModel):
        """Notes when its stream is closed."""

        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            try:
                async for chunk in super()._astream(*args, **kwargs):
                    yield chunk
            finally:
                closed.append(True)

    with Closing(["one two three", "second"]) as model:  # type: ignore[call-arg]  # pydantic's plugin forgets __init__
        agent = make(model, observers=[seen])
        async with aclosing(agent.astream("go", RUN)) as stream:  # type: ignore[type-var]  # it is an async generator
            async for item in stream:
                if isinstance(item, at):
                    break
        last = seen.ended()
        assert (last.target, last.reason) == (State.ABORT, StopReason.CANCELLED)
        assert closed
        assert agent.cancel("r") is False
        assert (await agent.ainvoke("again", THREAD)).answer == "second"


async def test_an_async_stream_dropped_in_a_loop_cancels_its_run() -> None:
    """A plain `break` is enough there too, as soon as the loop turns."""
    seen = Seen()
    with ScriptedModel([call("add", a=1, b=2)]) as model:
        agent = make(model, [add], observers=[seen])
        async for _ in agent.astream("go", RUN):
            break
        for _ in range(20):
            await asyncio.sleep(0)
    assert seen.ended().reason is StopReason.CANCELLED


# ---------------------------------------------------------------- agent.cancel


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["model", "tool", "batch"])
def test_cancel_from_another_thread_gives_a_result(where: str, way: str, watched: bool) -> None:
    """`agent.cancel` ends the run as cancelled, with its reason; the caller gets a result, not an exception."""
    release, started = threading.Event(), threading.Event()
    asynchronous = way.startswith("a")

    async def ahangs(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    def hangs() -> str:
        """Hang."""
        started.set()
        release.wait(PATIENCE)
        return "late"

    model_hangs: Any = ahangs if asynchronous else hanging(release, started)
    first: Any = {"model": model_hangs, "tool": call("hangs"), "batch": [call("hangs"), call("add", a=1, b=2)]}[where]
    with ScriptedModel([first]) as model:
        agent = make(model, [hangs, add], observers=[Seen()] if watched else [])
        join = in_thread(lambda: run(agent, "go", way, RUN))
        assert started.wait(PATIENCE)
        assert agent.cancel("r", "the user went home") is True
        result = join()
    release.set()
    assert (result.status, result.reason, result.answer) == (Status.CANCELLED, StopReason.CANCELLED, None)
    assert "the user went home" in result.detail
    assert result.transitions[-1].event is Event.CANCELLED
    assert agent.cancel("r") is False


def test_cancelling_what_is_not_there_is_false() -> None:
    """An unknown run, and one that has ended, cannot be cancelled."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        assert agent.cancel("r") is False
        run(agent, "go", "invoke", RUN)
        assert agent.cancel("r") is False


def test_cancelling_one_run_leaves_the_others() -> None:
    """Of two runs only the named one stops."""
    release, started = threading.Event(), threading.Semaphore(0)

    def hangs(_: Any) -> str:
        started.release()
        release.wait(PATIENCE)
        return "done"

    model = ScriptedModel(hangs)
    agent = make(model)
    joins = [
        in_thread(lambda run_id=run_id: agent.invoke("go", {"configurable": {"run_id": run_id}}))  # type: ignore[misc]  # a default binds it
        for run_id in ("a", "b")
    ]
    for _ in joins:
        assert started.acquire(timeout=PATIENCE)
    assert agent.cancel("a")
    assert joins[0]().status is Status.CANCELLED
    release.set()
    assert joins[1]().answer == "done"


def test_a_run_id_in_use_is_refused() -> None:
    """Two runs under one id could not be told apart: the second is a named error, the first goes on."""
    release, started = threading.Event(), threading.Event()
    with ScriptedModel([hanging(release, started), "after"]) as model:
        agent = make(model)
        join = in_thread(lambda: agent.invoke("go", RUN))
        assert started.wait(PATIENCE)
        with pytest.raises(RunBusy, match="r"):
            agent.invoke("go", {"configurable": {"run_id": "r"}})
        assert model.count == 1
        release.set()
        assert join().answer == "late"
        assert run(agent, "go", "invoke", RUN).answer == "after"


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("way", WAYS)
def test_the_second_turn_sees_the_first(way: str) -> None:
    """With a thread id the next run sees the one before, tool results included; its own result holds only its turn."""
    with ScriptedModel([call("add", a=1, b=2), "It is 3.", "I said 3."]) as model:
        agent = make(model, [add])
        run(agent, "What is 1+2?", way, THREAD)
        second = run(agent, "What did you say?", way, THREAD)
    assert [(message.type, message.text) for message in model.requests[2].messages[1:]] == [
        ("human", "What is 1+2?"),
        ("ai", ""),
        ("tool", "3"),
        ("ai", "It is 3."),
        ("human", "What did you say?"),
    ]
    assert (second.thread_id, [message.type for message in second.messages]) == ("t", ["human", "ai"])
    assert (second.steps, second.usage.total) == (1, 15)


def test_without_a_thread_nothing_is_remembered() -> None:
    """Runs without a thread id start from nothing."""
    with ScriptedModel(["a", "b"]) as model:
        agent = make(model)
        run(agent, "first")
        run(agent, "second")
    assert "first" not in model.requests[1].text


@pytest.mark.parametrize("way", WAYS)
def test_a_busy_thread_is_refused(way: str) -> None:
    """While a run has the thread, another one is a named error, before any model call and any callback."""
    release, started, handler = threading.Event(), threading.Event(), Recorder()
    with ScriptedModel([hanging(release, started), "after"]) as model:
        agent = make(model)
        join = in_thread(lambda: agent.invoke("go", THREAD))
        assert started.wait(PATIENCE)
        with pytest.raises(RunBusy):
            run(agent, "me too", way, {**THREAD, "callbacks": [handler]})
        assert (model.count, handler.events) == (1, [])
        release.set()
        join()
        assert run(agent, "me too", way, THREAD).answer == "after"


def test_a_suspended_run_keeps_its_thread() -> None:
    """A thread whose run waits for a person is in use until that run is resumed or cancelled."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    with ScriptedModel([call("pay"), "paid it", "next"]) as model:
        agent = make(model, [pay])
        run(agent, "pay", "invoke", RUN)
        with pytest.raises(RunBusy):
            run(agent, "another", "invoke", THREAD)
        agent.resume("r", decision=Approve())
        assert run(agent, "another", "invoke", THREAD).answer == "next"
    assert "paid it" in model.requests[2].text


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_turn_is_rolled_back_or_valid(way: str) -> None:
    """A turn that failed before anything happened is forgotten; one whose tools ran is kept, without error texts."""
    script = [ValueError("no"), call("add", a=1, b=2), ValueError("no"), "fine"]
    with ScriptedModel(script) as model:
        agent = make(model, [add], limits={"max_retries": 0})
        for task in ("one", "two", "three"):
            run(agent, task, way, THREAD)
    sent = [(message.type, message.text) for message in model.requests[3].messages[1:]]
    assert sent == [("human", "two"), ("ai", ""), ("tool", "3"), ("human", "three")]


def test_a_store_of_ones_own_is_used() -> None:
    """Anything with open and close can keep conversations, and is told every turn."""

    class Store:
        """Keeps histories and a log."""

        def __init__(self) -> None:
            self.log: list[tuple[str, ...]] = []
            self.kept: dict[str, Any] = {}

        def open(self, thread_id: str, run_id: str) -> Any:
            """Open."""
            self.log.append(("open", thread_id, run_id))
            return self.kept.get(thread_id, ())

        def close(self, thread_id: str, run_id: str, history: Any) -> None:
            """Close."""
            self.log.append(("close", thread_id, run_id))
            if history is not None:
                self.kept[thread_id] = history

    store = Store()
    with ScriptedModel(["a", "b"]) as model:
        agent = make(model, store=store)
        run(agent, "first", "invoke", RUN)
        run(agent, "second", "invoke", RUN)
    assert store.log == [("open", "t", "r"), ("close", "t", "r")] * 2
    assert "first" in model.requests[1].text


# ---------------------------------------------------------------- people


def transfer(amount: int) -> str:
    """Transfer money."""
    return f"transferred {amount}"


ASKING = tool(requires_approval=True)(transfer)


def resumed(agent: Agent, decision: Any, way: str) -> RunResult:
    """The run "r", resumed."""
    return (
        asyncio.run(agent.aresume("r", decision=decision))
        if way.startswith("a")
        else agent.resume("r", decision=decision)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("decision", "text"),
    [(Approve(), "transferred 10"), (Edit({"amount": 5}), "transferred 5"), (Deny("too much"), "too much")],
    ids=["approve", "edit", "deny"],
)
def test_a_suspended_run_goes_on_as_decided(decision: Any, text: str, way: str) -> None:
    """A run that needs a person is suspended with what is asked, and goes on with the decision to its own end."""
    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [ASKING])
        waiting = run(agent, "pay", way, RUN)
        assert (waiting.status, waiting.reason, waiting.answer) == (Status.SUSPENDED, None, None)
        assert waiting.pending is not None
        assert [(one.tool, dict(one.arguments)) for one in waiting.pending.calls] == [("transfer", {"amount": 10})]
        assert "agent.resume('r'" in waiting.detail
        result = resumed(agent, decision, way)
    assert (result.status, result.answer, result.run_id) == (Status.COMPLETED, "done", "r")
    assert text in model.requests[1].messages[-1].text
    assert result.transitions[: len(waiting.transitions)] == waiting.transitions
    assert result.usage.total == 30


def test_each_call_can_have_its_own_decision() -> None:
    """A mapping decides call by call."""
    batch = [call("transfer", amount=1), call("transfer", amount=2), call("transfer", amount=3)]
    with ScriptedModel([batch, "done"]) as model:
        agent = make(model, [ASKING])
        waiting = run(agent, "pay", "invoke", RUN)
        assert waiting.pending is not None
        one, two, three = (each.id for each in waiting.pending.calls)
        agent.resume("r", decision={one: Approve(), two: Deny("no"), three: Edit({"amount": 30})})
    texts = [message.text for message in model.requests[1].messages if message.type == "tool"]
    assert texts[0] == "transferred 1"
    assert "no" in texts[1]
    assert texts[2] == "transferred 30"


@pytest.mark.parametrize(
    ("way", "asynchronous"), [*((way, False) for way in WAYS), ("ainvoke", True), ("astream", True)]
)
@pytest.mark.parametrize("said", [True, False, Approve(), Deny("no"), Edit({"amount": 5})])
def test_approve_answers_in_place(said: Any, way: str, asynchronous: bool) -> None:
    """A callable decides at once: a truth value or a decision; an async callable where the run is async."""
    asked: list[Any] = []

    async def aapprove(one: Any) -> Any:
        await asyncio.sleep(0)
        asked.append(one)
        return said

    def approve(one: Any) -> Any:
        asked.append(one)
        return said

    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        result = run(make(model, [ASKING], approve=aapprove if asynchronous else approve), "pay", way)
    assert (result.status, len(asked), asked[0].tool) == (Status.COMPLETED, 1, "transfer")
    told = model.requests[1].messages[-1].text
    if said is True or isinstance(said, Approve):
        assert told == "transferred 10"
    elif isinstance(said, Edit):
        assert told == "transferred 5"
    else:
        assert "refused" in told
        assert result.tool_calls == 0


def test_an_async_approver_in_a_sync_run_is_wrong_use() -> None:
    """It executes nothing, says what to do, and leaves no coroutine unawaited."""

    async def approve(_: Any) -> bool:
        return True

    model = ScriptedModel([call("transfer", amount=10), "done"])
    with pytest.raises(RunError, match="ainvoke"):
        run(make(model, [ASKING], approve=approve), "pay")


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_person_is_asked_on_the_thread_of_the_caller(way: str) -> None:
    """A terminal or a window belongs to one thread: `approve`, observers and the store are called on the caller's."""
    threads: dict[str, set[int]] = {"approve": set(), "observer": set(), "store": set()}

    def noting(what: str) -> None:
        threads[what].add(threading.get_ident())

    class Store:
        """Keeps nothing."""

        def open(self, thread_id: str, run_id: str) -> Any:
            """Open."""
            noting("store")
            return ()

        def close(self, thread_id: str, run_id: str, history: Any) -> None:
            """Close."""
            noting("store")

    def approve(_: Any) -> bool:
        noting("approve")
        return True

    for observers in ([], [lambda _: noting("observer")]):
        with ScriptedModel([call("add", a=1, b=2), call("transfer", amount=10), "done"]) as model:
            agent = make(model, [add, ASKING], approve=approve, store=Store(), observers=observers)
            assert run(agent, "pay", way, THREAD).answer == "done"
    assert threads == {what: {threading.get_ident()} for what in threads}


def test_only_some_calls_may_need_a_person() -> None:
    """`requires_approval` may be a function of the arguments."""
    asked: list[Any] = []

    def approve(one: Any) -> bool:
        asked.append(one.arguments["amount"])
        return False

    @tool(requires_approval=lambda arguments: arguments["amount"] > 100)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    with ScriptedModel([[call("pay", amount=1), call("pay", amount=1000)], "done"]) as model:
        run(make(model, [pay], approve=approve), "go")
    assert asked == [1000]


def test_resuming_what_does_not_wait_is_an_error() -> None:
    """An unknown run, and a completed one, cannot be resumed."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        run(agent, "go", "invoke", RUN)
        with pytest.raises(UnknownRun):
            agent.resume("r", decision=Approve())


# ---------------------------------------------------------------- inputs


PROMPT = ChatPromptTemplate.from_messages([("human", "{q}")])
FORMS: list[tuple[str, Any]] = [
    ("text", "hello"),
    ("message", HumanMessage("hello")),
    ("messages", [HumanMessage("hello")]),
    ("pairs", [("user", "hello")]),
    ("pair", ("user", "hello")),
    ("dicts", [{"role": "user", "content": "hello"}]),
    ("dict", {"role": "user", "content": "hello"}),
    ("task", {"task": "hello"}),
    ("input", {"input": "hello"}),
    ("mapping", {"messages": [("user", "hello")]}),
    ("mapping-pair", {"messages": ("user", "hello")}),
    ("mapping-dict", {"messages": {"role": "user", "content": "hello"}}),
    ("no-history", {"input": "hello", "chat_history": []}),
    ("prompt", PROMPT.invoke({"q": "hello"})),
    ("blocks", HumanMessage([{"type": "text", "text": "hello"}])),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "given"), FORMS, ids=[form[0] for form in FORMS])
def test_every_form_of_a_task(name: str, given: Any, way: str) -> None:
    """A text, a message, messages in LangChain's forms, a prompt value, or a mapping that holds one of them."""
    with ScriptedModel(["hi"]) as model:
        assert run(make(model), given, way).answer == "hi", name
    (sent,) = [message for message in model.requests[0].messages if message.type == "human"]
    assert sent.text == "hello"


def test_earlier_turns_of_the_caller_are_sent() -> None:
    """Messages before the last are the conversation so far."""
    with ScriptedModel(["three"]) as model:
        run(make(model), [HumanMessage("one"), AIMessage("two"), HumanMessage("what next?")])
    assert [message.text for message in model.requests[0].messages[1:]] == ["one", "two", "what next?"]


def test_earlier_turns_may_stand_beside_the_task() -> None:
    """`chat_history`, as `RunnableWithMessageHistory` and the agents before it have it, is the conversation so far."""
    earlier = [SystemMessage("Be terse."), ("user", "one"), AIMessage("two")]
    with ScriptedModel(["three"]) as model:
        run(make(model), {"input": "what next?", "chat_history": earlier})
    system, *said = [message.text for message in model.requests[0].messages]
    assert said == ["one", "two", "what next?"]
    assert system.endswith("Be terse.")
    assert [one.text for one in read_input({"input": "go", "chat_history": ("user", "one")}).earlier] == ["one"]


WRONG: list[tuple[str, Any, str]] = [
    ("empty", "", "empty"),
    ("blank", " \n ", "empty"),
    ("none", None, "NoneType"),
    ("number", 5, "int"),
    ("empty-list", [], "empty list"),
    ("no-key", {"question": "hello"}, "question"),
    ("empty-mapping", {}, "none"),
    ("assistant-last", [HumanMessage("a"), AIMessage("b")], "AIMessage"),
    ("system-only", [SystemMessage("a")], "SystemMessage"),
    ("blank-message", HumanMessage(""), "empty"),
    ("no-blocks", HumanMessage([]), "empty"),
    ("blank-block", HumanMessage([{"type": "text", "text": " "}]), "empty"),
    ("assistant-pair", ("assistant", "hello"), "AIMessage"),
    ("history-text", {"input": "hello", "chat_history": "Human: hi"}, "chat_history is str"),
    ("history-odd", {"input": "hello", "chat_history": [5]}, "no list of messages"),
    ("bytes", b"hello", "bytes"),
    ("odd-list", [object()], "object"),
    ("nested", {"task": {"task": ""}}, "empty"),
]


@pytest.mark.parametrize("way", WAYS)
def test_an_argument_that_nobody_would_read_is_refused(way: str) -> None:
    """`invoke(task, thread_id=...)` would keep no thread: it says where that goes, before anything happens."""
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=r"takes no thread_id: .*\"configurable\""):
            run(agent.bind(thread_id="ana"), "hello", way)
        assert model.count == 0
        assert run(agent, "hello", way).answer == "hi"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", [" ", "a\nb"])
def test_a_run_id_is_a_text_of_one_line(odd: str, way: str) -> None:
    """An id that would break a line of a log or of the list of runs is refused before anything happens; any script is fine."""
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=r"run id is .*; give a text of one line"):
            run(agent, "hello", way, {"configurable": {"run_id": odd}})
        assert model.count == 0
        assert run(agent, "hello", way, {"configurable": {"run_id": "第 1 次/a"}}).run_id == "第 1 次/a"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "given", "says"), WRONG, ids=[wrong[0] for wrong in WRONG])
def test_a_wrong_input_is_refused_before_anything_happens(name: str, given: Any, says: str, way: str) -> None:
    """What is no task raises a `RunError` that says what was wrong: no model call, no thread taken, no callback."""
    handler = Recorder()
    with ScriptedModel(["hi"]) as model:
        agent = make(model)
        with pytest.raises(RunError, match=says):
            run(agent, given, way, {**THREAD, "callbacks": [handler]})
        assert (model.count, handler.events) == (0, []), name
        assert run(agent, "hello", "invoke", THREAD).answer == "hi"


class Kit(BaseToolkit):
    """A toolkit, which is no list of tools, but can be iterated as any pydantic model."""

    def get_tools(self) -> list[BaseTool]:
        """One."""
        return [langchain_tool(add)]


def test_tools_may_be_none_and_those_of_a_toolkit() -> None:
    """None is for no tools, as elsewhere; a toolkit gives its own by `get_tools`."""
    assert make(ScriptedModel([]), None).tools.names() == ()
    assert make(ScriptedModel([]), Kit().get_tools()).tools.names() == ("add",)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Agent(object()), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(None), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(lambda text: text), "chat model"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), [5]), "tool"),  # type: ignore[list-item]  # that is the point
        (lambda: Agent(ScriptedModel([]), [add, add]), "add"),
        (lambda: Agent(ScriptedModel([]), langchain_tool(add)), "kind StructuredTool: give a list"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), Kit()), r"get_tools\(\)"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([]), dialect="klingon"), "klingon"),
        (lambda: Agent(ScriptedModel([]), [tool(name="FINISH")(add)], dialect="json_action"), "'FINISH' here"),
        (lambda: Agent(ScriptedModel([]), [tool(name="THINK")(add)], dialect="guided_json"), "'THINK' here"),
        (lambda: Agent(ScriptedModel([]), limits=Limits(max_steps=0)), "max_steps"),
        (lambda: Agent("gpt-4o-mini"), "OPENAI_API_KEY"),
        (lambda: Agent(ScriptedModel([]), ladder=["rope"]), "fallback, default, strategy, simpler, answer, stop"),
        (lambda: Agent(ScriptedModel([]), language="fr"), "en, zh"),  # type: ignore[arg-type]  # that is the point
        (lambda: Agent(ScriptedModel([])).pause_at("LUNCH"), "PLAN"),
        (lambda: Agent(ScriptedModel([]), store=""), "names no file"),
    ],
    ids="object none function tool twice single kit dialect finish think limits key ladder language state store".split(),
)
def test_a_wrong_definition_is_refused_when_it_is_made(build: Callable[[], Agent], says: str) -> None:
    """What is wrong with a definition is said at once, with what to give instead."""
    with pytest.raises(DefinitionError, match=says):
        build()


@pytest.mark.parametrize("way", WAYS)
def test_a_request_without_tools_says_nothing_of_tools(way: str) -> None:
    """What `bind` and `bind_tools` said of tools is left out where an answer is asked for without them: OpenAI would refuse it."""
    with server([call("add", a=1, b=2), "3"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url)
        bound = model.bind_tools([add], tool_choice="auto", parallel_tool_calls=False).bind(seed=7)
        result = run(make(bound, [add], limits={"max_steps": 1}), "1+2", way)
        first, last = [request.body for request in openai.requests]
    assert (result.reason, result.answer) == (StopReason.FORCED_ANSWER, "3")
    assert (first["tool_choice"], first["parallel_tool_calls"], first["seed"]) == ("auto", False, 7)
    assert ("tools" in last, "tool_choice" in last, "parallel_tool_calls" in last, last["seed"]) == (False,) * 3 + (7,)


def test_tools_that_a_model_brings_along_are_those_of_an_agent_without_any() -> None:
    """A provider's own tools, bound to the model, are offered by an agent that has none; a bound choice among none is not."""
    with server(["one", "two"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url)
        make(model.bind_tools([add])).invoke("go")
        make(model.bind(parallel_tool_calls=False)).invoke("go")
        first, last = openai.requests
    assert first.tool_names == ("add",)
    assert "parallel_tool_calls" not in last.body


@pytest.mark.parametrize("way", WAYS)
def test_a_model_bound_to_stream_is_asked_as_the_run_needs_it(way: str) -> None:
    """`bind(stream=True)` changes nothing of what comes of a run."""
    with server(["hello"]) as openai:
        model = resolve("openai:fake", base_url=openai.base_url).bind(stream=True)
        assert run(make(model), "go", way).answer == "hello"


def test_a_model_that_cannot_call_tools_is_refused_before_any_run() -> None:
    """A model without tool calling is a wrong definition for the native dialect, and fine for another."""

    class Plain(ScriptedModel):
        """Has no tool calling."""

        def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
            """Refuse, as LangChain's base class does."""
            raise NotImplementedError

    plain: Any = Plain  # for mypy, which knows only the constructor that pydantic's plugin makes up
    with pytest.raises(DefinitionError, match="json_action"):
        make(plain([]), [add])
    said = '{"action": "FINISH", "action_input": {"answer": "ok"}}'
    assert run(make(plain([said]), [add], dialect="json_action"), "go").answer == "ok"
    assert issubclass(ModelError, DefinitionError)


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `limits` the agent reads them from FSM_AGENT_..., and what is wrong there is named."""
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "3")
    agent = Agent(ScriptedModel([]), logger=silent_logger())
    assert agent.limits.max_steps == 3
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "many")
    with pytest.raises(DefinitionError, match="FSM_AGENT_MAX_STEPS"):
        Agent(ScriptedModel([]))


# ---------------------------------------------------------------- tools that come and go, many runs


@pytest.mark.parametrize("way", WAYS)
def test_tools_may_be_registered_while_a_run_goes_on(way: str) -> None:
    """A tool that was registered in one step is offered in the next; one that was taken away is unknown."""

    def extra() -> str:
        """Be extra."""
        return "extra"

    def grow() -> str:
        """Grow."""
        agent.tools.register(extra)
        agent.tools.unregister("grow")
        return "grown"

    with ScriptedModel([call("grow"), call("extra"), call("grow"), "done"]) as model:
        agent = make(model, [grow])
        result = run(agent, "go", way)
    assert [request.tool_names for request in model.requests] == [("grow",), ("extra",), ("extra",), ("extra",)]
    assert [one.text for one in result.results] == ["grown", "extra"]
    assert "There is no tool" in model.requests[3].text


async def test_many_concurrent_runs_of_every_kind() -> None:
    """Sixty runs at once - completed, failed, suspended, cancelled - on one agent: each ends as it should."""

    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    script: dict[str, Any] = {}
    for n in range(15):
        script[f"<good-{n}>"] = [call("add", a=n, b=1), f"good {n}"]
        script[f"<bad-{n}>"] = [ValueError(f"bad {n}")] * 2
        script[f"<ask-{n}>"] = [call("transfer", amount=n), f"asked {n}"]
        script[f"<hang-{n}>"] = [call("hang")]
    model = ScriptedModel(by_task=script)
    agent = make(model, [add, ASKING, hang])

    async def one(task: str) -> RunResult:
        return await agent.ainvoke(task, {"configurable": {"run_id": task, "thread_id": task}})

    tasks = {task: asyncio.ensure_future(one(task)) for task in script}
    while any(not job.done() for task, job in tasks.items() if "hang" not in task):
        await asyncio.sleep(0.005)
    for n in range(15):
        assert agent.cancel(f"<hang-{n}>")
        assert (await agent.aresume(f"<ask-{n}>", decision=Approve())).answer == f"asked {n}"
    results = {task: await job for task, job in tasks.items()}
    for n in range(15):
        assert results[f"<good-{n}>"].answer == f"good {n}"
        assert f"bad {n}" in results[f"<bad-{n}>"].detail
        assert results[f"<ask-{n}>"].status is Status.SUSPENDED
        assert results[f"<hang-{n}>"].status is Status.CANCELLED
    with contextlib.suppress(UnknownRun):
        agent.resume("<good-0>", decision=Approve())
        raise AssertionError("a completed run was resumed")


def test_a_tool_written_out_in_full_works_too() -> None:
    """`Tool(...)` by hand, with a model of its own arguments."""
    from pydantic import BaseModel, Field

    class Arguments(BaseModel):
        """What it takes."""

        engine: str = Field(pattern="^(google|bing)$")

    search = Tool(name="search", description="Search.", args_model=Arguments, func=lambda engine: f"with {engine}")
    with ScriptedModel([call("search", engine="yahoo"), call("search", engine="bing"), "done"]) as model:
        result = run(make(model, [search]), "go")
    assert [one.text for one in result.results] == ["with bing"]
    assert '"engine"' in model.requests[1].text
