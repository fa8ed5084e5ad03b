"""Policies at random, and an oracle that judges what was executed by what the rules say; it shares nothing with what enforces them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from fsm_agent.errors import PolicyError
from fsm_agent.policy import AtMost, NeverAfter, OneOf, Order, Rule, Stages, ToolPolicy

STAGES = ("s0", "s1", "s2")


def policies(names: Sequence[str], *, most: int = 4) -> st.SearchStrategy[ToolPolicy]:
    """Policies over `names` that do not contradict themselves."""
    name = st.sampled_from(names)
    several = st.lists(name, min_size=2, max_size=3, unique=True)
    rows = st.lists(st.tuples(st.sampled_from(STAGES), name, st.sampled_from(STAGES)), min_size=1, max_size=5)
    rule = st.one_of(
        several.map(lambda tools: Order(*tools)),
        several.map(lambda tools: OneOf(*tools)),
        several.map(lambda tools: NeverAfter(tools[0], after=tools[1])),
        st.builds(AtMost, name, st.integers(1, 3)),
        rows.map(_stages),
    )
    return st.lists(rule, min_size=1, max_size=most).map(_made).filter(bool).map(lambda made: made[0])


def _stages(rows: list[tuple[str, str, str]]) -> Rule | None:
    try:
        return Stages(*rows)
    except PolicyError:
        return None


def _made(rules: list[Rule | None]) -> list[ToolPolicy]:
    try:
        return [ToolPolicy(*(rule for rule in rules if rule is not None))]
    except PolicyError:
        return []


Key = tuple[str, str]
"""A call: its id, and the tool that runs."""


@dataclass
class Oracle:
    """What was executed in a run, and what of it broke a rule."""

    policy: ToolPolicy
    begun: list[Key] = field(default_factory=list)
    succeeded: list[tuple[str, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def batch(self, calls: Sequence[Key]) -> None:
        """Calls that are about to run at the same time. One that has begun before is the same call, tried again."""
        for key in calls:
            others = [one for one in calls if one != key]
            self.broken += [
                f"{key} beside {others}: {rule}" for rule in self.policy.rules if not self._holds(rule, key, others)
            ]

    def began(self, key: Key) -> None:
        """A call ran, or may have."""
        if key not in self.begun:
            self.begun.append(key)

    def came(self, tool: str, asked: str) -> None:
        """A call succeeded; `asked` is the tool that the model had asked for."""
        self.succeeded.append((tool, asked))

    def _holds(self, rule: Rule, key: Key, others: Sequence[Key]) -> bool:
        tool = key[1]
        touched = {name for _, name in (*self.begun, *others)}
        if tool not in rule.tools:
            return True
        match rule:
            case Order(tools=tools):
                return self._in_order(tools[: tools.index(tool)])
            case AtMost(times=times):
                return len({one for one in (*self.begun, *others, key) if one[1] == tool}) <= times
            case NeverAfter(tool=late, after=after):
                return tool != late or after not in touched
            case OneOf(tools=tools):
                return not touched & (set(tools) - {tool})
            case Stages(rows=rows):
                stage = self._stage(rows)
                here = {name: target for at, name, target in rows if at == stage}
                beside = [name for _, name in others if name in rule.tools]
                alone = not beside or all(here.get(name) == stage for name in (tool, *beside))
                return tool in here and alone
        raise AssertionError(rule)

    def _in_order(self, tools: Sequence[str]) -> bool:
        """Whether `tools` have succeeded one after the other; what failed and a fallback mended counts."""
        left = list(tools)
        for tool, asked in self.succeeded:
            if left and left[0] in (tool, asked):
                left.pop(0)
        return not left

    def _stage(self, rows: Sequence[tuple[str, str, str]]) -> str:
        stage, known = rows[0][0], {tool for _, tool, _ in rows}
        for tool, asked in self.succeeded:
            name = tool if tool in known else asked
            stage = next((target for at, one, target in rows if (at, one) == (stage, name)), stage)
        return stage
