"""The context of a run: its extended state as one frozen value, and the setup that it runs under.

States return a changed copy; nothing ever changes a context in place. Folding the same outcomes gives an equal context, so
a context holds no clock, no randomness and nothing that is not data. `setup` is the definition of the agent, shared by all its runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fsm_agent.alphabet import StopReason
from fsm_agent.dialects.base import Dialect, Done
from fsm_agent.effects import NO_USAGE, Call, RawCall, Replied, Result, Usage
from fsm_agent.frozen import quick
from fsm_agent.history import Block
from fsm_agent.language import Language, Texts, texts_for
from fsm_agent.limits import Limits
from fsm_agent.memory.views import Memory
from fsm_agent.policy import Position, ToolPolicy
from fsm_agent.reflection import Reflect
from fsm_agent.temperature import Temperature, temperature_after
from fsm_agent.tools.registry import Registry

__all__ = ["Cause", "Context", "Failure", "Pending", "Seen", "Setup"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What an agent is: limits, tools and their policy, dialect, memory, system text, ladder. Shared by all runs, never changed by one.

    `simpler` are the names of the tools that the rung of that name leaves; `withhold` says whether a change of strategy withholds the
    tool that keeps failing.
    """

    limits: Limits
    tools: Registry
    dialect: Dialect
    memory: Memory
    system: str | None = None
    ladder: tuple[str, ...] = ("fallback", "default", "strategy", "simpler", "answer")
    simpler: tuple[str, ...] = ()
    withhold: bool = False
    temperature: Temperature = None
    policy: ToolPolicy | None = None
    reflect: Reflect | None = None
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """The newest failure. `of` is "model", "tool" or "reply"; `retryable` says whether trying the same again may help."""

    of: str
    what: str
    error: str
    retryable: bool = False
    retry_after: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class Seen:
    """How often in a row a signature was executed with the same result digest, and what was known before the newest execution."""

    digest: str
    count: int
    before: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a run left the ordinary path: the reason of the row that fired, with its guard and the values that it compared."""

    reason: StopReason
    guard: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """The reason, the guard and what it compared, for a person: "max_steps (steps_spent: steps=10, max_steps=10)"."""
        compared = ", ".join(f"{name}={value}" for name, value in self.values.items())
        told = ": ".join(part for part in (self.guard, compared) if part)
        return f"{self.reason} ({told})" if told else str(self.reason)


@dataclass(frozen=True, slots=True)
class Pending:
    """Calls that a person edited or the ladder chose, on their way to VALIDATE. `answers` is the call id that each one answers."""

    call: RawCall
    answers: str
    approved: bool = False
    instead_of: str = ""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that the next decision depends on. Times are seconds since the run began; counts start at 0.

    `reported` is, by signature, what is told of a call that may have taken effect: that its outcome is unknown, or what a person says it
    gave.
    In a fork, `seed` is the run that it came from, and `guarded` are the signatures of the calls that were made there, each with the
    transition from which on a call like it needs approval. `position` is where the run stands in the tool policy, () before the first call
    and without a policy. `rungs` are those that are taken once, and `withheld` the tools that were taken away. `useful_steps` are
    those with a new tool result, the newest of them number `useful_at`. `own` is what states of one's own keep.
    """

    setup: Setup = field(compare=False, repr=False)
    run_id: str
    task: str
    language: Language
    thread_id: str | None = None
    system: str | None = None
    turn: int = 0

    history: tuple[Block, ...] = ()
    round: Block | None = None
    seq: int = 0
    step: int = 0
    at: float = 0.0
    waited: float = 0.0

    usage: Usage = NO_USAGE
    model_calls: int = 0
    tool_calls: int = 0
    prompt_factor: float = 1.0
    room: int | None = None
    overflows: int = 0
    gave_way: int = 0
    summary_failed_at: int = 0
    reflections: int = 0
    reflected_at: int = 0
    go_on: bool = True
    setback: str = ""

    failures: int = 0
    successes: int = 0
    idle_steps: int = 0
    useful_steps: int = 0
    useful_at: int = 0
    nudges: int = 0
    degradations: int = 0
    fallbacks: frozenset[str] = frozenset()
    rungs: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    attempt: int = 1
    failure: Failure | None = None

    reply: Replied | None = None
    pending: tuple[Pending, ...] = ()
    asked: tuple[Call, ...] = ()
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    fresh: tuple[Result, ...] = ()
    call_ids: frozenset[str] = frozenset()
    note: str = ""
    note_kind: str = ""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    recent: tuple[tuple[str, str], ...] = ()
    learned: frozenset[tuple[str, str]] = frozenset()
    done: tuple[Done, ...] = ()
    position: Position = ()
    denied: frozenset[str] = frozenset()
    reported: Mapping[str, str] = field(default_factory=dict)
    guarded: Mapping[str, int] = field(default_factory=dict)
    seed: str = ""
    stop_requested: bool = False

    own: Mapping[str, Any] = field(default_factory=dict)

    cause: Cause | None = None
    forced: bool = False
    answer: str | None = None
    repairs: tuple[str, ...] = ()

    limits: Limits = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", self.setup.limits)

    def change(self, **changes: Any) -> Self:
        """A copy with `changes`. A misspelt name raises `TypeError`."""
        values = self.__dict__ | changes
        if len(values) != len(self.__dict__):
            raise TypeError(f"Context has no {sorted(changes.keys() - self.__dict__.keys())}")
        if "setup" in changes:
            values["limits"] = changes["setup"].limits
        copy = object.__new__(type(self))
        object.__setattr__(copy, "__dict__", values)
        return copy

    @property
    def origin(self) -> str:
        """What ids and jitter are derived from: the run, or the one that it was forked from, so that a fork folds as that one did."""
        return self.seed or self.run_id

    @property
    def texts(self) -> Texts:
        """What the model reads, in the language of this run."""
        return texts_for(self.language)

    @property
    def system_text(self) -> str:
        """The agent's system text (its own, else the default of the language), its tool policy, then what came with the task."""
        own = self.own_system_text
        if self.setup.policy is not None:
            own = f"{own}\n\n{self.setup.policy.told(self.language)}".strip()
        return f"{own}\n\n{self.system}".strip() if self.system else own

    @property
    def own_system_text(self) -> str:
        """The agent's system text alone."""
        return self.texts.system if self.setup.system is None else self.setup.system

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The history with the open round."""
        return (*self.history, self.round) if self.round is not None else self.history

    @property
    def step_cap(self) -> int:
        """Steps that this run may take, as it stands."""
        return self.limits.step_cap(self.useful_steps)

    @property
    def temperature(self) -> float | None:
        """What the next model call is made with; None leaves it to the model."""
        return temperature_after(self.setup.temperature, self.successes)

    @property
    def elapsed(self) -> float:
        """Seconds of the run that count for the deadline: all but the waiting for a person."""
        return self.at - self.waited

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline (0 when it has passed), None without one."""
        limit = self.setup.limits.deadline
        return None if limit is None else max(limit - self.elapsed, 0.0)
