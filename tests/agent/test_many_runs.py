"""Tools that come and go, and many runs at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Approve, RunResult, Status, Tool
from fsm_agent.errors import UnknownRun
from fsm_agent.testing import ScriptedModel, call
from tests.agent.kit import ASKING, WAYS, add, make, run


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


FORKS = """
import os, sys, threading, warnings
from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel
warnings.simplefilter("ignore")  # newer versions of Python warn of every fork
asked, leave, inside, ends = (threading.Event() for _ in range(4))
def hang(request):
    asked.set()
    leave.wait()
    return "parent"
def change():
    with agent._runner.slots.lock, agent.conversations._claims._lock:
        inside.set()
        ends.wait()
agent = Agent(ScriptedModel([hang, "child"]), logger=silent_logger())
config = {"configurable": {"thread_id": "t", "run_id": "r"}}
said = []
run = threading.Thread(target=lambda: said.append(agent.invoke("go", config).answer))
run.start()
asked.wait()
threading.Thread(target=change).start()
inside.wait()
os.register_at_fork(before=ends.set)  # called before the hooks that are there already
child = os.fork()
if child == 0:
    os._exit(0 if not agent.cancel("r") and agent.invoke("go", config).answer == "child" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
leave.set()
run.join()
assert said == ["parent"]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_made_by_fork_has_no_run_of_its_parent() -> None:
    """While runs are under way, also with a lock in the hands of another thread: the child uses the agent, and the thread of such a run."""
    subprocess.run([sys.executable, "-c", FORKS], cwd=Path(__file__).parents[2], check=True, timeout=60)


FORKING = """
import os, sys, threading, warnings
from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel
warnings.simplefilter("ignore")
sys.setswitchinterval(1e-6)  # let the threads meet within the hooks
agents = [Agent(ScriptedModel(["hello"]), logger=silent_logger()) for _ in range(8)]
def forks():
    for _ in range(50):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
forking = [threading.Thread(target=forks, daemon=True) for _ in range(4)]
for one in forking:
    one.start()
for one in forking:
    one.join()
assert [one.invoke("go").answer for one in agents] == ["hello"] * 8
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_that_fork_at_once_leave_the_agent_as_it_was() -> None:
    """Two forks that meet wait for each other, and give back what they have brought to rest."""
    subprocess.run([sys.executable, "-c", FORKING], cwd=Path(__file__).parents[2], check=True, timeout=60)
