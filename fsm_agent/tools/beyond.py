"""What a model of arguments does that its JSON schema does not say: what it checks, and what it writes otherwise than it was read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from fsm_agent.tools.models import JsonArguments

__all__ = ["checks_more", "written_otherwise"]

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
_OWN: Final = ("builtins", "operator", "pydantic", "pydantic_core")
"""Whose serializers write what was read."""
_LEFT_OUT: Final = ("serialization_exclude", "serialization_exclude_if")


@functools.lru_cache(maxsize=256)
def checks_more(model: type[BaseModel]) -> bool:
    """True when what `model` makes of JSON arguments does not follow from its JSON schema: validators, dates, sets, own serializers."""
    if issubclass(model, JsonArguments):
        return False
    return _checks_more(model.__pydantic_core_schema__) or bool(written_otherwise(model))


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


def written_otherwise(model: type[BaseModel]) -> frozenset[str]:
    """The fields of `model` that its JSON leaves out, or has as a serializer of its author's makes them, at any depth of their types."""
    schema: Any = model.__pydantic_core_schema__
    kept = {one["ref"]: one for one in schema.get("definitions", ())}
    whole = False
    while isinstance(schema, Mapping) and schema.get("type") != "model-fields":
        whole = whole or _by_author(schema)
        schema = kept[schema["schema_ref"]] if schema.get("type") == "definition-ref" else schema.get("schema")
    fields = schema["fields"] if isinstance(schema, Mapping) else {}
    return frozenset(name for name, inner in fields.items() if whole or _otherwise(inner, kept, set()))


def _otherwise(schema: Any, kept: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(schema, list | tuple):
        return any(_otherwise(one, kept, seen) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    ref = schema.get("schema_ref") if schema.get("type") == "definition-ref" else None
    if isinstance(ref, str):
        if ref in seen:
            return False
        seen.add(ref)
        return _otherwise(kept.get(ref), kept, seen)
    if any(schema.get(name) for name in _LEFT_OUT) or _by_author(schema):
        return True
    return any(_otherwise(inner, kept, seen) for name, inner in schema.items() if name not in _NO_SCHEMA)


def _by_author(schema: Mapping[str, Any]) -> bool:
    function = (schema.get("serialization") or {}).get("function")
    return function is not None and str(getattr(function, "__module__", "")).partition(".")[0] not in _OWN
