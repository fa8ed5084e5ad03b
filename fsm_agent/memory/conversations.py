"""Conversations: the history of each thread between its runs."""

from __future__ import annotations

from typing import Protocol

from fsm_agent.history import Block
from fsm_agent.memory.claims import LocalClaims

__all__ = ["Conversations", "InMemoryConversations"]


class Conversations(Protocol):
    """A store of conversations by thread id. One run at a time may have a thread.

    `ainvoke`, `astream` and `aresume` call it on a worker thread, so that one that waits does not hold up the event loop.
    """

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, claimed for `run_id`. Raises `fsm_agent.errors.RunBusy` while another run has it."""

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back; `history` replaces what is stored, None leaves it as it was."""


class InMemoryConversations:
    """Conversations in this process's memory. Safe from any thread."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[Block, ...]] = {}
        self._claims = LocalClaims()

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, () for a new one."""
        self._claims.take(thread_id, run_id)
        return self._histories.get(thread_id, ())

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back."""
        if not self._claims.has(thread_id, run_id):
            return
        if history is not None:
            self._histories[thread_id] = history
        self._claims.give_back(thread_id, run_id)

    def delete(self, thread_id: str) -> None:
        """Remove a conversation. Raises `RunBusy` while a run has it."""
        with self._claims.alone(thread_id):
            self._histories.pop(thread_id, None)
