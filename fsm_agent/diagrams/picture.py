"""What is drawn, before it is drawn: boxes and arrows made from rows, limits and runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from string import Formatter
from typing import Final

from fsm_agent.alphabet import INITIAL
from fsm_agent.diagrams.parts import ANYWHERE, Arrow, Box, Detail, Line, Mark, Picture, Place, Way
from fsm_agent.diagrams.walk import Walk
from fsm_agent.guards import Guard
from fsm_agent.limits import Limits
from fsm_agent.table import Row

__all__ = ["meaning", "pictured", "row_numbers", "shared_rows"]

_FEW: Final = 3
"""Rows that fewer states than these have alike are drawn one by one."""

_PLACES: Final = (Place.FAILURE, Place.DETOUR, Place.END, Place.STATE)


def pictured(
    rows: Sequence[Row], limits: Limits | None = None, *, detail: Detail = "guards", walks: Sequence[Walk] = ()
) -> Picture:
    """The rows as a picture. Guards show the values of `limits`, or their names where there are none.

    `walks` are the runs that are drawn into it: none, one, or two to compare.
    """
    whole = [*rows, *dict.fromkeys(row for walk in walks for row in walk.foreign)]
    draft = _Draft(whole, len(rows), limits, detail, walks)
    return Picture(
        starts=tuple(draft.ids[state] for state in draft.path[:1]),
        boxes=draft.boxes(),
        arrows=draft.arrows(),
        told=tuple(line for walk in walks for line in walk.told),
    )


def shared_rows(rows: Sequence[Row]) -> tuple[int, ...]:
    """The places in the table of the unguarded rows whose like every state that can be left has."""
    sources = {row.source for row in rows}
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if not row.guards:
            alike.setdefault((row.event, row.target, row.reason), []).append(index)
    groups = [group for group in alike.values() if {rows[index].source for index in group} == sources]
    return tuple(sorted(index for group in groups for index in group)) if len(sources) >= _FEW else ()


def row_numbers(rows: Sequence[Row]) -> tuple[int, ...]:
    """For each row its turn among the rows of its source and event, from 1; 0 for a row that is alone."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((row.source, row.event), []).append(index)
    turns = {index: turn for group in groups.values() if len(group) > 1 for turn, index in enumerate(group, 1)}
    return tuple(turns.get(index, 0) for index in range(len(rows)))


def meaning(guard: Guard, limits: Limits | None) -> str:
    """The sentence of a guard. One that is no template over the limits stands as it is."""
    try:
        return guard.describe(limits)
    except (KeyError, IndexError, ValueError, AttributeError):
        return guard.sentence


def _compared(guard: Guard, limits: Limits | None) -> str:
    """The guard's name, and in brackets the limits that it compares with: `steps_spent(10)`."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(guard.sentence) if name in Limits.model_fields]
    except ValueError:
        fields = []
    values = [name if limits is None else _written(getattr(limits, name)) for name in dict.fromkeys(fields)]
    return f"{guard.name}({', '.join(values)})" if values else guard.name


def _written(value: object) -> str:
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


class _Draft:
    """The rows while a picture is made of them."""

    def __init__(
        self, rows: Sequence[Row], known: int, limits: Limits | None, detail: Detail, walks: Sequence[Walk]
    ) -> None:
        self.rows, self.known, self.limits, self.detail, self.walks = rows, known, limits, detail, walks
        self.turns = row_numbers(rows[:known]) + (0,) * (len(rows) - known)
        taken = {index for walk in walks for index in walk.taken}
        self.shared = frozenset(shared_rows(rows[:known])) - taken
        self.states = tuple(dict.fromkeys(state for row in rows for state in (row.source, row.target)))
        self.ids: Mapping[str, str] = {state: _id(state) for state in self.states}
        left = {row.source for row in rows}
        self.ends = [state for state in self.states if state not in left]
        troubled = {row.target for row in rows if row.reason is not None}
        self.failures = {state for state in self.ends if state in troubled}
        self.detours = {state for state in troubled if state not in self.ends}
        self.path = _path(rows, self.ends)
        self.ahead = frozenset(pairwise(self.path))

    def boxes(self) -> tuple[Box, ...]:
        """The main path first: what is drawn in layers takes its direction from the first boxes."""
        others = [state for state in self.states if state not in self.path]
        boxes = [self._box(state) for state in self.path]
        boxes += sorted((self._box(state) for state in others), key=lambda box: _PLACES.index(box.place))
        if self.shared:
            said = " and ".join(self.ends)
            mark = Mark.UNTAKEN if self.walks else Mark.NONE
            name = f"any state but {said}" if said else "any state"
            boxes.append(Box(id=ANYWHERE, name=name, place=Place.ANYWHERE, mark=mark))
        return tuple(boxes)

    def _box(self, state: str) -> Box:
        place = Place.DETOUR if state in self.detours else Place.STATE
        if state in self.ends:
            place = Place.FAILURE if state in self.failures else Place.END
        return Box(
            id=self.ids[state],
            name=str(state),
            place=place,
            main=state in self.path,
            mark=_mark([walk.visits.get(state) is not None for walk in self.walks]),
            told=tuple(_by_run([_said(walk.visits.get(state)) for walk in self.walks])),
            ends=any(walk.last == state for walk in self.walks),
        )

    def arrows(self) -> tuple[Arrow, ...]:
        groups: dict[tuple[str, str, Mark], list[int]] = {}
        for index, row in enumerate(self.rows):
            source = ANYWHERE if index in self.shared else self.ids[row.source]
            mark = _mark([index in walk.taken for walk in self.walks])
            groups.setdefault((source, self.ids[row.target], mark), []).append(index)
        return tuple(self._arrow(source, target, mark, group) for (source, target, mark), group in groups.items())

    def _arrow(self, source: str, target: str, mark: Mark, group: list[int]) -> Arrow:
        lines: dict[Line, None] = {}
        for index in group:
            lines.setdefault(self._line(index, "events" if mark is Mark.UNTAKEN else self.detail))
            for said in _by_run([_said(walk.taken.get(index)) for walk in self.walks]):
                lines.setdefault(Line((said,), told=True))
        row = self.rows[group[0]]
        lone_failure = len(self.failures) == 1 and row.target in self.failures
        return Arrow(
            source=source,
            target=target,
            lines=tuple(lines),
            way=self._way(source, row, [self.rows[index] for index in group]),
            mark=mark,
            straight=source != ANYWHERE
            and ((row.source, row.target) in self.ahead or (lone_failure and row.source == self.path[-1])),
            hint=_hint([self.rows[index] for index in group], self.limits),
        )

    def _way(self, source: str, first: Row, rows: Iterable[Row]) -> Way:
        if source == ANYWHERE:
            return Way.ANYWHERE
        if first.target in self.failures:
            return Way.FAILURE
        if any(row.reason is not None for row in rows):
            return Way.DETOUR
        ahead = (first.source, first.target) in self.ahead
        closes = (first.source, first.target) == (self.path[-1], self.path[0]) and len(self.path) > 1
        done = first.source in self.path and first.target in self.ends
        return Way.MAIN if ahead or closes or done else Way.SIDE

    def _line(self, index: int, detail: Detail) -> Line:
        """`(7) decided [retry_available(1, 30)]`: turn, event, guards. What no run took says its event only, to leave room."""
        row, turn = self.rows[index], self.turns[index]
        foreign = " (no row of this table)" if index >= self.known else ""
        if detail == "events":
            return Line((f"{row.event}{foreign}",))
        head = f"({turn}) {row.event}" if turn else f"{row.event}"
        if not row.guards:
            return Line((f"{head}{foreign}",))
        said = [meaning(g, self.limits) if detail == "sentences" else _compared(g, self.limits) for g in row.guards]
        pieces = [f"{name}, " for name in said[:-1]] + [f"{said[-1]}]"]
        return Line((f"{head} [{pieces[0]}", *pieces[1:]))


def _path(rows: Sequence[Row], ends: Sequence[str]) -> tuple[str, ...]:
    """The states of a run that nothing gets in the way of: from the first, always along the first unguarded row onwards."""
    if not rows:
        return ()
    sources = [row.source for row in rows]
    path: list[str] = [INITIAL if INITIAL in sources else sources[0]]
    while True:
        ahead = (
            row.target
            for row in rows
            if row.source == path[-1] and not row.guards and row.reason is None and row.target not in (*path, *ends)
        )
        following = next(ahead, None)
        if following is None:
            return tuple(path)
        path.append(following)


def _id(name: str) -> str:
    """An id that no language takes for anything else, and that no other name has: every character but A-Z a-z 0-9 by its number."""
    return "s_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", name)


def _mark(taken: Sequence[bool]) -> Mark:
    match tuple(taken):
        case ():
            return Mark.NONE
        case (True,) | (True, True):
            return Mark.TAKEN
        case (True, False):
            return Mark.FIRST
        case (False, True):
            return Mark.SECOND
        case _:
            return Mark.UNTAKEN


def _said(one: object) -> str:
    return "" if one is None else str(one)


def _by_run(said: Sequence[str]) -> list[str]:
    """What each run did, with its letter where there are two."""
    if len(said) == 1:
        return [line for line in said if line]
    return [f"{letter}: {line}" for letter, line in zip("AB", said, strict=False) if line]


def _hint(rows: Iterable[Row], limits: Limits | None) -> str:
    """The rows in words, for whoever points at the arrow."""
    told = []
    for row in rows:
        said = " and ".join(meaning(guard, limits) for guard in row.guards)
        why = f" ({row.reason})" if row.reason is not None else ""
        told.append(f"{row.event}: {said or 'always'}{why}")
    return "\n".join(dict.fromkeys(told))
