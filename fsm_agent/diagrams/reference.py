"""What stands in `diagrams/`: the machine in each format, and its reference in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State
from fsm_agent.diagrams import diagram
from fsm_agent.diagrams.mermaid import as_mermaid
from fsm_agent.diagrams.picture import meaning, pictured
from fsm_agent.diagrams.tables import as_markdown, in_cell, in_code
from fsm_agent.limits import Limits
from fsm_agent.states import BEHAVIOURS, ENDINGS
from fsm_agent.table import TABLE, Row

__all__ = ["FOLDER", "files", "page"]

FOLDER: Final = Path("diagrams")
_NAMES: Final = ("machine.mmd", "machine.dot", "machine.svg", "machine.csv")


def files() -> dict[str, str]:
    """The contents of each generated file, by name. Raises `DefinitionError` without the extra `diagrams`.

    The image is always drawn by that, so that it is the same on every machine.
    """
    limits = Limits()
    return {
        "machine.md": page(),
        "machine.mmd": diagram("mermaid", limits=limits),
        "machine.dot": diagram("dot", limits=limits),
        "machine.svg": diagram("svg", limits=limits, engine="graphviz-pure"),
        "machine.csv": diagram("csv", limits=limits),
    }


def page(rows: Sequence[Row] = TABLE) -> str:
    """The reference of the machine: picture, states, events, guards, limits and rows."""
    links = ", ".join(f"[{name.rpartition('.')[2]}]({name})" for name in _NAMES)
    return "\n".join(
        [
            "# The machine",
            "",
            "Written by `python -m fsm_agent.diagrams` from `fsm_agent/table.py`; do not edit.",
            (
                "Rows of one source and event are tried in order, which the numbers in brackets show: the first whose guards all "
                "hold is taken. Behind a guard stand the limits that it compares with, here their defaults; "
                "`agent.diagram()` and `fsm-agent diagram` show yours."
            ),
            "",
            f"The same as {links}.",
            "",
            "```mermaid",
            as_mermaid(pictured(rows, Limits())).rstrip("\n"),
            "```",
            "",
            *_states(rows),
            *_events(rows),
            *_guards(rows),
            *_limits(),
            "## Rows",
            "",
            as_markdown(rows).partition("\n\n")[0],
            "",
        ]
    )


def _states(rows: Sequence[Row]) -> Iterator[str]:
    yield from ("## States", "", "| state | what it does | events | leads to |", "|---|---|---|---|")
    for state in State:
        own = [row for row in rows if row.source is state]
        events = ", ".join(in_code(event) for event in dict.fromkeys(row.event for row in own))
        targets = ", ".join(dict.fromkeys(row.target for row in own))
        role = "Here a run starts. " if state is INITIAL else ""
        role += "Here a run ends. " if state in TERMINAL else ""
        yield f"| {in_code(state)} | {role}{in_cell(_purpose(state))} | {events} | {targets} |"
    yield ""


def _purpose(state: State) -> str:
    """The first line of the module that a state stands in, without the state's name."""
    made = BEHAVIOURS[state].resolve if state in BEHAVIOURS else ENDINGS[state]
    module = inspect.getmodule(made)
    first = (inspect.getdoc(module) or "").split("\n", 1)[0]
    said = first.removeprefix(f"{state}: ")
    return said[:1].upper() + said[1:]


def _events(rows: Sequence[Row]) -> Iterator[str]:
    yield from ("## Events", "", "| event | happens in | leads to |", "|---|---|---|")
    for event in Event:
        own = [row for row in rows if row.event is event]
        sources = ", ".join(dict.fromkeys(row.source for row in own))
        yield f"| {in_code(event)} | {sources} | {', '.join(dict.fromkeys(row.target for row in own))} |"
    yield ""


def _guards(rows: Sequence[Row]) -> Iterator[str]:
    yield from ("## Guards", "", "| guard | holds when | asked in |", "|---|---|---|")
    guards = {guard.name: guard for row in rows for guard in row.guards}
    for name, guard in guards.items():
        asked = ", ".join(dict.fromkeys(row.source for row in rows if guard in row.guards))
        yield f"| {in_code(name)} | {in_cell(meaning(guard, None))} | {asked} |"
    yield ""


def _limits() -> Iterator[str]:
    yield from ("## Limits", "", "| limit | default | meaning | guards |", "|---|---|---|---|")
    guards = {guard.name: guard for row in TABLE for guard in row.guards}
    for name, field in Limits.model_fields.items():
        using = ", ".join(in_code(guard.name) for guard in guards.values() if f"{{{name}}}" in guard.sentence)
        default = "none" if field.default is None else str(field.default)
        yield f"| {in_code(name)} | {in_cell(default)} | {in_cell(field.description or '')} | {using} |"
    yield ""
