"""The fold: entries in, context out. Resume, replay, time travel and audit are all this one walk.

States are pure, so the recorded outcomes lead through the same table to the same contexts. Recorded transitions are not believed:
each is compared with the one that the table gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fsm_agent.alphabet import INITIAL, TERMINAL, State
from fsm_agent.context import Context, Setup
from fsm_agent.effects import Broke, Cancelled, Decision, Effect, Outcome, Result, from_data
from fsm_agent.errors import TrailDamaged, TrailError
from fsm_agent.machine import DEFAULT_MACHINE, Fired, Machine
from fsm_agent.records import Transitioned
from fsm_agent.tools.registry import Registry
from fsm_agent.trail.changes import Change, apply_change, with_tools
from fsm_agent.trail.codec import outcome_of, record_of, result_of, started_data
from fsm_agent.trail.entries import Entry, canonical_json, lenient_json
from fsm_agent.trail.header import begun_context, check_table, recorded_setup
from fsm_agent.trail.toolset import recorded_tools
from fsm_agent.turn import turn

__all__ = ["Decided", "Folded", "Turned", "fold"]

_TIMED: Final = frozenset({"until", "expires_at"})
_COMPARED: Final = ("seq", "step", "tokens", "estimated_tokens", "model_calls", "tool_calls", "failures")


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's decision about one call: what, of whom, when (seconds since the epoch), and the digest of the call it is bound to."""

    decision: Decision
    digest: str
    by: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Turned:
    """One transition of a replay: the entry that recorded it, what the table gives, and the effect before it with its outcome."""

    entry: Entry
    fired: Fired
    effect: Effect | None
    outcome: Outcome | None


@dataclass(slots=True, kw_only=True)
class Folded:
    """Where the entries lead, and what is open there.

    Attributes:
        run_id: The run.
        ctx: Its context.
        state: Where it is.
        transitions: Its transitions, as the table gives them.
        started: The entry of the effect that was begun and has no outcome, None without one.
        results: Of its calls, the results that are known, by call id.
        decided: What people have decided about its calls, by call id.
        outcome: The outcome that nothing has followed from yet, None without one.
        paused: True when the run waits where a person asked it to.
        at: The newest time that the entries tell, in seconds since the run began.
    """

    run_id: str
    ctx: Context
    state: State = INITIAL
    transitions: list[Transitioned] = field(default_factory=list)
    started: Entry | None = None
    results: dict[str, Result] = field(default_factory=dict)
    decided: dict[str, Decided] = field(default_factory=dict)
    outcome: Outcome | None = None
    paused: bool = False
    at: float = 0.0

    @property
    def ended(self) -> bool:
        """True when the run is in a terminal state."""
        return self.state in TERMINAL

    @property
    def answer(self) -> str | None:
        """The answer that the run has come to. One that a state of one's own has stopped is none."""
        return None if self.state is State.ABORT else self.ctx.answer


def fold(
    entries: Iterable[Entry],
    setup: Setup | None = None,
    *,
    machine: Machine = DEFAULT_MACHINE,
    told: Callable[[Turned], object] | None = None,
) -> Folded:
    """The context and state that `entries` lead to, exactly as the run had them; any prefix that has the header will do.

    `setup` is the agent that wrote them (its tools and dialect are used; limits and memory are those of the trail); without it the
    tools are made from their recorded schemas, which cannot judge what only code can. `told` is called with each transition.

    Raises `TrailDamaged` for an entry that does not follow from those before, `TrailVersion` for another schema.
    """
    given = tuple(entries)
    if not given:
        raise TrailError("there are no entries")
    header = given[0]
    try:
        check_table(header, machine)
        begun = begun_context(header, recorded_setup(header, setup))
    except TrailError:
        raise
    except Exception as error:
        said = f"(header) lacks something, or holds what it cannot: {type(error).__name__}: {error}"
        raise TrailDamaged(said, run_id=header.run_id, seq=header.seq) from error
    folded = Folded(run_id=header.run_id, ctx=begun)
    walk = _Walk(folded, None if setup is None else setup.tools, machine, told)
    for entry in given[1:]:
        try:
            walk.follow(entry)
        except TrailError:
            raise
        except Exception as error:
            said = f"({entry.kind}) does not follow from the entries before: {type(error).__name__}: {error}"
            raise TrailDamaged(said, run_id=entry.run_id, seq=entry.seq) from error
    return folded


class _Walk:
    """One fold under way."""

    def __init__(
        self, folded: Folded, tools: Registry | None, machine: Machine, told: Callable[[Turned], object] | None
    ) -> None:
        self._to = folded
        self._tools = tools
        self._machine = machine
        self._told = told
        self._effect: Effect | None = None

    def follow(self, entry: Entry) -> None:
        """Take one more entry in."""
        getattr(self, f"_{entry.kind}")(entry)

    def _header(self, entry: Entry) -> None:
        raise ValueError("a second header")

    def _started(self, entry: Entry) -> None:
        to = self._to
        if to.outcome is not None:
            raise ValueError("an effect before the transition that follows from the outcome")
        self._effect = self._machine.behaviours[to.state].enter(to.ctx)
        if self._effect is None:
            raise ValueError(f"{to.state} asks for no effect")
        expected, again = started_data(self._effect, entry.time), to.started is not None
        if again and _rest_of(expected, entry.body):
            to.started = entry
            return
        differing = [
            name
            for name in expected
            if name not in _TIMED and canonical_json(expected[name]) != canonical_json(entry.body.get(name))
        ]
        if differing:
            raise ValueError(f"{to.state} asks for another effect here: {', '.join(differing)} differ")
        to.started, to.paused = entry, False

    def _result(self, entry: Entry) -> None:
        result = result_of(entry.body)
        if self._to.started is None or self._to.started.body["effect"] != "call_tools":
            raise ValueError("a result while no calls are under way")
        if result.call_id not in {call["id"] for call in self._to.started.body["calls"]}:
            raise ValueError(f"a result of a call that was not started: {result.call_id}")
        self._to.results[result.call_id] = result

    def _outcome(self, entry: Entry) -> None:
        to = self._to
        outcome = outcome_of(entry.body, to.results)
        # What the engine could not fold was followed by how it was stopped.
        if not isinstance(outcome, Cancelled | Broke) and (to.started is None or to.outcome is not None):
            raise ValueError("an outcome of nothing")
        to.outcome, to.at = outcome, outcome.at

    def _transition(self, entry: Entry) -> None:
        to, record = self._to, record_of(entry.body, entry.run_id)
        behaviour, outcome = self._machine.behaviours.get(to.state), to.outcome
        if behaviour is None:
            raise ValueError(f"the run had ended in {to.state}")
        if outcome is None and behaviour.enter(to.ctx) is not None:
            raise ValueError(f"{to.state} waits for an outcome")
        fired = turn(self._machine, to.state, to.ctx, outcome)
        _compare(record, fired)
        if self._told is not None:
            self._told(Turned(entry, fired, self._effect if outcome is not None else None, outcome))
        to.state, to.ctx = fired.row.target, fired.ctx
        to.transitions.append(record)
        to.started, to.outcome, to.results, to.decided, self._effect = None, None, {}, {}, None
        to.at = max(to.at, record.at)

    def _decided(self, entry: Entry) -> None:
        body = entry.body
        if self._to.started is None or self._to.started.body["effect"] != "ask_human":
            raise ValueError("a decision while nobody was asked")
        asked = {call["id"]: call["digest"] for call in self._to.started.body["calls"]}
        if asked.get(body["call_id"]) != body["digest"]:
            raise ValueError("a decision about another call")
        decision: Any = from_data("decision", body["decision"])
        self._to.decided[body["call_id"]] = Decided(decision, body["digest"], body["by"], entry.time)

    def _paused(self, entry: Entry) -> None:
        if entry.body["state"] != self._to.state:
            raise ValueError(f"the run was in {self._to.state}")
        self._to.paused = True

    def _changed(self, entry: Entry) -> None:
        to = self._to
        if "tools" in entry.body:
            to.ctx = with_tools(to.ctx, recorded_tools(entry.body["tools"], self._tools))
        else:
            to.ctx = apply_change(to.ctx, Change.of(entry.body))

    def _resumed(self, entry: Entry) -> None:
        to = self._to
        to.paused = False
        # While a person is asked, time is counted from the asking on: somebody who decides about one of several calls takes none away.
        if to.started is None or to.started.body["effect"] != "ask_human":
            to.at = max(to.at, entry.body["at"])


def _rest_of(expected: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True when `body` is what is left of the expected effect after a crash: some of its calls, or less of its wait."""
    if expected["effect"] != body.get("effect"):
        return False
    if expected["effect"] == "wait":
        return bool(0 <= body["seconds"] <= expected["seconds"])
    asked = [canonical_json(call) for call in expected.get("calls", ())]
    return bool(asked) and all(canonical_json(call) in asked for call in body["calls"])


def _compare(record: Transitioned, fired: Fired) -> None:
    """Raises `ValueError` naming what differs between a recorded transition and the one that the table gives."""
    row, ctx = fired.row, fired.ctx
    if (record.source, record.event, record.target) != (row.source, row.event, row.target):
        raise ValueError(f"the table gives {row}, the trail says {record.source} --{record.event}--> {record.target}")
    now, then = (
        lenient_json([[one.guard, one.result, one.values] for one in given.guards]) for given in (fired, record)
    )
    if now != then:
        raise ValueError("the guards compare other values than the trail says")
    counts = (ctx.seq, ctx.step, ctx.usage.total, ctx.usage.estimated, ctx.model_calls, ctx.tool_calls, ctx.failures)
    for name, value in zip(_COMPARED, counts, strict=True):
        if getattr(record, name) != value:
            raise ValueError(f"{name} is {value}, the trail says {getattr(record, name)}")
