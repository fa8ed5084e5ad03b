"""Effects and outcomes: frozen data that goes through strict JSON and comes back equal."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.dialects.repair import Fault, Malformed, parse_arguments
from fsm_agent.effects import (
    Answered,
    Approve,
    Call,
    CallModel,
    CallTools,
    Decision,
    Deny,
    Edit,
    Effect,
    Outcome,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
)
from fsm_agent.failures import error_text
from fsm_agent.replies import read_message
from fsm_agent.trail.entries import canonical_json
from tests.core.recorded import read, recorded
from tests.core.strategies import effects, outcomes, usages

KINDS: tuple[Any, ...] = (*get_args(Effect), *get_args(Outcome), *get_args(Decision))


def strict(text: str) -> Any:
    """`text` read as strict JSON: no NaN, no infinity."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@given(outcomes)
@example(Answered(decisions={"a": Approve(), "b": Edit({"kind": "deny"}), "c": Deny("no", stop=True)}))
@example(Replied(text="", calls=(RawCall("", "f", None), RawCall("a", "f", ""), RawCall("b", "f", {}))))
@example(Returned(results=(Result(call_id="a", tool="f", ok=True, text="", full="", metadata={"deep": {"x": [1.5]}}),)))
@example(Replied(text="", calls=(RawCall("a", "f", {"big": 10**400, "emoji": "👩‍👩‍👧"}),)))
def test_json_there_and_back_gives_an_equal_outcome(outcome: Outcome) -> None:
    """The trail holds JSON; a fold of what is read from it must be a fold of the same."""
    again = read(recorded(outcome))
    assert again == outcome
    assert type(again) is type(outcome)


@given(effects | outcomes)
@example(CallModel(messages=(AIMessage("", tool_calls=[{"name": "f", "args": {"x": [1, None]}, "id": "a"}]),)))
@example(CallModel(messages=(HumanMessage([{"type": "text", "text": "?"}]), ToolMessage("1", tool_call_id="a"))))
@example(CallTools(calls=(Call(id="a", name="f", tool="f", arguments={"big": 10**400, "emoji": "👩‍👩‍👧"}),)))
def test_what_is_written_is_strict_json(value: Effect | Outcome) -> None:
    """Any reader can read it, and it says of which kind the effect or outcome is."""
    body = strict(recorded(value))
    assert value.kind == (body["effect"] if isinstance(value, Effect) else body["outcome"]["kind"])


@given(effects | outcomes)
def test_writing_is_repeatable(value: Effect | Outcome) -> None:
    """The same value gives the same text, and what was read back is written the same: a hash over it holds."""
    text = recorded(value)
    assert recorded(value) == text
    assert canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_lacks_is_read_the_same_after_the_record(number: str) -> None:
    """Python reads NaN and infinity as JSON: what refuses such a call live must refuse it in a replay."""
    message = AIMessage("", tool_calls=[{"name": "f", "args": json.loads(f'{{"x": {number}}}'), "id": "a"}])
    outcome = read_message(message, estimate=1, cap=None, at=0.0)
    strict(recorded(outcome))
    again = read(recorded(outcome))
    assert isinstance(again, Replied)
    assert isinstance(parse_arguments(outcome.calls[0].arguments), Malformed)
    assert isinstance(parse_arguments(again.calls[0].arguments), Malformed)


def test_half_a_character_does_not_break_the_record() -> None:
    """A server may send half of a surrogate pair; what a model wrote never stops the run at the record of it."""
    half = "cut \ud83d"
    message = AIMessage(half, tool_calls=[{"name": half, "args": {half: [half]}, "id": half}])
    outcome = read_message(message, estimate=1, cap=None, at=0.0)
    strict(recorded(outcome))
    assert read(recorded(outcome)) == outcome


@pytest.mark.parametrize("depth", [70, 260, 500])
def test_arguments_nested_without_end_do_not_break_the_record(depth: int) -> None:
    """A server may have parsed lists in lists in lists: what VALIDATE refuses as too deep can be written down before."""
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    message = AIMessage("", tool_calls=[{"name": "f", "args": {"x": deep}, "id": "a"}])
    outcome = read_message(message, estimate=1, cap=None, at=0.0)
    assert read(recorded(outcome)) == outcome
    refused = parse_arguments(outcome.calls[0].arguments)
    assert isinstance(refused, Malformed)
    assert refused.kind is Fault.TOO_DEEP


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "exploded"},
        {"kind": "waited", "at": "soon"},
        {"kind": "call_tools", "calls": []},
        {"kind": "returned", "at": 1.0, "calls": ["a"]},
        {"kind": "cancelled", "why": "", "at": 1.0, "ended": ["a"]},
    ],
)
def test_what_is_no_outcome_is_refused(body: dict[str, Any]) -> None:
    """A record that was cut, forged or written by another version, or that lacks a result, is never half read."""
    with pytest.raises((ValueError, KeyError), match=r"."):
        read(canonical_json({"outcome": body, "results": []}))


@given(effects | outcomes)
def test_effects_and_outcomes_are_frozen_data(value: Effect | Outcome) -> None:
    """No one who holds an effect or an outcome can change it for somebody else."""
    for field in fields(value):
        with pytest.raises(FrozenInstanceError):
            setattr(value, field.name, None)


def test_each_kind_has_a_name_of_its_own() -> None:
    """The names tell the records apart."""
    names = [next(field.default for field in fields(kind) if field.name == "kind") for kind in KINDS]
    assert len(set(names)) == len(KINDS)


@given(st.lists(usages, max_size=5))
def test_usage_adds_up_field_by_field(parts: list[Usage]) -> None:
    """Tokens of several calls are the sums, in any order."""
    total = sum(parts, Usage())
    assert total == sum(reversed(parts), Usage())
    for field in fields(Usage):
        assert getattr(total, field.name) == sum(getattr(part, field.name) for part in parts)


def test_of_an_error_that_quotes_a_whole_page_only_the_beginning_is_read() -> None:
    """To search megabytes for secrets takes seconds, in which the run could not be stopped."""
    assert error_text(ValueError("x" * 1_000_000)) == "x" * 20_000
