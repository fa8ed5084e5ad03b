"""States and guards of one's own, explored: any of its events may happen, and a guard may answer either way.

A configuration in such a state keeps all that it came with, and `holds` names what is open there: what calls, an answer, or where the
run came from. Where it may go on to follows from that, as for the states of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.custom import OwnState
from fsm_agent.table import Row
from fsm_agent.verify.configuration import HOLDS, Bounds, Config
from fsm_agent.verify.outcomes import Choice, Happened, deadline_outcomes

__all__ = ["arrivals", "holds_calls", "own_outcomes", "wrongly_left"]

_TAGS: Final[Mapping[tuple[State, Event], str]] = {
    (State.PLAN, Event.REPLIED): "reply",
    (State.PLAN, Event.MODEL_FAILED): "failed",
    (State.PLAN, Event.WITHHELD): "withheld",
    (State.PLAN, Event.COMPACTED): "again",
    (State.PLAN, Event.SUMMARY_FAILED): "again",
    (State.PLAN, Event.OVERFLOWED): "again",
    (State.PLAN, Event.GAVE_WAY): "again",
    (State.PLAN, Event.REFLECTION_FAILED): "again",
    (State.VALIDATE, Event.ANSWERED): "answer",
    (State.REVIEW, Event.APPROVED): "approved",
    (State.EXECUTE, Event.DOUBTED): "doubted",
    (State.OBSERVE, Event.OBSERVED): "round",
    (State.RETRY, Event.WAITED): "waited",
    (State.DEGRADE, Event.DEFAULTED): "changed",
    (State.DEGRADE, Event.STRATEGY_CHANGED): "changed",
    (State.DEGRADE, Event.SIMPLIFIED): "changed",
    (State.DEGRADE, Event.ANSWER_FORCED): "forced",
    (State.DEGRADE, Event.EXHAUSTED): "exhausted",
}
_KINDS: Final[Mapping[str, str]] = {
    "fresh": "fresh",
    "waiting": "waiting",
    "repeated": "repeated",
    "approved": "fresh",
    "doubted": "waiting",
}
"""What is open where calls are: the kind that a guard finds. Calls that a person has approved wait for nobody."""
_OVER: Final = " over"
_DECIDED: Final[Mapping[str, str]] = {"fit": "decided", "answer": "decided answer", "over": "decided over"}
"""What is open behind DECIDE, by what is left of the token budget there: nothing is spent since."""
_PLANNING: Final = frozenset({"again", "enough"})
"""What is open behind a call beside the steps, the model having said there that it is enough or not: the round before it is over."""
_OBSERVED: Final = HOLDS[State.OBSERVE]
_CALLS: Final = frozenset({*_KINDS, *(f"{kind}{_OVER}" for kind in _KINDS)})
_MAY_ENTER: Final[Mapping[State, frozenset[str]]] = {
    State.PLAN: frozenset({"waited", "changed", "forced", *_PLANNING, *_DECIDED.values()}),
    State.VALIDATE: frozenset({"reply", "edited", "fallback"}) | _CALLS,
    State.REVIEW: _CALLS,
    State.EXECUTE: _CALLS,
    State.OBSERVE: _OBSERVED | _CALLS | {"answer"},
    State.DECIDE: frozenset({"round", "withheld", "failed", *_DECIDED.values()}),
    State.RETRY: frozenset(_DECIDED.values()),
    State.DEGRADE: frozenset({"round", "withheld", "failed", *_PLANNING, *_DECIDED.values()}) | _CALLS,
    State.FINISH: frozenset({"answer"}),
}
_LOST: Final = "is entered with {holds} open, so that what became of the reply is lost"


def holds_calls(holds: str) -> bool:
    """True when calls are open that VALIDATE or a person let through."""
    return holds in _CALLS


def own_outcomes(state: OwnState, rows: tuple[Row, ...], config: Config, bounds: Bounds) -> Iterator[Happened]:
    """Each event of the state, with each answer that the guards of this package may give there."""
    asks = {row.event for row in rows if row.source is state.name and row.target is State.REVIEW}
    held, over = config.holds.removesuffix(_OVER), config.holds.endswith(_OVER)
    kind = _KINDS.get(held, "")
    known = tuple(left for left, tag in _DECIDED.items() if tag == held)
    tokens = known or (("fit",) if bounds.limits.token_budget is None else ("fit", "answer", "over"))
    for late, event in product(deadline_outcomes(config, bounds) if state.wait else (config.late,), state.events):
        kinds = (kind, "waiting") if held == "fresh" and event in asks else (kind,)
        for one, left in product(kinds, tokens):
            yield Happened(
                event, config._replace(late=late), Choice(one, over and bool(one), left, enough=held == "enough")
            )


def arrivals(config: Config, happened: Happened, row: Row) -> tuple[str, ...]:
    """What may be open in the target: one or several for a state of one's own, that of `happened` for the others."""
    after, choice, held = happened.after, happened.choice, config.holds
    if not row.source.is_own:
        if not row.target.is_own:
            return (after.holds,)
        if happened.event is Event.ACCEPTED:
            kind = "approved" if held == "edited" and choice.calls == "fresh" else choice.calls
            return (f"{kind}{_OVER}" if choice.over else kind,)
        if happened.event is Event.DECIDED:
            return (_DECIDED[choice.tokens],)
        if happened.event is Event.REFLECTED:
            return ("enough" if choice.enough else "again",)
        return (_TAGS.get((row.source, happened.event), after.holds),)
    calls = held in _CALLS
    if row.target.is_own:
        newly = calls and choice.calls == "waiting" and held.startswith("fresh")
        return (f"waiting{_OVER if choice.over else ''}" if newly else held,)
    if row.target is State.OBSERVE:
        return ("refused", "quiet", "ran") if calls else ("note",) if held == "answer" else (held,)
    return ("",) if calls or held == "reply" else (held,)


def wrongly_left(config: Config, row: Row) -> Iterator[tuple[str, str]]:
    """The kind of fault, and the sentence, where a state of one's own leads on what its target cannot take."""
    held, target = config.holds, row.target
    retries = held == "waited" and config.failure.startswith("tool")
    if target is State.DEGRADE and held in _PLANNING and row.reason is StopReason.CONSECUTIVE_FAILURES:
        yield "lost", "DEGRADE is entered for the failures of a round that is over"
    if held in _MAY_ENTER.get(target, (held,)) or (target is State.EXECUTE and retries):
        return
    if target is State.FINISH:
        yield "answer", "the run finishes without an answer that VALIDATE read"
    elif target in (State.EXECUTE, State.REVIEW):
        yield "unchecked", f"{target} is entered from {row.source} where no call was let through"
    else:
        yield "lost", f"{target} {_LOST.format(holds=held or 'nothing')}"
