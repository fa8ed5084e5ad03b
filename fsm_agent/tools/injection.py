"""Parameters that the engine fills: never shown to the model, never accepted from it.

LangChain's markers are known by name, so that a plain function can be described without importing LangChain's tools.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Final, get_args, get_origin

from fsm_agent.tools.call import CallInfo, current_call

__all__ = ["FOREIGN_INSTEAD", "Injected", "bind", "bind_async", "injected_kind", "is_async"]

FOREIGN_INSTEAD: Final = (
    "give it a default, bind it with functools.partial, or take what a run brings along from its config: "
    'a parameter config: RunnableConfig, and config["configurable"]["user_id"] in the tool'
)
"""What to do about a parameter that only another framework could fill."""


class Injected(StrEnum):
    """What a parameter is filled with."""

    CALL = "call"
    """The `CallInfo` of this call."""
    CALL_ID = "call_id"
    CONFIG = "config"
    """The `RunnableConfig` of the run."""
    CALLBACKS = "callbacks"
    """The callbacks for what runs inside of the call; None where nobody listens."""
    RUN_MANAGER = "run_manager"
    """LangChain's callback manager of this call, also where nobody listens, async for an async function; None outside a run."""
    FOREIGN = "foreign"
    """Something only the framework that defined it could give (a graph's state or store)."""


_CALLBACK_NAMES: Final = {"run_manager": Injected.RUN_MANAGER, "callbacks": Injected.CALLBACKS}
_MARKER_MODULES: Final = ("langchain_core.tools.base", "langgraph.", "langchain.tools")


def injected_kind(name: str, annotation: Any) -> Injected | None:
    """What fills the parameter `name` with this annotation; None for one that the model gives."""
    if name in _CALLBACK_NAMES:
        return _CALLBACK_NAMES[name]
    for part in _parts(annotation):
        kind = part if isinstance(part, type) else type(part)
        names = {base.__name__ for base in kind.__mro__ if base.__module__.startswith(_MARKER_MODULES)}
        if "InjectedToolCallId" in names:
            return Injected.CALL_ID
        if names & {"InjectedToolArg", "_DirectlyInjectedToolArg"}:
            return Injected.FOREIGN
        if part is CallInfo:
            return Injected.CALL
        if kind.__name__ == "RunnableConfig" and kind.__module__ == "langchain_core.runnables.config":
            return Injected.CONFIG
    return None


def _parts(annotation: Any) -> list[Any]:
    """The annotation itself, and what `Annotated` and unions hold."""
    if get_origin(annotation) is None:
        return [annotation]
    if hasattr(annotation, "__metadata__"):
        return [*annotation.__metadata__, *_parts(annotation.__origin__)]
    return [part for inner in get_args(annotation) for part in _parts(inner)]


def bind(func: Callable[..., Any], parameters: Mapping[str, Injected]) -> Callable[..., Any]:
    """`func` with these parameters filled at each call; `func` itself when there are none."""
    if not parameters:
        return func

    @functools.wraps(func)
    def bound(**arguments: Any) -> Any:
        return func(**arguments, **_values(parameters, for_async=False))

    return bound


def bind_async(
    func: Callable[..., Awaitable[Any]], parameters: Mapping[str, Injected]
) -> Callable[..., Awaitable[Any]]:
    """`bind` for an async function."""
    if not parameters:
        return func

    @functools.wraps(func)
    async def bound(**arguments: Any) -> Any:
        return await func(**arguments, **_values(parameters, for_async=True))

    return bound


def _values(parameters: Mapping[str, Injected], *, for_async: bool) -> dict[str, Any]:
    call = current_call()
    config = dict(call.config) if call.config is not None else {}
    values: dict[Injected, Any] = {
        Injected.CALL: call,
        Injected.CALL_ID: call.call_id,
        Injected.CONFIG: config,
        Injected.CALLBACKS: config.get("callbacks"),
    }
    if Injected.RUN_MANAGER in parameters.values():
        values[Injected.RUN_MANAGER] = None if call.manager is None else call.manager(for_async)
    return {name: values[kind] for name, kind in parameters.items()}


def is_async(func: Callable[..., Any]) -> bool:
    """Does calling `func` give something to await?"""
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004
