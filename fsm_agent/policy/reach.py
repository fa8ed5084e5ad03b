"""How soon the rules let a tool be called, if ever. Pure.

Without stages the answer is exact and cheap: what a tool waits for has to succeed, each once, in an order that no rule forbids; a call more
never helps. With stages the positions are searched, by calls that succeed: one that fails only uses something up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from fsm_agent.errors import PolicyError
from fsm_agent.policy.rules import Mark, NeverAfter, OneOf, Order, Rule
from fsm_agent.policy.stages import Stages

__all__ = ["MOST", "Reach", "admits", "connected", "culprit", "reach"]

MOST: Final = 20_000
"""Positions that are searched at most."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The least that it takes until a tool can have been called: `steps` (exact without stages, else at least so many), and `calls`."""

    steps: int
    calls: int


def admits(rules: Sequence[Rule], position: Sequence[Mark], tool: str, running: Sequence[str] = ()) -> bool:
    """Whether no rule refuses a call of `tool` at this position, in which `running` are under way and counted."""
    return not any(rule.refusal(mark, tool, running, "en") for rule, mark in zip(rules, position, strict=True))


def connected(rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], ...]:
    """The rules in groups that share no tool, each in order. What happens in one group changes nothing in another."""
    groups: list[list[Rule]] = []
    for rule in rules:
        near = [group for group in groups if any(set(rule.tools) & set(one.tools) for one in group)]
        groups = [group for group in groups if group not in near] + [[*(one for group in near for one in group), rule]]
    return tuple(tuple(sorted(group, key=rules.index)) for group in sorted(groups, key=lambda one: rules.index(one[0])))


def reach(rules: Sequence[Rule], tool: str) -> Reach | None:
    """How soon `tool` can be called under these rules; None when it never can.

    Raises `PolicyError` for stages that are bound up with too many other rules to be searched.
    """
    near = next((group for group in connected(rules) if any(tool in rule.tools for rule in group)), ())
    plain = _plain(near, tool)
    stages = [rule for rule in near if isinstance(rule, Stages)]
    if plain is None or not stages:
        return plain
    calls = _searched(near, tool)
    return None if calls is None else Reach(max(plain.steps, *(_moves(rule, tool) for rule in stages)), calls)


def culprit(rules: Sequence[Rule], tool: str) -> Rule:
    """Of rules under which `tool` can never be called, one without which it could, the last that is so; else the last that names it."""
    for rule in reversed(rules):
        if reach([one for one in rules if one is not rule], tool) is not None:
            return rule
    return next(rule for rule in reversed(rules) if tool in rule.tools)


def _plain(rules: Sequence[Rule], tool: str) -> Reach | None:
    """By every rule but the stages."""
    before: dict[str, set[str]] = {}
    waiting = [tool]
    while waiting:
        name = waiting.pop()
        if name not in before:
            orders = [rule.tools for rule in rules if isinstance(rule, Order) and name in rule.tools]
            before[name] = {one for tools in orders for one in tools[: tools.index(name)]}
            waiting.extend(before[name])
    for rule in rules:
        if isinstance(rule, OneOf) and len(before.keys() & set(rule.tools)) > 1:
            return None
        if isinstance(rule, NeverAfter) and rule.tool in before and rule.after in before:
            before[rule.after].add(rule.tool)
    steps = _longest(before, tool)
    return None if steps is None else Reach(steps, len(before))


def _longest(before: Mapping[str, Iterable[str]], tool: str) -> int | None:
    """The longest chain that ends in `tool`; None when something waits for itself."""
    turns: dict[str, int] = {}
    try:
        for name in TopologicalSorter(before).static_order():
            turns[name] = 1 + max((turns[one] for one in before[name]), default=0)
    except CycleError:
        return None
    return turns[tool]


def _searched(rules: Sequence[Rule], tool: str) -> int | None:
    """The fewest calls up to one of `tool`."""
    useful = {one for rule in rules if isinstance(rule, Stages) for one in rule.tools}
    useful |= {one for rule in rules if isinstance(rule, Order) for one in rule.tools[:-1]}
    start = tuple(rule.first for rule in rules)
    calls, waiting = {start: 0}, [start]
    for position in waiting:
        if admits(rules, position, tool):
            return calls[position] + 1
        if len(calls) > MOST:
            raise PolicyError(
                f"these rules allow more than {MOST:,} positions, too many to search for {tool}: use fewer of them beside the stages",
                rule=next(rule for rule in rules if isinstance(rule, Stages)).sentence(),
            )
        for name in sorted(useful):
            if admits(rules, position, name):
                after = tuple(
                    rule.succeeded(rule.began(mark, name), name) for rule, mark in zip(rules, position, strict=True)
                )
                if after not in calls:
                    calls[after] = calls[position] + 1
                    waiting.append(after)
    return None


def _moves(rule: Stages, tool: str) -> int:
    """Steps that the stages alone take: a call that leaves its stage is the only one of them in its step."""
    steps, waiting = {rule.rows[0][0]: 1}, [rule.rows[0][0]]
    for here in waiting:
        if tool not in rule.tools or rule.target(here, tool) is not None:
            return steps[here]
        for stage, _, target in rule.rows:
            if stage == here and target not in steps:
                steps[target] = steps[here] + 1
                waiting.append(target)
    return 1
