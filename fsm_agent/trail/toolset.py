"""The tools of a run as its trail keeps them: described when it began, and again each time that it found others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fsm_agent.errors import ToolDefinitionError, TrailError
from fsm_agent.tools.beyond import checks_more
from fsm_agent.tools.json_model import json_arguments
from fsm_agent.tools.models import JsonArguments
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool
from fsm_agent.trail.entries import Entry, canonical_json

__all__ = ["definition", "needs_code", "newest_tools", "other_tools", "parameters_of", "recorded_tools", "tools_data"]

_PREDICATE: Final = "predicate"
_ORDER: Final = "order"
"""Beside what a tool is: in which order its schema names things. A trail sorts the names, and what the model reads follows them."""
_TYPED: Final = "typed"
"""That the schema is of a typed model, which fills in what is left out."""
_BY_CODE: Final = "checked_by_code"
"""That its arguments are checked, or written anew, by more than its schema says."""


def tools_data(registry: Registry) -> list[dict[str, Any]]:
    """The tools of `registry` as JSON data: everything but their code."""
    shown = list(registry)
    behind = [
        one
        for name in registry.names()
        if (one := registry.fallback_of(name)) is not None and registry.get(one.name) is None
    ]
    return [_tool(one, hidden=False) for one in shown] + [_tool(one, hidden=True) for one in behind]


def _tool(one: Tool, *, hidden: bool) -> dict[str, Any]:
    fallback = one.fallback.name if isinstance(one.fallback, Tool) else one.fallback
    return {
        "name": one.name,
        "description": one.description,
        "not_for": one.not_for,
        "parameters": one.parameters(),
        "fallback": fallback,
        "idempotent": one.idempotent,
        "repeatable": one.repeatable,
        "once": one.once,
        "retry": one.retry,
        "timeout": one.timeout,
        "requires_approval": one.requires_approval if isinstance(one.requires_approval, bool) else _PREDICATE,
        "max_result_chars": one.max_result_chars,
        "volatile": sorted(one.volatile),
        "lax": one.lax,
        "ignore_extra": True if one.ignore_extra is True else sorted(one.ignore_extra),
        "exclusive": one.exclusive,
        "code": one.map_fallback is not None,
        "hidden": hidden,
        "default": one.default,
        _ORDER: _order_in(one.parameters()),
        **({} if issubclass(one.args_model, JsonArguments) and not one.args_model.__typed__ else {_TYPED: True}),
        **({_BY_CODE: True} if checks_more(one.args_model) else {}),
    }


def definition(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What a described tool is, for a fingerprint: everything but how its schema is to be read: in what order, of what model."""
    return {name: value for name, value in kept.items() if name not in (_ORDER, _TYPED, _BY_CODE)}


def parameters_of(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a described tool, its names in the order that they had. One from before the order was kept has them sorted."""
    ordered: dict[str, Any] = _in_order(kept["parameters"], kept.get(_ORDER, {}), "")
    return ordered


def _order_in(value: Any, path: str = "") -> dict[str, list[str]]:
    """The keys of each mapping within `value` whose keys are not sorted, by JSON pointer."""
    found: dict[str, list[str]] = {}
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        found = {} if names == sorted(names) else {path: names}
        inside: Iterable[tuple[Any, Any]] = value.items()
    else:
        inside = enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        found |= _order_in(inner, _pointer(path, name))
    return found


def _in_order(value: Any, order: Mapping[str, list[str]], path: str) -> Any:
    if isinstance(value, list):
        return [_in_order(inner, order, _pointer(path, place)) for place, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    names = dict.fromkeys((*(name for name in order.get(path, ()) if name in value), *value))
    return {name: _in_order(value[name], order, _pointer(path, name)) for name in names}


def _pointer(path: str, name: str | int) -> str:
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"


def _registry(kept: Sequence[Mapping[str, Any]]) -> Registry:
    hidden = {one["name"]: _made(one, {}) for one in kept if one["hidden"]}
    return Registry([_made(one, hidden) for one in kept if not one["hidden"]])


def _made(kept: Mapping[str, Any], hidden: Mapping[str, Tool]) -> Tool:
    arguments = json_arguments(parameters_of(kept), kept["name"], typed=kept.get(_TYPED, False))
    return Tool(
        name=kept["name"],
        description=kept["description"],
        not_for=kept["not_for"],
        args_model=arguments,
        func=_not_here,
        fallback=hidden.get(kept["fallback"], kept["fallback"]),
        idempotent=kept["idempotent"],
        repeatable=kept["repeatable"],
        once=kept["once"],
        retry=kept["retry"],
        timeout=kept["timeout"],
        requires_approval=kept["requires_approval"] is not False,
        max_result_chars=kept["max_result_chars"],
        volatile=frozenset(kept["volatile"]),
        lax=kept["lax"],
        ignore_extra=True if kept["ignore_extra"] is True else frozenset(kept["ignore_extra"]),
        exclusive=kept["exclusive"],
        default=kept["default"],
    )


def _not_here(**_: Any) -> Any:
    raise TrailError("this tool was made from its recorded schema; give the agent to call it")


def recorded_tools(kept: Sequence[Mapping[str, Any]], tools: Registry | None) -> Registry:
    """The tools that `kept` describes, in its order: those of `tools` that are still as described, the others made from their schemas.

    What is made from its schema can be checked against, not called.
    """
    if tools is None:
        return _registry(kept)
    now = tools.snapshot()
    changed = other_tools(kept, now)
    names = [one["name"] for one in kept if not one["hidden"]]
    if not changed and list(now.names()) == names:
        return now
    made = _registry(kept)
    if any(one["hidden"] and one["name"] in changed for one in kept):
        return made
    try:
        return Registry(_either(name, now, made, changed) for name in names)
    except ToolDefinitionError:  # a fallback of one is another than it was
        return made


def _either(name: str, now: Registry, made: Registry, changed: Sequence[str]) -> Tool:
    found = (made if name in changed else now).get(name)
    assert found is not None, "each name is in one of the two"
    return found


def other_tools(kept: Sequence[Mapping[str, Any]], tools: Registry) -> list[str]:
    """The names of the tools in `kept` that `tools` does not have, or has with another definition, in order."""
    now = {one["name"]: canonical_json(definition(one)) for one in tools_data(tools)}
    return sorted(one["name"] for one in kept if now.get(one["name"]) != canonical_json(definition(one)))


def newest_tools(entries: Iterable[Entry]) -> Sequence[Mapping[str, Any]]:
    """The tools that the run had last, as they are described. Of `entries` the first is the header."""
    return _sets(entries)[-1]


def needs_code(entries: Iterable[Entry]) -> bool:
    """True when what the run did follows from code of its tools that no trail holds.

    That is an approval by predicate, a mapped fallback, or a check of arguments that is more than their schema. False for a trail that
    was rewritten so that its tools are none.
    """
    try:
        return any(
            tool["requires_approval"] == _PREDICATE or tool["code"] or tool.get(_BY_CODE, False)
            for kept in _sets(entries)
            for tool in kept
        )
    except (KeyError, TypeError):
        return False


def _sets(entries: Iterable[Entry]) -> list[Sequence[Mapping[str, Any]]]:
    return [
        entry.body["setup"]["tools"] if entry.kind == "header" else entry.body["tools"]
        for entry in entries
        if entry.kind == "header" or (entry.kind == "changed" and "tools" in entry.body)
    ]
