"""States of one's own, as the machine drives them: what they return is held to what such a state may do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.custom import REFUSED, OwnState, decided_by_person
from fsm_agent.effects import Call, Outcome, Wait, Waited
from fsm_agent.rows import Row
from fsm_agent.states.base import Behaviour, Step, unexpected

_CHANGEABLE: Final = frozenset({"calls", "note", "note_kind", "answer", "own"})


def behaviours_of(rows: Sequence[Row], states: Sequence[OwnState]) -> Mapping[State, Behaviour]:
    """The behaviour of each of `states` in a table with `rows`."""
    return {one.name: _Own(one, rows).behaviour for one in states}


class _Own:
    """One state. `asks` are the events after which a person may be asked: those with a row to REVIEW."""

    def __init__(self, state: OwnState, rows: Sequence[Row]) -> None:
        self.state = state
        self.asks = {row.event for row in rows if row.source is state.name and row.target is State.REVIEW}
        self.behaviour = Behaviour(frozenset(state.events), self.enter, self.resolve)

    def enter(self, ctx: Context) -> Wait | None:
        """The pause before it, no longer than the deadline leaves."""
        if self.state.wait is None:
            return None
        left, seconds = ctx.time_left, float(self.state.wait(ctx))
        if not 0.0 <= seconds < float("inf"):
            raise ValueError(f"the wait of {self.state.name} is {seconds}: give seconds, 0 for none")
        seconds = seconds if left is None else min(seconds, left)
        return Wait(seconds) if seconds > 0 else None

    def resolve(self, ctx: Context, outcome: Outcome | None) -> Step:
        """What the state says, checked."""
        name = self.state.name
        if isinstance(outcome, Waited):
            ctx = ctx.change(at=outcome.at)
        elif outcome is not None:
            raise unexpected(name, outcome)
        shown = [one.digest for one in ctx.calls]
        said = self.state.resolve(ctx)
        event, after = said if isinstance(said, tuple) else (said, ctx)
        if event not in self.state.events:
            known = ", ".join(self.state.events)
            raise ValueError(f"{name} returned {event!r}, and has the events {known}")
        if not isinstance(after, Context):
            raise TypeError(f"{name} returned {type(after).__name__}: give an event, or an event and the context")
        for one, digest in zip(ctx.calls, shown, strict=True):
            if one.digest != digest:
                raise _changed(name, one)
        happened = Event.named(event)
        if after is not ctx:
            _check(name, ctx, after, asks=happened in self.asks, events=self.asks)
        return Step(happened, after)


def _check(name: str, ctx: Context, after: Context, *, asks: bool, events: Collection[Event]) -> None:
    """Raises `ValueError` naming what a state of one's own may not change. So no count or limit depends on its code."""
    before, now = ctx.__dict__, after.__dict__
    changed = {field for field, value in now.items() if value is not before[field] and value != before[field]}
    if more := changed - _CHANGEABLE or ({"setup"} if after.setup is not ctx.setup else set()):
        raise ValueError(
            f"{name} changed {', '.join(sorted(more))} of the context: a state of one's own may refuse, require_approval and keep"
        )
    if "answer" in changed and ctx.answer is None:
        raise ValueError(f"{name} gave an answer where there was none")
    if changed & {"note", "note_kind"} and (ctx.answer is None or after.note_kind != REFUSED):
        raise ValueError(f"{name} wrote a note where no answer was refused")
    if "answer" in changed and after.answer is None and not after.note:
        raise ValueError(f"{name} took the answer away without a word: use refuse(ctx, reason)")
    if "calls" in changed:
        if len(after.calls) != len(ctx.calls):
            raise ValueError(f"{name} added or took away calls: refuse those that must not run")
        for old, new in zip(ctx.calls, after.calls, strict=True):
            _check_call(name, old, new)
        marked = any(
            new.needs_approval and not old.needs_approval for old, new in zip(ctx.calls, after.calls, strict=True)
        )
        if marked and (not asks or decided_by_person(ctx)):
            where = ", ".join(sorted(events)) or "none"
            raise ValueError(
                f"{name} requires approval with an event that has no row to REVIEW, or after a person has decided (such events: {where})"
            )


def _check_call(name: str, old: Call, new: Call) -> None:
    allowed = replace(
        old,
        refusal=new.refusal if not old.refusal else old.refusal,
        refusal_kind=new.refusal_kind if not old.refusal else old.refusal_kind,
        needs_approval=old.needs_approval or new.needs_approval,
    )
    if new != allowed or (new.refusal_kind != old.refusal_kind and not (new.refusal and new.refusal_kind == REFUSED)):
        raise _changed(name, old)


def _changed(name: str, call: Call) -> ValueError:
    return ValueError(f"{name} changed the call of {call.tool}: it may refuse it, or require approval for it")
