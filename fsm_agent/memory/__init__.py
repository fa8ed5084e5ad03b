"""Memory: pure views of the history (`Full`, `Window`, ...), and conversations kept between runs.

The stores outside this process are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.memory.buffer import DualBuffer
from fsm_agent.memory.conversations import Conversations, InMemoryConversations
from fsm_agent.memory.facts import KeyFacts
from fsm_agent.memory.recall import Recall
from fsm_agent.memory.summary import SummaryWindow
from fsm_agent.memory.views import Full, Memory, MessageWindow, Window

if TYPE_CHECKING:
    from fsm_agent.memory.langchain_store import HistoryConversations
    from fsm_agent.memory.redis_store import RedisConversations
    from fsm_agent.memory.sqlite_store import SQLiteConversations

__all__ = [
    "Conversations",
    "DualBuffer",
    "Full",
    "HistoryConversations",
    "InMemoryConversations",
    "KeyFacts",
    "Memory",
    "MessageWindow",
    "Recall",
    "RedisConversations",
    "SQLiteConversations",
    "SummaryWindow",
    "Window",
]

_STORES: Final = {
    "HistoryConversations": "langchain_store",
    "RedisConversations": "redis_store",
    "SQLiteConversations": "sqlite_store",
}


if not TYPE_CHECKING:  # or any name at all could be imported, as `Any`

    def __getattr__(name: str) -> Any:
        home = _STORES.get(name)
        if home is None:
            raise AttributeError(f"module 'fsm_agent.memory' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"fsm_agent.memory.{home}"), name)
        globals()[name] = value
        return value
