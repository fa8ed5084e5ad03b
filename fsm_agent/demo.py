"""The demo: a small job with real tools (look up, compute, write down), and the check of what came out.

The orders are the demo data of `query_order`; what is right is computed here, from the same data, without any model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, cast

from pydantic import Field

from fsm_agent.language import Language
from fsm_agent.records import RunResult
from fsm_agent.tools.builtin import calculator, query_order
from fsm_agent.tools.confined import Root
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool, tool

__all__ = ["FILE", "SYSTEMS", "TASKS", "Check", "check", "demo_tools", "expected", "numbers_in"]

ORDERS: Final = ("SO-2024-001", "SO-2024-002")
FILE: Final = "total.txt"

TASKS: Final[Mapping[Language, str]] = MappingProxyType(
    {
        "en": f"Look up order {ORDERS[0]} and order {ORDERS[1]}, add up their totals with the calculator, "
        f"and write the sum to {FILE}.",
        "zh": f"查询订单 {ORDERS[0]} 和订单 {ORDERS[1]}，用计算器把两个订单的总额相加，把总和写入文件 {FILE}，"
        "最后用中文告诉我总和是多少。",
    }
)
SYSTEMS: Final[Mapping[Language, str]] = MappingProxyType(
    {
        "en": "You work step by step. You know no order, no number and no file yourself: only the tools do. Call one "
        "tool at a time, in the order of the task. Finish only when every part of the task has been done by a tool; "
        "the answer repeats what the tools returned.",
        "zh": "你一步一步地工作。你自己不知道任何订单、数字和文件，只有工具知道。"
        "每次只调用一个工具，按照任务的顺序进行。"
        "只有当任务的每一部分都已由工具完成时才能结束；答案要重复工具返回的结果，并且用中文写。",
    }
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold after the demo, whether it does, and what was found."""

    what: str
    holds: bool
    found: str


def demo_tools(folder: Path) -> Registry:
    """`query_order`, `calculator`, and a `write_file` that writes below `folder` only."""
    return Registry([query_order, calculator, _writer(Root(folder))])


def _writer(place: Root) -> Tool:
    @tool(idempotent=True, exclusive=True, not_for="a change of a part of a file")
    def write_file(
        path: Annotated[str, Field(description="Name of the file.", min_length=1, max_length=200)],
        content: Annotated[str, Field(description="The whole text of the file.")],
    ) -> str:
        """Write text to a file, replacing what it held."""
        place.write(path, content.encode())
        return f"Wrote {content!r} to {path}."

    return write_file


def expected() -> Decimal:
    """The right sum, from the data itself."""
    look_up = cast(Callable[..., Mapping[str, str]], query_order.func)
    return sum((Decimal(look_up(order_id=one)["total"]) for one in ORDERS), Decimal(0))


def check(result: RunResult, folder: Path) -> tuple[Check, ...]:
    """Whether the file holds the right sum, and the answer says it."""
    right = expected()
    try:
        written = (folder / FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        written = ""
    answer = result.answer or ""
    return (
        Check(f"{FILE} holds {right}", right in numbers_in(written), written or "no such file"),
        Check(f"the answer says {right}", right in numbers_in(answer), answer or "no answer"),
    )


def numbers_in(text: str) -> set[Decimal]:
    """The numbers in `text`; commas that group thousands are left out."""
    return {Decimal(one.replace(",", "")) for one in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
