"""Text from outside as a person can be shown it: nothing in it rewrites a terminal, turns a line round, or hides."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

from fsm_agent.errors import RunError

__all__ = ["checked_id", "safe", "safe_json"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_HARMLESS: Final = "\n\t\u200c\u200d"
"""Line break, tab, and the joiners that emoji and some scripts are written with."""


def safe(text: str) -> str:
    """`text` with control, direction and invisible characters written out."""
    return _written_out(text, lambda char: char.encode("unicode_escape").decode("ascii"))


def safe_json(text: str) -> str:
    """A JSON document with the same characters escaped as JSON escapes them: it is read as the same value."""
    return _written_out(text, _json_escape)


def checked_id(what: str, given: object) -> str:
    """An id as it is. Raises `RunError` for one that is no text, blank, of several lines, or that no store can write down."""
    if not isinstance(given, str) or not given.strip() or "\n" in given:
        raise RunError(f"{what} is {given!r}; give a text of one line")
    if any("\ud800" <= char <= "\udfff" for char in given):
        raise RunError(f"{what} is {given!r}, with half of a character, which no file can name; give it in whole ones")
    return given


def _written_out(text: str, escape: Callable[[str], str]) -> str:
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char in _HARMLESS or unicodedata.category(char) not in _INVISIBLE else escape(char) for char in text
    )


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
