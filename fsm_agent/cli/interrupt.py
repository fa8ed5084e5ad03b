"""Ctrl-C: the first one cancels the run, which ends in order; the second one kills the program."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import FrameType
from typing import Final

__all__ = ["cancelling_on_interrupt"]

_AGAIN_SECONDS: Final = 0.05


@contextlib.contextmanager
def cancelling_on_interrupt(cancel: Callable[[], bool], announce: Callable[[], None]) -> Iterator[None]:
    """While this is open, Ctrl-C calls `announce`, and `cancel` until it says True; a second one ends the process at once.

    Both are called on a thread of their own: a signal arrives between any two instructions of the main thread, which
    may hold the very lock that they need. Off the main thread nothing is installed, because only that one gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    requests: SimpleQueue[bool] = SimpleQueue()
    over = threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        requests.put(True)

    def serve() -> None:
        if requests.get():
            announce()
            # The run may not have begun yet, or be between two effects: ask until it has heard.
            while not over.is_set() and not cancel():
                over.wait(_AGAIN_SECONDS)

    before = signal.signal(signal.SIGINT, interrupted)
    server = threading.Thread(target=serve, name="fsm-agent-interrupt", daemon=True)
    server.start()
    try:
        yield
    finally:
        over.set()
        requests.put(False)
        server.join()
        signal.signal(signal.SIGINT, before)
