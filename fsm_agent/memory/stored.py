"""What stores outside this process share: claims that are renewed while a run has a thread, and what is written when it gives it back."""

from __future__ import annotations

import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self

from fsm_agent.errors import DefinitionError, FsmAgentError, RunBusy
from fsm_agent.history import Block
from fsm_agent.memory.claims import Claim
from fsm_agent.memory.written import read_block
from fsm_agent.os_fork import through_forks

__all__ = ["Held", "Stored", "StoredConversations", "common_prefix", "positive"]

LEASE: Final = 60.0
"""Seconds for which a claim holds without being renewed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds of a thread: each block as it was written, and a mark that is another one after every change."""

    texts: Sequence[str | bytes] = ()
    mark: str | bytes = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A thread that a run has: the claim, what was stored then, and the same as blocks."""

    claim: Claim
    stored: Stored = Stored()
    blocks: tuple[Block, ...] = ()


class StoredConversations(ABC):
    """`Conversations` outside this process. A claim of a dead process of this machine, or one not renewed for `lease` s, may be taken over.

    Safe from any thread; a child made by fork begins without claims.
    """

    def __init__(self, *, lease: float) -> None:
        self.lease = positive(type(self).__name__, "lease", lease)
        self._begin()
        through_forks(self)

    def _begin(self) -> None:
        """Be a store that nobody uses yet."""
        self._id = uuid.uuid4().hex
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()
        self._renewing = False
        self._stop = threading.Event()
        weakref.finalize(self, self._stop.set)

    def before_fork(self) -> None:  # noqa: B027 - most stores have nothing to wait for
        """Come to rest: whatever cannot be copied in the middle of it is over, and does not begin again before `after_fork`."""

    def after_fork(self, *, child: bool) -> None:
        """Go on. In a child claims, and whatever a thread of the parent was doing with a lock, stay the parent's."""
        if child:
            self._begin()

    # ---------------------------------------------------------------- what a run asks

    def open(self, thread_id: str, run_id: str) -> tuple[Block, ...]:
        """The history of `thread_id`, () for a new one, claimed for `run_id`.

        Raises `RunBusy` while another run has it, in whatever process, `ConversationDamaged` when it cannot be read whole, and
        `ConversationError` when the store cannot be reached.
        """
        claim, before = self._wanted(thread_id, run_id)
        try:
            stored = self._take(thread_id, claim)
        except BaseException as error:
            # What the run had here it still has, unless another has taken it.
            self._forget(thread_id, claim, None if isinstance(error, RunBusy) else before)
            raise
        try:
            blocks = tuple(
                read_block(text, thread_id=thread_id, position=position) for position, text in enumerate(stored.texts)
            )
        except BaseException:
            self._give_back(thread_id, Held(claim), None)
            raise
        with self._lock:
            self._held[thread_id] = Held(claim, stored, blocks)
            start, self._renewing = not self._renewing, True
        if start:
            renewing = threading.Thread(
                target=_renew, args=(weakref.ref(self), self._stop, self.lease / 3), daemon=True
            )
            try:
                renewing.start()
            except RuntimeError:
                # There are too many threads: the claim holds for one lease, and the next `open` tries again.
                self._renewing = False
        return blocks

    def close(self, thread_id: str, run_id: str, history: tuple[Block, ...] | None) -> None:
        """Give the thread back; `history` takes the place of what is stored, None leaves it.

        Raises `ConversationError` when it cannot be written, and `RunBusy` when the claim has been lost to another run; then nothing of
        `history` is stored. The thread is given back all the same. A run that does not have the thread changes nothing.
        """
        with self._lock:
            held = self._held.get(thread_id)
        if held is not None and held.claim.run_id == run_id:
            self._give_back(thread_id, held, history)

    def delete(self, thread_id: str) -> None:
        """Remove a conversation, damaged or not. Raises `RunBusy` while a run has it."""
        claim, _ = self._wanted(thread_id, f"delete-{uuid.uuid4().hex[:8]}")
        try:
            stored = self._take(thread_id, claim, whole=False)
        except BaseException:
            self._forget(thread_id, claim)
            raise
        self._give_back(thread_id, Held(claim, stored), ())

    def _give_back(self, thread_id: str, held: Held, history: tuple[Block, ...] | None) -> None:
        try:
            if history is None:
                self._release(thread_id, held.claim)
                return
            try:
                self._write(thread_id, held, history)
            except BaseException:
                with suppress(FsmAgentError):  # the first error is the one to tell
                    self._release(thread_id, held.claim)
                raise
        finally:
            self._forget(thread_id, held.claim)

    # ---------------------------------------------------------------- its life

    def renew(self) -> None:
        """Let every claim hold for another `lease` seconds. A thread of its own calls this three times a lease; it never raises."""
        with self._lock:
            claims = {thread_id: held.claim for thread_id, held in self._held.items()}
        if claims:
            # It is tried again before the lease ends; what was lost is seen when the thread is given back.
            with suppress(FsmAgentError):
                self._extend(claims)

    def dispose(self) -> None:
        """Give back every thread unchanged, and close what is open. The end of a `with` block does the same."""
        self._stop.set()
        with self._lock:
            held = dict(self._held)
        try:
            for thread_id, one in held.items():
                self._release(thread_id, one.claim)
        finally:
            self._shut()
            self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def _wanted(self, thread_id: str, run_id: str) -> tuple[Claim, Held | None]:
        """A claim to take the thread with, noted here unless another run has it here; and what this run had here before.

        The other run may have come to its end elsewhere. So the thread is asked for as a stranger would, who is let in only where the
        other's claim holds no more.
        """
        claim = Claim.make(run_id, self._id)
        with self._lock:
            held = self._held.get(thread_id)
            if held is not None and held.claim.run_id != run_id:
                return replace(claim, store=claim.token), None
            # The run may have gone on elsewhere since, with a claim of that place: what is held here of it is old then.
            self._held[thread_id] = Held(claim)
        return claim, held

    def _forget(self, thread_id: str, claim: Claim, before: Held | None = None) -> None:
        """Note `before` in the place of `claim`, where that is still what is noted."""
        with self._lock:
            held = self._held.get(thread_id)
            if held is None or held.claim.token != claim.token:
                return
            if before is None:
                del self._held[thread_id]
            else:
                self._held[thread_id] = before

    # ---------------------------------------------------------------- what each store does its own way

    @abstractmethod
    def _take(self, thread_id: str, claim: Claim, *, whole: bool = True) -> Stored:
        """Claim the thread and read it, in one step; unless `whole`, damage is no hindrance. Raises `RunBusy`."""

    @abstractmethod
    def _write(self, thread_id: str, held: Held, history: tuple[Block, ...]) -> None:
        """Store `history` in place of `held.stored` and free the thread, in one step. Raises `RunBusy` when the claim was lost."""

    @abstractmethod
    def _release(self, thread_id: str, claim: Claim) -> None:
        """Free the thread when `claim` still has it."""

    @abstractmethod
    def _extend(self, claims: dict[str, Claim]) -> None:
        """Renew these claims, by thread id."""

    @abstractmethod
    def _shut(self) -> None:
        """Close connections."""


def common_prefix(before: Sequence[Block], after: Sequence[Block]) -> int:
    """How many blocks both begin with."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old != new:
            break
        count += 1
    return count


def positive(where: str, name: str, value: float) -> float:
    """`value`, when it is a number of seconds above 0. Raises `DefinitionError` for any other."""
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise DefinitionError(f"{where}({name}={value!r}): {name} must be a number of seconds above 0")
    return float(value)


def _renew(store: weakref.ref[StoredConversations], stop: threading.Event, every: float) -> None:
    """Renew the claims of `store` until nobody uses it any more."""
    while not stop.wait(every):
        alive = store()
        if alive is None:
            return
        alive.renew()
        del alive
