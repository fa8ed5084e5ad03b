"""`fsm_agent`: an LLM agent whose loop is an explicit finite-state machine."""

from __future__ import annotations

from fsm_agent.agent import Agent
from fsm_agent.alphabet import Event, State, Status, StopReason
from fsm_agent.effects import Approve, Deny, Edit
from fsm_agent.errors import DefinitionError, FsmAgentError, RunError
from fsm_agent.limits import Limits
from fsm_agent.memory import Full, Window
from fsm_agent.records import RunResult, Token, Transitioned
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool, tool

__all__ = [
    "Agent",
    "Approve",
    "DefinitionError",
    "Deny",
    "Edit",
    "Event",
    "FsmAgentError",
    "Full",
    "Limits",
    "Registry",
    "RunError",
    "RunResult",
    "State",
    "Status",
    "StopReason",
    "Token",
    "Tool",
    "Transitioned",
    "Window",
    "tool",
]
