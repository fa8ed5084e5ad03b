"""The rules that a policy is made of. Each is a small machine: a mark, what a call does to it, and which calls it refuses. Pure data.

A call *begins* when it is executed, whatever comes of it: one that failed, timed out or was in doubt may have had its effect. It has
*succeeded* when its result is no error. The engine's own retries of a call are the same call. Calls of one reply run at the same time, so
of each other they know only that they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from fsm_agent.errors import PolicyError
from fsm_agent.language import Language
from fsm_agent.policy.wording import counted, listed, phrased

__all__ = ["AtMost", "Mark", "NeverAfter", "OneOf", "Order", "Rule", "named"]

Mark = int | str


class Rule(Protocol):
    """One rule of a policy, as a machine. `kind` is its name in JSON data."""

    kind: ClassVar[str]

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool that it names."""
        ...

    @property
    def first(self) -> Mark:
        """Its mark when a run begins."""
        ...

    def began(self, mark: Mark, tool: str) -> Mark:
        """The mark once a call of `tool` has begun."""
        ...

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """The mark once a call of `tool`, begun before, has succeeded."""
        ...

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Why `tool` may not be called while `running` are under way and counted in `mark`; "" when it may."""
        ...

    def said(self, mark: Mark) -> str:
        """What `mark` means, for a diagram; "" for nothing yet."""
        ...

    def sentence(self, language: Language = "en") -> str:
        """The rule in words."""
        ...

    def to_data(self) -> dict[str, Any]:
        """As JSON data, `kind` under "rule"."""
        ...


def named(rule: str, names: Sequence[Any], least: int) -> tuple[str, ...]:
    """Tool names as a rule takes them. Raises `PolicyError` for fewer than `least`, a name twice, or what is no name."""
    for one in names:
        if not isinstance(one, str) or not one:
            raise PolicyError(f"{rule}: {one!r} is no name of a tool; give names as text, as in {rule}({'pay'!r}, ...)")
    if len(names) < least:
        raise PolicyError(f"{rule} takes at least {least} tools, got {', '.join(names) or 'none'}")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise PolicyError(
            f"{rule}({', '.join(names)}) names {twice[0]} twice: a tool cannot stand before or beside itself"
        )
    return tuple(names)


@dataclass(frozen=True, slots=True, init=False)
class Order:
    """Each of `tools` only after the one before it has succeeded: `Order("query_order", "discount", "pay")`. The mark is how many have.

    A tool whose turn has come may be called again at any time; that a fallback of it succeeded counts as well. As calls of one reply run at
    the same time, a tool and the one it waits for cannot stand in one reply.
    """

    kind: ClassVar[str] = "order"
    tools: tuple[str, ...]

    def __init__(self, *tools: str) -> None:
        object.__setattr__(self, "tools", named("Order", tools, 2))

    @property
    def first(self) -> Mark:
        """None of them has succeeded."""
        return 0

    def began(self, mark: Mark, tool: str) -> Mark:
        """That a call began says nothing."""
        return mark

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """One more, if it was its turn."""
        done = int(mark)
        return done + 1 if done < len(self.tools) - 1 and self.tools[done] == tool else done

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Refuse a tool before its turn."""
        done = int(mark)
        if tool not in self.tools[done + 1 :]:
            return ""
        turn = self.tools.index(tool)
        missing, before = self.tools[done:turn], self.tools[turn - 1]
        if missing == (before,) and before in running:
            return phrased(language, "order.together", tool=tool, before=before)
        return phrased(language, "order.missing", tool=tool, before=before, missing=listed(language, missing))

    def said(self, mark: Mark) -> str:
        """The last that succeeded."""
        return f"{self.tools[int(mark) - 1]} succeeded" if mark else ""

    def sentence(self, language: Language = "en") -> str:
        """As "discount only after query_order has succeeded; pay only after discount has succeeded"."""
        pairs = zip(self.tools[1:], self.tools, strict=False)
        said = [phrased(language, "order", tool=tool, before=before) for tool, before in pairs]
        return phrased(language, "end").join(said)

    def to_data(self) -> dict[str, Any]:
        """The names in order."""
        return {"rule": self.kind, "tools": list(self.tools)}


@dataclass(frozen=True, slots=True)
class AtMost:
    """`tool` at most `times` times in a run, whatever its arguments. Calls that failed, timed out or are in doubt count.

    The mark is how many began. A tool that is `once` is another thing: one and the same call, which may be made again when it failed.

    A call that a crash left in doubt counts once, also when a person has it run again.
    """

    kind: ClassVar[str] = "at_most"
    tool: str
    times: int = 1

    def __post_init__(self) -> None:
        named("AtMost", (self.tool,), 1)
        if type(self.times) is not int or self.times < 1:
            raise PolicyError(
                f"AtMost({self.tool}, {self.times}): give 1 or more; a tool that may never run is left out of the agent"
            )

    @property
    def tools(self) -> tuple[str, ...]:
        """The one tool."""
        return (self.tool,)

    @property
    def first(self) -> Mark:
        """None began."""
        return 0

    def began(self, mark: Mark, tool: str) -> Mark:
        """One more, up to the bound."""
        return min(int(mark) + 1, self.times) if tool == self.tool else mark

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """It was counted when it began."""
        return mark

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Refuse one call too many."""
        if tool != self.tool or int(mark) < self.times:
            return ""
        return phrased(language, "at_most.used", tool=tool, times=counted(language, self.times))

    def said(self, mark: Mark) -> str:
        """Used up, or how often it began."""
        if mark == self.times:
            return f"{self.tool} used up"
        return f"{self.tool} called {counted('en', int(mark))}" if mark else ""

    def sentence(self, language: Language = "en") -> str:
        """As "pay at most once"."""
        return phrased(language, "at_most", tool=self.tool, times=counted(language, self.times))

    def to_data(self) -> dict[str, Any]:
        """The tool and the bound."""
        return {"rule": self.kind, "tool": self.tool, "times": self.times}


@dataclass(frozen=True, slots=True)
class NeverAfter:
    """`tool` never once `after` was called, whatever came of that: `NeverAfter("cancel_order", after="pay")`. Nor at the same time."""

    kind: ClassVar[str] = "never_after"
    tool: str
    after: str

    def __post_init__(self) -> None:
        if self.tool == self.after:
            raise PolicyError(f"NeverAfter({self.tool}, after={self.after}): write AtMost({self.tool!r}, 1) for that")
        named("NeverAfter", (self.tool, self.after), 2)

    @property
    def tools(self) -> tuple[str, ...]:
        """Both."""
        return (self.tool, self.after)

    @property
    def first(self) -> Mark:
        """Not called yet."""
        return 0

    def began(self, mark: Mark, tool: str) -> Mark:
        """1 from the first call of `after` on."""
        return 1 if tool == self.after else mark

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """That it began is enough."""
        return mark

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Refuse `tool` from then on, and the two in one reply."""
        if tool == self.after and self.tool in running:
            return phrased(language, "never_after.together", tool=tool, other=self.tool)
        if tool == self.tool and mark:
            return phrased(language, "never_after.late", tool=tool, after=self.after)
        return ""

    def said(self, mark: Mark) -> str:
        """That it was called."""
        return f"{self.after} called" if mark else ""

    def sentence(self, language: Language = "en") -> str:
        """As "cancel_order never once pay was called"."""
        return phrased(language, "never_after", tool=self.tool, after=self.after)

    def to_data(self) -> dict[str, Any]:
        """Both names."""
        return {"rule": self.kind, "tool": self.tool, "after": self.after}


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Only one of `tools` in a run, as often as it likes: `OneOf("pay_by_card", "pay_by_invoice")`. The mark is the one that began."""

    kind: ClassVar[str] = "one_of"
    tools: tuple[str, ...]

    def __init__(self, *tools: str) -> None:
        object.__setattr__(self, "tools", named("OneOf", tools, 2))

    @property
    def first(self) -> Mark:
        """None is chosen."""
        return ""

    def began(self, mark: Mark, tool: str) -> Mark:
        """The first to begin is the one."""
        return tool if not mark and tool in self.tools else mark

    def succeeded(self, mark: Mark, tool: str) -> Mark:
        """That it began is enough."""
        return mark

    def refusal(self, mark: Mark, tool: str, running: Sequence[str], language: Language) -> str:
        """Refuse the others."""
        if tool not in self.tools or mark in ("", tool):
            return ""
        return phrased(language, "one_of.other", tools=listed(language, self.tools), other=str(mark))

    def said(self, mark: Mark) -> str:
        """The one that was chosen."""
        return f"{mark} chosen" if mark else ""

    def sentence(self, language: Language = "en") -> str:
        """As "only one of pay_by_card, pay_by_invoice"."""
        return phrased(language, "one_of", tools=listed(language, self.tools))

    def to_data(self) -> dict[str, Any]:
        """The names."""
        return {"rule": self.kind, "tools": list(self.tools)}
