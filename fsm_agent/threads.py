"""The threads of conversations that runs have: taken, and given back, without a store ever holding up an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from fsm_agent.alphabet import TERMINAL
from fsm_agent.errors import RunBusy, UnknownRun
from fsm_agent.failures import error_text
from fsm_agent.history import Block
from fsm_agent.jobs import claimed_in_thread, in_thread
from fsm_agent.memory import Conversations, InMemoryConversations
from fsm_agent.runs import Run
from fsm_agent.trail.journal import Journal

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """The threads of one agent. A store that may have to wait for a disk or a server is asked by a worker on behalf of an event loop.

    A run that waits in the store of the `journal` keeps its thread here, and another process may bring it to its end.
    """

    def __init__(self, store: Conversations, journal: Journal | None) -> None:
        self._store = store
        self._journal = journal
        self._at_once = isinstance(store, InMemoryConversations)
        self._waiting: dict[str, str] = {}
        self._lock = threading.RLock()

    def open(self, thread_id: str | None, run_id: str) -> tuple[Block, ...]:
        """The history of a thread, which is the run's from now on; () without one. Raises `RunBusy` while another run has it."""
        if thread_id is None:
            return ()
        try:
            return self._store.open(thread_id, run_id)
        except RunBusy:
            if not self._ended_elsewhere(thread_id):
                raise
        return self._store.open(thread_id, run_id)

    def leave(self, run: Run) -> None:
        """Note that nobody here drives `run` any more. Unless its thread was given back, the run has it."""
        if run.ctx.thread_id is not None and run.trail is not None and not run.closed:
            self._waiting[run.ctx.thread_id] = run.ctx.run_id

    def forget(self, runs: Iterable[Run]) -> None:
        """In a child made by fork: what the parent's `runs` have here is the child's own copy, where conversations are in memory."""
        self._lock = threading.RLock()
        for run in runs if self._at_once else ():
            self.give_back(run.ctx.thread_id, run.ctx.run_id)

    def _ended_elsewhere(self, thread_id: str) -> bool:
        """True when the run that kept `thread_id` here has ended elsewhere. Then its thread is given back."""
        kept_by = self._waiting.get(thread_id)
        if kept_by is None or self._journal is None:
            return False
        try:
            ended = self._journal.store.info(kept_by).ended
        except UnknownRun:  # its trail was removed: nobody can bring it to an end
            ended = True
        except Exception:  # noqa: BLE001 - that the thread is busy is what there is to tell
            return False
        if not ended or not self._taken(thread_id, kept_by):
            return False
        self._store.close(thread_id, kept_by, None)
        return True

    def _taken(self, thread_id: str, run_id: str) -> bool:
        """The run does not wait here any more. True for one caller, when it did."""
        with self._lock:
            if self._waiting.get(thread_id) != run_id:
                return False
            del self._waiting[thread_id]
            return True

    def give_back(self, thread_id: str | None, run_id: str) -> None:
        """Free the thread, which stays as it was."""
        if thread_id is not None:
            self._taken(thread_id, run_id)
            self._store.close(thread_id, run_id, None)

    async def claimed(self, thread_id: str | None, take: Callable[[], T], give_back: Callable[[], None]) -> T:
        """What `take` gives, which opens the thread. When the await is cancelled meanwhile, `give_back` is called once it has opened it."""
        # Whether the run that keeps a thread here has ended elsewhere is asked of a store of trails.
        if thread_id is None or (self._at_once and thread_id not in self._waiting):
            return take()
        return await claimed_in_thread(take, lambda _: give_back())

    async def freed(self, thread_id: str | None, give_back: Callable[[], None]) -> None:
        """Call `give_back`, which frees the thread. It is done all the same when the await is cancelled."""
        if self._at_once or thread_id is None:
            give_back()
        else:
            await in_thread(give_back)

    def rebase(self, run: Run) -> None:
        """Take the thread of a run that was stored, and note what others have said there since."""
        if run.ctx.thread_id is not None:
            self._taken(run.ctx.thread_id, run.ctx.run_id)
        stored = self.open(run.ctx.thread_id, run.ctx.run_id)
        earlier = tuple(one for one in run.ctx.history if one.turn != run.ctx.turn)
        # Others may have had the thread between a crash and now: what they said stays, and this turn follows it.
        run.rebased = stored if stored and stored != earlier else ()

    def close(self, run: Run) -> None:
        """Give back the thread of a run that has ended, with what was said. Once, and raises no error: `run.unsaved` says what failed."""
        if _to_close(run):
            try:
                run.closed = True
                self._keep(run)
            except BaseException:  # Ctrl-C: it is closed where the run is left
                run.closed = False
                raise

    async def aclose(self, run: Run) -> None:
        """`close` for an event loop. It is done all the same when the await is cancelled."""
        if _to_close(run):
            run.closed = True
            await self.freed(run.ctx.thread_id, partial(self._keep, run))

    def _keep(self, run: Run) -> None:
        """A turn without an answer is kept only when its tools may have changed something.

        That of a run whose end could not be recorded is not: it can be resumed, and its turn is kept then.
        """
        ctx = run.ctx
        self._taken(ctx.thread_id or "", ctx.run_id)
        keep = not run.unrecorded and (run.answered or ctx.tool_calls > 0 or run.stopped_while_executing)
        try:
            self._store.close(ctx.thread_id or "", ctx.run_id, run.thread_history() if keep else None)
        except Exception as error:  # noqa: BLE001 - a store that fails must not cost what the run came to
            run.unsaved = f"{type(error).__name__}: {error_text(error)}"


def _to_close(run: Run) -> bool:
    """True for a run that has ended, until somebody closes its thread."""
    return run.ctx.thread_id is not None and run.state in TERMINAL and not run.closed
