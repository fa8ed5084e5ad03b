"""Writing one run's trail: entries are sealed in order, kept back, and made durable together at the next point where they must be."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from fsm_agent.clock import Clock
from fsm_agent.trail.chain import Chain
from fsm_agent.trail.cipher import Cipher
from fsm_agent.trail.entries import SHARED_SCHEMA, Kind, Stored, canonical_json, lenient_json
from fsm_agent.trail.store import RUNNING, Batch, TrailStore

__all__ = ["CLEAR", "PART_CHARS", "VALUE_CHARS", "TrailWriter"]

VALUE_CHARS: Final = 64 * 1024
"""A body longer than this is kept once as a value, and the entry refers to it."""
PART_CHARS: Final = 16 * 1024
"""The conversation before a run is kept as values of about this length, from its beginning on, so that the runs of a thread share them."""
CLEAR: Final = ("chain", "schema")
"""What of a header is not encrypted: enough to say which key and which version read the rest."""


class TrailWriter:
    """The one writer of a run. `add` seals an entry and keeps it back; `flush` sends what is kept to the store.

    `here`: whoever flushes waits for it at once. `held` is False once the run was given back. `torn` is True in the middle of `add`.
    Entries are numbered from `seq`; `seal` is the seal before the first of them. Safe from
    any thread.
    """

    def __init__(
        self,
        store: TrailStore,
        run_id: str,
        *,
        owner: str,
        clock: Clock,
        chain: Chain,
        cipher: Cipher | None = None,
        thread_id: str | None,
        seq: int,
        seal: str,
    ) -> None:
        self.run_id: Final = run_id
        self.owner: Final = owner
        self._store = store
        self._clock = clock
        self._chain = chain
        self._cipher = cipher
        # What is encrypted is another text each time, so that there is nothing to share.
        self._shares = cipher is None and getattr(store, "shares_values", False)
        self._thread_id = thread_id
        self._run = canonical_json(run_id)
        self._next = seq
        self._seal = seal
        self._kept: list[Stored] = []
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._under_way = False
        self.torn = False
        self.held = True
        self.here = False
        self.newest: Future[None] | None = None

    @property
    def head(self) -> str:
        """The seal of the newest entry."""
        return self._seal

    @property
    def length(self) -> int:
        """How many entries the trail has, those kept back included."""
        return self._next

    def time(self) -> float:
        """Seconds since the epoch, by the clock of the run."""
        return self._clock.time()

    def add(self, kind: Kind, body: Mapping[str, Any]) -> bool:
        """Seal an entry. It is durable after the next `flush`. False for a result of an effect that has its outcome already: it is late."""
        text = lenient_json(body)
        with self._lock:
            if kind == "result" and not self._under_way:
                return False
            self.torn = True
            if kind in ("started", "outcome"):
                self._under_way = kind == "started"
            if kind == "header" and self._shares and len(text) > PART_CHARS:
                body = self._in_parts(body)
                text = lenient_json(body)
            clear = {name: body[name] for name in CLEAR if name in body} if kind == "header" else {}
            if len(text) > VALUE_CHARS:
                text = self._referred(text, clear)
            elif self._cipher is not None:
                text = canonical_json({**clear, "sealed_body": self._cipher.encrypt(text)})
            # Canonical JSON: the keys are sorted.
            time = canonical_json(self._clock.time())
            entry = f'{{"body":{text},"kind":"{kind}","run":{self._run},"seq":{self._next},"time":{time}}}'
            self._seal = self._chain.seal(self._seal, entry)
            self._kept.append(Stored(self._next, entry, self._seal))
            self._next += 1
            self.torn = False
        return True

    def _in_parts(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The header `body` with the conversation before the run in parts that are kept as values, but for what is no whole part yet."""
        parts: list[Mapping[str, Any]] = []
        open_: list[Any] = []
        size = 0
        for one in body["earlier"]:
            open_.append(one)
            size += len(lenient_json(one))
            if size >= PART_CHARS:
                parts.append(self._kept_value(lenient_json(open_)))
                open_, size = [], 0
        return {**body, "schema": SHARED_SCHEMA, "earlier": [*parts, *open_]} if parts else body

    def _referred(self, text: str, clear: Mapping[str, Any]) -> str:
        return canonical_json(
            {**clear, **self._kept_value(text if self._cipher is None else self._cipher.encrypt(text))}
        )

    def _kept_value(self, text: str) -> dict[str, Any]:
        """What refers to `text`, which is kept as a value."""
        value = text.encode()
        digest = hashlib.sha256(value).hexdigest()
        self._values[digest] = value
        return {"value": digest, "bytes": len(value)}

    def flush(self, *, lease: float, status: str = RUNNING, reason: str = "") -> Future[None]:
        """Make everything added so far durable, and hold the run for `lease` more seconds (0 gives it back).

        The future raises what `TrailStore.append` says.
        """
        with self._lock:
            entries, self._kept = tuple(self._kept), []
            values, self._values = self._values, {}
            now = self._clock.time()
            self.held = lease > 0
            self.newest = self._store.append(
                Batch(
                    run_id=self.run_id,
                    owner=self.owner,
                    lease=now + lease if lease else 0.0,
                    time=now,
                    status=str(status),
                    entries=entries,
                    values=values,
                    thread_id=self._thread_id,
                    reason=str(reason),
                ),
                here=self.here,
            )
            return self.newest
