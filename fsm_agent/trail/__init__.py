"""The trail: audit log and checkpoint of a run, as one append-only record. Stores, seals, fold, audit, replay and exports."""

from __future__ import annotations

from fsm_agent.trail.audit import Audit, Finding, audit
from fsm_agent.trail.chain import Chain, Ed25519Chain, HmacChain, Sha256Chain, chain_from_env
from fsm_agent.trail.changes import Change
from fsm_agent.trail.cipher import Cipher, FernetCipher, TrailLocked, cipher_from_env
from fsm_agent.trail.entries import SCHEMA_VERSION, Entry, Stored
from fsm_agent.trail.fold import Folded, fold
from fsm_agent.trail.fork import fork
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.jsonl_store import JsonLinesTrail, Repaired
from fsm_agent.trail.memory_store import MemoryTrail
from fsm_agent.trail.postgres_store import PostgresTrail
from fsm_agent.trail.replay import Replay, replay
from fsm_agent.trail.sqlite_store import SQLiteTrail
from fsm_agent.trail.store import Batch, RunInfo, TrailStore

__all__ = [
    "SCHEMA_VERSION",
    "Audit",
    "Batch",
    "Chain",
    "Change",
    "Cipher",
    "Ed25519Chain",
    "Entry",
    "FernetCipher",
    "Finding",
    "Folded",
    "HmacChain",
    "Journal",
    "JsonLinesTrail",
    "MemoryTrail",
    "PostgresTrail",
    "Repaired",
    "Replay",
    "RunInfo",
    "SQLiteTrail",
    "Sha256Chain",
    "Stored",
    "TrailLocked",
    "TrailStore",
    "audit",
    "chain_from_env",
    "cipher_from_env",
    "fold",
    "fork",
    "replay",
]
