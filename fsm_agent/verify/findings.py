"""From the explored graph to what is wrong: breaches and cycles with the shortest way there, and rows that never fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fsm_agent.ladder import Rung
from fsm_agent.limits import Limits
from fsm_agent.machine import Evaluated, Machine
from fsm_agent.records import Transitioned
from fsm_agent.table import Row
from fsm_agent.verify.certificate import Fault, Unused
from fsm_agent.verify.configuration import Bounds
from fsm_agent.verify.graph import Arc, Breach, Graph, explore, possible_outcomes, shortest_path
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.outcomes import Happened

__all__ = ["faults_of", "unused_rows"]

_MOST_FAULTS: Final = 8
_LEAST: Final = Limits(
    max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2, deadline=60.0
)
_WIDE: Final = (
    Bounds(_LEAST, (Rung.FALLBACK, Rung.STRATEGY, Rung.ANSWER), _LEAST.max_retries, reflections=1),
    Bounds(
        _LEAST.replace(on_limit="stop", in_doubt="tell", deadline=None),
        (Rung.FALLBACK, Rung.DEFAULT, Rung.SIMPLER, Rung.STOP),
        _LEAST.max_retries,
        simpler=True,
        defaults=True,
        reflections=1,
    ),
)
"""Under these, between them, every row of a right table fires."""


def faults_of(judge: Judge, graph: Graph, found: tuple[int, tuple[Arc, ...]] | None) -> tuple[Fault, ...]:
    """Some breaches, at least one of each kind, each with the shortest way there, and the shortest cycle."""
    first = {breach.kind: breach for breach in reversed(graph.breaches)}
    told = sorted(graph.breaches, key=lambda breach: breach is not first[breach.kind])
    faults = [_fault(judge, graph, breach) for breach in told[: max(_MOST_FAULTS, len(first))]]
    if found is not None:
        begin, back = found
        way = shortest_path(graph, (begin,), judge.bounds.limits.step_bound)
        rows = _rows(graph, back)
        sentence = (
            f"a run need not end: from {graph.configs[begin]} it can come back there, and no bounded counter has grown"
        )
        faults.append(
            Fault(
                kind="endless",
                sentence=sentence,
                row=rows[-1],
                path=_rows(graph, way),
                circle=rows,
                trail=_trail(graph, (*way, *back)),
            )
        )
    return tuple(faults)


def _fault(judge: Judge, graph: Graph, breach: Breach) -> Fault:
    way = (*shortest_path(graph, breach.sources, judge.bounds.limits.step_bound), Arc(breach.row, -1))
    return Fault(
        kind=breach.kind,
        sentence=breach.sentence,
        row=graph.rows[breach.row],
        path=_rows(graph, way),
        trail=_trail(graph, way),
    )


def _rows(graph: Graph, way: Sequence[Arc]) -> tuple[Row, ...]:
    return tuple(graph.rows[arc.row] for arc in way)


def _trail(graph: Graph, way: Sequence[Arc]) -> tuple[Transitioned, ...]:
    """The way as records that a diagram takes."""
    records = []
    step = 0
    for number, arc in enumerate(way, 1):
        row = graph.rows[arc.row]
        step += arc.counts == "step"
        asked = tuple(Evaluated(guard.name, True, {}) for guard in row.guards)
        records.append(_record(number, row, asked, step))
    return tuple(records)


def _record(number: int, row: Row, asked: tuple[Evaluated, ...], step: int) -> Transitioned:
    return Transitioned(
        run_id="counterexample",
        seq=number,
        source=row.source,
        event=row.event,
        target=row.target,
        guards=asked,
        step=step,
        tokens=0,
        estimated_tokens=0,
        model_calls=0,
        tool_calls=0,
        failures=0,
        tools=(),
        signatures=(),
        repairs=(),
        elapsed_ms=0.0,
        at=0.0,
        reason=row.reason,
    )


def unused_rows(judge: Judge, graph: Graph) -> tuple[tuple[Unused, ...], tuple[Fault, ...]]:
    """Rows that never fired: those that these limits switch off, and those that no limits let fire."""
    quiet = [place for place in range(len(graph.rows)) if place not in graph.fired]
    if not quiet:
        return (), ()
    elsewhere = _fired_somewhere(judge.machine)
    held = _held(judge, graph, quiet)
    unused, faults = [], []
    for place in quiet:
        row = graph.rows[place]
        why = _why(judge, row, held[place])
        if place in elsewhere:
            unused.append(Unused(row, why))
        else:
            faults.append(Fault(kind="dead", sentence=f"this row can never fire: {why}", row=row))
    return tuple(unused), tuple(faults)


@lru_cache(maxsize=8)
def _fired_somewhere(machine: Machine) -> frozenset[int]:
    """The rows that fire under limits which, between them, switch everything on."""
    fired: set[int] = set()
    for bounds in _WIDE:
        fired |= explore(Judge(machine, bounds), 200_000).fired
    return frozenset(fired)


class _Held:
    """What was seen of the guards of a row that never fired."""

    def __init__(self) -> None:
        self.met = False
        self.ever: set[str] = set()
        self.taken_by: Counter[Row] = Counter()


def _held(judge: Judge, graph: Graph, quiet: Sequence[int]) -> dict[int, _Held]:
    """Ask the guards of those rows wherever their event happens, and who fired instead."""
    found = {place: _Held() for place in quiet}
    for config in graph.configs:
        places = [place for place in quiet if graph.rows[place].source is config.state]
        if not places:
            continue
        for happened in possible_outcomes(judge, config):
            for place in places:
                if graph.rows[place].event is happened.event:
                    _look(judge, graph.rows[place], happened, found[place])
    return found


def _look(judge: Judge, row: Row, happened: Happened, seen: _Held) -> None:
    ctx = judge.context(happened.after, happened.choice)
    seen.met = True
    # A guard of one's own may answer either way.
    results = {guard.name: guard.is_own or guard.test(ctx)[0] for guard in row.guards}
    seen.ever |= {name for name, result in results.items() if result}
    if all(results.values()):
        seen.taken_by.update(
            judge.machine.rows[place] for place in judge.fire(happened.event, happened.after, happened.choice)
        )


def _why(judge: Judge, row: Row, seen: _Held) -> str:
    if not seen.met:
        return f"{row.event} never happens in {row.source}"
    if seen.taken_by:
        # First the one that asks the same and more, which is what takes its place.
        near = sorted(seen.taken_by, key=lambda one: (-len({*one.guards} & {*row.guards}), -seen.taken_by[one]))
        more = f", and {len(near) - 1} others" if len(near) > 1 else ""
        return f"shadowed wherever its guards hold, by {near[0]}{more}"
    never = [guard for guard in row.guards if guard.name not in seen.ever]
    if never:
        told = [f"{guard.name} never holds there: {guard.describe(judge.bounds.limits)}" for guard in never]
        return "; ".join(told)
    return "its guards never hold together"
