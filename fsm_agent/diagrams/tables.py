"""The rows as a Markdown table and as CSV, with what runs did there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fsm_agent.diagrams.picture import meaning, row_numbers, shared_rows
from fsm_agent.diagrams.text import xml_text
from fsm_agent.diagrams.walk import Walk
from fsm_agent.limits import Limits
from fsm_agent.table import Row

__all__ = ["as_csv", "as_markdown", "in_cell", "in_code", "quoted"]

_MEANT: Final = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&:@.-]")
_COLUMNS: Final = ("source", "event", "turn", "guards", "meaning", "target", "reason")


def as_markdown(rows: Sequence[Row], limits: Limits | None = None, *, walks: Sequence[Walk] = ()) -> str:
    """The rows in their order as a Markdown table, then what each guard means under `limits`, by name where there are none.

    Rows that every state has alike, and no run took, stand there once.
    """
    taken = {index for walk in walks for index in walk.taken}
    shared = [index for index in shared_rows(rows) if index not in taken]
    ends = " and ".join(dict.fromkeys(row.target for row in rows if row.target not in {one.source for one in rows}))
    turns = row_numbers(rows)
    head = ["source", "event", "turn", "guards", "target", "reason", *_run_columns(walks)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    told: set[tuple[object, ...]] = set()
    for index, row in enumerate(rows):
        key = (row.event, row.target, row.reason)
        if index in shared and key in told:
            continue
        source = f"any state but {ends}" if index in shared else row.source
        told |= {key} if index in shared else set()
        guards = ", ".join(in_code(guard.name) for guard in row.guards)
        turn = str(turns[index]) if turns[index] else ""
        cells = [in_cell(source), in_cell(row.event), turn, guards, in_cell(row.target), in_cell(row.reason or "")]
        cells += [in_cell(str(walk.taken.get(index, ""))) for walk in walks]
        lines.append(f"| {' | '.join(cells)} |")
    guards_of = {guard.name: guard for row in rows for guard in row.guards}
    lines += ["", *(f"- {in_code(name)}: {in_cell(meaning(guard, limits))}" for name, guard in guards_of.items())]
    if any(walk.told for walk in walks):
        lines += ["", *(f"- {in_cell(line)}" for walk in walks for line in walk.told)]
    return "\n".join(lines) + "\n"


def _run_columns(walks: Sequence[Walk]) -> list[str]:
    return ["taken"] if len(walks) == 1 else [f"taken by {letter}" for letter, _ in zip("AB", walks, strict=False)]


def as_csv(rows: Sequence[Row], limits: Limits | None = None, *, walks: Sequence[Walk] = ()) -> str:
    """One line a row, every one of them, names as they are; guards, and their meanings, stand below each other in their cells."""
    letters = [""] if len(walks) == 1 else [f"_{letter}" for letter, _ in zip("ab", walks, strict=False)]
    lines: list[list[object]] = [[*_COLUMNS, *(f"{name}{letter}" for letter in letters for name in ("times", "ms"))]]
    turns = row_numbers(rows)
    for index, row in enumerate(rows):
        names = "\n".join(guard.name for guard in row.guards)
        meanings = "\n".join(meaning(guard, limits) for guard in row.guards)
        reason = "" if row.reason is None else row.reason
        cells: list[object] = [row.source, row.event, turns[index] or "", names, meanings, row.target, reason]
        for walk in walks:
            passage = walk.taken.get(index)
            cells += [0, ""] if passage is None else [passage.count, round(passage.elapsed_ms, 3)]
        lines.append(cells)
    return "".join(f"{','.join(quoted(str(cell)) for cell in line)}\n" for line in lines)


def quoted(text: str) -> str:
    """`text` for a CSV cell. The library's own writer leaves a lone carriage return bare, which its reader refuses."""
    return '"{}"'.format(text.replace('"', '""')) if re.search(r'[",\r\n]', text) else text


def in_cell(text: str) -> str:
    """`text` for a cell: what means something in Markdown by its number, a line break as one."""
    escaped = _MEANT.sub(lambda found: f"&#{ord(found[0])};", xml_text(text))
    return re.sub(r"^ | $|(?<= ) ", "&#32;", escaped).replace("\n", "<br>")


def in_code(text: str) -> str:
    """`text` as code where it is a plain name; else for a cell."""
    return f"`{text}`" if re.fullmatch(r"\w+", text, re.ASCII) else in_cell(text)
