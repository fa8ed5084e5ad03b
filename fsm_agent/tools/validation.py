r"""Strict validation of a tool's arguments: nothing is guessed, nothing dropped, and what is wrong is named.

What a declared type accepts from JSON, unless the tool is `lax`:

| declared | accepted | refused |
|---|---|---|
| `str` | text, as it is | everything else: `5`, `true`, `null` |
| `bool` | `true`, `false` | `"false"`, `0`, `1` |
| `int` | `5` | `5.0`, `"5"`, `true` |
| `float` | `5`, `5.5` | `"5"`, `true`, `NaN`, `Infinity`, `1e999` |
| `str \| int` | each by its own type: `"5"` stays text, `5` stays a number | `5.0`, `true` |
| `Decimal` | `"1.50"`, `1.5`, `2` | text that is no number, `true` |
| `Enum`, `Literal` | one of the values, of the same JSON type | anything else; `true` for `1` |
| `date`, `datetime`, `UUID`, URL, `Path`, `bytes`, ... | their usual text | numbers, other text |
| `list`, `tuple`, `set`, `frozenset` | arrays | text, objects |
| `dict[K, V]` | objects; a key is text that reads as a `K` | arrays |
| model, dataclass, `TypedDict` | objects with known fields only, at every depth | unknown fields, JSON in text |
| `T \| None`, or default `None` | `null` besides | |

`lax` adds pydantic's coercions (`"5"` and `5.0` for an int, `"false"` for a bool); each one made is reported. A model
class whose own configuration says `extra="allow"` keeps its extra fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, cast, get_args

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic_core import PydanticUndefined, to_json

from fsm_agent.frozen import fast_init
from fsm_agent.tools.beyond import written_otherwise
from fsm_agent.tools.models import FunctionArguments, JsonArguments
from fsm_agent.tools.plain import plain
from fsm_agent.tools.problems import Problem, problem, shown_value
from fsm_agent.tools.schema import described_at, fields_at, lists_alike, schemas_in
from fsm_agent.tools.signature import canonical
from fsm_agent.tools.translate import problems_of
from fsm_agent.tools.walk import MAX_DEPTH, Path, dropped, leaves, path_text, unwritable, value_at

__all__ = ["MAX_ARGUMENT_BYTES", "Invalid", "Valid", "Validator"]

MAX_ARGUMENT_BYTES: Final = 8_000_000
"""The arguments of one call as JSON: above this nothing is parsed."""
_LONG: Final = 4_000
"""Bytes of JSON text from which on an integer in it may be too long to be read back."""
_HUGE: Final = 308
"""Bytes of JSON text from which on an integer in it may be too large for a float."""
_KEPT: Final = 64
"""Accepted calls whose Python values are kept until they are made; each of them at most `_LONG` bytes."""


@fast_init
@dataclass(frozen=True, slots=True)
class Valid:
    """Accepted arguments.

    `arguments` is JSON-safe with defaults filled (for the signature, the trail, approval and logs) and valid again when
    validated again. `call_with` are the Python values for the function, by parameter name. `coercions` says what was
    read as something else or left out, one sentence each; empty for a strict tool.
    """

    arguments: dict[str, Any]
    call_with: dict[str, Any]
    coercions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Invalid:
    """Refused arguments, with every problem found; never empty."""

    problems: tuple[Problem, ...]


class Validator:
    """The compiled checks of one argument model. Called with the arguments of a call; never raises.

    `hidden` maps the input names that the engine fills (never accepted from the model) to a stand-in for the check,
    `PydanticUndefined` for one that its default may fill.
    """

    def __init__(
        self,
        model: type[BaseModel],
        schema: Callable[[], Mapping[str, Any]],
        *,
        lax: bool = False,
        ignore_extra: frozenset[str] | bool = frozenset(),
        hidden: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._schema = schema
        self._lax = lax
        self._ignored = ignore_extra
        self._hidden = dict(hidden or {})
        self._stand_ins = {name: item for name, item in self._hidden.items() if item is not PydanticUndefined}
        self._json = issubclass(model, JsonArguments)
        self._names = _input_names(model)
        self._known = frozenset(name for names in self._names.values() for name in names) - self._hidden.keys()
        self._null_is_default = frozenset(
            name for field, names in self._names.items() if model.model_fields[field].default is None for name in names
        )
        self._open = self._json or _is_open(model, set())
        self._extra: Any = None if self._open else ("ignore" if ignore_extra is True else "forbid")
        parameters = model.__parameters__ if issubclass(model, FunctionArguments) else {}
        self._outputs = {
            field: parameters.get(field, field)
            for field, names in self._names.items()
            if not any(name in self._stand_ins for name in names)
        }
        self._renamed = {
            written: self._names[field][0]
            for field, info in model.model_fields.items()
            if (written := info.serialization_alias or field) != self._names[field][0]
        }
        shown = schema().get("properties", {})
        self._sets = frozenset(
            name for name, item in shown.items() if any(one.get("uniqueItems") for one in schemas_in(item))
        )
        self._lists_alike = any(lists_alike(inner) for inner in schemas_in(schema()))
        masked = {name for name, item in shown.items() if any(one.get("writeOnly") for one in schemas_in(item))}
        otherwise = written_otherwise(model)
        # A person is shown what is going to run, whatever the model of the arguments writes in its place.
        self._as_given = {
            name: names[0]
            for field, names in self._names.items()
            for name in reversed(names)
            if field in otherwise or names[0] in masked
        }
        # What nearly every tool needs none of, looked at once.
        self._rewrites = bool(self._renamed or self._hidden or self._as_given or self._sets)
        self._looks = (self._lists_alike and not lax) or (self._open and not self._json and ignore_extra is not True)
        self._same_names = self._outputs == {field: field for field in model.model_fields}
        self._accepted: dict[int, Valid] = {}

    def __call__(self, args: Mapping[str, Any]) -> Valid | Invalid:
        """Check one set of arguments."""
        if type(args) is not dict and not isinstance(args, Mapping):  # an adapter may hand over whatever the model sent
            return Invalid((problem("", "type", ("object",), args),))  # type: ignore[unreachable]  # typed callers cannot
        given, notes = self._prepared(args)
        try:
            text = to_json(given)
        except Exception:  # noqa: BLE001 - too deep, circular, half a character, or a value of no JSON kind: named below
            return Invalid(tuple(unwritable(given)) or (problem("", "type", ("JSON",), None),))
        if len(text) > MAX_ARGUMENT_BYTES:
            return Invalid((problem("", "size", (f"{MAX_ARGUMENT_BYTES} bytes",), None),))
        size = len(text)
        nested = size > 2 * MAX_DEPTH and text.count(b"{") + text.count(b"[") > MAX_DEPTH
        suspect = nested or size > _LONG or b"NaN" in text or b"Infinity" in text
        if suspect and (broken := tuple(unwritable(given))):
            return Invalid(broken)
        return self._checked(given, text, notes)

    def take(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The Python values of arguments that were accepted here, told by identity: once, so that no two calls share a value.

        None when they are not known (any more): then they must be checked again.
        """
        valid = self._accepted.pop(id(arguments), None)
        return valid.call_with if valid is not None and valid.arguments is arguments else None

    def _keep(self, valid: Valid) -> None:
        if len(self._accepted) >= _KEPT:
            self._accepted.clear()  # calls that were refused or denied, and never made
        self._accepted[id(valid.arguments)] = valid

    def _prepared(self, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The arguments to check, without what the tool ignores and without the `null`s that mean "the default"."""
        if self._null_is_default:
            given = {key: item for key, item in args.items() if item is not None or key not in self._null_is_default}
        else:
            given = dict(args)
        if not self._ignored:
            return given, ()
        notes: list[str] = []
        for key in [key for key in given if key not in self._known and key not in self._hidden]:
            if self._ignored is True or key in self._ignored:
                del given[key]
                notes.append(f"ignored unknown field {str(key)[:80]!r}")
        return given, tuple(notes)

    def _checked(self, given: dict[str, Any], text: bytes, notes: tuple[str, ...]) -> Valid | Invalid:
        if self._hidden:
            if offered := [name for name in given if name in self._hidden]:
                return Invalid(tuple(problem(name, "unknown", tuple(sorted(self._known)), None) for name in offered))
            text = to_json(given | self._stand_ins)
        validate = self._model.__pydantic_validator__.validate_json
        refused: dict[Path, Problem] = {}
        try:
            try:
                checked = validate(text, strict=True, extra=self._extra)
            except ValidationError as error:
                refused = self._named(error, given)
                if not self._lax:
                    return Invalid(tuple(refused.values()))
                checked = validate(text, strict=False, extra=self._extra)
            arguments = self._arguments(checked, given)
        except ValidationError as error:
            return Invalid(tuple(self._named(error, given).values()))
        except Exception as error:  # noqa: BLE001 - what the author of the model wrote failed: this call is refused
            return Invalid((_raised(error),))
        if (self._looks or len(text) > _HUGE) and (wrong := tuple(self._read_wrongly(given, arguments, text))):
            return Invalid(wrong)
        if refused:
            notes += tuple(_coercion(path, given, arguments) for path in refused)
        valid = Valid(arguments, self._call_with(checked, arguments), notes)
        if len(text) < _LONG:
            self._keep(valid)
        return valid

    def _named(self, error: ValidationError, given: Mapping[str, Any]) -> dict[Path, Problem]:
        try:
            return problems_of(error, given, self._schema())
        except Exception as fault:  # noqa: BLE001 - the input or the author's own message cannot be shown
            return {(): _raised(fault)}

    def _arguments(self, checked: BaseModel, given: Mapping[str, Any]) -> dict[str, Any]:
        """The checked model as JSON data under the names that the model used, so that it can be validated again."""
        write = self._model.__pydantic_serializer__.to_python
        if self._json:
            written = write(checked, mode="json", by_alias=True, exclude_unset=True)
            filled = {**self._defaults(written), **written}
            order = {name: place for place, name in enumerate(self._schema().get("properties", {}))}
            return dict(sorted(filled.items(), key=lambda item: order.get(item[0], len(order))))
        written = write(checked, mode="json", by_alias=True, round_trip=True, warnings=False)
        if not self._rewrites:
            return cast("dict[str, Any]", written)
        if self._renamed or self._hidden:
            named = {self._renamed.get(key, key): item for key, item in written.items()}
            written = {key: item for key, item in named.items() if key not in self._hidden}
        for name, shown in self._as_given.items():
            if name in given:
                written[shown] = given[name]
        for name in self._sets:
            if isinstance(written.get(name), list):
                written[name].sort(key=canonical)
        return cast("dict[str, Any]", written)

    def _defaults(self, written: Mapping[str, Any]) -> dict[str, Any]:
        defaults = self._model.__defaults__ if issubclass(self._model, JsonArguments) else {}
        return {name: deepcopy(item) for name, item in defaults.items() if name not in written}

    def _call_with(self, checked: BaseModel, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._json:
            return deepcopy(dict(arguments))
        if self._same_names and len(checked.__dict__) == len(self._outputs):
            values = dict(checked.__dict__)
        else:
            values = {self._outputs[field]: item for field, item in checked.__dict__.items() if field in self._outputs}
        return values | checked.__pydantic_extra__ if checked.__pydantic_extra__ else values

    def _read_wrongly(self, given: Mapping[str, Any], arguments: Any, text: bytes) -> Iterator[Problem]:
        """Yield what pydantic's strict mode lets through.

        That is `true` for a listed 1 and 1 for a listed `true`, an integer too large for a float, and fields dropped beside open parts.
        """
        if len(text) > _HUGE:
            for path, value in leaves(arguments):
                if isinstance(value, float) and not isfinite(value):
                    yield problem(path_text(path), "number", (), None)
        if self._lists_alike and not self._lax:
            yield from self._taken_for_alike(given, arguments)
        if self._open and not self._json and self._ignored is not True:
            for path in dropped(given, arguments, ()):
                yield problem(
                    path_text(path), "unknown", fields_at(self._schema(), path[:-1], value_at(given, path[:-1]))
                )

    def _taken_for_alike(self, given: Mapping[str, Any], arguments: Any) -> Iterator[Problem]:
        for path, value in leaves(given):
            read = value_at(arguments, path)
            alike = isinstance(value, (int, float)) and isinstance(read, (int, float))
            if alike and isinstance(value, bool) != isinstance(read, bool):
                expected = described_at(self._schema(), path)
                if not isinstance(value, bool) or "boolean" not in expected:
                    yield problem(path_text(path), "type", (expected,), value)


def _input_names(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Field -> the names under which its value may be given; the first is the one that the schema shows."""
    by_name = bool(model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"))
    names: dict[str, tuple[str, ...]] = {}
    for field, info in model.model_fields.items():
        alias = info.validation_alias
        options = alias.choices if isinstance(alias, AliasChoices) else [alias]
        found = [str(one.path[0]) if isinstance(one, AliasPath) else one for one in options if one is not None]
        names[field] = (*found, field) if by_name or not found else tuple(found)
    return names


def _is_open(kind: Any, seen: set[int]) -> bool:
    """Is there a model among the types in `kind` whose own configuration keeps extra fields?"""
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind.model_config.get("extra") == "allow":
            return True
        return any(_is_open(info.annotation, seen) for info in kind.model_fields.values())
    return any(_is_open(inner, seen) for inner in get_args(kind))


def _raised(error: Exception) -> Problem:
    said = f"{type(error).__name__}: {plain(str(error))}" if str(error) else type(error).__name__
    return Problem("", "rule", f"could not be checked ({said[:200]})")


def _coercion(path: Path, given: Any, arguments: Any) -> str:
    name = path_text(path) or "the arguments"
    return f"{name}: {shown_value(value_at(given, path))} read as {shown_value(value_at(arguments, path))}"
