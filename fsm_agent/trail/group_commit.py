"""Group commit: one thread writes for a store. It takes everything that has been asked meanwhile, and has it done at once."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from fsm_agent.errors import TrailError
from fsm_agent.os_fork import Forkable, through_forks

__all__ = ["Closable", "GroupCommit", "watch"]

Ask = TypeVar("Ask")
_AT_ONCE: Final = 256
"""How much is taken at once, so that the first ones do not wait without end for the last."""
_SLOW: Final = 0.001
_GATHERING: Final = 0.0005
"""Seconds: what counts as a slow write, and how long at most to wait for more to be written with the next one."""
_PATIENCE: Final = 60.0
"""Seconds that closing waits for a thread that writes by itself."""


class _Asked(NamedTuple, Generic[Ask]):
    """Something to be written, and the future of its answer. `group` is kept, so that its store lives until it is written."""

    group: GroupCommit[Ask]
    ask: Ask
    future: Future[Any]


class GroupCommit(Generic[Ask]):
    """A queue and its thread, which the first `put` begins. It is a daemon, but the end of the interpreter waits for the queue.

    The thread ends when nobody has the store any more.

    `perform` is given what is to be written, in order, and returns for each its answer or the exception that it failed with; it may be
    called by two threads at once. `let_go` is called when nothing more is going to be written.
    """

    def __init__(
        self, name: str, perform: Callable[[Sequence[Ask]], Sequence[Any]], let_go: Callable[[], None]
    ) -> None:
        self._name = name
        self._perform = perform
        self._let_go = let_go
        self._queue: SimpleQueue[_Asked[Ask] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._waiting = 0
        self._lock = threading.Lock()
        self._here = threading.Lock()

    def put(self, ask: Ask, *, here: bool = False) -> Future[Any]:
        """Ask for something. The future cannot be cancelled: what was asked is written. After `close` it fails with `TrailError`.

        With `here` the calling thread writes by itself when nobody else is writing, and the future is done: for a caller that would wait
        anyway, it saves two switches of threads.
        """
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            with self._lock:
                if self._closed:
                    raise TrailError(f"{self._name} is closed; open it again with a new object")
                here = here and not self._waiting and self._here.acquire(blocking=False)
                if not here and self._thread is None:
                    thread = threading.Thread(target=_work, args=(self._queue,), name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread
                    weakref.finalize(self, self._queue.put, None).atexit = False
                self._waiting += 1
                if not here:
                    self._queue.put(_Asked(self, ask, future))
        except (TrailError, RuntimeError) as error:  # RuntimeError: no thread can be begun any more
            future.set_exception(error if isinstance(error, TrailError) else TrailError(f"{self._name}: {error}"))
            return future
        if here:
            try:
                self.answer([_Asked(self, ask, future)])
            finally:
                self._here.release()
        return future

    def close(self) -> None:
        """Have everything done that was asked so far, and end the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        idle = self._here.acquire(timeout=_PATIENCE)
        self._let_go()
        if idle:
            self._here.release()

    def answer(self, asked: Sequence[_Asked[Ask]]) -> None:
        """Have it all written, and tell those who asked."""
        try:
            answers = self._perform([one.ask for one in asked])
        except BaseException as error:  # noqa: BLE001 - whoever waits is told, and the thread lives on for the others
            answers = [error] * len(asked)
        with self._lock:
            self._waiting -= len(asked)
        for one, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                one.future.set_exception(answer)
            else:
                one.future.set_result(answer)


def _work(queue: SimpleQueue[_Asked[Any] | None]) -> None:
    """What the thread of a group commit does. It has nothing of it but the queue, so that it keeps no store alive while it waits."""
    last, gathering = False, 0.0
    while not last:
        taken = [queue.get()]
        if gathering:
            time.sleep(gathering)
        while len(taken) < _AT_ONCE and not queue.empty():
            taken.append(queue.get())
        asked = [one for one in taken if one is not None]
        last = len(asked) < len(taken)
        if asked:
            began = time.perf_counter()
            asked[0].group.answer(asked)
            # Those who were just answered ask again in a moment: a short wait for them spares each second sync.
            took = time.perf_counter() - began
            gathering = min(took / 10, _GATHERING) if len(asked) > 1 and took > _SLOW else 0.0
        del taken, asked


# ---------------------------------------------------------------- the end of the interpreter


class Closable(Forkable, Protocol):
    """A store that lives through `fork` and the end of the interpreter."""

    def close(self) -> None:
        """As `TrailStore.close`."""


_STORES: Final[weakref.WeakSet[Closable]] = weakref.WeakSet()


def watch(store: Closable) -> None:
    """Have `store` told of `fork`, and closed at the end of the interpreter."""
    through_forks(store)
    _STORES.add(store)


def _close_all() -> None:
    for store in list(_STORES):
        store.close()


atexit.register(_close_all)
