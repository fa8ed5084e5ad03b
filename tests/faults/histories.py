"""What the tests of family H share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import HumanMessage

from fsm_agent.history import Block, block
from fsm_agent.testing import call


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"sum {a + b}"


def calls_and(answer: str, count: int) -> list[Any]:
    """A script of `count` different calls, then the answer."""
    return [*(call("add", a=number, b=1) for number in range(count)), answer]


class Summarised:
    """A memory that keeps the task and the last `keep` blocks, and a summary in place of the others."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.heads: list[tuple[Block, ...]] = []

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """The task, a summary, the newest blocks."""
        task, *rest = history
        head, tail = rest[: -self.keep], rest[-self.keep :]
        if not head:
            return tuple(history)
        self.heads.append(tuple(head))
        return (task, block("summary", HumanMessage(f"Summary of {len(head)} rounds."), turn=task.turn), *tail)
