"""Names as they can be shown: any text, unchanged wherever a drawing can hold it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["has_wide", "wide_width", "xml_text"]

_UNSHOWABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_PICTURES: Final = 0x2400
_DELETE: Final = 0x7F


def xml_text(text: str) -> str:
    """`text` with the characters that no XML document can hold made visible: a tab as its picture, others by number.

    A line break stays one.
    """
    return _UNSHOWABLE.sub(_visible, text)


def has_wide(text: str) -> bool:
    """Whether `text` has characters of a script whose letters take a square each: Chinese, Japanese, Korean, emoji."""
    return not text.isascii() and any(map(_is_wide, text))


def wide_width(text: str, size: float) -> float:
    """How wide the widest line of `text` is in letters of that size, where no font says: a square, or somewhat more than half of one."""
    return max(sum(1.0 if _is_wide(char) else 0.56 for char in line) for line in text.split("\n")) * size


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == _DELETE:
        return "\u2421"
    return chr(_PICTURES + code) if code < ord(" ") else f"\\u{code:04x}"
