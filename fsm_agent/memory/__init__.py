"""Memory: pure views of the history (`Full`, `Window`), and conversations kept between runs."""

from __future__ import annotations

from fsm_agent.memory.conversations import Conversations, InMemoryConversations
from fsm_agent.memory.views import Full, Memory, Window

__all__ = ["Conversations", "Full", "InMemoryConversations", "Memory", "Window"]
