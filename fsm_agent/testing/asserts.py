"""Assertions about a run. What they say when they fail shows the path that was taken, with every guard that was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import EllipsisType
from typing import Any, Final, Protocol

from fsm_agent.alphabet import State, Status, StopReason
from fsm_agent.guards import GUARDS
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.table import Row
from fsm_agent.testing.tool import ScriptedTool

__all__ = [
    "assert_answer",
    "assert_called",
    "assert_guard",
    "assert_path",
    "assert_reason",
    "assert_status",
    "assert_transitions",
    "describe_run",
]

_SHOWN: Final = 60


class _Travelled(Protocol):
    @property
    def transitions(self) -> tuple[Transitioned, ...]: ...


Travelled = RunResult | _Travelled | Sequence[Transitioned]
"""A run: its result, a `StoppedRun`, or its transitions."""
Step = Row | Transitioned | str | tuple[str, str, str] | EllipsisType
"""A transition that is expected: a row, its text ("PLAN --replied--> VALIDATE"), (source, event, target), or `...` for any number."""


def assert_path(run: Travelled, expected: Iterable[State | str | EllipsisType]) -> None:
    """The run went through exactly these states, the first included; `...` stands for any number of them."""
    __tracebackhide__ = True
    taken = _transitions(run)
    states = [str(one) for one in (*[one.source for one in taken[:1]], *[one.target for one in taken])]
    wanted = [one if one is ... else str(one) for one in expected]
    if not _matches(wanted, states):
        raise AssertionError(
            f"the run took another path\n  expected: {_arrows(wanted)}\n  taken:    {_arrows(states)}\n{describe_run(run)}"
        )


def assert_transitions(run: Travelled, expected: Iterable[Step]) -> None:
    """The run made exactly these transitions, in order; `...` stands for any number of them."""
    __tracebackhide__ = True
    taken = [_text(one) for one in _transitions(run)]
    wanted = [one if one is ... else _text(one) for one in expected]
    if _matches(wanted, taken):
        return
    at = next(
        (place for place, (a, b) in enumerate(zip(wanted, taken, strict=False)) if a != b), min(len(wanted), len(taken))
    )
    if ... in wanted[: at + 1]:
        where = "no part of the run fits where ... stands"
    else:
        where = f"they part at transition {at + 1}: expected {_nth(wanted, at)}, taken {_nth(taken, at)}"
    raise AssertionError(f"the run made other transitions; {where}\n{describe_run(run)}")


def assert_reason(result: RunResult, reason: StopReason | str | None) -> None:
    """The run stopped for this reason."""
    __tracebackhide__ = True
    if result.reason != reason:
        raise AssertionError(
            f"the run stopped as {result.reason}, not as {reason}: {result.detail}\n{describe_run(result)}"
        )


def assert_status(result: RunResult, status: Status | str) -> None:
    """The run has this status."""
    __tracebackhide__ = True
    if result.status != status:
        raise AssertionError(f"the run is {result.status}, not {status}: {result.detail}\n{describe_run(result)}")


def assert_answer(result: RunResult, answer: str) -> None:
    """The run gave exactly this answer."""
    __tracebackhide__ = True
    if result.answer != answer:
        raise AssertionError(
            f"the run answered {result.answer!r}, not {answer!r}: {result.detail}\n{describe_run(result)}"
        )


def assert_guard(run: Travelled, name: str, *, held: bool = True, times: int | None = None) -> None:
    """A guard held (or, with `held=False`, did not hold) when it was asked: at least once, or exactly so many times.

    A name that is nearly one of the table's guards, and was not asked, is taken for misspelt.
    """
    __tracebackhide__ = True
    asked = [one for record in _transitions(run) for one in record.guards if one.guard == name]
    found = [one for one in asked if one.result is held]
    if not asked and name not in GUARDS and (near := get_close_matches(name, GUARDS, n=1)):
        raise AssertionError(f"no guard {name} was asked; did you mean {near[0]}?\n{describe_run(run)}")
    if len(found) == times or (times is None and found):
        return
    said = "held" if held else "did not hold"
    wanted = "at least once" if times is None else f"{times} times"
    values = "; ".join(f"{'held' if one.result else 'did not hold'} with {dict(one.values)}" for one in asked[-3:])
    last = f"; newest: {values}" if asked else ""
    raise AssertionError(
        f"the guard {name} {said} {len(found)} times of {len(asked)} that it was asked, not {wanted}{last}\n{describe_run(run)}"
    )


def assert_called(tool: ScriptedTool, /, *, times: int | None = None, **arguments: Any) -> None:
    """The tool was called with these arguments, others left open: at least once, or exactly so many times."""
    __tracebackhide__ = True
    fitting = [call for call in tool.calls if _fits(call, arguments)]
    if len(fitting) == times or (times is None and fitting):
        return
    wanted = "at least once" if times is None else f"{times} times"
    made = [f"  {number}. {tool.name}({_shown(call)})" for number, call in enumerate(tool.calls, 1)]
    listed = "\n".join(["calls:", *made]) if made else "it was not called at all"
    raise AssertionError(f"{tool.name}({_shown(arguments)}) was called {len(fitting)} times, not {wanted}\n{listed}")


def describe_run(run: Travelled) -> str:
    """The run for a reader: one line a transition, with the guards that were asked, and how it ended."""
    taken = _transitions(run)
    lines = ["what happened:", *(str(one) for one in taken[-_SHOWN:])] if taken else ["nothing happened"]
    if len(taken) > _SHOWN:
        lines.insert(1, f"     ... {len(taken) - _SHOWN} before")
    result = getattr(run, "result", run)
    if isinstance(result, RunResult):
        why = "" if result.reason is None else f" ({result.reason})"
        lines.append(f"     {result.status}{why}: {result.detail}")
    return "\n".join(lines)


def _transitions(run: Travelled) -> tuple[Transitioned, ...]:
    return tuple(run) if isinstance(run, Sequence) else run.transitions


def _text(one: Step) -> str:
    """A transition as text, without its guards."""
    if isinstance(one, tuple):
        return f"{one[0]} --{one[1]}--> {one[2]}"
    if isinstance(one, str):
        head, bracket, tail = one.partition(" [")
        return f"{head}{tail.partition(']')[2]}" if bracket else one
    assert isinstance(one, Row | Transitioned), "... is told apart before"
    return f"{one.source} --{one.event}--> {one.target}"


def _matches(wanted: Sequence[Any], taken: Sequence[str]) -> bool:
    """True when `taken` is `wanted`, where each `...` may be anything."""
    reach = {0}
    for one in wanted:
        if one is ...:
            reach = set(range(min(reach, default=len(taken) + 1), len(taken) + 1))
        else:
            reach = {place + 1 for place in reach if place < len(taken) and taken[place] == one}
    return len(taken) in reach


def _arrows(names: Sequence[Any]) -> str:
    return " -> ".join("..." if one is ... else str(one) for one in names) or "nothing"


def _nth(texts: Sequence[Any], place: int) -> str:
    return str(texts[place]) if place < len(texts) else "nothing more"


def _fits(call: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    return all(name in call and call[name] == value for name, value in arguments.items())


def _shown(call: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in call.items())
