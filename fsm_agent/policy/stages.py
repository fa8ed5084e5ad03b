"""`Stages`: a rule written as a machine of its own, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fsm_agent.errors import PolicyError
from fsm_agent.language import Language
from fsm_agent.policy.rules import Mark, named
from fsm_agent.policy.wording import listed, phrased

__all__ = ["Stages"]

_ROW = 3


@dataclass(frozen=True, slots=True, init=False)
class Stages:
    """Rows (stage, tool, next stage): a tool that any row names may be called only in a stage that has a row for it.

    `Stages(("open", "search", "open"), ("open", "choose", "chosen"), ("chosen", "pay", "paid"))`. It begins in the stage of the first
    row. A call that succeeds moves on; one that fails leaves the stage as it was (`AtMost` bounds how often it is tried). Calls that stay
    in their stage may stand in one reply, one that leaves it only alone among the tools named here.
    """

    kind: ClassVar[str] = "stages"
    rows: tuple[tuple[str, str, str], ...]

    def __init__(self, *rows: Sequence[str]) -> None:
        object.__setattr__(self, "rows", tuple(_row(row) for row in rows))
        _check(self)

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool of a row, in order."""
        return tuple(dict.fromkeys(tool for _, tool, _ in self.rows))

    @property
    def first(self) -> Mark:
        """The stage of the first row."""
        return self.rows[0][0]

    def target(self, mark: Mark, tool: str) -> str | None:
        """Where a call of `tool` leads from the stage `mark`; None when there is no row for it."""
        return next((target for stage, name, target in self.rows if (stage, name) == (mark, tool)), None)

    def began(self, mark: Mark, tool: str) -> Mark:
        """A call that began has not moved on."""
        return mark

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """The stage that its row leads to."""
        target = self.target(mark, tool)
        return mark if target is None else target

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Refuse a tool that the stage has no row for, and what cannot run beside another of these tools."""
        if tool not in self.tools:
            return ""
        target = self.target(mark, tool)
        if target is None:
            allowed = listed(language, (name for stage, name, _ in self.rows if stage == mark))
            return phrased(language, "stages.elsewhere", tool=tool, stage=str(mark), allowed=allowed)
        for other in running:
            if other in self.tools and (target != mark or self.target(mark, other) != mark):
                return phrased(language, "stages.together", tool=tool, other=other)
        return ""

    def said(self, mark: Mark) -> str:
        """The stage."""
        return str(mark)

    def sentence(self, language: Language = "en") -> str:
        """Each row in words."""
        rows = [
            phrased(language, "stages.row", stage=stage, tool=tool, target=target) for stage, tool, target in self.rows
        ]
        return phrased(language, "stages", tools=listed(language, self.tools), rows=listed(language, rows))

    def to_data(self) -> dict[str, Any]:
        """The rows."""
        return {"rule": self.kind, "rows": [list(row) for row in self.rows]}


def _row(row: Sequence[str]) -> tuple[str, str, str]:
    given = tuple(row) if isinstance(row, list | tuple) else (row,)
    if len(given) != _ROW or not all(isinstance(one, str) and one for one in given):
        raise PolicyError(f"Stages: {row!r} is no row; write (stage, tool, next stage), three texts")
    stage, tool, target = given
    return stage, tool, target


def _check(rule: Stages) -> None:
    """Raise `PolicyError` for no rows, two rows for one stage and tool, or a stage that cannot be come to."""
    if not rule.rows:
        raise PolicyError("Stages takes at least one row (stage, tool, next stage)")
    named("Stages", rule.tools, 1)
    places = [(stage, tool) for stage, tool, _ in rule.rows]
    for stage, tool in dict.fromkeys(places):
        if places.count((stage, tool)) > 1:
            raise PolicyError(f"Stages: there are two rows for {tool} in {stage}; where it leads must be one stage")
    found, waiting = {rule.first}, [rule.first]
    while waiting:
        here = waiting.pop()
        further = {target for stage, _, target in rule.rows if stage == here} - found
        found |= further
        waiting.extend(further)
    lost = next((stage for stage, _, _ in rule.rows if stage not in found), None)
    if lost is not None:
        raise PolicyError(f"Stages: no row leads to the stage {lost} from the first one, {rule.first}")
