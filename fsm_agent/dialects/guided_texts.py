"""What the `guided_json` dialect says, in English and Chinese, with examples of how a task is worked through.

The examples use tools that nobody's task has; what the server constrains can never name one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fsm_agent.language import Language

__all__ = ["GUIDES", "Example", "Guide", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of an example: its thought, what it does, what that gave, and what of the task was not used then."""

    thought: str
    action: str
    given: Mapping[str, Any]
    result: str = ""
    unused: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A task worked through: the lines of its tools, its text, the replies."""

    tools: str
    task: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """The sentences of one language. Braces are `str.format` fields."""

    rules: str
    tools: str
    task: str
    result: str
    failed: str
    refused: str
    unused: str
    comma: str
    known: str
    nothing: str
    ask: str
    ask_first: str
    answer: str
    examples: tuple[Example, ...]


_EN: Final = Guide(
    rules="You solve a task by calling tools, one at a time. Never compute or guess: every value comes from the task or from the "
    "result of a tool.\n"
    'Every reply is one JSON object: "thought" (one short sentence: what is known, what is missing), "solved" (true when nothing is '
    'missing), "action" (a tool, or {finish} when nothing is missing), "action_input" (of {finish}: "answer", one full sentence that '
    "tells the result).",
    tools="Tools:",
    task="Task: {task}",
    result="Result: {call} = {text}",
    failed="Failed: {call}: {text}",
    refused="Refused: {call}: {text}",
    unused="Not used yet: {values}",
    comma=", ",
    known="The result is {value}; nothing is missing.",
    nothing="Nothing is missing.",
    ask="Is something of the task still missing?",
    ask_first="What must be found out first?",
    answer="Now {finish} with the answer.",
    examples=(
        Example(
            "- half(number: number): Half of a number.\n- square(number: number): Square of a number.",
            "What is 14 squared?",
            (
                Turn("The square of 14 is missing.", "square", {"number": 14}, "196"),
                Turn("The square of 14 is 196; nothing is missing.", "FINISH", {"answer": "14 squared is 196."}),
            ),
        ),
        Example(
            "- find_author(book: string): Author of a book.\n- age_in(person: string, year: number): Age of a person in a year.",
            'How old was the author of the "Red Sails" book in 1998?',
            (
                Turn(
                    "The author of this book must be known first.",
                    "find_author",
                    {"book": "Red Sails"},
                    "Mara Quill",
                    "1998",
                ),
                Turn(
                    "The author is Mara Quill; her age in 1998 is missing.",
                    "age_in",
                    {"person": "Mara Quill", "year": 1998},
                    "37",
                ),
                Turn(
                    "The age is 37; nothing is missing.",
                    "FINISH",
                    {"answer": 'The author of "Red Sails", Mara Quill, was 37 years old in 1998.'},
                ),
            ),
        ),
    ),
)

_ZH: Final = Guide(
    rules="你通过调用工具来完成任务，每次只调用一个。不要自己计算或猜测：每个值都来自任务或工具的结果。\n"
    '每次只回复一个 JSON 对象："thought"（一句话：已知什么，还缺什么）、"solved"（什么都不缺时为 true）、'
    '"action"（一个工具；什么都不缺时用 {finish}）、"action_input"（{finish} 的是 "answer"，即说出结果的一句完整的中文）。',
    tools="工具：",
    task="任务：{task}",
    result="结果：{call} = {text}",
    failed="失败：{call}：{text}",
    refused="已拒绝：{call}：{text}",
    unused="还没有用到：{values}",
    comma="、",
    known="结果是 {value}；什么都不缺了。",
    nothing="什么都不缺了。",
    ask="任务还缺什么吗？",
    ask_first="首先要知道什么？",
    answer="现在用 {finish} 给出答案。",
    examples=(
        Example(
            "- half(number: number): 一个数的一半。\n- square(number: number): 一个数的平方。",
            "14 的平方是多少？",
            (
                Turn("还缺 14 的平方。", "square", {"number": 14}, "196"),
                Turn("14 的平方是 196；什么都不缺了。", "FINISH", {"answer": "14 的平方是 196。"}),
            ),
        ),
        Example(
            "- find_author(book: string): 查询某本书的作者。\n- age_in(person: string, year: number): 查询某人在某年的年龄。",
            "《红帆》这本书的作者 1998 年多大？",
            (
                Turn("首先要知道这本书的作者。", "find_author", {"book": "红帆"}, "马兰", "1998"),
                Turn("作者是马兰；还缺她 1998 年的年龄。", "age_in", {"person": "马兰", "year": 1998}, "37"),
                Turn("年龄是 37；什么都不缺了。", "FINISH", {"answer": "《红帆》的作者马兰 1998 年 37 岁。"}),
            ),
        ),
    ),
)

GUIDES: Final[Mapping[Language, Guide]] = MappingProxyType({"en": _EN, "zh": _ZH})
