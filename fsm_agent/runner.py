"""Driving runs: on the calling thread or on the event loop, to an end that is always terminal, consistent and told once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from fsm_agent.alphabet import TERMINAL
from fsm_agent.context import Setup
from fsm_agent.driver import Driven
from fsm_agent.durable import adurable, begin, catch_up, conclude, durable, remainder_of
from fsm_agent.effects import CallModel, Effect, Outcome
from fsm_agent.errors import FsmAgentError, RunBusy, RunError, UnknownRun
from fsm_agent.history import Block
from fsm_agent.jobs import CALLER_THREAD, CallerThread, Work, claimed_in_thread
from fsm_agent.leaving import (
    PATIENCE,
    areclaim_if_cancelled,
    arelease_when_written,
    reclaim_if_cancelled,
    release_when_written,
    stop_on_error,
)
from fsm_agent.memory import Conversations
from fsm_agent.observe import Observer
from fsm_agent.os_fork import through_forks
from fsm_agent.perform import Performer
from fsm_agent.records import RunResult, Token, Transitioned
from fsm_agent.recovery import Host, Resumption, reopened, taken_over
from fsm_agent.runs import NO_PAUSES, Pauses, Run, drive, send
from fsm_agent.slots import Slot, Slots
from fsm_agent.threads import Threads
from fsm_agent.tracing import Trace
from fsm_agent.trail.journal import Journal
from fsm_agent.workers import run_outside_gc

__all__ = ["Runner", "StreamItem"]

StreamItem = Transitioned | Token | RunResult
"""What `stream` yields: transitions as they happen, pieces of the reply, and last the result."""


class Runner:
    """Drives the runs of one agent, and knows which are under way and which wait for a person. Safe from any thread."""

    def __init__(
        self,
        performer: Performer,
        store: Conversations,
        setup: Setup,
        *,
        journal: Journal | None = None,
        observers: Sequence[Observer] = (),
        pauses: Callable[[], Pauses] = lambda: NO_PAUSES,
    ) -> None:
        self._performer = performer
        self._threads = Threads(store, journal)
        self._setup = setup
        self._tools = setup.tools
        self._journal = journal
        self._observers = observers
        self._pauses = pauses
        self.slots = Slots()
        through_forks(self)

    def before_fork(self) -> None:
        """No thread is at work with the lists of runs."""
        self.slots.lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on; the runs that are under way go on in the parent alone."""
        if child:
            self._threads.forget(self.slots.forget())
        self.slots.lock.release()

    def open(self, slot: Slot, thread_id: str | None) -> tuple[Block, ...]:
        """Take run id and thread for a new run: its history, () without a thread. Raises `RunBusy` while another run has one of them.

        Whatever is raised, or comes up before the run goes on, `release` gives them up.
        """
        self.slots.new(slot)
        return self._threads.open(thread_id, slot.run_id)

    async def aopen(self, slot: Slot, thread_id: str | None) -> tuple[Block, ...]:
        """`open` without blocking the event loop. When the await is cancelled, run id and thread are given up as soon as they can be."""
        self.slots.new(slot)
        opened = partial(self._opened, slot, thread_id)
        try:
            return await self._threads.claimed(thread_id, opened, partial(self.release, slot, thread_id))
        except RunError:  # `_opened` has given it up
            raise
        except RuntimeError:  # no worker could be begun, so that nothing was opened
            self.release(slot, None)
            raise

    def _opened(self, slot: Slot, thread_id: str | None) -> tuple[Block, ...]:
        try:
            return self._threads.open(thread_id, slot.run_id)
        except BaseException:
            self.release(slot, None)
            raise

    def release(self, slot: Slot, thread_id: str | None) -> None:
        """Give up a new run, unless it went on, and its thread."""
        if not self.slots.has(slot):
            return
        try:
            self._threads.give_back(thread_id, slot.run_id)
        finally:
            self.slots.give_up(slot)

    async def arelease(self, slot: Slot, thread_id: str | None) -> None:
        """`release` without blocking the event loop."""
        await self._threads.freed(thread_id, partial(self.release, slot, thread_id))

    def run(self, run: Run, trace: Trace, outcome: Outcome | None) -> Driven:
        """`run` for `fsm_agent.driver` to drive. `outcome` is what a suspended run waits for."""
        core = drive(run)
        try:
            self.slots.enter(run)
            if run.trail is not None:
                run.trail.here = True
            catch_up(run)
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    if run.job.streaming:
                        yield item
                    item = next(core, None)
                    continue
                if outcome is None:
                    outcome = yield from self._perform(run, item)
                item, outcome = send(core, outcome), None
            yield CALLER_THREAD
            if run.trail is not None:
                durable(conclude(run))
            result = self._finish(run)
            self._leave(run)
        except BaseException as error:
            run_outside_gc(partial(self._break_off, run, trace, error))
            raise
        try:
            yield result
        finally:
            run_outside_gc(partial(trace.end, result))

    async def arun(self, run: Run, trace: Trace, outcome: Outcome | None) -> AsyncGenerator[StreamItem]:
        """Drive `run` on the event loop."""
        core = drive(run)
        try:
            self.slots.enter(run)
            catch_up(run)
            item: Transitioned | Effect | None = next(core, None)
            while item is not None:
                if isinstance(item, Transitioned):
                    if run.job.streaming:
                        yield item
                    item = next(core, None)
                    continue
                if outcome is not None:
                    pass
                elif self._performer.streams(item, run.job):
                    async with aclosing(self._astream(run, item)) as performing:
                        async for piece in performing:
                            if isinstance(piece, Token):
                                yield piece
                            else:
                                outcome = piece
                else:
                    outcome = await self._aperform(run, item)
                item, outcome = send(core, outcome), None
            result = await self._afinish(run)
        except BaseException as error:
            await arelease_when_written(run, stop_on_error(run, error), partial(self._let_go, run))
            await trace.afail(error)
            raise
        finally:
            await self._aleave(run)
        try:
            yield result
        finally:
            await trace.aend(result)

    def take(self, slot: Slot, resumption: Resumption) -> tuple[Run, Outcome | None] | RunResult:
        """Take a run that is not under way, with what the caller goes on with: exactly one caller gets it.

        The result instead, when people have still to decide. Raises `UnknownRun` for a run that nobody knows or that has ended, `RunHeld`
        while another writer has it, `RunError` for what does not fit; the run is then as it was. Until it goes on, `put_back` gives it up.
        """
        try:
            run = self._take(slot)
            if run.trail is None and run.paused:
                run.job.started = run.job.clock.monotonic() - run.last
            outcome = reopened(run, resumption, run.ctx.setup)
        except BaseException:
            self.put_back(slot)
            raise
        # Somebody to ask at once is asked again, unless people elsewhere have begun to decide.
        asked_here = self._performer.asks_here and not run.decided
        if outcome is None and run.asking is not None and not asked_here:
            return self._left(slot, run)
        return run, outcome

    async def atake(self, slot: Slot, resumption: Resumption) -> tuple[Run, Outcome | None] | RunResult:
        """`take` without blocking the event loop. When the await is cancelled, the run is left as it was."""
        if self._journal is None:
            return self.take(slot, resumption)
        # What people decided about some of the calls is kept all the same.
        return await claimed_in_thread(lambda: self.take(slot, resumption), lambda _: self.put_back(slot))

    def _take(self, slot: Slot) -> Run:
        slot.run = run = self.slots.again(slot) or self._stored(slot)
        run.pauses = self._pauses()
        return run

    def _stored(self, slot: Slot) -> Run:
        if self._journal is None:
            raise UnknownRun(
                f"no run {slot.run_id!r} waits here: it was never suspended by this agent, or somebody has already resumed or "
                'cancelled it. Runs outlive their process in a store: Agent(..., store="runs.db")'
            )
        host = Host(self._observers, self._tools)
        slot.run = run = taken_over(self._journal, slot.run_id, self._setup, self._journal.machine, host)
        try:
            self._threads.rebase(run)
        except RunBusy:  # the thread is another run's, and stays so
            slot.run = None
            self._let_go(run)
            raise
        return run

    def _let_go(self, run: Run) -> None:
        """Hold a run no longer, whatever could not be written of it: it can be resumed from the entries that are there."""
        if run.trail is not None and self._journal is not None:
            self._journal.let_go(run.job.run_id, run.trail.owner)

    def put_back(self, slot: Slot) -> None:
        """Leave a run that was taken as it was, unless it went on."""
        if not self.slots.has(slot):
            return
        run = slot.run
        if run is not None:
            self._threads.leave(run)
        try:
            # A run that waits for somebody keeps its thread meanwhile.
            if run is not None and run.trail is not None and run.asking is None and not run.paused:
                self._threads.give_back(run.ctx.thread_id, slot.run_id)
        finally:
            if run is not None:
                self._let_go(run)
            self.slots.give_up(slot)
            self._apply_requested_cancel(slot)

    def _left(self, slot: Slot, run: Run) -> RunResult:
        """What was decided so far is kept, and the run goes on waiting."""
        try:
            if run.trail is not None:
                durable(conclude(run))
            return self._finish(run)
        except BaseException:
            self._let_go(run)
            raise
        finally:
            self._gone(run)
            self._apply_requested_cancel(slot)

    def _apply_requested_cancel(self, slot: Slot) -> None:
        """Stop a run that goes on waiting, where somebody was told meanwhile that it will be."""
        if slot.why is not None and not slot.ends:
            with suppress(FsmAgentError):  # what became of the run is for the caller to hear
                self.cancel(slot.run_id, slot.why)

    def cancel(self, run_id: str, why: str) -> bool:
        """Stop a run. False when no such run is under way or waits."""
        cancelled = self.slots.cancel(run_id, why)
        if cancelled is not None:
            return cancelled
        slot = Slot(run_id, ends=True)
        try:
            run = self._take(slot)
            catch_up(run)
            run.stop(run.cancelled(why))
            if run.trail is not None:
                durable(conclude(run))
            self._end(run)
        except BaseException as error:
            if slot.run is not None and slot.run.state in TERMINAL:
                self._end_behind(slot.run)
                raise
            self.put_back(slot)
            if isinstance(error, UnknownRun | RunBusy):
                return False
            raise
        return True

    def _end_behind(self, run: Run) -> None:
        try:
            release_when_written(run, None if run.trail is None else conclude(run), partial(self._let_go, run))
        finally:
            self._end(run)

    def _end(self, run: Run) -> None:
        self.slots.end(run)
        self._leave(run)

    def _perform(self, run: Run, effect: Effect) -> Generator[Work | CallerThread, Any, Outcome | None]:
        try:
            if run.trail is None and run.recovered is None:
                return (yield from self._performer.perform(effect, run.job))
            rest = remainder_of(run, effect, self._tools)
            if rest.effect is None:
                return rest.outcome(None, run.job.now())
            if run.trail is not None:
                durable(self._begin(run, rest.effect))
                if self._journal is not None and not run.trail.held:
                    return reclaim_if_cancelled(run, self._journal)
            return rest.outcome((yield from self._performer.perform(rest.effect, run.job)), run.job.now())
        except FsmAgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the performer ends the run, typed
            return run.broke(error)

    def _begin(self, run: Run, effect: Effect) -> Future[None]:
        return begin(run, effect, asks_here=self._performer.asks_here, tools=self._tools)

    async def _aperform(self, run: Run, effect: Effect) -> Outcome | None:
        try:
            if run.trail is None and run.recovered is None:
                return await self._performer.aperform(effect, run.job)
            rest = remainder_of(run, effect, self._tools)
            if rest.effect is None:
                return rest.outcome(None, run.job.now())
            if run.trail is not None:
                await adurable(self._begin(run, rest.effect))
                if self._journal is not None and not run.trail.held:
                    return await areclaim_if_cancelled(run, self._journal)
            return rest.outcome(await self._performer.aperform(rest.effect, run.job), run.job.now())
        except FsmAgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the performer ends the run, typed
            return run.broke(error)

    async def _astream(self, run: Run, effect: CallModel) -> AsyncGenerator[Token | Outcome]:
        """The outcome of a call of the model, with the pieces of its reply. Nothing of such a call outlives a crash: it is made again."""
        run.recovered = None
        try:
            if run.trail is not None:
                await adurable(self._begin(run, effect))
            async with aclosing(self._performer.astream(effect, run.job)) as performing:
                async for piece in performing:
                    yield Token(run.job.run_id, piece) if isinstance(piece, str) else piece
        except FsmAgentError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the performer ends the run, typed
            yield run.broke(error)

    def _leave(self, run: Run) -> None:
        self._gone(run)
        self._threads.close(run)

    async def _aleave(self, run: Run) -> None:
        self._gone(run)
        with suppress(TimeoutError):  # the worker goes on with it
            async with asyncio.timeout(PATIENCE):
                await self._threads.aclose(run)

    def _gone(self, run: Run) -> None:
        run.job.close()
        self._threads.leave(run)
        self.slots.leave(run)

    def _finish(self, run: Run) -> RunResult:
        """The result; a run that waits for a person is kept until it is resumed or cancelled, unless a store has it."""
        self._threads.close(run)
        if run.state not in TERMINAL and run.trail is None:
            run.asked_at = run.asked_at if run.decided else run.job.clock.time()
            self.slots.wait(run)
        return run.result()

    async def _afinish(self, run: Run) -> RunResult:
        if run.trail is not None:
            await adurable(conclude(run))
        await self._threads.aclose(run)
        return self._finish(run)

    def _break_off(self, run: Run, trace: Trace, error: BaseException) -> None:
        try:
            release_when_written(run, stop_on_error(run, error), partial(self._let_go, run))
            trace.fail(error)
        finally:
            self._end(run)
