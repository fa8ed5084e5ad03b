"""`fsm-agent profiles`: the profiles side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from rich import box
from rich.table import Table

from fsm_agent.cli.console import out, put_json
from fsm_agent.ladder import LADDER
from fsm_agent.limits import Limits
from fsm_agent.profiles import Profile, profiles
from fsm_agent.temperature import Cooling, Temperature

__all__ = ["show_profiles"]

_BY_MODEL: Final = "by model"
_NAMES_WIDTH: Final = 20
_COLUMN_WIDTH: Final = 18  # the longest word in it, and the gap after it


def show_profiles(*, as_json: bool) -> None:
    """What each is made of, a column each, as many beside each other as the terminal has room for.

    Of the limits, those in which one differs from the defaults.
    """
    every = profiles()
    if as_json:
        put_json([_document(one) for one in every])
        return
    console, rows = out(), _rows(every)
    beside = max(1, (console.width - _NAMES_WIDTH) // _COLUMN_WIDTH)
    for first in range(0, len(every), beside):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
        table.add_column("", no_wrap=True)
        for one in every[first : first + beside]:
            table.add_column(one.name, overflow="fold")
        for name, values in rows:
            table.add_row(name, *values[first : first + beside])
        console.print(table)


def _rows(every: Iterable[Profile]) -> list[tuple[str, list[str]]]:
    documents = [_document(one) for one in every]
    names = [name for name in Limits.model_fields if any(name in one.limits for one in every)]
    rows = [
        (name, [_said(one[name]) for one in documents]) for name in ("dialect", "memory", "threads", "tools", "ladder")
    ]
    rows += [(name, [_said(one["limits"][name]) for one in documents]) for name in names]
    rows += [(name, [_said(one[name]) for one in documents]) for name in ("temperature", "max_tokens", "reflect")]
    return rows


def _said(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(value)
    return "-" if value is None else str(value)


def _document(one: Profile) -> dict[str, Any]:
    """The profile as JSON data; its limits are all of them, as they are without an environment."""
    dialect = one.dialect if one.dialect is None or isinstance(one.dialect, str) else one.dialect.name
    return {
        "name": one.name,
        "about": one.about,
        "dialect": dialect or _BY_MODEL,
        "memory": _described(one.memory),
        "threads": "in memory" if one.conversations is None else "Redis",
        "tools": [tool.name for tool in one.tools(None)],
        "ladder": list(one.ladder or LADDER),
        "limits": Limits(**one.limits).model_dump(mode="json"),
        "temperature": _temperature(one.temperature),
        "max_tokens": one.max_tokens,
        "reflect": None if one.reflect is None else f"every {one.reflect.every} steps, {one.reflect.most} at most",
        "folder": one.folder,
    }


def _temperature(given: Temperature) -> float | str | None:
    if not isinstance(given, Cooling):
        return given
    return f"{given.start}, {given.temperature} after {given.after} successes"


def _described(value: Any) -> str:
    """A memory by its class and fields, those that are None left out: "Window, rounds=5"."""
    told = [type(value).__name__]
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if field.name == "share_of_context" and getattr(value, "max_tokens", None) is not None:
            continue  # a ceiling in tokens counts instead
        if dataclasses.is_dataclass(given):
            told.insert(1, f"of {_described(given)}")
        elif given is not None:
            told.append(f"{field.name}={given}")
    return ", ".join(told).replace(", of ", " of ")
