"""The colours of every picture, in one place: for paper and light screens, and what each becomes on a dark one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fsm_agent.diagrams.parts import Mark, Place, Way

__all__ = ["ARROWS", "BOXES", "DARK", "INK", "MARKED", "PALE", "PAPER", "START", "Colours"]


class Colours(NamedTuple):
    """How a box or an arrow looks: its line, and its text."""

    line: str
    text: str


PAPER: Final = "#ffffff"
INK: Final = "#111111"
START: Final = "#1f3a5f"
PALE: Final = "#fafafa"
"""What a state is filled with that no run came to."""

BOXES: Final[Mapping[Place, tuple[str, str]]] = {
    Place.STATE: ("#eef3fb", "#33475b"),
    Place.DETOUR: ("#fff3d6", "#b07d00"),
    Place.END: ("#dff3e0", "#1b7f4d"),
    Place.FAILURE: ("#fbe3e1", "#b3261e"),
    Place.ANYWHERE: (PAPER, "#777777"),
}
"""What a box is filled with, and its border."""

ARROWS: Final[Mapping[Way, Colours]] = {
    Way.MAIN: Colours("#1f3a5f", INK),
    Way.SIDE: Colours("#6b7280", "#333333"),
    Way.DETOUR: Colours("#b07d00", "#7a5600"),
    Way.FAILURE: Colours("#b3261e", "#b3261e"),
    Way.ANYWHERE: Colours("#777777", "#555555"),
}
MARKED: Final[Mapping[Mark, Colours]] = {
    Mark.UNTAKEN: Colours("#cfcfcf", "#757575"),
    Mark.FIRST: Colours("#c2570c", "#c2570c"),
    Mark.SECOND: Colours("#1d4ed8", "#1d4ed8"),
}
"""What the runs in a picture make of its colours, where they do."""

DARK: Final[Mapping[str, str]] = {
    PAPER: "#171c23",
    INK: "#e4e9f0",
    PALE: "#1b2129",
    "#eef3fb": "#1d2b3d",
    "#33475b": "#9db4cf",
    "#fff3d6": "#3a2d10",
    "#b07d00": "#e0aa3e",
    "#dff3e0": "#143523",
    "#1b7f4d": "#5cc48c",
    "#fbe3e1": "#431d1b",
    "#b3261e": "#ff8f85",
    "#777777": "#9aa3ae",
    "#1f3a5f": "#9cc2f2",
    "#6b7280": "#a7b0bd",
    "#333333": "#d3dae3",
    "#7a5600": "#f0c56d",
    "#555555": "#b9c1cb",
    "#cfcfcf": "#3d4753",
    "#757575": "#8a95a3",
    "#c2570c": "#ff9d5c",
    "#1d4ed8": "#8fb0ff",
}
"""Each colour above, as it is shown on a dark screen."""
