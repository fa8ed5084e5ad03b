"""Memory: pure views of the history (`Full`, `Window`) and conversation stores."""

from __future__ import annotations

from fsm_agent.memory.views import Full, Memory, Window

__all__ = ["Full", "Memory", "Window"]
