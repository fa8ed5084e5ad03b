"""Where the time and the tokens of a run went, state by state. Pure: lengths are thousandths of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fsm_agent.alphabet import State
from fsm_agent.report.parts import Turn

__all__ = ["HEIGHT", "LENGTH", "Stay", "Timeline", "timeline"]

LENGTH: Final = 1000.0
HEIGHT: Final = 100.0
_LEAST: Final = 1.5
"""What the shortest stay is drawn with, so that it can be seen."""
_TICKS: Final = 5
_WAIT_SHARE: Final = 0.2
"""Of the time drawn, what waiting for a person may take at most."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A state: how often the run was in it, for how long, what tokens came out of it, and its bars, as (begin, length)."""

    state: str
    visits: int
    elapsed_ms: float
    tokens: int
    bars: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The stays, in the order in which the states came; `ticks` are the ms at even distances along the whole.

    `rising` are points (x, y) of the tokens so far, y counted from the top. `shortened` says that waiting for a person is drawn shorter
    than it was.
    """

    stays: tuple[Stay, ...]
    elapsed_ms: float
    tokens: int
    ticks: tuple[float, ...]
    rising: tuple[tuple[float, float], ...]
    shortened: bool


def timeline(turns: Sequence[Turn]) -> Timeline:
    """The time line of the transitions that were made."""
    done = [turn for turn in turns if turn.target]
    real = [max(turn.elapsed_ms, 0.0) for turn in done]
    drawn, shortened = _drawn(done, real)
    scale = LENGTH / (sum(drawn) or 1.0)
    tokens = sum(turn.tokens for turn in done)
    bars: dict[str, list[tuple[float, float]]] = {}
    rising = [(0.0, HEIGHT)]
    at, spent = 0.0, 0
    for turn, length in zip(done, drawn, strict=True):
        width = max(length * scale, _LEAST)
        bars.setdefault(turn.source, []).append((min(at, LENGTH - width), width))
        at += length * scale
        if turn.tokens:
            rising.append((at, rising[-1][1]))
            spent += turn.tokens
            rising.append((at, HEIGHT - HEIGHT * spent / tokens if tokens else HEIGHT))
    rising.append((LENGTH, rising[-1][1]))
    if turns:
        bars.setdefault(turns[-1].target or turns[-1].source, [])
    return Timeline(
        stays=tuple(_stay(state, done, turns, tuple(own)) for state, own in bars.items()),
        elapsed_ms=sum(real),
        tokens=tokens,
        ticks=tuple(_at(LENGTH * turn / (_TICKS - 1) / scale, real, drawn) for turn in range(_TICKS)),
        rising=tuple(rising),
        shortened=shortened,
    )


def _stay(state: str, done: Sequence[Turn], turns: Sequence[Turn], bars: tuple[tuple[float, float], ...]) -> Stay:
    own = [turn for turn in done if turn.source == state]
    last = turns[-1].target or turns[-1].source
    return Stay(
        state=state,
        visits=len(own) + (last == state),
        elapsed_ms=sum(turn.elapsed_ms for turn in own),
        tokens=sum(turn.tokens for turn in own),
        bars=bars,
    )


def _drawn(done: Sequence[Turn], real: Sequence[float]) -> tuple[list[float], bool]:
    """The times as they are drawn: a person may take days, and the rest has to stay visible beside that."""
    waits = [turn.source == State.REVIEW for turn in done]
    others = sum(time for time, wait in zip(real, waits, strict=True) if not wait)
    waited = sum(real) - others
    room = others * _WAIT_SHARE / (1 - _WAIT_SHARE)
    if not others or waited <= room:
        return list(real), False
    return [time * room / waited if wait else time for time, wait in zip(real, waits, strict=True)], True


def _at(drawn_ms: float, real: Sequence[float], drawn: Sequence[float]) -> float:
    """The real time at a place of the drawing."""
    passed = 0.0
    for time, length in zip(real, drawn, strict=True):
        if drawn_ms <= length:
            return passed + (time * drawn_ms / length if length else 0.0)
        drawn_ms -= length
        passed += time
    return passed
