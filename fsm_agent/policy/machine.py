"""A policy as the machine that it is: positions, and the calls that lead from one to another. For diagrams and certificates; pure.

Rules that share no tool do not touch each other, so each such group is a machine of its own. How often a tool was called is told only as
"used up" or not, for a bound above one: what may be called depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from fsm_agent.policy.reach import admits, connected
from fsm_agent.policy.rules import AtMost, Mark, Rule

__all__ = ["MOST_DRAWN", "Move", "PolicyMachine", "machines"]

MOST_DRAWN: Final = 40
"""Positions that one machine has at most; a group of rules that has more is taken apart, one machine for each rule."""


@dataclass(frozen=True, slots=True)
class Move:
    """A call of `tool` leads from a position to another. `outcome` is "succeeded" or "failed" where only that does, else "".

    `last_of` is the bound that the call uses up, where that is above one.
    """

    source: int
    target: int
    tool: str
    outcome: str = ""
    last_of: int = 0

    @property
    def label(self) -> str:
        """As "query_order succeeded", or "search, the last of 5"."""
        last = f", the last of {self.last_of}" if self.last_of else ""
        return f"{self.tool} {self.outcome}".rstrip() + last


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMachine:
    """Rules that are bound up with each other. Position 0 is the start; `free` are the tools of these rules that may be called at each."""

    rules: tuple[Rule, ...]
    names: tuple[str, ...]
    free: tuple[tuple[str, ...], ...]
    moves: tuple[Move, ...]


def machines(rules: Sequence[Rule]) -> tuple[PolicyMachine, ...]:
    """One machine for each group of rules that share tools, or for each rule of a group that is too large to read."""
    found: list[PolicyMachine] = []
    for group in connected(rules):
        whole = _explored(group)
        found += [whole] if whole is not None else [one for rule in group if (one := _explored((rule,), most=None))]
    return tuple(found)


def _explored(rules: tuple[Rule, ...], most: int | None = MOST_DRAWN) -> PolicyMachine | None:
    """The positions and moves of these rules; None when there are more than `most` positions."""
    tools = tuple(dict.fromkeys(tool for rule in rules for tool in rule.tools))
    positions = [tuple(rule.first for rule in rules)]
    numbers = {positions[0]: 0}
    free: list[tuple[str, ...]] = []
    ways: dict[tuple[int, int, str], set[str]] = {}
    for source, position in enumerate(positions):
        free.append(tuple(tool for tool in tools if admits(rules, position, tool)))
        for tool, outcome in product(free[-1], ("succeeded", "failed")):
            for after in _after(rules, position, tool, outcome):
                if after not in numbers:
                    numbers[after] = len(positions)
                    positions.append(after)
                ways.setdefault((source, numbers[after], tool), set()).add(outcome)
        if most is not None and len(positions) > most:
            return None
    moves = tuple(
        Move(
            source,
            target,
            tool,
            next(iter(outcomes)) if len(outcomes) == 1 else "",
            _last_of(rules, positions[source], positions[target]),
        )
        for (source, target, tool), outcomes in ways.items()
        if source != target
    )
    return PolicyMachine(
        rules=rules, names=tuple(_name(rules, one) for one in positions), free=tuple(free), moves=moves
    )


def _after(rules: Sequence[Rule], position: Sequence[Mark], tool: str, outcome: str) -> Iterator[tuple[Mark, ...]]:
    """The positions that a call may lead to: several where a rule counts."""
    choices: list[tuple[Mark, ...]] = []
    for rule, mark in zip(rules, position, strict=True):
        if isinstance(rule, AtMost):
            choices.append((mark,) if tool != rule.tool else (rule.times,) if rule.times == 1 else (mark, rule.times))
            continue
        begun = rule.began(mark, tool)
        choices.append((rule.succeeded(begun, tool) if outcome == "succeeded" else begun,))
    return product(*choices)


def _last_of(rules: Sequence[Rule], before: Sequence[Mark], after: Sequence[Mark]) -> int:
    """The bound above one that a move uses up; 0 for none."""
    used = [
        rule for rule, old, new in zip(rules, before, after, strict=True) if isinstance(rule, AtMost) and old != new
    ]
    return used[0].times if used and used[0].times > 1 else 0


def _name(rules: Sequence[Rule], position: Sequence[Mark]) -> str:
    """What the marks mean, each thing once."""
    said = [rule.said(mark) for rule, mark in zip(rules, position, strict=True)]
    plain = {one.removesuffix(" used up") + " called" for one in said if one.endswith(" used up")}
    return "; ".join(dict.fromkeys(one for one in said if one and one not in plain)) or "start"
