"""Reads a reply that is, as a whole, one or more tool calls written as text instead of being sent as calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from typing import Any, Final

from fsm_agent.dialects.repair.names import expand_parallel, resolve_name
from fsm_agent.dialects.repair.reader import Break, read_value
from fsm_agent.dialects.repair.reading import parse_arguments, value_of
from fsm_agent.dialects.repair.thinking import split_thinking
from fsm_agent.dialects.repair.vocabulary import MAX_CHARS, CallText, Fault, Malformed, Parsed, Repair, quoted

__all__ = ["parse_call_text"]

_TAGS: Final = "tool_calls?|function_calls?|tools?_call|functioncall|tool_use"
_MARKUP: Final = re.compile(
    rf"</?(?:{_TAGS}|function)>|<\|/?(?:{_TAGS}|python_tag|eom_id|eot_id|im_end|end|{_TAGS}_(?:start|end))\|>"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>|<\|tool_calls_section_(?:begin|end)\|>|<\|tool_call_end\|>"
    r"|<｜(?:tool▁calls▁(?:begin|end)|tool▁call▁end|end▁of▁sentence)｜>"
    r"|\[/?TOOL_CALLS\]|\[/?TOOL_CALL\]|functools(?=\s*\[)|(?:`{3,}|~{3,})[A-Za-z_]*|[,;\s]+",
    re.IGNORECASE,
)
_NAME: Final = "[A-Za-z0-9_.:-]{1,128}"
_NAMED_MARKUP: Final = re.compile(
    rf"<function=({_NAME})>|\[TOOL_CALLS\]\s*({_NAME})\s*+(?:\[ARGS\])?(?=\s*\{{)"
    rf"|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?({_NAME})(?:<｜tool▁sep｜>|(?=\s|\Z))"  # DeepSeek
    rf"|<\|tool_call_begin\|>\s*({_NAME}?)(?::[0-9]+)?\s*<\|tool_call_argument_begin\|>"  # Kimi
    rf'|<invoke name="({_NAME})">|<tool_call>\s*({_NAME})(?=\s*(?:<arg_key>|</tool_call>|\Z))'  # the last: GLM
)
_CLOSED_BY: Final = {"<f": "function", "<i": "invoke", "<t": "tool_call"}
"""The closing tag of a call in tags, by the beginning of its opening one."""
_TAGGED: Final = re.compile(
    r"\s*+((?:(?:<parameter[= ](?:(?!</parameter>).)*+(?:</parameter>|\Z)|<arg_key>(?:(?!</arg_value>).)*+(?:</arg_value>|\Z))\s*+)*+)"
    r"(?:</(function|invoke|tool_call)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_BROKEN_HEAD: Final = re.compile(
    r"[\[\s]*\{\s*[\"'“](?:name|action|tool|tool_name|function)[\"'”]\s*:\s*(?:\{\s*[\"'“]name[\"'”]\s*:\s*)?"
    r"[\"'“]([^\"'“”\\]{1,128})[\"'”]\s*(?:[,}]|\Z)"
)
_ARGUMENT_KEYS: Final = {
    "name": ("arguments", "parameters", "args", "input"),
    "action": ("action_input", "input", "arguments"),
    "tool": ("tool_input", "arguments", "parameters", "args", "input"),
    "tool_name": ("tool_input", "arguments", "parameters", "args", "input"),
    "function": ("arguments", "parameters", "args"),
}
_MESSAGE_KEYS: Final = frozenset({"role", "content", "tool_calls"})
_BESIDE: Final = frozenset({"id", "type", "index", "call_id", "tool_call_id", "thought", "reasoning"})
_NO_ARGUMENTS: Final = Malformed(Fault.TRUNCATED, "the call stops before its arguments")


def parse_call_text(text: str, *, registered: Container[str]) -> tuple[CallText, ...] | None:
    """The calls that the whole of `text` is, in order; None when it is an answer.

    Read are objects such as `{"name", "arguments"}`, `{"action", "action_input"}` and `{"function": {...}}`, bare, in a
    list, fenced, or in the usual markup (`<tool_call>`, `[TOOL_CALLS]`, `<function=name>`, the tokens of DeepSeek and Kimi...),
    after thinking or not.
    Any other word in the text, or one name that is not registered, makes it an answer. A call of a registered tool that
    is cut or broken is still a call: its arguments are `Malformed`, so that markup is never shown as an answer.
    """
    if not text.strip() or len(text) > MAX_CHARS:
        return None
    body = split_thinking(text)[1]
    passed = (Repair.CALL_AS_TEXT,) if body == text else (Repair.THINKING, Repair.CALL_AS_TEXT)
    body = body.strip()
    calls: list[CallText] = []
    at, hint, marked = 0, None, False
    while at < len(body):
        if (named := _NAMED_MARKUP.match(body, at)) is not None:
            name = resolve_name(named[named.lastindex or 0], registered)
            if name is None:
                return None
            if hint is not None:
                calls.append(CallText(hint, _NO_ARGUMENTS))
            hint, at, marked = name, named.end(), True
            if (tagged := _TAGGED.match(body, at)) is not None and tagged[2] in (None, _CLOSED_BY.get(named[0][:2])):
                calls.append(CallText(name, _tagged(*tagged.groups())))
                at, hint = tagged.end(), None
        elif (markup := _MARKUP.match(body, at)) is not None:
            marked = marked or markup.group()[0] in "<[f"
            at = markup.end()
        elif body[at] in "{[":
            read = _read(body, at, hint, registered, marked=marked)
            if read is None:
                return None
            at, hint = read[1], None
            calls += read[0]
        else:
            return None
    if hint is not None:
        calls.append(CallText(hint, _NO_ARGUMENTS))
    return tuple(_with(call, passed) for call in calls) or None


def _tagged(parameters: str, end: str | None) -> Parsed | Malformed:
    """What stands behind a name in the place of an object. A value in a tag is a text of no type, so it is not guessed."""
    if not end:
        return Malformed(Fault.TRUNCATED, "the call stops before its end")
    if parameters:
        return Malformed(Fault.NOT_JSON, "the arguments stand in tags, not in a JSON object")
    return Parsed({})


def _with(call: CallText, passed: tuple[Repair, ...]) -> CallText:
    return CallText(call.name, replace(call.arguments, repairs=(*passed, *call.arguments.repairs)))


def _read(
    body: str, at: int, hint: str | None, registered: Container[str], *, marked: bool
) -> tuple[list[CallText], int] | None:
    """The calls of the value at `body[at]` and where it ends; None when it is no call of a registered tool."""
    found = read_value(body, at)
    if isinstance(found, Break):
        return _read_broken(body, found, hint, registered)
    decoded = value_of(found)
    if isinstance(decoded, Malformed):
        name = resolve_name(hint or _name_in(body, at), registered)
        return ([CallText(name, decoded)], found.end) if name else None
    if hint is not None:
        shapes: list[tuple[str, Any]] | None = [(hint, decoded.value)]
    else:
        shapes = _shapes(decoded.value, marked=marked)
    calls = None if shapes is None else _resolved(shapes, found.repairs, registered)
    return None if calls is None else (calls, found.end)


def _read_broken(
    body: str, found: Break, hint: str | None, registered: Container[str]
) -> tuple[list[CallText], int] | None:
    """A broken call of a registered tool; with words behind its last bracket it is text about a call."""
    name = resolve_name(hint or _name_in(body, found.start), registered)
    if name is None or (found.kind is not Fault.TRUNCATED and body[-1] not in "}]>|`"):
        return None
    return [CallText(name, Malformed(found.kind, found.detail))], len(body)


def _name_in(body: str, at: int) -> str | None:
    head = _BROKEN_HEAD.match(body, at)
    return head.group(1) if head else None


def _shapes(value: Any, *, marked: bool) -> list[tuple[str, Any]] | None:
    """The `(name, arguments)` pairs that a value is; None when any part of it is something else."""
    if isinstance(value, Mapping) and set(value) <= _MESSAGE_KEYS and not value.get("content"):
        value = value.get("tool_calls")
    if isinstance(value, list):
        shapes = [_shape(item, marked=marked) for item in value]
        return None if not shapes or None in shapes else [shape for shape in shapes if shape is not None]
    shape = _shape(value, marked=marked)
    return None if shape is None else [shape]


def _shape(value: Any, *, marked: bool) -> tuple[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    if isinstance(inner, Mapping):
        plain = set(value) <= {"function", *_BESIDE} and "function" not in inner
        return _shape(inner, marked=marked) if plain else None
    for name_key, argument_keys in _ARGUMENT_KEYS.items():
        if not isinstance(value.get(name_key), str):
            continue
        rest = set(value) - {name_key} - _BESIDE
        key = next((key for key in argument_keys if key in rest), None)
        if rest == {key} and not _is_schema(value[key]):
            return value[name_key], value[key]
        if marked and not (rest and _is_schema(value.get(key or ""))):
            return value[name_key], _misplaced(rest) if rest else None
    return None


def _misplaced(keys: Collection[str]) -> Malformed:
    """Markup says that it is a call: what stands in it is never shown as an answer, nor is a part of it left out."""
    return Malformed(Fault.MISSING, f'one object "arguments" must hold all arguments, found {quoted(sorted(keys))}')


def _is_schema(arguments: Any) -> bool:
    """The description of a tool has a name and parameters too; it is text about a tool."""
    return isinstance(arguments, Mapping) and arguments.get("type") == "object" and "properties" in arguments


def _resolved(
    shapes: list[tuple[str, Any]], repairs: tuple[Repair, ...], registered: Container[str]
) -> list[CallText] | None:
    calls: list[CallText] = []
    for written, arguments in shapes:
        for name, given in _expanded(written, arguments, registered):
            resolved = resolve_name(name, registered)
            if resolved is None:
                return None
            parsed = given if isinstance(given, Malformed) else parse_arguments(given)
            calls.append(CallText(resolved, replace(parsed, repairs=(*repairs, *parsed.repairs))))
    return calls


def _expanded(name: str, arguments: Any, registered: Container[str]) -> list[tuple[str, Any]]:
    uses = None if resolve_name(name, registered) else expand_parallel(name, arguments)
    return [(name, arguments)] if uses is None else uses
