"""The conversation that a run belongs to: `--thread`, and where threads are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fsm_agent.errors import DefinitionError
from fsm_agent.memory import Conversations, InMemoryConversations, RedisConversations, SQLiteConversations
from fsm_agent.profiles import profile as profile_named

__all__ = ["REDIS", "keeping"]

REDIS: Final = ("redis://", "rediss://", "unix://")


@contextlib.contextmanager
def keeping(thread: str | None, given: str | None, profile: str | None) -> Iterator[Conversations]:
    """The store of the thread: what `--conversations` names, else the profile's; closed afterwards.

    Raises `DefinitionError` for a thread that nothing would keep, and for a store without a thread.
    """
    store: Any = _store(thread, given, profile)
    try:
        yield store
    finally:
        dispose = getattr(store, "dispose", None)
        if dispose is not None:
            dispose()


def _store(thread: str | None, given: str | None, profile: str | None) -> Conversations:
    if thread is None:
        if given is not None:
            raise DefinitionError("--conversations keeps the messages of a thread; name it with --thread NAME")
        return InMemoryConversations()
    if given is not None:
        return RedisConversations(given) if given.startswith(REDIS) else SQLiteConversations(Path(given))
    made = None if profile is None else profile_named(profile).conversations
    if made is None:
        raise DefinitionError(
            f"--thread {thread!r}: say where its messages are kept, --conversations FILE or --conversations redis://HOST:PORT/0"
        )
    return made()
