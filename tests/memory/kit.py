"""What the tests of stores share: a store of every kind, and conversations to keep in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from fsm_agent.history import Block, block
from fsm_agent.memory import (
    Conversations,
    HistoryConversations,
    InMemoryConversations,
    RedisConversations,
    SQLiteConversations,
)

STORES = ("memory", "sqlite", "redis", "redis-12", "history")
"""Every store; Redis as it is by default, with the newest 12 messages, and keeping all."""
DURABLE = ("sqlite", "redis", "redis-12", "history")
"""Those whose conversations are elsewhere than in the store's object."""


class Shelf(Conversations, Protocol):
    """A store, and the one thing that all of ours can besides."""

    def delete(self, thread_id: str) -> None:
        """Remove a conversation."""


class ListHistory(BaseChatMessageHistory):
    """LangChain's chat message history, in a list, with a log of what was called."""

    def __init__(self, *messages: BaseMessage) -> None:
        self.kept = list(messages)
        self.log: list[str] = []

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own documentation does it so
        """All messages."""
        return list(self.kept)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages."""
        self.log.append(f"add {len(messages)}")
        self.kept.extend(messages)

    def clear(self) -> None:
        """Remove all."""
        self.log.append("clear")
        self.kept.clear()


class Opener:
    """Opens stores on the same conversations."""

    def __init__(self, kind: str, folder: Path, url: str) -> None:
        self.kind = kind
        self._path = folder / "conversations.db"
        self._url = url
        self._histories: dict[str, ListHistory] = {}
        self._opened: list[Any] = []

    def open(self) -> Shelf:
        """One more store."""
        store: Any
        match self.kind:
            case "memory":
                return InMemoryConversations()
            case "history":
                return HistoryConversations(self.history)
            case "sqlite":
                store = SQLiteConversations(self._path)
            case "redis":
                store = RedisConversations(self._url, keep_messages=None)
            case _:
                store = RedisConversations(self._url)
        self._opened.append(store)
        shelf: Shelf = store
        return shelf

    def history(self, thread_id: str) -> ListHistory:
        """The chat message history of a thread."""
        return self._histories.setdefault(thread_id, ListHistory())

    def dispose(self) -> None:
        """Close every store that was opened."""
        for store in self._opened:
            store.dispose()


def said(number: int, words: str = "") -> tuple[Block, ...]:
    """A turn of two messages."""
    return (
        block("task", HumanMessage(words or f"task {number}"), turn=number),
        block("answer", AIMessage(words or f"answer {number}"), turn=number),
    )


def worked(number: int, rounds: int = 1, calls: int = 1) -> tuple[Block, ...]:
    """A turn with rounds of tool calls."""
    blocks = [block("task", HumanMessage(f"task {number}"), turn=number)]
    for one in range(rounds):
        ids = [f"c{number}-{one}-{index}" for index in range(calls)]
        asked = AIMessage(
            "", tool_calls=[{"name": "add", "args": {"a": one, "b": [{"c": None}]}, "id": id} for id in ids]
        )
        told = [ToolMessage(f"result of {id}", tool_call_id=id, name="add") for id in ids]
        blocks.append(block("round", asked, *told, turn=number))
    return (*blocks, block("answer", AIMessage(f"answer {number}"), turn=number))


def keep(store: Conversations, history: tuple[Block, ...], thread_id: str = "t", run_id: str = "run") -> None:
    """One run that leaves `history` behind."""
    store.open(thread_id, run_id)
    store.close(thread_id, run_id, history)


def kept(store: Conversations, thread_id: str = "t") -> tuple[Block, ...]:
    """What the next run would be given."""
    history = store.open(thread_id, "reader")
    store.close(thread_id, "reader", None)
    return history
