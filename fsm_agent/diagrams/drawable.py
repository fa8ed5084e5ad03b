"""`Drawable`: what an agent gets its `diagram` from."""

from __future__ import annotations

from typing import Literal, overload

from fsm_agent.diagrams import Format, PngDiagram, TextDiagram, TextFormat, Trail, diagram
from fsm_agent.limits import Limits

__all__ = ["Drawable"]


class Drawable:
    """Something with limits, and the machine that they hold for."""

    limits: Limits

    @overload
    def diagram(self, format: Literal["png"], trail: Trail | None = ...) -> PngDiagram: ...
    @overload
    def diagram(self, format: TextFormat = ..., trail: Trail | None = ...) -> TextDiagram: ...
    def diagram(self, format: Format = "mermaid", trail: Trail | None = None) -> TextDiagram | PngDiagram:
        """The machine with these limits: "mermaid", "dot", "svg", "markdown" or "csv" as a str, "png" as bytes; a notebook shows it.

        `trail` is a run to draw into it: a `RunResult`, or its `Transitioned` records. "svg" and "png" need Graphviz or the extra
        `diagrams`; see `fsm_agent.diagrams.diagram`, which also says what is raised.
        """
        return diagram(format, trail, limits=self.limits)
