"""A JSON schema (of an MCP server, or a LangChain tool with a dict) -> a model that checks arguments strictly.

Checked: types, `properties`, `required`, `enum`, `const`, `anyOf` / `oneOf`, one `allOf`, `items`,
bounds, lengths, `pattern` (linear-time engine only), local `$ref`s. Unknown fields are refused unless
`additionalProperties` allows them in so many words. Other keywords are left to the server behind the tool: they are
shown to the model and not checked here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, create_model, model_validator

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.models import JsonArguments
from fsm_agent.tools.schema import reference_name

__all__ = ["json_arguments"]

_MAX_DEPTH: Final = 24
_TOO_LONG: Final = 1 << 63
_SCALARS: Final[dict[str, Any]] = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": None}
_LIMITS: Final = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
}
_APPLIES: Final = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}


def json_arguments(schema: Mapping[str, Any], name: str, *, typed: bool = False) -> type[JsonArguments]:
    """The argument model for a JSON schema of an object.

    `typed` is for the schema of a typed model: arguments are written as that model would, with a float where a number is asked for, and
    with what was left out at every depth.

    Raises:
        ToolDefinitionError: The schema is not one of an object, or holds what no schema may (limits that contradict).
    """
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise ToolDefinitionError(f'tool "{name}": its JSON schema must describe an object', tool=name)
    try:
        model = _Reader(schema, typed=typed).model(schema, name, _TypedArguments if typed else JsonArguments, 0)
    except Exception as error:  # pydantic raises many kinds for constraints that make no sense
        raise ToolDefinitionError(f'tool "{name}": its JSON schema cannot be used: {error}', tool=name) from error
    model.__schema__ = dict(schema)
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    model.__defaults__ = {
        key: item["default"]
        for key, item in properties.items()
        if isinstance(item, Mapping) and item.get("default") is not None and key not in required
    }
    return model


class _Nested(BaseModel):
    """An object inside the arguments."""


class _Filled(BaseModel):
    """Counts what was filled in as given, so that it is written."""

    @model_validator(mode="after")
    def _count_defaults(self) -> Self:
        fields = type(self).model_fields
        self.__pydantic_fields_set__.update(name for name, field in fields.items() if field.default_factory is None)
        return self


class _TypedArguments(_Filled, JsonArguments):
    """The arguments of a typed model, made again from its schema."""

    __typed__: ClassVar[bool] = True


class _TypedNested(_Filled, _Nested):
    """An object inside of those."""


_Model = TypeVar("_Model", bound=BaseModel)


class _Reader:
    """Reads the schemas inside one root schema; what is nested too deeply or refers to itself is left unchecked."""

    def __init__(self, root: Mapping[str, Any], *, typed: bool) -> None:
        self._typed = typed
        self._definitions = {**root.get("definitions", {}), **root.get("$defs", {})}
        self._open: list[str] = []
        self._objects = 0

    def model(self, schema: Mapping[str, Any], name: str, base: type[_Model], depth: int) -> type[_Model]:
        """A model of an object schema; extra fields as the schema says, which is no unless it says yes."""
        properties = schema.get("properties", {})
        required = [key for key in schema.get("required", ()) if isinstance(key, str)]
        fields: dict[str, Any] = {}
        for position, key in enumerate(dict.fromkeys((*properties, *required))):
            kind = self.type_of(properties.get(key, True), depth + 1)
            info = Field(alias=key) if key in required else self._optional(key, properties[key])
            fields[f"argument_{position}"] = (kind, info)
        extra: Literal["allow", "forbid"] = (
            "allow" if schema.get("additionalProperties", False) is not False else "forbid"
        )
        model = create_model(name, __base__=base, **fields)
        model.model_config = ConfigDict(**{**base.model_config, "extra": extra, "defer_build": False})
        model.model_rebuild(force=True)
        return model

    def _optional(self, key: str, schema: Any) -> Any:
        """An argument that may be left out. Of a typed model `tidy` does not show the default None."""
        if self._typed and isinstance(schema, Mapping):
            if "default" in schema:
                return Field(default=schema["default"], alias=key, validate_default=True)
            if any(isinstance(one, Mapping) and one.get("type") == "null" for one in schema.get("anyOf", ())):
                return Field(default=None, alias=key)
        return Field(default_factory=_absent, alias=key)

    def type_of(self, schema: Any, depth: int) -> Any:
        """A Python annotation that accepts what `schema` accepts."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return Any
        if name := reference_name(schema):
            return self._referred(name, depth)
        if "enum" in schema or "const" in schema:
            return _one_of(list(schema.get("enum", [schema.get("const")])))
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self.type_of({**schema, "type": one}, depth + 1) for one in kind])
        if kind is None:
            kind = "object" if "properties" in schema else ("array" if "items" in schema else None)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            item = self.type_of(schema.get("items", True), depth + 1) if "prefixItems" not in schema else Any
            return _limited(list[item], schema, "array")  # type: ignore[valid-type]  # built from data
        if kind == "number" and self._typed:
            return _limited(float, schema, kind)
        if kind in _SCALARS:
            return _scalar(schema, kind)
        return self._combined(schema, depth)

    def _referred(self, name: str, depth: int) -> Any:
        if name in self._open or name not in self._definitions:
            return Any
        self._open.append(name)
        try:
            return self.type_of(self._definitions[name], depth + 1)
        finally:
            self._open.pop()

    def _object(self, schema: Mapping[str, Any], depth: int) -> Any:
        extra = schema.get("additionalProperties")
        if schema.get("properties") or schema.get("required") or extra is False:
            self._objects += 1  # pydantic tells the branches of a union apart by name
            return self.model(schema, f"Object{self._objects}", _TypedNested if self._typed else _Nested, depth)
        return dict[str, self.type_of(extra, depth + 1)]  # type: ignore[misc]  # built from data

    def _combined(self, schema: Mapping[str, Any], depth: int) -> Any:
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list) and options:
            return _union([self.type_of(one, depth + 1) for one in options])
        parts = schema.get("allOf")
        if isinstance(parts, list) and len(parts) == 1:
            return self.type_of(parts[0], depth + 1)
        return Any


def _absent() -> None:
    """An optional argument that was not given; never sent on."""


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)] if kinds else Any  # noqa: UP007 - built from data


def _one_of(values: list[Any]) -> Any:
    plain = all(value is None or type(value) in (str, int, bool) for value in values)
    # pydantic looks up no whole number of more than 64 bits.
    if values and plain and not any(isinstance(value, int) and abs(value) >= _TOO_LONG for value in values):
        return Literal[tuple(values)]

    def listed(value: Any) -> Any:
        if not any(value == one and type(value) is type(one) for one in values):
            raise ValueError(f"must be one of {json.dumps(values, default=str)[:200]}")
        return value

    return Annotated[Any, AfterValidator(listed)]


def _scalar(schema: Mapping[str, Any], kind: str) -> Any:
    if kind == "number":
        return _union([_limited(int, schema, kind), _limited(float, schema, kind)])
    limited = _limited(_SCALARS[kind], schema, kind)
    pattern = schema.get("pattern")
    if kind != "string" or not isinstance(pattern, str):
        return limited
    try:
        TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except Exception:  # noqa: BLE001 - a pattern beyond linear time (look-around): shown, not checked
        return limited
    return Annotated[limited, Field(pattern=pattern)]


def _limited(kind: Any, schema: Mapping[str, Any], json_type: str) -> Any:
    """`kind` with the limits of `schema` that apply to it."""
    limits: dict[str, Any] = {}
    for key in _APPLIES.get(json_type, ()):
        limit = schema.get(key)
        if not isinstance(limit, (int, float)) or isinstance(limit, bool):
            continue
        name, bound = (_LIMITS[key], float(limit)) if kind is float else _whole(_LIMITS[key], limit)
        # A fractional bound of a whole number is written as the other one is, which may be there too: the stricter holds.
        known = limits.get(name, bound)
        limits[name] = max(known, bound) if name in ("ge", "gt") else min(known, bound)
    return Annotated[kind, Field(**limits)] if limits else kind


def _whole(name: str, limit: float) -> tuple[str, int]:
    """A limit as one that a whole number can have: a multiple of 1.5 is one of 3, and more than 1.5 is at least 2."""
    if float(limit).is_integer():
        return name, int(limit)
    if name == "multiple_of":
        return name, Fraction(str(limit)).numerator
    return ("ge", math.ceil(limit)) if name in ("ge", "gt") else ("le", math.floor(limit))
