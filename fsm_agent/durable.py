"""The durable order of a run: *started* before an effect, a result as soon as it is there, the outcome before anything follows from it.

What is added in between goes to the store with the next of these, in one write.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from fsm_agent.alphabet import TERMINAL, Status
from fsm_agent.effects import (
    AskHuman,
    Broke,
    CallModel,
    CallTools,
    Cancelled,
    Doubted,
    Effect,
    Outcome,
    Result,
    Returned,
    Wait,
)
from fsm_agent.errors import FsmAgentError, TrailError
from fsm_agent.runs import Run
from fsm_agent.tools.registry import Registry
from fsm_agent.trail.codec import result_data, started_data
from fsm_agent.trail.journal import CLAIM_SECONDS
from fsm_agent.turn import turn

__all__ = ["Remainder", "adurable", "begin", "catch_up", "conclude", "durable", "remainder_of"]


def durable(written: Future[None]) -> None:
    """Wait until what was flushed is on disk. Raises `TrailError` when it cannot be, `RunHeld` when another writer has the run."""
    try:
        written.result()
    except Exception as error:
        raise _refused(error) from error


async def adurable(written: Future[None]) -> None:
    """The same on the event loop."""
    try:
        await asyncio.wrap_future(written)
    except Exception as error:
        raise _refused(error) from error


def _refused(error: Exception) -> Exception:
    if isinstance(error, FsmAgentError):
        return error
    return TrailError(f"the trail could not be written: {type(error).__name__}: {error}")


def begin(run: Run, effect: Effect, *, asks_here: bool, tools: Registry) -> Future[None]:
    """Write down that `effect` is about to be performed. A run that will wait for a person is given back in the same write.

    Raises `CancelRequested` for one that was cancelled before that.
    """
    trail = run.trail
    assert trail is not None, "only runs with a trail are written down"
    suspends = isinstance(effect, AskHuman) and not asks_here
    if suspends:
        run.job.check()  # once it is given back, that it was cancelled could not be written down any more
    trail.add("started", started_data(effect, trail.time()))
    if isinstance(effect, AskHuman) and suspends:
        run.asked_at = trail.time()
        return trail.flush(lease=0.0, status=Status.SUSPENDED, reason=_why(effect))
    if isinstance(effect, CallTools):
        run.job.keep = _keeper(run, len(effect.calls))
    return trail.flush(lease=CLAIM_SECONDS + _longest(effect, run, tools))


def _why(effect: AskHuman) -> str:
    return "in_doubt" if any(call.doubt for call in effect.calls) else ""


def _longest(effect: Effect, run: Run, tools: Registry) -> float:
    """How long an effect may take, in seconds."""
    if isinstance(effect, CallModel):
        return effect.timeout
    if isinstance(effect, Wait):
        return effect.seconds
    if isinstance(effect, AskHuman):
        return effect.expires_in or math.inf
    own = [
        tool.timeout
        for call in effect.calls
        if (tool := tools.resolve(call.tool)) is not None and tool.timeout is not None
    ]
    return max([run.ctx.limits.tool_timeout, *own]) * len(effect.calls)


def _keeper(run: Run, calls: int) -> Callable[[Result], Future[None] | None]:
    """Writes down each result of a batch: at once while others are under way, the last one with the outcome."""
    left = [None] * calls

    def keep(result: Result) -> Future[None] | None:
        trail = run.trail
        # A call that the run was stopped without goes on in its thread, and may end at any time.
        if trail is None or not trail.add("result", result_data(result)):
            return None
        left.pop()
        return trail.flush(lease=CLAIM_SECONDS + run.ctx.limits.tool_timeout * len(left)) if left else None

    return keep


def conclude(run: Run) -> Future[None]:
    """Make the end of the run durable, or that it waits; either way it is given back."""
    trail = run.trail
    assert trail is not None, "only runs with a trail are written down"
    if not trail.held and trail.newest is not None:
        return trail.newest  # has given it back, or has failed to
    if run.state in TERMINAL:
        ended = run.result()
        return trail.flush(lease=0.0, status=ended.status, reason=ended.reason or "")
    if run.asking is None:
        trail.add("paused", {"state": run.state, "seq": run.ctx.seq})
    return trail.flush(lease=0.0, status=Status.SUSPENDED, reason="" if run.asking is None else _why(run.asking))


def catch_up(run: Run) -> None:
    """Let follow what a crash has kept from following from the last outcome."""
    outcome, run.unfolded = run.unfolded, None
    if outcome is None:
        return
    try:
        run.move(turn(run.machine, run.state, run.ctx, outcome))
    except Exception as error:  # noqa: BLE001 - as in a run that goes on: a bug in a state, guard or dialect ends it, typed
        run.stop(run.broke(error))


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of an effect after a crash: `effect` is to be performed (None: nothing), `known` are results, `doubt` calls in doubt.

    `order` is the ids of all calls of the batch.
    """

    effect: Effect | None
    known: Mapping[str, Result]
    doubt: tuple[str, ...]
    order: tuple[str, ...]

    def outcome(self, performed: Outcome | None, at: float) -> Outcome | None:
        """The outcome of the whole effect, given that of the rest."""
        if isinstance(performed, Cancelled | Broke) or not self.order:
            return performed
        results = dict(self.known)
        if isinstance(performed, Returned):
            results |= {one.call_id: one for one in performed.results}
        found = tuple(results[call_id] for call_id in self.order if call_id in results)
        if self.doubt:
            return Doubted(calls=self.doubt, results=found, at=at)
        return Returned(results=found, at=at)


def remainder_of(run: Run, effect: Effect, tools: Registry) -> Remainder:
    """What is left to do of `effect`: no call with a result is made again, and of the others only idempotent ones, under the same key."""
    recovered, run.recovered = run.recovered, None
    if recovered is None or isinstance(effect, CallModel | AskHuman):
        return Remainder(effect, {}, (), ())
    if isinstance(effect, Wait):
        left = effect.seconds if recovered.until is None else max(recovered.until - run.job.clock.time(), 0.0)
        # A clock that was set back must not make the wait longer than it was to be.
        return Remainder(Wait(min(left, effect.seconds)), {}, (), ())
    known = {
        call_id: result for call_id, result in recovered.results.items() if call_id in {one.id for one in effect.calls}
    }
    missing = [call for call in effect.calls if call.id not in known]
    again = tuple(call for call in missing if (tool := tools.resolve(call.tool)) is not None and tool.idempotent)
    doubt = tuple(call.id for call in missing if call not in again)
    order = tuple(call.id for call in effect.calls)
    run.job.ended = list(known.values())
    return Remainder(replace(effect, calls=again) if again else None, known, doubt, order)
