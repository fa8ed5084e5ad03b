"""Calls written as text, visible thinking, and tool names as models write them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.dialects.repair import (
    CallText,
    Fault,
    Malformed,
    Parsed,
    Repair,
    expand_parallel,
    parse_call_text,
    resolve_name,
    sanitise_name,
    split_thinking,
)

FENCE = "```"
USES = [
    {"recipient_name": "functions.lookup", "parameters": {"q": "x"}},
    {"recipient_name": "functions.now", "parameters": {}},
]
TOOLS = {"lookup", "now", "pay"}
CALL = '{"name":"lookup","arguments":{"q":"x"}}'
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup\n"
    f'{FENCE}json\n{{"q":"x"}}\n{FENCE}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
)
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.lookup:0<|tool_call_argument_begin|>"
    '{"q":"x"}<|tool_call_end|><|tool_calls_section_end|>'
)


def calls(text: str) -> list[tuple[str, Any]]:
    """The names and values of calls that must be found and readable."""
    found = parse_call_text(text, registered=TOOLS)
    assert found is not None
    return [
        (call.name, call.arguments.value if isinstance(call.arguments, Parsed) else call.arguments) for call in found
    ]


# ------------------------------------------------------------------ M15: a call written as text


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>",
        f"<tool_call>\n{CALL}\n</tool_call>\n",
        f"<tool_call>{CALL}",
        f"<function_call>{CALL}</function_call>",
        f"<|tool_call|>{CALL}<|im_end|>",
        f"<|python_tag|>{CALL}<|eom_id|>",
        f"[TOOL_CALLS][{CALL}]",
        f"[TOOL_CALLS] {CALL}",
        f"[TOOL_CALL]{CALL}[/TOOL_CALL]",
        '[TOOL_CALLS]lookup{"q":"x"}',
        '[TOOL_CALLS]lookup[ARGS]{"q":"x"}',
        '<function=lookup>{"q":"x"}</function>',
        DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>lookup<｜tool▁sep｜>{"q":"x"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        KIMI,
        f"<|start_header_id|>assistant<|end_header_id|>\n\n{CALL}<|eot_id|>",
        f"functools[{CALL}]",
        CALL,
        f"[{CALL}]",
        f"  \n{CALL}\n",
        f"{FENCE}json\n{CALL}\n{FENCE}",
        f"{FENCE}\n{CALL}\n{FENCE}",
        f"{FENCE}tool_call\r\n{CALL}\r\n{FENCE}",
        f"<tool_call>{FENCE}json\n{CALL}\n{FENCE}</tool_call>",
        f"<think>I should look it up.</think>\n{CALL}",
        '{"name":"lookup","parameters":{"q":"x"}}',
        '{"name":"lookup","args":{"q":"x"}}',
        '{"action":"lookup","action_input":{"q":"x"}}',
        '{"thought":"hm","action":"lookup","action_input":{"q":"x"}}',
        '{"tool":"lookup","tool_input":{"q":"x"}}',
        '{"function":"lookup","arguments":{"q":"x"}}',
        '{"function":{"name":"lookup","arguments":{"q":"x"}}}',
        '{"type":"function","id":"1","function":{"name":"lookup","arguments":"{\\"q\\":\\"x\\"}"}}',
        '{"tool_calls":[{"function":{"name":"lookup","arguments":"{\\"q\\":\\"x\\"}"}}]}',
        '{"role":"assistant","content":"","tool_calls":[{"name":"lookup","arguments":{"q":"x"}}]}',
        '{"type":"function","name":"lookup","parameters":{"q":"x"}}',
        '{"name":"lookup","arguments":"{\\"q\\":\\"x\\"}"}',
        '{"name":"functions.lookup","arguments":{"q":"x"}}',
        "{“name”: “lookup”, “arguments”: {“q”: “x”}}",
        "{'name': 'lookup', 'arguments': {'q': 'x',}}",
    ],
)
def test_m15_a_reply_that_is_a_call_is_read(text: str) -> None:
    """The whole content has the shape of a call of a registered tool: one call, its arguments, and the repair named."""
    assert calls(text) == [("lookup", {"q": "x"})]
    found = parse_call_text(text, registered=TOOLS)
    assert found is not None
    assert Repair.CALL_AS_TEXT in found[0].arguments.repairs


def test_m15_every_repair_is_visible() -> None:
    """What was mended inside the call and around it is in the repairs of its arguments."""
    text = "<think>so</think><tool_call>{'name': 'lookup', 'arguments': '{\"q\":1,}'}</tool_call>"
    expected = (Repair.THINKING, Repair.CALL_AS_TEXT, Repair.SINGLE_QUOTES, Repair.TRAILING_COMMA)
    assert parse_call_text(text, registered=TOOLS) == (CallText("lookup", Parsed({"q": 1}, expected)),)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>\n<tool_call>" + '{"name":"now","arguments":{}}</tool_call>',
        CALL + "\n" + '{"name":"now","arguments":null}',
        f"[{CALL}, " + '{"name":"now","arguments":""}]',
        CALL + "; " + '{"name":"now","parameters":{}}',
        f"<tool_calls>[{CALL}," + '{"name":"now"}]</tool_calls>',
        json.dumps({"name": "multi_tool_use.parallel", "arguments": {"tool_uses": USES}}),
    ],
)
def test_m15_several_calls_are_read_in_order(text: str) -> None:
    """Calls behind each other, in a list or in the invented parallel wrapper are all read, in order."""
    assert calls(text) == [("lookup", {"q": "x"}), ("now", {})]


def test_m15_markup_inside_a_value_does_not_end_the_call() -> None:
    """A closing tag inside a string is a part of the string."""
    value = {"q": "</tool_call> } [TOOL_CALLS]"}
    assert calls(f"<tool_call>{json.dumps({'name': 'lookup', 'arguments': value})}</tool_call>") == [("lookup", value)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "The answer is 4.",
        f"The model writes <tool_call>{CALL}</tool_call> when it wants a tool.",
        f"<tool_call>{CALL}</tool_call> is how a call looks.",
        f"Let me check. <tool_call>{CALL}</tool_call>",
        f"Example:\n{FENCE}json\n{CALL}\n{FENCE}",
        f"{FENCE}json\n{CALL}\n{FENCE}\nThat is the format.",
        f"{CALL} and so on",
        "<tool_call>",
        "<tool_call></tool_call>",
        "[TOOL_CALLS]",
        "[]",
        "[1, 2]",
        "{}",
        f"{FENCE}\n{FENCE}",
        '{"name":"nope","arguments":{"q":"x"}}',
        '<tool_call>{"name":"nope","arguments":{"q":"x"}}</tool_call>',
        "[" + CALL + ',{"name":"nope","arguments":{}}]',
        '{"name":"Lookup","arguments":{"q":"x"}}',
        '{"name":"lookup"}',
        '{"name":"lookup","city":"Oslo"}',
        '{"name":"lookup","arguments":{"q":"x"},"price":3}',
        '{"name":"lookup","description":"Finds","parameters":{"type":"object","properties":{"q":{}}}}',
        '{"name":"lookup","parameters":{"type":"object","properties":{"q":{}}}}',
        '{"action":"FINISH","action_input":{"answer":"x"}}',
        '{"role":"assistant","content":"Hi","tool_calls":[' + CALL + "]}",
        '{"result":' + CALL + "}",
        '{"name":"lookup","arguments":{...}} is the shape of a call',
        '{"name": "lookup", ... } is it',
        f"<think>{CALL}</think>",
        f"<think>{CALL}",
        '"' + CALL.replace('"', '\\"') + '"',
        '{"name":"multi_tool_use.parallel","arguments":{"tool_uses":[{"recipient_name":"functions.nope","parameters":{}}]}}',
        "x" * 1_000_001,
    ],
)
def test_m15_anything_else_is_an_answer(text: str) -> None:
    """Words around the call, another shape, or a name that is not registered: the text is an answer."""
    assert parse_call_text(text, registered=TOOLS) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('<tool_call>{"name":"lookup","arguments":{"q":"x', Fault.TRUNCATED),
        ('<tool_call>{"name":"lookup","arguments":{"q":"x"}', Fault.TRUNCATED),
        ('{"name":"lookup","arguments":{"q":', Fault.TRUNCATED),
        ('{"name":"lookup"', Fault.TRUNCATED),
        ('[{"name":"lookup","arguments":{"q":', Fault.TRUNCATED),
        ('{"function":{"name":"lookup","arguments":"{', Fault.TRUNCATED),
        ('[TOOL_CALLS]lookup{"q":"x', Fault.TRUNCATED),
        ('<function=lookup>{"q":"x', Fault.TRUNCATED),
        ('<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>lookup<｜tool▁sep｜>{"q":"x', Fault.TRUNCATED),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup", Fault.TRUNCATED),
        ("<|tool_call_begin|>functions.lookup:0<|tool_call_argument_begin|>", Fault.TRUNCATED),
        ("<tool_call>lookup", Fault.TRUNCATED),
        ("<function=lookup></tool_call>", Fault.TRUNCATED),
        ("<tool_call>lookup\n<arg_key>q</arg_key>\n<arg_value>x", Fault.TRUNCATED),
        ("<tool_call>lookup\n<arg_key>q</arg_key>\n<arg_value>x</arg_value>\n</tool_call>", Fault.NOT_JSON),
        (
            '<function_calls><invoke name="lookup"><parameter name="q">x</parameter></invoke></function_calls>',
            Fault.NOT_JSON,
        ),
        ('<function_calls><invoke name="lookup"><parameter name="q">x', Fault.TRUNCATED),
        ("<function=lookup>", Fault.TRUNCATED),
        ("<tool_call><function=lookup><parameter=q>x", Fault.TRUNCATED),
        ("<function=lookup><parameter=q>x</parameter>", Fault.TRUNCATED),
        ("<function=lookup><parameter=q>x</parameter></function>", Fault.NOT_JSON),
        ("<tool_call>\n<function=lookup>\n<parameter=q>\nx\n</parameter>\n</function>\n</tool_call>", Fault.NOT_JSON),
        ('<tool_call>{"name":"lookup","arguments":{"q": oops}}</tool_call>', Fault.NOT_JSON),
        ('{"name":"lookup","arguments":{"q":"say "hi""}}', Fault.NOT_JSON),
        ('{"name":"lookup","arguments":{"q":„x"}}', Fault.AMBIGUOUS),
        ('{"name":"lookup","arguments":[1]}', Fault.NOT_OBJECT),
        ('{"name":"lookup","arguments":"{\\"q\\":"}', Fault.TRUNCATED),
        ('{"name":"lookup","arguments":{"q":1,"q":2}}', Fault.DUPLICATE_KEYS),
        ('<tool_call>{"name":"lookup","q":"x"}</tool_call>', Fault.MISSING),
        ('<tool_call>{"name":"lookup","kwargs":{"q":"x"}}</tool_call>', Fault.MISSING),
        ('<tool_call>{"name":"lookup","arguments":{},"q":"x"}</tool_call>', Fault.MISSING),
        ('[TOOL_CALLS][{"name":"lookup","arguments":{"q":"x"},"parameters":{}}]', Fault.MISSING),
    ],
)
def test_m15_a_cut_or_broken_call_is_no_answer_and_cannot_run(text: str, kind: Fault) -> None:
    """Markup of a registered tool that cannot be read is a call with malformed arguments, not an answer."""
    found = parse_call_text(text, registered=TOOLS)
    assert found is not None
    assert [call.name for call in found] == ["lookup"]
    assert isinstance(found[0].arguments, Malformed)
    assert found[0].arguments.kind is kind


def test_m15_a_call_without_arguments_before_another_is_a_call_too() -> None:
    """It is told as one that stops before its arguments; the markup of both is no answer, and the other one is read."""
    empty = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|><|tool_call_end|>"
    found = parse_call_text(empty + KIMI, registered=TOOLS)
    assert found is not None
    assert [(call.name, isinstance(call.arguments, Malformed)) for call in found] == [("now", True), ("lookup", False)]


def test_a_key_that_cannot_be_shown_is_written_out_in_the_detail() -> None:
    """What a model reads of its own odd key is on one line, and short."""
    text = '<tool_call>{"name":"lookup","q\ufeff\\n' + "x" * 99 + '":1}</tool_call>'
    found = parse_call_text(text, registered=TOOLS)
    assert found is not None
    assert isinstance(found[0].arguments, Malformed)
    assert found[0].arguments.detail.isprintable()
    assert len(found[0].arguments.detail) < 120


@pytest.mark.parametrize(
    "text",
    [
        "<function=now></function>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>now\n</tool_call>",
        '<function_calls>\n<invoke name="now">\n</invoke>\n</function_calls>',
    ],
)
def test_m15_a_closed_call_in_tags_without_arguments_has_none(text: str) -> None:
    """Nothing between a name and its closing tag is no arguments; that is no text that failed."""
    assert calls(text) == [("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        "<function=lookup><parameter=q>x</parameter></function> is how one calls",
        "<function=other><parameter=q>x</parameter></function>",
        "<function=other></function><function=now></function>",
        "<tool_call>now is the name</tool_call>",
        "<|tool_call_begin|>functions.lookup:0<|tool_call_argument_begin|> and its arguments",
    ],
)
def test_m15_text_about_a_call_in_tags_is_an_answer(text: str) -> None:
    """Words behind the tags, or a name that is not registered, make it an answer."""
    assert parse_call_text(text, registered=TOOLS) is None


# ------------------------------------------------------------------ thinking


@pytest.mark.parametrize(
    ("text", "thinking", "rest"),
    [
        ("<think>a</think>b", "a", "b"),
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("  <THINK>a</Think> b", "a", "b"),
        ("<thinking>a</thinking>b", "a", "b"),
        ("<reasoning>a</reasoning>b", "a", "b"),
        ("<thought>a</thought>b", "a", "b"),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<think>a</think>\n<think>c</think>\nb", "a\nc", "b"),
        ("<think>a</think><reasoning>c</reasoning>b", "a\nc", "b"),
        ("b\n<think>a</think>\nd", "a", "b\n\nd"),
        ("<think></think>b", "", "b"),
        ("<think>a", "a", ""),
        ('<think>a {"x": 1', 'a {"x": 1', ""),
        ("<think>a </thinking> b</think>c", "a </thinking> b", "c"),
        ("a\n</think>\n\nb", "a", "b"),
        ('use {"x": ... \n</think>\n{"y":1}', 'use {"x": ...', '{"y":1}'),
        ("so it is done.</think>b", "so it is done.", "b"),
    ],
)
def test_thinking_is_split_from_the_reply(text: str, thinking: str, rest: str) -> None:
    """Blocks at the start of a line are thinking, unclosed ones to the end, a lone closing tag from the start."""
    assert split_thinking(text) == (thinking, rest)


@pytest.mark.parametrize(
    "text",
    [
        "no tags",
        "  spaces stay \n",
        '{"html":"<think>x</think>"}',
        '{"html":"\\n<think>x</think>", "more": "</think>"}',
        '{"html":"<think>x</think>","cut',
        '{"html": oops,\n<think>x</think>',
        "Use <think>x</think> around thoughts.",
        "the tag is </think> and",
        "write `</think>` at the end",
        f"{FENCE}xml\n<think>x</think>\n{FENCE}",
        f"{FENCE}\n</think>\n{FENCE}",
        "a <thinker>b</thinker>",
        "x < think > y",
    ],
)
def test_thinking_is_not_seen_where_it_is_talked_about(text: str) -> None:
    """Inside objects, strings, fences or a sentence the tags are text, and all of it comes back as it is."""
    assert split_thinking(text) == ("", text)


# ------------------------------------------------------------------ M13: names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lookup", "lookup"),
        ("functions.lookup", "lookup"),
        ("function.lookup", "lookup"),
        ("tools.lookup", "lookup"),
        ("tool.lookup", "lookup"),
        ("default_api.lookup", "lookup"),
        ("functions/lookup", "lookup"),
        ("functions:lookup", "lookup"),
        (" lookup\n", "lookup"),
        ("`lookup`", "lookup"),
        ('"lookup"', "lookup"),
        ("**lookup**", "lookup"),
        (" `functions.lookup` ", "lookup"),
        ("lookup<|channel|>commentary", "lookup"),
        ("Lookup ", None),
        ("LOOKUP", None),
        ("look_up", None),
        ("lookups", None),
        ("lookup()", None),
        ("my.lookup", None),
        ("functions.functions.lookup", None),
        ("functions.", None),
        ("functions.nope", None),
        ("multi_tool_use.parallel", None),
        ("", None),
        ("   ", None),
        (None, None),
    ],
)
def test_m13_a_known_prefix_is_stripped_only_for_a_registered_name(written: str | None, meant: str | None) -> None:
    """Prefix, space and quotes go when what remains is registered; case and spelling are never guessed."""
    assert resolve_name(written, TOOLS) == meant


def test_m13_a_registered_name_wins_over_its_parts() -> None:
    """A tool whose own name has a prefix or a space is itself."""
    tools = {"functions.lookup", "lookup", " pad "}
    assert resolve_name("functions.lookup", tools) == "functions.lookup"
    assert resolve_name(" pad ", tools) == " pad "


@given(st.text(st.characters()) | st.none())
def test_m13_an_echoed_name_is_legal_for_every_provider(name: str | None) -> None:
    """Any name becomes 1 to 64 legal characters, and a legal one stays as it is."""
    legal = sanitise_name(name)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", legal)
    assert sanitise_name(legal) == legal


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("lookup", "lookup"),
        ("functions.lookup", "functions_lookup"),
        ("a b\n", "a_b"),
        ("查询", "__"),
        ("", "unnamed"),
        (None, "unnamed"),
    ],
)
def test_m13_illegal_characters_become_underscores(name: str | None, legal: str) -> None:
    """Dots, space and other alphabets are replaced; no name at all gets one."""
    assert sanitise_name(name) == legal


@pytest.mark.parametrize(
    "name", ["multi_tool_use.parallel", "functions.multi_tool_use.parallel", " multi_tool_use.parallel"]
)
def test_m13_the_parallel_wrapper_is_expanded(name: str) -> None:
    """The invented wrapper gives its calls in order, with their names as written."""
    assert expand_parallel(name, {"tool_uses": USES}) == [("functions.lookup", {"q": "x"}), ("functions.now", {})]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("lookup", {"tool_uses": USES}),
        (None, {"tool_uses": USES}),
        ("multi_tool_use.parallel", None),
        ("multi_tool_use.parallel", {}),
        ("multi_tool_use.parallel", {"tool_uses": []}),
        ("multi_tool_use.parallel", {"tool_uses": "x"}),
        ("multi_tool_use.parallel", {"tool_uses": [*USES, {"parameters": {}}]}),
        ("multi_tool_use.parallel", {"tool_uses": [*USES, "x"]}),
        ("multi_tool_use.parallel", {"tool_uses": [{"recipient_name": 3}]}),
    ],
)
def test_m13_anything_else_is_not_expanded(name: str | None, args: Any) -> None:
    """Another tool, or one use that has not the shape of a call: nothing of it is expanded."""
    assert expand_parallel(name, args) is None
