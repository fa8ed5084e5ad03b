"""LangChain tools -> `Tool`. The only module that imports LangChain's tools (about a second, most of it shared)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Unpack, get_type_hints

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import Tool as SingleInputTool
from pydantic import BaseModel, Field, create_model
from pydantic_core import PydanticUndefined

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.docstring import split_docstring
from fsm_agent.tools.function import function_arguments, refuse_generators
from fsm_agent.tools.injection import FOREIGN_INSTEAD, Injected, bind, bind_async, injected_kind
from fsm_agent.tools.json_model import json_arguments
from fsm_agent.tools.models import FunctionArguments
from fsm_agent.tools.results import ToolResult, with_artifact
from fsm_agent.tools.spec import Tool, ToolOptions

__all__ = ["from_langchain"]

_STAND_INS: Mapping[Injected, Any] = {
    Injected.CALL_ID: "call",
    Injected.CONFIG: {},
    Injected.CALLBACKS: None,
    Injected.RUN_MANAGER: None,
}
_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def from_langchain(source: BaseTool, **options: Unpack[ToolOptions]) -> Tool:
    """A `Tool` that calls the function behind a LangChain tool directly, with arguments checked here.

    `args_schema` may be a pydantic 2 model (used as it is, never changed) or a JSON schema. Arguments that LangChain
    injects are neither shown to the model nor accepted from it: the call id, the `RunnableConfig` and the callback
    managers are filled. Kept: `response_format="content_and_artifact"` and `handle_tool_error`.

    Raises:
        ToolDefinitionError: The schema is a pydantic 1 model, an injected argument could not be filled, the function is a
            generator, or see `Tool`.
    """
    func, afunc = _functions(source)
    refuse_generators(source.name, func, afunc)
    model, filled = _arguments(source, func or afunc)
    hidden = {name: _stand_in(source, name, kind, model) for name, kind in filled.items()}
    given = {name: kind for name, kind in filled.items() if kind in _STAND_INS}
    settings: dict[str, Any] = {"name": source.name, "description": source.description.strip(), **options}
    return Tool(
        **{"args_model": model, "hidden": hidden, **settings},
        func=None if func is None else _sync(source, bind(*_by_name(source, func, given))),
        afunc=None if afunc is None else _async(source, bind_async(*_by_name(source, afunc, given))),
        source=source,
    )


def _functions(source: BaseTool) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    """The sync and the async function behind a tool."""
    if isinstance(source, StructuredTool | SingleInputTool):
        return source.func, source.coroutine
    has_async = type(source)._arun is not BaseTool._arun
    return source._run, (source._arun if has_async else None)


def _by_name(
    source: BaseTool, func: Callable[..., Any], given: Mapping[str, Injected]
) -> tuple[Callable[..., Any], dict[str, Injected]]:
    """`func` to be called with keywords, and which of its parameters are filled here, beside those `given` by the schema."""
    filled = _parameters(source, func)
    if not isinstance(source, SingleInputTool):
        return func, {**given, **filled}

    def call(**arguments: Any) -> Any:
        here = {name: arguments.pop(name) for name in filled}
        return func(*arguments.values(), **here)

    return call, {**given, **filled}


def _arguments(source: BaseTool, func: Callable[..., Any] | None) -> tuple[type[BaseModel], dict[str, Injected]]:
    """The argument model of a tool, and which of its fields are injected."""
    schema = source.args_schema
    if isinstance(schema, dict):
        return json_arguments(schema, source.name), {}
    if schema is None and isinstance(source, SingleInputTool):
        field = (str, Field(description="The input of the tool."))
        return create_model(source.name, __base__=FunctionArguments, tool_input=field), {}
    if schema is None and func is not None:
        model, _ = function_arguments(func, source.name, split_docstring(inspect.getdoc(func))[1])
        return model, {}
    if not (inspect.isclass(schema) and issubclass(schema, BaseModel)):
        raise ToolDefinitionError(
            f'tool "{source.name}": its args_schema {schema!r} is no pydantic 2 model; use pydantic.BaseModel',
            tool=source.name,
        )
    schema.model_rebuild()
    kinds = {
        name: injected_kind(name, Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation)
        for name, info in schema.model_fields.items()
    }
    _refuse_variable(source, func, schema)
    return schema, {name: kind for name, kind in kinds.items() if kind is not None}


def _refuse_variable(source: BaseTool, func: Callable[..., Any] | None, schema: type[BaseModel]) -> None:
    """`**kwargs` of a function appears in an inferred schema as a field of that name, which nobody could fill."""
    for parameter in _signature(func):
        if parameter.kind in _VARIABLE and parameter.name in schema.model_fields:
            raise ToolDefinitionError(
                f'tool "{source.name}" takes *{parameter.name}; name each argument, or give an args_schema',
                tool=source.name,
            )


def _stand_in(source: BaseTool, name: str, kind: Injected, model: type[BaseModel]) -> Any:
    if kind in _STAND_INS:
        return _STAND_INS[kind]
    if model.model_fields[name].is_required():
        raise ToolDefinitionError(
            f'tool "{source.name}": argument "{name}" is injected by another framework; {FOREIGN_INSTEAD}',
            tool=source.name,
        )
    return PydanticUndefined


def _parameters(source: BaseTool, func: Callable[..., Any]) -> dict[str, Injected]:
    """The parameters of the function itself that are filled here, beside those of the schema."""
    try:
        hints = get_type_hints(func, include_extras=True)
    except Exception:  # noqa: BLE001 - unresolvable annotations: LangChain has built its schema without them
        hints = {}
    filled: dict[str, Injected] = {}
    for parameter in _signature(func):
        if parameter.kind in _VARIABLE:
            continue
        kind = injected_kind(parameter.name, hints.get(parameter.name, parameter.annotation))
        has_default = parameter.default is not parameter.empty
        if kind is None or (has_default and kind is Injected.FOREIGN):
            continue
        if kind is Injected.FOREIGN:
            raise ToolDefinitionError(
                f'tool "{source.name}": parameter "{parameter.name}" is injected by another framework; {FOREIGN_INSTEAD}',
                tool=source.name,
            )
        filled[parameter.name] = kind
    return filled


def _signature(func: Callable[..., Any] | None) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(func).parameters.values()) if func is not None else []
    except (TypeError, ValueError):  # a builtin without one
        return []


def _sync(source: BaseTool, func: Callable[..., Any]) -> Callable[..., Any]:
    if _is_plain(source):
        return func

    def call(**arguments: Any) -> Any:
        try:
            return _shaped(source, func(**arguments))
        except ToolException as error:
            return _reported(source, error)

    return call


def _async(source: BaseTool, func: Callable[..., Any]) -> Callable[..., Any]:
    if _is_plain(source):
        return func

    async def call(**arguments: Any) -> Any:
        try:
            return _shaped(source, await func(**arguments))
        except ToolException as error:
            return _reported(source, error)

    return call


def _is_plain(source: BaseTool) -> bool:
    return source.response_format == "content" and not source.handle_tool_error


def _shaped(source: BaseTool, value: Any) -> Any:
    if source.response_format == "content":
        return value
    if not isinstance(value, tuple) or len(value) != 2:  # noqa: PLR2004 - a pair
        raise ValueError(f'tool "{source.name}" promised (content, artifact) and returned {type(value).__name__}')
    return with_artifact(value[0], value[1])


def _reported(source: BaseTool, error: ToolException) -> ToolResult:
    """What `handle_tool_error` makes of a failure."""
    reading = source.handle_tool_error
    if not reading:
        raise error
    if callable(reading):
        return ToolResult(content=reading(error), failed=True)
    return ToolResult(content=reading if isinstance(reading, str) else str(error) or "the tool failed", failed=True)
