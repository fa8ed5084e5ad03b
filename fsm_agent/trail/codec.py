"""What the entries of a trail hold, as JSON data, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, message_to_dict, messages_from_dict

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.effects import (
    AskHuman,
    Call,
    CallModel,
    CallTools,
    Cancelled,
    Effect,
    Outcome,
    Result,
    Returned,
    Wait,
    from_data,
    to_data,
)
from fsm_agent.history import Block, text_of
from fsm_agent.machine import Evaluated
from fsm_agent.records import Transitioned
from fsm_agent.trail.entries import canonical_json

__all__ = [
    "blocks_data",
    "blocks_of",
    "outcome_data",
    "outcome_of",
    "record_data",
    "record_of",
    "request_data",
    "result_data",
    "result_of",
    "started_data",
    "why",
]

_FIELDS: Final = (
    "step", "tokens", "estimated_tokens", "model_calls", "tool_calls", "failures", "elapsed_ms", "at", "error",
)  # fmt: skip


def blocks_data(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Blocks of a history with their messages as LangChain writes them."""
    return [
        {
            "kind": one.kind,
            "messages": [message_to_dict(message) for message in one.messages],
            "tokens": one.tokens,
            "turn": one.turn,
        }
        for one in blocks
    ]


def blocks_of(data: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """The blocks that `blocks_data` wrote."""
    made = []
    for one in data:
        messages: Any = messages_from_dict(list(one["messages"]))
        made.append(Block(one["kind"], tuple(messages), one["tokens"], one["turn"]))
    return tuple(made)


def started_data(effect: Effect, time: float) -> dict[str, Any]:
    """An effect that is about to be performed: enough to read, and to check a replay against. A prompt is kept by its digest only."""
    if isinstance(effect, CallModel):
        return {
            "effect": effect.kind,
            "purpose": effect.purpose,
            "tools": effect.tools,
            "timeout": effect.timeout,
            "estimate": effect.estimate,
            "attempt": effect.attempt,
            "temperature": effect.temperature,
            "messages": len(effect.messages),
            "digest": _digest(effect.messages),
        }
    if isinstance(effect, CallTools):
        calls = [
            {"id": one.id, "tool": one.tool, "signature": one.signature, "arguments": one.arguments}
            for one in effect.calls
        ]
        return {"effect": effect.kind, "attempt": effect.attempt, "parallel": effect.parallel, "calls": calls}
    if isinstance(effect, Wait):
        return {"effect": effect.kind, "seconds": effect.seconds, "until": time + effect.seconds}
    return request_data(effect, time)


def request_data(effect: AskHuman, time: float) -> dict[str, Any]:
    """What a person is asked."""
    calls = [
        {"id": one.id, "tool": one.tool, "arguments": one.arguments, "why": why(one), "digest": one.digest}
        for one in effect.calls
    ]
    until = None if effect.expires_in is None else time + effect.expires_in
    return {"effect": effect.kind, "expires_in": effect.expires_in, "expires_at": until, "calls": calls}


def why(call: Call) -> str:
    """Why a person is asked about a call."""
    return "in_doubt" if call.doubt else "requires_approval"


def _digest(messages: Sequence[AnyMessage]) -> str:
    """SHA-256 over what the model is sent: of each message its kind, its text and its calls."""
    sent = [
        [
            one.type,
            one.content if isinstance(one.content, str) else text_of(one.content),
            one.tool_calls if isinstance(one, AIMessage) else None,
        ]
        for one in messages
    ]
    return hashlib.sha256(canonical_json(sent).encode()).hexdigest()


def result_data(result: Result) -> dict[str, Any]:
    """The result of one call."""
    return to_data(result)


def result_of(data: Mapping[str, Any]) -> Result:
    """The result that `result_data` wrote."""
    found = from_data("result", data)
    assert isinstance(found, Result), "made by the adapter of results"
    return found


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """An outcome; of a batch only the ids of its calls, because each result has an entry of its own."""
    if isinstance(outcome, Returned):
        return {"kind": outcome.kind, "at": outcome.at, "calls": [one.call_id for one in outcome.results]}
    if isinstance(outcome, Cancelled):
        ended = {"ended": [one.call_id for one in outcome.results]} if outcome.results else {}
        return {"kind": outcome.kind, "why": outcome.why, "at": outcome.at, **ended}
    return to_data(outcome)


def outcome_of(data: Mapping[str, Any], results: Mapping[str, Result]) -> Outcome:
    """The outcome that `outcome_data` wrote; `results` are those of the batch by call id.

    Raises `KeyError` for a batch whose result is missing, `ValueError` for what is no outcome.
    """
    if data.get("kind") == "returned":
        return Returned(results=tuple(results[call_id] for call_id in data["calls"]), at=data["at"])
    if data.get("kind") == "cancelled" and "ended" in data:
        return Cancelled(data["why"], data["at"], tuple(results[call_id] for call_id in data["ended"]))
    outcome: Any = from_data("outcome", data)
    return outcome  # type: ignore[no-any-return] # the adapter of outcomes gives nothing else


def record_data(record: Transitioned) -> dict[str, Any]:
    """A transition with every guard that was asked."""
    data = record.__dict__.copy()
    del data["run_id"]
    data["guards"] = [[one.guard, one.result, one.values] for one in record.guards]
    return data


def record_of(data: Mapping[str, Any], run_id: str) -> Transitioned:
    """The record that `record_data` wrote. Raises `ValueError`, `TypeError` or `KeyError` for anything else."""
    guards = tuple(Evaluated(name, result, values) for name, result, values in data["guards"])
    reason = data["reason"]
    return Transitioned(
        run_id=run_id,
        seq=data["seq"],
        source=State.named(data["source"]),
        event=Event.named(data["event"]),
        target=State.named(data["target"]),
        guards=guards,
        tools=tuple(data["tools"]),
        signatures=tuple(data["signatures"]),
        repairs=tuple(data["repairs"]),
        reason=None if reason is None else StopReason.named(reason),
        **{name: data[name] for name in _FIELDS},
    )
