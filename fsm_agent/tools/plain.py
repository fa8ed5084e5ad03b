"""Any Python value -> plain JSON data: what JSON cannot hold becomes text that says what it was. Never raises."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import types
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from io import IOBase
from math import isfinite, isnan
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

__all__ = ["MAX_DEPTH", "MAX_INT_BITS", "MAX_ITEMS", "as_json", "plain", "well_formed"]

MAX_DEPTH: Final = 64
"""Containers inside containers, deeper ones become a placeholder."""
MAX_ITEMS: Final = 200_000
"""Values taken over from one result; what follows is counted in a placeholder."""
MAX_INT_BITS: Final = 14_000
"""Python writes no integer of more than 4,300 digits as text, which are 14,284 bits."""
_MAX_TEXT_OF_OBJECT: Final = 2_000
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_LAZY: Final = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, map, filter, zip, enumerate)
_TEXTUAL: Final = (UUID, PurePath, Decimal, Fraction, complex)


def well_formed(text: str) -> str:
    """`text` that UTF-8 can hold: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def as_json(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments that somebody wrote in Python as a trail has them: a date is its text, a set a list.

    As they are where JSON cannot write them: then they fit no tool, and that is said.
    """
    try:
        written: dict[str, Any] = to_jsonable_python(dict(arguments))
    except (ValueError, TypeError, RecursionError):
        return arguments
    return written


def plain(value: object) -> Any:
    """JSON data (dict with text keys, list, str, int, finite float, bool, None) that says what `value` is.

    Kept: numbers, text, containers, dates (ISO), Decimal/UUID/Path (text), enums (their value), dataclasses, named
    tuples and pydantic models (objects), sets (sorted lists), UTF-8 bytes (text). Named by a placeholder `<...>`: other
    bytes (size and digest), generators and open files (not consumed), circular references, depth over `MAX_DEPTH`,
    integers that no decimal text should hold, objects whose text cannot be had. Memory addresses are left out, so that
    equal results stay equal.
    """
    return _Conversion().convert(value, 0)


class _Conversion:
    """One conversion: the containers that are open above the current value, and how many values may still be taken."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._left = MAX_ITEMS

    def convert(self, value: object, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return well_formed(value)  # type: ignore[arg-type]  # an exact str
        if value is None or kind is bool:
            return value
        try:
            return self._scalar(value, depth) if _is_scalar(value) else self._container(value, depth)
        except Exception as error:  # noqa: BLE001 - a foreign __iter__, __str__, property or serializer may do anything
            return f"<{kind.__name__}: {type(error).__name__} while it was read>"

    def _scalar(self, value: object, depth: int) -> Any:
        if isinstance(value, Enum):
            return self.convert(value.value, depth + 1)
        if isinstance(value, str):
            return well_formed(str(value))
        if isinstance(value, int):
            return int(value) if value.bit_length() <= MAX_INT_BITS else f"<integer of {value.bit_length()} bits>"
        if isinstance(value, float):
            return float(value) if isfinite(value) else _not_finite(value)
        if isinstance(value, (date, time)):
            return value.isoformat()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _bytes(bytes(value))
        return well_formed(str(value))

    def _container(self, value: object, depth: int) -> Any:
        name = type(value).__name__
        if id(value) in self._open:
            return f"<circular {name}>"
        if depth >= MAX_DEPTH:
            return f"<{name}: nested too deeply>"
        self._open.add(id(value))
        try:
            return self._opened(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _opened(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._object(value.items(), len(value), depth)
        if isinstance(value, BaseModel):
            return self.convert(value.model_dump(mode="python", warnings=False), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return self._object(((name, getattr(value, name)) for name in names), len(names), depth)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self.convert(value._asdict(), depth)
        if isinstance(value, AbstractSet):
            return sorted(self._list(value, len(value), depth), key=repr)
        if isinstance(value, (list, tuple, deque, range)) or _is_sequence(value):
            return self._list(value, len(value), depth)  # type: ignore[arg-type]  # every one of these is sized
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return self.convert(value.tolist(), depth)
        return _text_of(value)

    def _list(self, values: Iterable[object], size: int, depth: int) -> list[Any]:
        taken: list[Any] = []
        for item in values:
            if self._left <= 0:
                taken.append(f"<{size - len(taken)} more>")
                break
            self._left -= 1
            taken.append(self.convert(item, depth))
        return taken

    def _object(self, items: Iterable[tuple[object, object]], size: int, depth: int) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for key, item in items:
            if self._left <= 0:
                taken["<more>"] = size - len(taken)
                break
            self._left -= 1
            taken[self._key(key)] = self.convert(item, depth)
        return taken

    def _key(self, key: object) -> str:
        converted = self.convert(key, 0)
        return converted if isinstance(converted, str) else json.dumps(converted, ensure_ascii=False)


def _is_scalar(value: object) -> bool:
    kinds = (str, int, float, Enum, date, time, timedelta, bytes, bytearray, memoryview, *_TEXTUAL)
    return isinstance(value, kinds)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _not_finite(value: float) -> str:
    return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:12]}>"


def _text_of(value: object) -> str:
    """A short text for an object of no known kind; nothing is consumed, opened or awaited."""
    name = type(value).__name__
    if isinstance(value, _LAZY):
        label = getattr(value, "__qualname__", name)
        return f"<{name} {label}: not consumed>" if label != name else f"<{name}: not consumed>"
    if isinstance(value, IOBase):
        return f"<open file {name}: not read>"
    if isinstance(value, BaseException):
        text = str(value)
        return well_formed(f"{name}: {text}" if text else name)[:_MAX_TEXT_OF_OBJECT]
    own_text = type(value).__str__ is not object.__str__
    text = str(value) if own_text else repr(value)
    return _ADDRESS.sub("", well_formed(text))[:_MAX_TEXT_OF_OBJECT]
