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
from fsm_agent.frozen import fast_init
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
    """What an agent is. Shared by all its runs, never changed by one.

    Attributes:
        limits: The numbers that guards compare with.
        tools: The tools that the model may call.
        dialect: How the model is asked and read.
        memory: What the model sees of the history.
        system: The system text, None for the default of the run's language.
        ladder: The rungs, in the order in which they are tried.
        simpler: Names of the tools that the rung "simpler" leaves.
        withhold: True when a change of strategy takes away the tool that keeps failing.
        temperature: That of model calls, None for the model's own.
        policy: Which tool may be called where in a run, None for any anywhere.
        reflect: When the model is asked whether to go on, None for never.
        memo: Values derived from the other fields, kept because making them costs; never part of a decision.
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


@fast_init
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

    Attributes:
        setup: The definition of the agent.
        run_id: Names the run, and its trail.
        task: The text of the current task.
        language: What the model is spoken to in.
        thread_id: The conversation that the run belongs to, None without one.
        system: The system text that came with the task, None without one.
        turn: Which user turn of the conversation this run is, from 0.

        history: The blocks before the open round.
        round: The newest round or note; it joins `history` with the next reply.
        seq: Transitions so far.
        step: Steps so far: rounds that began with a model call. A call that forces the answer is none.
        at: When the newest outcome came.
        waited: Seconds that the run waited for a person, which the deadline does not count.

        usage: Tokens of all model calls, those of summaries and reflections too.
        model_calls: Model calls made, failed ones too.
        tool_calls: Tool calls executed, retries too.
        prompt_factor: What estimates of prompts are multiplied by, as the server or the token counter counted the newest one.
        room: Tokens that the view of the history is cut to since a server refused a larger prompt, None before that.
        overflows: How often a prompt was refused as too large.
        gave_way: How often a request was made again without something that the server refuses.
        summary_failed_at: Rounds in the history when a summary failed last, 0 when none has since the newest summary.
        reflections: How often the model was asked to reflect.
        reflected_at: The step after which that was last.
        go_on: What the model said then: False stops the run.
        setback: What went wrong beside `failure` (a prompt refused, a summary, a fallback's arguments), for the record of a transition.

        failures: Failures in a row; one success ends them.
        successes: Batches of calls in a row with a success among them.
        idle_steps: Steps in a row without a new tool result.
        useful_steps: Steps with a new tool result, in the whole run.
        useful_at: The newest of them.
        nudges: How often the model was told that its reply was empty.
        degradations: Rungs of the ladder that were taken.
        fallbacks: The fallbacks that were tried, as `fsm_agent.ladder.rung_key` names them.
        rungs: The rungs that are taken once, and were.
        withheld: Names of the tools that were taken away.
        attempt: Which attempt at a model call or a batch this is, from 1.
        failure: The newest failure, None when a reply has come since.

        reply: The newest reply.
        pending: Calls on their way to VALIDATE that did not come from the model.
        asked: The calls of the reply, as VALIDATE left them.
        calls: The calls that the run is about to make, or has made: those of `asked`, as edited or replaced by fallbacks.
        results: Results of the open round, one a call: the newest.
        fresh: Results that OBSERVE has not looked at yet, one for each attempt.
        call_ids: Ids of the calls of this run and its conversation; a new call gets another one.
        note: What the model is told of a reply without usable calls.
        note_kind: Why it is told that: "empty", "thought", "malformed", "truncated" and so on.
        seen: By signature, how often in a row a call gave the same result.
        recent: The newest (signature, result digest) pairs, in which cycles are looked for.
        learned: The (tool, result digest) pairs of all successes: what is not among them is progress.
        done: The calls of this run that succeeded, with their results.
        position: Where the run stands in the tool policy; () before the first call, and without a policy.
        denied: Signatures of the calls that a person refused.
        reported: By signature, what is told of a call that may have taken effect: that its outcome is unknown, or what a person says.
        guarded: In a fork, by signature, the transition from which on a call needs approval, as the original run has made it.
        seed: In a fork, the id of the run that it came from; "" otherwise.
        stop_requested: True when a person refused a call and asked to stop the run.

        own: What states of one's own keep, as plain JSON data.

        cause: Why the run left the ordinary path, None as long as it has not.
        forced: True once an answer is forced.
        answer: The answer, None before it is there.
        repairs: What was repaired in the newest reply, by name.
        limits: Those of `setup`.
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
