"""The states: for each, what it asks for on entry (`enter`) and what it makes of the outcome (`resolve`). All pure.

A state returns an event, never a target: where it leads is the table's business alone.
"""

from __future__ import annotations

if __name__ != "fsm_agent.states":
    raise ImportError("import fsm_agent.states, not states: the folder is part of the package fsm_agent")

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fsm_agent.alphabet import State
from fsm_agent.states import abort, decide, degrade, execute, finish, observe, plan, retry, review, validate
from fsm_agent.states.base import Behaviour, Ending, Step

__all__ = ["BEHAVIOURS", "Behaviour", "Ending", "Step"]

BEHAVIOURS: Final[Mapping[State, Behaviour]] = MappingProxyType(
    {
        State.PLAN: Behaviour(plan.EVENTS, plan.enter, plan.resolve),
        State.VALIDATE: Behaviour(validate.EVENTS, validate.enter, validate.resolve),
        State.REVIEW: Behaviour(review.EVENTS, review.enter, review.resolve),
        State.EXECUTE: Behaviour(execute.EVENTS, execute.enter, execute.resolve),
        State.OBSERVE: Behaviour(observe.EVENTS, observe.enter, observe.resolve),
        State.DECIDE: Behaviour(decide.EVENTS, decide.enter, decide.resolve),
        State.RETRY: Behaviour(retry.EVENTS, retry.enter, retry.resolve),
        State.DEGRADE: Behaviour(degrade.EVENTS, degrade.enter, degrade.resolve),
    }
)
ENDINGS: Final = MappingProxyType({State.FINISH: finish.conclude, State.ABORT: abort.conclude})
