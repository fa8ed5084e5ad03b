"""The table as text to look at: Mermaid, and Markdown. Pure functions of the rows, so no picture can differ.

`python -m fsm_agent.diagrams` writes `diagrams/machine.md` below the current directory; `--check` only compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from fsm_agent.alphabet import INITIAL, TERMINAL, State
from fsm_agent.limits import Limits
from fsm_agent.table import TABLE, Row

__all__ = ["PAGE", "main", "markdown", "mermaid", "page"]

PAGE: Final = Path("diagrams", "machine.md")
_USAGE: Final = "usage: python -m fsm_agent.diagrams [--check], in the root of the repository\n"
_ANYWHERE: Final = "anywhere"


def mermaid(rows: Sequence[Row], *, guards: bool = True) -> str:
    """The machine as a Mermaid flowchart: an arrow for each pair of states, with the events that lead along it.

    `guards`: name under each event what must hold. Rows that every state has alike are drawn once, as a dotted arrow.
    """
    everywhere = _everywhere(rows)
    labels: dict[tuple[State, State], list[str]] = {}
    for row in rows:
        if row not in everywhere:
            labels.setdefault((row.source, row.target), []).append(_label(row, guards=guards))
    states = dict.fromkeys(state for row in rows for state in (row.source, row.target))
    drawn = ["flowchart TD", f"    start(( )) --> {_id(INITIAL)}"]
    drawn += [f"    {_id(state)}{_box(state)}" for state in states]
    drawn += [f'    {_id(a)} -->|"{"<br/>".join(dict.fromkeys(lines))}"| {_id(b)}' for (a, b), lines in labels.items()]
    if everywhere:
        drawn.append(f'    {_ANYWHERE}["any state but {_escaped(_ends())}"]')
    for target in dict.fromkeys(row.target for row in everywhere):
        said = dict.fromkeys(_label(row, guards=guards) for row in everywhere if row.target is target)
        drawn.append(f'    {_ANYWHERE} -.->|"{"<br/>".join(said)}"| {_id(target)}')
    return "\n".join(drawn)


def markdown(rows: Sequence[Row]) -> str:
    """The rows in their order as a Markdown table, then what each guard means, with the limits by name.

    Rows that every state has alike stand there once.
    """
    everywhere = _everywhere(rows)
    own = [(row.source.value, row) for row in rows if row not in everywhere]
    shared = {(row.event, row.target): (f"any state but {_ends()}", row) for row in everywhere}
    lines = ["| source | event | guards | target | reason |", "|---|---|---|---|---|"]
    for source, row in (*own, *shared.values()):
        names = ", ".join(f"`{guard.name}`" for guard in row.guards)
        cells = (source, row.event.value, names, row.target.value, row.reason.value if row.reason else "")
        lines.append(f"| {' | '.join(_in_cell(cell) for cell in cells)} |")
    limits = {name: f"`{name}`" for name in Limits.model_fields}
    meanings = {guard.name: guard.sentence.format(**limits) for row in rows for guard in row.guards}
    return "\n".join([*lines, "", *(f"- `{name}`: {meaning}" for name, meaning in meanings.items())])


def page(rows: Sequence[Row] = TABLE) -> str:
    """The contents of `diagrams/machine.md`."""
    return "\n".join(
        [
            "# The machine",
            "",
            "Written by `python -m fsm_agent.diagrams` from `fsm_agent/table.py`; do not edit.",
            "Rows of one source and event are tried in order: the first whose guards all hold is taken.",
            "",
            "```mermaid",
            mermaid(rows),
            "```",
            "",
            markdown(rows),
            "",
        ]
    )


def _everywhere(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The unguarded rows whose like every state that can be left has."""
    sources = {state for state in State if state not in TERMINAL}
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if not row.guards:
            alike.setdefault((row.event, row.target, row.reason), []).append(row)
    return tuple(row for group in alike.values() if {one.source for one in group} == sources for row in group)


def _label(row: Row, *, guards: bool) -> str:
    said = row.event.value
    if guards and row.guards:
        said += f" [{', '.join(guard.name for guard in row.guards)}]"
    return _escaped(said)


def _ends() -> str:
    return " and ".join(state.value for state in State if state in TERMINAL)


def _box(state: State) -> str:
    left, right = ('(["', '"])') if state in TERMINAL else ('["', '"]')
    return f"{left}{_escaped(state.value)}{right}"


def _id(state: State) -> str:
    """A name that Mermaid takes for nothing else: `s_`, letters and digits, every other character by its number."""
    return "s_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", state.value)


def _escaped(text: str) -> str:
    """`text` for a quoted label: what could end it, or mean something in it, by its number."""
    return re.sub(r"[^\w .,\[\]-]", lambda found: f"#{ord(found[0])};", text)


def _in_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main(arguments: Iterable[str] = ()) -> int:
    """Write the page, or compare it (`--check`). Returns the exit code: 0 right, 1 out of date, 2 wrong use."""
    given = list(arguments)
    if given not in ([], ["--check"]) or not PAGE.parent.is_dir():
        sys.stderr.write(_USAGE)
        return 2
    if not given:
        PAGE.write_text(page(), encoding="utf-8", newline="\n")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{PAGE.as_posix()} is not what the table gives; write it anew: python -m fsm_agent.diagrams\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
