"""What a model will stumble over in tools: descriptions that do not say when to use them, or say the same, and names that say nothing.

A model knows of a tool what its name, its description and its fields say. Each finding says what to write instead. English and Chinese.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import combinations
from typing import Any, Final

from fsm_agent.tools.spec import Tool
from fsm_agent.words import telling_words

__all__ = ["MOST_ALIKE", "Finding", "Lint", "lint"]

MOST_ALIKE: Final = 0.6
"""Two descriptions overlap when they share so much: the words that both have, over the root of the product of how many each has."""

_SHORTEST: Final = 3
"""Telling words below which a description says nothing, and two are not compared."""

_WHEN: Final = re.compile(
    r"\b(?:when|whenever|unless|only|instead of|rather than|never|not for|do not|don't|before|after|if (?:you|the|a|an|no)"
    r"|use (?:it|this|to|for|with)|use(?:d|ful)? (?:for|to)|for (?:questions|requests|tasks|anything))\b",
    re.IGNORECASE,
)
_WHEN_ZH: Final = re.compile(
    "用于|适用|适合|当.{0,30}时|需要.{0,30}时|时使用|时调用|仅|只能|只在|不要|不能|不得|请勿|如果|之前|之后|而不是|除非"
)

_GENERIC: Final = frozenset(
    "action api call data default do exec execute fetch func function get handle helper info input main misc op operation other perform "
    "process query request run set stuff task temp test thing tmp tool update util utils work".split()
)
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALIKE_WORDS: Final = 0.9
"""How alike two words are (0 to 1) from which a reader takes one for the other: "order" and "orders", "color" and "colour"."""


class Lint(StrEnum):
    """The rules, by the id that a finding has."""

    NO_DESCRIPTION = "no-description"
    NO_WHEN = "no-when"
    OVERLAP = "overlapping-descriptions"
    NO_FIELD_DESCRIPTION = "no-field-description"
    GENERIC_NAME = "generic-name"
    SIMILAR_NAMES = "similar-names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to mend. `field` is a dotted path, "" for the tool itself; `other` is the second tool where two are concerned."""

    rule: Lint
    tool: str
    text: str
    field: str = ""
    other: str = ""

    def __str__(self) -> str:
        where = f"{self.tool}.{self.field}" if self.field else self.tool
        return f"{where}: {self.text} [{self.rule}]"

    def to_data(self) -> dict[str, str]:
        """As JSON data."""
        return {**asdict(self), "rule": str(self.rule)}


def lint(tools: Iterable[Tool]) -> tuple[Finding, ...]:
    """What is to be mended in `tools`, as a model is shown them: tool by tool, then what concerns two. Empty when nothing is.

    Overlap is measured in words, not in meaning: what is told differently is not found.
    """
    shown = list(tools)
    single = [finding for one in shown for finding in (*_description(one), *_fields(one), *_name(one))]
    return (*single, *_overlaps(shown), *_similar_names(shown))


def _description(one: Tool) -> Iterator[Finding]:
    text = one.full_description
    if len(set(telling_words(one.description))) < _SHORTEST:
        said = f"the description says almost nothing ({one.description!r:.60}): say what the tool does, and what it returns"
        yield Finding(rule=Lint.NO_DESCRIPTION, tool=one.name, text=said)
    elif not (one.not_for or _WHEN.search(text) or _WHEN_ZH.search(text)):
        said = 'the description does not say when to use the tool, or when not: add a sentence, or not_for="..."'
        yield Finding(rule=Lint.NO_WHEN, tool=one.name, text=said)


def _fields(one: Tool) -> Iterator[Finding]:
    for path in _undescribed(one.parameters(), ""):
        said = "the field has no description: say what it holds, in which unit or form"
        yield Finding(rule=Lint.NO_FIELD_DESCRIPTION, tool=one.name, field=path, text=said)


def _undescribed(schema: Any, path: str) -> Iterator[str]:
    """The paths of fields without a description, at every depth; a field that was described says it for what is inside it too."""
    if isinstance(schema, list):
        for part in schema:
            yield from _undescribed(part, path)
    if not isinstance(schema, Mapping):
        return
    for name, inner in (schema.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        if isinstance(inner, Mapping) and not str(inner.get("description", "")).strip() and not _nested(inner):
            yield below
        yield from _undescribed(inner, below)
    yield from _undescribed(schema.get("items"), f"{path}[]")
    for name in ("anyOf", "oneOf", "allOf"):
        yield from _undescribed(schema.get(name), path)
    for inner in (schema.get("$defs") or {}).values():
        yield from _undescribed(inner, path)


def _nested(schema: Mapping[str, Any]) -> bool:
    """True for an object whose own fields say what it is."""
    return bool(schema.get("properties"))


def _name(one: Tool) -> Iterator[Finding]:
    parts = _parts(one.name)
    if len(one.name) < _SHORTEST or all(part in _GENERIC or part.isdigit() for part in parts):
        said = f"the name {one.name!r} could be any tool's: name what it does to what, as in query_order"
        yield Finding(rule=Lint.GENERIC_NAME, tool=one.name, text=said)


def _overlaps(tools: Sequence[Tool]) -> Iterator[Finding]:
    words = {one.name: frozenset(telling_words(one.description)) for one in tools}
    for (one, own), (other, others) in combinations(words.items(), 2):
        if min(len(own), len(others)) < _SHORTEST:
            continue
        alike = len(own & others) / math.sqrt(len(own) * len(others))
        if alike >= MOST_ALIKE:
            said = (
                f"its description is {alike:.0%} that of {other}: say what this one does that the other does not, "
                "and in not_for when to use the other"
            )
            yield Finding(rule=Lint.OVERLAP, tool=one, other=other, text=said)


def _similar_names(tools: Sequence[Tool]) -> Iterator[Finding]:
    for one, other in combinations([one.name for one in tools], 2):
        how = _alike(_parts(one), _parts(other))
        if how:
            said = f"the name differs from {other} only {how}: a model takes one for the other; name what is different"
            yield Finding(rule=Lint.SIMILAR_NAMES, tool=one, other=other, text=said)


def _parts(name: str) -> list[str]:
    """The words of a name in lower case: `getOrders_v2` as get, orders, v, 2."""
    return [part.lower() for part in _PART.findall(name)]


def _alike(one: Sequence[str], other: Sequence[str]) -> str:
    """In what little two names differ; "" when in more."""
    if "".join(one) == "".join(other):
        return "in case or separators"
    plain, plain_other = ([part for part in parts if not part.isdigit() and part != "v"] for parts in (one, other))
    if plain and plain == plain_other:
        return "in a number"
    if sorted(plain) == sorted(plain_other) and plain:
        return "in the order of its words"
    if len(plain) != len(plain_other):
        return ""
    differing = [(a, b) for a, b in zip(plain, plain_other, strict=True) if a != b]
    if len(differing) != 1:
        return ""
    a, b = differing[0]
    if _singular(a) == _singular(b):
        return "in singular and plural"
    return f"in {a!r} and {b!r}" if SequenceMatcher(None, a, b).ratio() >= _ALIKE_WORDS else ""


def _singular(word: str) -> str:
    for ending, single in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(ending):
            return word.removesuffix(ending) + single
    return word.removesuffix("s") if not word.endswith("ss") else word
