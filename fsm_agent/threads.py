"""The threads of conversations that runs have: taken, and given back, without a store ever holding up an event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fsm_agent.alphabet import TERMINAL
from fsm_agent.failures import words_of
from fsm_agent.history import Block
from fsm_agent.jobs import claimed_in_thread, in_thread
from fsm_agent.memory import Conversations, InMemoryConversations
from fsm_agent.runs import Run

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """The threads of one agent. A store that may have to wait for a disk or a server is asked by a worker on behalf of an event loop."""

    def __init__(self, store: Conversations) -> None:
        self._store = store
        self._at_once = isinstance(store, InMemoryConversations)

    def open(self, thread_id: str | None, run_id: str) -> tuple[Block, ...]:
        """The history of a thread, which is the run's from now on; () without one. Raises `RunBusy` while another run has it."""
        return () if thread_id is None else self._store.open(thread_id, run_id)

    def give_back(self, thread_id: str | None, run_id: str) -> None:
        """Free the thread, which stays as it was."""
        if thread_id is not None:
            self._store.close(thread_id, run_id, None)

    async def claimed(self, thread_id: str | None, take: Callable[[], T], give_back: Callable[[], None]) -> T:
        """What `take` gives, which opens the thread. When the await is cancelled meanwhile, `give_back` is called once it has opened it."""
        if self._at_once or thread_id is None:
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
        stored = self.open(run.ctx.thread_id, run.ctx.run_id)
        earlier = tuple(one for one in run.ctx.history if one.turn != run.ctx.turn)
        # Others may have had the thread between a crash and now: what they said stays, and this turn follows it.
        run.rebased = stored if stored and stored != earlier else ()

    def close(self, run: Run) -> None:
        """Give back the thread of a run that has ended, with what was said. Once, and raises no error: `run.unsaved` says what failed."""
        if _to_close(run):
            try:
                self._keep(run)
            except BaseException:  # Ctrl-C: it is closed where the run is left
                run.closed = False
                raise

    async def aclose(self, run: Run) -> None:
        """`close` for an event loop. It is done all the same when the await is cancelled."""
        if _to_close(run):
            await self.freed(run.ctx.thread_id, partial(self._keep, run))

    def _keep(self, run: Run) -> None:
        """A turn without an answer is kept only when its tools may have changed something."""
        ctx = run.ctx
        keep = run.answered or ctx.tool_calls > 0 or run.stopped_while_executing
        try:
            self._store.close(ctx.thread_id or "", ctx.run_id, run.thread_history() if keep else None)
        except Exception as error:  # noqa: BLE001 - a store that fails must not cost what the run came to
            run.unsaved = f"{type(error).__name__}: {words_of(error)}"


def _to_close(run: Run) -> bool:
    """True once, when the run has ended: whoever asked first closes its thread."""
    if run.ctx.thread_id is None or run.state not in TERMINAL or run.closed:
        return False
    run.closed = True
    return True
