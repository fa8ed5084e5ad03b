"""One turn of the machine: what came of a state's effect, folded and fired. Pure; runs and trails both go by it."""

from __future__ import annotations

from dataclasses import replace

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context, Failure
from fsm_agent.effects import Broke, Cancelled, Outcome
from fsm_agent.machine import Fired, Machine
from fsm_agent.rounds import interrupted

__all__ = ["turn"]


def turn(machine: Machine, state: State, ctx: Context, outcome: Outcome | None) -> Fired:
    """The transition out of `state` after `outcome`. A cancellation and a fault of the engine lead out of any state.

    Raises what a state, guard or dialect raises, and `fsm_agent.errors.IllegalTransition`.
    """
    if isinstance(outcome, Cancelled):
        fired = machine.fire(state, Event.CANCELLED, interrupted(ctx, outcome.results, outcome.at))
        cause = fired.ctx.cause
        if outcome.why and cause is not None:
            return fired._replace(ctx=fired.ctx.change(cause=replace(cause, values={"why": outcome.why})))
        return fired
    if isinstance(outcome, Broke):
        failure = Failure("engine", state, f"{outcome.error}: {outcome.message}")
        return machine.fire(state, Event.BROKE, ctx.change(at=outcome.at, failure=failure))
    step = machine.behaviours[state].resolve(ctx, outcome)
    return machine.fire(state, step.event, step.ctx)
