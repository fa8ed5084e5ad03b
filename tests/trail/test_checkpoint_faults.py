"""Family C of the faults, as far as it needs a trail: what is written down comes back, or is refused by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import io
import math
import pathlib
import uuid
from collections import defaultdict
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, Approve, Deny, Edit, Status, tool
from fsm_agent.errors import TrailDamaged, TrailVersion
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import Entry, MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.fold import fold
from fsm_agent.trail.fork import fork

RUN: Any = {"configurable": {"run_id": "r"}}


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"


class Order(BaseModel):
    """A model."""

    number: int
    lines: list[str]


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    y: int


def _generated() -> Any:
    yield 1


def _circular() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


VALUES: dict[str, Any] = {
    "datetime": dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
    "date": dt.date(2026, 1, 2),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=5),
    "enum": Colour.RED,
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "path": pathlib.PurePosixPath("/a/b"),
    "dataclass": Point(1, 2),
    "model": Order(number=1, lines=["a"]),
    "nan": math.nan,
    "infinity": [math.inf, -math.inf],
    "exception": ValueError("no"),
    "generator": _generated(),
    "handle": io.BytesIO(b"x"),
    "circular": _circular(),
    "defaultdict": defaultdict(list, a=[1]),
    "surrogate": "a\ud800b",
    "large": 10**60,
    "nothing": None,
    "deep": {"a": [{"b": (1, 2)}]},
}


def agent_on(store: Any, replies: list[Any], tools: list[Any], **options: Any) -> Agent:
    """An agent as a process of its own would make it."""
    return Agent(ScriptedModel(replies), tools, store=store, logger=silent_logger(), **options)


@pytest.mark.parametrize("name", VALUES)
def test_c01_any_value_of_a_tool_is_written_down(name: str) -> None:
    """C01: whatever a tool returns, the run goes on, its trail is whole, and what comes back is what the model read."""
    store = MemoryTrail()

    @tool
    def give() -> Any:
        """Give something."""
        return VALUES[name]

    agent = agent_on(store, [call("give"), "done"], [give])
    result = agent.invoke("go", RUN)
    assert result.status is Status.COMPLETED
    folded = fold(agent.journal.entries("r"), agent.setup)
    assert [one.result for one in folded.ctx.done] == list(result.results)
    assert audit(agent.journal, "r", agent.setup).findings == ()


def test_c02_nothing_comes_back_as_something_else() -> None:
    """C02: results come back as the values that they were, typed, and never as None or a bare mapping."""
    store = MemoryTrail()

    @tool(requires_approval=True)
    def give(order: Order) -> Order:
        """Give an order back."""
        return order

    agent = agent_on(store, [call("give", order={"number": 3, "lines": ["x"]})], [give])
    waiting = agent.invoke("go", RUN)
    again = agent_on(store, ["done"], [give])
    before = fold(again.journal.entries("r"), again.setup)
    assert type(before.ctx.calls[0]) is type(waiting.pending.calls[0]) if waiting.pending else False
    result = again.resume("r", decision=Edit({"order": {"number": 4, "lines": []}}))
    assert result.results[0].text == '{"number": 4, "lines": []}'


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"schema": 99}, TrailVersion, "99"),
        ({"schema": None}, TrailVersion, "None"),
        ({"task": ...}, TrailDamaged, "task"),
        ({"setup": ...}, TrailDamaged, "setup"),
        ({"language": "xx"}, TrailDamaged, "xx"),
    ],
    ids=["of the future", "without a version", "without a task", "without a setup", "in no language"],
)
def test_c04_a_trail_of_another_version_is_refused_whole(change: dict[str, Any], error: Any, named: str) -> None:
    """C04: a version that is not known, and a header that lacks something, are named; nothing is half loaded."""
    agent = agent_on(MemoryTrail(), ["done"], [])
    agent.invoke("go", RUN)
    header, *others = agent.journal.entries("r")
    body = {name: value for name, value in {**header.body, **change}.items() if value is not ...}
    with pytest.raises(error, match=named):
        fold([dataclasses.replace(header, body=body), *others])


def test_c04_a_state_that_is_no_more_is_refused_by_name() -> None:
    """C04: a transition into a state that the machine does not have is an error at its entry, not a guess."""
    agent = agent_on(MemoryTrail(), ["done"], [])
    agent.invoke("go", RUN)
    entries = list(agent.journal.entries("r"))
    index = next(index for index, one in enumerate(entries) if one.kind == "transition")
    entries[index] = dataclasses.replace(entries[index], body={**entries[index].body, "target": "COMPLIANCE"})
    with pytest.raises(TrailDamaged, match="COMPLIANCE") as raised:
        fold(entries)
    assert raised.value.seq == entries[index].seq


def test_c04_a_kind_of_entry_that_is_not_known_is_refused() -> None:
    """C04: what a later version may add is not skipped silently."""
    agent = agent_on(MemoryTrail(), ["done"], [])
    agent.invoke("go", RUN)
    header = agent.journal.entries("r")[0]
    with pytest.raises(TrailDamaged):
        fold([header, Entry(run_id="r", seq=1, kind="snapshot", time=0.0, body={})])


def test_c07_the_trail_says_who_decided_what_about_which_arguments_and_when() -> None:
    """C07: a refusal is an entry with the person, the decision, the digest of the call and the time; the call never ran."""
    store, log = MemoryTrail(), []

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        log.append(to)
        return to

    waiting = agent_on(store, [call("pay", to="eve")], [pay]).invoke("go", RUN)
    agent = agent_on(store, ["refused"], [pay])
    result = agent.resume("r", decision=Deny("not eve"), by="ann")
    assert (result.status, log) == (Status.COMPLETED, [])
    (decided,) = (one for one in agent.journal.entries("r") if one.kind == "decided")
    assert decided.body["by"] == "ann"
    assert decided.body["decision"] == {"kind": "deny", "reason": "not eve", "stop": False}
    assert decided.body["digest"] == waiting.requests[0].digest
    assert decided.time > 0
    assert "not eve" in str(result.messages[2].content)


def test_c10_a_fork_has_an_id_of_its_own_and_leaves_its_parent_alone() -> None:
    """C10: what a fork holds is what its parent held, typed; the parent's trail is the same text as before."""
    store, log = MemoryTrail(), []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        log.append((a, b))
        return a + b

    agent = agent_on(store, [call("add", a=1, b=2), "three"], [add])
    agent.invoke("go", RUN)
    before = store.read("r")
    assert fork(agent.journal, "r", at=5, new_run_id="s") == "s"
    here, there = (fold(agent.journal.entries(name), agent.setup) for name in ("r", "s"))
    assert (there.ctx.run_id, there.ctx.results) == (
        "s",
        fold(agent.journal.entries("r")[:13], agent.setup).ctx.results,
    )
    assert type(there.ctx.done[0]) is type(here.ctx.done[0])
    assert store.read("r") == before
    assert agent_on(store, ["forked"], [add]).resume("s").answer == "forked"
    assert log == [(1, 2)]


def test_c09_a_recorded_approval_is_not_lost_by_a_restart() -> None:
    """C09: a decision that was written down before a restart counts after it, whoever resumes and with what."""
    store, log = MemoryTrail(), []

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        log.append(to)
        return to

    waiting = agent_on(store, [[call("pay", to="ada"), call("pay", to="bob")]], [pay]).invoke("go", RUN)
    first, second = (one.call_id for one in waiting.requests)
    agent_on(store, [], [pay]).resume("r", decision={first: Approve()})
    agent_on(store, [], [pay]).resume("r")
    assert agent_on(store, ["done"], [pay]).resume("r", decision={second: Approve()}).status is Status.COMPLETED
    assert sorted(log) == ["ada", "bob"]
