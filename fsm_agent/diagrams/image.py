"""An SVG image as it leaves here: the same on every screen and page, whatever fonts are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Final

__all__ = ["tidied"]

_PAGE: Final = (785.0, 538.0)
"""Points of a page of A4 within margins of a centimetre, its long side first."""

_SIZE: Final = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')
_HEADER: Final = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_TEXT: Final = re.compile(r'<text ([^>]*?)font-family="[^"]*"([^>]*?font-size="([\d.]+)"[^>]*)>([^<]*)</text>')

_FONTS: Final = "Arial,Helvetica,Liberation Sans,Arimo,sans-serif"
_BOLD: Final = 1.06
"""How much wider bold letters are, about."""

_WIDTHS: Final[Mapping[int, str]] = {
    191: "'",
    222: "ijl",
    260: "|",
    278: " !,./:;[]\\ftI\u00a0",
    333: "()-`r",
    334: "{}",
    355: '"',
    389: "*",
    469: "^",
    500: "ckvxyzsJ",
    556: "#$?_0123456789abdeghnopquL",
    584: "+<=>~",
    611: "FTZ",
    667: "&ABEKPSVXY",
    722: "wCDHNRU",
    778: "GOQ",
    833: "mM",
    889: "%",
    944: "W",
    1015: "@",
}
"""Thousandths of its size that a letter of Arial is wide, as of every font that is made to take its place."""

_ADVANCE: Final[Mapping[str, int]] = {letter: width for width, letters in _WIDTHS.items() for letter in letters}


def tidied(svg: bytes) -> str:
    """The image without the version that wrote it, no larger than a page of A4, and with a name for who cannot see it.

    A text takes the room that was left for it, also where another font has to show it.
    """
    text = _HEADER.sub("", svg.decode("utf-8")).replace("\r\n", "\n")
    text = _SIZE.sub(_on_a_page, text, count=1)
    text = _TEXT.sub(_in_its_room, text)
    return text.replace("<svg ", '<svg role="img" aria-label="State machine diagram" ', 1)


def _on_a_page(size: re.Match[str]) -> str:
    """Width and height, made smaller to fit upright or sideways, whichever leaves it larger."""
    width, height = float(size[1]), float(size[2])
    long, short = _PAGE
    scale = min(1.0, max(min(long / width, short / height), min(short / width, long / height)))
    return f'width="{width * scale:.0f}pt" height="{height * scale:.0f}pt"'


def _in_its_room(found: re.Match[str]) -> str:
    before, after, size, said = found.groups()
    text = unescape(said)
    room = ""
    if text and all(letter in _ADVANCE for letter in text):
        thousandths = sum(_ADVANCE[letter] for letter in text) * (_BOLD if "bold" in after else 1.0)
        room = f' textLength="{thousandths * float(size) / 1000:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text {before}font-family="{_FONTS}"{after}{room}>{said}</text>'
