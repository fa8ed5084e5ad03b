"""What a diagram is once it is drawn: its text, or its bytes, that a notebook shows as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Self

from fsm_agent.diagrams.graphviz import available, rendered
from fsm_agent.diagrams.image import tidied
from fsm_agent.errors import DefinitionError
from fsm_agent.trail.files import replace_bytes

__all__ = ["Format", "PngDiagram", "TextDiagram", "TextFormat"]

TextFormat = Literal["mermaid", "dot", "svg", "markdown", "csv"]
Format = Literal["mermaid", "dot", "svg", "png", "markdown", "csv"]

_TYPES: Final = {
    "mermaid": "text/vnd.mermaid",
    "dot": "text/vnd.graphviz",
    "svg": "image/svg+xml",
    "markdown": "text/markdown",
    "csv": "text/csv",
}

_PICTURES: Final = {".svg": "svg", ".png": "png"}


def _fitting(path: Path, kind: Format) -> Path:
    """`path`, unless no program could open there what is written in `kind`."""
    wanted = _PICTURES.get(path.suffix.lower(), kind)
    if wanted != kind:
        raise DefinitionError(
            f"{path.name!r} is the name of a picture, and this diagram is {kind}: draw it with the format {wanted!r}"
        )
    return path


class TextDiagram(str):
    """The text of a diagram: a str in every respect, that also knows what it is written in and shows itself in a notebook."""

    kind: TextFormat

    def __new__(cls, text: str, kind: TextFormat) -> Self:
        """`text`, which is written in `kind`."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, TextFormat]]:
        return type(self), (str(self), self.kind)

    def save(self, path: str | Path) -> Path:
        """Write it to `path`, and return that. Raises `DefinitionError` for the name of a picture, when it is another one or none."""
        target = _fitting(Path(path), self.kind)
        replace_bytes(target, self.encode("utf-8"))
        return target

    def _repr_svg_(self) -> str | None:
        """The picture, where this is one, or DOT that can be drawn here."""
        if self.kind == "svg":
            return str(self)
        return tidied(rendered(self, "svg")) if self.kind == "dot" and available() else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What Jupyter, VS Code and their like show: the richest of these that they know."""
        bundle = {"text/plain": str(self), _TYPES[self.kind]: str(self)}
        drawn = self._repr_svg_()
        if drawn is not None:
            bundle["image/svg+xml"] = drawn
        return bundle


class PngDiagram(bytes):
    """A diagram as the bytes of a PNG image, that shows itself in a notebook."""

    def save(self, path: str | Path) -> Path:
        """Write it to `path`, and return that. Raises `DefinitionError` for the name of an SVG."""
        target = _fitting(Path(path), "png")
        replace_bytes(target, self)
        return target

    def __repr__(self) -> str:
        """Its size; nobody reads the bytes, and a notebook would keep them twice."""
        return f"<{type(self).__name__} of {len(self):,} bytes>"

    def _repr_png_(self) -> bytes:
        return bytes(self)
