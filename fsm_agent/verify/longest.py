"""Does every path end, and how long is the longest? Over the explored graph, step by step.

Within a step the graph must have no cycle; that is searched first. Then the longest way is found from the last step backwards: what is
left from a configuration with s steps spent follows from what is left with s + 1. Once that grows by the same amount everywhere from step
to step, it does so for ever (max-plus linearity: the same transitions go on being the longest), so any `max_steps` costs the same.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from fsm_agent.alphabet import Event, State
from fsm_agent.verify.graph import Arc, Graph

__all__ = ["Cost", "Worst", "find_cycle", "measure"]

_MOST_PERIODS: Final = 4
_MOST_SEARCHED: Final = 50
_ZERO: Final = (0, 0, 0, 0)
Value = tuple[int, int, int, int]
"""Transitions, model calls, retries, milliseconds of backoff: of each the most, whichever way gives it."""


class Cost(NamedTuple):
    """What one more of something that is bounded from outside adds at most: a crash, a summary, a prompt sent again."""

    transitions: int
    model_calls: int


@dataclass(frozen=True, slots=True)
class Worst:
    """The longest way from the beginning, without what `extra` tells the cost of."""

    transitions: int
    model_calls: int
    retries: int
    backoff: float
    longest_step: int
    extra: dict[str, Cost]


def find_cycle(graph: Graph) -> tuple[int, tuple[Arc, ...]] | None:
    """A configuration and a way back to it on which no bounded counter grows, near the beginning. None when there is none."""
    inner = [[arc for arc in arcs if not arc.counts] for arcs in graph.arcs]
    left = set(range(len(inner))) - set(_sorted_backwards([{arc.target for arc in arcs} for arcs in inner]))
    if not left:
        return None
    found: tuple[int, tuple[Arc, ...]] | None = None
    tried = 0
    for begin in _by_distance(graph):
        if begin in left and tried < _MOST_SEARCHED:
            way = _way_back(inner, begin, left)
            tried += way is not None
            if way is not None and (found is None or len(way) < len(found[1])):
                found = begin, way
    return found


def _by_distance(graph: Graph) -> list[int]:
    """The configurations, those first that few transitions lead to."""
    met, order = {0}, [0]
    for at in order:
        for arc in graph.arcs[at]:
            for target in (arc.target, arc.spent):
                if target >= 0 and target not in met:
                    met.add(target)
                    order.append(target)
    return order


def _way_back(inner: list[list[Arc]], begin: int, within: set[int]) -> tuple[Arc, ...] | None:
    came: dict[int, tuple[int, Arc]] = {}
    open_ = deque([begin])
    while open_:
        at = open_.popleft()
        for arc in inner[at]:
            if arc.target not in within or arc.target in came:
                continue
            came[arc.target] = (at, arc)
            if arc.target == begin:
                return _retraced(came, begin)
            open_.append(arc.target)
    return None


def _retraced(came: dict[int, tuple[int, Arc]], begin: int) -> tuple[Arc, ...]:
    at, arc = came[begin]
    way = [arc]
    while at != begin:
        at, arc = came[at]
        way.append(arc)
    return tuple(reversed(way))


def _sorted_backwards(targets: list[set[int]]) -> list[int]:
    """The configurations, each after all that it leads to; those that lead into a cycle are left out."""
    leads = [len(those) for those in targets]
    back: list[list[int]] = [[] for _ in targets]
    for source, those in enumerate(targets):
        for target in those:
            back[target].append(source)
    ready = [number for number, count in enumerate(leads) if not count]
    order: list[int] = []
    while ready:
        at = ready.pop()
        order.append(at)
        for source in back[at]:
            leads[source] -= 1
            if not leads[source]:
                ready.append(source)
    return order


class _Measuring:
    """The longest ways. A graph with a cycle must not be given."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = _sorted_backwards([{arc.target for arc in arcs if not arc.counts} for arcs in graph.arcs])
        # Per configuration, without doubles: transitions within a step, those that begin one, those that are counted apart.
        self.inner: list[list[tuple[int, Value]]] = []
        self.steps: list[list[tuple[int, int, Value]]] = []
        self.apart: list[tuple[str, int, int, Value]] = []
        for source, arcs in enumerate(graph.arcs):
            inner: dict[tuple[int, Value], None] = {}
            steps: dict[tuple[int, int, Value], None] = {}
            for arc in arcs:
                cost = self.cost(arc)
                if arc.counts == "step":
                    steps[(arc.target, arc.spent, cost)] = None
                elif arc.counts:
                    self.apart.append((arc.counts, source, arc.target, cost))
                else:
                    inner[(arc.target, cost)] = None
            self.inner.append(list(inner))
            self.steps.append(list(steps))
        self.extra: dict[str, Value] = {}

    def cost(self, arc: Arc) -> Value:
        row = self.graph.rows[arc.row]
        asked = row.source is State.PLAN and row.event not in (Event.WITHHELD, Event.CANCELLED, Event.BROKE)
        waited = row.event is Event.WAITED
        return 1, int(asked), int(waited), arc.wait

    def layer(self, after: list[Value] | None, last: list[Value] | None) -> list[Value]:
        """What is left at most from each configuration. `after` holds it for one step more, None when no step is left but the last."""
        best: list[Value] = [_ZERO] * len(self.inner)
        for at in self.order:
            a = b = c = d = 0
            for target, (w, x, y, z) in self.inner[at]:
                e, f, g, h = best[target]
                a, b, c, d = max(a, w + e), max(b, x + f), max(c, y + g), max(d, z + h)
            for target, spent, (w, x, y, z) in self.steps[at]:
                table, number = (last, spent) if after is None else (after, target)
                if table is not None and number >= 0:
                    e, f, g, h = table[number]
                    a, b, c, d = max(a, w + e), max(b, x + f), max(c, y + g), max(d, z + h)
            best[at] = (a, b, c, d)
        for name, source, target, cost in self.apart:
            known = self.extra.get(name, _ZERO)
            more = [weight + best[target][i] - best[source][i] for i, weight in enumerate(cost)]
            self.extra[name] = (
                max(known[0], more[0]),
                max(known[1], more[1]),
                max(known[2], more[2]),
                max(known[3], more[3]),
            )
        return best

    def going_on(self) -> set[int]:
        """The configurations from which a run can take steps without end, were there no limit on them."""
        targets = [
            {target for target, _ in inner} | {target for target, _, _ in steps if target >= 0}
            for inner, steps in zip(self.inner, self.steps, strict=True)
        ]
        return set(range(len(targets))) - set(_sorted_backwards(targets))


def measure(graph: Graph, max_steps: int) -> Worst:
    """The longest way, in each of the counts. Raises `ValueError` for a graph that has a cycle (`find_cycle`)."""
    one = _Measuring(graph)
    if len(one.order) < len(graph.configs):
        raise ValueError("a graph with a cycle has no longest way")
    last = one.layer(None, None)
    layers = [one.layer(None, last)]
    going = one.going_on()
    left, period = max_steps - 1, 0
    while left and not (period := _steady(layers, going)):
        layers.append(one.layer(layers[-1], None))
        left -= 1
    total = list(layers[-1][0])
    if left:
        # The rest of the steps in whole periods, and what is left over from the layers that are known.
        whole = -(-left // period)
        base = layers[-1 - (whole * period - left)][0]
        growth = [late - early for late, early in zip(layers[-1][0], layers[-1 - period][0], strict=True)]
        total = [known + whole * more for known, more in zip(base, growth, strict=True)]
    extra = {name: Cost(transitions, model_calls) for name, (transitions, model_calls, _, _) in one.extra.items()}
    longest = max((value[0] for value in last), default=0)
    return Worst(total[0], total[1], total[2], total[3] / 1000, longest, extra)


def _steady(layers: list[list[Value]], going: set[int]) -> int:
    """The period after which everything grows by the same amount wherever steps go on, and not at all elsewhere; 0 for not yet."""
    for period in range(1, _MOST_PERIODS + 1):
        if len(layers) >= 2 * period + 1 and all(
            _shifted(layers[-1 - back], layers[-1 - back - period], going) for back in range(period)
        ):
            return period
    return 0


def _shifted(late: list[Value], early: list[Value], going: set[int]) -> bool:
    shift: tuple[int, ...] | None = None
    for number, (one, two) in enumerate(zip(late, early, strict=True)):
        more = (one[0] - two[0], one[1] - two[1], one[2] - two[2], one[3] - two[3])
        if number not in going:
            if any(more):
                return False
        elif shift is None:
            shift = more
        elif more != shift:
            return False
    return shift is None or min(shift) >= 0
