"""Walks over the arguments of a call as the model gave them: nested JSON-like data, possibly hostile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from pydantic_core import to_json

from fsm_agent.tools.plain import MAX_INT_BITS, well_formed
from fsm_agent.tools.problems import Problem, problem

__all__ = ["MAX_DEPTH", "Path", "dropped", "leaves", "path_text", "unwritable", "value_at"]

Path = tuple[str | int, ...]
"""Keys and list positions from the arguments down to a value."""

MAX_DEPTH: Final = 100


def path_text(path: Iterable[str | int]) -> str:
    """`("items", 0, "price")` as `items[0].price`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{well_formed(part)}"
    return text


def value_at(root: Any, path: Sequence[str | int]) -> Any:
    """What is at `path`; None when there is nothing."""
    value = root
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return value


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is no container, with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def dropped(given: Any, kept: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of the object fields that `given` has and `kept` has not."""
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, item in given.items():
            if key in kept:
                yield from dropped(item, kept[key], (*path, key))
            else:
                yield (*path, key)
    elif isinstance(given, (list, tuple)) and isinstance(kept, (list, tuple)):
        for index, (one, other) in enumerate(zip(given, kept, strict=False)):
            yield from dropped(one, other, (*path, index))


def unwritable(given: Any) -> Iterator[Problem]:
    """What in the arguments is no JSON: depth, numbers without a value, half characters, other Python values."""
    waiting: list[tuple[Path, Any]] = [((), given)]
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, (Mapping, list, tuple)):
            yield from _unwritable_leaf(path, value)
            continue
        if len(path) >= MAX_DEPTH:
            yield problem(path_text(path[:3]), "depth", (str(MAX_DEPTH),))
            return
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(key, str) and well_formed(key) != key:
                yield problem(path_text((*path, key)), "text")
            waiting.append(((*path, key if isinstance(key, int) else str(key)), item))


def _unwritable_leaf(path: Path, value: object) -> Iterator[Problem]:
    if isinstance(value, str):
        if well_formed(value) != value:
            yield problem(path_text(path), "text")
    elif isinstance(value, float):
        if not isfinite(value):
            yield problem(path_text(path), "number", (), value)
    elif isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            yield problem(path_text(path), "size", (f"{MAX_INT_BITS} bits",))
    elif value is not None and not _writable(value):
        yield problem(path_text(path), "type", ("JSON",), value)


def _writable(value: object) -> bool:
    try:
        to_json(value)
    except Exception:  # noqa: BLE001 - whatever its serializer raises, it cannot be written
        return False
    return True
