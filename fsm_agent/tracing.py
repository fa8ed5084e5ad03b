"""LangChain callbacks for tools that are called directly: the same start, end and error events that `tool.invoke` would send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForChainRun,
    AsyncCallbackManagerForToolRun,
    CallbackManager,
    CallbackManagerForChainRun,
    CallbackManagerForToolRun,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    ensure_config,
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    patch_config,
    var_child_runnable_config,
)

from fsm_agent.effects import Call
from fsm_agent.failures import error_text
from fsm_agent.jobs import Job
from fsm_agent.records import RunResult
from fsm_agent.tools.signature import canonical
from fsm_agent.tools.spec import Tool

__all__ = ["CallbackFailed", "ToolTrace", "Trace"]

_UNTRACED: Final[RunnableConfig] = {"callbacks": CallbackManager(handlers=[], parent_run_id=UUID(int=0))}
"""Nobody listens. But there is a run: outside of one, LangChain lets no tool dispatch events of its own."""
_OF_A_MANAGER: Final = (
    "run_id",
    "handlers",
    "inheritable_handlers",
    "parent_run_id",
    "tags",
    "inheritable_tags",
    "metadata",
    "inheritable_metadata",
)
_Manager = TypeVar("_Manager", CallbackManager, AsyncCallbackManager)


class CallbackFailed(Exception):
    """A callback that has its errors raised failed when it was told what a tool returned: the call took effect."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"it returned, but a callback failed when told so ({type(error).__name__}: {error_text(error)})"
        )


@dataclass(frozen=True, slots=True)
class ToolTrace:
    """One traced tool call. `config` is what runs inside of the tool gets, so that it is a child of the call."""

    config: RunnableConfig
    run: CallbackManagerForToolRun | None = None
    arun: AsyncCallbackManagerForToolRun | None = None

    @classmethod
    def begin(cls, job: Job, tool: Tool, call: Call) -> Self:
        """Tell the callbacks that `call` starts. Without any, nothing is told."""
        if not job.traced and not _listened(tool):
            return cls(job.config)
        manager = _with_own(get_callback_manager_for_config(job.config), tool)
        run = manager.on_tool_start(_described(tool), canonical(dict(call.arguments)), **_details(call))
        return cls(patch_config(job.config, callbacks=run.get_child()), run=run)

    @classmethod
    async def abegin(cls, job: Job, tool: Tool, call: Call) -> Self:
        """The same on the event loop of the run."""
        if not job.traced and not _listened(tool):
            return cls(job.config)
        manager = _with_own(get_async_callback_manager_for_config(job.config), tool)
        run = await manager.on_tool_start(_described(tool), canonical(dict(call.arguments)), **_details(call))
        return cls(patch_config(job.config, callbacks=run.get_child()), arun=run)

    def inside(self) -> AbstractContextManager[None]:
        """The context in which the tool runs: what it invokes of LangChain becomes a child of the call."""
        if self.run is None and self.arun is None:
            return nullcontext() if var_child_runnable_config.get() else _within(_UNTRACED)
        return _within(self.config)

    def manager(self, for_async: bool) -> CallbackManagerForToolRun | AsyncCallbackManagerForToolRun:
        """LangChain's manager of this call, for a tool that asks for it, and may be async in a sync run; also where nobody listens."""
        run: Any = self.run or self.arun
        kind = AsyncCallbackManagerForToolRun if for_async else CallbackManagerForToolRun
        if run is None:
            return kind.get_noop_manager()
        return run if isinstance(run, kind) else kind(**{name: getattr(run, name) for name in _OF_A_MANAGER})

    def returned(self, value: Any) -> None:
        """Tell the callbacks what the tool returned. Raises `CallbackFailed`."""
        if self.run is None:
            return
        try:
            self.run.on_tool_end(value)
        except Exception as error:
            raise CallbackFailed(error) from error

    def failed(self, error: BaseException) -> None:
        """Tell the callbacks that the tool failed."""
        if self.run is not None:
            self.run.on_tool_error(error)

    async def areturned(self, value: Any) -> None:
        """The same on the event loop."""
        if self.arun is None:
            return
        try:
            await self.arun.on_tool_end(value)
        except Exception as error:
            raise CallbackFailed(error) from error

    async def afailed(self, error: BaseException) -> None:
        """The same on the event loop."""
        if self.arun is not None:
            await self.arun.on_tool_error(error)


@contextmanager
def _within(config: RunnableConfig) -> Iterator[None]:
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _listened(tool: Tool) -> bool:
    """Whether a LangChain tool has callbacks of its own, so that somebody listens to it whoever listens to the run."""
    return tool.source is not None and bool(tool.source.callbacks or tool.source.verbose)


def _with_own(manager: _Manager, tool: Tool) -> _Manager:
    """`manager` with the callbacks, tags and metadata that a LangChain tool has itself: for its call, and nothing that runs inside."""
    source = tool.source
    if source is None or not (_listened(tool) or source.tags or source.metadata):
        return manager
    return manager.configure(manager, source.callbacks, source.verbose, None, source.tags, None, source.metadata)


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description}


def _details(call: Call) -> dict[str, Any]:
    return {"inputs": dict(call.arguments), "tool_call_id": call.id}


@dataclass(frozen=True, slots=True)
class Trace:
    """The run as LangChain's callbacks see it: one chain, with model and tool calls as its children."""

    config: RunnableConfig
    traced: bool
    run: CallbackManagerForChainRun | None = None
    arun: AsyncCallbackManagerForChainRun | None = None

    @classmethod
    def begin(cls, config: RunnableConfig, name: str, given: object) -> Self:
        """Tell the callbacks that the run starts. Without any, nothing is kept and nothing is called later."""
        manager = get_callback_manager_for_config(config)
        if not manager.handlers:
            return cls(_silent(config), traced=False)
        run = manager.on_chain_start(
            None, _input(given), run_id=config.get("run_id"), name=config.get("run_name") or name
        )
        return cls(patch_config(config, callbacks=run.get_child()), True, run=run)

    @classmethod
    async def abegin(cls, config: RunnableConfig, name: str, given: object) -> Self:
        """The same for async callbacks."""
        manager = get_async_callback_manager_for_config(config)
        if not manager.handlers:
            return cls(_silent(config), traced=False)
        run = await manager.on_chain_start(
            None, _input(given), run_id=config.get("run_id"), name=config.get("run_name") or name
        )
        return cls(patch_config(config, callbacks=run.get_child()), True, arun=run)

    @classmethod
    def again(cls, job: Job, config: RunnableConfig | None, name: str) -> Self:
        """A run that goes on: below the chain that it began as, or, with a `config` or from a store, as a chain of its own."""
        if config is None and job.config:
            return cls(job.config, job.traced)
        trace = cls.begin(ensure_config(config), name, {"resume": job.run_id})
        job.config, job.traced = trace.config, trace.traced
        return trace

    @classmethod
    async def aagain(cls, job: Job, config: RunnableConfig | None, name: str) -> Self:
        """The same for async callbacks."""
        if config is None and job.config:
            return cls(job.config, job.traced)
        trace = await cls.abegin(ensure_config(config), name, {"resume": job.run_id})
        job.config, job.traced = trace.config, trace.traced
        return trace

    def end(self, result: RunResult) -> None:
        """Tell the callbacks what the run came to."""
        if self.run is not None:
            self.run.on_chain_end(_output(result))

    def fail(self, error: BaseException) -> None:
        """Tell the callbacks that the run was broken off."""
        if self.run is not None:
            self.run.on_chain_error(error)

    async def aend(self, result: RunResult) -> None:
        """The same for async callbacks."""
        if self.arun is not None:
            await self.arun.on_chain_end(_output(result))

    async def afail(self, error: BaseException) -> None:
        """The same for async callbacks."""
        if self.arun is not None:
            await self.arun.on_chain_error(error)


def _silent(config: RunnableConfig) -> RunnableConfig:
    """`config` without callbacks, and without the name and id of the run, which are not those of what runs inside.

    It was made complete before, so that there is nothing for LangChain's own function to fill in.
    """
    quiet = config.copy()
    quiet["callbacks"] = None
    quiet.pop("run_name", None)
    quiet.pop("run_id", None)
    return quiet


def _input(given: object) -> dict[str, Any]:
    """What callbacks are told that the run was given: a mapping as it is, as LangChain does it; they look for its keys."""
    return given if isinstance(given, dict) else {"input": given}


def _output(result: RunResult) -> dict[str, Any]:
    """What a tracer shows of a result: how it ended, without the records that the tracer has anyway."""
    return {
        "output": result.answer,
        "status": result.status.value,
        "reason": result.reason and result.reason.value,
        "detail": result.detail,
    }
