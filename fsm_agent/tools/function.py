"""A typed Python function -> the model of its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.injection import FOREIGN_INSTEAD, Injected, injected_kind
from fsm_agent.tools.models import FunctionArguments, field_name

__all__ = ["function_arguments", "refuse_generators"]


def refuse_generators(name: str, *functions: Callable[..., Any] | None) -> None:
    """Raises `ToolDefinitionError` for a generator function: what it returns is no result, and nobody would run it."""
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in functions):
        raise ToolDefinitionError(f"tool {name!r}: a generator function gives no result; return a list", tool=name)


def function_arguments(
    func: Callable[..., Any], name: str, meanings: Mapping[str, str], local_names: Mapping[str, Any] | None = None
) -> tuple[type[FunctionArguments], dict[str, Injected]]:
    """The argument model of `func` (one field a parameter, all others forbidden) and the parameters the engine fills.

    `meanings` describes parameters that do not describe themselves (`Annotated[..., Field(description=...)]`, or a
    plain text in `Annotated`). `local_names` resolves annotations that are not found in the module of `func`.

    Raises:
        ToolDefinitionError: A parameter that no model could fill (`*args`, `**kwargs`, positional-only, without a
            type), an annotation that cannot be resolved or that pydantic cannot validate.
    """
    hints = _hints(func, name, local_names)
    bound = func.keywords if isinstance(func, functools.partial) else {}
    fields: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    injected: dict[str, Injected] = {}
    for position, parameter in enumerate(_signature(func, name).parameters.values()):
        if parameter.name in bound:
            continue
        annotation = hints.get(parameter.name, parameter.annotation)
        if (kind := _kind(parameter, annotation)) is not None:
            if kind is not Injected.FOREIGN:
                injected[parameter.name] = kind
            elif parameter.default is parameter.empty:
                raise ToolDefinitionError(
                    f'tool "{name}": parameter "{parameter.name}" is injected by another framework; {FOREIGN_INSTEAD}',
                    tool=name,
                )
            continue
        _check(parameter, annotation, name)
        field = field_name(parameter.name, position)
        parameters[field] = parameter.name
        fields[field] = _field(parameter, annotation, field, meanings.get(parameter.name, ""))
    try:
        model = create_model(name, __base__=FunctionArguments, **fields)
    except Exception as error:  # pydantic raises many kinds for a type that it cannot validate
        raise ToolDefinitionError(f'tool "{name}": its parameters cannot be validated: {error}', tool=name) from error
    model.__parameters__ = parameters
    return model, injected


def _signature(func: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f'tool "{name}": the signature of {func!r} is not known; wrap it in a typed function', tool=name
        ) from error


def _hints(func: Callable[..., Any], name: str, local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    target: Any = func
    while isinstance(target, functools.partial):
        target = target.func
    if not (inspect.isfunction(target) or inspect.ismethod(target)):
        target = getattr(target, "__call__", target)  # noqa: B004 - an object that is called through its class
    try:
        try:
            return get_type_hints(target, include_extras=True)
        except NameError:
            return get_type_hints(target, localns=dict(local_names or {}), include_extras=True)
    except Exception as error:  # whatever evaluating an annotation raises
        raise ToolDefinitionError(
            f'tool "{name}": its annotations cannot be resolved ({error}); define the types at module level', tool=name
        ) from error


def _kind(parameter: inspect.Parameter, annotation: Any) -> Injected | None:
    """What fills a parameter. `traceable` of LangSmith adds one for LangChain's config that is known by its name alone."""
    added = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is None and annotation is parameter.empty
    if added and parameter.name == "config":
        return Injected.CONFIG
    return injected_kind(parameter.name, annotation)


def _check(parameter: inspect.Parameter, annotation: Any, name: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        fault = f"takes {stars}{parameter.name}; a model must be told each argument, so name them"
    elif parameter.kind is parameter.POSITIONAL_ONLY:
        fault = f'has the positional-only parameter "{parameter.name}"; arguments are passed by name, so remove the "/"'
    elif annotation is parameter.empty and parameter.name in ("self", "cls"):
        fault = f"is a method without its object; give that of an object, as in tool(thing.{name})"
    elif annotation is parameter.empty:
        fault = f'has the parameter "{parameter.name}" without a type; annotate it (Any, if anything goes)'
    else:
        return
    raise ToolDefinitionError(f'tool "{name}" {fault}', tool=name)


def _field(parameter: inspect.Parameter, annotation: Any, field: str, meaning: str) -> Any:
    """(annotation, FieldInfo) for `create_model`."""
    texts = [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, str)]
    described = any(
        isinstance(item, FieldInfo) and item.description for item in getattr(annotation, "__metadata__", ())
    )
    settings: dict[str, Any] = {}
    if not described and (text := meaning or (texts[0] if texts else "")):
        settings["description"] = text
    if field != parameter.name:
        settings["alias"] = parameter.name
    default = parameter.default
    if isinstance(default, FieldInfo):
        merged = FieldInfo.merge_field_infos(Field(**settings), default) if settings else default
        return (annotation, merged)
    return (annotation, Field(... if default is parameter.empty else default, **settings))
