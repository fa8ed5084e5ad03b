"""Entries of a trail: what is written down of a run, as canonical JSON, each sealed to the one before.

A trail is a header and then, in order: `started` (an effect is about to be performed), `result` (of one call of a batch), `outcome` (of the
effect), `transition`; and what people did: `decided`, `paused`, `changed`, `resumed`. That a run found other tools is `changed` too. Other
kinds are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import orjson

from fsm_agent.errors import TrailDamaged
from fsm_agent.tools.plain import plain

__all__ = [
    "KINDS",
    "SCHEMA_VERSION",
    "SHARED_SCHEMA",
    "Entry",
    "Kind",
    "Stored",
    "canonical_json",
    "lenient_json",
    "parse",
]

SCHEMA_VERSION: Final = 1
SHARED_SCHEMA: Final = 2
"""The version in a header whose conversation is kept in parts (see `fsm_agent.trail.writer`); all else is as in 1."""
Kind = Literal["header", "started", "result", "outcome", "transition", "decided", "paused", "changed", "resumed"]
KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))

_SURROGATE: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `seq` counts from 0 (the header), `time` is seconds since the epoch (UTC), `body` is JSON data."""

    run_id: str
    seq: int
    kind: str
    time: float
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry as a store keeps it: its canonical text, never changed after it was sealed, and its seal."""

    seq: int
    text: str
    seal: str


def canonical_json(value: Any) -> str:
    """Canonical JSON: keys sorted at every depth, no spaces, text as it is (a lone surrogate as an escape).

    The same value gives the same text, and reading that text and writing it again gives it once more. NaN and infinities become null;
    whole numbers have any size. Raises `ValueError` or `TypeError` for what JSON cannot hold.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except (
        TypeError
    ):  # a number beyond 64 bits, a lone surrogate, a key that is no text, or what JSON cannot hold at all
        text = _encode(value)
        return text if text.isascii() else _SURROGATE.sub(_character, text)


def lenient_json(value: Any) -> str:
    """As `canonical_json`, for any value: guards and tools of a user's own may hold what JSON cannot, and that is written as text."""
    try:
        return canonical_json(value)
    except (ValueError, TypeError):
        return canonical_json(plain(value))


def _character(found: re.Match[str]) -> str:
    """Two halves of one character are read back as that character; one alone is an escape."""
    if len(found[0]) > 1:
        return found[0].encode("utf-16", "surrogatepass").decode("utf-16")
    return f"\\u{ord(found[0]):04x}"


def parse(stored: Stored, run_id: str) -> Entry:
    """The entry in `stored`. Raises `TrailDamaged` when it is not one of `run_id` with that number, written canonically."""
    try:
        data = json.loads(stored.text)
        entry = Entry(run_id=data["run"], seq=data["seq"], kind=data["kind"], time=data["time"], body=data["body"])
        canonical = canonical_json(data) == stored.text
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TrailDamaged(f"is no entry ({type(error).__name__}: {error})", run_id=run_id, seq=stored.seq) from error
    well_formed = type(data["seq"]) is int and type(data["time"]) in (int, float) and type(data["body"]) is dict
    if not canonical or not well_formed or set(data) != {"run", "seq", "kind", "time", "body"}:
        raise TrailDamaged("is not written as this package writes", run_id=run_id, seq=stored.seq)
    if entry.run_id != run_id or entry.seq != stored.seq or entry.kind not in KINDS:
        said = f"says that it is entry {entry.seq} of run {entry.run_id!r}, of kind {entry.kind!r}"
        raise TrailDamaged(said, run_id=run_id, seq=stored.seq)
    return entry
