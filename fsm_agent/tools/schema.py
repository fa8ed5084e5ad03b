"""The JSON schema of a tool's parameters: made short for the prompt, and read back in words for messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticOmit, core_schema

__all__ = [
    "describe",
    "described_at",
    "fields_at",
    "lists_alike",
    "model_schema",
    "reference_name",
    "schema_choices",
    "schemas_at",
    "schemas_in",
    "tidy",
]

_INLINE_CHARS: Final = 400
"""A definition that is used more than once is written out each time only up to this size."""
_MAX_LISTED: Final = 20
_MAX_DEPTH: Final = 40
_ONE: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_UNDESCRIBED: Final = "x-undescribed"


class _Schema(GenerateJsonSchema):
    """Marks what JSON cannot describe instead of failing: such a field may be one that the model never sees."""

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        return {_UNDESCRIBED: error_info}

    def emit_warning(self, kind: Any, detail: str) -> None:
        """A default that JSON cannot hold is left out of the schema; that is no reason to warn."""


def model_schema(model: type[BaseModel], hidden: frozenset[str]) -> dict[str, Any]:
    """The tidy JSON schema of `model` without the fields (input names) in `hidden`.

    Raises:
        ValueError: A visible field has a type that JSON cannot describe; the message names it.
    """
    try:
        schema = model.model_json_schema(schema_generator=_Schema)
    except PydanticOmit as error:
        raise ValueError(f"{model.__name__} has no JSON schema") from error
    if name := reference_name(schema):  # a model that refers to itself is a definition, even at the root
        schema = {**schema["$defs"][name], "$defs": schema["$defs"]}
    properties = {name: item for name, item in schema.get("properties", {}).items() if name not in hidden}
    schema["properties"] = properties
    schema["required"] = [name for name in schema.get("required", ()) if name not in hidden]
    for name, item in properties.items():
        if (fault := _undescribed(item, schema)) is not None:
            raise ValueError(f'parameter "{name}" has a type that JSON cannot describe ({fault})')
    schema.pop("description", None)
    return tidy(schema)


def tidy(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameters schema for the prompt: an object, without noise, `$ref`s written out where small and acyclic.

    Left out: `title`, `default: null`, `additionalProperties: false`, `discriminator` and an empty `required`. The input is not changed.
    """
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    body = {key: item for key, item in schema.items() if key not in ("$defs", "definitions", "$schema", "$id")}
    uses = _uses(schema)
    inline = {
        name
        for name, item in definitions.items()
        if not _reaches(name, item, definitions)
        and (uses.get(name, 0) <= 1 or len(json.dumps(item, default=str)) <= _INLINE_CHARS)
    }
    rebuilt = _rebuilt(body, definitions, inline)
    kept = {name: _rebuilt(item, definitions, inline) for name, item in definitions.items() if name not in inline}
    result: dict[str, Any] = {"type": "object", "properties": {}} | rebuilt
    return result | {"$defs": kept} if kept else result


def _rebuilt(schema: Any, definitions: Mapping[str, Any], inline: set[str], depth: int = 0) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    name = reference_name(schema)
    if name in inline:
        siblings = {key: item for key, item in schema.items() if key != "$ref"}
        return _rebuilt({**definitions[name], **siblings}, definitions, inline, depth + 1)
    rebuilt: dict[str, Any] = {}
    for key, item in schema.items():
        if (key == "title" and isinstance(item, str)) or (key == "additionalProperties" and item is False):
            continue
        if (key == "default" and item is None) or (key == "required" and not item):
            continue
        # Its references would lead nowhere; the constants of the branches say it.
        if key == "discriminator" and isinstance(item, Mapping):
            continue
        if name and key == "$ref":
            rebuilt[key] = f"#/$defs/{name}"
        elif key in _NAMED and isinstance(item, Mapping):
            rebuilt[key] = {label: _rebuilt(value, definitions, inline, depth + 1) for label, value in item.items()}
        elif key in _MANY and isinstance(item, Sequence) and not isinstance(item, str):
            rebuilt[key] = [_rebuilt(value, definitions, inline, depth + 1) for value in item]
        elif key in _ONE:
            rebuilt[key] = _rebuilt(item, definitions, inline, depth + 1)
        else:
            rebuilt[key] = item
    return rebuilt


def reference_name(schema: Mapping[str, Any]) -> str:
    """The name of the definition that a `$ref` of this very schema points to, "" when it has none."""
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return ""
    for prefix in ("#/$defs/", "#/definitions/"):
        if ref.startswith(prefix):
            return ref[len(prefix) :].replace("~1", "/").replace("~0", "~")
    return ""


def schemas_in(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """This schema and every schema within it."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return
    yield schema
    for key, item in schema.items():
        if key in _NAMED and isinstance(item, Mapping):
            within: Sequence[Any] = list(item.values())
        elif key in _MANY and isinstance(item, list):
            within = item
        else:
            within = [item] if key in _ONE else []
        for one in within:
            yield from schemas_in(one, depth + 1)


def lists_alike(schema: Mapping[str, Any]) -> bool:
    """Does this very schema enumerate values, whole numbers or booleans among them? Python takes `true` and 1 for the same."""
    return any(isinstance(value, int) for value in schema.get("enum", [schema.get("const")]))


def _uses(schema: Mapping[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in schemas_in(schema):
        if name := reference_name(one):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _reaches(target: str, schema: Any, definitions: Mapping[str, Any]) -> bool:
    """Does following references from `schema` lead to the definition `target`, to a loop, or to one that is missing?"""
    seen: set[str] = set()
    waiting = [schema]
    while waiting:
        for one in schemas_in(waiting.pop()):
            name = reference_name(one)
            if name == target or (name and name not in definitions):
                return True
            if name and name not in seen:
                seen.add(name)
                waiting.append(definitions[name])
    return False


def _undescribed(schema: Any, root: Mapping[str, Any]) -> str | None:
    definitions = root.get("$defs", {})
    seen: set[str] = set()
    waiting = [schema]
    while waiting:
        for one in schemas_in(waiting.pop()):
            if _UNDESCRIBED in one:
                return str(one[_UNDESCRIBED])
            name = reference_name(one)
            if name in definitions and name not in seen:
                seen.add(name)
                waiting.append(definitions[name])
    return None


def fields_at(root: Mapping[str, Any], path: Sequence[str | int], value: Any) -> tuple[str, ...]:
    """The names of the fields that the object `value` at `path` may have, in every alternative whose constants are those of `value`."""
    branches = [branch for one in schemas_at(root, path) for branch in _branches(one, root)]
    meant = {name: None for branch in branches if _may_be(branch, value) for name in branch.get("properties", {})}
    return tuple(meant or {name: None for branch in branches for name in branch.get("properties", {})})


def _may_be(branch: Mapping[str, Any], value: Any) -> bool:
    """False where a field of `value` is not among those that the branch enumerates for it, as the tag of another alternative is not."""
    if not isinstance(value, Mapping):
        return True
    listed = ((value[name], inner) for name, inner in branch.get("properties", {}).items() if name in value)
    return all(
        given in inner.get("enum", [inner["const"]] if "const" in inner else [given])
        for given, inner in listed
        if isinstance(inner, Mapping)
    )


def schemas_at(root: Mapping[str, Any], path: Sequence[str | int]) -> list[Mapping[str, Any]]:
    """The schemas of the value at `path` (keys and list positions), one for each alternative that has it."""
    found: list[Mapping[str, Any]] = [root]
    for part in path:
        found = [inner for one in found for branch in _branches(one, root) for inner in _step(branch, part)]
    return found


def _branches(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema with its reference followed."""
    if depth > _MAX_DEPTH:
        return
    name = reference_name(schema)
    target = root.get("$defs", {}).get(name)
    if isinstance(target, Mapping):
        yield from _branches(target, root, depth + 1)
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(key, ()):
            if isinstance(one, Mapping):
                yield from _branches(one, root, depth + 1)


def _step(schema: Mapping[str, Any], part: str | int) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, int):
        listed = schema.get("prefixItems", ())
        candidate = listed[part] if part < len(listed) else schema.get("items")
    else:
        candidate = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    if isinstance(candidate, Mapping):
        yield candidate


def described_at(root: Mapping[str, Any], path: Sequence[str | int]) -> str:
    """What the value at `path` may be, in a few words, in every alternative."""
    return " or ".join(dict.fromkeys(describe(one, root) for one in schemas_at(root, path))) or "value"


def describe(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A schema in a few words for a message: `integer`, `one of "google", "bing"`, `array of string or null`."""
    return _words(schema, root, 0) or "value"


def _words(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    name = reference_name(schema)
    target = root.get("$defs", {}).get(name)
    if depth > 4:  # noqa: PLR2004 - deeper than anybody reads
        return ""
    if isinstance(target, Mapping):
        return _words(target, root, depth + 1)
    if choices := schema_choices(schema):
        return ("one of " if len(choices) > 1 else "") + ", ".join(choices)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(key), list):
            parts = [_words(one, root, depth + 1) for one in options if isinstance(one, Mapping)]
            return " or ".join(dict.fromkeys(part for part in parts if part))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    if kind == "array" and isinstance(items := schema.get("items"), Mapping):
        inner = _words(items, root, depth + 1)
        return f"array of {inner}" if inner else "array"
    extra = schema.get("format")
    return f"{kind} ({extra})" if isinstance(kind, str) and isinstance(extra, str) else str(kind or "")


def schema_choices(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The values a schema enumerates (`enum`, `const`) as JSON texts, at most 20, then `...`."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    shown = [json.dumps(value, ensure_ascii=False, default=str)[:80] for value in list(values)[:_MAX_LISTED]]
    return (*shown, "...") if len(values) > _MAX_LISTED else tuple(shown)
