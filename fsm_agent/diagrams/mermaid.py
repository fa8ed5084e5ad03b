"""A picture as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from fsm_agent.diagrams.parts import Arrow, Mark, Picture, Place, Way
from fsm_agent.diagrams.text import shown

__all__ = ["as_mermaid"]

_MEANT: Final = re.compile(
    r"[^\w ,.()\[\]-]"  # what could end the label, or mean something in it
    r"|(?<![^\W_])[_-]|[_-](?![^\W_])"  # emphasis, lists and rules; between letters and digits they are none
    r"|(?<!\d)\.|\.(?!\d)"  # lists and addresses
    r"|(?<=\])\("  # links
    r"|(?<!\(\d)(?<!\(\d\d)(?<=\d)\)(?= )"  # lists
    r"|^ | $|(?<= ) "  # what is trimmed
)

_OWN: Final = re.compile("\ufb02(?=\u00b0)|\u00b6(?=\u00df)")
"""What Mermaid writes for `#` and `;` while it works, and turns back wherever it finds it: a joiner of no width keeps it apart."""

_SHAPES: Final = {Place.END: ("([", "])"), Place.FAILURE: ("([", "])")}
_BOXES: Final = {
    Place.STATE: "fill:#eef3fb,stroke:#33475b,color:#111",
    Place.DETOUR: "fill:#fff3d6,stroke:#b07d00,color:#111",
    Place.END: "fill:#dff3e0,stroke:#1b7f4d,color:#111,stroke-width:3px",
    Place.FAILURE: "fill:#fbe3e1,stroke:#b3261e,color:#111,stroke-width:3px",
    Place.ANYWHERE: "fill:#fff,stroke:#777,color:#111,stroke-dasharray:4 3",
}
_MARKED_BOXES: Final = {
    Mark.UNTAKEN: "fill:#fafafa,stroke:#c9c9c9,color:#8a8a8a",
    Mark.FIRST: "stroke:#c2570c,stroke-width:3px",
    Mark.SECOND: "stroke:#1d4ed8,stroke-width:3px",
}
_ARROWS: Final = {
    Way.MAIN: "stroke:#1f3a5f",
    Way.SIDE: "stroke:#6b7280",
    Way.DETOUR: "stroke:#b07d00",
    Way.FAILURE: "stroke:#b3261e",
    Way.ANYWHERE: "stroke:#9a9a9a",
}
_MARKED_ARROWS: Final = {
    Mark.UNTAKEN: "stroke:#d0d0d0,color:#9a9a9a",
    Mark.FIRST: "stroke:#c2570c,color:#c2570c",
    Mark.SECOND: "stroke:#1d4ed8,color:#1d4ed8",
}


def as_mermaid(drawn: Picture) -> str:
    """The picture as the text of a Mermaid flowchart."""
    lines = ["flowchart TD", *(f"    {line}" for line in _parts(drawn))]
    return "\n".join(lines) + "\n"


def _parts(drawn: Picture) -> Iterator[str]:
    for turn, first in enumerate(drawn.starts):
        yield f"start{turn or ''}(( )) --> {first}"
    for box in drawn.boxes:
        left, right = _SHAPES.get(box.place, ("[", "]"))
        yield f'{box.id}{left}"{_label((box.name, *box.told))}"{right}'
    for arrow in drawn.arrows:
        yield f'{arrow.source} {_shaft(arrow)}|"{_label(line.text for line in arrow.lines)}"| {arrow.target}'
    ending = next((box.id for box in drawn.boxes if box.ends), None)
    if ending is not None:
        yield f'{ending} -.- told["{_label(drawn.told)}"]'
        yield "style told fill:#fffdf0,stroke:#8a8a8a,color:#111,text-align:left"
    yield from _box_styles(drawn)
    yield from _arrow_styles(drawn)


def _shaft(arrow: Arrow) -> str:
    if arrow.way is Way.ANYWHERE or arrow.mark is Mark.UNTAKEN:
        return "-.->"
    return "==>" if arrow.way is Way.MAIN or arrow.mark is not Mark.NONE else "-->"


def _label(texts: Iterable[str]) -> str:
    lines = [_OWN.sub("\\g<0>\u200c", line) for text in texts for line in shown(text).split("\n")]
    return "<br/>".join(_MEANT.sub(lambda found: f"#{ord(found[0])};", line) for line in lines) or "#32;"


def _box_styles(drawn: Picture) -> Iterator[str]:
    for box in drawn.boxes:
        style = _BOXES[box.place] if box.mark is not Mark.UNTAKEN else _MARKED_BOXES[Mark.UNTAKEN]
        if box.mark in (Mark.FIRST, Mark.SECOND):
            style = f"{style},{_MARKED_BOXES[box.mark]}"
        if box.ends:
            style += ",stroke-width:5px"
        yield f"style {box.id} {style}"


def _arrow_styles(drawn: Picture) -> Iterator[str]:
    """Arrows are named by their turn; those from the starts come first."""
    styles: dict[str, list[str]] = {}
    for turn, arrow in enumerate(drawn.arrows, start=len(drawn.starts)):
        styles.setdefault(_MARKED_ARROWS.get(arrow.mark, _ARROWS[arrow.way]), []).append(str(turn))
    for style, turns in styles.items():
        yield f"linkStyle {','.join(turns)} {style}"
