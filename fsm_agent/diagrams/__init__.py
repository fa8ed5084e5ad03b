"""Diagrams of the machine, from the table alone, and of runs drawn into it. Pure functions of the rows, so no picture can differ.

`python -m fsm_agent.diagrams` writes `diagrams/` below the current directory anew; `--check` only compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args, overload

from fsm_agent.diagrams.formats import check_format, drawn
from fsm_agent.diagrams.graphviz import Engine
from fsm_agent.diagrams.parts import Detail
from fsm_agent.diagrams.picture import pictured
from fsm_agent.diagrams.tables import as_csv, as_markdown
from fsm_agent.diagrams.value import Format, PngDiagram, TextDiagram, TextFormat
from fsm_agent.diagrams.walk import Trail, Walk, compared, walked
from fsm_agent.errors import DefinitionError
from fsm_agent.limits import Limits
from fsm_agent.table import TABLE, Row

__all__ = ["Detail", "Engine", "Format", "PngDiagram", "TextDiagram", "TextFormat", "Trail", "diagram", "diff"]


@overload
def diagram(
    format: Literal["png"],
    trail: Trail | None = ...,
    *,
    rows: Sequence[Row] = ...,
    limits: Limits | None = ...,
    detail: Detail = ...,
    engine: Engine | None = ...,
) -> PngDiagram: ...
@overload
def diagram(
    format: TextFormat = ...,
    trail: Trail | None = ...,
    *,
    rows: Sequence[Row] = ...,
    limits: Limits | None = ...,
    detail: Detail = ...,
    engine: Engine | None = ...,
) -> TextDiagram: ...
def diagram(
    format: Format = "mermaid",
    trail: Trail | None = None,
    *,
    rows: Sequence[Row] = TABLE,
    limits: Limits | None = None,
    detail: Detail = "guards",
    engine: Engine | None = None,
) -> TextDiagram | PngDiagram:
    """The rows as "mermaid", "dot", "svg", "markdown" or "csv" (a str that a notebook shows), or as "png" (bytes that it shows).

    `limits` are shown as configured, by name where there are none. `trail` is a run to draw into the picture: a `RunResult`, or
    its `Transitioned` records. `detail` says how much an arrow tells: "events", "guards", or "sentences". `engine` is the program that
    draws svg and png: by default the system's `dot` where there is one, else the extra `diagrams`; the others need nothing.

    Raises `fsm_agent.errors.DefinitionError` for a format that there is not, or cannot be drawn here; `RunError` for an empty trail.
    """
    walks = () if trail is None else (walked(rows, trail),)
    return _drawn(format, rows, walks, limits=limits, detail=detail, engine=engine)


@overload
def diff(
    first: Trail,
    second: Trail,
    format: Literal["png"],
    *,
    rows: Sequence[Row] = ...,
    limits: Limits | None = ...,
    engine: Engine | None = ...,
) -> PngDiagram: ...
@overload
def diff(
    first: Trail,
    second: Trail,
    format: TextFormat = ...,
    *,
    rows: Sequence[Row] = ...,
    limits: Limits | None = ...,
    engine: Engine | None = ...,
) -> TextDiagram: ...
def diff(
    first: Trail,
    second: Trail,
    format: Format = "mermaid",
    *,
    rows: Sequence[Row] = TABLE,
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> TextDiagram | PngDiagram:
    """Two runs on one picture: what only A (the first) did, what only B did, what both did, and where they part.

    Takes and raises what `diagram` does.
    """
    return _drawn(format, rows, compared(rows, first, second), limits=limits, detail="guards", engine=engine)


def _drawn(
    format: Format,
    rows: Sequence[Row],
    walks: Sequence[Walk],
    *,
    limits: Limits | None,
    detail: Detail,
    engine: Engine | None,
) -> TextDiagram | PngDiagram:
    check_format(format)
    if detail not in get_args(Detail):
        raise DefinitionError(f"there is no detail {detail!r}; the details are {', '.join(get_args(Detail))}")
    if format == "markdown":
        return TextDiagram(as_markdown(rows, limits, walks=walks), format)
    if format == "csv":
        return TextDiagram(as_csv(rows, limits, walks=walks), format)
    return drawn(pictured(rows, limits, detail=detail, walks=walks), format, engine)
