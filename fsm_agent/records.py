"""What a run leaves: one record for each transition, and the result. Frozen data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from langchain_core.messages import AnyMessage
from pydantic import BaseModel, ConfigDict, Field

from fsm_agent.alphabet import Event, State, Status, StopReason
from fsm_agent.effects import AskHuman, Call, Result, Usage
from fsm_agent.machine import Evaluated

__all__ = ["RESUME", "Request", "RunResult", "Token", "Transitioned"]

RESUME: Final = ": agent.resume"
"""Where, in the detail of a run that waits, it is said what for, and begins how code goes on with it."""


@dataclass(frozen=True, kw_only=True)
class Transitioned:
    """One transition of a run, as it is logged, streamed and kept in `RunResult.transitions`. Counts are those of the run so far.

    Attributes:
        run_id: The run.
        seq: The number of the transition, from 1.
        source: The state before it.
        event: What happened there.
        target: The state after it.
        guards: All guards that were asked, in order, with the values that they compared.
        step: The step that it belongs to, from 1; 0 before the first.
        tokens: Tokens used.
        estimated_tokens: How many of those were estimated.
        model_calls: Model calls made.
        tool_calls: Tool calls executed.
        failures: Failures in a row.
        tools: The tools of the calls of the open round, in order.
        signatures: The signatures of the same calls.
        repairs: What was repaired in the reply that was read, by name.
        elapsed_ms: Milliseconds since the transition before.
        at: Seconds since the run began.
        reason: Why the run stops, or leaves the ordinary path, by this row; None for most.
        error: What failed, redacted; "" when nothing did.
    """

    run_id: str
    seq: int
    source: State
    event: Event
    target: State
    guards: tuple[Evaluated, ...]
    step: int
    tokens: int
    estimated_tokens: int
    model_calls: int
    tool_calls: int
    failures: int
    tools: tuple[str, ...]
    signatures: tuple[str, ...]
    repairs: tuple[str, ...]
    elapsed_ms: float
    at: float
    reason: StopReason | None = None
    error: str = ""

    @classmethod
    def made_of(cls, fields: dict[str, Any]) -> Self:
        """The record with exactly these fields, all of them; the constructor would set them one by one, at twice the cost."""
        record = object.__new__(cls)
        object.__setattr__(record, "__dict__", fields)
        return record

    def __str__(self) -> str:
        asked = ", ".join(f"{guard.guard}={'yes' if guard.result else 'no'}" for guard in self.guards)
        return f"{self.seq:>4} {self.source} --{self.event}--> {self.target}{f' [{asked}]' if asked else ''}"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the reply while it arrives. Only for display: what counts is the finished reply."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person is asked about one call.

    Attributes:
        run_id: The run that waits.
        call_id: The call, by which a mapping of decisions names it.
        tool: The tool.
        arguments: Its validated arguments.
        why: "requires_approval", or "in_doubt" where a crash left open whether the call ran.
        digest: What a decision is bound to: `Approve(digest=...)` counts for exactly these arguments.
        expires_at: When the request expires, in seconds since the epoch; None for never.
    """

    run_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    why: str
    digest: str
    expires_at: float | None


class RunResult(BaseModel):
    """How a run ended, and everything it did.

    Attributes:
        run_id: The run; `Agent.resume` takes it.
        thread_id: The conversation that it belongs to, None without one.
        status: How it stands: what to branch on.
        reason: Why it stopped; None for a run that waits, unless a call is in doubt.
        answer: The answer, set for `completed` and `partial`; else None.
        detail: One sentence for a person, with the guard, the limit and the value.
        steps: Steps taken.
        model_calls: Model calls made.
        tool_calls: Tool calls executed.
        usage: Tokens used; `usage.estimated` of them were estimated.
        elapsed: Seconds, those in which it waited for a decision too (a pause does not count).
        transitions: Every transition, in order.
        messages: The history of this turn as valid LangChain messages, at the end the answer as the user reads it. Given back with a
            further question, they are the earlier turn in any dialect. Of a run that waits, what came before the reply that waits.
        calls: The calls that succeeded, in order.
        results: What each of `calls` gave.
        pending: What a person is asked, for `suspended`; None when nobody is.
        requests: The same, call by call.
        upcoming: The calls that a paused run is about to execute.
        trail_head: The seal of the newest entry of the trail, "" without a store. Kept elsewhere, it shows later that nothing was cut off.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    run_id: str
    thread_id: str | None = None
    status: Status
    reason: StopReason | None = None
    answer: str | None = None
    detail: str = ""
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Field(default_factory=Usage)
    elapsed: float = 0.0
    transitions: tuple[Transitioned, ...] = Field(default=(), repr=False)
    messages: list[AnyMessage] = Field(default_factory=list, repr=False)
    calls: tuple[Call, ...] = Field(default=(), repr=False)
    results: tuple[Result, ...] = Field(default=(), repr=False)
    pending: AskHuman | None = None
    requests: tuple[Request, ...] = ()
    upcoming: tuple[Call, ...] = ()
    trail_head: str = ""

    @classmethod
    def made_of(cls, **fields: Any) -> Self:
        """The result with exactly these fields, all of them, as the engine knows them: pydantic would look at each."""
        result = object.__new__(cls)
        fill = object.__setattr__
        fill(result, "__dict__", fields)
        fill(result, "__pydantic_fields_set__", set(fields))
        fill(result, "__pydantic_extra__", None)
        fill(result, "__pydantic_private__", None)
        return result

    @property
    def ok(self) -> bool:
        """True when the run was completed."""
        return self.status is Status.COMPLETED

    def path(self) -> tuple[State, ...]:
        """The states that the run went through, the first included."""
        if not self.transitions:
            return ()
        return (self.transitions[0].source, *(one.target for one in self.transitions))

    def guards_fired(self) -> Mapping[str, int]:
        """How often each guard held, by name."""
        return dict(Counter(guard.guard for one in self.transitions for guard in one.guards if guard.result))
