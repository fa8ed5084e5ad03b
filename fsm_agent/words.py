"""What a text is about, as words: without those that say nothing; for scripts without spaces, pairs of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["telling_words"]

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
# Words that say nothing of what a text is about.
_EMPTY_WORDS: Final = frozenset(
    "a an and are as at be but by can did do does for from had has have how i if in into is it its of on or so that the their then there "
    "they this to was we were what when where which who why will with you your".split()
)
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def telling_words(text: str) -> Iterator[str]:
    """The words of `text` in lower case, in order, each as often as it stands there."""
    for found in _WORD.findall(text.lower()):
        if _WIDE.match(found) and len(found) > 1:
            yield from (found[at : at + 2] for at in range(len(found) - 1))
        elif found not in _EMPTY_WORDS:
            yield found
