"""`fsm_agent`: an LLM agent whose loop is an explicit finite-state machine.

Names are imported when they are first used, so that `import fsm_agent` alone costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fsm_agent.agent import Agent
    from fsm_agent.alphabet import Event, State, Status, StopReason
    from fsm_agent.effects import Answer, Approve, Deny, Edit
    from fsm_agent.errors import DefinitionError, FsmAgentError, RunError
    from fsm_agent.limits import Limits
    from fsm_agent.memory import (
        DualBuffer,
        Full,
        HistoryConversations,
        InMemoryConversations,
        KeyFacts,
        MessageWindow,
        Recall,
        RedisConversations,
        SQLiteConversations,
        SummaryWindow,
        Window,
    )
    from fsm_agent.records import Request, RunResult, Token, Transitioned
    from fsm_agent.reflection import Reflect
    from fsm_agent.temperature import Cooling
    from fsm_agent.tools.registry import Registry
    from fsm_agent.tools.results import ToolResult
    from fsm_agent.tools.spec import Tool, tool
    from fsm_agent.trail.changes import Change

__all__ = [
    "Agent",
    "Answer",
    "Approve",
    "Change",
    "Cooling",
    "DefinitionError",
    "Deny",
    "DualBuffer",
    "Edit",
    "Event",
    "FsmAgentError",
    "Full",
    "HistoryConversations",
    "InMemoryConversations",
    "KeyFacts",
    "Limits",
    "MessageWindow",
    "Recall",
    "RedisConversations",
    "Reflect",
    "Registry",
    "Request",
    "RunError",
    "RunResult",
    "SQLiteConversations",
    "State",
    "Status",
    "StopReason",
    "SummaryWindow",
    "Token",
    "Tool",
    "ToolResult",
    "Transitioned",
    "Window",
    "tool",
]

_HOMES: Final = {
    "Agent": "agent",
    "Answer": "effects",
    "Approve": "effects",
    "Change": "trail.changes",
    "Cooling": "temperature",
    "DefinitionError": "errors",
    "Deny": "effects",
    "DualBuffer": "memory",
    "Edit": "effects",
    "Event": "alphabet",
    "FsmAgentError": "errors",
    "Full": "memory",
    "HistoryConversations": "memory",
    "InMemoryConversations": "memory",
    "KeyFacts": "memory",
    "Limits": "limits",
    "MessageWindow": "memory",
    "Recall": "memory",
    "RedisConversations": "memory",
    "Reflect": "reflection",
    "Registry": "tools.registry",
    "Request": "records",
    "RunError": "errors",
    "RunResult": "records",
    "SQLiteConversations": "memory",
    "State": "alphabet",
    "Status": "alphabet",
    "StopReason": "alphabet",
    "SummaryWindow": "memory",
    "Token": "records",
    "Tool": "tools.spec",
    "ToolResult": "tools.results",
    "Transitioned": "records",
    "Window": "memory",
    "tool": "tools.spec",
}


if not TYPE_CHECKING:  # or any name at all could be imported, as `Any`

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'fsm_agent' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"fsm_agent.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
