"""The conversation that a run belongs to: `--thread`, and where threads are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from fsm_agent.errors import DefinitionError
from fsm_agent.memory import Conversations, InMemoryConversations, RedisConversations, SQLiteConversations
from fsm_agent.profiles import profile as profile_named

__all__ = ["REDIS", "check_thread", "conversation_store"]

REDIS: Final = ("redis://", "rediss://", "unix://")


@contextlib.contextmanager
def conversation_store(thread: str | None, given: str | None, profile: str | None) -> Iterator[Conversations]:
    """The store of the thread: what `--conversations` names, else the profile's; closed afterwards. Raises as `check_thread`."""
    store: Any = _store(thread, given, profile)
    try:
        yield store
    finally:
        dispose = getattr(store, "dispose", None)
        if dispose is not None:
            dispose()


def check_thread(thread: str | None, given: str | None, profile: str | None) -> None:
    """Raises `DefinitionError` for a thread that nothing would keep, a store without a thread, and an empty name. Opens nothing."""
    for option, name in (("--thread", thread), ("--conversations", given)):
        if name is not None and not name.strip():
            raise DefinitionError(f"{option} names nothing: give it a name, or leave it out")
    if thread is None and given is not None:
        raise DefinitionError("--conversations keeps the messages of a thread; name it with --thread NAME")
    if thread is not None and given is None and _of_profile(profile) is None:
        raise DefinitionError(
            f"--thread {thread!r}: say where its messages are kept, --conversations FILE or --conversations redis://HOST:PORT/0"
        )


def _of_profile(name: str | None) -> Callable[[], Conversations] | None:
    return None if name is None else profile_named(name).conversations


def _store(thread: str | None, given: str | None, profile: str | None) -> Conversations:
    check_thread(thread, given, profile)
    if thread is not None and given is not None:
        return RedisConversations(given) if given.startswith(REDIS) else SQLiteConversations(Path(given))
    made = _of_profile(profile) if thread is not None else None
    return InMemoryConversations() if made is None else made()
