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

_Branch = tuple[Path, tuple[str, ...]]
"""A branch of a union: where the union is, and what pydantic calls the branch."""

_MAX_ERRORS: Final = 40
_MAX_READ: Final = 2_000
"""A union has errors in each of its branches."""
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
    for detail in _meant(error.errors(include_url=False)[:_MAX_READ], given)[:_MAX_ERRORS]:
        path = (*_path(detail, given)[0], *_tag(detail, given, schema))
        by_path.setdefault(path, []).append(detail)
    return {path: _problem(path, details, given, schema) for path, details in by_path.items()}


def _path(detail: ErrorDetails, given: Any) -> tuple[Path, tuple[_Branch, ...]]:
    """Where an error is: only steps that the arguments have. And what pydantic adds to them, as the branch of a union or `[key]`."""
    location, absent = detail["loc"], detail["type"] in _MISSING or detail["type"] in _UNKNOWN
    path: list[str | int] = []
    added: dict[Path, tuple[str, ...]] = {}
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
            added[tuple(path)] = (*added.get(tuple(path), ()), str(part))
    return tuple(path), tuple(added.items())


def _meant(errors: Sequence[ErrorDetails], given: Any) -> list[ErrorDetails]:
    """Of the branches of a union only the errors of those that fit best: of the right type, then by its constants, then by its fields.

    Where a constant (`kind: Literal["cat"]`) is wrong in all of these, only that is wrong.
    """
    placed = [(detail, *_path(detail, given)) for detail in errors]
    odds = _odds(placed)
    best: dict[Path, tuple[int, int, int]] = {}
    for (at, _), one in odds.items():
        best[at] = min(best.get(at, one), one)
    likely = [one for one in placed if all(odds[branch] == best[branch[0]] for branch in one[2])]
    wrong = {branch for detail, path, branches in likely for branch in branches if _names_branch(detail, path, branch)}
    open_ = {branch[0] for *_, branches in likely for branch in branches if branch not in wrong}
    return [
        detail
        for detail, path, branches in likely
        if all(branch[0] in open_ or _names_branch(detail, path, branch) for branch in branches)
    ] or list(errors)


def _odds(placed: Sequence[tuple[ErrorDetails, Path, Sequence[_Branch]]]) -> dict[_Branch, tuple[int, int, int]]:
    """What speaks against each branch: its type; constants that another branch takes; other constants, and fields that it has not."""
    faults: dict[_Branch, list[tuple[str, Path]]] = {}
    beside: dict[Path, dict[_Branch, set[Path]]] = {}
    for detail, path, branches in placed:
        for branch in branches:
            faults.setdefault(branch, []).append((_kind(detail), path))
            beside.setdefault(branch[0], {}).setdefault(branch, set()).add(path)
    odds = {}
    for branch, told in faults.items():
        at = branch[0]
        wrong = any(path == at and kind in ("type", "choice") for kind, path in told)
        odd = [(kind, path) for kind, path in told if path[:-1] == at and kind in ("choice", "unknown")]
        taken = [
            path
            for kind, path in odd
            if kind == "choice" and any(not others & {path, at} for others in beside[at].values())
        ]
        odds[branch] = (int(wrong), len(taken), len(odd))
    return odds


def _names_branch(detail: ErrorDetails, path: Path, branch: _Branch) -> bool:
    """True for an error about a field right below a union that enumerates its values, as the tag of a branch does."""
    return path[:-1] == branch[0] and _kind(detail) == "choice"


def _tag(detail: ErrorDetails, given: Any, schema: Mapping[str, Any]) -> Path:
    """The field that says which branch of a union is meant, for an error about that field which pydantic tells of the whole object."""
    if not detail["type"].startswith("union_tag_"):
        return ()
    path, _ = _path(detail, given)
    names = re.findall("'([^']*)'", str(detail.get("ctx", {}).get("discriminator", "")))
    there = fields_at(schema, path, None)
    return tuple([name for name in names if name in there][:1])


def _problem(path: Path, details: Sequence[ErrorDetails], given: Any, root: Mapping[str, Any]) -> Problem:
    details = [
        detail for detail in details if detail["type"] not in _UNKNOWN
    ] or details  # another branch has the field
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
