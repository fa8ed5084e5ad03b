"""What a picture consists of: boxes, arrows and lines, with what they stand for. Frozen data, the same for every format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

__all__ = ["ANYWHERE", "Arrow", "Box", "Detail", "Line", "Mark", "Picture", "Place", "Way"]

Detail = Literal["events", "guards", "sentences"]
"""How much an arrow says of its rows: the event; the guards too, with their limits; or what the guards mean, in words."""

ANYWHERE: Final = "anywhere"
"""The id of the box that stands for every state that can be left. The ids of states start with `s_`."""


class Place(StrEnum):
    """What a box stands for. A state that no row leaves is an end; `detour`: a state that rows with a reason lead to."""

    STATE = "state"
    DETOUR = "detour"
    END = "end"
    FAILURE = "failure"
    ANYWHERE = "anywhere"


class Way(StrEnum):
    """What kind of way an arrow is. `main`: on the path that a run takes when nothing is in its way."""

    MAIN = "main"
    SIDE = "side"
    DETOUR = "detour"
    FAILURE = "failure"
    ANYWHERE = "anywhere"


class Mark(StrEnum):
    """What the runs made of an arrow or a box; `none`: there is no run in the picture."""

    NONE = "none"
    UNTAKEN = "untaken"
    TAKEN = "taken"
    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an arrow: what a row says in pieces that may stand below each other, or `told`, what the runs did there."""

    pieces: tuple[str, ...]
    told: bool = False

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A state. `told` is what the runs did there, `ends` that one of them stopped or waits there."""

    id: str
    name: str
    place: Place
    main: bool = False
    mark: Mark = Mark.NONE
    told: tuple[str, ...] = ()
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """The rows from one state to another, a line or more each. `straight`: part of the line that the picture hangs on."""

    source: str
    target: str
    lines: tuple[Line, ...]
    way: Way
    mark: Mark = Mark.NONE
    straight: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Boxes in the order of the table, arrows in the order of their first rows, and what is told of the runs, line by line.

    `starts` are the ids of the first box of each machine: one, more where machines stand beside each other, none without a box.
    """

    starts: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    told: tuple[str, ...] = ()
