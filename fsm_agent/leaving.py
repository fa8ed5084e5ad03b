"""How a run is left: given back to wait for a person, or broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final

from fsm_agent.durable import conclude
from fsm_agent.effects import Cancelled
from fsm_agent.jobs import claimed_in_thread, in_thread
from fsm_agent.runs import Run
from fsm_agent.trail.journal import Journal, Taken

__all__ = [
    "PATIENCE",
    "areclaim_if_cancelled",
    "arelease_when_written",
    "reclaim_if_cancelled",
    "release_when_written",
    "stop_on_error",
]

PATIENCE: Final = 5.0
"""Seconds that a run which was broken off waits for its end to be written down."""


def reclaim_if_cancelled(run: Run, journal: Journal) -> Cancelled | None:
    """The outcome of a run that was given back to wait for a person: None, or that it was cancelled meanwhile, once it is held again."""
    return None if run.job.cancel_reason is None else _stopped(run, _regained(run, journal))


async def areclaim_if_cancelled(run: Run, journal: Journal) -> Cancelled | None:
    """The same on the event loop."""
    if run.job.cancel_reason is None:
        return None
    return _stopped(run, await claimed_in_thread(partial(_regained, run, journal), partial(_let_go, journal)))


def _regained(run: Run, journal: Journal) -> Taken | None:
    """None where others went on with the run since, or have it, or the store does not answer: then it is left to wait."""
    assert run.trail is not None, "only runs with a trail are given back"
    try:
        taken = journal.take(run.job.run_id)
    except Exception:  # noqa: BLE001 - what is stored says that it waits, and so does the result
        return None
    if taken.writer.length == run.trail.length:
        return taken
    _let_go(journal, taken)
    return None


def _let_go(journal: Journal, taken: Taken | None) -> None:
    if taken is not None:
        journal.let_go(taken.info.run_id, taken.writer.owner)


def _stopped(run: Run, taken: Taken | None) -> Cancelled | None:
    if taken is None:
        return None
    run.trail = taken.writer
    return Cancelled(run.job.cancel_reason or "", run.job.now())


def stop_on_error(run: Run, error: BaseException) -> Future[None] | None:
    """Leave a terminal, consistent run behind, whatever broke it off: what is being written of that, None for nothing."""
    if run.trail is not None and (run.torn or run.trail.torn):
        # Ctrl-C came in the middle of a move: what is known here is half of it. As after a crash, what is stored is whole.
        return None
    if isinstance(error, Exception):
        run.stop(run.broke(error))
    else:
        why = "the stream was closed" if isinstance(error, GeneratorExit) else type(error).__name__
        run.stop(run.cancelled(why))
    return None if run.trail is None else conclude(run)


def release_when_written(run: Run, written: Future[None] | None, let_go: Callable[[], None]) -> None:
    """Let go of a run that was broken off, once what is `written` of its end is there: not long, as the store may be what broke it off."""
    if run.trail is not None:
        with suppress(TimeoutError):
            if written is not None:
                run.unrecorded = written.exception(PATIENCE) is not None
            let_go()


async def arelease_when_written(run: Run, written: Future[None] | None, let_go: Callable[[], None]) -> None:
    """The same while the event loop goes on. It is done all the same when the await is cancelled."""
    if run.trail is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await in_thread(partial(release_when_written, run, written, let_go))
