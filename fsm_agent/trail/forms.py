"""Whether an entry holds what one of its kind can. Seals say nothing of that: a trail that was written anew has right ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fsm_agent.effects import from_data
from fsm_agent.errors import FsmAgentError, TrailDamaged
from fsm_agent.trail.codec import record_of, result_of
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.wording import human_entry, utc_text

__all__ = ["check_form", "reading"]

_COUNTED: Final = (
    "seq", "step", "tokens", "estimated_tokens", "model_calls", "tool_calls", "failures", "elapsed_ms", "at",
)  # fmt: skip


def check_form(entry: Entry) -> None:
    """Raise `TrailDamaged` for an entry with a time or a body that whoever shows a trail could not read."""
    try:
        utc_text(entry.time)
        _CHECKS[entry.kind](entry)
    except Exception as error:  # a body that was tampered with can fail in any way; it is named
        raise _unfit(entry, error) from error


@contextmanager
def reading(entry: Entry) -> Iterator[None]:
    """Around what reads of an entry more than `check_form` looks at: `TrailDamaged` names the entry where that fails."""
    try:
        yield
    except FsmAgentError:
        raise
    except Exception as error:
        raise _unfit(entry, error) from error


def _unfit(entry: Entry, error: Exception) -> TrailDamaged:
    said = str(error).partition("\n")[0]
    return TrailDamaged(
        f"holds what no entry of the kind {entry.kind!r} can: {type(error).__name__}: {said}",
        run_id=entry.run_id,
        seq=entry.seq,
    )


def _header(entry: Entry) -> None:
    body = entry.body
    _require(entry.seq == 0, "a second header")
    _require(isinstance(body["task"], str) and isinstance(body["chain"], str), "a text that is none")
    _require(body["thread_id"] is None or isinstance(body["thread_id"], str), "a conversation that is none")
    _require(isinstance(body.get("origin", {}), Mapping), "an origin that is none")
    forked = body.get("forked")
    if forked is not None:
        _require(isinstance(forked["run"], str) and isinstance(forked["seq"], int), "a run that is none")


def _transition(entry: Entry) -> None:
    record = record_of(entry.body, entry.run_id)
    _require(all(isinstance(getattr(record, name), int | float) for name in _COUNTED), "a count that is none")
    _require(isinstance(record.error, str), "an error that is no text")
    _require(all(isinstance(one.values, Mapping) for one in record.guards), "values of a guard that are none")
    _require(all(isinstance(one.guard, str) for one in record.guards), "a guard without a name")
    names: tuple[object, ...] = (*record.tools, *record.signatures, *record.repairs)
    _require(all(isinstance(one, str) for one in names), "a name that is none")


def _result(entry: Entry) -> None:
    result_of(entry.body)
    _require({"ok", "text", "error", "seconds"} <= entry.body.keys(), "less than a result")


def _outcome(entry: Entry) -> None:
    body = entry.body
    if body["kind"] == "returned":
        _require(all(isinstance(one, str) for one in body["calls"]), "a call without its name")
        _require("usage" not in body, "tokens that no batch takes")
    else:
        from_data("outcome", body)
        of_model = body["kind"] in ("replied", "model_failed")
        _require(not of_model or {"input", "output", "total"} <= body["usage"].keys(), "no count of tokens")


def _started(entry: Entry) -> None:
    body = entry.body
    effect = body["effect"]
    _require(isinstance(effect, str) and isinstance(body.get("purpose", ""), str), "a name that is none")
    for name in ("attempt", "seconds"):
        _require(isinstance(body.get(name, 0), int | float), "a count that is none")
    _require(effect != "wait" or "seconds" in body, "a wait without its time")
    if effect == "call_model":
        _require("purpose" in body and "attempt" in body, "a call of the model without its purpose")
    if effect in ("call_tools", "ask_human"):
        names = ("id", "tool", "signature") if effect == "call_tools" else ("id", "tool", "why", "digest")
        for call in body["calls"]:
            _require(all(isinstance(call[name], str) for name in names), "a call without its names")
            _require(isinstance(call["arguments"], Mapping), "a call without arguments")
    if effect == "ask_human":
        utc_text(body["expires_at"])


def _decided(entry: Entry) -> None:
    from_data("decision", entry.body["decision"])
    human_entry(entry)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


_CHECKS: Final[Mapping[str, Any]] = {
    "header": _header,
    "started": _started,
    "result": _result,
    "outcome": _outcome,
    "transition": _transition,
    "decided": _decided,
    "paused": human_entry,
    "changed": human_entry,
    "resumed": human_entry,
}
