"""What tools return becomes text: complete, bounded, and never an exception."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections import OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from pydantic import BaseModel, SecretStr

from fsm_agent.tools.plain import MAX_DEPTH, MAX_ITEMS, plain, well_formed
from fsm_agent.tools.results import SHORT_MARKER, ToolResult, cut, render_result


class _Colour(Enum):
    RED = "red"


class _Level(IntEnum):
    LOW = 1


class _Shape(Enum):
    SQUARE = (1, 1)


@dataclasses.dataclass
class _Point:
    x: int
    when: date


class _Order(BaseModel):
    id: uuid.UUID
    secret: SecretStr


_Pair = namedtuple("_Pair", "left right")  # noqa: PYI024 - the untyped kind is what is tested


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class _HostileMapping(dict[str, int]):
    def items(self) -> Any:
        raise OSError("gone")


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "2024-01-02T03:04:00+00:00"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(hours=1), "1:00:00"),
        (Decimal("10.50"), "10.50"),
        (Fraction(1, 3), "1/3"),
        (ID, str(ID)),
        (_Colour.RED, "red"),
        (_Level.LOW, 1),
        (_Shape.SQUARE, [1, 1]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (memoryview(b"x"), "x"),
        (PurePosixPath("a/b"), "a/b"),
        (Path("a"), "a"),
        (_Point(1, date(2024, 1, 2)), {"x": 1, "when": "2024-01-02"}),
        (_Order(id=ID, secret=SecretStr("hush")), {"id": str(ID), "secret": "**********"}),
        (_Pair(1, "b"), {"left": 1, "right": "b"}),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (ValueError("bad"), "ValueError: bad"),
        (KeyError(), "KeyError"),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (
            {1: "a", None: "b", False: "c", (1, 2): "d", _Colour.RED: "e"},
            {"1": "a", "null": "b", "false": "c", "[1, 2]": "d", "red": "e"},
        ),
        (complex(1, 2), "(1+2j)"),
        pytest.param(10**5000, "<integer of 16610 bits>", id="huge"),
        (b"\xff\xfe", "<2 bytes, sha256 b3d510ef0427>"),
        ("a\ud83d\ude00\ud800b", "a😀\ufffdb"),
    ],
)
def test_ordinary_values_are_kept(value: object, expected: object) -> None:
    """C01: the values that tools return become JSON data that says what they are."""
    assert plain(value) == expected


def test_lazy_values_are_named_not_consumed() -> None:
    """C01: a generator, an iterator, a coroutine and an open file are named; nothing is taken from them."""

    async def work() -> None: ...

    generator = (n for n in range(3))
    coroutine = work()
    with Path(__file__).open() as handle:
        texts = [plain(value) for value in (generator, map(str, [1]), coroutine, handle)]
        assert handle.tell() == 0
    coroutine.close()
    assert next(generator) == 0
    assert all("not " in text for text in texts)
    assert "genexpr" in texts[0]
    assert "open file" in texts[3]


def test_circles_depth_and_size_are_bounded() -> None:
    """A circle, endless nesting and a million items end in placeholders that say so."""
    circle: list[Any] = [1]
    circle.append(circle)
    assert plain(circle) == [1, "<circular list>"]
    deep: list[Any] = []
    for _ in range(MAX_DEPTH * 2):
        deep = [deep]
    assert "nested too deeply" in json.dumps(plain(deep))
    many = plain(list(range(MAX_ITEMS + 10)))
    assert len(many) == MAX_ITEMS + 1
    assert many[-1] == "<10 more>"


def test_the_same_object_twice_is_no_circle() -> None:
    """Only a container inside itself is circular; two references to one list are two lists."""
    shared = [1]
    assert plain([shared, shared]) == [[1], [1]]


class _Text(str):
    __slots__ = ()


def test_subclasses_of_plain_types_become_plain() -> None:
    """A subclass of str, int or dict is taken for what it holds."""
    assert type(plain(_Text("a"))) is str
    assert type(plain(_Level.LOW)) is int
    assert plain({_Text("k"): _Text("v")}) == {"k": "v"}


def test_large_objects_end_in_a_count() -> None:
    """An object of more fields than are taken over says how many there were."""
    taken = plain({str(number): number for number in range(MAX_ITEMS + 5)})
    assert len(taken) == MAX_ITEMS + 1
    assert taken["<more>"] == 5


def test_metadata_that_is_no_object_is_kept_as_a_value() -> None:
    """Metadata is always an object in the end."""
    odd: Any = ["a"]
    assert render_result(ToolResult(content="", metadata=odd)).metadata == {"value": ["a"]}


def test_objects_whose_text_cannot_be_had() -> None:
    """An object that raises when it is read becomes a placeholder with its type and the reason."""
    assert plain(_Hostile()) == "<_Hostile: RuntimeError while it was read>"
    assert plain([_HostileMapping(a=1)]) == ["<_HostileMapping: OSError while it was read>"]


def test_addresses_are_left_out() -> None:
    """Two objects that differ only in their memory address render alike, so that repeating them is no news."""

    class Thing: ...

    assert render_result(Thing()).full == render_result(Thing()).full


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.uuids(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.sets(st.integers() | st.text(), max_size=4)
            | st.tuples(inner)
            | st.dictionaries(st.text() | st.integers() | st.none() | st.tuples(st.integers()), inner, max_size=4)
        ),
        max_leaves=15,
    ),
    st.none() | st.integers(1, 300),
)
def test_rendering_never_raises_and_is_bounded(value: Any, max_chars: int | None) -> None:
    """Whatever a tool returns: UTF-8 text, at most the cap and a short marker, the whole of it kept beside."""
    rendered = render_result(value, max_chars=max_chars)
    rendered.text.encode()
    rendered.full.encode()
    assert rendered.truncated is (max_chars is not None and len(rendered.full) > max_chars)
    if max_chars is None or not rendered.truncated:
        assert rendered.text == rendered.full
    else:
        assert len(rendered.text) <= max_chars + 80
        assert str(len(rendered.full)) in rendered.text
    if not isinstance(value, (str, bytes, float)) and not isinstance(plain(value), str):
        json.loads(rendered.full)


@given(st.text(), st.integers(0, 50))
def test_text_is_never_altered(text: str, cap: int) -> None:
    """Well-formed text comes back byte for byte, and a cut one starts with the original."""
    assert render_result(text).text == text
    shown = cut(text, cap, SHORT_MARKER)
    assert shown == text if len(text) <= cap else text.startswith(shown.removesuffix(SHORT_MARKER))


def test_short_marker_is_exact() -> None:
    """The lightweight profile's form: the first 200 characters and three dots, nothing else."""
    text = "0123456789" * 50
    rendered = render_result(text, max_chars=200, marker=SHORT_MARKER)
    assert rendered.text == text[:200] + "..."
    assert (rendered.truncated, rendered.full) == (True, text)


def test_a_result_of_the_size_of_the_cap_is_whole() -> None:
    """Exactly `max_chars` characters fit; one more is cut."""
    assert not render_result("x" * 200, max_chars=200).truncated
    assert render_result("x" * 201, max_chars=200).truncated


@pytest.mark.parametrize(
    "whole",
    ["👩‍👩‍👧", "👍🏽", "é", "🇩🇪", "❤️", "\r\n", "नि", "กิ"],
    ids=["family", "skin", "accent", "flag", "selector", "crlf", "devanagari", "thai"],
)
def test_cuts_never_split_what_is_one_character(whole: str) -> None:
    """R07: wherever the cut falls, a combined character is kept or left out whole."""
    text = "ab" + whole + "c" * 300
    for end in range(2, 2 + len(whole)):
        kept = cut(text, end, "")
        assert kept in ("ab", "ab" + whole)


def test_flags_are_cut_between_pairs() -> None:
    """A row of flags is cut between two flags, not inside one."""
    assert cut("🇩🇪🇫🇷🇮🇹", 3, "") == "🇩🇪"


def test_a_tower_of_accents_cannot_empty_the_result() -> None:
    """A thousand combining marks are cut like anything else: the cap is what counts."""
    assert len(cut("a" + "\u0301" * 1000, 100, "")) == 100


def test_two_megabytes_of_text() -> None:
    """R07: 2 MB of multi-byte text is cut to the cap, with its size in the marker and the whole kept."""
    text = "漢字" * 350_000
    rendered = render_result(text, max_chars=1000)
    assert rendered.text.startswith(text[:1000])
    assert "700000" in rendered.text
    assert rendered.full == text


def test_content_blocks_are_opened() -> None:
    """LangChain content blocks give their text; other blocks are named and not dumped into the prompt."""
    blocks = [
        {"type": "text", "text": "one"},
        "two",
        {"type": "image", "base64": "A" * 10_000, "mime_type": "image/png"},
    ]
    assert render_result(blocks).text == "one\ntwo\n[image image/png]"
    assert json.loads(render_result([{"type": "json", "json": {"a": 1}}]).text) == {"json": {"a": 1}}


@pytest.mark.parametrize(
    "data", [["a", "b"], [{"type": "house", "text": "x"}], [{"type": "text", "size": 1}], [], [{"type": 1}]]
)
def test_data_is_not_taken_for_content_blocks(data: list[Any]) -> None:
    """A list of texts or of records that happen to have a type stays data."""
    assert json.loads(render_result(data).text) == data


def test_tool_result_and_tool_message_are_opened() -> None:
    """`ToolResult` and LangChain's `ToolMessage` carry content, artifact and failure; metadata is plain data."""
    artifact = object()
    rendered = render_result(
        ToolResult(content={"a": 1}, metadata={"retry_count": 2, "at": date(2024, 1, 1)}, artifact=artifact)
    )
    assert rendered.text == '{"a": 1}'
    assert rendered.metadata == {"retry_count": 2, "at": "2024-01-01"}
    assert rendered.artifact is artifact
    failed = render_result(ToolMessage("boom", tool_call_id="1", status="error"))
    assert (failed.text, failed.failed) == ("boom", True)
    assert len(render_result(ToolResult(content="", metadata={"log": "x" * 5000})).metadata["log"]) < 1100


@given(st.text(alphabet=st.characters(categories=["Cs", "Lu", "So"])))
def test_well_formed_text_can_be_encoded(text: str) -> None:
    """Surrogates never survive, and a pair of them is the character it stands for."""
    well_formed(text).encode()
    assert well_formed("\ud83d\ude00") == "😀"
