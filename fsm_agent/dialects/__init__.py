"""Dialects: how a model is asked and read.

`native` is the provider's tool calling, `json_action` one JSON object a reply, `react` labelled lines of text, `guided_json` the same as
`json_action` with guidance for small models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from fsm_agent.dialects.base import Dialect
from fsm_agent.dialects.guided import GuidedJson
from fsm_agent.dialects.json_action import JsonAction
from fsm_agent.dialects.native import Native
from fsm_agent.dialects.react import React
from fsm_agent.errors import DefinitionError

__all__ = [
    "DIALECTS",
    "Dialect",
    "GuidedJson",
    "JsonAction",
    "Native",
    "React",
    "check_names",
    "dialect_for",
    "is_local",
]

DIALECTS: Final[Mapping[str, Callable[[], Dialect]]] = MappingProxyType(
    {"native": Native, "json_action": JsonAction, "react": React, "guided_json": GuidedJson}
)


def is_local(model: str) -> bool:
    """Whether `model` names weights on this machine: "local:1.5b", or a GGUF file."""
    return model.startswith("local:") or model.endswith(".gguf")


def dialect_for(given: str | Dialect | None, model: object = None) -> Dialect:
    """The dialect that was named or given; for None, `guided_json` for a local model and `native` for any other.

    Raises `fsm_agent.errors.DefinitionError` for an unknown name, and for what is no dialect.
    """
    if given is None:
        return GuidedJson() if isinstance(model, str) and is_local(model) else Native()
    if isinstance(given, str):
        if given not in DIALECTS:
            raise DefinitionError(f"dialect {given!r} does not exist; there are {', '.join(DIALECTS)}")
        return DIALECTS[given]()
    if isinstance(given, type) or not callable(getattr(type(given), "compose", None)):
        raise DefinitionError(f"dialect={given!r} is no dialect: give a Dialect, or one of {', '.join(DIALECTS)}")
    return given


def check_names(dialect: Dialect, tools: Iterable[str]) -> None:
    """Raise `DefinitionError` for a tool with a name that a dialect has `reserved` for its own actions: no reply could call it."""
    taken: frozenset[str] = getattr(dialect, "reserved", frozenset())
    for name in taken.intersection(tools):
        raise DefinitionError(
            f"a tool cannot be named {name!r} here: it is an action of the dialect {dialect.name}; rename the tool"
        )
