"""Exact arithmetic on a text, without `eval`: a small grammar over rational numbers, with every size bounded.

```
sum     = product { ("+" | "-") product }
product = unary { ("*" | "/" | "//" | "%") unary }
unary   = { "+" | "-" } power
power   = atom [ ("**" | "^") unary ]
atom    = number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
```
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from fsm_agent.tools.call import ToolRefusal

__all__ = ["MAX_CHARS", "evaluate"]

MAX_CHARS: Final = 500
_MAX_DEPTH: Final = 50
_MAX_BITS: Final = 4_000
"""Of the numerator and of the denominator of every intermediate result: about 1,200 digits."""
_TOO_LARGE: Final = "a result gets too large (more than about 1,200 digits)"
_MAX_EXPONENT: Final = 300
_DIGITS: Final = 15
"""Shown of a number that no short decimal writes exactly, and of every one that went through a root or the like."""
_MAX_DECIMALS: Final = 30
_CONTEXT: Final = Context(prec=50, Emax=100_000, Emin=-100_000)

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|//|[-+*/%^(),])"
)
_WIDE: Final[dict[int, int | str]] = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},  # full-width forms, as Chinese input methods write them
    **{ord(sign): "*" for sign in "×∗✕"},
    **{ord(sign): "/" for sign in "÷∕"},
    **{ord(sign): "-" for sign in "−–—"},
    0x3000: " ",
    0x00A0: " ",
}
_CONSTANTS: Final = {
    "pi": Fraction("3.14159265358979323846264338327950288419716939937511"),
    "e": Fraction("2.71828182845904523536028747135266249775724709369996"),
}


def evaluate(expression: str, precision: int | None = None) -> str:
    """The value of `expression` as text: exact where a decimal can be (`0.1+0.2` is `0.3`), else 15 digits.

    `precision` rounds to that many decimal places, halves away from zero. Full-width signs are read like ASCII ones.

    Raises:
        ToolRefusal: It cannot be read, divides by zero, is undefined, or gets too large; the message says which.
    """
    if len(expression) > MAX_CHARS:
        raise ToolRefusal(f"the expression has {len(expression)} characters, at most {MAX_CHARS} are read")
    reader = _Reader(expression.translate(_WIDE))
    value = reader.result()
    if precision is not None:
        return _decimal_text(_rounded(value, precision), precision)
    return _text(value, exact=reader.exact)


class _Reader:
    """One pass over the tokens, computing as it reads; `exact` turns False at the first root or the like."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0
        self.exact = True

    def result(self) -> Fraction:
        """The value of the whole text."""
        value = self._sum()
        if (token := self._peek()) is not None:
            hint = " (write numbers without thousands separators)" if token[1] == "," else ""
            raise ToolRefusal(f'an operator is missing before "{token[1]}" at position {token[2]}{hint}')
        return value

    def _peek(self) -> tuple[str, str, int] | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, *signs: str) -> str:
        """The next token if it is one of these signs, else ""."""
        token = self._peek()
        if token is None or token[0] != "sign" or token[1] not in signs:
            return ""
        self._next += 1
        return token[1]

    def _sum(self) -> Fraction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ToolRefusal(f"parentheses are nested more than {_MAX_DEPTH} deep")
        value = self._product()
        while sign := self._take("+", "-"):
            term = self._product()
            value = _sized(value + term if sign == "+" else value - term)
        self._depth -= 1
        return value

    def _product(self) -> Fraction:
        value = self._unary()
        while sign := self._take("*", "/", "//", "%"):
            if sign == "%" and ((token := self._peek()) is None or token[1] in ("+", "-", "*", "/", ")", ",", "%")):
                raise ToolRefusal('"%" is the remainder of a division; write a percentage as /100')
            factor = self._unary()
            if sign != "*" and factor == 0:
                raise ToolRefusal("division by zero")
            value = _sized(_OPERATIONS[sign](value, factor))
        return value

    def _unary(self) -> Fraction:
        negative = False
        while sign := self._take("+", "-"):
            negative ^= sign == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Fraction:
        base = self._atom()
        if not self._take("**", "^"):
            return base
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ToolRefusal(f"powers are nested more than {_MAX_DEPTH} deep")
        exponent = self._unary()
        self._depth -= 1
        if exponent.denominator == 1:
            return _integer_power(base, exponent.numerator)
        if base < 0:
            raise ToolRefusal("a negative number has no real power with a fractional exponent")
        self.exact = False
        return _sized(_inexact(lambda: _CONTEXT.power(_decimal(base), _decimal(exponent))))

    def _atom(self) -> Fraction:
        token = self._peek()
        if token is None:
            raise ToolRefusal("the expression ends where a number was expected")
        self._next += 1
        kind, text, position = token
        if kind == "number":
            return _number(text)
        if kind == "name":
            return self._named(text)
        if text != "(":
            raise ToolRefusal(f'a number was expected at position {position}, not "{text}"')
        value = self._sum()
        self._close()
        return value

    def _close(self) -> None:
        if not self._take(")"):
            token = self._peek()
            where = f'before "{token[1]}" at position {token[2]}' if token else "at the end"
            raise ToolRefusal(f'")" is missing {where} (write numbers without thousands separators)')

    def _named(self, name: str) -> Fraction:
        if name in _CONSTANTS:
            self.exact = False
            return _CONSTANTS[name]
        if name not in _FUNCTIONS or not self._take("("):
            raise ToolRefusal(f'"{name}" is unknown; there are {", ".join((*_CONSTANTS, *_FUNCTIONS))}')
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._close()
        function, fewest, most, exact = _FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise ToolRefusal(
                f"{name} takes {fewest}{f' to {most}' if most > fewest else ''} numbers, not {len(arguments)}"
            )
        value = _sized(function(arguments))
        self.exact = self.exact and (exact or (name == "sqrt" and value * value == arguments[0]))
        return value


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, position from 1) of every token."""
    found: list[tuple[str, str, int]] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise ToolRefusal(f'"{text[position]}" at position {position + 1} is not part of arithmetic')
        found.append((str(match.lastgroup), match[0], position + 1))
        position = match.end()
    if not found:
        raise ToolRefusal("the expression is empty")
    return found


def _number(text: str) -> Fraction:
    exponent = text.lower().partition("e")[2]
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > _MAX_EXPONENT):  # noqa: PLR2004 - longer than the limit
        raise ToolRefusal(f"the exponent of {text[:20]} is beyond {_MAX_EXPONENT}")
    return _sized(Fraction(text))


def _sized(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > _MAX_BITS or value.denominator.bit_length() > _MAX_BITS:
        raise ToolRefusal(_TOO_LARGE)
    return value


def _integer_power(base: Fraction, exponent: int) -> Fraction:
    if base == 0 and exponent < 0:
        raise ToolRefusal("division by zero")
    if base in (0, 1, -1):
        return base if exponent % 2 else (base * base if exponent else Fraction(1))
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 2 * _MAX_BITS:
        raise ToolRefusal(_TOO_LARGE)
    return _sized(base**exponent)


def _decimal(value: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _inexact(compute: Callable[[], Decimal]) -> Fraction:
    """A rational for what `compute` gives with 50 digits."""
    try:
        value = compute()
    except ArithmeticError as error:
        raise ToolRefusal("the result is undefined or too large") from error
    if not value.is_finite() or abs(value.adjusted()) > 4 * _MAX_EXPONENT:
        raise ToolRefusal(_TOO_LARGE)
    return Fraction(value)


def _sqrt(value: Fraction) -> Fraction:
    if value < 0:
        raise ToolRefusal("a negative number has no real square root")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return _inexact(lambda: _CONTEXT.sqrt(_decimal(value)))


def _logarithm(value: Fraction, compute: Callable[[Decimal], Decimal]) -> Fraction:
    if value <= 0:
        raise ToolRefusal("only positive numbers have a logarithm")
    return _inexact(lambda: compute(_decimal(value)))


def _exp(value: Fraction) -> Fraction:
    if abs(value) > 2 * _MAX_EXPONENT:
        raise ToolRefusal(f"exp is computed up to {2 * _MAX_EXPONENT}")
    return _inexact(lambda: _CONTEXT.exp(_decimal(value)))


def _angle(value: Fraction, compute: Callable[[float], float]) -> Fraction:
    """A function of an angle in radians, to 15 decimal places (so that `sin(pi)` is 0)."""
    if abs(value) > 1_000_000:  # noqa: PLR2004 - beyond it a float has lost the decimals of the angle
        raise ToolRefusal("angles are computed up to 1,000,000 radians")
    return _rounded(Fraction(compute(float(value))), _DIGITS)


def _round(arguments: Sequence[Fraction]) -> Fraction:
    places = arguments[1] if len(arguments) > 1 else Fraction(0)
    if places.denominator != 1 or abs(places) > _MAX_DECIMALS:
        raise ToolRefusal(f"round takes a whole number of decimal places up to {_MAX_DECIMALS}")
    return _rounded(arguments[0], int(places))


def _rounded(value: Fraction, places: int) -> Fraction:
    """Rounded to decimal places, halves away from zero."""
    scale = Fraction(10) ** places
    whole = math.floor(abs(value) * scale + Fraction(1, 2))
    return Fraction(whole if value >= 0 else -whole) / scale


_OPERATIONS: Final[dict[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: Fraction(a // b),
    "%": lambda a, b: a % b,
}
_Function = Callable[[Sequence[Fraction]], Fraction]
_FUNCTIONS: Final[dict[str, tuple[_Function, int, int, bool]]] = {
    # name: (function, fewest arguments, most arguments, exact)
    "abs": (lambda x: abs(x[0]), 1, 1, True),
    "round": (_round, 1, 2, True),
    "floor": (lambda x: Fraction(math.floor(x[0])), 1, 1, True),
    "ceil": (lambda x: Fraction(math.ceil(x[0])), 1, 1, True),
    "min": (min, 1, 100, True),
    "max": (max, 1, 100, True),
    "sqrt": (lambda x: _sqrt(x[0]), 1, 1, False),
    "ln": (lambda x: _logarithm(x[0], _CONTEXT.ln), 1, 1, False),
    "log10": (lambda x: _logarithm(x[0], _CONTEXT.log10), 1, 1, False),
    "exp": (lambda x: _exp(x[0]), 1, 1, False),
    "sin": (lambda x: _angle(x[0], math.sin), 1, 1, False),
    "cos": (lambda x: _angle(x[0], math.cos), 1, 1, False),
    "tan": (lambda x: _angle(x[0], math.tan), 1, 1, False),
}


def _text(value: Fraction, *, exact: bool) -> str:
    if value.denominator == 1 and (exact or abs(value) < 10**_DIGITS):
        return str(value.numerator)
    if exact and (places := _decimal_places(value.denominator)) is not None:
        return _decimal_text(value, places)
    shown = Context(prec=_DIGITS).plus(_decimal(value)).normalize()
    if -6 <= shown.adjusted() <= 20:  # noqa: PLR2004 - in this range nobody wants an exponent
        return f"{shown:f}"
    return f"{shown:e}"


def _decimal_places(denominator: int) -> int | None:
    """How many decimals write a fraction with this denominator exactly; None when none or too many do."""
    for places in range(_MAX_DECIMALS + 1):
        if 10**places % denominator == 0:
            return places
    return None


def _decimal_text(value: Fraction, places: int) -> str:
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    whole, decimals = digits[: len(digits) - places], digits[len(digits) - places :].rstrip("0")
    text = f"{whole}.{decimals}" if decimals else whole
    return f"-{text}" if value < 0 else text
