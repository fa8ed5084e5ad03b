"""What can be concluded, without any model, from a task and the calls made for it. Pure; used by the `guided_json` dialect.

Which numbers and codes of the task no call has used yet; which values a failed call may have meant; which tool the task names.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fsm_agent.dialects.repair.strict import Value, strict_value

__all__ = [
    "codes",
    "corrections",
    "form_of",
    "marks",
    "named_by",
    "new_words",
    "number_in",
    "offered_by",
    "shared_words",
    "wants_number",
    "without_own_name",
    "without_used",
]

_QUOTED: Final = re.compile(
    r"(?<!\w)'([^'\n]{2,80})'(?!\w)|\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|《([^》\n]{2,80})》|「([^」\n]{2,80})」"
)
_CODE: Final = re.compile(
    r"(?<![\w./-])(?:(?=[\w./-]*\d)(?=[\w./-]*(?:[A-Za-z]|\d-\d))[A-Za-z0-9][\w./-]*\w|\w+\.[a-z]{2,4}(?!\w))",
    re.ASCII,
)
_UNIT: Final = re.compile(r"(?<![\w.])(\d+(?:[.,]\d+)*)(?=[A-Za-z]{1,4}(?!\w))", re.ASCII)
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w])", re.ASCII)
_CURRENCY: Final = re.compile(r"(?<!\w)[A-Z]{2,}(?!\w)", re.ASCII)
_WORD: Final = re.compile(r"[^\W_][\w.@-]*")
_LETTERS: Final = re.compile(r"[A-Za-z]{3,}")
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]{2,}")
_VERBS: Final = frozenset(
    ["get", "find", "look", "query", "fetch", "read", "search", "show", "lookup", "check", "list"]
)
_ASKING: Final = frozenset(
    "about from give have into many much name number please tell that their them there these they those what when where which whose will "
    "with would your".split()
)
"""Words that a task and the description of any tool may share by chance."""
_WANTS_NUMBER: Final = re.compile(
    r"\bhow\s+(?:many|much|long|old|far|tall|high|heavy|often|big|large)\b|多少|几", re.IGNORECASE
)
_FORBIDS: Final = re.compile(r"\b(?:not?|never|without|don't|doesn't|cannot)\b|n't\b|不|别|勿|无需|没有", re.IGNORECASE)
_SHORT: Final = 3
"""Latin words up to this many letters tell nothing of what a tool is for."""
_NEAR: Final = 0.75
_LONGEST_VALUE: Final = 60


def marks(task: str, *, capitals: bool = False) -> tuple[str, ...]:
    """What a task gives letter for letter: quoted texts, codes (B42, 2024-02-01, a.txt), numbers; with `capitals` GBP and the like too."""
    found = [next(part for part in one.groups() if part) for one in _QUOTED.finditer(task)]
    rest = _unquoted(task)
    found += _CODE.findall(rest)
    rest = _CODE.sub(" ", rest)
    found += _NUMBER.findall(rest)
    if capitals:
        found += _CURRENCY.findall(rest)
    return tuple(dict.fromkeys(found))


def codes(task: str) -> tuple[str, ...]:
    """The codes among the marks of a task: what names one thing (an order, a date, a file), as a number or a quotation need not."""
    return tuple(dict.fromkeys(_CODE.findall(_unquoted(task))))


def _unquoted(task: str) -> str:
    """The task without its quotations, numbers parted from their units: 5kg is no code."""
    return _UNIT.sub(r"\1 ", _QUOTED.sub(" ", task))


def without_used(values: Iterable[str], arguments: Iterable[Any]) -> tuple[str, ...]:
    """Those of `values` that occur in none of the arguments of calls, as text or as the same number."""
    given = list(arguments)
    return tuple(value for value in values if not any(_holds(one, value) for one in given))


def _holds(argument: Any, value: str) -> bool:
    number = number_in(value)
    if isinstance(argument, bool) or argument is None:
        return False
    if isinstance(argument, int | float):
        return number is not None and float(argument) == number
    text = argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False, default=str)
    if number is None:
        return value.casefold() in text.casefold()
    return number in {number_in(one) for one in _NUMBER.findall(text)}


def number_in(text: str) -> float | None:
    """The number that `text` is, commas between thousands allowed, else None."""
    if not text.isascii():
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def form_of(code: str) -> str:
    """What two codes of one kind share: SO-2024-001 and SO-2024-002 are both AA-0000-000; "" for a mere word or number."""
    form = re.sub("[A-Za-z]", "A", re.sub("[0-9]", "0", code))
    return form if "0" in form and form.strip("0") else ""


def offered_by(text: str) -> tuple[str, ...]:
    """The short values that a result consists of: itself, or what a JSON result holds."""
    found = strict_value(text)
    value = found.value if isinstance(found, Value) else text.strip()
    return tuple(dict.fromkeys(one for one in _leaves(value) if 0 < len(one) <= _LONGEST_VALUE and "\n" not in one))


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def corrections(name: str, value: str, error: str) -> tuple[str, ...]:
    """Words of an error that the value of the argument `name` nearly is, or that are a part of it; never the value or the name itself."""
    given = value.casefold().strip()
    words = {word.casefold(): word for word in _WORD.findall(error.replace(value, " "))}
    words = {word: said for word, said in words.items() if word not in (given, name.casefold())}
    near = difflib.get_close_matches(given, words, 3, _NEAR)
    parts = [part for part in given.split() if part in words] if " " in given else []
    parts += [word for word in words if not word.isascii() and len(word) > 1 and word in given]
    return tuple(words[one] for one in dict.fromkeys([*near, *parts]))


def without_own_name(value: str, name: str) -> str:
    """The value without the name of its own argument: "support" for "support team" in the argument `team`; "" when nothing is left out."""
    kept = [word for word in value.split() if word.casefold() != name.casefold()]
    return " ".join(kept) if len(kept) < len(value.split()) else ""


def shared_words(task: str, text: str) -> int:
    """How many words (of Chinese: pairs of characters) a task shares with the name or description of a tool."""
    return len(_words(task) & _words(text))


def new_words(task: str, text: str, known: str) -> int:
    """How many words a task shares with `text` and not with `known`; words of a question, and those in quotation marks, do not count.

    0 for a task that says what is not to be done.
    """
    if _FORBIDS.search(task):
        return 0
    asked = {one for one in _words(_QUOTED.sub(" ", task)) if len(one) > _SHORT or not one.isascii()} - _ASKING
    return len(asked & (_words(text) - _words(known)))


def wants_number(task: str) -> bool:
    """True for a question whose answer is a number: how many, how much, 多少."""
    return _WANTS_NUMBER.search(task) is not None


def named_by(tool: str, task: str) -> bool:
    """True when each word of the tool's name, verbs like `get` aside, is a word of the task: `get_order`, "the customer of order 7"."""
    words = _words(tool.replace("_", " ")) - _VERBS
    return bool(words) and words <= _words(task)


def _words(text: str) -> frozenset[str]:
    latin = {word.casefold().rstrip("s") for word in _LETTERS.findall(text)}
    chinese = {run[at : at + 2] for run in _CHINESE.findall(text) for at in range(len(run) - 1)}
    return frozenset(latin | chinese)
