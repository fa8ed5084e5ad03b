"""Reads one JSON value out of a text: strict about structure, forgiving about spelling where one reading exists.

The value is walked token by token and the same tokens are written down again in strict spelling, so the one judge of
values stays `json`. Nothing is added that closes a string, an object or a list: a text that ends early is a `Break`.
One pass, linear in the text; nothing recurses, and nothing raises.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from fsm_agent.dialects.repair.vocabulary import MAX_DEPTH, Fault, Repair

__all__ = ["Break", "Span", "read_value"]


@dataclass(frozen=True, slots=True)
class Span:
    """A complete value at `text[start:end]`; `json` is the same value in strict spelling."""

    start: int
    end: int
    json: str
    repairs: tuple[Repair, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """Reading from `start` stopped at `at`. `began`: it looked like an object, not like a brace of prose."""

    start: int
    kind: Fault
    at: int
    detail: str
    began: bool


_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_ODD_GAP: Final = re.compile(r"(?:[\s\ufeff\u200b\u2060]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))*+")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_TOKEN_REST: Final = re.compile(r"[^\s,:{}\[\]\"]*+")
_STRICT_BODY: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_TO_REWRITE: Final = re.compile(
    r"(?P<valid>\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt])|(?P<apostrophe>\\')|(?P<hex>\\x[0-9a-fA-F]{2})|(?P<unknown>\\.)"
    r"|(?P<quote>\")|(?P<line>[\n\r\t])|(?P<control>[\x00-\x1f])",
    re.DOTALL,
)

_LITERALS: Final = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CLOSERS: Final = {
    '"': '"', "'": "'", "“": "”", "”": "”", "„": "“”", "«": "»", "＂": "＂", "‘": "’", "‚": "‘’",
}  # fmt: skip
_DOUBLE_QUOTES: Final = '"“”„‟«»＂'
_QUOTES: Final = frozenset(_DOUBLE_QUOTES + "'‘’‚‛")


def _body(opener: str) -> re.Pattern[str]:
    # A typographic string may hold no other double quote: with one inside, two readings of its end exist.
    stops = _CLOSERS[opener] + ("" if opener in "\"'" else _DOUBLE_QUOTES + opener)
    return re.compile(rf"(?:[^\\{re.escape(stops)}]++|\\.)*+", re.DOTALL)


_BODIES: Final = {opener: _body(opener) for opener in _CLOSERS}


def _named(character: str) -> str:
    """A character as a model or a log can be shown it: itself when printable, and its code when not plain ASCII."""
    shown = f"'{character}' " if character.isprintable() else ""
    return shown.strip() if shown and character.isascii() else f"{shown}(U+{ord(character):04X})"


def read_value(text: str, start: int = 0) -> Span | Break:
    """Read the one value that starts at `text[start]` (space before it is allowed)."""
    reader = _Reader(text, start)
    try:
        reader.read()
    except _Stopped as stopped:
        return stopped.found
    return Span(start, reader.at, "".join(reader.pieces), tuple(reader.repairs))


class _Stopped(Exception):
    def __init__(self, found: Break) -> None:
        self.found = found


class _Reader:
    """One pass over one value. `open` holds the closing brackets owed; `fresh`: the innermost has no member yet."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start
        self.at = start
        self.pieces: list[str] = []
        self.open: list[str] = []
        self.fresh = True
        self.began = False
        self.repairs: dict[Repair, None] = {}

    def read(self) -> None:
        self.skip()
        self.value()
        while self.open:
            self.item()

    def item(self) -> None:
        """The next member of the innermost bracket, or its end."""
        closer = self.open[-1]
        gap = self.skip()
        comma = False
        if not self.fresh and self.peek() in (",", "，"):
            comma = True
            self.punctuation()
            self.skip()
        if self.peek() == closer:
            if comma:
                self.note(Repair.TRAILING_COMMA)
            self.close()
            return
        if not self.fresh and not comma:
            # Only before a key: two strings in a row in a list have a second reading (one string, as in Python).
            if not (closer == "}" and gap and self.peek() in _CLOSERS):
                self.expected(f"',' or '{closer}'")
            self.note(Repair.MISSING_COMMA)
        if not self.fresh:
            self.pieces.append(",")
        if closer == "}":
            self.key()
        self.value()

    def key(self) -> None:
        quoted = self.peek() in _CLOSERS
        # What opens like `{{` or `{\\"` is a template or doubly escaped: what is inside is not offered on its own.
        self.began = self.began or quoted or self.peek() in ("", "{", "[", "\\")
        if quoted:
            self.string()
        else:
            word = _WORD.match(self.text, self.at)
            if word is None:
                self.expected("a key in double quotes")
            self.pieces.append(f'"{word.group()}"')
            self.at = word.end()
            self.note(Repair.BARE_KEY)
        self.skip()
        if self.peek() not in (":", "："):
            self.expected("':' after the key")
        self.began = True
        self.punctuation()
        self.pieces.append(":")
        self.skip()

    def value(self) -> None:
        first = self.peek()
        if first in ("{", "["):
            if len(self.open) >= MAX_DEPTH:
                self.stop(Fault.TOO_DEEP, f"objects and lists are nested more than {MAX_DEPTH} deep")
            self.open.append("}" if first == "{" else "]")
            self.pieces.append(first)
            self.fresh = True
            self.at += 1
            return
        if first in _CLOSERS:
            self.string()
        elif (number := _NUMBER.match(self.text, self.at)) is not None:
            self.token(number.group())
        elif (word := _WORD.match(self.text, self.at)) is not None and word.group() in _LITERALS:
            if word.group() not in _LITERALS.values():
                self.note(Repair.PYTHON_LITERAL)
            self.token(word.group())
        else:
            self.expected("a value (text needs double quotes)")
        self.fresh = False

    def token(self, written: str) -> None:
        """A number or a literal, which must end where its token ends."""
        end = self.at + len(written)
        rest = _TOKEN_REST.match(self.text, end)
        if rest is not None and rest.group() and not rest.group().startswith(("//", "/*", "，")):
            self.expected("a value (text needs double quotes)")
        if end == len(self.text) and self.open:
            self.cut()
        self.pieces.append(_LITERALS.get(written, written))
        self.at = end

    def string(self) -> None:
        opener = self.text[self.at]
        body = _BODIES[opener].match(self.text, self.at + 1)
        end = len(self.text) if body is None else body.end()
        if end >= len(self.text) or self.text[end] == "\\":
            self.unclosed(opener)
        if self.text[end] not in _CLOSERS[opener]:
            self.stop(
                Fault.AMBIGUOUS,
                f"a string opened with {_named(opener)} meets {_named(self.text[end])} before its own closing quote",
                at=end,
            )  # fmt: skip
        if opener == "'":
            self.note(Repair.SINGLE_QUOTES)
        elif opener != '"':
            self.note(Repair.TYPOGRAPHIC_QUOTES)
        self.pieces.append(f'"{self.rewritten(self.at + 1, end, opener)}"')
        self.at = end + 1

    def rewritten(self, start: int, end: int, opener: str) -> str:
        """The body of a string in strict spelling: same characters, other escapes."""
        strict = _STRICT_BODY.match(self.text, start, end)
        if strict is not None and strict.end() == end:
            return self.text[start:end]
        parts: list[str] = []
        done = start
        for found in _TO_REWRITE.finditer(self.text, start, end):
            parts += [self.text[done : found.start()], self.respelled(found, opener)]
            done = found.end()
        return "".join([*parts, self.text[done:end]])

    def respelled(self, found: re.Match[str], opener: str) -> str:
        """One escape, quote or control character of a string, as strict JSON spells it."""
        piece = found.group()
        kind = found.lastgroup
        if kind == "hex" and opener != "'":
            kind = "unknown"
        if kind == "line":
            self.note(Repair.RAW_LINE_BREAK)
        elif kind == "apostrophe" and opener != "'":
            self.note(Repair.ESCAPED_APOSTROPHE)
        elif kind == "unknown":
            why = f"the escape \\{_named(piece[1])} does not exist (write \\\\ for a backslash)"
            self.stop(Fault.NOT_JSON, why, at=found.start())
        elif kind == "control":
            why = f"a string holds the control character {_named(piece)}"
            self.stop(Fault.BAD_CHARACTER, why, at=found.start())
        return {"line": json.dumps(piece)[1:-1], "apostrophe": "'", "quote": '\\"', "hex": f"\\u00{piece[2:]}"}.get(
            str(kind), piece
        )

    def skip(self) -> bool:
        """Pass over space and comments; whether there was any."""
        begin = self.at
        plain = _SPACE.match(self.text, self.at)
        self.at = self.at if plain is None else plain.end()
        odd = _ODD_GAP.match(self.text, self.at)
        if odd is not None and odd.end() > self.at:
            self.note(Repair.COMMENT if "/" in odd.group() else Repair.ODD_SPACE)
            self.at = odd.end()
        return self.at > begin

    def punctuation(self) -> None:
        if not self.text[self.at].isascii():
            self.note(Repair.FULLWIDTH_PUNCTUATION)
        self.at += 1

    def close(self) -> None:
        self.pieces.append(self.open.pop())
        self.at += 1
        self.fresh = False

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def note(self, repair: Repair) -> None:
        self.repairs[repair] = None

    def unclosed(self, opener: str) -> NoReturn:
        """The text ends inside a string: cut, or closed with another quote than it was opened with."""
        tail = self.text[-64:].rstrip()
        last = tail.rstrip("}] \t\r\n")
        self.at, begin = len(self.text), self.at
        if last != tail and last[-1:] in _QUOTES and last[-1] != opener:
            self.stop(
                Fault.AMBIGUOUS, f"a string opened with {_named(opener)} is closed with {_named(last[-1])}", at=begin
            )
        self.cut("inside a string")

    def expected(self, what: str) -> NoReturn:
        rest = _TOKEN_REST.match(self.text, self.at)
        if self.at >= len(self.text) or (self.open and rest is not None and rest.end() == len(self.text) > self.at):
            self.cut()
        self.stop(Fault.NOT_JSON, f"expected {what}, found {_named(self.text[self.at])}")

    def cut(self, where: str = "before its end") -> NoReturn:
        owed = f", {len(self.open)} bracket(s) still open" if self.open else ""
        self.stop(Fault.TRUNCATED, f"the text stops {where}{owed}", at=len(self.text))

    def stop(self, kind: Fault, why: str, *, at: int | None = None) -> NoReturn:
        where = self.at if at is None else at
        line = self.text.count("\n", self.start, where) + 1
        detail = f"{why}, at character {where - self.start + 1}" + (f" (line {line})" if line > 1 else "")
        raise _Stopped(Break(self.start, kind, where, detail, self.began))
