"""Memory: pure views of the history (`Full`, `Window`, ...), and conversations kept between runs."""

from __future__ import annotations

from fsm_agent.memory.buffer import DualBuffer
from fsm_agent.memory.conversations import Conversations, InMemoryConversations
from fsm_agent.memory.facts import KeyFacts
from fsm_agent.memory.summary import SummaryWindow
from fsm_agent.memory.views import Full, Memory, MessageWindow, Window

__all__ = [
    "Conversations",
    "DualBuffer",
    "Full",
    "InMemoryConversations",
    "KeyFacts",
    "Memory",
    "MessageWindow",
    "SummaryWindow",
    "Window",
]
