"""What tools and models are handed of LangChain's: its config, its managers, its events."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import (
    AsyncCallbackManagerForToolRun,
    BaseCallbackHandler,
    CallbackManagerForToolRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool

from fsm_agent.testing import ScriptedModel, call
from tests.agent.kit import WAYS, Recorder, add, make, run


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
