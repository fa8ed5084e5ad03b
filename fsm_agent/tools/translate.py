"""pydantic's errors -> `Problem`s: paths as the model wrote them, one problem a field, expectations from the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fsm_agent.tools.plain import well_formed
from fsm_agent.tools.problems import Problem, phrase, shown_value
from fsm_agent.tools.schema import described_at, fields_at, schema_choices, schemas_at
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
    for detail in _meant(error.errors(include_url=False)[:_MAX_ERRORS], given):
        path = (*_path(detail, given)[0], *_tag(detail, given, schema))
        by_path.setdefault(path, []).append(detail)
    return {path: _problem(path, details, given, schema) for path, details in by_path.items()}


def _path(detail: ErrorDetails, given: Any) -> tuple[Path, tuple[tuple[Path, str], ...]]:
    """Where an error is: only steps that the arguments have. And what pydantic adds to them, as the branch of a union or `[key]`."""
    location, absent = detail["loc"], detail["type"] in _MISSING or detail["type"] in _UNKNOWN
    path: list[str | int] = []
    added: list[tuple[Path, str]] = []
    value = given
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(value, Mapping) and isinstance(part, str) and (part in value or (last and absent)):
            path.append(part)
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and isinstance(part, int):
            path.append(part)
            value = value[part] if 0 <= part < len(value) else None
        else:
            added.append((tuple(path), str(part)))
    return tuple(path), tuple(added)


def _meant(errors: Sequence[ErrorDetails], given: Any) -> list[ErrorDetails]:
    """Without what is wrong in the branches of a union that a constant field (`kind: Literal["cat"]`) rules out.

    Where it rules out all of them, only that is wrong.
    """
    ruled_out, open_ = set(), set()
    placed = [(detail, *_path(detail, given)) for detail in errors]
    for detail, path, branches in placed:
        for branch in branches:
            if len(path) > len(branch[0]):
                open_.add(branch)
            if detail["type"] == "literal_error" and path[:-1] == branch[0]:
                ruled_out.add(branch)
    somewhere = {at for at, _ in open_ - ruled_out}
    kept = [
        detail
        for detail, path, branches in placed
        if not any(
            branch in ruled_out and (branch[0] in somewhere or detail["type"] != "literal_error") for branch in branches
        )
    ]
    return kept or list(errors)


def _tag(detail: ErrorDetails, given: Any, schema: Mapping[str, Any]) -> Path:
    """The field that says which branch of a union is meant, for an error about that field which pydantic tells of the whole object."""
    if not detail["type"].startswith("union_tag_"):
        return ()
    path, _ = _path(detail, given)
    names = re.findall("'([^']*)'", str(detail.get("ctx", {}).get("discriminator", "")))
    there = fields_at(schema, path, None)
    return tuple([name for name in names if name in there][:1])


def _problem(path: Path, details: Sequence[ErrorDetails], given: Any, root: Mapping[str, Any]) -> Problem:
    kinds = [_kind(detail) for detail in details]
    specific = [index for index, kind in enumerate(kinds) if kind in _SPECIFIC]
    chosen = specific[0] if specific else 0
    kind = kinds[chosen]
    if not specific and len(set(kinds)) > 1:
        kind = "type"
    value = value_at(given, path)
    allowed = _allowed(kind, details[chosen], path, given, root)
    message = phrase(kind, allowed, "en") or _rule(details[chosen])
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


def _allowed(kind: str, detail: ErrorDetails, path: Path, given: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    context = detail.get("ctx", {})
    name = detail["type"]
    schemas = schemas_at(root, path)
    schema = next(iter(schemas), {})
    if kind == "unknown":
        return tuple(one for one in fields_at(root, path[:-1], value_at(given, path[:-1])) if one != path[-1])
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
        listed = dict.fromkeys(one for any_ in schemas for one in schema_choices(_enumerated(any_, root)))
        return tuple(listed) or (str(context.get("expected", "")),)
    if kind == "format" and isinstance(schema.get("format"), str):
        return (schema["format"],)
    return (described_at(root, path),) if kind in ("missing", "type", "format") else ()


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
