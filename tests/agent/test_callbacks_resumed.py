"""What callbacks and tracers are told of a run that goes on: after a pause, or in another process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.context import collect_runs

from fsm_agent import Agent, Approve, RunResult, Status, tool
from fsm_agent.testing import ScriptedModel, call
from tests.agent.kit import RUN, Recorder, make, run


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
    assert (root.run_type, root.inputs) == ("chain", {"resume": "r"})
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
