"""Whether a model of arguments checks more than its JSON schema says, so that nobody can check again without its code."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from fsm_agent.tools.models import JsonArguments

__all__ = ["checks_more"]

_PLAIN: Final = frozenset(
    {
        *("any", "none", "bool", "int", "float", "str", "list", "dict", "literal", "enum", "nullable", "union"),
        *("default", "model", "model-fields", "model-field", "definitions", "definition-ref"),
    }
)
"""The kinds of pydantic's own schema that a JSON schema says all of. A date or a set has a form and an order of its own."""
_OF_TEXTS: Final = ("strip_whitespace", "to_lower", "to_upper")
_REWRITES: Final = (*_OF_TEXTS, *(f"str_{name}" for name in _OF_TEXTS), "post_init", "custom_init")
"""What rewrites a value, as a part of a type's schema or of a model's config."""
_NO_SCHEMA: Final = frozenset({"metadata", "default", "serialization", "expected", "members"})


@functools.lru_cache(maxsize=256)
def checks_more(model: type[BaseModel]) -> bool:
    """True when what `model` makes of JSON arguments does not follow from its JSON schema: validators, dates, sets, decimals."""
    return not issubclass(model, JsonArguments) and _checks_more(model.__pydantic_core_schema__)


def _checks_more(schema: Any) -> bool:
    if isinstance(schema, list | tuple):
        return any(_checks_more(one) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type")
    if (isinstance(kind, str) and kind not in _PLAIN) or any(schema.get(name) for name in _REWRITES):
        return True
    if kind == "model-fields":
        return _checks_more([*schema["fields"].values(), schema.get("extras_schema")])
    keys = schema.get("keys_schema") if kind == "dict" else None
    if isinstance(keys, Mapping) and keys.get("type") not in ("str", "any"):
        return True
    return any(_checks_more(inner) for name, inner in schema.items() if name not in _NO_SCHEMA)
