"""What is wrong with a tool call, in words that the model can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Protocol

from fsm_agent.language import Language
from fsm_agent.tools.plain import well_formed
from fsm_agent.tools.results import cut

__all__ = ["Problem", "phrase", "problem", "render", "shown_value", "unknown_tool"]

_MAX_PROBLEMS: Final = 8
_MAX_CHARS: Final = 2_000
_MAX_NAMES: Final = 64
_VALUE_CHARS: Final = 40


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the arguments of a call.

    `field` is a dotted path (`items[0].price`), "" for the arguments as a whole. `kind` is one of missing, unknown,
    type, choice, bound, length, pattern, format, rule, number, text, depth, size. `message` says in English what would
    be right and never repeats what was given: that is in `got` (kind and a short value), which a log may leave out.
    `allowed` are the values, limits or field names that would be right.
    """

    field: str
    kind: str
    message: str
    allowed: tuple[str, ...] = ()
    got: str = ""


class _Named(Protocol):
    """What `render` asks of a tool."""

    @property
    def name(self) -> str: ...

    def parameters(self) -> dict[str, Any]: ...


_EN: Final = {
    "missing": "is missing ({0}, required)",
    "unknown": "does not exist",
    "type": "must be {0}",
    "choice": "must be one of {all}",
    "bound": "must be {all}",
    "length": "must have {0} {1}",
    "pattern": "must match {all}",
    "format": "must be a valid {0}",
    "number": "must be a finite number",
    "text": "holds a broken character (half of a surrogate pair)",
    "depth": "is nested too deeply (at most {0} levels)",
    "size": "is too large (at most {0})",
}
_ZH: Final = {
    "missing": "缺失（{0}，必填）",
    "unknown": "不存在",
    "type": "必须是 {0}",
    "choice": "必须是以下之一：{all}",
    "bound": "必须 {all}",
    "length": "长度必须 {0}（{1}）",
    "pattern": "必须匹配 {all}",
    "format": "必须是合法的 {0}",
    "number": "必须是有限的数",
    "text": "含有损坏的字符（不成对的代理项）",
    "depth": "嵌套过深（最多 {0} 层）",
    "size": "过大（最多 {0}）",
}


def phrase(kind: str, allowed: Sequence[str], language: Language) -> str:
    """What would be right, as the end of a sentence about the field; "" for a kind that has none (`rule`)."""
    template = (_EN if language == "en" else _ZH).get(kind, "")
    joined = ", ".join(allowed)
    parts = [*allowed, "", ""]
    return template.replace("{all}", joined).replace("{0}", parts[0]).replace("{1}", parts[1])


def shown_value(value: object) -> str:
    """The kind of a value as JSON names it, with a short text of it: `string "fal..."`, `integer 5`, `array of 3`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean {'true' if value else 'false'}"
    if isinstance(value, str):
        return f"string {json.dumps(cut(well_formed(value), _VALUE_CHARS, '...'), ensure_ascii=False)}"
    if isinstance(value, int):
        return f"integer {value}" if value.bit_length() <= 4 * _VALUE_CHARS else "integer (too long to show)"
    if isinstance(value, float):
        return f"number {value!r}"
    if isinstance(value, (list, tuple)):
        return f"array of {len(value)}"
    return "object" if isinstance(value, dict) else f"a Python {type(value).__name__}"


def problem(field: str, kind: str, allowed: tuple[str, ...] = (), got: object = None) -> Problem:
    """A `Problem` with the English sentence of its kind; `got` is the value itself, None for one that is not shown."""
    return Problem(field, kind, phrase(kind, allowed, "en"), allowed, "" if got is None else shown_value(got))


def render(problems: Iterable[Problem], tool: _Named, language: Language = "en") -> str:
    """The text for the model: `query_order: field "order_id" is missing (string, required). Fields: order_id, ...`.

    At most 8 problems and about 2,000 characters; nothing in it depends on anything but its arguments.
    """
    found = list(problems)
    sentences = [_sentence(one, language) for one in found[:_MAX_PROBLEMS]]
    if len(found) > _MAX_PROBLEMS:
        more = len(found) - _MAX_PROBLEMS
        sentences.append(f"{more} more problems" if language == "en" else f"还有 {more} 个问题")
    fields = list(tool.parameters().get("properties", {}))
    text = f"{tool.name}: {'; '.join(sentences)}." if language == "en" else f"{tool.name}：{'；'.join(sentences)}。"
    return f"{cut(text, _MAX_CHARS, '...')}{_fields(fields, language)}"


def _sentence(one: Problem, language: Language) -> str:
    english = language == "en"
    said = one.message if english else (phrase(one.kind, one.allowed, "zh") or one.message)
    got = ""
    if one.got and one.kind not in ("missing", "unknown"):
        got = f", got {one.got}" if english else f"，得到的是 {one.got}"
    near = ""
    if one.kind == "unknown":
        near = _suggestion(one.field.rpartition(".")[2], one.allowed, language)
        if "." in one.field and one.allowed:
            listed = ", ".join(one.allowed[:_MAX_NAMES])
            near += f" (fields there: {listed})" if english else f"（该处的字段：{listed}）"
    if not one.field:
        return f"the arguments: {said}{got}" if english else f"参数：{said}{got}"
    name = json.dumps(cut(well_formed(one.field), 2 * _VALUE_CHARS, "..."), ensure_ascii=False)
    return f"field {name} {said}{near}{got}" if english else f"字段 {name} {said}{near}{got}"


def _suggestion(name: str, names: Sequence[str], language: Language) -> str:
    close = get_close_matches(name[:64], names, n=1, cutoff=0.75)
    if not close:
        return ""
    return f' (did you mean "{close[0]}"?)' if language == "en" else f"（是否想用 “{close[0]}”？）"


def _fields(names: Sequence[str], language: Language) -> str:
    listed = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
    if language == "en":
        return f" Fields: {listed}." if names else " It takes no arguments: send {}."
    return f"可用字段：{listed}。" if names else "它没有参数：请发送 {}。"


def unknown_tool(name: str, names: Iterable[str], language: Language = "en") -> str:
    """The text for the model that called a tool which does not exist: the name it used, and those that exist."""
    known = list(names)
    listed = ", ".join(known[:_MAX_NAMES]) + (", ..." if len(known) > _MAX_NAMES else "")
    shown = json.dumps(cut(well_formed(name), _VALUE_CHARS, "..."), ensure_ascii=False)
    if language == "en":
        there = f"Tools: {listed}." if known else "There are no tools: give the final answer."
        return f"There is no tool {shown}. {there}"
    there = f"可用的工具：{listed}。" if known else "没有任何工具：请直接给出最终答案。"
    return f"没有名为 {shown} 的工具。{there}"
