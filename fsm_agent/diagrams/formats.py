"""A picture in the formats that show one."""

from __future__ import annotations

from typing import Literal, get_args

from fsm_agent.diagrams.dot import as_dot
from fsm_agent.diagrams.graphviz import Engine, rendered
from fsm_agent.diagrams.image import tidied
from fsm_agent.diagrams.mermaid import as_mermaid
from fsm_agent.diagrams.parts import Picture
from fsm_agent.diagrams.value import Format, PngDiagram, TextDiagram
from fsm_agent.errors import DefinitionError

__all__ = ["check_format", "drawn"]


def check_format(format: str) -> None:
    """Raises `fsm_agent.errors.DefinitionError` for a format that there is not."""
    if format not in get_args(Format):
        raise DefinitionError(f"there is no diagram format {format!r}; the formats are {', '.join(get_args(Format))}")


def drawn(
    picture: Picture, format: Literal["mermaid", "dot", "svg", "png"], engine: Engine | None
) -> TextDiagram | PngDiagram:
    """The picture. Raises `fsm_agent.errors.DefinitionError` where it cannot be drawn here."""
    if format == "mermaid":
        return TextDiagram(as_mermaid(picture), format)
    if format == "dot":
        return TextDiagram(as_dot(picture), format)
    if format == "png":
        return PngDiagram(rendered(as_dot(picture), "png", engine=engine))
    return TextDiagram(tidied(rendered(as_dot(picture), "svg", engine=engine)), format)
