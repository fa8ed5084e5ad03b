"""`run_until`: a real run of an agent, stopped on its way into a state, to look at and to go on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fsm_agent.agent import Agent
from fsm_agent.alphabet import TERMINAL, State, Status
from fsm_agent.context import Context
from fsm_agent.definition import check_types
from fsm_agent.effects import Decision, Effect
from fsm_agent.machine import Machine
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.runs import Pauses
from fsm_agent.testing.asserts import describe_run
from fsm_agent.testing.named import member
from fsm_agent.trail.changes import Change
from fsm_agent.trail.replay import replay

__all__ = ["StoppedRun", "run_until"]


@dataclass(frozen=True, kw_only=True)
class StoppedRun:
    """A run that stands before `state`: nothing of that state has happened yet.

    `context` is what it knows (None at the end of a run, where `result` says all), `effect` what the state would ask for (None for one that
    only computes), `result` what the run has come to so far. `go_on` lets it run to its end, `until` to another state.
    """

    agent: Agent = field(repr=False)
    state: State
    context: Context | None = field(repr=False)
    effect: Effect | None
    result: RunResult

    @property
    def transitions(self) -> tuple[Transitioned, ...]:
        """The transitions so far."""
        return self.result.transitions

    def go_on(self, change: Change | None = None) -> RunResult:
        """Let the run go on to its end, or to where it waits for a person. `change` gives it other limits, arguments or memory."""
        return self.agent.resume(self.result.run_id, change=change)

    def until(self, state: State | str, *, change: Change | None = None) -> StoppedRun:
        """Let the run go on to `state`, which it may enter again. Raises as `run_until` does."""
        __tracebackhide__ = True
        with _pausing(self.agent, state) as wanted:
            waiting = self.agent._runner.slots.waiting.get(self.result.run_id)
            if waiting is not None:
                waiting.pauses = self.agent._pauses
            result = self.agent.resume(self.result.run_id, change=change)
        return _stopped(self.agent, wanted, result)

    def decide(self, decision: Decision) -> RunResult:
        """Let the run go on, and answer for a person where it waits for one at once."""
        result = self.go_on()
        return self.agent.resume(result.run_id, decision=decision) if result.pending is not None else result


def run_until(agent: Agent, state: State | str, task: Any, config: Any = None) -> StoppedRun:
    """Run `task` until it is about to enter `state`, with the agent's own model and tools, and stop there.

    For a terminal state, run to the end. Raises `AssertionError`, with the path that was taken, when the run never comes to that state.
    """
    __tracebackhide__ = True
    check_types(agent=agent)
    with _pausing(agent, state) as wanted:
        result = agent.invoke(task, config)
    return _stopped(agent, wanted, result)


@contextmanager
def _pausing(agent: Agent, state: State | str) -> Iterator[State]:
    """The agent with a pause before one state alone, and afterwards with those that it had. A run ends by itself in a terminal state."""
    before: Pauses = agent._pauses
    wanted = member(State, state, "state", agent.machine.states)
    agent.pause_at(*({wanted} - TERMINAL))
    try:
        yield wanted
    finally:
        agent._pauses = before


def _stopped(agent: Agent, wanted: State, result: RunResult) -> StoppedRun:
    __tracebackhide__ = True
    machine = agent.machine
    if wanted in TERMINAL and result.path()[-1:] == (wanted,):
        return StoppedRun(agent=agent, state=wanted, context=None, effect=None, result=result)
    found = _found(agent, result, machine)
    if found is None or found[0] is not wanted:
        raise AssertionError(f"the run never came to {wanted}\n{describe_run(result)}")
    state, ctx = found
    effect = machine.behaviours[state].enter(ctx)
    return StoppedRun(agent=agent, state=state, context=ctx, effect=effect, result=result)


def _found(agent: Agent, result: RunResult, machine: Machine) -> tuple[State, Context] | None:
    """Where a paused run stands, and what it knows; None when it is not paused. A stored run is read from its trail."""
    if result.status is not Status.SUSPENDED:
        return None
    run = agent._runner.slots.waiting.get(result.run_id)
    if run is not None:
        # The pause was for this once; a run that goes on has those of its agent.
        run.pauses = agent._pauses
        return (run.state, run.ctx) if run.paused else None
    folded = replay(agent.journal.entries(result.run_id), agent.setup, machine=machine).folded
    return (folded.state, folded.ctx) if folded.paused else None
