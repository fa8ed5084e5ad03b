"""The alphabet of the machine: states, events, and how a run can end.

A table of one's own adds names to it (`State.named`). Such a name is a `State` like any other, one object for as long as it is in use,
so that `is` holds for it too; iterating over `State` gives those of this package.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from fsm_agent.names import OpenNames

__all__ = ["INITIAL", "TERMINAL", "Event", "State", "Status", "StopReason"]


class State(OpenNames):
    """Where a run is. `REVIEW` waits for a person; `FINISH` and `ABORT` are terminal."""

    PLAN = "PLAN"
    VALIDATE = "VALIDATE"
    REVIEW = "REVIEW"
    EXECUTE = "EXECUTE"
    OBSERVE = "OBSERVE"
    DECIDE = "DECIDE"
    RETRY = "RETRY"
    DEGRADE = "DEGRADE"
    FINISH = "FINISH"
    ABORT = "ABORT"


INITIAL: Final = State.PLAN
TERMINAL: Final = frozenset({State.FINISH, State.ABORT})


class Event(OpenNames):
    """What happened, as a past participle. A state returns one; the table turns it into the next state."""

    REPLIED = "replied"
    MODEL_FAILED = "model_failed"
    WITHHELD = "withheld"
    COMPACTED = "compacted"
    SUMMARY_FAILED = "summary_failed"
    OVERFLOWED = "overflowed"
    GAVE_WAY = "gave_way"
    REFLECTED = "reflected"
    REFLECTION_FAILED = "reflection_failed"
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    THOUGHT = "thought"
    REJECTED = "rejected"
    APPROVED = "approved"
    EDITED = "edited"
    DENIED = "denied"
    EXPIRED = "expired"
    EXECUTED = "executed"
    DOUBTED = "doubted"
    OBSERVED = "observed"
    DECIDED = "decided"
    WAITED = "waited"
    FALLBACK_CHOSEN = "fallback_chosen"
    DEFAULTED = "defaulted"
    STRATEGY_CHANGED = "strategy_changed"
    SIMPLIFIED = "simplified"
    ANSWER_FORCED = "answer_forced"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"
    BROKE = "broke"


class Status(StrEnum):
    """How a run stands, for the code that branches on it. `partial`: an answer was forced at a limit."""

    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"


class StopReason(OpenNames):
    """Why a run stopped. Every ending has exactly one. A row to ABORT of one's own may add a reason (`named`)."""

    ANSWERED = "answered"
    FORCED_ANSWER = "forced_answer"
    MAX_STEPS = "max_steps"
    MAX_TOOL_CALLS = "max_tool_calls"
    TOKEN_BUDGET = "token_budget"
    DEADLINE = "deadline"
    CONSECUTIVE_FAILURES = "consecutive_failures"
    REPEATED_ACTION = "repeated_action"
    NO_PROGRESS = "no_progress"
    REFLECTION = "reflection"
    EMPTY_REPLY = "empty_reply"
    MODEL_FAILED = "model_failed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"
    INTERNAL_ERROR = "internal_error"
