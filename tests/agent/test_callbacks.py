"""What LangChain callbacks and tracers are told of a run, and what becomes of it when they fail."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import StructuredTool
from langchain_core.tools import tool as langchain_tool
from langchain_core.tracers.context import collect_runs

from fsm_agent import tool
from fsm_agent.testing import ScriptedModel, call
from tests.agent.kit import THREAD, WAYS, Recorder, add, make, run


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


@pytest.mark.parametrize("given", [{"input": "1+2"}, {"task": "1+2", "chat_history": []}], ids=["input", "task"])
@pytest.mark.parametrize("way", WAYS)
def test_a_mapping_is_told_as_it_was_given(way: str, given: dict[str, Any]) -> None:
    """Callbacks find its keys where those of any runnable are: a mapping is not wrapped into another one."""
    handler = Recorder()
    with ScriptedModel(["3"]) as model:
        run(make(model), given, way, {"callbacks": [handler]})
    assert [event.said for event in handler.of("on_chain_start")] == [given]


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
