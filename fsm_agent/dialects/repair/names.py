"""Tool names as models write them: what they stand for among the registered ones, and what a provider accepts back."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, Final

__all__ = ["expand_parallel", "resolve_name", "sanitise_name"]

_PREFIX: Final = re.compile(r"(?:functions?|tools?|default_api)[.:/]")
_WRAPPING: Final = " \t\r\n`'\"*"
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_PARALLEL: Final = frozenset(
    {"multi_tool_use.parallel", "multi_tool_use_parallel", "functions.multi_tool_use.parallel"}
)


def resolve_name(name: str | None, registered: Container[str]) -> str | None:
    """The registered name that `name` stands for, else None.

    The name itself; else without wrapping space, backticks, quotes or asterisks, a leaked control token behind it, or
    one known prefix (`functions.` and the like), each only when what remains is registered. Case and spelling are
    never guessed: the nearest name may be the one that deletes.
    """
    if not isinstance(name, str) or not name:
        return None
    if name in registered:
        return name
    bare = name.strip(_WRAPPING).partition("<|")[0].strip(_WRAPPING)
    prefix = _PREFIX.match(bare)
    for candidate in (bare, bare[prefix.end() :] if prefix else ""):
        if candidate and candidate in registered:
            return candidate
    return None


def sanitise_name(name: str | None) -> str:
    """`name` in the characters that every provider accepts in a request: 1 to 64 of `a-z A-Z 0-9 _ -`."""
    return _ILLEGAL.sub("_", (name or "").strip())[:_LONGEST] or "unnamed"


def expand_parallel(name: str | None, args: Any) -> list[tuple[str, Any]] | None:
    """The `(name, arguments)` pairs inside the invented wrapper tool `multi_tool_use.parallel`, in order.

    None when it is another tool, or when any of its uses has not the shape of a call: then nothing is to be run.
    """
    if not isinstance(name, str) or name.strip(_WRAPPING) not in _PARALLEL or not isinstance(args, Mapping):
        return None
    uses = args.get("tool_uses")
    if not isinstance(uses, list) or not uses:
        return None
    calls: list[tuple[str, Any]] = []
    for use in uses:
        if not isinstance(use, Mapping) or not isinstance(use.get("recipient_name"), str):
            return None
        calls.append((use["recipient_name"], use.get("parameters")))
    return calls
