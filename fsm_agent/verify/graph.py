"""The explored graph: every configuration that a run can come to, and every transition between them, judged by the real machine.

Steps are not part of a configuration. What begins a step is marked, and leads to the same configuration with steps left and to the one
with all steps spent; how many steps there may be is counted when paths are measured (`fsm_agent.verify.longest`) or shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State
from fsm_agent.errors import DefinitionError
from fsm_agent.table import Row
from fsm_agent.verify.configuration import Config, cause_class, settled
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.outcomes import OUTCOMES, Happened
from fsm_agent.verify.own import arrivals, own_outcomes
from fsm_agent.verify.rules import broken_rules

__all__ = ["Arc", "Breach", "Graph", "explore", "possible_outcomes", "shortest_path"]

_MOST_VISITED: Final = 400_000


class Arc(NamedTuple):
    """A transition: which row, where to, and with `counts` "step" also where to (`spent`) when it was the last one. -1: not reachable."""

    row: int
    target: int
    counts: str = ""
    spent: int = -1
    wait: int = 0


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that must not happen, in each of the configurations `sources`, by the row in this place."""

    kind: str
    sentence: str
    row: int
    sources: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Graph:
    """Configurations by number, 0 the first; for each the transitions out of it. `fired` are the rows that fired, by place."""

    rows: tuple[Row, ...]
    configs: list[Config] = field(default_factory=list)
    arcs: list[tuple[Arc, ...]] = field(default_factory=list)
    fired: set[int] = field(default_factory=set)
    breaches: list[Breach] = field(default_factory=list)

    @property
    def transitions(self) -> int:
        """How many transitions there are between configurations."""
        return sum(len(arcs) for arcs in self.arcs)


class _Explorer:
    def __init__(self, judge: Judge, most: int) -> None:
        self.judge, self.most = judge, most
        self.graph = Graph(judge.machine.rows)
        self.numbers: dict[Config, int] = {}
        self.known: dict[tuple[str, int], Breach] = {}
        # A first row without a guard always fires, whatever the context: then one question is enough.
        self.sure = {
            key
            for row in reversed(judge.machine.rows)
            for key in [(row.source, row.event)]
            if not next(one for one in judge.machine.rows if (one.source, one.event) == key).guards
        }
        self.asked: dict[tuple[State, Event], set[int]] = {}
        self.now: deque[int] = deque()
        self.next: deque[int] = deque()

    def number(self, config: Config, *, later: bool = False) -> int:
        found = self.numbers.get(config)
        if found is None:
            found = self.numbers[config] = len(self.graph.configs)
            if found >= self.most:
                raise DefinitionError(
                    f"more than {self.most} configurations: the product of abort_after, no_progress_steps, max_nudges, "
                    "max_degradations and retries is too large to be explored; lower one of them, or give more with most=... "
                    "(fsm-agent verify --most)"
                )
            self.graph.configs.append(config)
            self.graph.arcs.append(())
            (self.next if later else self.now).append(found)
        return found

    def run(self) -> Graph:
        steps, limits = 0, self.judge.bounds.limits
        self.number(settled(Config(INITIAL), self.judge.bounds))
        while self.now:
            while self.now:
                self.visit(self.now.popleft(), more_steps=steps + 1 < limits.step_bound)
            # Those that need a step more are met after all that need fewer, so that none is visited with too few steps left.
            self.now, self.next, steps = self.next, deque(), steps + 1
        return self.graph

    def visit(self, source: int, *, more_steps: bool) -> None:
        config = self.graph.configs[source]
        if config.state in TERMINAL:
            return
        arcs: dict[Arc, None] = {}
        for happened in possible_outcomes(self.judge, config):
            for place in self.led(happened):
                for holds in self.entered(source, config, happened, place):
                    arcs |= dict.fromkeys(self.arcs_of(source, happened, place, holds, more_steps=more_steps))
        self.graph.arcs[source] = tuple(arcs)

    def entered(self, source: int, config: Config, happened: Happened, place: int) -> tuple[str, ...]:
        """What is open where the row leads to, once it is judged."""
        row = self.graph.rows[place]
        self.graph.fired.add(place)
        for kind, sentence in broken_rules(self.judge, config, happened, row):
            self.breach(kind, sentence, source, place)
        return arrivals(config, happened, row)

    def arcs_of(self, source: int, happened: Happened, place: int, holds: str, *, more_steps: bool) -> Iterator[Arc]:
        config, row = self.graph.configs[source], self.graph.rows[place]
        event, after, _, counts = happened
        caused = cause_class(row.reason) or after.caused
        reached = after._replace(state=row.target, caused=caused, holds=holds)
        wait = self.judge.wait(config) if config.state is State.RETRY and event is Event.WAITED else 0
        if counts != "step":
            yield Arc(place, self.number(settled(reached, self.judge.bounds)), counts, wait=wait)
            return
        if config.spent:
            self.breach("steps", "a step begins though max_steps were taken", source, place)
            yield Arc(place, self.number(settled(reached, self.judge.bounds)), wait=wait)
            return
        on = self.number(settled(reached, self.judge.bounds), later=True) if more_steps else -1
        early = self.judge.bounds.adaptive and more_steps
        spent = self.number(settled(reached._replace(spent=True), self.judge.bounds), later=early)
        yield Arc(place, on, counts, spent, wait)
        if early:
            # The steps granted so far are spent, and more may be earned yet.
            yield Arc(place, spent, counts, spent, wait)

    def led(self, happened: Happened) -> Collection[int]:
        """The places of the rows that may fire."""
        key = (happened.after.state, happened.event)
        known = self.asked.get(key) if key in self.sure else None
        if known is None:
            known = self.asked[key] = self.judge.fire(happened.event, happened.after, happened.choice)
        return known

    def breach(self, kind: str, sentence: str, source: int, row: int) -> None:
        """Keep one breach of a kind for each row, with all the configurations in which it happens."""
        known = self.known.get((kind, row))
        if known is None:
            known = self.known[kind, row] = Breach(kind, sentence, row)
            self.graph.breaches.append(known)
        known.sources.add(source)


def possible_outcomes(judge: Judge, config: Config) -> Iterator[Happened]:
    """All that can happen in a configuration: what its state makes of an outcome, and what comes from outside."""
    own, known = judge.own.get(config.state), OUTCOMES.get(config.state)
    if own is not None:
        yield from own_outcomes(own, judge.machine.rows, config, judge.bounds)
    elif known is not None:
        yield from known(config, judge.bounds, judge.rung)
    else:
        raise DefinitionError(
            f"{config.state} cannot be explored: what can happen there is not told in fsm_agent/verify/outcomes.py"
        )
    for event in (Event.CANCELLED, Event.BROKE):
        yield Happened(event, config)


def explore(judge: Judge, most: int) -> Graph:
    """All that can be reached. Raises `DefinitionError` when that is more than `most` configurations."""
    return _Explorer(judge, most).run()


def shortest_path(graph: Graph, targets: Collection[int], max_steps: int) -> tuple[Arc, ...]:
    """The fewest transitions from the beginning to one of these configurations, with the steps that it takes.

    Where that would be too far to search, those in which the last step may come early.
    """
    found = _way(graph, targets, max_steps)
    return found if found is not None else _way(graph, targets, max_steps, early=True) or ()


def _way(graph: Graph, targets: Collection[int], max_steps: int, *, early: bool = False) -> tuple[Arc, ...] | None:
    begin = (0, 0)
    came: dict[tuple[int, int], tuple[tuple[int, int], Arc] | None] = {begin: None}
    open_ = deque([begin])
    while open_ and len(came) < _MOST_VISITED:
        at = open_.popleft()
        if at[0] in targets:
            return _back(came, at)
        for arc in graph.arcs[at[0]]:
            for place in _places(at[1], arc, max_steps, early=early):
                if place not in came:
                    came[place] = (at, arc)
                    open_.append(place)
    return None


def _places(step: int, arc: Arc, max_steps: int, *, early: bool) -> list[tuple[int, int]]:
    if arc.counts != "step":
        return [(arc.target, step)]
    if early:
        return [(one, 0) for one in (arc.target, arc.spent) if one >= 0]
    return [(arc.target, step + 1)] if step + 1 < max_steps else [(arc.spent, step + 1)]


def _back(came: dict[tuple[int, int], tuple[tuple[int, int], Arc] | None], at: tuple[int, int]) -> tuple[Arc, ...]:
    way: list[Arc] = []
    while (step := came[at]) is not None:
        at, arc = step
        way.append(arc)
    return tuple(reversed(way))
