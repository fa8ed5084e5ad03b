"""Fingerprints: when are two tool calls the same call, and when did a call return something new."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, Final

from fsm_agent.tools.plain import plain

__all__ = ["VOLATILE_NAMES", "canonical", "digest", "signature"]

VOLATILE_NAMES: Final = frozenset(
    {
        "request_id", "req_id", "trace_id", "span_id", "correlation_id", "invocation_id", "call_id", "tool_call_id",
        "idempotency_key", "traceparent", "nonce", "salt", "cache_buster",
        "timestamp", "request_time", "request_timestamp", "client_timestamp", "current_time", "now",
        "random", "rand", "random_number", "random_seed", "random_state", "rng_seed", "seed",
    }
)  # fmt: skip
"""Names of fields whose value is noise, whatever it is; compared in snake_case, ids also behind a prefix (`x_`)."""

_SUFFIXES: Final = tuple(f"_{name}" for name in ("request_id", "trace_id", "span_id", "correlation_id", "nonce"))
_UUID: Final = re.compile(r"(?<![0-9a-fA-F-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-])")
_DATETIME: Final = re.compile(
    r"(?<!\d)\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?(?!\d)", re.ASCII
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENCODE: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode
_LENGTH: Final = 16
_LONGEST_NAME: Final = 64
_SHORTEST_TIME: Final = len("2024-01-01T00:00")
_SAFE_INT: Final = 1 << 4096
_SHORT_INT: Final = 1 << 62


def canonical(args: Any) -> str:
    """ASCII JSON of `args`, the same for every spelling of the same data.

    Keys are sorted at every depth, the order of lists is kept, an integral float is written as the integer (1.0 as 1,
    -0.0 as 0), a number that JSON cannot write becomes `{"$number": "NaN"}`, other Python values become their plain
    form. Never raises.
    """
    return _encode(args, frozenset(), detect=False)


def signature(tool_name: str, arguments: Mapping[str, Any], volatile: frozenset[str] = frozenset()) -> str:
    """16 hex digits that are equal for two calls which ask for the same thing.

    `arguments` are the validated ones (defaults filled). Left out of the comparison, each replaced by a placeholder:
    the declared `volatile` arguments (a name, or a dotted path through objects and lists), fields with a name of
    `VOLATILE_NAMES`, and inside any text UUIDs and ISO 8601 date-times. Plain numbers, dates and all other text always
    count.
    """
    return _hash(f"{_name(tool_name)}{_encode(arguments, volatile, detect=True)}")


@lru_cache(maxsize=1024)
def _name(tool_name: str) -> str:
    return _encode(tool_name, frozenset(), detect=False)


def digest(result: Any) -> str:
    """16 hex digits of a tool result (text or data). Nothing is normalised: a poll that moves on has a new digest."""
    return _hash(result if isinstance(result, str) else canonical(result))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _encode(value: Any, volatile: frozenset[str], *, detect: bool) -> str:
    try:
        return _ENCODE(_normal(value, volatile, "", detect))
    except (RecursionError, ValueError):  # circular, or nested beyond what the interpreter follows
        return _ENCODE(_normal(plain(value), volatile, "", detect))


def _normal(value: Any, volatile: frozenset[str], path: str, detect: bool) -> Any:
    kind = type(value)
    if kind is str:
        return _without_volatile_text(value) if detect and len(value) >= _SHORTEST_TIME else value
    if kind is int:
        return value if -_SAFE_INT < value < _SAFE_INT else {"$number": hex(value)}
    if value is None or kind is bool:
        return value
    if kind is float:
        return _number(value)
    if kind is dict:
        normal: dict[str, Any] = {}
        for key, item in value.items():
            name = key if type(key) is str else str(plain(key))
            if detect and (_is_volatile_name(name) or (volatile and f"{path}{name}" in volatile)):
                normal[name] = "<volatile>"
            elif type(item) is int and -_SHORT_INT < item < _SHORT_INT:  # what `_normal` makes of it, without the call
                normal[name] = item
            else:
                normal[name] = _normal(item, volatile, f"{path}{name}." if volatile else "", detect)
        return normal
    if kind is list or kind is tuple:
        return [_normal(item, volatile, path, detect) for item in value]
    return _normal(plain(value), volatile, path, detect)


def _number(value: float) -> Any:
    if value.is_integer():
        return int(value)
    return value if isfinite(value) else {"$number": "NaN" if isnan(value) else str(value)}


def _without_volatile_text(text: str) -> str:
    if "-" not in text:
        return text
    return _DATETIME.sub("<time>", _UUID.sub("<uuid>", text))


def _is_volatile_name(name: str) -> bool:
    """Does the name of a field say that its value is noise? `requestId`, `X-Request-Id` and `client_nonce` all do."""
    return len(name) <= _LONGEST_NAME and _is_volatile_short_name(name)


@lru_cache(maxsize=4096)
def _is_volatile_short_name(name: str) -> bool:
    snake = _HUMP.sub("_", name).replace("-", "_").lower()
    return snake in VOLATILE_NAMES or snake.endswith(_SUFFIXES)
