"""Arguments and objects read from model text: the faults of the field, their controls and their neighbours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsm_agent.dialects.repair import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_DIGITS,
    Fault,
    Malformed,
    Parsed,
    Repair,
    parse_arguments,
    parse_object,
)

FENCE = "```"


def read(text: object, **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The value and the repairs of arguments that must be readable."""
    result = parse_arguments(text, **options)
    assert isinstance(result, Parsed), result
    return result.value, result.repairs


def fault(text: object, **options: Any) -> Fault:
    """The kind of fault of arguments that must be refused."""
    result = parse_arguments(text, **options)
    assert isinstance(result, Malformed), result
    return result.kind


def is_call(value: dict[str, Any]) -> bool:
    """The call shape that these tests look for."""
    return "name" in value


# ------------------------------------------------------------------ M03, M10: what is cut is never data

CUT = [
    '{"scope":"tm',
    '{"scope":"tmp"',
    '{"scope":',
    '{"scope"',
    '{"sco',
    "{",
    '{"a":[1,2',
    '{"a":[1,2]',
    '{"a":1,',
    '{"a":tru',
    '{"a":-',
    '{"a":1e',
    '{"a":1.',
    '{"a":"x\\',
    '{"a":"x\\u12',
    '{"a":{"b":1}',
    '[{"a":1},{"b',
    '"{\\"a\\":1}',
    '"{\\"a\\":1"',
    "{'a': 'b",
    "{'a': Tru",
    "{“a”: “b",
    '{"a":1 // no end }',
    '{"a":1 /* no end }',
    f'{FENCE}json\n{{"a":1',
    f"{FENCE}json\n",
    f"{FENCE}js",
    'Here it is: {"a":"b',
    '{"a":1}{"a":',
    '<think>so</think>{"a":',
    '{"text":"a } and ] and {',
]


@pytest.mark.parametrize("text", CUT)
@pytest.mark.parametrize("label", [False, True])
def test_m03_m10_cut_arguments_are_truncated_whatever_the_label(text: str, label: bool) -> None:
    """A text that ends too early is truncated, with or without the label, and never read as fewer arguments or `{}`."""
    assert fault(text, truncated=label) is Fault.TRUNCATED


def test_m03_control_complete_arguments_at_the_cap_are_read() -> None:
    """Complete text of a reply that hit its cap is read unaltered; flagging it is the caller's part."""
    assert read('{"city":"Oslo"}', truncated=True) == ({"city": "Oslo"}, ())


@pytest.mark.parametrize("text", ["{}", "null"])
def test_m03_a_complete_literal_of_nothing_is_read_at_the_cap(text: str) -> None:
    """`{}` and `null` were written to their end, so a label of truncation takes nothing from them."""
    assert read(text, truncated=True) == ({}, ())


@pytest.mark.parametrize("text", ["", "  \n", None, {}])
def test_m10_no_arguments_in_a_cut_reply_are_not_empty_arguments(text: object) -> None:
    """A call cut before its arguments would run with its defaults; it is truncated instead."""
    assert fault(text, truncated=True) is Fault.TRUNCATED


@pytest.mark.parametrize("text", ["oops", '{"a": oops}', '{"a":1}{"b":2}'])
def test_m03_what_cannot_be_read_of_a_cut_reply_is_truncated(text: str) -> None:
    """With the label, the audit says truncated rather than bad JSON, and the detail keeps what was found."""
    assert fault(text) in {Fault.NOT_JSON, Fault.AMBIGUOUS}
    result = parse_arguments(text, truncated=True)
    assert isinstance(result, Malformed)
    assert result.kind is Fault.TRUNCATED
    assert result.detail.startswith("the reply was cut off: ")


NEVER_EMPTY = [
    "[]",
    '""',
    "0",
    "false",
    "true",
    '" "',
    '"null"',
    "undefined",
    "nil",
    "()",
    "<>",
    "...",
    "{,}",
    "{:}",
    FENCE,
]


@pytest.mark.parametrize("text", [*NEVER_EMPTY, "[{}]", "{...}", "{} {", '{"a"}', "{null}", f"{FENCE}\n{FENCE}"])
def test_m10_nothing_else_becomes_empty_arguments(text: str) -> None:
    """`{}` is never put in the place of a text that is something else."""
    assert isinstance(parse_arguments(text), Malformed)


# ------------------------------------------------------------------ M04, M05, M06: fences and where an object is


@pytest.mark.parametrize(
    "text",
    [
        f'{FENCE}json\n{{"city":"Oslo"}}\n{FENCE}',
        f'{FENCE}\n{{"city":"Oslo"}}\n{FENCE}',
        f'{FENCE}json\r\n{{"city":"Oslo"}}\r\n{FENCE}',
        f'{FENCE}JSON  \n  {{"city":"Oslo"}}  \n{FENCE}   \n\n',
        f'\n  {FENCE} json\n{{"city":"Oslo"}}{FENCE}',
        f'{FENCE}json{{"city":"Oslo"}}{FENCE}',
        '~~~json\n{"city":"Oslo"}\n~~~',
        f'`{FENCE}json\n{{"city":"Oslo"}}\n`{FENCE}',
        '`{"city":"Oslo"}`',
        f'{FENCE}tool_code\n{{"city":"Oslo"}}\n{FENCE}',
    ],
)
def test_m04_fence_around_the_whole_text_is_stripped(text: str) -> None:
    """A fence with or without language, CRLF or trailing spaces gives one clean call."""
    assert read(text) == ({"city": "Oslo"}, (Repair.FENCE,))


def test_m04_fence_that_never_closes_around_a_complete_object() -> None:
    """A stop sequence often eats the closing fence; the object is complete, and the repair is named apart."""
    assert read(f'{FENCE}json\n{{"city":"Oslo"}}') == ({"city": "Oslo"}, (Repair.OPEN_FENCE,))


@pytest.mark.parametrize("inside", ["", "\n", "city=Oslo", '["Oslo"'])
def test_m04_fence_around_something_else_is_refused(inside: str) -> None:
    """A fence around no object is a fault that names the shape, never empty arguments."""
    result = parse_arguments(f"{FENCE}json\n{inside}\n{FENCE}")
    assert isinstance(result, Malformed)
    assert result.kind in {Fault.NOT_JSON, Fault.TRUNCATED}
    assert "schema" not in result.detail


@pytest.mark.parametrize(
    "value",
    [
        {"code": "use `print` here"},
        {"code": f"{FENCE}python\nprint(1)\n{FENCE}"},
        {"code": f"{FENCE}json\n{{}}\n{FENCE}", "n": 1},
        {"md": "<think>not thinking</think>"},
        {"html": "</tool_call> } {"},
        {"q": "Action Input: {}"},
        {"quotes": "“ ” „ ‘ ’ ' \" «»"},
        {"py": "True, None, {'a': 1,}"},
        {"comment": "// no comment /* here */"},
    ],
)
def test_m05_valid_text_is_returned_byte_for_byte(value: dict[str, Any]) -> None:
    """Whatever a valid value holds, nothing in it is repaired."""
    assert read(json.dumps(value)) == (value, ())
    assert read(json.dumps(value, ensure_ascii=False, indent=2)) == (value, ())
    assert parse_object(json.dumps(value), accept=lambda _: True) == Parsed(value)


M05 = (
    f"Run `ls` first.\n\n{FENCE}sh\nfor f in *; do {{ echo ${{f}}; }}; done\n{FENCE}\n\n"
    '{"name":"save","args":{"n":1}}'
)


def test_m05_an_earlier_code_block_is_not_the_payload() -> None:
    """Inline code and a shell block before the object are passed over as prose."""
    expected = {"name": "save", "args": {"n": 1}}
    assert parse_object(M05, accept=is_call) == Parsed(expected, (Repair.PROSE,))
    assert read(M05) == (expected, (Repair.PROSE,))


SHELL = f"{FENCE}sh\ncurl -d '{{\"a\":1}}' -d '{{\"name\": $x}}' localhost\n{FENCE}\n"


def test_m05_objects_in_a_code_block_of_a_language_are_code() -> None:
    """What stands in a shell block before the object, whole or broken, is neither the payload nor a second object."""
    text = SHELL + '{"name":"save"}'
    assert parse_object(text, accept=is_call) == Parsed({"name": "save"}, (Repair.PROSE,))
    assert read(text) == ({"name": "save"}, (Repair.PROSE,))
    assert read(f'{FENCE}sh\nls\n{FENCE}\n{FENCE}json\n{{"q":1}}\n{FENCE}') == ({"q": 1}, (Repair.PROSE,))


def test_m05_a_code_block_around_everything_is_the_payload() -> None:
    """Only a block with something behind it is passed over; the one block of a reply holds its arguments."""
    assert read(f"{FENCE}python\n{{'q': 1}}\n{FENCE}") == ({"q": 1}, (Repair.SINGLE_QUOTES, Repair.FENCE))


def test_m05_an_object_without_the_call_shape_is_not_the_call() -> None:
    """The first object with the call shape is taken, not the first object; as arguments, two are ambiguous."""
    text = 'Given {"a":1} I call {"name":"save"}'
    assert parse_object(text, accept=is_call) == Parsed({"name": "save"}, (Repair.PROSE,))
    assert fault(text) is Fault.AMBIGUOUS


def test_m06_scan_respects_strings_and_ignores_trailing_rubbish() -> None:
    """Braces and tags inside a string do not end the object, and a stray brace behind it does not extend it."""
    text = 'Action: {"name":"save","arguments":{"html":"</tool_call> } {"}} then a stray }looks like json{'
    expected = {"name": "save", "arguments": {"html": "</tool_call> } {"}}
    assert parse_object(text, accept=is_call) == Parsed(expected, (Repair.PROSE,))


def test_m06_several_calls_give_the_first_and_say_so() -> None:
    """Of several objects with the call shape the first is taken; whether the others differ is in the repairs."""
    twice = '{"name":"a"} {"name":"a"}'
    assert parse_object(twice, accept=is_call) == Parsed({"name": "a"}, (Repair.REPEATED_OBJECT,))
    two = '{"name":"a"}\n{"name":"b"}'
    assert parse_object(two, accept=is_call) == Parsed({"name": "a"}, (Repair.FIRST_OF_SEVERAL,))
    listed = '[{"name":"a"},{"name":"b"}]'
    assert parse_object(listed, accept=is_call) == Parsed({"name": "a"}, (Repair.PROSE, Repair.FIRST_OF_SEVERAL))


def test_m06_a_cut_list_of_calls_is_truncated() -> None:
    """A list is one text: when it is cut, none of it is taken."""
    result = parse_object('[{"name":"a"},{"na', accept=is_call)
    assert isinstance(result, Malformed)
    assert result.kind is Fault.TRUNCATED


@pytest.mark.parametrize(
    "text",
    [
        '{"plan": [{"name":"delete"}, {"na',
        '{"plan": oops, "then": {"name":"delete"}',
        '{"plan": {"name":"delete"}}',
        "{'note': 'x } y', 'then': {'name': 'delete'}, 'c",
        '<think>I could {"name":"delete"}</think> No.',
        '<think>I could {"name":"delete"}',
        '{{"name":"delete"}}',
        '"{"name":"delete" "',
        '{"text": "say {"name":"delete"}", "x": 1}',
    ],
)
def test_m06_an_object_inside_another_or_inside_thinking_is_never_a_call(text: str) -> None:
    """What stands inside a cut or broken object, a nested value or the thinking is not offered as a call."""
    assert isinstance(parse_object(text, accept=is_call), Malformed)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"write","arguments":{"text":"say "hi""}}\n{"name":"read","arguments":{}}',
        '{"thought":"he said "stop } there"", "x":{"name":"delete"}}',
        "{'a': 'x \\q } y', 'b': {'name': 'delete'}",
        '{"thought": "a", then } {"name":"delete"} "}',
        'd = {"a": x + 1}\n{"name":"save"}',
        '{"thought": oops}\n{"name":"save"}',
        '{\\"a\\": {"name":"delete"}}',
        '{[{"name":"delete"}]}',
        '{"a": “x" , {"name":"delete"}}',
    ],
)
def test_m06_nothing_behind_a_broken_object_is_taken(text: str) -> None:
    """Where a broken object ends nobody knows, so what follows it may be a part of it, and is refused with it."""
    result = parse_object(text, accept=is_call)
    assert isinstance(result, Malformed)
    assert result.kind in {Fault.NOT_JSON, Fault.AMBIGUOUS}


@pytest.mark.parametrize(
    "text", ["", "   ", "Just words.", "Use {braces} and ${vars} here.", '{"x":1}', "[1, 2]", "12"]
)
def test_m06_no_call_in_the_text_is_missing(text: str) -> None:
    """A text without an object of the call shape is missing it, which is not the same as malformed."""
    result = parse_object(text, accept=is_call)
    assert isinstance(result, Malformed)
    assert result.kind is Fault.MISSING


def test_m03_no_call_in_a_cut_reply_is_truncated() -> None:
    """With the label, a reply without a call, or without anything, was cut before it."""
    for text in ("", "I will now", "{"):
        result = parse_object(text, accept=is_call, truncated=True)
        assert isinstance(result, Malformed)
        assert result.kind is Fault.TRUNCATED


def test_m06_a_whole_call_as_a_json_string_is_unwrapped() -> None:
    """An object encoded twice is decoded twice, visibly."""
    text = json.dumps(json.dumps({"name": "a"}))
    assert parse_object(text, accept=is_call) == Parsed({"name": "a"}, (Repair.DOUBLE_ENCODED,))


# ------------------------------------------------------------------ M08: typographic quotes


@pytest.mark.parametrize(
    "text",
    [
        "{“city”: “Oslo”}",
        '{“city”: "Oslo"}',
        '{"city": “Oslo”}',
        "{”city”: ”Oslo”}",
        "{„city“: „Oslo“}",
        "{„city”: „Oslo”}",
        "{‘city’: ‘Oslo’}",
        "{«city»: «Oslo»}",
        "{＂city＂: ＂Oslo＂}",
    ],
)
def test_m08a_typographic_quotes_as_delimiters_are_repaired(text: str) -> None:
    """Keys and values delimited by a matching pair of typographic quotes are read."""
    assert read(text) == ({"city": "Oslo"}, (Repair.TYPOGRAPHIC_QUOTES,))


def test_m08b_typographic_quotes_in_a_value_are_kept() -> None:
    """Valid JSON whose value has curly quotes keeps them, also when something else is repaired around it."""
    value = {"text": "She said “hi”"}
    assert read('{"text":"She said “hi”"}') == (value, ())
    assert read('{"text":"She said “hi”",}') == (value, (Repair.TRAILING_COMMA,))
    assert read("{“text”: 'She said “hi”'}")[0] == value


@pytest.mark.parametrize(
    "text",
    [
        '{"city": „Oslo"}',
        '{"city": „Oslo", "n": 1}',
        '{"city": "Oslo”}',
        '{"city": “Oslo"}',
        "{“city“: “Oslo“}",
        "{'city': 'Oslo’}",
        "{‘city': ‘Oslo'}",
        "{“text”: “She said “hi” to me”}",
        '{“a”: “x", "b": "y”}',
        '{“text”: “say "hi"”}',
    ],
)
def test_m08c_mismatched_quotes_are_refused(text: str) -> None:
    """A string opened with one quote and closed with another has two readings; none is guessed."""
    assert fault(text) is Fault.AMBIGUOUS


def test_m08c_the_detail_names_both_quotes() -> None:
    """The model is told which two quotes do not match, and where."""
    result = parse_arguments('{"city": „Oslo"}')
    assert isinstance(result, Malformed)
    assert (result.kind, "U+201E" in result.detail, "character 15" in result.detail) == (Fault.AMBIGUOUS, True, True)


def test_m08_an_apostrophe_inside_typographic_single_quotes_is_refused() -> None:
    """The closing single quote is the apostrophe of English too, so the string has no certain end."""
    assert fault("{‘a’: ‘it’s’}") is Fault.NOT_JSON


# ------------------------------------------------------------------ M09: commas, prose, and other spellings


def test_m09_trailing_comma_and_prose_around_are_recovered() -> None:
    """The apology and the comma are passed over; q is x."""
    text = 'Sure! {"name":"lookup","args":{"q":"x",}} Hope that helps.'
    expected = Parsed({"name": "lookup", "args": {"q": "x"}}, (Repair.TRAILING_COMMA, Repair.PROSE))
    assert parse_object(text, accept=is_call) == expected
    assert parse_arguments(text) == expected


@pytest.mark.parametrize(
    ("text", "value", "repair"),
    [
        ('{"a":1,}', {"a": 1}, Repair.TRAILING_COMMA),
        ('{"a":[1,2, ],\n}', {"a": [1, 2]}, Repair.TRAILING_COMMA),
        ("{'a': 'b'}", {"a": "b"}, Repair.SINGLE_QUOTES),
        ("{'a': 'say \"hi\"'}", {"a": 'say "hi"'}, Repair.SINGLE_QUOTES),
        ("{'a': 'it\\'s'}", {"a": "it's"}, Repair.SINGLE_QUOTES),
        ("{'a': \"it's\"}", {"a": "it's"}, Repair.SINGLE_QUOTES),
        ("{'a': '\\x41\\u0042\\n'}", {"a": "AB\n"}, Repair.SINGLE_QUOTES),
        ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}, Repair.PYTHON_LITERAL),
        ('{city: "Oslo"}', {"city": "Oslo"}, Repair.BARE_KEY),
        ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}, Repair.MISSING_COMMA),
        ('{"a"：1，"b"：2}', {"a": 1, "b": 2}, Repair.FULLWIDTH_PUNCTUATION),
        ('{"a":"x\ny"}', {"a": "x\ny"}, Repair.RAW_LINE_BREAK),
        ('{"a":"x\r\n\ty"}', {"a": "x\r\n\ty"}, Repair.RAW_LINE_BREAK),
        ('{"a":"it\\\'s"}', {"a": "it's"}, Repair.ESCAPED_APOSTROPHE),
        ('{"a":1, // one\n "b":2}', {"a": 1, "b": 2}, Repair.COMMENT),
        ('{/* x */"a":1}', {"a": 1}, Repair.COMMENT),
        ('{"a":\u00a01}', {"a": 1}, Repair.ODD_SPACE),
        ('\ufeff{"a":1}', {"a": 1}, Repair.ODD_SPACE),
        ('\u2028{"a":1}\u00a0\n', {"a": 1}, Repair.ODD_SPACE),
        ('{"a":1} {"a": 1}', {"a": 1}, Repair.REPEATED_OBJECT),
        ('"{\\"a\\": 1}"', {"a": 1}, Repair.DOUBLE_ENCODED),
        ('<think>{"b":2}</think>{"a":1}', {"a": 1}, Repair.THINKING),
        ('The arguments are {"a":1}', {"a": 1}, Repair.PROSE),
    ],
)
def test_m09_each_spelling_repair_keeps_the_value_and_is_named(
    text: str, value: dict[str, Any], repair: Repair
) -> None:
    """One repair, one name, and the value as it was meant."""
    assert read(text) == (value, (repair,))


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "city=Oslo",
        '{"a": oops}',
        '{"a": 01}',
        '{"a": +1}',
        '{"a": .5}',
        '{"a": 1.}',
        '{"a": 0x1F}',
        '{"a": 1_000}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": undefined}',
        '{"a": TRUE}',
        '{"a": "say "hi" to"}',
        '{"a": "x" "y"}',
        '{"a": ["x" "y"]}',
        '{"a": [1 2]}',
        '{"a": [1,,2]}',
        '{"a":1,,"b":2}',
        '{,"a":1}',
        '{"a":1]',
        '{"a" 1}',
        '{"a": "\\d+"}',
        '{"a": "C:\\Users"}',
        "{'a': 'it's'}",
        "{'a': b'x'}",
        "{'a': (1, 2)}",
        "{1: 2}",
        '{"a": `x`}',
        '{"a": """x"""}',
        '{"a": 5 apples}',
        '{"a": 1; "b": 2}',
        '{"a" = 1}',
        '"{"a":1}"',
    ],
)
def test_m09_what_has_no_certain_reading_is_not_json(text: str) -> None:
    """A spelling that would need a guess is refused as not JSON, not read in part."""
    assert fault(text) is Fault.NOT_JSON


def test_m09_the_detail_says_what_was_expected_and_where_and_never_a_value() -> None:
    """The message is short, has the place, and repeats nothing of the values."""
    result = parse_arguments('{"password": "hunter2 and more",\n "n": oops hunter2}')
    assert isinstance(result, Malformed)
    assert result.detail == "expected a value (text needs double quotes), found 'o', at character 40 (line 2)"
    long = parse_arguments('{"' + "k" * 500 + '":1,"' + "k" * 500 + '":2}')
    assert isinstance(long, Malformed)
    assert len(long.detail) < 120


@pytest.mark.parametrize(
    ("text", "shape"), [("[1]", "a list"), ("12", "a number"), ('"x"', "a string"), ("true", "true")]
)
def test_m09_a_value_that_is_no_object_is_named(text: str, shape: str) -> None:
    """A list or a scalar is no arguments; the detail names what came instead."""
    result = parse_arguments(text)
    assert isinstance(result, Malformed)
    assert result.kind is Fault.NOT_OBJECT
    assert shape in result.detail


@pytest.mark.parametrize("text", ['[{"q":1}]', '[{"q":1},]', "[{'q':1}]", '[{"q":1}] done', [1], 3, b"{}", ("a",)])
def test_m09_an_object_inside_a_list_is_not_the_arguments(text: object) -> None:
    """The only item of a list is not taken out of it, and a value of another type is refused."""
    assert fault(text) is Fault.NOT_OBJECT


def test_m09_an_object_encoded_three_times_is_refused() -> None:
    """One layer of encoding is a known slip; more is not unwrapped."""
    assert fault(json.dumps(json.dumps(json.dumps({"a": 1})))) is Fault.NOT_OBJECT


def test_m09_text_in_a_field_stays_text() -> None:
    """An encoded object inside a field, numbers and words in strings are left as they are."""
    value = {"payload": '{"a":1}', "n": "007", "b": "True", "x": "null"}
    assert read(json.dumps(value)) == (value, ())
    assert read(repr(value)) == (value, (Repair.SINGLE_QUOTES,))


# ------------------------------------------------------------------ M11: no arguments


@pytest.mark.parametrize("text", ["", "   ", None, "null", "{}", "\n", " { } ", {}])
def test_m11_no_arguments_are_an_empty_object(text: object) -> None:
    """Empty, blank, null and `{}` are what a tool without parameters is called with."""
    assert read(text) == ({}, ())


def test_m11_none_as_python_writes_it_is_null() -> None:
    """`None` is null in another spelling, and visible as such."""
    assert read(" None ") == ({}, (Repair.PYTHON_LITERAL,))


# ------------------------------------------------------------------ M20: one brace too many


@pytest.mark.parametrize(
    "text", ['{"q":1}}', '{"q":1}}}', '{"q":1}]', '{"q":1};', '{"q":1} )\n', '{"q":1}>', '{"q":1},']
)
def test_m20_only_closing_punctuation_behind_the_object_is_passed_over(text: str) -> None:
    """A complete object followed by nothing but closing punctuation is that object."""
    assert read(text) == ({"q": 1}, (Repair.EXTRA_CLOSING,))


def test_m20_garbage_inside_the_object_is_malformed() -> None:
    """`{"{"q":1}` has no reading, and the object inside it is not taken for it."""
    assert fault('{"{"q":1}') is Fault.NOT_JSON
    assert isinstance(parse_object('{"{"name":1}', accept=is_call), Malformed)


@pytest.mark.parametrize("text", ['{{"q":1}}', '{{"q":1}', '{ {"q":1}', '{x {"q":1}'])
def test_m20_a_brace_too_many_in_front_is_malformed(text: str) -> None:
    """Arguments that begin with a brace of their own are that object or nothing."""
    assert fault(text) in {Fault.NOT_JSON, Fault.TRUNCATED}


# ------------------------------------------------------------------ bounds


def test_bounds_size_is_checked_before_reading() -> None:
    """A text beyond the limit is refused by its length alone; the limit itself is still read."""
    assert fault('{"a":"' + "x" * MAX_CHARS + '"}') is Fault.TOO_LARGE
    text = '{"a":"' + "x" * (MAX_CHARS - 8) + '"}'
    assert len(text) == MAX_CHARS
    assert read(text)[1] == ()
    assert fault('{"abc":1}', max_chars=8) is Fault.TOO_LARGE
    too_long = parse_object('{"name":"abc"}', accept=is_call, max_chars=8)
    assert isinstance(too_long, Malformed)
    assert too_long.kind is Fault.TOO_LARGE


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    """An object `depth` levels deep."""
    return opening * (depth - 1) + "{}" + closing * (depth - 1)


@pytest.mark.parametrize("extra", ["", ","])
def test_bounds_depth(extra: str) -> None:
    """Nesting up to the limit is read, one level more is refused, in strict and repaired text alike."""
    assert isinstance(parse_arguments(nested(MAX_DEPTH, closing=extra + "}")), Parsed)
    assert fault(nested(MAX_DEPTH + 1, closing=extra + "}")) is Fault.TOO_DEEP


@pytest.mark.parametrize("text", [nested(100_000), '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", '{"a":' * 100_000])
def test_bounds_depth_never_reaches_the_recursion_limit(text: str) -> None:
    """A hundred thousand levels are refused like one too many."""
    assert fault(text) is Fault.TOO_DEEP


@pytest.mark.parametrize("piece", ["{}", "{a ", '{"a":1} '])
def test_bounds_number_of_places_to_look_at(piece: str) -> None:
    """Beyond ten thousand braces nothing more is looked at, and nothing found by then is arguments."""
    assert fault("x " + piece * 10_001) is Fault.TOO_LARGE


def test_bounds_many_brackets_side_by_side_are_not_deep() -> None:
    """Depth is nesting, not the number of brackets; those inside strings do not count."""
    value = {"rows": [[index] for index in range(500)], "text": "[{" * 500}
    assert read(json.dumps(value)) == (value, ())


@pytest.mark.parametrize("number", ["9" * (MAX_DIGITS + 1), "1e999", "-1e999", "0." + "1" * MAX_DIGITS, "9" * 100_000])
@pytest.mark.parametrize("extra", ["", ","])
def test_bounds_numbers(number: str, extra: str) -> None:
    """A number too long to convert, or beyond a float, is refused; nothing becomes infinity."""
    assert fault(f'{{"a":{number}{extra}}}') is Fault.NUMBER_TOO_LARGE


def test_bounds_a_long_number_within_the_limit_is_exact() -> None:
    """The longest number is read to the digit."""
    assert read('{"a":' + "9" * MAX_DIGITS + "}")[0] == {"a": 10**MAX_DIGITS - 1}


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '{"a":1,"a":1}', '{"x":{"a":1,"b":2,"a":3}}', "{'a':1,'a':2}", '[{"a":1,"a":2},]']
)
def test_a_key_given_twice_is_refused(text: str) -> None:
    """Which of two values counts is not for the parser to choose."""
    assert fault(text) is Fault.DUPLICATE_KEYS


@pytest.mark.parametrize("text", ['{"a":"\\ud83d"}', '{"a":"\ud83d"}', '{"\\udc00":1}', '{"a":["\\ud83d x \\ude00"],}'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """A lone surrogate is no character: it could be neither sent on nor stored."""
    assert fault(text) is Fault.BAD_CHARACTER


def test_a_whole_surrogate_pair_is_its_character() -> None:
    """An escaped pair is one character, in strict and in single-quoted text."""
    assert read('{"a":"\\ud83d\\ude00"}') == ({"a": "😀"}, ())
    assert read("{'a':'\\ud83d\\ude00'}") == ({"a": "😀"}, (Repair.SINGLE_QUOTES,))


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x0b"])
def test_raw_control_characters_are_refused(character: str) -> None:
    """A raw control character other than tab and line break is refused; its escape is strict JSON and kept."""
    assert fault(f'{{"a":"x{character}"}}') is Fault.BAD_CHARACTER
    assert read(json.dumps({"a": character})) == ({"a": character}, ())


# ------------------------------------------------------------------ mappings that a client parsed


def test_a_mapping_is_taken_as_it_is() -> None:
    """Arguments that came parsed are copied, not changed, also at the cap."""
    given = {"a": [1, {"b": None}], "c": 1.5, "d": "x"}
    value, repairs = read(given, truncated=True)
    assert (value, repairs) == (given, ())
    assert value is not given


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({1: 2}, Fault.NOT_JSON),
        ({"a": float("nan")}, Fault.NOT_JSON),
        ({"a": float("inf")}, Fault.NOT_JSON),
        ({"a": object()}, Fault.NOT_JSON),
        ({"a": b"x"}, Fault.NOT_JSON),
        ({"a": 10**MAX_DIGITS}, Fault.NUMBER_TOO_LARGE),
        ({"a": ["\ud800"]}, Fault.BAD_CHARACTER),
        ({"\ud800": 1}, Fault.BAD_CHARACTER),
        ({"a": "x" * (MAX_CHARS + 1)}, Fault.TOO_LARGE),
    ],
)
def test_a_mapping_is_held_to_the_same_bounds(given: dict[Any, Any], kind: Fault) -> None:
    """What text may not hold, a mapping may not hold either."""
    assert fault(given) is kind


def test_a_mapping_that_holds_itself_or_too_much_is_refused() -> None:
    """Cycles and shared lists that unfold without end stop at the bounds."""
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    assert fault(cycle) is Fault.TOO_DEEP
    unfolding: list[Any] = []
    for _ in range(MAX_DEPTH - 2):
        unfolding = [unfolding, unfolding]
    assert fault({"a": unfolding}) is Fault.TOO_LARGE
