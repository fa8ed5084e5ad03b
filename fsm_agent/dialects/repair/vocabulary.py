"""The words of the repair package: what can be wrong with a text, what can be mended, and what reading one gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["MAX_CHARS", "MAX_DEPTH", "MAX_DIGITS", "CallText", "Fault", "Malformed", "Parsed", "Repair", "quoted"]

MAX_CHARS: Final = 1_000_000
"""Longest text that is read, in characters."""

MAX_DEPTH: Final = 64
"""Deepest nesting of objects and lists that is read."""

MAX_DIGITS: Final = 400
"""Longest number that is read, in characters."""


def quoted(keys: Iterable[str]) -> str:
    """The first five of `keys` for the detail of a fault: as JSON in ASCII, 42 characters each, so that any of them can be shown."""
    return ", ".join([json.dumps(key)[:42] for key in list(keys)[:5]])


class Fault(StrEnum):
    """What is wrong with a text that cannot be used."""

    TRUNCATED = "truncated"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    NUMBER_TOO_LARGE = "number_too_large"
    BAD_CHARACTER = "bad_character"
    DUPLICATE_KEYS = "duplicate_keys"
    AMBIGUOUS = "ambiguous"
    MISSING = "missing"


class Repair(StrEnum):
    """What was changed or passed over to read a text. Spelling of the value first, then what stood around it."""

    TYPOGRAPHIC_QUOTES = "typographic_quotes"
    SINGLE_QUOTES = "single_quotes"
    BARE_KEY = "bare_key"
    PYTHON_LITERAL = "python_literal"
    TRAILING_COMMA = "trailing_comma"
    MISSING_COMMA = "missing_comma"
    FULLWIDTH_PUNCTUATION = "fullwidth_punctuation"
    RAW_LINE_BREAK = "raw_line_break"
    ESCAPED_APOSTROPHE = "escaped_apostrophe"
    COMMENT = "comment"
    ODD_SPACE = "odd_space"
    DOUBLE_ENCODED = "double_encoded"
    THINKING = "thinking"
    FENCE = "fence"
    OPEN_FENCE = "open_fence"
    PROSE = "prose"
    EXTRA_CLOSING = "extra_closing"
    REPEATED_OBJECT = "repeated_object"
    FIRST_OF_SEVERAL = "first_of_several"
    CALL_AS_TEXT = "call_as_text"
    DROPPED_OBSERVATION = "dropped_observation"
    ACTION_OVER_ANSWER = "action_over_answer"
    TRANSLATED_LABELS = "translated_labels"


@dataclass(frozen=True, slots=True)
class Parsed:
    """An object that was read, and the repairs that were needed for it (`()`: the text was strict JSON)."""

    value: dict[str, Any]
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Malformed:
    """A text that was refused. `detail` tells the model what was found and where, without repeating its values."""

    kind: Fault
    detail: str
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallText:
    """A call written as text: the registered name that it stands for, and its arguments or what is wrong with them."""

    name: str
    arguments: Parsed | Malformed
