"""DOT to SVG and PNG: by the `dot` of this machine where there is one, else by the extra `diagrams`, which needs no system package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final, Literal

from fsm_agent.diagrams.text import has_wide
from fsm_agent.errors import DefinitionError

__all__ = ["Engine", "available", "rendered"]

Engine = Literal["dot", "graphviz-pure"]
"""A program that draws DOT. They lay out alike; `dot` measures texts with the fonts of the machine, the other with its own."""

_ENGINES: Final[tuple[Engine, ...]] = ("dot", "graphviz-pure")
_SECONDS: Final = 60.0
_DENSITY: Final = "144"
"""Dots per inch of a PNG, so that print and sharp screens show it well."""


def available(engine: Engine | None = None) -> str | None:
    """The path of the program, by default of the first that is here; None when there is none."""
    for name in _ENGINES if engine is None else (engine,):
        places = None if name == "dot" else _beside()
        found = shutil.which(name, path=places) or shutil.which(name)
        if found is not None:
            return found
    return None


def _beside() -> str:
    """Where the commands of this environment are, whether or not they are on PATH."""
    folders = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts")))
    return os.pathsep.join(folders)


def rendered(dot: str, kind: Literal["svg", "png"], *, engine: Engine | None = None) -> bytes:
    """`dot` as an SVG or PNG image.

    Raises `fsm_agent.errors.DefinitionError` when no program is here that draws it, or none that can.
    """
    program = available(engine)
    if program is None:
        raise DefinitionError(
            f"{kind} needs a program that draws: pip install 'fsm-agent[diagrams]', or install Graphviz; "
            "mermaid, dot, markdown and csv need neither"
        )
    if kind == "png" and has_wide(dot) and "graphviz-pure" in Path(program).name:
        raise DefinitionError(
            "graphviz-pure has no letters for Chinese, Japanese, Korean or emoji, so a png would show boxes: "
            "take svg, or install Graphviz and a font that has them"
        )
    density = () if kind == "svg" else (f"-Gdpi={_DENSITY}",)
    try:
        done = subprocess.run(
            [program, f"-T{kind}", *density], input=dot.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DefinitionError(
            f"{program} was still drawing after {_SECONDS:g} seconds: a picture of so many states is too large for it; take mermaid, "
            "dot, markdown or csv"
        ) from error
    except OSError as error:
        raise DefinitionError(f"{program} cannot draw the diagram: {error}") from error
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip()
        raise DefinitionError(f"{program} cannot draw the diagram: {said or f'exit code {done.returncode}'}")
    return done.stdout
