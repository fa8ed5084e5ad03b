"""The edge: turns an effect into its outcome, sync and async. What a model or a tool does becomes data here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeGuard

from fsm_agent.effects import (
    Answered,
    Approve,
    AskHuman,
    Call,
    CallModel,
    CallTools,
    Cancelled,
    Decision,
    Deny,
    Effect,
    Expired,
    Outcome,
    Wait,
    Waited,
)
from fsm_agent.errors import RunError
from fsm_agent.jobs import CALLER_THREAD, CallerThread, CancelRequested, Job, Work, in_thread, on_task
from fsm_agent.perform_model import ModelPerformer
from fsm_agent.perform_tools import ToolPerformer
from fsm_agent.review import decision_error

__all__ = ["Approver", "Performer"]

Approver = Callable[[Call], "Decision | bool | Awaitable[Decision | bool]"]
"""Decides about one call, in place: a decision, or True and False for a plain approval and denial. May be async for the async methods."""


class Performer:
    """Performs effects. One for each agent; keeps nothing of a run."""

    def __init__(self, model: ModelPerformer, tools: ToolPerformer, approve: Approver | None) -> None:
        self._model = model
        self._tools = tools
        self._approve = approve

    @property
    def asks_here(self) -> bool:
        """True when there is somebody to ask at once."""
        return self._approve is not None

    def perform(self, effect: Effect, job: Job) -> Generator[Work | CallerThread, Any, Outcome | None]:
        """The outcome of `effect`; None when it asks a person and nobody is there to answer, so that the run is suspended."""
        try:
            job.check()
            match effect:
                case CallModel():
                    return (yield from self._model.perform(effect, job))
                case CallTools():
                    return (yield from self._tools.perform(effect, job))
                case Wait(seconds=seconds):
                    yield Work(job, lambda _: job.clock.sleep(seconds), None)
                    job.check()
                    return Waited(job.now())
                case AskHuman():
                    yield CALLER_THREAD
                    return self._ask(effect, job)
        except CancelRequested as request:
            return Cancelled(str(request), job.now(), tuple(job.ended))

    def streams(self, effect: Effect, job: Job) -> TypeGuard[CallModel]:
        """Whether the outcome of `effect` comes in pieces on the event loop: see `astream`."""
        return isinstance(effect, CallModel) and self._model.streams(job)

    async def aperform(self, effect: Effect, job: Job) -> Outcome | None:
        """The outcome of `effect`, on the event loop."""
        try:
            job.check()
            match effect:
                case CallModel():
                    return await self._model.aperform(effect, job)
                case CallTools():
                    return await self._tools.aperform(effect, job)
                case Wait(seconds=seconds):
                    await on_task(job, job.clock.asleep(seconds))
                    return Waited(job.now())
                case AskHuman():
                    return await on_task(job, self._aask(effect, job))
        except CancelRequested as request:
            return Cancelled(str(request), job.now(), tuple(job.ended))

    async def astream(self, effect: CallModel, job: Job) -> AsyncGenerator[str | Outcome]:
        """The pieces of a streamed reply, and last the outcome."""
        try:
            job.check()
            async with aclosing(self._model.astream(effect, job)) as stream:
                while (item := await on_task(job, _next(stream))) is not None:
                    yield item
        except CancelRequested as request:
            yield Cancelled(str(request), job.now())

    def _ask(self, effect: AskHuman, job: Job) -> Answered | Expired | None:
        if self._approve is None:
            return None
        begun = job.clock.monotonic()
        decisions: dict[str, Decision] = {}
        for call in effect.calls:
            said = self._approve(_to_show(call))
            if inspect.isawaitable(said):
                close = getattr(said, "close", None)
                if close is not None:
                    close()
                raise RunError("approve is async: use ainvoke or astream, or give a plain function")
            # Whoever was asked may have cancelled the run instead of answering.
            job.check()
            decisions[call.id] = _decision(said, call)
        return _in_time(effect, job, begun, decisions)

    async def _aask(self, effect: AskHuman, job: Job) -> Answered | Expired | None:
        if self._approve is None:
            return None
        begun = job.clock.monotonic()
        decisions: dict[str, Decision] = {}
        scope = asyncio.timeout(effect.expires_in)
        try:
            async with scope:
                for call in effect.calls:
                    decisions[call.id] = await self._asay(self._approve, call)
                    job.check()
        except TimeoutError:
            if scope.expired():
                return Expired(job.clock.monotonic() - begun, job.now())
            raise
        return _in_time(effect, job, begun, decisions)

    async def _asay(self, approve: Approver, call: Call) -> Decision:
        """A person may take long: a plain function is asked on a thread, so that the event loop stays free."""
        shown = _to_show(call)
        said: Any = (
            await approve(shown) if inspect.iscoroutinefunction(approve) else await in_thread(lambda: approve(shown))
        )
        return _decision(await said if inspect.isawaitable(said) else said, call)


def _to_show(call: Call) -> Call:
    """`call` for somebody else's code: what that makes of the arguments to show them changes neither the call nor its record."""
    return replace(call, arguments=deepcopy(call.arguments))


def _in_time(effect: AskHuman, job: Job, begun: float, decisions: Mapping[str, Decision]) -> Answered | Expired:
    """What was decided, unless it was decided too late: then nothing was."""
    waited, now = job.clock.monotonic() - begun, job.now()
    if effect.expires_in is not None and waited > effect.expires_in:
        return Expired(waited, now)
    return Answered(decisions=decisions, waited=waited, at=now)


async def _next(stream: AsyncIterator[Any]) -> Any:
    return await anext(stream, None)


def _decision(said: Any, call: Call) -> Decision:
    if isinstance(said, bool):
        return Approve() if said else Deny()
    if isinstance(said, Decision):
        wrong = decision_error(said, call)
        if wrong:
            raise ValueError(f"approve: {wrong}")
        return said
    raise TypeError(
        f"approve returned {type(said).__name__}; return True, False, Approve(), Edit(args), Deny(reason) or Answer(text)"
    )
