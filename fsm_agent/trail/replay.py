"""Replay: a stored run driven again by its recorded outcomes, without calling a model or a tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsm_agent.context import Setup
from fsm_agent.errors import RunError
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.fold import Folded, Turned, fold

__all__ = ["Replay", "entries_to", "replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """The transitions of a replay, each with its guards, and where they lead."""

    turns: tuple[Turned, ...]
    folded: Folded


def replay(
    entries: Sequence[Entry], setup: Setup | None = None, *, to: int | None = None, machine: Machine = DEFAULT_MACHINE
) -> Replay:
    """Drive a run again, up to and with transition `to` (None: all), comparing what is recorded on the way.

    Raises what `fold` does, and `RunError` when there is no such transition.
    """
    turns: list[Turned] = []
    folded = fold(entries if to is None else entries_to(entries, to), setup, machine=machine, told=turns.append)
    return Replay(tuple(turns), folded)


def entries_to(entries: Sequence[Entry], seq: int) -> tuple[Entry, ...]:
    """The entries up to and with transition number `seq`; 0 is the run before its first. Raises `RunError` when there is none."""
    if seq == 0:
        return tuple(entries[:1])
    for index, entry in enumerate(entries):
        if entry.kind == "transition" and entry.body["seq"] == seq:
            return tuple(entries[: index + 1])
    last = sum(entry.kind == "transition" for entry in entries)
    raise RunError(f"there is no transition {seq}; the run has {last} of them")
