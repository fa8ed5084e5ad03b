"""Fingerprints of calls and results: equal for the same request, different for different ones."""

from __future__ import annotations

import json
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.tools.signature import VOLATILE_NAMES, canonical, digest, signature

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ORDINARY = st.sampled_from(["a", "amount", "city", "n", "order_id", "query", "x"])


def shuffled(value: Any) -> Any:
    """The same data with the keys of every object in reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_key_order_never_matters(args: dict[str, Any]) -> None:
    """L04: reordering keys at any depth changes neither the canonical text nor the signature."""
    assert canonical(args) == canonical(shuffled(args))
    assert signature("t", args) == signature("t", shuffled(args))


@given(JSON)
def test_canonical_is_ascii_json_for_any_data(value: Any) -> None:
    """Whatever the data (NaN, lone surrogates, huge numbers), the canonical text is ASCII and valid JSON."""
    text = canonical(value)
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)


@given(st.floats(allow_nan=False, allow_infinity=False).map(lambda x: float(round(x))) | st.just(-0.0))
def test_integral_float_equals_integer(value: float) -> None:
    """L04: 1.0 is 1 and -0.0 is 0, however large."""
    assert canonical({"n": value}) == canonical({"n": int(value)})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"items": [1, 2]}, {"items": [2, 1]}),
        ({"flag": True}, {"flag": 1}),
        ({"text": "1"}, {"text": 1}),
        ({"a": None}, {}),
        ({"a": 1.5}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"day": "2024-05-01"}, {"day": "2024-05-02"}),
        ({"expression": "1+2"}, {"expression": "3+4"}),
        ({"seed_url": "https://a.example"}, {"seed_url": "https://b.example"}),
        ({"start_timestamp": 1000}, {"start_timestamp": 2000}),
        ({"id": "550e8400e29b41d4"}, {"id": "550e8400e29b41d5"}),
    ],
)
def test_different_requests_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    """List order, types, plain numbers, dates and fields that merely sound volatile make a different call."""
    assert signature("t", one) != signature("t", other)


@given(ORDINARY, st.integers(), st.integers(), st.integers(), st.integers())
def test_two_sums_are_never_one(name: str, a: int, b: int, c: int, d: int) -> None:
    """1+2 and 3+4 are two calls: plain numbers are never normalised, as text or as numbers."""
    same = (a, b) == (c, d)
    assert (signature("calc", {name: f"{a}+{b}"}) == signature("calc", {name: f"{c}+{d}"})) is same
    assert (signature("calc", {name: [a, b]}) == signature("calc", {name: [c, d]})) is same


@given(ORDINARY, st.dates(), st.dates())
def test_dates_are_never_normalised(name: str, one: date, other: date) -> None:
    """A date without a time is a value like any other, alone or in a sentence."""
    same = one == other
    assert (signature("t", {name: one.isoformat()}) == signature("t", {name: other.isoformat()})) is same
    assert (signature("t", {name: f"from {one} on"}) == signature("t", {name: f"from {other} on"})) is same


@given(st.uuids(), st.uuids(), st.sampled_from(["{}", "order {} please", "{}.json", "a/{}/b"]))
def test_uuids_are_noise(one: uuid.UUID, other: uuid.UUID, around: str) -> None:
    """The same call with another UUID, in upper case or inside a text, is the same call."""
    first, second = around.format(one), around.format(str(other).upper())
    assert signature("t", {"a": first}) == signature("t", {"a": second})
    assert signature("t", {"a": [{"b": first}]}) == signature("t", {"a": [{"b": second}]})


@given(
    st.datetimes(min_value=datetime(1000, 1, 1)),  # noqa: DTZ001 - any time of day will do
    st.datetimes(min_value=datetime(1000, 1, 1)),  # noqa: DTZ001 - any time of day will do
    st.sampled_from(["", "Z", "+02:00", "-0530"]),
    st.sampled_from(["T", " "]),
)
def test_times_are_noise(one: datetime, other: datetime, zone: str, separator: str) -> None:
    """The same call with another ISO 8601 date-time is the same call."""
    first, second = (moment.isoformat(separator) + zone for moment in (one, other))
    assert signature("t", {"at": first}) == signature("t", {"at": second})
    assert signature("t", {"log": f"at {first}: ok"}) == signature("t", {"log": f"at {second}: ok"})


@pytest.mark.parametrize("name", sorted(VOLATILE_NAMES))
@pytest.mark.parametrize("spelling", ["snake", "camel", "kebab"])
def test_names_that_say_noise(name: str, spelling: str) -> None:
    """A field whose name says that it is noise does not count, in any spelling and at any depth."""
    words = name.split("_")
    spelled = {"snake": name, "kebab": "-".join(words), "camel": words[0] + "".join(w.title() for w in words[1:])}[
        spelling
    ]
    assert signature("t", {"q": "a", spelled: 1}) == signature("t", {"q": "a", spelled: "b"})
    assert signature("t", {"o": [{spelled: 1}]}) == signature("t", {"o": [{spelled: 2}]})


def test_prefixed_ids_are_noise() -> None:
    """`X-Request-Id` and `client_trace_id` are request and trace ids."""
    assert signature("t", {"X-Request-Id": 1}) == signature("t", {"X-Request-Id": 2})
    assert signature("t", {"client_trace_id": 1}) == signature("t", {"client_trace_id": 2})


def test_declared_volatile_paths() -> None:
    """A declared name counts at the top only; a dotted path goes through objects and lists."""
    volatile = frozenset({"cursor", "page.token", "rows.mark"})
    base = {"cursor": 1, "page": {"token": "a", "size": 5}, "rows": [{"mark": 1, "v": 1}]}
    noise = {"cursor": 2, "page": {"token": "b", "size": 5}, "rows": [{"mark": 9, "v": 1}]}
    assert signature("t", base, volatile) == signature("t", noise, volatile)
    assert signature("t", base) != signature("t", noise)
    assert signature("t", {"o": {"cursor": 1}}, volatile) != signature("t", {"o": {"cursor": 2}}, volatile)
    assert signature("t", {"page": {"size": 5}}, volatile) != signature("t", {"page": {"size": 6}}, volatile)


def test_tool_name_counts_and_cannot_be_forged() -> None:
    """The tool is part of the signature, and no name can imitate the arguments of another."""
    assert signature("a", {"x": 1}) != signature("b", {"x": 1})
    assert signature('a"{', {}) != signature("a", {})
    assert len(signature("a", {})) == 16
    assert int(signature("a", {}), 16) >= 0


@given(JSON, JSON)
def test_digest_separates_results(one: Any, other: Any) -> None:
    """Two results have one digest only if they are the same data."""
    assert (digest({"r": one}) == digest({"r": other})) is (canonical(one) == canonical(other))


def test_digest_keeps_volatile_parts() -> None:
    """L03: a poll whose timestamp or progress moved returned something new."""
    assert digest("done at 2024-01-01T00:00:00Z") != digest("done at 2024-01-01T00:00:01Z")
    assert digest({"request_id": "a"}) != digest({"request_id": "b"})
    assert digest("10%") != digest("20%")
    assert digest("\ud800") != digest("x")


def test_other_python_values_have_a_canonical_text() -> None:
    """Values that JSON does not know, circular and very deep ones too, are written and do not raise."""
    loop: dict[str, Any] = {}
    loop["self"] = loop
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (loop, deep, {1: "a", None: "b", (1, 2): "c"}, {Decimal("1.0"), timedelta(1)}, object(), 10**6000):
        assert json.loads(canonical(value)) is not None
    assert canonical(object()) == canonical(object())
