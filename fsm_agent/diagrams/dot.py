"""A picture in the DOT language of Graphviz, laid out to be printed: the main path straight, failures apart, labels beside lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from html import escape
from textwrap import TextWrapper, wrap
from typing import Final

from fsm_agent.diagrams.palette import ARROWS, BOXES, INK, MARKED, PALE, PAPER, START
from fsm_agent.diagrams.parts import Arrow, Box, Line, Mark, Picture, Place, Way
from fsm_agent.diagrams.text import has_wide, wide_width, xml_text

__all__ = ["as_dot"]

_WIDTH: Final = 36
"""Characters of a label line, beyond which each guard gets its own."""

_WRAPPER: Final = TextWrapper(
    width=52,
    drop_whitespace=False,
    replace_whitespace=False,
    expand_tabs=False,
    break_long_words=False,
    break_on_hyphens=False,
)

_CAPTION: Final = 130
"""Characters of a line below the picture."""

_INDENT: Final = " " * 6

_BOX_SIZE: Final = 12
_ARROW_SIZE: Final = 10
_BOX_MARGIN: Final = 20
_INCH: Final = 72
"""Points, as all sizes here."""

_WORD: Final = re.compile(r"\w")

_GRAPH: Final = {
    "rankdir": "TB",
    "nodesep": "0.1",
    "ranksep": "0.2",
    "pad": "0.15",
    "bgcolor": PAPER,
    "fontname": "Arial",
    "fontsize": "10",
    "labeljust": "l",
    "labelloc": "b",
}
_BOX: Final = {"shape": "box", "fontname": "Arial", "fontsize": f"{_BOX_SIZE}", "margin": "0.14,0.06", "height": "0.4"}
_ARROW: Final = {"fontname": "Arial", "fontsize": f"{_ARROW_SIZE}", "arrowsize": "0.7"}


def as_dot(drawn: Picture) -> str:
    """The picture as a digraph."""
    return "\n".join(["digraph machine {", *(f"    {line}" for line in _parts(drawn)), "}", ""])


def _parts(drawn: Picture) -> Iterator[str]:
    graph = dict(_GRAPH)
    if drawn.told:
        told = [part for line in drawn.told for part in wrap(xml_text(line), _CAPTION) or [""]]
        graph["label"] = "".join(f"{_in_quotes(line)}\\l" for line in told)
    yield f"graph {_attributes(graph)};"
    yield f"node {_attributes(_BOX)};"
    yield f"edge {_attributes(_ARROW)};"
    for turn, first in enumerate(drawn.starts):
        name = f"start{turn or ''}"
        group = "" if turn else ", group=main"
        yield f'{name} [shape=circle, label="", width="0.14", height="0.14", style=filled, fillcolor="{START}"{group}];'
        yield f'{name} -> {first} [weight="100", color="{START}"];'
    straight = {end for arrow in drawn.arrows if arrow.straight for end in (arrow.source, arrow.target)}
    for box in drawn.boxes:
        yield f"{box.id} {_attributes(_look(box, straight=box.id in straight or box.main))};"
    loops = {arrow.source for arrow in drawn.arrows if arrow.source == arrow.target and arrow.source in straight}
    for arrow in drawn.arrows:
        yield f"{arrow.source} -> {arrow.target} [label={_label(arrow.lines)}, {_attributes(_line(arrow, loops))[1:]};"


def _look(box: Box, *, straight: bool) -> Mapping[str, str]:
    fill, border = BOXES[box.place]
    style = "filled,dashed" if box.place is Place.ANYWHERE else "rounded,filled"
    width = 2.0 if box.main else 1.0
    said = xml_text("\n".join((box.name, *box.told)))
    look = {"label": _in_quotes(said)}
    if has_wide(said):
        look["width"] = f"{(wide_width(said, _BOX_SIZE) + _BOX_MARGIN) / _INCH:.2f}"
    font = INK
    if box.mark is Mark.UNTAKEN:
        fill, border, font = PALE, *MARKED[Mark.UNTAKEN]
    elif box.mark in MARKED:
        border, width = MARKED[box.mark].line, 2.0
    if box.ends:
        width = 3.5
    look |= {"style": style, "fillcolor": fill, "color": border, "fontcolor": font, "penwidth": f"{width:g}"}
    if box.place in (Place.END, Place.FAILURE):
        look["peripheries"] = "2"
    if straight:
        look["group"] = "main"
    return look


def _line(arrow: Arrow, loops: AbstractSet[str]) -> Mapping[str, str]:
    stroke, font = MARKED.get(arrow.mark, ARROWS[arrow.way])
    bold = arrow.way is Way.MAIN if arrow.mark is Mark.NONE else arrow.mark is not Mark.UNTAKEN
    look = {
        "color": stroke,
        "fontcolor": font,
        "tooltip": _in_quotes(arrow.hint),
        "labeltooltip": _in_quotes(arrow.hint),
    }
    if bold:
        look["penwidth"] = "2"
    if arrow.way is Way.ANYWHERE or arrow.mark is Mark.SECOND:
        look["style"] = "dashed"
    if arrow.source == arrow.target:
        look |= {"tailport": "w", "headport": "nw"}
    elif not arrow.straight:
        # On its left, a state that leads to itself has the label of that, which other arrows would cross.
        look |= {"tailport": "e"} if arrow.source in loops else {}
        look |= {"headport": "e"} if arrow.target in loops else {}
    if arrow.straight and arrow.mark is not Mark.UNTAKEN:
        look["weight"] = "50" if arrow.way is Way.FAILURE else "100"
    return look


def _label(lines: Iterable[Line]) -> str:
    """The lines, left aligned, with a margin to the line of the arrow."""
    rows = [row for line in lines for row in _rows(line)]
    said = "".join(f'{row}<BR ALIGN="LEFT"/>' for row in rows)
    wide = wide_width("\n".join(row for row in rows if has_wide(row)), _ARROW_SIZE)
    cell = f'<TD ALIGN="LEFT" WIDTH="{wide:.0f}">' if wide else "<TD>"
    table = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR><TD WIDTH="6"></TD>'
    return f'<{table}{cell}{said}</TD><TD WIDTH="3"></TD></TR></TABLE>>'


def _rows(line: Line) -> Iterator[str]:
    """A line as rows: each guard on its own where it is long, and what is longer still broken between words."""
    pieces = line.pieces if len(line.text) > _WIDTH else (line.text,)
    for turn, piece in enumerate(pieces):
        for first, broken in _broken(xml_text(piece)):
            text = broken.replace("\\", "\\\\")  # what a backslash begins means something, as between quotes
            # Some versions of Graphviz take a row of brackets alone for markup.
            row = escape(text) if _WORD.search(text) else "".join(f"&#{ord(char)};" for char in text)
            row = f"{_INDENT}{row}" if turn or not first else row
            yield f"<B>{row}</B>" if line.told and row else row


def _broken(text: str) -> Iterator[tuple[bool, str]]:
    """The rows of a text, every character of it kept, each with whether its line break is its own."""
    for line in text.split("\n"):
        bare = line.rstrip(" ")
        # A space at a break ends the row before it.
        rows = re.sub(r"\n( +)", r"\1\n", "\n".join(_WRAPPER.wrap(bare))) + line[len(bare) :]
        yield from ((not turn, row) for turn, row in enumerate(rows.split("\n")))


def _attributes(values: Mapping[str, str]) -> str:
    said = ", ".join(f'{name}="{value}"' for name, value in values.items())
    return f"[{said}]"


def _in_quotes(text: str) -> str:
    """`text` within double quotes: a backslash and a quote could end it or mean something, and an ampersand starts an entity."""
    safe = xml_text(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return safe.replace("\n", "\\n")
