"""A trail as a story: what was begun, what came of it, and what waits. Only read, never driven again, so that any trail can be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsm_agent.alphabet import TERMINAL, Event, State, StopReason
from fsm_agent.records import Request, Transitioned
from fsm_agent.trail.codec import record_of
from fsm_agent.trail.entries import Entry

__all__ = ["Act", "Asked", "Called", "Story", "story_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A tool call that was begun. `result` is None when the trail holds none; `began` and `ended` are seconds since the epoch."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    signature: str
    began: float
    ended: float | None = None
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a person is asked about. `decided` is the entry of the decision, None while it waits."""

    request: Request
    decided: Entry | None = None


@dataclass(slots=True)
class Act:
    """One effect: the entries that began it (more than one after a crash), results and decisions by call id, and what followed."""

    started: list[Entry] = field(default_factory=list)
    results: dict[str, Entry] = field(default_factory=dict)
    decided: dict[str, Entry] = field(default_factory=dict)
    outcome: Entry | None = None
    transition: Entry | None = None

    @property
    def effect(self) -> str:
        """The kind of the effect; "" for a transition without one."""
        return str(self.started[0].body["effect"]) if self.started else ""

    def _begun(self) -> list[Entry]:
        """Its beginnings, without those of another effect: in a damaged trail the transition between the two may not be readable."""
        return [one for one in self.started if one.body["effect"] == self.effect]

    def calls(self) -> tuple[Called, ...]:
        """The tool calls of a batch, in order."""
        if self.effect != "call_tools":
            return ()
        found: dict[str, Called] = {}
        for entry in self._begun():
            for one in entry.body["calls"]:
                done = self.results.get(one["id"])
                found[one["id"]] = Called(
                    id=one["id"],
                    tool=one["tool"],
                    arguments=one["arguments"],
                    signature=one["signature"],
                    began=entry.time,
                    ended=None if done is None else done.time,
                    result=None if done is None else done.body,
                )
        return tuple(found.values())

    def asked(self) -> tuple[Asked, ...]:
        """The calls that a person is asked about, in order."""
        if self.effect != "ask_human":
            return ()
        entry = self._begun()[-1]
        until = entry.body["expires_at"]
        return tuple(
            Asked(
                Request(
                    run_id=entry.run_id,
                    call_id=one["id"],
                    tool=one["tool"],
                    arguments=one["arguments"],
                    why=one["why"],
                    digest=one["digest"],
                    expires_at=until,
                ),
                self.decided.get(one["id"]),
            )
            for one in entry.body["calls"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A run as its entries tell it. The last act is open when the run has not ended: its effect has no transition yet."""

    entries: tuple[Entry, ...]
    acts: tuple[Act, ...]

    @property
    def header(self) -> Mapping[str, Any]:
        """What the header says."""
        return self.entries[0].body

    @property
    def origin(self) -> Mapping[str, Any]:
        """How the agent was made, as far as whoever made it wrote that down."""
        found = self.header.get("origin")
        return found if isinstance(found, Mapping) else {}

    @property
    def open_act(self) -> Act | None:
        """The effect that the run is at; None between two, and at the end."""
        last = self.acts[-1] if self.acts else None
        return last if last is not None and last.transition is None else None

    @property
    def transitions(self) -> tuple[Transitioned, ...]:
        """The recorded transitions."""
        return tuple(record_of(one.body, one.run_id) for one in self.entries if one.kind == "transition")

    @property
    def reason(self) -> StopReason | str | None:
        """Why the run ended, as its transitions tell without being made again: None where it has not, or where they do not say."""
        records = self.transitions
        if not records or records[-1].target not in TERMINAL:
            return None
        if records[-1].target == State.FINISH:
            forced = any(one.event == Event.ANSWER_FORCED for one in records)
            return StopReason.FORCED_ANSWER if forced else StopReason.ANSWERED
        return records[-1].reason

    @property
    def calls(self) -> tuple[Called, ...]:
        """Every tool call that was begun, in order; a call that was tried again stands there once for each time."""
        return tuple(call for act in self.acts for call in act.calls())

    @property
    def waiting(self) -> tuple[Request, ...]:
        """What a person has still to decide about."""
        return tuple(one.request for one in self.asked if one.decided is None)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """What a person is asked now, decided or not."""
        act = self.open_act
        return act.asked() if act is not None and act.outcome is None else ()

    @property
    def unknown(self) -> tuple[Called, ...]:
        """Calls that were begun and have no result: under way while somebody holds the run, in doubt when nobody does."""
        act = self.open_act
        if act is None or act.outcome is not None:
            return ()
        return tuple(call for call in act.calls() if call.result is None)

    @property
    def paused(self) -> bool:
        """True when the run stopped where a person had asked it to."""
        for entry in reversed(self.entries):
            if entry.kind in ("paused", "started", "resumed", "transition"):
                return entry.kind == "paused"
        return False


def story_of(entries: Sequence[Entry]) -> Story:
    """The story of `entries`, which begin with the header."""
    acts: list[Act] = []
    act = Act()
    for entry in entries:
        match entry.kind:
            case "started":
                act.started.append(entry)
            case "result":
                act.results[str(entry.body.get("call_id"))] = entry
            case "decided":
                act.decided[str(entry.body.get("call_id"))] = entry
            case "outcome":
                act.outcome = entry
            case "transition":
                act.transition = entry
                acts.append(act)
                act = Act()
            case _:
                continue
    if act.started or act.outcome is not None:
        acts.append(act)
    return Story(entries=tuple(entries), acts=tuple(acts))
