"""A Google-style docstring, split into what the tool does and what its arguments mean."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["split_docstring"]

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Raises|Yields|Returns|Return|Examples?|Notes?|Attributes):\s*$"
)
_ARGUMENT: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_UNWANTED: Final = frozenset({"Args", "Arguments", "Parameters", "Raises", "Yields", "Attributes"})


def split_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """(description, argument -> its meaning) of a docstring as `inspect.getdoc` gives it.

    Of the sections, Returns, Examples and Notes stay in the description; Raises and Yields are nobody's.
    """
    lines = (text or "").splitlines()
    kept: list[str] = []
    arguments: list[str] = []
    target = kept
    for line in lines:
        if section := _SECTION.match(line):
            name = section[1]
            target = arguments if name in ("Args", "Arguments", "Parameters") else ([] if name in _UNWANTED else kept)
            if target is kept:
                kept.append(line)
        else:
            if target is not kept and line and not line[0].isspace():
                target = kept
            target.append(line)
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return description, _argument_lines(arguments)


def _argument_lines(lines: list[str]) -> dict[str, str]:
    """`name (type): meaning` lines, with the deeper-indented lines that continue them."""
    base = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        body = line.strip()
        indent = len(line) - len(line.lstrip())
        if body and indent <= base and (match := _ARGUMENT.match(body)):
            current = found.setdefault(match[1], [])
            current.append(match[2])
        elif body:
            current.append(body)
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}
