"""Finds the JSON objects of a text that holds other things too. Every pass is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fsm_agent.dialects.repair.reader import Break, Span, read_value
from fsm_agent.dialects.repair.vocabulary import MAX_DEPTH, Fault

__all__ = ["MAX_STARTS", "Fences", "deeper_than_read", "objects", "past_object", "starts_json"]

MAX_STARTS: Final = 10_000
"""Most opening braces of one text at which an object is looked for."""

_LANGUAGES: Final = (
    "sh|bash|shell|zsh|console|powershell|python|py|javascript|js|typescript|ts|java|kotlin|swift|c|cpp|csharp|rust|go"
    "|ruby|php|sql|html|css|xml|yaml|yml|toml|ini|diff|dockerfile"
)
_START: Final = re.compile(
    rf"^[ \t]*+(?P<fence>`{{3,}}+|~{{3,}}+)[ \t]*+(?:{_LANGUAGES})\b|\{{", re.IGNORECASE | re.MULTILINE
)
_BRACKET_OR_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
_JSON_START: Final = re.compile(r'"|\{|\[\s*+(?:[\[\]{"0-9-]|\Z)')


class Fences:
    """Finds where the fenced blocks of a text end. A fence that never closes is looked for once."""

    def __init__(self, text: str, end: int) -> None:
        self.text = text
        self.end = end
        self.unclosed: set[str] = set()

    def behind(self, fence: str, at: int) -> int:
        """The index behind the block that `fence` opened before `at`; `at` when it does not close before `end`."""
        close = -1 if fence in self.unclosed else self.text.find(f"\n{fence}", at, self.end)
        if close < 0:
            self.unclosed.add(fence)
            return at
        return close + 1 + len(fence)


def objects(text: str) -> Iterator[Span | Break]:
    """Every outermost object of `text`, in order, up to the first that looks like one and cannot be read: a `Break`.

    Behind a broken object nothing is offered: where it would have ended nobody knows, so what follows may be inside it.
    A brace of prose (not followed by a key) and a code block of a programming language are passed over.
    """
    fences = Fences(text, text.rfind("{"))
    at = starts = 0
    while (start := _START.search(text, at)) is not None:
        starts += 1
        if starts > MAX_STARTS:
            yield Break(start.start(), Fault.TOO_LARGE, start.start(), f"more than {MAX_STARTS} braces", began=True)
            return
        if start["fence"]:
            at = fences.behind(start["fence"], start.end())
            continue
        found = read_value(text, start.start())
        if isinstance(found, Span) or found.began:
            yield found
        behind = _behind(found)
        if behind is None:
            return
        at = behind


def past_object(text: str, start: int) -> int | None:
    """Where to go on after the brace at `text[start]`: behind its object or a brace of prose; None: it is broken."""
    return _behind(read_value(text, start))


def starts_json(text: str) -> bool:
    """Whether the first characters can only be meant as JSON: an object, a string, or a list of values."""
    return _JSON_START.match(text) is not None


def deeper_than_read(text: str) -> bool:
    """Whether brackets outside strings nest deeper than `MAX_DEPTH`; counted, so that no parser has to find out."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        token = found.group()
        depth += (token in "{[") - (token in "}]")
        if depth > MAX_DEPTH:
            return True
    return False


def _behind(found: Span | Break) -> int | None:
    if isinstance(found, Span):
        return found.end
    return None if found.began else max(found.at, found.start + 1)
