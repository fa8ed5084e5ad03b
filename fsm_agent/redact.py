"""Secrets out of what is logged or shown: by the name they stand under, and by what they look like.

Pure, and never raises: a log line must not end a run. Linear in the length of the text: runs of characters are matched
possessively, and no attempt can start inside the run of another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from fsm_agent.secret_patterns import DEFAULT_KEYS, DEFAULT_PATTERNS, GLUED, NO_TOKEN, NO_VALUE, TRAILING, SecretPattern

__all__ = ["DEFAULT_KEYS", "DEFAULT_PATTERNS", "REDACTED", "SecretPattern", "redact", "redact_text", "summarise"]

REDACTED: Final = "[redacted]"
CYCLE: Final = "[cycle]"
TOO_DEEP: Final = "[too deep]"
MAX_DEPTH: Final = 32
MAX_WORDS: Final = 4
MAX_NAME: Final = 96
MAX_PLAIN_NAME: Final = 40
PLAIN: Final = (complex, Decimal, date, time, timedelta, UUID, Enum)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W0-9_a-zA-Z]+")
# A name with what parts it from its value: `name=`, `"name": `, `\"name\": `, `['name'] = `, `--name `, `<name>`.
_NAMED = re.compile(
    r"(?<![\w.-])(?:(?P<name>[\w.-]++)(?:\\{0,8}[\"'`])?\]?[ \t]{0,4}(?:=>|:=|==?|[:：＝])[ \t]{0,4}"
    r"|(?P<flag>--[\w-]++)[ \t]{1,4}(?=[^\s-])|<(?P<tag>[\w.-]++)>)"
)
_VALUE = re.compile(
    r"\[redacted\]"
    r'|(?:[bfruBFRU]{1,2})?(?:"(?:"")?(?P<double>(?:[^"\\]++|\\.)*+)'
    r"|'(?:'')?(?P<single>(?:[^'\\]++|\\.)*+))"
    r"|\\{1,8}[\"'](?P<escaped>[^\"'\\]*+)"
    r"|(?![{\[](?:[\s\"'{}\[\]]|$))"
    r"(?P<bare>(?:(?i:bearer|basic|token|apikey)[ \t]{1,3})?[^\s,;&\"'<>，。；、]*[^\s,;&\"'<>，。；、)}\]])",
    re.DOTALL,
)
# A parameter of such a header may be quoted: `Authorization: Token token="..."`.
_LINE = re.compile(r"\[redacted\]|(?P<bare>(?:(?<=[ \t,;:])[A-Za-z][\w-]{0,24}=\"[^\"\r\n]*+\"|[^\r\n\"'])++)")
SEPARATORS: Final = ("=", ":", "--", "<", "：", "＝")


def redact(
    value: object, *, keys: AbstractSet[str] = DEFAULT_KEYS, patterns: Sequence[SecretPattern] = DEFAULT_PATTERNS
) -> Any:
    """A copy of JSON-like `value` in which every secret is `[redacted]`.

    Dicts, lists and tuples keep their type and length, text stays text, numbers, booleans and None stay. All that
    stands under a name of `keys` is hidden, booleans and None excepted; other text is searched for names and patterns.
    Bytes become their length, any other object its redacted `repr`. A container within itself becomes `[cycle]`, one
    deeper than 32 `[too deep]`. Never raises: what cannot be read is hidden.
    """
    return _Walk(_rules(keys, patterns)).value(value, hidden=False, depth=0)


def redact_text(
    text: str, *, keys: AbstractSet[str] = DEFAULT_KEYS, patterns: Sequence[SecretPattern] = DEFAULT_PATTERNS
) -> str:
    """`text` with every secret in it replaced by `[redacted]`; the same object when it holds none."""
    return _rules(keys, patterns).text(text)


def summarise(value: object, limit: int = 120) -> str:
    """What `value` is without showing any of it: types and sizes, and the names of a dict where they are plain names.

    `summarise({"city": "Oslo", "days": 3})` is `dict(2: city=str(4), days=int)`. At most `limit` characters.
    """
    kind = _kind(value)
    if isinstance(value, Mapping):
        try:
            parts = ", ".join(f"{_plain_name(name)}={_kind(item)}" for name, item in list(value.items())[:20])
            kind = f"{type(value).__name__}({len(value)}{': ' if parts else ''}{parts})"
        except Exception:  # noqa: BLE001 - a mapping that cannot be read is described by its type
            kind = type(value).__name__
    return kind if len(kind) <= limit else kind[: max(limit - 1, 0)] + "…"[: max(limit, 0)]


class _Rules:
    """Keys and patterns with what tells fast that a text needs neither."""

    def __init__(self, keys: frozenset[str], patterns: tuple[SecretPattern, ...]) -> None:
        self.keys = frozenset("".join(_WORDS.findall(key)).lower() for key in keys) - {""}
        self.glued = tuple(key for key in self.keys if key in GLUED or not key.isascii())
        # Four letters, so that a name matched in another spelling (`pass_code`) is hinted at too.
        self._named = _shortest({max(_WORDS.findall(key), key=len, default="").lower()[:4] for key in keys} - {""})
        self._patterns = patterns
        hints = {hint for pattern in patterns for hint in pattern.hints}
        self._hints = _shortest(hints) if all(pattern.hints for pattern in patterns) else ("",)
        self._secret_name = lru_cache(maxsize=2048)(self._find_secret_name)

    def text(self, text: str) -> str:
        lower = text.lower()
        for separator in SEPARATORS:
            if separator in text:
                for hint in self._named:
                    if hint in lower:
                        text = self._hide_named(text)
                        break
                break
        for hint in self._hints:
            if hint in lower:
                return self._hide_patterns(text, lower)
        return text

    def is_secret_name(self, name: str) -> bool:
        return self._secret_name(name[-MAX_NAME:])

    def _find_secret_name(self, name: str) -> bool:
        words = [word.lower().rstrip("是为") for word in _WORDS.findall(name)]
        while len(words) > 1 and (words[-1] in TRAILING or words[-1].isdigit()):
            words.pop()
        for size in range(1, min(len(words), MAX_WORDS) + 1):
            joined = "".join(words[-size:])
            if joined in self.keys or (joined != "tokens" and joined.removesuffix("s") in self.keys):
                return not (joined == "token" and len(words) > 1 and words[-2] in NO_TOKEN)
        return bool(words) and words[-1].endswith(self.glued)

    def _hide_patterns(self, text: str, lower: str) -> str:
        for pattern in self._patterns:
            if not pattern.hints or any(hint in lower for hint in pattern.hints):
                text = pattern.regex.sub(_hide, text)
        return text

    def _hide_named(self, text: str) -> str:
        """Hide each value that follows a secret name. What follows any other name is searched on its own."""
        parts: list[str] = []
        kept = position = 0
        while found := _NAMED.search(text, position):
            position = found.end()
            name = found["name"] or found["flag"] or found["tag"]
            # In escaped text `\nkey=` reads as `nkey=`.
            escaped = text.startswith("\\", found.start() - 1) if found.start() else False
            if not (self.is_secret_name(name) or (escaped and self.is_secret_name(name[1:]))):
                continue
            start, end = _value_span(text, position, name)
            if start < end:
                parts += text[kept:start], REDACTED
                kept = position = end
        return "".join((*parts, text[kept:])) if parts else text


def _shortest(words: set[str]) -> tuple[str, ...]:
    """The words that hold no other of them: a text that holds none of these holds none of `words`."""
    return tuple(sorted(word for word in words if not any(other in word for other in words - {word})))


class _Walk:
    """One pass over one value. `_seen` keeps containers alive, so that an id means one object for the whole pass."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        self._seen: dict[tuple[int, bool], tuple[object, Any]] = {}

    def value(self, item: object, *, hidden: bool, depth: int) -> Any:
        try:
            if item is None or isinstance(item, bool):
                return item
            if isinstance(item, str):
                return (REDACTED if item else item) if hidden else self._rules.text(item)
            if isinstance(item, int | float):
                return REDACTED if hidden else item
            if isinstance(item, Mapping | list | tuple | AbstractSet):
                return self._container(item, hidden, depth)
            if hidden:
                return REDACTED
            if isinstance(item, PLAIN):
                return item
            if isinstance(item, bytes | bytearray | memoryview):
                return f"<{len(item)} bytes>"
            return self._rules.text(repr(item))
        except Exception:  # noqa: BLE001 - logging must not end a run; what cannot be read is not shown
            return REDACTED if hidden else f"<{type(item).__name__}>"

    def _container(self, item: Any, hidden: bool, depth: int) -> Any:
        mark = (id(item), hidden)
        if mark in self._seen:
            return self._seen[mark][1]
        if depth >= MAX_DEPTH:
            return TOO_DEEP
        self._seen[mark] = (item, CYCLE)
        result: Any
        depth += 1
        match item:
            case Mapping():
                result = self._mapping(item, hidden, depth)
            case (str() as name, second) if isinstance(item, tuple):
                # A pair, as headers are kept: the first names the second.
                secret = hidden or self._rules.is_secret_name(name)
                first = self.value(name, hidden=hidden, depth=depth)
                result = (first, self.value(second, hidden=secret, depth=depth))
            case _:
                values = [self.value(each, hidden=hidden, depth=depth) for each in item]
                result = values if isinstance(item, list) else tuple(values) if isinstance(item, tuple) else set(values)
        self._seen[mark] = (item, result)
        return result

    def _mapping(self, item: Mapping[Any, Any], hidden: bool, depth: int) -> dict[Any, Any]:
        # {"name": "API_KEY", "value": "..."} is how environments, headers and forms are listed.
        named = item.get("name", item.get("key"))
        value_hidden = isinstance(named, str) and self._rules.is_secret_name(named)
        result: dict[Any, Any] = {}
        for key, each in item.items():
            name = self._rules.text(key) if isinstance(key, str) else self.value(key, hidden=False, depth=depth)
            while name in result:
                name = f"{name} {len(result)}"
            secret = hidden or (isinstance(key, str) and self._rules.is_secret_name(key))
            result[name] = self.value(each, hidden=secret or (value_hidden and key == "value"), depth=depth)
        return result


@lru_cache(maxsize=8)
def _built(keys: frozenset[str], patterns: tuple[SecretPattern, ...]) -> _Rules:
    return _Rules(keys, patterns)


_DEFAULT_RULES: Final = _Rules(DEFAULT_KEYS, DEFAULT_PATTERNS)


def _rules(keys: AbstractSet[str], patterns: Sequence[SecretPattern]) -> _Rules:
    if keys is DEFAULT_KEYS and patterns is DEFAULT_PATTERNS:
        return _DEFAULT_RULES
    return _built(frozenset(keys), tuple(patterns))


def _hide(match: re.Match[str]) -> str:
    if "secret" not in match.re.groupindex:
        return REDACTED
    start, end = (edge - match.start() for edge in match.span("secret"))
    whole = match.group()
    return whole[:start] + REDACTED + whole[end:]


def _value_span(text: str, position: int, name: str) -> tuple[int, int]:
    """Where the value that starts at `position` lies; empty when there is none to hide."""
    found = _VALUE.match(text, position)
    if found is None or found.lastgroup is None:
        return position, position
    if found.lastgroup == "bare":
        if found["bare"].lower() in NO_VALUE:
            return position, position
        # These headers hold more than one word, up to the end of the line.
        if name.lower().endswith(("authorization", "cookie")):
            found = _LINE.match(text, position) or found
    return found.span(found.lastgroup or 0)


def _kind(value: object) -> str:
    name = type(value).__name__
    if isinstance(value, str | bytes | bytearray | Mapping | list | tuple | AbstractSet):
        try:
            return f"{name}({len(value)})"
        except Exception:  # noqa: BLE001 - a size that cannot be told is left out
            return name
    return name


def _plain_name(name: object) -> str:
    """The name when it is a short identifier and no secret, else "?": a model may put anything in a name."""
    plain = isinstance(name, str) and len(name) <= MAX_PLAIN_NAME and name.isidentifier() and redact_text(name) == name
    return str(name) if plain else "?"
