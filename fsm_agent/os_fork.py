"""What has to be done around `fork`, by whatever has locks or files that a child must not be copied with."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

__all__ = ["Forkable", "through_forks"]


class Forkable(Protocol):
    """What lives through `fork`."""

    def before_fork(self) -> None:
        """Come to rest: whatever cannot be copied in the middle of it is over, and does not begin again before `after_fork`."""

    def after_fork(self, *, child: bool) -> None:
        """Go on; in a child as a new object, with nothing of the parent's."""


_LIVING: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_RESTING: Final[list[Forkable]] = []
_lock = threading.RLock()


def through_forks(one: Forkable) -> None:
    """Have `one` told of `fork`, as long as somebody has it."""
    with _lock:
        _LIVING.add(one)


def _before_fork() -> None:
    # Until the fork is over: of two threads that fork, neither may wait for what the other has brought to rest.
    _lock.acquire()
    for one in list(_LIVING):
        one.before_fork()
        _RESTING.append(one)


def _after_fork(*, child: bool) -> None:
    while _RESTING:
        _RESTING.pop().after_fork(child=child)
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )
