"""The names by which a test says what a run knows: fields of the context, limits, and words that stand for them."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.context import Cause, Context, Failure
from fsm_agent.effects import Usage
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import Limits

__all__ = ["Known", "member", "named_fields"]

_Kind = TypeVar("_Kind", State, Event)
_FIELDS: Final = frozenset(one.name for one in dataclasses.fields(Context) if one.init) - {"setup"}
_WORDS: Final = {
    "steps": "step",
    "elapsed": "at",
    "empty_replies": "nudges",
    "consecutive_failures": "failures",
    "idle": "idle_steps",
    "attempts": "attempt",
    "waiting": "waited",
}
"""Other words for a field, with the same value."""


def _tokens(ctx: Context, value: Any) -> dict[str, Any]:
    return {"usage": Usage(int(value), 0, int(value))}


def _retries(ctx: Context, value: Any) -> dict[str, Any]:
    return {"attempt": int(value) + 1}


def _reason(ctx: Context, value: Any) -> dict[str, Any]:
    try:
        return {"cause": Cause(StopReason(value))}
    except ValueError as error:
        raise DefinitionError(f"there is no reason {value!r}; there are {', '.join(StopReason)}") from error


def _failure(ctx: Context, value: Any) -> dict[str, Any]:
    """A failure, or whose it is: that of a model, a tool or a reply, which a retry may mend."""
    if value is None or isinstance(value, Failure):
        return {"failure": value}
    if value not in ("model", "tool", "reply"):
        raise DefinitionError(f'failure must be "model", "tool", "reply" or a Failure, not {value!r}')
    return {"failure": Failure(str(value), str(value), "made up by the test", retryable=True)}


def _elapsed(ctx: Context, value: Any) -> dict[str, Any]:
    return {"at": float(value) + ctx.waited}


_MADE: Final[Mapping[str, Callable[[Context, Any], dict[str, Any]]]] = {
    "tokens": _tokens,
    "retries": _retries,
    "reason": _reason,
    "failure": _failure,
    "elapsed": _elapsed,
}
"""Words whose value is not that of a field."""
_NUMBERS: Final = frozenset({"tokens", "retries", "elapsed"})
"""Those of them that are counts or seconds."""
_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "True or False"),
    (str, "a text"),
    ((int, float), "a number"),
    (Mapping, "a mapping"),
    (Collection, "a tuple or another collection"),
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a test says of a run: limits (all of them, or the ones that differ), and what it says of the context, by name."""

    limits: Limits | Mapping[str, Any] | None
    said: Mapping[str, Any]

    def applied(self, ctx: Context) -> Context:
        """`ctx` with everything that was said; what is made of other fields comes last."""
        for name, value in self.said.items():
            _check_kind(ctx, name, value)
        plain = {_WORDS.get(name, name): value for name, value in self.said.items() if name not in _MADE}
        after = ctx.change(**plain)
        for name, value in self.said.items():
            if name in _MADE:
                after = after.change(**_MADE[name](after, value))
        return after


def _check_kind(ctx: Context, name: str, value: Any) -> None:
    """What is said of a field is of the kind that the field has in a run: a number, a text, several of something."""
    known = 0 if name in _NUMBERS else None if name in _MADE else getattr(ctx, _WORDS.get(name, name))
    if known is None or (value is None and name not in _NUMBERS):
        return
    kind, wanted = next(
        (one for one in _KINDS if isinstance(known, one[0])), (type(known), f"of the kind {type(known).__name__}")
    )
    if not isinstance(value, kind) or isinstance(value, str) is not isinstance(known, str):
        raise DefinitionError(f"at(): {name}={value!r} must be {wanted}")


def named_fields(given: Mapping[str, Any], limits: Limits | Mapping[str, Any] | None) -> Known:
    """Sort `given` into limits and what is said of the context. Raises `DefinitionError` for a name that is neither."""
    own = {name: value for name, value in given.items() if name in Limits.model_fields}
    said = {name: value for name, value in given.items() if name not in own}
    known = sorted({*_FIELDS, *_WORDS, *_MADE, *Limits.model_fields})
    for name in said:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            meant = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"
            raise DefinitionError(f"at(): a run knows nothing of the name {name!r}{meant}")
    twice = [name for name in said if name in _WORDS and _WORDS[name] in said]
    if twice:
        raise DefinitionError(f"at(): {twice[0]} and {_WORDS[twice[0]]} say the same: give one of them")
    if not own:
        return Known(limits, said)
    if isinstance(limits, Limits):
        return Known(limits.replace(**own), said)
    return Known({**(limits or {}), **own}, said)


def member(kind: type[_Kind], given: object, what: str, known: Iterable[str]) -> _Kind:
    """The state or event among `known` that `given` names, whatever its case. Raises `DefinitionError` for none."""
    names = list(dict.fromkeys(known))
    for name in names:
        if str(given).casefold() == name.casefold():
            return kind.named(name)
    raise DefinitionError(f"there is no {what} {str(given)!r}; there are {', '.join(names)}")
