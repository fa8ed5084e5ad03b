"""A trail is judged without the code of its tools: they are made again from what the header says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import Tool
from fsm_agent.tools.builtin import calculator
from fsm_agent.trail import MemoryTrail, audit


class Place(BaseModel):
    """Where it is."""

    city: str = "Oslo"
    street: str | None = None


BERN = Place(city="Bern")


def left_out(number: int, precision: int | None = None) -> str:
    """Leave something out."""
    return "1"


def fraction(share: float, most: float | None = None) -> str:
    """Take a share."""
    return "1"


def nested(place: Place, others: list[Place], last: Place | None = None, first: Place = BERN) -> str:
    """Go there."""
    return "1"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (calculator, {"expression": "1+1"}),
        (left_out, {"number": 1}),
        (fraction, {"share": 1}),
        (nested, {"place": {}, "others": [{}, {"city": "Rome"}]}),
    ],
)
def test_what_typed_tools_fill_in_is_right_without_their_code(
    tool: Tool | Callable[..., Any], arguments: dict[str, Any]
) -> None:
    """Arguments left out, at any depth, and whole numbers where a float is asked for are as the tool itself made them."""
    name = tool.name if isinstance(tool, Tool) else tool.__name__
    model = ScriptedModel([call(name, **arguments), "Done."])
    agent = Agent(model, [tool], store=MemoryTrail(), logger=silent_logger())
    result = agent.invoke("Do it.")
    assert result.ok
    assert [one.what for one in audit(agent.journal, result.run_id).findings] == []
