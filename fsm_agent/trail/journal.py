"""A store with the keys to it: begins new trails, and reads and takes over stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from fsm_agent.clock import Clock
from fsm_agent.context import Context
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.trail.chain import GENESIS, Chain
from fsm_agent.trail.cipher import Cipher
from fsm_agent.trail.entries import Entry, Stored
from fsm_agent.trail.header import header_data
from fsm_agent.trail.reader import checked_entries, loaded_entry
from fsm_agent.trail.store import Batch, RunInfo, TrailStore, new_owner
from fsm_agent.trail.writer import TrailWriter

__all__ = ["CLAIM_SECONDS", "Journal", "Taken"]

CLAIM_SECONDS: Final = 60.0
"""How long a run is held between two writes, beside what its effect may take."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A stored run that was taken over: what the store knows of it, its entries, and the writer that goes on with them."""

    info: RunInfo
    entries: tuple[Entry, ...]
    writer: TrailWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Where an agent's runs are written down, sealed with `chain` and, with a `cipher`, encrypted.

    `origin` is kept in each header. `machine` is the one that they go by.
    """

    store: TrailStore
    clock: Clock
    chain: Chain
    cipher: Cipher | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    machine: Machine = DEFAULT_MACHINE

    def begin(self, ctx: Context) -> TrailWriter:
        """The writer of a new run, with its header added."""
        writer = self.writer(ctx.run_id, thread_id=ctx.thread_id)
        writer.add("header", header_data(ctx, self.machine, chain=self.chain.name, origin=self.origin))
        return writer

    def writer(
        self, run_id: str, *, thread_id: str | None, owner: str = "", seq: int = 0, seal: str = GENESIS
    ) -> TrailWriter:
        """The writer of a run, from entry `seq` on; `owner` holds it, "" for a new one."""
        return TrailWriter(
            self.store,
            run_id,
            owner=owner or new_owner(),
            clock=self.clock,
            chain=self.chain,
            cipher=self.cipher,
            thread_id=thread_id,
            seq=seq,
            seal=seal,
        )

    def entries(self, run_id: str) -> tuple[Entry, ...]:
        """The entries of a run, checked and opened. Raises `UnknownRun`, `TrailDamaged`, `TrailError` without the key."""
        return self._opened(self.store.read(run_id), run_id)

    def take(self, run_id: str) -> Taken:
        """Hold a stored run and read it.

        Raises `UnknownRun`, `RunHeld` when another writer has it, `TrailDamaged`; nothing is held then.
        """
        owner, now = new_owner(), self.clock.time()
        try:
            info = self.store.claim(run_id, owner, now + CLAIM_SECONDS, now)
            stored = self.store.read(run_id)
            entries = self._opened(stored, run_id)
        except BaseException:
            # Ctrl-C may come when the store has the claim already, and nobody here knows of it yet.
            self.let_go(run_id, owner)
            raise
        writer = self.writer(run_id, thread_id=info.thread_id, owner=owner, seq=len(stored), seal=stored[-1].seal)
        return Taken(info, entries, writer)

    def give_back(self, info: RunInfo, owner: str) -> None:
        """Let go of a run that was taken, as it was."""
        self.store.append(
            Batch(
                run_id=info.run_id,
                owner=owner,
                lease=0.0,
                time=self.clock.time(),
                status=info.status,
                thread_id=info.thread_id,
                reason=info.reason,
            )
        ).result()

    def let_go(self, run_id: str, owner: str) -> None:
        """Let go of a run as the store has it, if `owner` holds it. Raises nothing: whoever calls has an error to tell already."""
        with suppress(Exception):
            info = self.store.info(run_id)
            if info.owner == owner:
                self.give_back(info, owner)

    def _opened(self, stored: Sequence[Stored], run_id: str) -> tuple[Entry, ...]:
        return tuple(
            loaded_entry(entry, self.store, self.cipher) for entry in checked_entries(stored, run_id, self.chain)
        )
