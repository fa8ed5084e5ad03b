"""pydantic's errors -> `Problem`s: paths as the model wrote them, one problem a field, expectations from the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fsm_agent.tools.plain import well_formed
from fsm_agent.tools.problems import Problem, phrase, shown_value
from fsm_agent.tools.schema import describe, fields_at, schema_at, schema_choices
from fsm_agent.tools.walk import Path, path_text, value_at

__all__ = ["problems_of"]

_MAX_ERRORS: Final = 40
_RULE_CHARS: Final = 300
_MISSING: Final = frozenset({"missing", "missing_argument", "missing_keyword_only_argument", "union_tag_not_found"})
_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CHOICE: Final = frozenset({"enum", "literal_error", "union_tag_invalid"})
_FORMAT: Final = frozenset({"decimal_parsing", "date_from_datetime_inexact", "bytes_invalid_encoding"})
_BOUND: Final = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
    "multiple_of": ("multiple_of", "a multiple of"),
}
_LENGTH: Final = {
    "string_too_short": ("min_length", ">=", "characters"),
    "string_too_long": ("max_length", "<=", "characters"),
    "bytes_too_short": ("min_length", ">=", "bytes"),
    "bytes_too_long": ("max_length", "<=", "bytes"),
    "too_short": ("min_length", ">=", "items"),
    "too_long": ("max_length", "<=", "items"),
}
_SPECIFIC: Final = ("unknown", "missing", "bound", "length", "pattern", "format", "number", "rule")
"""Of several errors about one field (the branches of a union), these say more than "wrong type"."""


def problems_of(error: ValidationError, given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[Path, Problem]:
    """One problem a field, by its path, in the order of pydantic's errors; `schema` are the tool's parameters."""
    by_path: dict[Path, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False)[:_MAX_ERRORS]:
        path = _path(detail["loc"], given, missing=detail["type"] in _MISSING or detail["type"] in _UNKNOWN)
        by_path.setdefault(path, []).append(detail)
    return {path: _problem(path, details, given, schema) for path, details in by_path.items()}


def _path(location: Sequence[str | int], given: Any, *, missing: bool) -> Path:
    """`location` without what pydantic adds (the branch of a union, `[key]`): only steps that the arguments have."""
    path: list[str | int] = []
    value = given
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(value, Mapping) and isinstance(part, str) and (part in value or (last and missing)):
            path.append(part)
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and isinstance(part, int):
            path.append(part)
            value = value[part] if 0 <= part < len(value) else None
    return tuple(path)


def _problem(path: Path, details: Sequence[ErrorDetails], given: Any, root: Mapping[str, Any]) -> Problem:
    kinds = [_kind(detail) for detail in details]
    specific = [index for index, kind in enumerate(kinds) if kind in _SPECIFIC]
    chosen = specific[0] if specific else 0
    kind = kinds[chosen]
    if not specific and len(set(kinds)) > 1:
        kind = "type"
    schema = schema_at(root, path)
    allowed = _allowed(kind, details[chosen], path, schema, root)
    message = phrase(kind, allowed, "en") or _rule(details[chosen])
    value = value_at(given, path)
    got = "" if kind in ("missing", "unknown") or not path else shown_value(value)
    return Problem(path_text(path), kind, message, allowed, got)


def _kind(detail: ErrorDetails) -> str:
    name = detail["type"]
    for kind, names in (("missing", _MISSING), ("unknown", _UNKNOWN), ("choice", _CHOICE), ("bound", _BOUND)):
        if name in names:
            return kind
    if name in _LENGTH:
        return "length"
    if name == "string_pattern_mismatch":
        return "pattern"
    if name in _FORMAT or (name.endswith("_parsing") and isinstance(detail["input"], str)):
        return "format"
    if name == "finite_number":
        return "number"
    is_type = name.endswith(("_type", "_parsing")) or name in ("int_from_float", "none_required", "is_instance_of")
    return "type" if is_type else "rule"


def _allowed(
    kind: str, detail: ErrorDetails, path: Path, schema: Mapping[str, Any], root: Mapping[str, Any]
) -> tuple[str, ...]:
    context = detail.get("ctx", {})
    name = detail["type"]
    if kind == "unknown":
        return fields_at(root, path[:-1])
    if kind == "bound":
        limit, sign = _BOUND[name]
        bound = context.get(limit)
        return (f"{sign} {int(bound) if isinstance(bound, float) and bound.is_integer() else bound}",)
    if kind == "length":
        limit, sign, unit = _LENGTH[name]
        return (f"{sign} {context.get(limit)}", unit)
    if kind == "pattern":
        examples = [str(one) for one in schema.get("examples", ())][:2]
        return (str(context.get("pattern", "")), *(f"e.g. {one}" for one in examples))
    if kind == "choice":
        return schema_choices(_enumerated(schema, root)) or (str(context.get("expected", "")),)
    if kind == "format" and isinstance(schema.get("format"), str):
        return (schema["format"],)
    return (describe(schema, root),) if kind in ("missing", "type", "format") else ()


def _enumerated(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that lists the values: this one, what it refers to, or its first alternative that lists any."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    target = root.get("$defs", {}).get(name)
    options = [schema, target, *schema.get("anyOf", ()), *schema.get("allOf", ())]
    return next((one for one in options if isinstance(one, Mapping) and schema_choices(one)), {})


def _rule(detail: ErrorDetails) -> str:
    """The sentence of a validator, without pydantic's prefix."""
    message = detail["msg"]
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    return well_formed(message)[:_RULE_CHARS] or "is not accepted"
