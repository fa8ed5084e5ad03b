"""States of one's own, for a table that is extended: what one is, and what it may do to a run.

Such a state only judges: it may refuse open calls, have a person asked about them, refuse or reword an answer, wait, and keep facts for
guards of one's own. Nothing else of the context can be changed, so every count and limit of the engine stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, Final

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.effects import Call
from fsm_agent.errors import TableError
from fsm_agent.rounds import runnable
from fsm_agent.tools.plain import plain, well_formed

__all__ = ["OwnState", "check_states", "decided_by_person", "keep", "open_calls", "refuse", "require_approval", "state"]

REFUSED: Final = "refused"
"""The kind of a refusal, and of a note, that a state of one's own gives."""

Said = str | tuple[str, Context]
"""What a state of one's own returns: the event that happened, and the context when it changed something."""
Resolve = Callable[[Context], Said]


@dataclass(frozen=True, slots=True)
class OwnState:
    """A state of one's own. `resolve` gives one of `events`, and is pure: no clock, randomness, I/O or logging.

    `wait` are seconds to pause before it, None for none. `about` says what it does, for a person.
    """

    name: State
    events: tuple[Event, ...]
    resolve: Resolve
    wait: Callable[[Context], float] | None = None
    about: str = ""


def state(
    name: str, *, events: Iterable[str], wait: float | Callable[[Context], float] | None = None
) -> Callable[[Resolve], OwnState]:
    """A decorator that makes a state out of `resolve(ctx)`, which returns an event, or an event and the changed context.

    `events` are all that it can return, none of them one of the package's. `wait` pauses that many seconds first (up to the deadline), or
    as many as a pure function of the context says. The first line of the docstring says what the state does.

    Raises `fsm_agent.errors.TableError` without events, for a `wait` that is no time, and for an async function.
    """
    listed = tuple(dict.fromkeys(Event.named(event) for event in ((events,) if isinstance(events, str) else events)))
    if not listed:
        raise TableError(
            f"the state {name} has no events: name what it can return, as in events=['cleared', 'flagged']"
        )
    pause = _seconds(name, wait) if isinstance(wait, int | float) else wait

    def made(resolve: Resolve) -> OwnState:
        if iscoroutinefunction(resolve):
            raise TableError(
                f"the state {name} is made of a plain function of the context, not async: a model or a service is asked by a tool"
            )
        about = (resolve.__doc__ or "").strip().partition("\n")[0]
        return OwnState(State.named(name), listed, resolve, pause, about)

    return made


def _seconds(name: str, wait: float) -> Callable[[Context], float]:
    if not 0.0 <= wait < float("inf"):
        raise TableError(f"the wait of {name} is {wait}: give seconds, 0 or None for none")
    return lambda _: wait


def check_states(given: Iterable[object]) -> None:
    """Raises `fsm_agent.errors.TableError` for what no `state` has made."""
    for one in given:
        if not isinstance(one, OwnState):
            raise TableError(f"states=[...] holds {one!r}: a state is made with fsm_agent.table.state")


def open_calls(ctx: Context) -> tuple[Call, ...]:
    """The calls that are about to be executed: `tool`, `arguments`, `signature` and `id` of each."""
    return runnable(ctx)


def refuse(ctx: Context, reason: str, *calls: Call) -> Context:
    """The context with `calls` (by default all open ones) refused, or, where there is an answer, with the answer refused.

    The model reads `reason` once the run comes to OBSERVE. A refused call is never executed, and counts as a failed one.
    """
    said = well_formed(reason) or ctx.texts.no_reason
    if ctx.answer is not None:
        return ctx.change(answer=None, note=ctx.texts.answer_refused.format(reason=said), note_kind=REFUSED)
    text = ctx.texts.refused.format(reason=said)
    chosen = {one.id for one in calls or runnable(ctx)}
    return ctx.change(
        calls=tuple(
            replace(one, refusal=text, refusal_kind=REFUSED) if one.id in chosen and not one.refusal else one
            for one in ctx.calls
        )
    )


def require_approval(ctx: Context, *calls: Call) -> Context:
    """The context with `calls` (by default all open ones) waiting for a person: for an event with a row to REVIEW.

    That row asks the guard `approval_required`. In a round that a person has decided about already nobody is asked again: those of `calls`
    that were not approved are refused, and the model may make them again in a reply of their own.
    """
    chosen = {one.id for one in calls or runnable(ctx)}
    if decided_by_person(ctx):
        late = [one for one in runnable(ctx) if one.id in chosen and not one.approved]
        return refuse(ctx, ctx.texts.approval_late, *late) if late else ctx
    return ctx.change(
        calls=tuple(
            replace(one, needs_approval=True) if one.id in chosen and not one.refusal else one for one in ctx.calls
        )
    )


def decided_by_person(ctx: Context) -> bool:
    """True when a person has decided about calls of the open round."""
    before = ctx.texts.denied_before
    decided = any(one.approved or (one.refusal_kind == "denied" and one.refusal != before) for one in ctx.calls)
    return decided or any(one.ok and not one.executed for one in ctx.results)


def keep(ctx: Context, **facts: Any) -> Context:
    """The context with `facts` in `ctx.own`, where later states and guards of one's own read them. Made plain JSON data."""
    kept: Mapping[str, Any] = plain(facts)
    return ctx.change(own={**ctx.own, **kept})
