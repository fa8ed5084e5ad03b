"""A table of one's own, verified, and what its guards read of a tool's result."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool as langchain_tool

from fsm_agent import State, Status, StopReason, ToolResult, table
from fsm_agent.context import Context
from fsm_agent.diagrams import diagram
from fsm_agent.examples.compliance import TABLE as COMPLIANT
from fsm_agent.examples.compliance import compliance
from fsm_agent.guards import Compared
from fsm_agent.machine import Machine
from fsm_agent.observe import event_of
from fsm_agent.table import Table
from fsm_agent.testing import call
from fsm_agent.tools.results import render_result
from fsm_agent.trail import MemoryTrail, audit, fold
from fsm_agent.verify import Certificate, Fault, verify
from tests.own_table import BAD, CHECK, FINE, LAST, RUN, SMALL, agent_on, placed

# ---------------------------------------------------------------- verified


def fault(found: Certificate, kind: str) -> Fault:
    """The first fault of a kind."""
    kinds = [one.kind for one in found.faults]
    assert kind in kinds, str(found)
    return found.faults[kinds.index(kind)]


UNSOUND = [
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> VALIDATE"),
        "endless",
        "CHECK --bad--> VALIDATE",
        id="read again and again",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> CHECK"),
        "endless",
        "CHECK --bad--> CHECK",
        id="a state that leads to itself",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> PLAN"),
        "lost",
        "CHECK --bad--> PLAN",
        id="a reply that nobody observes",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> FINISH"),
        "answer",
        "CHECK --bad--> FINISH",
        id="finished without an answer",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> REVIEW"),
        "unchecked",
        "CHECK --bad--> REVIEW",
        id="nobody asked about nothing",
    ),
]


@pytest.mark.parametrize(("rows", "kind", "blamed"), UNSOUND)
def test_verify_finds_what_the_laws_cannot(rows: tuple[str, ...], kind: str, blamed: str) -> None:
    """A loop through a state of one's own, or a way that loses a reply, is found with the row and the shortest way there."""
    found = fault(verify(SMALL, rows=placed(CHECK, *rows)), kind)
    assert str(found.row) == blamed
    assert [str(row) for row in (*found.path, *found.circle)][:2] == [
        "PLAN --replied--> VALIDATE",
        "VALIDATE --accepted--> CHECK",
    ]
    if kind == "endless":
        assert found.circle[0].source is found.circle[-1].target
        assert len(found.circle) <= 2


def test_both_answers_of_a_guard_of_ones_own_are_explored() -> None:
    """What a guard of one's own would say of the small contexts of `verify` does not matter: it may hold or not."""
    never = table.guard("never", name="never_so")(lambda ctx: False)
    mine = placed(CHECK, FINE, "CHECK --bad [never_so]--> VALIDATE", BAD, guards=[never])
    assert str(fault(verify(SMALL, rows=mine), "endless").row) == "CHECK --bad [never_so]--> VALIDATE"
    limits = SMALL.replace(token_budget=10_000)
    early = table.extend(
        before={"DECIDE --decided [answer_failed]--> ABORT": "DECIDE --decided [never_so]--> PLAN"}, guards=[never]
    )
    assert {one.kind for one in verify(limits, rows=early).faults} >= {"steps", "failures", "tokens", "forced"}


def test_a_table_is_taken_wherever_rows_are() -> None:
    """A `Table` is a sequence of its rows, and a machine of it drives them."""
    assert list(COMPLIANT) == list(Machine(COMPLIANT).rows)
    assert (len(COMPLIANT), COMPLIANT[0]) == (len(COMPLIANT.rows), table.TABLE[0])
    assert diagram("csv", rows=COMPLIANT).count("COMPLIANCE") == 6
    assert table.extend() == Table()
    assert compliance.about.startswith("Refuse each call with a card number")


def test_names_of_ones_own_are_one_object_each() -> None:
    """A `State` of one's own is told by `is`, copied, pickled and looked up like those of the package, and is not among them."""
    own = State.named("COMPLIANCE")
    assert own is compliance.name
    assert State("COMPLIANCE") is own
    assert copy.deepcopy(own) is pickle.loads(pickle.dumps(own)) is own  # noqa: S301 - written here
    assert own not in list(State)
    assert (own.is_own, State.PLAN.is_own, State.named("PLAN") is State.PLAN) == (True, False, True)
    with pytest.raises(ValueError, match="is not a valid State"):
        State("NOBODY_HAS_THIS")


def test_a_copied_table_is_the_same_table() -> None:
    """`copy.deepcopy` gives an equal table that is proved, and extended, like the one that was copied."""
    copied = copy.deepcopy(COMPLIANT)
    assert copied == COMPLIANT
    assert verify(SMALL, rows=copied).ok
    assert copied.extend(before={LAST: "DECIDE --decided [told_to_stop]--> PLAN"})


# ---------------------------------------------------------------- metadata of tools


@table.guard("a result is less sure than 0.5")
def unsure(ctx: Context) -> Compared:
    """Read what the tools said of their results."""
    scores = [one.metadata["confidence_score"] for one in ctx.results if "confidence_score" in one.metadata]
    lowest = min(scores, default=1.0)
    return lowest < 0.5, {"confidence_score": lowest}


UNSURE = table.extend(
    before={
        LAST: [
            "DECIDE --decided [unsure, can_answer_now]--> DEGRADE (low_confidence)",
            "DECIDE --decided [unsure]--> ABORT (low_confidence)",
        ]
    },
    guards=[unsure],
)


def guess(q: str) -> ToolResult:
    """Guess."""
    return ToolResult(f"perhaps {q}", metadata={"confidence_score": 0.2, "retry_count": 1})


def test_a_guard_reads_what_a_tool_says_of_its_result(tmp_path: Path) -> None:
    """Metadata is kept with the result and in the trail, never shown to the model, and a guard of one's own decides by it."""
    assert verify(SMALL, rows=UNSURE).ok
    agent = agent_on(tmp_path / "runs.db", [call("guess", q="3"), "Perhaps 3."], [guess], table=UNSURE)
    result = agent.invoke("how many?", RUN)
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert "low_confidence (unsure: confidence_score=0.2)" in result.detail
    assert result.results[0].metadata == {"confidence_score": 0.2, "retry_count": 1}
    assert "0.2" not in str(result.messages)
    folded = fold(agent.journal.entries("r"), agent.setup, machine=agent.machine)
    assert folded.ctx.done[0].result.metadata == result.results[0].metadata
    assert audit(agent.journal, "r", agent.setup).ok


def test_a_decision_by_metadata_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """Paused between the result and the decision, another process decides by the metadata that the trail holds."""
    path = tmp_path / "runs.db"
    first = agent_on(path, [call("guess", q="3")], [guess], table=UNSURE).pause_at("DECIDE").invoke("how many?", RUN)
    assert first.status is Status.SUSPENDED
    result = agent_on(path, ["Perhaps 3."], [guess], table=UNSURE).resume("r")
    assert (result.status, result.path()[-4:]) == (Status.PARTIAL, ("DEGRADE", "PLAN", "VALIDATE", "FINISH"))


def test_metadata_is_plain_json_data_of_a_bounded_size() -> None:
    """Whatever a tool says of its result is made JSON data, long texts are cut, and what is too large is left out by name."""
    many = {"when": date(2026, 1, 2), "text": "x" * 2_000, "rows": list(range(5_000)), "sure": float("nan"), "last": 1}
    metadata = render_result(ToolResult("ok", metadata=many)).metadata
    assert metadata["when"] == "2026-01-02"
    assert metadata["text"].startswith("x" * 1_000 + "\n[cut")
    assert metadata["left_out"] == ["rows"]
    assert metadata["last"] == 1
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert len(json.dumps(metadata)) < 9_000


def test_the_artifact_of_a_langchain_tool_is_its_metadata() -> None:
    """`response_format="content_and_artifact"`: a mapping beside the content is metadata, anything else is in it under `artifact`."""

    @langchain_tool(response_format="content_and_artifact")
    def weigh(q: str) -> tuple[str, dict[str, Any]]:
        """Weigh something."""
        return f"{q}: 3 kg", {"confidence_score": 0.9, "memory_usage": 12}

    @langchain_tool(response_format="content_and_artifact")
    def photo(q: str) -> tuple[str, list[bytes]]:
        """Take a photo."""
        return "taken", [b"123"]

    model = [[call("weigh", q="a"), call("photo", q="a")], "3 kg."]
    result = agent_on(MemoryTrail(), model, [weigh, photo], table=UNSURE).invoke("weigh it")
    assert result.status is Status.COMPLETED
    assert [one.metadata for one in result.results] == [
        {"confidence_score": 0.9, "memory_usage": 12},
        {"artifact": ["123"]},
    ]


def test_what_a_guard_of_ones_own_compares_is_redacted_in_the_log() -> None:
    """Values of such a guard are kept as plain data in the record, and logged without secrets."""

    @table.guard("a key is there")
    def keyed(ctx: Context) -> Compared:
        return False, {"said": ctx.results[0].metadata, "count": 1, "odd": object()}

    def leak() -> ToolResult:
        """Leak."""
        return ToolResult("ok", metadata={"api_key": "sk-proj-abcdefghijklmnopqrstuvwx0123456789"})

    mine = table.extend(before={LAST: "DECIDE --decided [keyed]--> ABORT (leaked)"}, guards=[keyed])
    result = agent_on(None, [call("leak"), "Done."], [leak], table=mine).invoke("go")
    (record,) = [one for one in result.transitions if any(asked.guard == "keyed" for asked in one.guards)]
    assert record.guards[-1].values["count"] == 1
    assert "abcdefghij" not in json.dumps(event_of(record))
