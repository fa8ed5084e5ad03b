"""The picture of a run as a part of a page: read, and written anew from what a picture may consist of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from fsm_agent.diagrams import diagram
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import Limits
from fsm_agent.records import Transitioned
from fsm_agent.report.markup import Markup, el
from fsm_agent.table import Row

__all__ = ["overlay"]

_SVG: Final = "{http://www.w3.org/2000/svg}"
_HINT: Final = "{http://www.w3.org/1999/xlink}title"
_SHAPES: Final = {"g", "a", "path", "polygon", "polyline", "ellipse", "text"}
_SHAPED_BY: Final = (
    *("d", "points", "transform", "x", "y", "cx", "cy", "rx", "ry"),
    *("fill", "stroke", "stroke-width", "stroke-dasharray"),
    *("text-anchor", "font-size", "font-weight", "font-family", "textLength", "lengthAdjust"),
)


def overlay(rows: Sequence[Row], records: Sequence[Transitioned], limits: Limits | None) -> tuple[str | None, str]:
    """The run drawn into the machine, as SVG to stand in a page; None, and why, where it cannot be drawn."""
    if not records:
        return None, "There is no transition to draw yet."
    try:
        drawn = diagram("svg", records, rows=rows, limits=limits)
    except DefinitionError as error:
        return None, f"The picture is missing: {error}."
    return _rewritten(ET.fromstring(drawn.encode())), ""  # noqa: S314 - Graphviz wrote it; what it holds is read as data


def _rewritten(root: ET.Element) -> Markup:
    children = [_shape(child) for child in root]
    return el("svg", *children, viewBox=root.get("viewBox"), aria_hidden="true", focusable="false")


def _shape(shape: ET.Element) -> Markup | None:
    """A shape with the attributes that draw it. A hint is shown where the mouse points; what names parts for programs is left out."""
    name = shape.tag.removeprefix(_SVG)
    if name not in _SHAPES:
        return None
    hint = shape.get(_HINT)
    attributes = {key: shape.get(key) for key in _SHAPED_BY if shape.get(key) is not None}
    if name == "text":
        return el("text", shape.text or "", **attributes)
    title = el("title", hint) if name == "a" and hint else None
    return el("g" if name == "a" else name, title, *(_shape(child) for child in shape), **attributes)
