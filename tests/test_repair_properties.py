"""Laws of reading model text, over generated texts: valid stays as it is, cut is never data, and the work is linear."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.dialects import react_text
from fsm_agent.dialects.react_text import parse_react
from fsm_agent.dialects.repair import (
    Fault,
    Malformed,
    Parsed,
    call_text,
    names,
    parse_arguments,
    parse_call_text,
    parse_object,
    reader,
    reading,
    scan,
    split_thinking,
    strict,
    thinking,
)
from tests.benchmarks.fuzz_replies import run

CHARACTERS = st.characters(exclude_categories=["Cs"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=20)
    | st.sampled_from(
        ["```json\n{}\n```", "<think>x</think>", "a “b” 'c'", '{"a":1}}', "Action Input: {", "it's", "\\"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS, max_size=8), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(CHARACTERS, max_size=8), VALUES, max_size=5)
SPELLINGS: st.SearchStrategy[Callable[[Any], str]] = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, indent=2),
        lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    ]
)
PROSE = st.text(st.characters(categories=["L", "N", "Zs"], include_characters=".,!?'\n"), max_size=30)
# Everything that means something to a reader, so that random text is often nearly right.
PIECES = st.sampled_from(
    [
        *"{}[]\",:'“”„‘’\\\n `",
        *("```json\n", "```", "<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "//", "/*", "*/"),
        *(
            "true",
            "None",
            "NaN",
            "1e5",
            "-",
            "0.5",
            '"a"',
            '"name"',
            '"lookup"',
            '"arguments"',
            "a:",
            "\\u00",
            "\\ud800",
        ),
        *(
            "Thought:",
            "\nAction: ",
            "\nAction Input: ",
            "\nObservation:",
            "\nFinal Answer：",
            "\ufeff",
            "\x00",
            "\ud800",
        ),
        *('{"name":"lookup","arguments":{"q":"x"}}', '{"q":1}', "{'q': 'it\\'s'}"),
    ]
)
NEARLY = st.lists(PIECES | st.text(max_size=3), max_size=24).map("".join)


@given(OBJECTS, SPELLINGS)
def test_valid_objects_are_read_unaltered_and_without_repairs(
    value: dict[str, Any], spell: Callable[[Any], str]
) -> None:
    """Strict JSON gives what `json` gives, as arguments and as an object of a reply."""
    text = spell(value)
    expected = json.loads(text)
    for result in (parse_arguments(text), parse_object(text, accept=lambda _: True)):
        assert isinstance(result, Parsed)
        assert (repr(result.value), result.repairs) == (repr(expected), ())


@given(OBJECTS, SPELLINGS, st.data(), st.booleans())
def test_no_proper_prefix_of_an_object_is_ever_read(
    value: dict[str, Any], spell: Callable[[Any], str], data: st.DataObject, label: bool
) -> None:
    """An object cut anywhere is truncated for every reader, whatever the label says."""
    text = spell(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    for result in (parse_arguments(cut, truncated=label), parse_object(cut, accept=lambda _: True, truncated=label)):
        assert isinstance(result, Malformed)
        # A cut value may end in something like `”}`, which looks as if it were closed with the wrong quote.
        assert result.kind is Fault.TRUNCATED or (result.kind is Fault.AMBIGUOUS and not label)


@given(OBJECTS, st.data())
def test_no_proper_prefix_of_a_python_literal_is_ever_read(value: dict[str, Any], data: st.DataObject) -> None:
    """The same holds where every token needs a repair."""
    text = repr(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    assert isinstance(parse_arguments(cut), Malformed)
    assert isinstance(parse_object(cut, accept=lambda _: True), Malformed)


@given(OBJECTS, st.data())
def test_no_proper_prefix_of_a_call_written_as_text_runs(value: dict[str, Any], data: st.DataObject) -> None:
    """A call in markup, cut before its object closes, has no arguments that could be executed."""
    call = json.dumps({"name": "lookup", "arguments": value})
    cut = "<tool_call>" + call[: data.draw(st.integers(0, len(call) - 1))]
    calls = parse_call_text(cut, registered={"lookup"})
    assert all(isinstance(one.arguments, Malformed) for one in calls or ())


@given(OBJECTS, st.data())
def test_no_proper_prefix_of_a_react_input_runs(value: dict[str, Any], data: st.DataObject) -> None:
    """An input cut inside its object is malformed, even when the value holds labels."""
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    reply = parse_react(f"Thought: so\nAction: lookup\nAction Input: {cut}")
    assert reply.action == "lookup"
    assert isinstance(reply.arguments, Malformed)


@given(OBJECTS)
def test_python_literals_are_read_as_meant_or_refused(value: dict[str, Any]) -> None:
    """The `repr` of an object is that object, or is refused for an escape that JSON has not; never another value."""
    result = parse_arguments(repr(value))
    if isinstance(result, Parsed):
        assert repr(result.value) == repr(value)
    else:
        assert result.kind in {Fault.NOT_JSON, Fault.BAD_CHARACTER}


@given(OBJECTS.flatmap(lambda value: SPELLINGS.map(lambda spell: spell(value))), PROSE, PROSE, st.data())
def test_fences_and_prose_around_an_object_change_nothing(
    text: str, before: str, after: str, data: st.DataObject
) -> None:
    """Wrapped in a fence, in prose or in both, an object has the same value, and the wrapping is named."""
    language = data.draw(st.sampled_from(["", "json", "JSON", "python"]))
    line = data.draw(st.sampled_from(["\n", "\r\n"]))
    fenced = f"```{language}{line}{text}{line}```"
    for wrapped in (fenced, f"{before}\n{fenced}\n{after}", f"so: {text} {after}", f"<think>{before}</think>{text}"):
        for result in (parse_arguments(wrapped), parse_object(wrapped, accept=lambda _: True)):
            assert isinstance(result, Parsed)
            assert repr(result.value) == repr(json.loads(text))
    assert parse_arguments(fenced).repairs == ("fence",)


def leaves(value: Any) -> Iterator[Any]:
    """The keys and scalars of a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def boxes(value: Any) -> int:
    """How many objects and lists a value has."""
    if isinstance(value, dict):
        return 1 + sum(boxes(item) for item in value.values())
    return 1 + sum(boxes(item) for item in value) if isinstance(value, list) else 0


@given(NEARLY)
def test_nothing_is_invented_and_nothing_is_closed(text: str) -> None:
    """Every word and number that is read stands in the text, and so does every closing bracket."""
    for result in (parse_arguments(text), parse_object(text, accept=lambda _: True)):
        if isinstance(result, Parsed) and result.value:
            assert boxes(result.value) <= text.count("}") + text.count("]")
            plain = text.replace("\\'", "'")
            assert all(leaf in plain for leaf in leaves(result.value) if isinstance(leaf, str) and leaf.isalnum())


@given(
    NEARLY
    | st.builds(lambda gap, value: gap + json.dumps(value) + gap, st.text(" \n\u2028\xa0\ufeff", max_size=2), OBJECTS)
)
def test_what_is_read_without_repairs_is_strict_json(text: str) -> None:
    """No repairs means that `json` reads the same; anything else is named."""
    result = parse_arguments(text)
    if isinstance(result, Parsed) and not result.repairs and text.strip():
        assert result.value == (json.loads(text) or {})


@given(NEARLY | st.text(st.characters()), st.booleans())
def test_no_text_raises(text: str, label: bool) -> None:
    """Any text, lone surrogates included, gives a value or a fault whose detail can be shown and stored."""
    results = [
        parse_arguments(text, truncated=label),
        parse_object(text, accept=lambda value: "name" in value, truncated=label),
        *(call.arguments for call in parse_call_text(text, registered={"lookup"}) or ()),
    ]
    arguments = parse_react(text, truncated=label).arguments
    for result in [*results, *([] if arguments is None else [arguments])]:
        if isinstance(result, Malformed):
            assert len(result.detail.encode()) < 200
            assert result.detail.isprintable()
        else:
            json.dumps(result.value, ensure_ascii=False, allow_nan=False).encode()


def test_mutated_replies_keep_every_promise() -> None:
    """A short run of the fuzz, run by hand with a million texts, breaks no promise and reaches every end."""
    said: list[str] = []
    faults, counts = run(3_000, seed=7, say=said.append)
    assert (faults, said) == (0, [])
    assert all(
        counts[f"{reader:10} {kind}"] for reader in ("arguments", "object", "react") for kind in ("strict", "repaired")
    )


@given(NEARLY | st.text(st.characters()))
def test_thinking_and_rest_hold_the_whole_text(text: str) -> None:
    """Splitting loses nothing but tags and space, and a text without thinking is not touched."""
    thoughts, rest = split_thinking(text)
    if not thoughts and "think>" not in text:
        assert rest == text
    tags = re.compile(r"</?(?:think|thinking|thought|reasoning)>|\[/?THINK\]|\s", re.IGNORECASE)
    assert sorted(tags.sub("", thoughts + rest)) == sorted(tags.sub("", text))


# ------------------------------------------------------------------ the work grows with the text, and no faster

SEEDS = [
    "\n ```sh ",
    *(
        "{",
        "[",
        "}",
        "]",
        "`",
        '"',
        "'",
        "“",
        "\\",
        " ",
        "\n",
        "/",
        "<",
        ":",
        ",",
        "{ ",
        "{{",
        "{}",
        "[]",
        "[{",
        "```",
        "~~~",
    ),
    *(
        '{"',
        '{"a":',
        '{"a":1}',
        '{"a" ',
        "{a",
        "{a:",
        "{'",
        "{'a':",
        "{“",
        "{“a”:",
        '{"x":}',
        '{"x": y z ',
        '{"a":"\\',
        '"\\"',
    ),
    *(
        "{//",
        "{//\n",
        "{/*",
        "{/**/",
        "/*",
        '{"a":1 /*',
        "```\n",
        "```json\n{",
        "`{3}`",
        "~~~`",
        "{x:[",
        "{x:{}}",
        '{"a":[}',
    ),
    *(
        "<think>",
        "</think>",
        "x<think>",
        "\n<think>",
        "x</think>",
        "\n</think>\n",
        "<think></think>",
        "[THINK]",
        "\n```\n<think>",
    ),
    *(
        "<tool_call>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]a",
        "<function=a>",
        "<function=a><parameter=q>",
        "<parameter=q></parameter>",
        "functools",
        "functools ",
        '{"name":"lookup",',
        "<|",
    ),
    *(
        "Action:\n",
        "Action: a\n",
        "Action Input: {\n",
        "Action Input:\n",
        "Final Answer:\n",
        "Thought: x\n",
        "Observation:\n",
    ),
    *(
        "Action: ",
        "Action Input: ",
        " Action Input: {",
        "*",
        ">",
        "\n*",
        "Action: a Action Input: {}\n",
        "\u00a0",
        "\ufeff",
    ),
    *(
        '{"name":"lookup","arguments":{}}',
        '{"name":"lookup","arguments":{"q":}}',
        "{'name': 'lookup', ",
        '{"action":"a"}\n',
    ),
]


class Meter:
    """Counts calls, and the characters that patterns walk over."""

    def __init__(self) -> None:
        self.spent = 0

    def event(self, frame: FrameType, event: str, argument: object) -> None:
        """Count a call of Python or of C."""
        self.spent += event in ("call", "c_call")


class Metered:
    """A compiled pattern that reports how far it walked: to its match, or to the end when a search finds none."""

    def __init__(self, pattern: re.Pattern[str], meter: Meter) -> None:
        self.pattern = pattern
        self.meter = meter

    def match(self, text: str, *bounds: int) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self.walked(self.pattern.match(text, *bounds), bounds[0] if bounds else 0, 0)

    def fullmatch(self, text: str, *bounds: int) -> re.Match[str] | None:
        """As `re.Pattern.fullmatch`."""
        return self.walked(self.pattern.fullmatch(text, *bounds), 0, len(text))

    def search(self, text: str, *bounds: int) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self.walked(self.pattern.search(text, *bounds), bounds[0] if bounds else 0, len(text))

    def finditer(self, text: str, *bounds: int) -> Iterator[re.Match[str]]:
        """As `re.Pattern.finditer`."""
        at = bounds[0] if bounds else 0
        for found in self.pattern.finditer(text, *bounds):
            self.walked(found, at, 0)
            at = found.end()
            yield found

    def sub(self, replacement: str, text: str) -> str:
        """As `re.Pattern.sub`."""
        self.meter.spent += len(text)
        return self.pattern.sub(replacement, text)

    def walked(self, found: re.Match[str] | None, start: int, missed: int) -> re.Match[str] | None:
        """Count the characters between `start` and the end of what was found."""
        self.meter.spent += 1 + (max(0, missed - start) if found is None else found.end() - start)
        return found


def spend(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """The work of all readers on one text."""
    meter = Meter()
    with monkeypatch.context() as patched:
        for module in (call_text, names, reader, reading, scan, strict, thinking, react_text):
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    patched.setattr(module, name, Metered(value, meter))
        patched.setattr(reader, "_BODIES", {key: Metered(value, meter) for key, value in reader._BODIES.items()})
        before = sys.getprofile()
        sys.setprofile(meter.event)
        try:
            parse_arguments(text)
            parse_object(text, accept=lambda value: "no such key" in value)
            parse_call_text(text, registered={"lookup"})
            parse_react(text)
        finally:
            sys.setprofile(before)
    return meter.spent


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("frame", ["{}", '{{"a": "{}', "Final Answer: x\n{}", "{}\nx", '{}"}}x'])
def test_the_work_is_linear_in_the_text(seed: str, frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the hostile text costs at most about four times the calls and characters, counted and not timed."""
    texts = [frame.format(seed * (size // len(seed))) for size in (1_500, 6_000)]
    less, more = (spend(monkeypatch, text) for text in texts)
    assert more <= 5 * less + 2_000


class CountingText(str):
    """A text that adds up how far `find` may have walked in it."""

    __slots__ = ("walked",)

    def __init__(self, _text: str) -> None:
        self.walked = 0

    def find(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        """As `str.find`."""
        found = super().find(sub, start, end)
        self.walked += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("line", ["\n ```", "\n```\n", "\n````", "\n ~~~"])
def test_the_end_of_a_fence_is_not_looked_for_again_and_again(line: str) -> None:
    """However many fences open, the text is walked about once for each kind of fence."""
    text = CountingText(line * 5_000)
    fences = scan.Fences(text, len(text))
    for found in re.finditer("`{3,}|~{3,}", text):
        fences.behind(found.group(), found.end())
    assert text.walked <= 4 * len(text)


@pytest.mark.parametrize("markup", ["[TOOL_CALLS]lookup", "<tool_call>lookup", "<|tool_call_begin|>lookup"])
def test_endless_space_behind_the_name_of_a_call_is_walked_once(markup: str) -> None:
    """A model that goes on with spaces costs milliseconds, where to try each length of them would take a minute or more."""
    begun = time.process_time()
    assert parse_call_text(markup + " " * 150_000 + "x", registered={"lookup"}) is None
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("seed", SEEDS)
def test_200_kilobytes_of_anything_end_without_an_error(seed: str) -> None:
    """Two hundred kilobytes of any repeated piece are read or refused, whatever they are."""
    text = seed * (200_000 // len(seed))
    assert isinstance(parse_arguments(text), (Parsed, Malformed))
    assert isinstance(parse_object(text, accept=lambda value: "no such key" in value), Malformed)
