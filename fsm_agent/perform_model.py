"""Asking the model: one `CallModel` is one request, and every failure is an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from langchain_core.globals import get_debug, get_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs

from fsm_agent.effects import CallModel, ModelFailed, Omittable, Replied
from fsm_agent.errors import DefinitionError, FsmAgentError
from fsm_agent.failures import model_failure
from fsm_agent.jobs import CancelRequested, Emit, Job, TimedOut, Work, on_task
from fsm_agent.memory.tokens import ESTIMATE, TokenCounter
from fsm_agent.models import Prepared, message_of
from fsm_agent.omissions import known_omissions, messages_without, refused_parts
from fsm_agent.prompt import schema_texts
from fsm_agent.replies import ChunkReader, read_message
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

__all__ = ["ModelPerformer"]

_Key = tuple[int, tuple[str, ...], float | None]
"""What tools are bound for: the version of the registry, their names, and the temperature of the copy that they are bound to."""
_FUNCTIONS: Final = ("function", "custom")
"""Types of tools that a provider only asks for; one without a type is such a tool as well."""
_ABOUT_TOOLS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})


class ModelPerformer:
    """Performs `CallModel`. One for each agent.

    It remembers only what the server does not take: a response format, a temperature, to be asked for the usage of a stream, what its
    model thought, and a user's message right after a result.
    """

    def __init__(
        self, prepared: Prepared, tools: Registry, *, native_tools: bool, counter: TokenCounter = ESTIMATE
    ) -> None:
        self._prepared = prepared
        self._tools = tools
        self._native = native_tools
        self._bound: tuple[_Key, Runnable[Any, Any], Mapping[str, Any]] | None = None
        self._without = known_omissions(prepared.model)
        self._at: dict[float, BaseChatModel] = {}
        self._counter = counter

    def check(self, names: Sequence[str]) -> None:
        """Bind `names` once, so that a model that cannot call tools is refused before any run. Raises `DefinitionError`."""
        if self._native and names:
            self._bound = ((self._tools.version, tuple(names), None), *self._bind(self._prepared.model, names))

    def perform(self, effect: CallModel, job: Job) -> Generator[Work, Any, Replied | ModelFailed]:
        """Make the request on a worker thread; yields pieces of the reply when the job streams."""
        without = self._without
        model, kwargs = self._target(effect)
        reader = ChunkReader() if self.streams(job) else None
        shown = _shown(effect, job)

        def work(emit: Emit) -> Replied:
            if reader is None:
                return self._read(self._generated(model, effect, job, kwargs), effect, job)
            for chunk in model.stream(messages_without(self._without, effect.messages), self._config(job), **kwargs):
                text = reader.add(chunk)
                # Also without text to show: this is where a stream that nobody waits for any more is broken off.
                emit(text if shown else "")
            return self._finished(reader, effect, job)

        try:
            done: Replied = yield Work(job, work, effect.timeout)
            return done
        except Exception as error:  # noqa: BLE001 - whatever a client raises is an outcome
            return self._failed(error, effect, job, reader, without)

    async def aperform(self, effect: CallModel, job: Job) -> Replied | ModelFailed:
        """The same on the event loop, for a job that does not stream."""
        begun, without = job.clock.monotonic(), self._without
        try:
            model, kwargs = self._target(effect)
            message = await on_task(job, self._agenerated(model, effect, job, kwargs), effect.timeout)
            reply = self._read(message, effect, job)
        except Exception as error:  # noqa: BLE001 - whatever a client raises is an outcome
            return self._failed(error, effect, job, None, without)
        return _timed_out(effect, job, None) if job.clock.monotonic() - begun > effect.timeout else reply

    async def astream(self, effect: CallModel, job: Job) -> AsyncGenerator[str | Replied | ModelFailed]:
        """The same for a job that streams: the pieces that are shown, and last the outcome."""
        begun, without = job.clock.monotonic(), self._without
        reader = ChunkReader()
        try:
            async with aclosing(self._arequest(effect, job, reader, begun)) as items:
                async for item in items:
                    late = isinstance(item, Replied) and job.clock.monotonic() - begun > effect.timeout
                    yield _timed_out(effect, job, reader) if late else item
        except Exception as error:  # noqa: BLE001 - whatever a client raises is an outcome
            yield self._failed(error, effect, job, reader, without)

    async def _arequest(
        self, effect: CallModel, job: Job, reader: ChunkReader, begun: float
    ) -> AsyncGenerator[str | Replied]:
        model, kwargs = self._target(effect)
        stream = model.astream(messages_without(self._without, effect.messages), self._config(job), **kwargs)
        shown = _shown(effect, job)
        try:
            while True:
                left = max(effect.timeout - (job.clock.monotonic() - begun), 0.001)
                chunk = await _within(anext(stream, None), left)
                if chunk is None:
                    break
                text = reader.add(chunk)
                if text and shown:
                    yield text
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        yield self._finished(reader, effect, job)

    def _generated(self, model: Any, effect: CallModel, job: Job, kwargs: Mapping[str, Any]) -> Any:
        """The reply. Without callbacks, what `invoke` does around the generation has no effect, and is left out."""
        messages = messages_without(self._without, effect.messages)
        if self._direct(model, messages, job):
            return message_of(model._generate(messages, **kwargs, **self._whole()))
        return model.invoke(messages, self._config(job), **kwargs, **self._whole())

    async def _agenerated(self, model: Any, effect: CallModel, job: Job, kwargs: Mapping[str, Any]) -> Any:
        messages = messages_without(self._without, effect.messages)
        if self._direct(model, messages, job):
            return message_of(await model._agenerate(messages, **kwargs, **self._whole()))
        return await model.ainvoke(messages, self._config(job), **kwargs, **self._whole())

    def _direct(self, model: object, messages: Sequence[Any], job: Job) -> bool:
        """Content blocks are left to `invoke`, which brings them into the provider's form; so is a cache."""
        if job.traced or not self._prepared.direct:
            return False
        if model is not self._prepared.model and all(model is not one for one in self._at.values()):
            return False
        plain = all([type(one.content) is str for one in messages])  # noqa: C419 - a list is faster than a generator
        return plain and get_llm_cache() is None and not get_debug()

    def _read(self, message: Any, effect: CallModel, job: Job) -> Replied:
        read = read_message(message, estimate=effect.estimate, cap=self._prepared.cap, at=job.now())
        return self._counted(read, effect)

    def _finished(self, reader: ChunkReader, effect: CallModel, job: Job) -> Replied:
        read = reader.replied(
            estimate=effect.estimate, cap=self._prepared.cap, at=job.now(), must_finish=self._prepared.openai
        )
        return self._counted(read, effect)

    def _counted(self, reply: Replied, effect: CallModel) -> Replied:
        """The reply with our own count where the server sent none."""
        if reply.prompt_tokens is not None or self._counter is ESTIMATE:
            return reply
        offered = [self._tools.resolve(name) for name in effect.tools] if self._native else []
        schemas = schema_texts(one for one in offered if one is not None)
        return self._counter.completed(reply, effect.messages, schemas)

    def _failed(
        self, error: Exception, effect: CallModel, job: Job, reader: ChunkReader | None, without: frozenset[Omittable]
    ) -> Replied | ModelFailed:
        """What `error` of a request `without` these parts comes to. What the server refused of it is left out from now on.

        Raises it when it is no failure of the model: somebody asked the run to stop, or the set-up is wrong.
        """
        if isinstance(error, CancelRequested | FsmAgentError):
            raise error
        if isinstance(error, TimedOut):
            return _timed_out(effect, job, reader)
        if reader is not None and reader.finish:
            # The server had said that the reply was complete; what failed after that was reading its usage.
            return self._finished(reader, effect, job)
        outcome = model_failure(error, at=job.now(), wall=job.clock.time(), estimate=effect.estimate)
        if isinstance(outcome, Replied):
            return outcome
        if reader is not None and reader.began:
            outcome = replace(outcome, usage=reader.charged(effect.estimate))
        streamed = reader is not None and self._prepared.openai
        refused = refused_parts(effect, outcome, streamed=streamed) - without
        self._leave_out(refused)
        return replace(outcome, gives_way=bool(refused))

    def _leave_out(self, parts: frozenset[Omittable]) -> None:
        self._without |= parts
        if "stream_usage" in parts:
            # The model is a copy of ours.
            model: Any = self._prepared.model
            model.stream_usage = False

    def streams(self, job: Job) -> bool:
        """Whether to stream: for the caller, because the model always does, or because the host's callbacks want tokens."""
        return job.streaming or self._prepared.streams or (job.traced and _wants_tokens(job))

    def _config(self, job: Job) -> RunnableConfig:
        """What the model is called with: the run's config, with the model's own where it has one."""
        own = self._prepared.config
        return merge_configs(own, job.config) if own else job.config

    def _whole(self) -> dict[str, Any]:
        """What makes `invoke` of an OpenAI model not stream, whatever the model's own switch says."""
        return {"stream": False} if self._prepared.openai else {}

    def _target(self, effect: CallModel) -> tuple[Runnable[Any, Any], dict[str, Any]]:
        """What to call, with which arguments. Tools are bound once for each version of the registry."""
        prepared = self._prepared
        model, given = self._at_temperature(effect.temperature)
        if prepared.patience is not None and effect.timeout > prepared.patience:
            # The run has other limits than the agent; less time than the client's own is kept by waiting less.
            given = {**given, "timeout": effect.timeout}
        constrains = prepared.openai and "response_format" not in self._without
        if effect.response_format is not None and constrains:
            body = prepared.kwargs.get("extra_body") or getattr(prepared.model, "extra_body", None) or {}
            # In the body, not as an argument: given `response_format`, the client parses the reply itself and raises on a cut one.
            return model, {
                **self._without_tools(effect),
                **given,
                "extra_body": {**body, "response_format": dict(effect.response_format)},
            }
        if not self._native or not effect.tools:
            return model, {**self._without_tools(effect), **given}
        key = (self._tools.version, effect.tools, None if model is prepared.model else effect.temperature)
        if self._bound is None or self._bound[0] != key:
            self._bound = (key, *self._bind(model, effect.tools))
        return self._bound[1], {**prepared.kwargs, **self._bound[2], **given}

    def _without_tools(self, effect: CallModel) -> Mapping[str, Any]:
        """What was bound to the model, for a request that offers no tools: OpenAI refuses one that speaks of them all the same.

        Tools that were bound are kept for an agent that has none itself, but for when it is asked for an answer.
        """
        bound = self._prepared.kwargs
        if not _ABOUT_TOOLS & bound.keys():
            return bound
        if effect.purpose == "plan" and not self._tools.names() and ("tools" in bound or "functions" in bound):
            return bound
        return {name: value for name, value in bound.items() if name not in _ABOUT_TOOLS}

    def _at_temperature(self, temperature: float | None) -> tuple[BaseChatModel, Mapping[str, Any]]:
        """The model at this temperature: itself with an argument, or for a model that has a field for it, and no such argument, a copy.

        Clients of OpenAI's protocol take the argument, whatever the field.
        """
        prepared = self._prepared
        if temperature is None or "temperature" in self._without:
            return prepared.model, {}
        fields = type(prepared.model).model_fields
        if prepared.openai or "temperature" not in fields or "temperature" in prepared.kwargs:
            return prepared.model, {"temperature": temperature}
        found = self._at.get(temperature)
        if found is None:
            found = self._at[temperature] = prepared.model.model_copy(update={"temperature": temperature})
        return found, {}

    def _bind(self, model: BaseChatModel, names: Sequence[str]) -> tuple[Runnable[Any, Any], Mapping[str, Any]]:
        # One that was unregistered since the run looked is not offered; a call of it would be told so.
        schemas = [_schema(tool) for name in names if (tool := self._tools.resolve(name)) is not None]
        try:
            bound = model.bind_tools(schemas)
        except NotImplementedError as error:
            # From LangChain's base class: the model has no `bind_tools` of its own.
            raise DefinitionError(
                f'{type(self._prepared.model).__name__} cannot call tools natively; use dialect="json_action" (or "react")'
            ) from error
        if isinstance(bound, RunnableBinding) and isinstance(bound.bound, BaseChatModel) and not bound.config:
            return bound.bound, _beside_own(self._prepared.kwargs, bound.kwargs)
        return bound, {}


def _schema(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.full_description, "parameters": tool.parameters()},
    }


def _beside_own(given: Mapping[str, Any], bound: Mapping[str, Any]) -> Mapping[str, Any]:
    """`bound`, with those of the tools in `given` that the provider runs itself, as a web search: functions are the agent's alone."""
    own = [
        one
        for one in given.get("tools") or ()
        if isinstance(one, Mapping) and one.get("type", "function") not in _FUNCTIONS
    ]
    return {**bound, "tools": [*bound["tools"], *own]} if own and "tools" in bound else bound


def _shown(effect: CallModel, job: Job) -> bool:
    """Whether the caller is handed the pieces of the reply: those of a summary or a reflection are not for a reader."""
    return job.streaming and effect.purpose not in ("summary", "reflect")


def _wants_tokens(job: Job) -> bool:
    """Whether LangChain would stream inside `invoke` for a handler (its own event streams, LangGraph's of messages), and mend a cut call.

    For one that takes events instead of chunks it mends nothing, and such a handler has no use for a stream of ours.
    """
    handlers = getattr(job.config.get("callbacks"), "handlers", ())
    return any(hasattr(one, "tap_output_iter") and not _takes_events(one) for one in handlers)


def _takes_events(taker: object) -> bool:
    return any(base.__name__ == "_V2StreamingCallbackHandler" for base in type(taker).__mro__)


async def _within(work: Any, seconds: float) -> Any:
    """Await `work` for at most `seconds`, else raise `TimedOut`; a time-out of its own passes through."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await work
    except TimeoutError:
        if scope.expired():
            raise TimedOut from None
        raise


def _timed_out(effect: CallModel, job: Job, reader: ChunkReader | None) -> ModelFailed:
    """A reply that did not come in time was paid for all the same: the prompt, and what had arrived."""
    usage = (reader or ChunkReader()).charged(effect.estimate)
    words = f"no reply within {effect.timeout:g} seconds"
    return ModelFailed(error="TimeoutError", message=words, retryable=True, usage=usage, at=job.now())
