"""Driving runs: on the calling thread or on the event loop, to an end that is always terminal, consistent and told once."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing
from typing import Any

from fsm_agent.alphabet import TERMINAL
from fsm_agent.effects import Answered, Broke, Cancelled, Decision, Effect, Expired, Outcome
from fsm_agent.errors import FsmAgentError, RunBusy, UnknownRun
from fsm_agent.jobs import HERE, Here, Work
from fsm_agent.memory import Conversations
from fsm_agent.perform import Performer
from fsm_agent.pilot import Driven
from fsm_agent.records import RunResult, Token, Transitioned
from fsm_agent.replies import words_of
from fsm_agent.review import decisions_for
from fsm_agent.runs import Run, drive
from fsm_agent.tools.registry import Registry
from fsm_agent.tracing import Trace

__all__ = ["Runner", "StreamItem"]

StreamItem = Transitioned | Token | RunResult
"""What `stream` yields: transitions as they happen, pieces of the reply, and last the result."""

_Core = Generator[Transitioned | Effect, Outcome | None, None]


class Runner:
    """Drives the runs of one agent, and knows which are under way and which wait for a person. Safe from any thread."""

    def __init__(self, performer: Performer, store: Conversations, tools: Registry) -> None:
        self._performer = performer
        self._store = store
        self._tools = tools
        self._active: dict[str, Run | None] = {}
        self._suspended: dict[str, Run] = {}
        self._lock = threading.Lock()

    def reserve(self, run_id: str) -> None:
        """Take `run_id` for a new run. Raises `RunBusy` while another run has it."""
        with self._lock:
            if run_id in self._active or run_id in self._suspended:
                raise RunBusy(f"a run {run_id!r} is already under way here; give each run an id of its own")
            self._active[run_id] = None

    def release(self, run_id: str, thread_id: str | None) -> None:
        """Give up a run that never began, and its thread."""
        with self._lock:
            self._active.pop(run_id, None)
        if thread_id is not None:
            self._store.close(thread_id, run_id, None)

    def run(self, run: Run, trace: Trace, outcome: Outcome | None) -> Driven:
        """`run` for `fsm_agent.pilot` to drive. `outcome` is what a suspended run waits for."""
        core = drive(run)
        self._enter(run)
        try:
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    if run.job.streaming:
                        yield item
                    item = next(core, None)
                    continue
                if outcome is None:
                    outcome = yield from self._perform(run, item)
                item, outcome = _send(core, outcome), None
            yield HERE
            result = self._finish(run)
        except BaseException as error:
            self._broken_off(run, error)
            trace.fail(error)
            raise
        finally:
            self._leave(run)
        try:
            yield result
        finally:
            trace.end(result)

    async def arun(self, run: Run, trace: Trace, outcome: Outcome | None) -> AsyncGenerator[StreamItem]:
        """Drive `run` on the event loop."""
        core = drive(run)
        self._enter(run)
        try:
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    yield item
                    item = next(core, None)
                    continue
                if outcome is None:
                    async with aclosing(self._aperform(run, item)) as performing:
                        async for piece in performing:
                            if isinstance(piece, Token):
                                yield piece
                            else:
                                outcome = piece
                item, outcome = _send(core, outcome), None
            result = self._finish(run)
        except BaseException as error:
            self._broken_off(run, error)
            await trace.afail(error)
            raise
        finally:
            self._leave(run)
        try:
            yield result
        finally:
            await trace.aend(result)

    def claim(self, run_id: str, decision: Decision | Mapping[str, Decision]) -> tuple[Run, Outcome]:
        """Take a suspended run with what was decided about it: exactly one caller gets it."""
        with self._lock:
            run = self._suspended.get(run_id)
        if run is None or run.asking is None:
            raise UnknownRun(
                f"no run {run_id!r} waits for a person here: it was never suspended by this agent, or somebody has "
                "already resumed or cancelled it"
            )
        decisions = decisions_for(run.asking, decision, self._tools)
        with self._lock:
            if self._suspended.pop(run_id, None) is None:
                raise UnknownRun(f"run {run_id!r} was resumed or cancelled by somebody else in this moment")
            self._active[run_id] = run
        now = run.job.now()
        waited = now - run.transitions[-1].at
        if run.asking.expires_in is not None and waited > run.asking.expires_in:
            return run, Expired(waited, now)
        return run, Answered(decisions=decisions, waited=waited, at=now)

    def cancel(self, run_id: str, why: str) -> bool:
        """Stop a run. False when no such run is under way."""
        with self._lock:
            active, waiting = self._active.get(run_id), self._suspended.pop(run_id, None)
        if waiting is not None:
            waiting.stop(Cancelled(why, waiting.job.now()))
            self._close(waiting)
        if active is not None:
            active.job.cancel(why)
        return active is not None or waiting is not None

    def _perform(self, run: Run, effect: Effect) -> Generator[Work | Here, Any, Outcome | None]:
        try:
            return (yield from self._performer.perform(effect, run.job))
        except FsmAgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the performer ends the run, typed
            return _broke(run, error)

    async def _aperform(self, run: Run, effect: Effect) -> AsyncGenerator[Token | Outcome | None]:
        try:
            async with aclosing(self._performer.aperform(effect, run.job)) as performing:
                async for piece in performing:
                    yield Token(run.job.run_id, piece) if isinstance(piece, str) else piece
        except FsmAgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the performer ends the run, typed
            yield _broke(run, error)

    def _enter(self, run: Run) -> None:
        with self._lock:
            self._active[run.job.run_id] = run

    def _leave(self, run: Run) -> None:
        with self._lock:
            self._active.pop(run.job.run_id, None)
        if run.asking is None:
            self._close(run)

    def _finish(self, run: Run) -> RunResult:
        """The result; a run that waits for a person is kept until it is resumed or cancelled."""
        if run.state not in TERMINAL:
            with self._lock:
                self._suspended[run.job.run_id] = run
        return run.result()

    def _broken_off(self, run: Run, error: BaseException) -> None:
        """Leave a terminal, consistent run behind, whatever broke it off."""
        if isinstance(error, Exception):
            run.stop(_broke(run, error))
        else:
            why = "the stream was closed" if isinstance(error, GeneratorExit) else type(error).__name__
            run.stop(Cancelled(why, run.job.now()))

    def _close(self, run: Run) -> None:
        """Give the thread back. A turn without an answer is kept only when its tools may have changed something."""
        ctx = run.ctx
        if ctx.thread_id is None or run.state not in TERMINAL:
            return
        keep = ctx.answer is not None or ctx.tool_calls > 0 or run.stopped_while_executing
        self._store.close(ctx.thread_id, ctx.run_id, run.closed_history() if keep else None)


def _send(core: _Core, outcome: Outcome | None) -> Transitioned | Effect | None:
    try:
        return core.send(outcome)
    except StopIteration:
        return None


def _broke(run: Run, error: Exception) -> Broke:
    return Broke(error=type(error).__name__, message=words_of(error), at=run.job.now())
