"""The trail: audit log and checkpoint of a run, as one append-only record. Stores, seals, fold, audit, replay and exports."""

from __future__ import annotations

from fsm_agent.trail.chain import Chain, Ed25519Chain, HmacChain, Sha256Chain, chain_from_env
from fsm_agent.trail.cipher import Cipher, FernetCipher, TrailLocked, cipher_from_env
from fsm_agent.trail.entries import SCHEMA_VERSION, Entry, Stored
from fsm_agent.trail.jsonl_store import JsonLinesTrail, Repaired
from fsm_agent.trail.memory_store import MemoryTrail
from fsm_agent.trail.postgres_store import PostgresTrail
from fsm_agent.trail.sqlite_store import SQLiteTrail
from fsm_agent.trail.store import Batch, RunInfo, TrailStore

__all__ = [
    "SCHEMA_VERSION",
    "Batch",
    "Chain",
    "Cipher",
    "Ed25519Chain",
    "Entry",
    "FernetCipher",
    "HmacChain",
    "JsonLinesTrail",
    "MemoryTrail",
    "PostgresTrail",
    "Repaired",
    "RunInfo",
    "SQLiteTrail",
    "Sha256Chain",
    "Stored",
    "TrailLocked",
    "TrailStore",
    "chain_from_env",
    "cipher_from_env",
]
