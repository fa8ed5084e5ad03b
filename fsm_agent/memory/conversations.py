"""Conversations: the history of each thread between its runs."""

from __future__ import annotations

import threading
from typing import Protocol

from fsm_agent.errors import RunBusy
from fsm_agent.history import Block

__all__ = ["Conversations", "InMemoryConversations"]


class Conversations(Protocol):
    """A store of conversations by thread id. One run at a time may have a thread."""

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, claimed for `run_id`. Raises `fsm_agent.errors.RunBusy` while another run has it."""

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back; `history` replaces what is stored, None leaves it as it was."""


class InMemoryConversations:
    """Conversations in this process's memory. Safe from any thread."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[Block, ...]] = {}
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, () for a new one."""
        with self._lock:
            owner = self._owners.setdefault(thread_id, run_id)
            if owner != run_id:
                raise RunBusy(
                    f"thread {thread_id!r} is in use by run {owner}; wait for it to end, or resume or cancel it"
                )
            return self._histories.get(thread_id, ())

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back."""
        with self._lock:
            if self._owners.get(thread_id) != run_id:
                return
            del self._owners[thread_id]
            if history is not None:
                self._histories[thread_id] = history
