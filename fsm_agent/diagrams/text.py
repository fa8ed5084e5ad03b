"""Names as they can be shown: any text, unchanged wherever a drawing can hold it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["shown"]

_UNSHOWABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_PICTURES: Final = 0x2400
_DELETE: Final = 0x7F


def shown(text: str) -> str:
    """`text` with the characters that no XML document can hold made visible: a tab as its picture, others by number.

    A line break stays one.
    """
    return _UNSHOWABLE.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code == _DELETE:
        return "\u2421"
    return chr(_PICTURES + code) if code < ord(" ") else f"\\u{code:04x}"
