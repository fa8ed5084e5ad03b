"""`fsm-agent tools`, `table` and `limits`: what an agent would work with, without running one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from fsm_agent.alphabet import Event
from fsm_agent.cli.console import out, put, put_json
from fsm_agent.cli.options import GivenLimits
from fsm_agent.diagrams.tables import as_markdown
from fsm_agent.diagrams.walk import counted
from fsm_agent.limits import ENV_PREFIX, Limits
from fsm_agent.table import Row
from fsm_agent.tools.lint import lint
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool
from fsm_agent.visible import safe

__all__ = ["show_limits", "show_lint", "show_table", "show_tools"]

_ANYWHERE: Final = frozenset({Event.CANCELLED, Event.BROKE})
_ANY_STATE: Final = "any state but FINISH and ABORT"


def show_tools(tools: Registry, *, as_json: bool) -> None:
    """The tools as a model is told of them."""
    if as_json:
        put_json([_tool_document(one) for one in tools])
        return
    console = out()
    for one in tools:
        heading = Text(one.name, style="bold cyan")
        if marks := _marks(one):
            heading.append(f"  {marks}", style="yellow")
        schema = json.dumps(one.parameters(), ensure_ascii=False, indent=2)
        console.print(heading, Text(safe(one.full_description)), Text(safe(schema), style="dim"), sep="\n", end="\n\n")
    if not len(tools):
        console.print("no tools")


def show_lint(tools: Registry, *, as_json: bool) -> bool:
    """What is to be mended in the tools, a line each; True when nothing is."""
    found = lint(tools)
    if as_json:
        put_json([finding.to_data() for finding in found])
    else:
        put("\n".join(map(str, found)) or f"nothing to mend in {counted(len(tools), 'tool')}")
    return not found


def _tool_document(one: Tool) -> dict[str, Any]:
    approval = one.requires_approval if isinstance(one.requires_approval, bool) else "depends on the arguments"
    return {
        "name": one.name,
        "description": one.full_description,
        "parameters": one.parameters(),
        "requires_approval": approval,
        "idempotent": one.idempotent,
        "once": one.once,
        "fallback": _fallback(one),
        "timeout": one.timeout,
    }


def _fallback(one: Tool) -> str | None:
    return one.fallback.name if isinstance(one.fallback, Tool) else one.fallback


def _marks(one: Tool) -> str:
    approval = "needs approval" if one.requires_approval is True else "may need approval"
    backup = _fallback(one)
    marks = ((bool(one.requires_approval), approval), (backup is not None, f"fallback: {backup}"))
    return ", ".join(text for holds, text in marks if holds)


def show_table(limits: Limits, rows: Sequence[Row], *, as_json: bool, markdown: bool) -> None:
    """The rows in their order, with what each guard says under `limits`."""
    if as_json:
        put_json([_row_document(row, limits) for row in rows])
    elif markdown:
        put(as_markdown(rows, limits).rstrip("\n"))
    else:
        out().print(_drawn(limits, rows))


def _row_document(row: Row, limits: Limits) -> dict[str, Any]:
    return {
        "source": row.source.value,
        "event": row.event.value,
        "guards": [{"name": guard.name, "sentence": guard.describe(limits)} for guard in row.guards],
        "target": row.target.value,
        "reason": row.reason.value if row.reason is not None else None,
    }


def _shown(rows: Sequence[Row]) -> Iterable[tuple[str, Row]]:
    """Each row with its source; those that every state has stand there once."""
    told: set[Event] = set()
    for row in rows:
        if row.event not in _ANYWHERE:
            yield row.source.value, row
        elif row.event not in told:
            told.add(row.event)
            yield _ANY_STATE, row


def _drawn(limits: Limits, rows: Sequence[Row]) -> Table:
    """One section a state: event and target on the left, what must hold on the right."""
    table = _table("event, target (reason)", "when; the first row that fits is taken")
    before = ""
    for source, row in _shown(rows):
        if source != before:
            table.add_section()
            table.add_row(Text(source, style="bold cyan"), "")
            before = source
        target = Text.assemble(f"{row.event.value} -> ", (row.target.value, "bold"))
        if row.reason is not None:
            target.append(f" ({row.reason.value})", style="dim")
        conditions = [Text.assemble((guard.name, "green"), f": {guard.describe(limits)}") for guard in row.guards]
        others = any(other.source is row.source and other.event is row.event and other is not row for other in rows)
        table.add_row(
            target, Text("\n").join(conditions) if conditions else Text("otherwise" if others else "", style="dim")
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for column, ratio in zip(columns, (2, 3), strict=False):
        table.add_column(column, ratio=ratio, overflow="fold")
    return table


def show_limits(limits: Limits, given: GivenLimits, *, as_json: bool) -> None:
    """Every limit: its value, where that comes from, and what it means."""
    rows = [(name, getattr(limits, name), _origin(name, given)) for name in Limits.model_fields]
    if as_json:
        put_json({name: value for name, value, _ in rows})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("limit", "value", "from", "meaning"):
        table.add_column(column, overflow="fold")
    for name, value, origin in rows:
        meaning = Limits.model_fields[name].description or ""
        style = "bold" if origin != "default" else ""
        table.add_row(name, Text("none" if value is None else str(value), style=style), origin, meaning)
    out().print(table)


def _origin(name: str, given: GivenLimits) -> str:
    if name in given:
        return "option"
    return "environment" if os.environ.get(f"{ENV_PREFIX}{name.upper()}", "").strip() else "default"
