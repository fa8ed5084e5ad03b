"""JSON as it is specified, within bounds: the one place where text becomes values."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fsm_agent.dialects.repair.scan import deeper_than_read
from fsm_agent.dialects.repair.vocabulary import MAX_CHARS, MAX_DEPTH, MAX_DIGITS, Fault, Malformed, Parsed, quoted

__all__ = ["Value", "checked", "strict_value"]


class _Refused(ValueError):
    """Valid by grammar, and not to be used."""

    def __init__(self, kind: Fault, detail: str) -> None:
        self.malformed = Malformed(kind, detail)


@dataclass(frozen=True, slots=True)
class Value:
    """A value that was read, which may be None."""

    value: Any


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _Refused(Fault.DUPLICATE_KEYS, f"the key {quoted([twice])} is given more than once in one object")
    return members


def _bounded(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise _Refused(Fault.NUMBER_TOO_LARGE, f"a number has {len(digits)} characters, more than {MAX_DIGITS}")
    return digits


def _float(digits: str) -> float:
    number = float(_bounded(digits))
    if math.isinf(number):
        raise _Refused(Fault.NUMBER_TOO_LARGE, f"the number {digits[:24]} is too large")
    return number


def _constant(name: str) -> Any:
    raise _Refused(Fault.NOT_JSON, f"{name} is not a JSON value")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_int=lambda digits: int(_bounded(digits)),
    parse_float=_float,
    parse_constant=_constant,
)
_FEW: Final = 32
_SHORT: Final = 10_000
_TOO_LARGE: Final = 10**MAX_DIGITS
_HALF_PAIR: Final = Malformed(Fault.BAD_CHARACTER, "a string holds half of a surrogate pair, which is not a character")
_MAYBE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")


def strict_value(text: str) -> Value | Malformed | None:
    """The value of a text that is strict JSON and within bounds; None when it is not JSON or nested too deep."""
    if deeper_than_read(text):
        return None
    try:
        value = _DECODER.decode(text)
    except _Refused as refused:
        return refused.malformed
    except ValueError:
        return None
    if _MAYBE_SURROGATE.search(text) and not _encodable(value):
        return _HALF_PAIR
    return Value(value)


def _encodable(value: Any) -> bool:
    if isinstance(value, str) and value.isascii():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def checked(given: Mapping[str, Any]) -> Parsed | Malformed:
    """A mapping parsed elsewhere, held to the same bounds. Walked without recursion."""
    # Nearly every call is a few short plain values, which break no bound.
    if len(given) < _FEW and not [
        key for key, item in given.items() if not (type(key) is str and _simple(key) and _simple(item))
    ]:
        return Parsed(dict(given))
    pending: list[tuple[Any, int]] = [(given, 1)]
    visited = 0
    while pending:
        value, depth = pending.pop()
        visited += 1
        if visited > MAX_CHARS:
            return Malformed(Fault.TOO_LARGE, f"the arguments hold more than {MAX_CHARS} values")
        if isinstance(value, (Mapping, list, tuple)) and depth > MAX_DEPTH:
            return Malformed(Fault.TOO_DEEP, f"objects and lists are nested more than {MAX_DEPTH} deep")
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                return Malformed(Fault.NOT_JSON, "a key of the arguments is not text")
            pending += [(item, depth + 1) for pair in value.items() for item in pair]
        elif isinstance(value, (list, tuple)):
            pending += [(item, depth + 1) for item in value]
        elif (fault := _scalar_fault(value)) is not None:
            return fault
    return Parsed(dict(given))


def _simple(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) < _SHORT and value.isascii()
    return value is None or kind is bool or (kind is int and -_SHORT < value < _SHORT)


def _scalar_fault(value: Any) -> Malformed | None:
    if isinstance(value, str):
        if len(value) > MAX_CHARS:
            return Malformed(Fault.TOO_LARGE, f"a string has {len(value)} characters, more than {MAX_CHARS}")
        return None if _encodable(value) else _HALF_PAIR
    if isinstance(value, float) and not math.isfinite(value):
        return Malformed(Fault.NOT_JSON, f"{value} is not a JSON value")
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:
        return Malformed(Fault.NUMBER_TOO_LARGE, f"a number has more than {MAX_DIGITS} digits")
    if value is None or isinstance(value, (bool, int, float)):
        return None
    return Malformed(Fault.NOT_JSON, f"a value of type {type(value).__name__[:40]} is not JSON")
