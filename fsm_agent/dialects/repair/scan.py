"""Finds the JSON values of a text that holds other things too. Every pass is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fsm_agent.dialects.repair.reader import Break, Span, read_value
from fsm_agent.dialects.repair.vocabulary import MAX_DEPTH, Fault

__all__ = ["closes_at", "deeper_than_read", "objects", "past_object", "starts_json"]

_BRACKET_OR_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
_JSON_START: Final = re.compile(r'"|\{|\[\s*+(?:[\[\]{"0-9-]|\Z)')


def objects(text: str) -> Iterator[Span | Break]:
    """Every outermost object of `text`, in order; a `Break` for each that looks like JSON and is not.

    A brace of prose (not followed by a key) is passed over. What lies inside a broken object is never offered as an
    object of its own; when a broken object does not close, it is the last that is reported.
    """
    start = text.find("{")
    while start >= 0:
        found = read_value(text, start)
        if isinstance(found, Span) or found.began:
            yield found
        resume = _after(text, start, found)
        start = -1 if resume is None else text.find("{", resume)


def past_object(text: str, start: int) -> int | None:
    """Where to go on after the brace at `text[start]`: behind its object or a brace of prose; None: it never closes."""
    return _after(text, start, read_value(text, start))


def _after(text: str, start: int, found: Span | Break) -> int | None:
    if isinstance(found, Span):
        return found.end
    if not found.began:
        return max(found.at, start + 1)
    return closes_at(text, found)


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


def closes_at(text: str, found: Break) -> int | None:
    """The index after the bracket that closes a broken value, strings respected; None when it never comes."""
    depth = found.depth
    if found.kind is Fault.TRUNCATED:
        return None
    for piece in _BRACKET_OR_STRING.finditer(text, found.resume):
        token = piece.group()
        depth += (token in "{[") - (token in "}]")
        if depth <= 0:
            return piece.end()
    return None
