"""`ToolPolicy`: rules together, where a run stands in them, and what they make of the next call. Frozen data, pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Self

from fsm_agent.errors import PolicyError
from fsm_agent.language import Language
from fsm_agent.policy.reach import admits, culprit, reach
from fsm_agent.policy.rules import AtMost, Mark, NeverAfter, OneOf, Order, Rule
from fsm_agent.policy.stages import Stages
from fsm_agent.policy.wording import listed, phrased

__all__ = ["Position", "ToolPolicy"]

Position = tuple[Mark, ...]
"""Where a run stands: the mark of each rule, in the order of the rules. JSON data."""

_KINDS: Final[Mapping[str, type[Rule]]] = {one.kind: one for one in (Order, AtMost, NeverAfter, OneOf, Stages)}
_LISTS: Final = {"order": "tools", "one_of": "tools", "stages": "rows"}
"""What a rule of any number of names or rows has them under in JSON data."""


@dataclass(frozen=True, slots=True, init=False)
class ToolPolicy:
    """Which tool may be called where in a run: `ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay", 1))`.

    A call is let through when no rule refuses it; tools that no rule names are free. Raises `fsm_agent.errors.PolicyError`, naming the
    rule, for rules that contradict each other, or under which a tool could never be called.
    """

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule) -> None:
        object.__setattr__(self, "rules", rules)
        _check(rules)

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool that a rule names, in order."""
        return tuple(dict.fromkeys(tool for rule in self.rules for tool in rule.tools))

    @property
    def start(self) -> Position:
        """Where a run begins."""
        return tuple(rule.first for rule in self.rules)

    def began(self, position: Position, tool: str) -> Position:
        """The position once a call of `tool` has begun."""
        return tuple(rule.began(mark, tool) for rule, mark in zip(self.rules, position, strict=True))

    def succeeded(self, position: Position, tool: str, asked: str = "") -> Position:
        """The position once a call of `tool`, begun before, has succeeded.

        `asked` is the tool that the model called, where `tool` is its fallback: rules that do not name the fallback take it for that one.
        """
        return tuple(
            rule.succeeded(mark, tool if tool in rule.tools or not asked else asked)
            for rule, mark in zip(self.rules, position, strict=True)
        )

    def refusal(
        self,
        position: Position,
        tool: str,
        running: Sequence[str] = (),
        *,
        names: Iterable[str] = (),
        language: Language = "en",
    ) -> str:
        """Why a call of `tool` is refused at `position`, for the model, with those of `names` that it may call now; "" when it is not.

        `running` are the calls of the same reply that were let through before it; they run at the same time.
        """
        now = self._beside(position, running)
        for rule, mark in zip(self.rules, now, strict=True):
            why = rule.refusal(mark, tool, running, language)
            if why:
                free = [one for one in names if admits(self.rules, now, one, running)]
                hint = phrased(language, "now", tools=listed(language, free)) if free else phrased(language, "nothing")
                return phrased(language, "refused", why=why, now=hint)
        return ""

    def allows(self, position: Position, tool: str, running: Sequence[str] = ()) -> bool:
        """Whether a call of `tool` may begin at `position` beside `running`."""
        return admits(self.rules, self._beside(position, running), tool, running)

    def _beside(self, position: Position, running: Iterable[str]) -> Position:
        """The position once `running` have begun."""
        return reduce(self.began, running, position)

    def check_names(self, known: Collection[str]) -> None:
        """Raise `PolicyError`, naming the rule, when it names a tool that is not among `known`."""
        for rule in self.rules:
            for tool in rule.tools:
                if tool not in known:
                    raise PolicyError(
                        f"the policy names a tool {tool!r} that the agent does not have; it has {', '.join(known) or 'none'}",
                        rule=rule.sentence(),
                    )

    def told(self, language: Language) -> str:
        """The rules for the model, as a part of its system text."""
        return phrased(
            language, "told", rules=phrased(language, "end").join(rule.sentence(language) for rule in self.rules)
        )

    def to_data(self) -> dict[str, Any]:
        """As JSON data; `of` gives an equal policy back."""
        return {"rules": [rule.to_data() for rule in self.rules]}

    @classmethod
    def of(cls, data: Any) -> Self:
        """The policy that JSON data describes, as `to_data` gives it. Raises `PolicyError` for anything else."""
        rules = data.get("rules") if isinstance(data, Mapping) else None
        if not isinstance(rules, list) or set(data) != {"rules"}:
            raise PolicyError(f'a policy is an object with the one key "rules", a list; got {data!r:.200}')
        return cls(*(_rule(one) for one in rules))

    def __str__(self) -> str:
        return "\n".join(rule.sentence() for rule in self.rules)


def _rule(data: Any) -> Rule:
    kind: Any = _KINDS.get(str(data.get("rule"))) if isinstance(data, Mapping) else None
    if kind is None:
        raise PolicyError(f'{data!r:.200} is no rule: give "rule" as one of {", ".join(_KINDS)}')
    fields = {name: value for name, value in data.items() if name != "rule"}
    spread: Any = fields.pop(_LISTS[kind.kind], None) if kind.kind in _LISTS else []
    if not isinstance(spread, list):
        raise PolicyError(f"{data!r:.200}: a rule {kind.kind} has a list {_LISTS[kind.kind]}")
    try:
        made: Rule = kind(*spread, **fields)
    except TypeError as error:
        raise PolicyError(f"{data!r:.200} is no rule {kind.kind}: {error}") from error
    return made


def _check(rules: Sequence[Any]) -> None:
    if not rules:
        raise PolicyError("a policy has at least one rule; leave it out to allow everything")
    for at, rule in enumerate(rules):
        if type(rule) not in _KINDS.values():
            names = ", ".join(kind.__name__ for kind in _KINDS.values())
            raise PolicyError(f"{rule!r:.200} is no rule of a policy: use {names}")
        for other in rules[:at]:
            if other == rule or (isinstance(rule, AtMost) and isinstance(other, AtMost) and rule.tool == other.tool):
                raise PolicyError(f"two rules say the same: {other.sentence()}", rule=rule.sentence())
    for tool in dict.fromkeys(tool for rule in rules for tool in rule.tools):
        if reach(rules, tool) is None:
            blamed = culprit(rules, tool)
            raise PolicyError(f"{tool} could never be called under this policy", rule=blamed.sentence())
