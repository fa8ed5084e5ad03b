"""Reading one run's trail: seals checked, bodies decrypted, large values fetched. What is damaged is refused by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fsm_agent.errors import TrailDamaged
from fsm_agent.trail.chain import GENESIS, Chain, broken
from fsm_agent.trail.cipher import Cipher, TrailLocked
from fsm_agent.trail.entries import SHARED_SCHEMA, Entry, Stored, canonical_json, parse
from fsm_agent.trail.store import TrailStore
from fsm_agent.trail.writer import CLEAR

__all__ = ["checked_entries", "loaded_entry"]


def checked_entries(stored: Sequence[Stored], run_id: str, chain: Chain) -> tuple[Entry, ...]:
    """The entries with their seals and numbers checked; bodies as they are stored.

    Raises `TrailDamaged` for the first entry that is not as it was written.
    """
    if not stored:
        raise TrailDamaged("the trail is empty", run_id=run_id, seq=0)
    entries: list[Entry] = []
    before = GENESIS
    for expected, one in enumerate(stored):
        if one.seq != expected:
            raise TrailDamaged(f"is missing; entry {one.seq} follows", run_id=run_id, seq=expected)
        entry = parse(one, run_id)
        if not chain.holds(before, one.text, one.seal):
            raise TrailDamaged(_why(stored, entries[0] if entries else entry, chain), run_id=run_id, seq=expected)
        entries.append(entry)
        before = one.seal
    if entries[0].kind != "header":
        raise TrailDamaged("is no header", run_id=run_id, seq=0)
    return tuple(entries)


def _why(stored: Sequence[Stored], header: Entry, chain: Chain) -> str:
    """Another key, with which no seal holds, is told apart from damage, after which those of the other entries do."""
    wanted = header.body.get("chain")
    if isinstance(wanted, str) and wanted != chain.name and len(broken(chain, stored)) == len(stored):
        return f"was sealed with {wanted}, and is checked with {chain.name}: give the key that wrote it"
    return "was changed after it was sealed, or an entry before it was changed, moved or taken out"


def loaded_entry(entry: Entry, store: TrailStore, cipher: Cipher | None) -> Entry:
    """The entry with its body decrypted, and fetched when it is kept as a value. Raises `TrailLocked` without the key that it needs."""
    return _whole(_unwrapped(entry, store, cipher), store)


def _unwrapped(entry: Entry, store: TrailStore, cipher: Cipher | None) -> Entry:
    body = entry.body
    form = set(body) - set(CLEAR)
    if form == {"value", "bytes"} and isinstance(body["value"], str):
        raw = _text(entry, store.value(entry.run_id, body["value"]))
        return _with_body(entry, raw if raw.startswith("{") else _decrypted(entry, raw, cipher))
    if form == {"sealed_body"} and isinstance(body["sealed_body"], str):
        return _with_body(entry, _decrypted(entry, body["sealed_body"], cipher))
    return entry


def _whole(entry: Entry, store: TrailStore) -> Entry:
    """A header with the conversation before it, which may be kept in parts."""
    kept = entry.body.get("earlier") if entry.kind == "header" else None
    if entry.body.get("schema") != SHARED_SCHEMA or not isinstance(kept, list):
        return entry
    earlier: list[Any] = []
    seen: set[str] = set()
    for one in kept:
        if not (isinstance(one, dict) and set(one) == {"value", "bytes"} and isinstance(one["value"], str)):
            earlier.append(one)
            continue
        digest = one["value"]
        if digest in seen:  # no conversation has a part twice: such a header would be read without end
            raise TrailDamaged("has a part of its conversation twice", run_id=entry.run_id, seq=entry.seq)
        seen.add(digest)
        earlier += _parsed(entry, _text(entry, store.value(entry.run_id, digest)), list)
    return _with(entry, {**entry.body, "earlier": earlier})


def _text(entry: Entry, value: bytes) -> str:
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise TrailDamaged(f"its value is no text ({error})", run_id=entry.run_id, seq=entry.seq) from error


def _decrypted(entry: Entry, token: str, cipher: Cipher | None) -> str:
    if cipher is None:
        raise TrailLocked(
            f"the trail of run {entry.run_id!r} is encrypted: set FSM_AGENT_TRAIL_ENCRYPTION_KEY to the key that wrote it"
        )
    return cipher.decrypt(token)


def _with_body(entry: Entry, text: str) -> Entry:
    return _with(entry, _parsed(entry, text, dict))


def _parsed(entry: Entry, text: str, kind: type) -> Any:
    found: Any = None
    try:
        found = json.loads(text)
        canonical = isinstance(found, kind) and canonical_json(found) == text
    except (ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise TrailDamaged("its body is not written as this package writes", run_id=entry.run_id, seq=entry.seq)
    return found


def _with(entry: Entry, body: dict[str, Any]) -> Entry:
    return Entry(run_id=entry.run_id, seq=entry.seq, kind=entry.kind, time=entry.time, body=body)
