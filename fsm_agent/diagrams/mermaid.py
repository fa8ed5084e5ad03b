"""A picture as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from fsm_agent.diagrams.palette import ARROWS, BOXES, INK, MARKED, PALE
from fsm_agent.diagrams.parts import Arrow, Mark, Picture, Place, Way
from fsm_agent.diagrams.text import xml_text

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

_SHAPED: Final = {
    Place.END: ",stroke-width:3px",
    Place.FAILURE: ",stroke-width:3px",
    Place.ANYWHERE: ",stroke-dasharray:4 3",
}
_SHAPES: Final = {Place.END: ("([", "])"), Place.FAILURE: ("([", "])")}


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
        yield f"style told fill:#fffdf0,stroke:#8a8a8a,color:{INK},text-align:left"
    yield from _box_styles(drawn)
    yield from _arrow_styles(drawn)


def _shaft(arrow: Arrow) -> str:
    if arrow.way is Way.ANYWHERE or arrow.mark is Mark.UNTAKEN:
        return "-.->"
    return "==>" if arrow.way is Way.MAIN or arrow.mark is not Mark.NONE else "-->"


def _label(texts: Iterable[str]) -> str:
    lines = [_OWN.sub("\\g<0>\u200c", line) for text in texts for line in xml_text(text).split("\n")]
    return "<br/>".join(_MEANT.sub(lambda found: f"#{ord(found[0])};", line) for line in lines) or "#32;"


def _box_styles(drawn: Picture) -> Iterator[str]:
    for box in drawn.boxes:
        fill, border = BOXES[box.place]
        color, more = INK, _SHAPED.get(box.place, "")
        if box.mark is Mark.UNTAKEN:
            fill, (border, color), more = PALE, MARKED[Mark.UNTAKEN], ""
        elif box.mark in MARKED:
            border, more = MARKED[box.mark].line, ",stroke-width:3px"
        if box.ends:
            more = ",stroke-width:5px"
        yield f"style {box.id} fill:{fill},stroke:{border},color:{color}{more}"


def _arrow_styles(drawn: Picture) -> Iterator[str]:
    """Arrows are named by their turn; those from the starts come first."""
    styles: dict[str, list[str]] = {}
    for turn, arrow in enumerate(drawn.arrows, start=len(drawn.starts)):
        marked = MARKED.get(arrow.mark)
        style = f"stroke:{ARROWS[arrow.way].line}" if marked is None else f"stroke:{marked.line},color:{marked.text}"
        styles.setdefault(style, []).append(str(turn))
    for style, turns in styles.items():
        yield f"linkStyle {','.join(turns)} {style}"
