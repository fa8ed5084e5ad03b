"""The tools that come with the package: exact, bounded, and described so that the right one is chosen."""

from __future__ import annotations

import ast
import inspect
import operator
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.tools import (
    Invalid,
    Tool,
    ToolRefusal,
    Valid,
    arithmetic,
    calculator,
    files,
    query_order,
    render,
    web_search,
)
from fsm_agent.tools.arithmetic import MAX_CHARS, evaluate


def call(one: Tool, **arguments: Any) -> Any:
    """Validate and execute, as the engine does."""
    checked = one.validate(arguments)
    assert isinstance(checked, Valid), checked
    assert one.func is not None
    return one.func(**checked.call_with)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1+0.2", "0.3"),
        ("1-0.9", "0.1"),
        ("1/3", "0.333333333333333"),
        ("1/3*3", "1"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("2**200", str(2**200)),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2**3**2", "512"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("-7%3", "2"),
        ("10 % 4", "2"),
        ("0**0", "1"),
        ("(1+2)*(3-4)", "-3"),
        ("--1", "1"),
        ("+-+1", "-1"),
        ("3.0", "3"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1.5e-7", "0.00000015"),
        ("1000000*1.0", "1000000"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.4142135623731"),
        ("sqrt(2)**2", "2"),
        ("sqrt(1/4)", "0.5"),
        ("8**(1/3)", "2"),
        ("4**0.5", "2"),
        ("round(2.5)", "3"),
        ("round(-2.345, 2)", "-2.35"),
        ("floor(-1.5)", "-2"),
        ("ceil(1.2)", "2"),
        ("abs(-3)", "3"),
        ("min(3, 1, 2)", "1"),
        ("max(1, 2/3)", "1"),
        ("ln(e)", "1"),
        ("log10(1000)", "3"),
        ("exp(0)", "1"),
        ("sin(pi)", "0"),
        ("cos(0)", "1"),
        ("pi", "3.14159265358979"),
        ("1/7e20", "1.42857142857143e-21"),
        ("100*15/100", "15"),
        ("12345678901234567890", "12345678901234567890"),
        ("１＋２×（３－４）÷２", "0"),
        ("２．５ × ４", "10"),
        ("8 ÷ 2 − 1", "3"),
        ("（1＋2）＊3", "9"),
    ],
)
def test_calculator_values(expression: str, value: str) -> None:
    """Decimals come out as written on paper, integers with every digit, full-width operators like ASCII ones."""
    assert call(calculator, expression=expression) == value


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1/0", "division by zero"),
        ("1//0", "division by zero"),
        ("1%0", "division by zero"),
        ("0**-1", "division by zero"),
        ("10%", "write a percentage as /100"),
        ("100-20%+5", "write a percentage as /100"),
        ("5 % -3", "percentage"),
        ("1,234+5", "thousands separators"),
        ("(1,234)", "thousands separators"),
        ("__import__('os')", "position 12"),
        ("x+1", '"x" is unknown; there are pi'),
        ("a.b", "position 2"),
        ("open(1)", '"open" is unknown'),
        ("sqrt", '"sqrt" is unknown'),
        ("1 2", 'before "2" at position 3'),
        ("2(3)", 'before "("'),
        ("(1", '")" is missing at the end'),
        (")", "at position 1"),
        ("1+", "ends where a number"),
        ("   ", "empty"),
        ("1..2", "operator is missing"),
        ("0x10", "operator is missing"),
        ("٣+1", "position 1"),
        ("1;2", "position 2"),
        ("[1]", "position 1"),
        ("min()", "a number was expected"),
        ("sqrt(1, 2)", "sqrt takes 1"),
        ("sqrt(-1)", "no real square root"),
        ("(-8)**(1/3)", "no real power"),
        ("ln(0)", "only positive"),
        ("9**9**9", "too large"),
        ("9**99999999", "too large"),
        ("1e400", "beyond 300"),
        ("1e99999999999", "beyond 300"),
        ("1e300*1e300*1e300*1e300*1e300", "too large"),
        ("exp(10000)", "up to 600"),
        ("10**1500.5", "too large"),
        ("10**(10**9+0.5)", "undefined or too large"),
        ("sin(1e9)", "radians"),
        ("round(1, 0.5)", "whole number"),
        ("round(1, 99)", "whole number"),
        ("0.5**(0.5-9**3000)", "too large"),
        ("2**0.5**-9999", "too large"),
        ("(" * 60 + "1" + ")" * 60, "nested more than 50"),
        ("2**" * 90 + "2", "nested more than 50"),
        ("2**-" * 90 + "2", "nested more than 50"),
    ],
)
def test_calculator_refusals(expression: str, said: str) -> None:
    """What cannot be computed is refused with the reason; nothing is evaluated, guessed or computed without a bound."""
    with pytest.raises(ToolRefusal) as raised:
        call(calculator, expression=expression)
    assert said in str(raised.value)


def test_calculator_is_bounded_before_it_reads() -> None:
    """Too long an expression is refused by the schema, and by the function itself."""
    assert isinstance(calculator.validate({"expression": "1" * (MAX_CHARS + 1)}), Invalid)
    assert isinstance(calculator.validate({"expression": ""}), Invalid)
    with pytest.raises(ToolRefusal, match="at most 500"):
        evaluate("1" * (MAX_CHARS + 1))


def test_calculator_precision() -> None:
    """Rounding to 0 to 10 places, halves away from zero; more is refused."""
    assert call(calculator, expression="2/3", precision=2) == "0.67"
    assert call(calculator, expression="-0.005", precision=2) == "-0.01"
    assert call(calculator, expression="-0.004", precision=2) == "0"
    assert call(calculator, expression="10", precision=3) == "10"
    assert call(calculator, expression="0.5", precision=0) == "1"
    assert isinstance(calculator.validate({"expression": "1", "precision": 11}), Invalid)
    assert isinstance(calculator.validate({"expression": "1", "precision": True}), Invalid)


def test_no_evaluation_of_code() -> None:
    """The calculator's module names neither eval nor exec nor compile."""
    names = {one.id for one in ast.walk(ast.parse(inspect.getsource(arithmetic))) if isinstance(one, ast.Name)}
    assert not names & {"eval", "exec", "compile", "__import__", "getattr"}


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
NUMBERS = st.integers(0, 999).map(lambda n: (str(n), Fraction(n))) | st.integers(0, 9999).map(
    lambda n: (f"{n / 100:.2f}", Fraction(n, 100))
)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from(sorted(OPERATIONS)), inner).map(
        lambda parts: (
            f"({parts[0][0]} {parts[1]} {parts[2][0]})",
            _applied(parts[1], parts[0][1], parts[2][1]),
        )
    ),
    max_leaves=8,
)


def _applied(sign: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None or (right == 0 and sign in ("/", "//", "%")):
        return None
    return Fraction(OPERATIONS[sign](left, right))


@given(EXPRESSIONS)
def test_calculator_agrees_with_python_fractions(pair: tuple[str, Fraction | None]) -> None:
    """Any nesting of the four operations, floor division and remainder has Python's exact value, or divides by zero."""
    expression, value = pair
    if len(expression) > MAX_CHARS:
        return
    if value is None:
        with pytest.raises(ToolRefusal, match="division by zero"):
            evaluate(expression)
        return
    shown = Fraction(evaluate(expression))
    assert abs(shown - value) <= abs(value) * Fraction(1, 10**14)
    if value.denominator == 1:
        assert shown == value


@given(st.text(alphabet="0123456789+-*/%^(),.eE sqrtminpl×÷（）％", max_size=60) | st.text(max_size=30))
def test_calculator_never_hangs_or_crashes(expression: str) -> None:
    """Any text gives a number or a refusal, at once and of bounded length."""
    began = time.monotonic()
    try:
        outcome = evaluate(expression)
    except ToolRefusal as refusal:
        outcome = str(refusal)
    assert 0 < len(outcome) < 1400
    assert time.monotonic() - began < 2


def test_orders() -> None:
    """The demo order is found with and without its items; an unknown one says so."""
    assert "items" not in call(query_order, order_id="SO-2024-001")
    assert call(query_order, order_id="SO-2024-001", include_items=True)["items"][0]["sku"] == "KB-87"
    assert call(query_order, order_id="SO-2024-999") == {"order_id": "SO-2024-999", "found": False}


@pytest.mark.parametrize(
    "order_id", ["2024-001", "SO-24-001", "so-2024-001", "SO-2024-001 ", "SO-2024-001\n", "SO-２０２４-001", "", 1]
)
def test_order_ids_of_another_form_are_refused(order_id: object) -> None:
    """Ids look like SO-2024-001, in ASCII, with nothing before or after; the message shows one."""
    checked = query_order.validate({"order_id": order_id})
    assert isinstance(checked, Invalid)
    if isinstance(order_id, str):
        assert "e.g. SO-2024-001" in render(checked.problems, query_order)


def test_missing_order_id_is_asked_for() -> None:
    """The message names the field, its type and the fields there are."""
    checked = query_order.validate({})
    assert isinstance(checked, Invalid)
    assert render(checked.problems, query_order) == (
        'query_order: field "order_id" is missing (string, required). Fields: order_id, include_items.'
    )


def test_search() -> None:
    """The demo search finds by word, respects its limit, and takes one of two engines."""
    assert call(web_search, query="mount everest height")[0]["text"].startswith("Mount Everest is 8,849 m")
    assert len(call(web_search, query="of paris mount speed", limit=1)) == 1
    assert call(web_search, query="nothing known") == []
    checked = web_search.validate({"query": "x", "engine": "yahoo"})
    assert isinstance(checked, Invalid)
    assert 'must be one of "google", "bing"' in checked.problems[0].message


def test_every_builtin_says_when_not_to_use_it(tmp_path: Any) -> None:
    """Each built-in has a description, says what it is not for, and describes itself in few characters."""
    for one in [calculator, query_order, web_search, *files(tmp_path)]:
        assert "Do not use it for" in one.full_description
        assert len(one.full_description) + len(str(one.parameters())) < 1200
