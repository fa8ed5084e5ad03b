"""A trail read as far as it goes. The engine refuses a damaged trail; a report says what is wrong with it and shows the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fsm_agent.effects import from_data
from fsm_agent.errors import TrailDamaged, TrailError
from fsm_agent.trail.cipher import TrailLocked
from fsm_agent.trail.codec import record_of, result_of
from fsm_agent.trail.entries import Entry, parse
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.reader import opened
from fsm_agent.trail.retold import human_entry

__all__ = ["Read", "read"]

_COUNTED: Final = ("seq", "step", "tokens", "estimated_tokens", "model_calls", "tool_calls", "elapsed_ms")


@dataclass(slots=True)
class Read:
    """The entries that can be read, the header first (an empty one where there is none), and what could not be read of the others."""

    entries: list[Entry] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read(journal: Journal, run_id: str) -> Read:
    """What can be read of a run, whatever its seals say.

    Raises `UnknownRun`, and `TrailLocked` without the key of an encrypted trail.
    """
    found = Read()
    try:
        stored = journal.store.read(run_id)
    except TrailDamaged as damage:
        stored, found.unread = (), [str(damage)]
    for one in stored:
        try:
            entry = opened(parse(one, run_id), journal.store, journal.cipher)
            _check(entry)
        except TrailLocked:
            raise
        except TrailError as error:
            found.unread.append(str(error))
        except Exception as error:  # noqa: BLE001 - a body that was tampered with can fail in any way; it is named, and left out
            found.unread.append(f"Entry {one.seq} holds what no such entry can: {type(error).__name__}: {error}")
        else:
            found.entries.append(entry)
    if not found.entries or found.entries[0].kind != "header":
        time = found.entries[0].time if found.entries else 0.0
        found.entries.insert(0, Entry(run_id=run_id, seq=0, kind="header", time=time, body={}))
    return found


def _check(entry: Entry) -> None:
    """Raise for a body that the rest of a report could not read."""
    body = entry.body
    match entry.kind:
        case "transition":
            record = record_of(body, entry.run_id)
            _require(all(isinstance(getattr(record, name), int | float) for name in _COUNTED), "a count that is none")
            _require(isinstance(record.error, str), "an error that is no text")
            _require(all(isinstance(one.values, Mapping) for one in record.guards), "values of a guard that are none")
            _require(all(isinstance(one.guard, str) for one in record.guards), "a guard without a name")
        case "result":
            result_of(body)
        case "outcome":
            if body.get("kind") != "returned":
                from_data("outcome", body)
        case "started":
            _check_started(body)
        case "decided":
            from_data("decision", body["decision"])
            human_entry(entry)
        case "paused" | "changed" | "resumed":
            human_entry(entry)
        case _:
            _require(entry.seq == 0, "a second header")


def _check_started(body: Mapping[str, Any]) -> None:
    effect = body["effect"]
    _require(isinstance(effect, str) and isinstance(body.get("purpose", ""), str), "a name that is none")
    for name in ("attempt", "seconds"):
        _require(isinstance(body.get(name) or 0, int | float), "a count that is none")
    if effect in ("call_tools", "ask_human"):
        names = ("id", "tool", "signature") if effect == "call_tools" else ("id", "tool", "why", "digest")
        for call in body["calls"]:
            _require(all(isinstance(call[name], str) for name in names), "a call without its names")
            _require(isinstance(call["arguments"], Mapping), "a call without arguments")
    if effect == "ask_human":
        _require(body["expires_at"] is None or isinstance(body["expires_at"], int | float), "a time that is none")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
