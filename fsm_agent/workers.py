"""Daemon worker threads: blocking work that can be given up on.

`concurrent.futures` joins its threads when the interpreter ends, so one tool that hangs would hang the program. These threads
are daemons: work that was given up on dies with the program, and a worker is reused when its work returns.
"""

from __future__ import annotations

import contextvars
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

__all__ = ["run_outside_gc", "start"]

_IDLE_KEPT: Final = 256
"""As many as a busy service has runs at once: starting a thread costs more than the tool call that it is for."""
_idle: list[SimpleQueue[Callable[[], None]]] = []
# Taken again on the same thread by what the garbage collector closes there.
_lock = threading.RLock()
_phases: Final[dict[str, Any]] = {}
"""What the garbage collector told when it began ("start") and ended ("stop"); the newest comes last."""
_begun: Final = threading.local()
"""The same as far as it was told on this thread."""


def start(work: Callable[[], None]) -> None:
    """Run `work` on a worker thread in a copy of the caller's context variables. `work` must not raise; it reports by itself."""
    context = contextvars.copy_context()
    with _lock:
        inbox = _idle.pop() if _idle else None
    if inbox is None:
        inbox = SimpleQueue()
        threading.Thread(target=_serve, args=(inbox,), name="fsm_agent-worker", daemon=True).start()
    inbox.put(lambda: context.run(work))


def run_outside_gc(act: Callable[[], object]) -> None:
    """Do `act` here; on a worker where the garbage collector calls, as whatever it has interrupted on this thread may hold any lock."""
    if not _collecting():
        act()
        return
    try:
        start(partial(_unheard, act))
    except RuntimeError:  # the interpreter ends, and begins no thread any more
        act()


def _unheard(act: Callable[[], object]) -> None:
    with suppress(Exception):
        act()


def _collecting() -> bool:
    """True where the garbage collector, on this thread, has called what calls this."""
    told = _phases.get("start")
    return told is not None and next(reversed(_phases), "") == "start" and getattr(_begun, "start", None) is told


# None of them is Python code: Ctrl-C in that would be lost, as whatever a callback of the collector raises.
gc.callbacks.extend([_phases.pop, _phases.__setitem__, partial(setattr, _begun)])


def _serve(inbox: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        work = inbox.get()
        work()
        del work
        with _lock:
            if len(_idle) >= _IDLE_KEPT:
                return
            _idle.append(inbox)


def _after_fork() -> None:
    """A forked child has none of these threads, and must not wait for a lock that one of them held."""
    global _lock  # noqa: PLW0603 - the lock of the parent is of no use in the child
    _lock = threading.RLock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
