"""A run in a process of its own, which kills itself at a chosen instant; and the same agent to go on with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from fsm_agent import Agent, Full, Limits
from fsm_agent.observe import silent_logger
from fsm_agent.tools import CallInfo, Tool, tool
from fsm_agent.trail import Batch, RunInfo, SQLiteTrail, Stored

__all__ = ["RUN_ID", "STEPS", "Instant", "Place", "agent_of", "calls_of_step", "done_in", "live"]

RUN_ID: Final = "killed"
STEPS: Final = 10


@dataclass(frozen=True)
class Instant:
    """When to die: at the n-th durable write or the n-th effect (counted from 1), before or after it."""

    number: int
    of: str
    when: str

    def __str__(self) -> str:
        return f"{self.when} {self.of} {self.number}"


@dataclass(frozen=True)
class Place:
    """Where a run and its effects are written, and what its tools are."""

    folder: Path
    idempotent: bool
    in_doubt: str = "review"

    @property
    def store(self) -> Path:
        """The trail."""
        return self.folder / "runs.db"

    @property
    def effects(self) -> Path:
        """One line for each effect that the world has seen."""
        return self.folder / "effects.log"


def calls_of_step(step: int) -> list[tuple[int, str]]:
    """The calls of a step: two at once in every other one."""
    return [(step, side) for side in (("left", "right") if step % 2 else ("left",))]


def done_in(place: Place) -> list[str]:
    """What the world has seen."""
    return place.effects.read_text().splitlines() if place.effects.exists() else []


class _Life:
    """Counts writes and effects, and ends at the instant."""

    def __init__(self, instant: Instant | None) -> None:
        self._instant = instant
        self._counts = {"write": 0, "effect": 0}

    def begins(self, of: str) -> int:
        self._counts[of] += 1
        self._die(self._counts[of], of, "before")
        return self._counts[of]

    def ends(self, of: str, number: int) -> None:
        self._die(number, of, "after")

    def _die(self, number: int, of: str, when: str) -> None:
        if self._instant == Instant(number, of, when):
            os.kill(os.getpid(), signal.SIGKILL)


class _MortalStore:
    """A store whose process dies around a write."""

    def __init__(self, store: SQLiteTrail, life: _Life) -> None:
        self._store = store
        self._life = life

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        number = self._life.begins("write")
        written = self._store.append(batch, here=here)
        written.result()
        self._life.ends("write", number)
        return written

    def read(self, run_id: str) -> Sequence[Stored]:
        return self._store.read(run_id)

    def value(self, run_id: str, digest: str) -> bytes:
        return self._store.value(run_id, digest)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        return self._store.claim(run_id, owner, lease, time)

    def runs(self) -> Sequence[RunInfo]:
        return self._store.runs()

    def info(self, run_id: str) -> RunInfo:
        return self._store.info(run_id)

    def close(self) -> None:
        self._store.close()


class _Counting(BaseChatModel):
    """Asks for the calls of the step that the history has come to; the same in every process."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        step = sum(isinstance(one, AIMessage) for one in messages) + 1
        calls = [
            {"name": "charge", "args": {"step": number, "side": side}, "id": f"c{number}{side}", "type": "tool_call"}
            for number, side in calls_of_step(step)
        ]
        reply = AIMessage("all charged") if step > STEPS else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _charge(place: Place, life: _Life) -> Tool:
    @tool(idempotent=place.idempotent)
    def charge(step: int, side: str, info: CallInfo) -> str:
        """Charge a card."""
        number = life.begins("effect")
        line = f"{info.idempotency_key} {step} {side}"
        # A service that takes an idempotency key does nothing the second time.
        if not (place.idempotent and line in done_in(place)):
            descriptor = os.open(place.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, f"{line}\n".encode())
            os.fsync(descriptor)
            os.close(descriptor)
        life.ends("effect", number)
        return f"charged {step} {side}"

    return charge


def agent_of(place: Place, instant: Instant | None = None) -> Agent:
    """The agent; with an instant, its process dies there."""
    life = _Life(instant)
    return Agent(
        _Counting(),
        [_charge(place, life)],
        store=_MortalStore(SQLiteTrail(place.store), life),
        memory=Full(),
        limits=Limits(max_steps=STEPS + 2, token_budget=None, in_doubt=place.in_doubt),
        logger=silent_logger(),
    )


def live(place: Place, instant: Instant, resuming: bool) -> None:
    """Begin the run, or go on with it, until the instant."""
    agent = agent_of(place, instant)
    if resuming:
        agent.resume(RUN_ID)
    else:
        agent.invoke("charge everybody", {"configurable": {"run_id": RUN_ID}})
