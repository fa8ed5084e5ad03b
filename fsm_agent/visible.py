"""Text from outside as a person can be shown it: nothing in it rewrites a terminal, turns a line round, or hides."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["safe"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_HARMLESS: Final = "\n\t\u200c\u200d"
"""Line break, tab, and the joiners that emoji and some scripts are written with."""


def safe(text: str) -> str:
    """`text` with control, direction and invisible characters written out."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        char
        if char in _HARMLESS or unicodedata.category(char) not in _INVISIBLE
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
