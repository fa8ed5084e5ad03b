"""`fsm-agent diagram` and `diff`: the machine, one run or two drawn into it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from fsm_agent.cli.console import note, put_raw
from fsm_agent.cli.stores import stored_run
from fsm_agent.diagrams import Detail, Format, PngDiagram, TextDiagram, diagram, diff
from fsm_agent.diagrams.policy import policy_diagram
from fsm_agent.errors import RunError
from fsm_agent.limits import Limits
from fsm_agent.policy import ToolPolicy
from fsm_agent.table import Row
from fsm_agent.trail import Entry
from fsm_agent.trail.changes import newest_limits
from fsm_agent.trail.forms import reading

__all__ = ["Place", "recorded", "show_diagram", "show_diff", "show_policy"]

_SUFFIXES: Final[dict[str, Format]] = {
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
    ".png": "png",
    ".md": "markdown",
    ".csv": "csv",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a diagram goes, and as what. Without a format, the name of the file says it; without both it is Mermaid."""

    file: Path | None = None
    format: Format | None = None

    @property
    def written_as(self) -> Format:
        """The format. Raises `RunError` for a name that says none, and for an image that would go to a terminal."""
        if self.format is None and self.file is not None:
            found = _SUFFIXES.get(self.file.suffix.lower())
            if found is None:
                known = ", ".join(get_args(Format))
                raise RunError(f"the name {self.file.name!r} says no format; add --format, one of {known}")
            return found
        if self.format == "png" and self.file is None and sys.stdout.isatty():
            raise RunError("a PNG image cannot be shown in a terminal; write it to a file with -o FILE")
        return self.format or "mermaid"


def show_diagram(
    limits: Limits,
    place: Place,
    *,
    rows: Sequence[Row],
    detail: Detail,
    run: str | None,
    store: str | None,
) -> None:
    """The machine under `limits`; with a run, that run under its own. Raises `FsmAgentError` for what cannot be drawn."""
    format = place.written_as
    if run is None:
        _put(diagram(format, rows=rows, limits=limits, detail=detail), place)
        return
    entries, own = recorded(store, run)
    _put(diagram(format, entries, rows=rows, limits=own, detail=detail), place)


def show_policy(policy: ToolPolicy, place: Place, *, run: str | None, table: str | None) -> None:
    """A tool policy as a machine of its own. Raises `FsmAgentError` for what cannot be drawn, and for a run or table to draw as well."""
    if run is not None or table is not None:
        raise RunError("--policy draws the policy alone: leave out --run and --table, or --policy")
    _put(policy_diagram(policy, place.written_as), place)


def show_diff(first: str, second: str, place: Place, *, rows: Sequence[Row], store: str | None) -> None:
    """Two runs on one picture, under the limits of the first. Raises `FsmAgentError` for what cannot be drawn."""
    format = place.written_as
    entries, limits = recorded(store, first)
    others, _ = recorded(store, second)
    _put(diff(entries, others, format, rows=rows, limits=limits), place)


def recorded(store: str | None, run: str) -> tuple[tuple[Entry, ...], Limits]:
    """The entries of a stored run, checked, and the limits that it had last.

    Raises `RunError` without a store, `UnknownRun`, and `TrailError` for a trail that is damaged or locked.
    """
    with stored_run(store, run) as stored:
        entries = stored.story.entries
    with reading(entries[0]):
        return entries, newest_limits(entries)


def _put(drawn: TextDiagram | PngDiagram, place: Place) -> None:
    if place.file is not None:
        try:
            drawn.save(place.file)
        except OSError as error:
            raise RunError(f"cannot write {str(place.file)!r}: {error.strerror or error}") from error
        note(f"wrote {place.file}")
    elif isinstance(drawn, PngDiagram):
        sys.stdout.buffer.write(drawn)
        sys.stdout.flush()
    else:
        put_raw(drawn.rstrip("\n"))
