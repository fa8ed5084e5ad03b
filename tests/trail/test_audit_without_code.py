"""A trail is judged without the code of its tools: they are made again from what the header says of them."""

from __future__ import annotations

import datetime as dt
import enum
import importlib.metadata
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from fsm_agent import Agent, StopReason
from fsm_agent.machine import Machine
from fsm_agent.observe import silent_logger
from fsm_agent.table import TABLE
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import Tool
from fsm_agent.tools.builtin import calculator
from fsm_agent.trail import MemoryTrail, audit
from fsm_agent.trail.toolset import needs_code
from tests.report.runs import resealed


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


def test_an_audit_under_another_table_names_the_version_that_the_run_began_with() -> None:
    """A later version of the package has other rows: whoever reads the finding learns with which one to read the trail."""
    agent = Agent(ScriptedModel(["Done."]), store=MemoryTrail(), logger=silent_logger())
    result = agent.invoke("Do it.")
    later = Machine(
        [replace(row, reason=StopReason.NO_PROGRESS) if row.reason == "max_steps" else row for row in TABLE]
    )
    (found,) = audit(agent.journal, result.run_id, machine=later).findings
    version = importlib.metadata.version("fsm-agent")
    assert found.what == f"the table here is another than that of the run, which began with fsm-agent {version}"


class Colour(enum.Enum):
    """What it looks like."""

    RED = "red"


class Trimmed(BaseModel):
    """A model whose config rewrites its texts."""

    model_config = ConfigDict(str_strip_whitespace=True)

    text: str


class Dated(BaseModel):
    """A model with a field that has the name of a part of pydantic's schema."""

    default: dt.date


class Covered(BaseModel):
    """A model with a field that its own JSON leaves out."""

    hidden: str = Field(default="x", exclude=True)


def taking(kind: Any) -> Callable[..., str]:
    """A function with one argument of the type."""

    def take(given: Any) -> str:
        """Take it."""
        return "taken"

    take.__annotations__["given"] = kind
    return take


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *((dt.date, "2024-13-99"), (dt.datetime, "soon"), (dt.time, "10:00")),
        *((dt.timedelta, "1 day"), (uuid.UUID, "no id"), (Decimal, 1.1), (Decimal, "x")),
        *((set[int], [2, 1, 2]), (Path, "a//b"), (tuple[int, str], [1]), (dict[int, str], {"x": "a"})),
        (Annotated[int, AfterValidator(lambda number: number * 2)], 3),
        (Annotated[str, StringConstraints(strip_whitespace=True)], " x "),
        (Trimmed, {"text": " x "}),
        (Dated, {"default": "2024-13-99"}),
        (Covered, {}),
    ],
)
def test_what_only_code_can_check_is_a_note_and_no_fault(kind: Any, given: Any) -> None:
    """An honest run is not accused where its schema does not say what its types do: the audit says that it needs the agent."""
    model = ScriptedModel([call("take", given=given), "Done."])
    agent = Agent(model, [taking(kind)], store=MemoryTrail(), logger=silent_logger())
    result = agent.invoke("Do it.")
    found = audit(agent.journal, result.run_id)
    assert [one.what for one in found.findings] == []
    assert any("the agent's own code" in note for note in found.notes)
    judged = audit(agent.journal, result.run_id, agent.setup)
    assert (judged.ok, [note for note in judged.notes if "own code" in note]) == (True, [])


@pytest.mark.parametrize("kind", [int, Covered])
def test_what_does_not_follow_is_a_fault_where_the_code_is_given_or_not_needed(kind: Any) -> None:
    """Only what code alone could judge is a note: another reply than the one that was acted on is found, though its seals hold."""
    given: Any = 3 if kind is int else {}
    model = ScriptedModel([call("take", given=given), "Done."])
    store = MemoryTrail()
    agent = Agent(model, [taking(kind)], store=store, logger=silent_logger())
    run_id = agent.invoke("Do it.").run_id
    store._entries[run_id] = resealed(one.text.replace("Done.", "") for one in store.read(run_id))
    store._infos[run_id] = replace(store._infos[run_id], head=store._entries[run_id][-1].seal)
    assert audit(agent.journal, run_id, agent.setup).findings
    assert bool(audit(agent.journal, run_id).findings) is (kind is int)


@pytest.mark.parametrize(
    "kind",
    [
        *(int, float, bool, str, list[str], dict[str, float], Any, Colour, Literal["a", 1] | None, int | str, Place),
        *(list[Place], Place | None, Annotated[int, Field(ge=1, le=5)], Annotated[str, Field(pattern="^a+$")]),
    ],
)
def test_what_a_schema_says_all_of_is_judged_without_code(kind: Any) -> None:
    """A trail of a tool of plain types needs no code: what does not follow in it is a fault."""
    agent = Agent(ScriptedModel(["Done."]), [taking(kind)], store=MemoryTrail(), logger=silent_logger())
    result = agent.invoke("Do it.")
    assert not needs_code(agent.journal.entries(result.run_id))
