"""Runs whose tools change while they go on: the trail says so, and every reader of it goes by that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import Agent, Approve, Deny, Edit, Status, Tool, tool
from fsm_agent.errors import TrailVersion
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import Registry
from fsm_agent.tools.spec import as_tool
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.fork import fork
from fsm_agent.trail.replay import replay

RUN: Any = {"configurable": {"run_id": "r"}}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def shout_twice(text: str, times: int = 2) -> str:
    """Say it louder, again and again."""
    return text.upper() * times


def agent_on(store: Any, replies: list[Any], tools: Any) -> Agent:
    """An agent as a process of its own would make it."""
    return Agent(ScriptedModel(replies), tools, store=store, logger=silent_logger())


def changing(registry: Registry) -> Tool:
    """A tool that changes the tools: it adds `shout`, then puts another in its place, then takes it and itself away."""

    @tool(repeatable=True)
    def change() -> str:
        """Change the tools."""
        found = registry.get("shout")
        if found is None:
            registry.register(shout)
        elif "times" in found.parameters()["properties"]:
            registry.unregister("shout")
            registry.unregister("change")
        else:
            registry.unregister("shout")
            registry.register(replace(as_tool(shout_twice), name="shout"))
        return f"{len(registry)} tools"

    return change


SCRIPT: list[Any] = [
    call("change"),
    call("shout", text="a"),
    call("change"),
    call("shout", text="b", times=3),
    call("change"),
    call("shout", text="c"),
    "done",
]


def changed_run(store: MemoryTrail, script: list[Any] = SCRIPT) -> tuple[Agent, ScriptedModel]:
    """An agent whose tools changed while it ran, and its model."""
    registry = Registry([add])
    registry.register(changing(registry))
    agent = agent_on(store, script, registry)
    assert agent.invoke("go", RUN).status is Status.COMPLETED
    model = agent.model
    assert isinstance(model, ScriptedModel)
    return agent, model


def test_a_run_sees_the_tools_as_they_are_at_each_step() -> None:
    """What is registered is offered from the next step on, what is taken away no more, and what is replaced as it is now."""
    _, model = changed_run(MemoryTrail())
    offered = [request.tool_names for request in model.requests]
    before, both, alone = ("add", "change"), ("add", "change", "shout"), ("add",)
    assert offered == [before, both, both, both, both, alone, alone]


def test_a_trail_of_changing_tools_is_honest() -> None:
    """The agent that ran it, and a reader without any, audit and replay it to where it led."""
    store = MemoryTrail()
    agent, _ = changed_run(store)
    entries = agent.journal.entries("r")
    assert [len(one.body["tools"]) for one in entries if one.kind == "changed"] == [3, 3, 1]
    for setup in (agent.setup, None):
        assert audit(agent.journal, "r", setup).findings == ()
        folded = replay(entries, setup).folded
        assert (folded.ctx.answer, folded.ctx.setup.tools.names()) == ("done", ("add",))
        assert [done.result.text for done in folded.ctx.done if done.call.tool == "shout"] == ["A", "BBB"]


def test_an_audit_names_other_tools_than_the_newest_of_the_run() -> None:
    """The tools of the agent are compared with those that the run had last."""
    store = MemoryTrail()
    changed_run(store)
    for tools, right in (([add], True), ([add, pay], True), ([pay], False)):
        other = agent_on(store, [], tools)
        found = [one.what for one in audit(other.journal, "r", other.setup).findings]
        assert found == ([] if right else ["the tools here are others than those of the run: add"])


def test_a_run_whose_tools_changed_goes_on_in_another_process() -> None:
    """A run that waits for a person after its tools changed is resumed by an agent with the tools that it has now."""
    store, registry = MemoryTrail(), Registry([add])

    @tool
    def learn() -> str:
        """Learn to pay."""
        registry.register(pay)
        registry.unregister("learn")
        return "learned"

    registry.register(learn)
    assert agent_on(store, [call("learn"), call("pay", to="bob")], registry).invoke("go", RUN).requests
    with pytest.raises(TrailVersion, match="pay missing"):
        agent_on(store, [], [add]).resume("r", decision=Approve())
    other = agent_on(store, ["done"], [add, pay])
    assert other.resume("r", decision=Approve()).answer == "done"
    assert audit(other.journal, "r", other.setup).findings == ()
    fork(other.journal, "r", at=6, new_run_id="f")
    again = agent_on(store, ["forked"], [add, pay])
    assert again.resume("f").requests[0].tool == "pay"
    assert again.resume("f", decision=Approve()).answer == "forked"


@pytest.mark.parametrize("store", [None, MemoryTrail()], ids=["no store", "store"])
@pytest.mark.parametrize("decision", [Approve(), Edit({"to": "ann"})], ids=["approved", "edited"])
def test_a_yes_is_not_for_a_tool_that_took_the_name_since(store: Any, decision: Any) -> None:
    """What a person lets through is the tool that was shown: another one of that name is refused, and the run waits as it did."""
    paid: list[str] = []

    @tool("pay", requires_approval=True)
    def pay_twice(to: str, times: int = 2) -> str:
        """Pay somebody, again and again."""
        paid.extend([to] * times)
        return "paid"

    registry = Registry([pay, add])
    agent = agent_on(store, [call("pay", to="bob"), "done"], registry)
    run_id = agent.invoke("pay bob").run_id
    registry.unregister("pay")
    registry.register(pay_twice)
    with pytest.raises(TrailVersion, match="another definition of pay"):
        agent.resume(run_id, decision=decision)
    assert not paid
    registry.unregister("pay")
    registry.register(pay, shout)
    assert agent.resume(run_id, decision=decision).status is Status.COMPLETED


def test_a_no_needs_no_tool() -> None:
    """Without a store a call whose tool was replaced while it waited can be denied, and the run goes on."""
    registry = Registry([pay])
    agent = agent_on(None, [call("pay", to="bob"), "not paid"], registry)
    run_id = agent.invoke("pay bob").run_id
    registry.unregister("pay")
    registry.register(replace(pay, description="Pay somebody else."))
    assert agent.resume(run_id, decision=Deny("not him")).answer == "not paid"


def test_a_snapshot_does_not_change_with_its_registry() -> None:
    """The same snapshot until the tools change; then another, and the old one is as it was."""
    registry = Registry([add])
    first = registry.snapshot()
    assert first is registry.snapshot() is first.snapshot()
    registry.register(shout)
    assert (first.names(), registry.snapshot().names()) == (("add",), ("add", "shout"))
    assert registry.snapshot().version == registry.version != first.version
