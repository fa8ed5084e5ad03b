"""LangChain callbacks for tools that are called directly: the same start, end and error events that `tool.invoke` would send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    CallbackManagerForToolRun,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    patch_config,
)

from fsm_agent.effects import Call
from fsm_agent.jobs import Job
from fsm_agent.records import RunResult
from fsm_agent.tools.signature import canonical
from fsm_agent.tools.spec import Tool

__all__ = ["ToolTrace", "Trace"]


@dataclass(frozen=True, slots=True)
class ToolTrace:
    """One traced tool call."""

    run: CallbackManagerForToolRun

    @classmethod
    def begin(cls, job: Job, tool: Tool, call: Call) -> Self:
        """Tell the callbacks that `call` starts."""
        manager = get_callback_manager_for_config(job.config)
        described = {"name": tool.name, "description": tool.description}
        inputs = dict(call.arguments)
        return cls(manager.on_tool_start(described, canonical(inputs), inputs=inputs, tool_call_id=call.id))

    def returned(self, value: Any) -> None:
        """Tell the callbacks what the tool returned."""
        self.run.on_tool_end(value, name=None)

    def failed(self, error: BaseException) -> None:
        """Tell the callbacks that the tool failed."""
        self.run.on_tool_error(error)


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
            return cls(patch_config(config, callbacks=None), traced=False)
        run = manager.on_chain_start(
            None, {"input": given}, run_id=config.get("run_id"), name=config.get("run_name") or name
        )
        return cls(patch_config(config, callbacks=run.get_child()), True, run=run)

    @classmethod
    async def abegin(cls, config: RunnableConfig, name: str, given: object) -> Self:
        """The same for async callbacks."""
        manager = get_async_callback_manager_for_config(config)
        if not manager.handlers:
            return cls(patch_config(config, callbacks=None), traced=False)
        run = await manager.on_chain_start(
            None, {"input": given}, run_id=config.get("run_id"), name=config.get("run_name") or name
        )
        return cls(patch_config(config, callbacks=run.get_child()), True, arun=run)

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


def _output(result: RunResult) -> dict[str, Any]:
    """What a tracer shows of a result: how it ended, without the records that the tracer has anyway."""
    return {
        "output": result.answer,
        "status": result.status.value,
        "reason": result.reason and result.reason.value,
        "detail": result.detail,
    }
