"""Conversations in any LangChain chat message history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from langchain_core.messages import BaseMessage

from fsm_agent.dialects import Dialect, dialect_for
from fsm_agent.errors import ConversationError, DefinitionError, FsmAgentError
from fsm_agent.history import Block
from fsm_agent.language import Language, texts_for
from fsm_agent.memory.claims import LocalClaims
from fsm_agent.memory.rebuilt import marked, rebuilt
from fsm_agent.memory.stored import common_prefix

__all__ = ["ChatHistory", "HistoryConversations"]


class ChatHistory(Protocol):
    """What is used of LangChain's `BaseChatMessageHistory`, which fits it: so does any class with these three."""

    @property
    def messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""

    def add_messages(self, messages: Sequence[BaseMessage], /) -> None:
        """Add messages behind the last one."""

    def clear(self) -> None:
        """Remove all messages."""


class HistoryConversations:
    """Conversations in what `factory(thread_id)` gives: any `BaseChatMessageHistory`, as `RunnableWithMessageHistory` takes it.

    Messages that another program wrote there are read as turns, in the form of `dialect` (that of the agent, "native" by default) and with
    the engine's own words in `language`; half rounds and system messages are left out of what the model sees, never out of the history.
    A turn is added behind what is there. Only runs of this process are kept apart, not those of two processes. Safe from any thread.
    Raises `DefinitionError` for a factory that is no function.
    """

    def __init__(
        self,
        factory: Callable[[str], ChatHistory],
        *,
        dialect: str | Dialect = "native",
        language: Language = "en",
    ) -> None:
        if not callable(factory):
            raise DefinitionError(
                "HistoryConversations takes a function of a thread's id that gives its chat message history, "
                f"not a {type(factory).__name__}"
            )
        self._factory = factory
        self._dialect = dialect_for(dialect)
        self._texts = texts_for(language)
        self._claims = LocalClaims()
        self._opened: dict[str, tuple[Block, ...]] = {}

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, () for a new one.

        Raises `RunBusy` while another run of this process has it, `ConversationError` with what the history raised.
        """
        if not self._claims.take(thread_id, run_id):
            return self._opened.get(thread_id, ())
        try:
            with _named_errors(thread_id):
                blocks = rebuilt(self._factory(thread_id).messages, self._dialect, self._texts)
        except BaseException:
            self._claims.give_back(thread_id, run_id)
            raise
        self._opened[thread_id] = blocks
        return blocks

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back; what `history` has more than was there is added, in one call. Raises `ConversationError` as `open` does."""
        if not self._claims.has(thread_id, run_id):
            return
        before = self._opened.pop(thread_id, ())
        try:
            if history is not None:
                with _named_errors(thread_id):
                    self._write(self._factory(thread_id), before, history)
        finally:
            self._claims.give_back(thread_id, run_id)

    def delete(self, thread_id: str) -> None:
        """Remove a conversation. Raises `RunBusy` while a run of this process has it."""
        with self._claims.alone(thread_id), _named_errors(thread_id):
            self._factory(thread_id).clear()

    def _write(self, kept: ChatHistory, before: tuple[Block, ...], history: tuple[Block, ...]) -> None:
        same = common_prefix(before, history)
        if same < len(before):  # it is not a continuation
            kept.clear()
            same = 0
        new = [message for one in history[same:] for message in marked(one)]
        if new:
            kept.add_messages(new)


@contextmanager
def _named_errors(thread_id: str) -> Iterator[None]:
    try:
        yield
    except FsmAgentError:
        raise
    except Exception as error:
        raise ConversationError(
            f"the chat message history of thread {thread_id!r} failed: {type(error).__name__}: {error}"
        ) from error
