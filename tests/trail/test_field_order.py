"""A trail sorts the names in a tool's schema, and the model reads them in an order: who reads it without the code must too."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import Registry
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.entries import canonical_json
from fsm_agent.trail.toolset import other_tools, parameters_of, recorded_tools, tools_data

RUN: Any = {"configurable": {"run_id": "r"}}


class Line(BaseModel):
    """One line of an order."""

    zip: str
    amount: int


@tool
def order(number: int, api_key: str = "", lines: list[Line] | None = None) -> str:
    """Order something."""
    return f"{number} ordered"


WRONG: dict[str, Any] = {"number": 1, "lines": [{"zip": 1, "amount": "x", "note": ""}]}
REACT = ['Thought: now\nAction: order\nAction Input: {"number": "x"}', "Thought: no\nFinal Answer: I cannot."]


@pytest.mark.parametrize(
    ("dialect", "script"),
    [
        ("native", [call("order", number="x"), "I cannot."]),
        ("native", [call("order", **WRONG), "I cannot."]),
        ("react", REACT),
    ],
    ids=["a refusal", "a refusal inside a list", "tools in the prompt"],
)
def test_an_audit_without_the_code_reads_what_the_model_read(dialect: Any, script: list[Any]) -> None:
    """Refusals and prompts that list fields are made again in the order of the code, so that the audit finds nothing, with it or not."""
    agent = Agent(ScriptedModel(script), [order], dialect=dialect, store=MemoryTrail(), logger=silent_logger())
    agent.invoke("order it", RUN)
    assert agent.journal is not None
    assert audit(agent.journal, "r").findings == ()


def test_a_changed_set_of_tools_keeps_its_order_too() -> None:
    """Tools that were registered while the run went on are written with the order of their fields."""
    tools = Registry([])

    @tool
    def more() -> str:
        """Add a tool."""
        tools.register(order)
        return "added"

    tools.register(more)
    script = [call("more"), call("order", **WRONG), "I cannot."]
    agent = Agent(ScriptedModel(script), tools, store=MemoryTrail(), logger=silent_logger())
    agent.invoke("order it", RUN)
    assert agent.journal is not None
    assert audit(agent.journal, "r").findings == ()


def test_the_order_is_no_part_of_what_a_tool_is() -> None:
    """A description without the order, as earlier trails have it, is still of the same tool, and its names are read sorted."""
    (kept,) = tools_data(Registry([order]))
    earlier = {name: value for name, value in kept.items() if name != "order"}
    assert other_tools([earlier], Registry([order])) == []
    assert parameters_of(earlier) == parameters_of(kept)
    assert list(recorded_tools([earlier], Registry([order]))) == [order]


def test_an_order_that_names_what_is_not_there_changes_nothing() -> None:
    """The order is data that somebody may have edited: only names that the schema has count, and none is lost."""
    (kept,) = tools_data(Registry([order]))
    edited = deepcopy(kept)
    edited["order"] = {"/properties": ["nothing", "lines"], "/nowhere/at/all": ["x"], "": []}
    assert canonical_json(parameters_of(edited)) == canonical_json(kept["parameters"])
    assert next(iter(parameters_of(edited)["properties"])) == "lines"
