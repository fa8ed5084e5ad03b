"""`Agent(store=...)`: one argument for where runs, and the conversations between them, are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsm_agent.clock import Clock
from fsm_agent.errors import DefinitionError
from fsm_agent.machine import Machine
from fsm_agent.memory import Conversations, InMemoryConversations
from fsm_agent.trail.chain import Chain, chain_from_env
from fsm_agent.trail.cipher import Cipher, cipher_from_env
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.store import TrailStore

__all__ = ["Store", "journal_of", "stores_of"]

Store = str | os.PathLike[str] | TrailStore | Conversations
"""A path (an SQLite file for trails, and `<name>.threads.<suffix>` for conversations), `postgresql://...`, or a store of either."""


def stores_of(store: Store | None, conversations: Conversations | None) -> tuple[TrailStore | None, Conversations]:
    """Where trails go (None: nowhere) and where conversations go, for what an agent was given.

    Raises `DefinitionError` for what is no store, and for two stores of conversations.
    """
    given: Any = store
    trails: TrailStore | None = None
    if isinstance(given, str) and "://" in given:
        if not given.startswith(("postgresql://", "postgres://")):
            raise DefinitionError(
                f"store: {given.partition('://')[0]}:// is no store; give a path, or postgresql://..."
            )
        from fsm_agent.trail import PostgresTrail  # noqa: PLC0415 - an extra

        trails = PostgresTrail(given)
    elif isinstance(given, str | os.PathLike):
        # Here, because most agents keep nothing in a file.
        from fsm_agent.memory import SQLiteConversations  # noqa: PLC0415
        from fsm_agent.trail import SQLiteTrail  # noqa: PLC0415

        path = Path(given)
        if not path.name:
            raise DefinitionError(f"store is {str(given)!r}, which names no file; give a path such as runs.db")
        trails = SQLiteTrail(path)
        if conversations is None:
            conversations = SQLiteConversations(path.with_name(f"{path.stem}.threads{path.suffix}"))
    elif isinstance(given, TrailStore):
        trails = given
    elif given is not None:
        if not (callable(getattr(given, "open", None)) and callable(getattr(given, "close", None))):
            raise DefinitionError(
                f"store is a {type(given).__name__}; give a path, a store of trails (SQLiteTrail, ...) or of conversations"
            )
        if conversations is not None:
            raise DefinitionError("store and conversations are both stores of conversations; give one of them")
        conversations = given
    return trails, InMemoryConversations() if conversations is None else conversations


def journal_of(
    trails: TrailStore | None,
    *,
    clock: Clock,
    chain: Chain | None,
    cipher: Cipher | None,
    origin: Mapping[str, Any],
    machine: Machine,
) -> Journal | None:
    """The journal on the store `trails`, None without one. `chain` and `cipher` are by default those of the environment."""
    if trails is None:
        return None
    return Journal(
        store=trails,
        clock=clock,
        chain=chain_from_env() if chain is None else chain,
        cipher=cipher_from_env() if cipher is None else cipher,
        origin=origin,
        machine=machine,
    )
