"""Executing tool calls: each in its own context, none longer than its time-out, every failure a result that the model can act on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Generator
from json import JSONDecodeError
from typing import Any, Final

from fsm_agent.batch import PATIENCE, Batch, Stop, or_stop
from fsm_agent.effects import Call, CallTools, Result, Returned
from fsm_agent.failures import error_text, lost_midway, refused
from fsm_agent.jobs import CancelRequested, Job, TimedOut, Work, in_thread, on_task
from fsm_agent.language import Language, texts_for
from fsm_agent.redact import redact_text
from fsm_agent.tools.call import CallInfo, ToolRefusal, calling
from fsm_agent.tools.plain import well_formed
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.results import render_result
from fsm_agent.tools.signature import digest
from fsm_agent.tools.spec import Invalid, Tool
from fsm_agent.tracing import CallbackFailed, ToolTrace

__all__ = ["ToolPerformer", "failed_result", "returned_result"]

_BUGS: Final = (
    TypeError,
    AttributeError,
    NameError,
    AssertionError,
    NotImplementedError,
    ImportError,
    SyntaxError,
    RecursionError,
    ToolRefusal,
    CallbackFailed,
)
"""What a mistake in code raises, and what says that it is not to be tried again: a second try would fail as the first."""
_WRONG_VALUE: Final = (ValueError, LookupError, ArithmeticError)
_GARBLED: Final = (JSONDecodeError, UnicodeError)
"""Errors of value that come from what a tool was sent, not from what it was called with."""
_OF_A_GRAPH: Final = "__pregel_"
"""How the names begin that LangGraph gives what it puts into the config of a graph."""
_ERROR_CHARS: Final = 500
_PLAIN: Final = frozenset({str, int, float, bool, dict, list, type(None)})
"""What most tools return, and nobody awaits."""


class ToolPerformer:
    """Performs `CallTools`. One for each agent; keeps nothing of a run. `marker` stands behind a result that was cut, see `cut`."""

    def __init__(self, tools: Registry, marker: str | None = None) -> None:
        self._tools = tools
        self._marker = marker

    def perform(self, effect: CallTools, job: Job) -> Generator[Work, Any, Returned]:
        """Execute the calls, in threads, and return their results in the order of the calls."""
        job.attempt = effect.attempt
        results: list[Result] = []
        for batch in self._batches(effect):
            if len(batch) == 1:
                results.append((yield from self._one(batch[0], effect, job)))
                kept = job.add_result(results[-1])
                if kept is not None:
                    kept.result()
            else:
                results.extend((yield from self._together(batch, effect, job)))
        return Returned(results=tuple(results), at=job.now())

    async def aperform(self, effect: CallTools, job: Job) -> Returned:
        """The same on the event loop: async tools as tasks, sync tools in threads."""
        job.attempt = effect.attempt
        results: list[Result] = []
        for batch in self._batches(effect):
            if len(batch) == 1 and job.keep is None and self._in_thread(batch[0]):
                results.append(await self._alone(batch[0], effect, job))
                job.add_result(results[-1])
            else:
                results.extend(or_stop(await on_task(job, self._gathered(batch, effect, job))))
        return Returned(results=tuple(results), at=job.now())

    def _in_thread(self, call: Call) -> bool:
        tool = self._tools.resolve(call.tool)
        return tool is not None and tool.afunc is None

    async def _alone(self, call: Call, effect: CallTools, job: Job) -> Result:
        """One call of a sync tool: its thread is a context of its own, so it needs no task."""
        tool = self._tools.resolve(call.tool)
        if tool is None:
            return _gone(call, job)
        begun = job.clock.monotonic()
        timeout = self._timeout(tool, effect)
        try:
            value = await on_task(job, in_thread(lambda: _run(tool, call, job)), timeout)
        except TimedOut:
            return self._timed_out(tool, call, job, timeout)
        except CancelRequested:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is a result
            return self._failed(tool, call, job, error, job.clock.monotonic() - begun)
        seconds = job.clock.monotonic() - begun
        return (
            self._timed_out(tool, call, job, timeout)
            if seconds > timeout
            else self._returned(tool, call, effect, job, value, seconds=seconds)
        )

    async def _gathered(self, calls: tuple[Call, ...], effect: CallTools, job: Job) -> list[Result | Stop]:
        batch = Batch()
        within = self._longest(calls, effect) + PATIENCE
        await batch.gathered([self._akept(call, effect, job, batch) for call in calls], within)
        return self._settled(calls, effect, job, batch)

    def _batches(self, effect: CallTools) -> list[tuple[Call, ...]]:
        """The calls in groups that may run together: at most `parallel`, and an exclusive tool alone."""
        if len(effect.calls) == 1:
            return [effect.calls]
        batches: list[tuple[Call, ...]] = []
        open_: list[Call] = []
        for call in effect.calls:
            tool = self._tools.resolve(call.tool)
            if tool is not None and tool.exclusive:
                batches.extend([tuple(open_)] if open_ else [])
                batches.append((call,))
                open_ = []
            else:
                open_.append(call)
                if len(open_) == effect.parallel:
                    batches.append(tuple(open_))
                    open_ = []
        return [*batches, tuple(open_)] if open_ else batches

    def _one(self, call: Call, effect: CallTools, job: Job) -> Generator[Work, Any, Result]:
        tool = self._tools.resolve(call.tool)
        if tool is None:
            return _gone(call, job)
        begun = job.clock.monotonic()
        timeout = self._timeout(tool, effect)
        try:
            value = yield Work(job, lambda _: _run(tool, call, job), timeout)
        except TimedOut:
            return self._timed_out(tool, call, job, timeout)
        except CancelRequested:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is a result
            return self._failed(tool, call, job, error, job.clock.monotonic() - begun)
        return self._returned(tool, call, effect, job, value, seconds=job.clock.monotonic() - begun)

    def _together(self, calls: tuple[Call, ...], effect: CallTools, job: Job) -> Generator[Work, Any, list[Result]]:
        """Several calls at once: one worker drives an event loop on which each call has its own task and time-out.

        An async tool that blocks, or will not be cancelled, holds that loop: then the run goes on with what has come.
        """
        batch = Batch()
        within = self._longest(calls, effect) + PATIENCE
        try:
            yield Work(job, lambda _: asyncio.run(self._all(calls, effect, job, batch)), within)
        except TimedOut:
            pass
        finally:
            batch.close()
        return or_stop(self._settled(calls, effect, job, batch))

    async def _all(self, calls: tuple[Call, ...], effect: CallTools, job: Job, batch: Batch) -> None:
        await asyncio.gather(*(self._akept(call, effect, job, batch) for call in calls))

    async def _akept(self, call: Call, effect: CallTools, job: Job, batch: Batch) -> None:
        """Add the result of a call to its batch, written down before it counts."""
        kept = batch.add(call, await self._aone(call, effect, job), job)
        if kept is not None:
            await asyncio.wrap_future(kept)

    def _settled(self, calls: tuple[Call, ...], effect: CallTools, job: Job, batch: Batch) -> list[Result | Stop]:
        """The results in the order of the calls; of one that was left behind, that its time is over."""
        results: list[Result | Stop] = []
        for call in calls:
            found = batch.results.get(call.id)
            if found is None:
                tool = self._tools.resolve(call.tool)
                found = (
                    _gone(call, job) if tool is None else self._timed_out(tool, call, job, self._timeout(tool, effect))
                )
                job.add_result(found)
            results.append(found)
        return results

    async def _aone(self, call: Call, effect: CallTools, job: Job) -> Result | Stop:
        tool = self._tools.resolve(call.tool)
        if tool is None:
            return _gone(call, job)
        begun = job.clock.monotonic()
        timeout = self._timeout(tool, effect)
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                value = await _arun(tool, call, job)
        except (KeyboardInterrupt, SystemExit) as stop:
            # Raised out of a task it would tear through the event loop; the whole batch passes it on instead.
            return Stop(stop)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is a result
            if isinstance(error, TimeoutError) and scope.expired():
                return self._timed_out(tool, call, job, timeout)
            return self._failed(tool, call, job, error, job.clock.monotonic() - begun)
        if job.clock.monotonic() - begun > timeout:
            return self._timed_out(tool, call, job, timeout)
        return self._returned(tool, call, effect, job, value, seconds=job.clock.monotonic() - begun)

    def _timeout(self, tool: Tool, effect: CallTools) -> float:
        own = effect.timeout if tool.timeout is None else tool.timeout
        return own if effect.time_left is None else max(min(own, effect.time_left), 0.001)

    def _longest(self, calls: tuple[Call, ...], effect: CallTools) -> float:
        tools = [self._tools.resolve(call.tool) for call in calls]
        return max([self._timeout(tool, effect) for tool in tools if tool is not None], default=0.0)

    def _returned(self, tool: Tool, call: Call, effect: CallTools, job: Job, value: Any, *, seconds: float) -> Result:
        result = returned_result(
            tool, call, value, effect.max_chars, marker=self._marker, language=job.language, seconds=seconds
        )
        self._tools.record(tool.name, result.ok, "" if result.ok else redact_text(result.text)[:_ERROR_CHARS], seconds)
        return result

    def _failed(self, tool: Tool, call: Call, job: Job, error: Exception, seconds: float) -> Result:
        self._tools.record(tool.name, False, _said(error), seconds)
        return failed_result(tool, call, error, language=job.language, seconds=seconds)

    def _timed_out(self, tool: Tool, call: Call, job: Job, timeout: float) -> Result:
        """A call that gave no result in time may have taken effect, so only an idempotent one is retried."""
        text = texts_for(job.language).tool_timeout.format(tool=tool.name, seconds=f"{timeout:g}")
        self._tools.record(tool.name, False, "timeout", timeout)
        return Result(
            call_id=call.id,
            tool=tool.name,
            ok=False,
            text=text,
            digest=digest(text),
            error="timeout",
            retryable=tool.idempotent,
            seconds=timeout,
        )


def returned_result(
    tool: Tool,
    call: Call,
    value: Any,
    max_chars: int,
    *,
    language: Language,
    marker: str | None = None,
    seconds: float = 0.0,
) -> Result:
    """What a tool returned, as a result: of its text the model sees `max_chars` characters, or the tool's own cap, and then `marker`."""
    cap = max_chars if tool.max_result_chars is None else tool.max_result_chars
    rendered = render_result(value, max_chars=cap, marker=marker, language=language)
    ok = not rendered.failed
    return Result(
        call_id=call.id,
        tool=tool.name,
        ok=ok,
        error="" if ok else "failed",
        text=rendered.text,
        digest=digest(rendered.full),
        full=rendered.full if rendered.truncated else None,
        seconds=seconds,
        metadata=rendered.metadata,
    )


def failed_result(tool: Tool, call: Call, error: Exception, *, language: Language, seconds: float = 0.0) -> Result:
    """A tool's exception as a result; its words are redacted.

    A bug is not retried, nor what may have been done, nor (unless the tool sets `retry`) a value that is wrong, or that a server
    refused: it would be wrong again.
    """
    texts = texts_for(language)
    saying = texts.tool_interrupts if _interrupts(error) else texts.tool_error
    text = saying.format(tool=tool.name, error=_said(error))
    return Result(
        call_id=call.id,
        tool=tool.name,
        ok=False,
        text=text,
        digest=digest(text),
        error="in_doubt" if _in_doubt(tool, error) else type(error).__name__,
        retryable=_may_pass(tool, error),
        seconds=seconds,
    )


def _may_pass(tool: Tool, error: Exception) -> bool:
    """True when the same call may succeed a moment later, and may be made again."""
    if isinstance(error, _BUGS) or _interrupts(error):
        return False
    wrong = isinstance(error, _WRONG_VALUE) and not isinstance(error, _GARBLED)
    if (wrong or refused(error)) and not tool.retry:
        return False
    return tool.idempotent or not lost_midway(error)


def _in_doubt(tool: Tool, error: Exception) -> bool:
    """True when the call took effect, or when one that must not be doubled may have: it is not executed again, nor another in its place."""
    return isinstance(error, CallbackFailed) or (tool.once and not tool.idempotent and lost_midway(error))


def _interrupts(error: Exception) -> bool:
    """True for what `interrupt()` of LangGraph raises, in a graph or outside of one.

    Let through, it would have the graph begin the run anew, and double its effects.
    """
    outside = isinstance(error, KeyError) and str(error).strip("'").startswith(_OF_A_GRAPH)
    return outside or any(base.__name__ == "GraphInterrupt" for base in type(error).__mro__)


def _said(error: Exception) -> str:
    words = error_text(error)
    named = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return well_formed(redact_text(named))[:_ERROR_CHARS]


def _gone(call: Call, job: Job) -> Result:
    """The tool was unregistered between VALIDATE and now."""
    text = texts_for(job.language).tool_error.format(tool=call.tool, error="unregistered")
    return Result(
        call_id=call.id, tool=call.tool, ok=False, text=text, digest=digest(text), error="unregistered", executed=False
    )


def _arguments(tool: Tool, call: Call) -> dict[str, Any]:
    """The Python values for the call, from the validated JSON values; checked again where they are not at hand any more.

    Raises `ValueError` when they do not fit (the tool has been replaced since), or would be others than those that were let through.
    """
    known = tool.accepted(call.arguments)
    if known is not None:
        return known
    valid = tool.validate(call.arguments)
    if isinstance(valid, Invalid):
        raise ValueError(f"the arguments no longer fit {tool.name}")
    if valid.arguments != call.arguments:
        raise ValueError(f"{tool.name} makes other arguments of them each time that it checks them")
    return valid.call_with


def _run(tool: Tool, call: Call, job: Job) -> Any:
    """Call the tool on this thread. An async tool gets an event loop of its own."""
    arguments = _arguments(tool, call)
    trace = ToolTrace.begin(job, tool, call)
    try:
        with trace.inside(), calling(_info(call, job, trace)):
            value = _call_here(tool, arguments)
    except BaseException as error:
        trace.failed(error)
        raise
    trace.returned(value)
    return value


def _call_here(tool: Tool, arguments: dict[str, Any]) -> Any:
    if tool.func is None:
        assert tool.afunc is not None, "a tool has a function"
        return asyncio.run(_awaited(tool.afunc(**arguments)))
    value = tool.func(**arguments)
    if type(value) in _PLAIN or not inspect.isawaitable(value):
        return value
    return asyncio.run(_awaited(value))


def _info(call: Call, job: Job, trace: ToolTrace) -> CallInfo:
    """What the tool may know of its call. The key is the same for every attempt, so a service that takes one does the work once."""
    return CallInfo(
        run_id=job.run_id,
        call_id=call.id,
        attempt=job.attempt,
        idempotency_key=f"{job.run_id}:{call.id}:{call.tool}",
        config=trace.config,
        manager=trace.manager,
    )


async def _arun(tool: Tool, call: Call, job: Job) -> Any:
    """Call the tool from the event loop; a sync tool runs on a thread."""
    if tool.afunc is None:
        return await in_thread(lambda: _run(tool, call, job))
    arguments = _arguments(tool, call)
    trace = await ToolTrace.abegin(job, tool, call)
    try:
        with trace.inside(), calling(_info(call, job, trace)):
            value = await tool.afunc(**arguments)
    except BaseException as error:
        await trace.afailed(error)
        raise
    await trace.areturned(value)
    return value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
