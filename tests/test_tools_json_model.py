"""Tools described by a JSON schema (MCP servers) are checked as strictly as typed functions."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools import Invalid, Tool, Valid
from fsm_agent.tools.json_model import json_arguments


def made(schema: dict[str, Any], **options: Any) -> Tool:
    """A tool that returns what it was called with."""
    return Tool(name="remote", description="", args_model=json_arguments(schema, "remote"), func=dict, **options)


def of(**properties: Any) -> Tool:
    """A tool with these optional properties."""
    return made({"type": "object", "properties": properties})


def valid(one: Tool, **arguments: Any) -> Valid:
    """Accepted arguments."""
    checked = one.validate(arguments)
    assert isinstance(checked, Valid), checked
    return checked


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Search",
    "type": "object",
    "properties": {
        "user-id": {"type": "string", "title": "User"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        "filter": {"$ref": "#/$defs/Filter"},
    },
    "required": ["user-id"],
    "$defs": {
        "Filter": {
            "type": "object",
            "properties": {"tag": {"type": "string"}, "any": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}},
        }
    },
}


def test_the_schema_is_shown_and_names_are_kept() -> None:
    """The model reads the server's own schema without noise; the server gets its own names and what was given."""
    one = made(SCHEMA)
    assert one.parameters()["properties"]["user-id"] == {"type": "string"}
    checked = valid(one, **{"user-id": "a", "filter": {"tag": "x"}})
    assert checked.call_with == checked.arguments == {"user-id": "a", "limit": 10, "filter": {"tag": "x"}}
    assert checked.call_with["filter"] is not checked.arguments["filter"]
    assert valid(one, **checked.arguments) == checked


@pytest.mark.parametrize(
    ("arguments", "field", "kind"),
    [
        ({}, "user-id", "missing"),
        ({"user-id": "a", "dry_run": True}, "dry_run", "unknown"),
        ({"user-id": "a", "limit": 0}, "limit", "bound"),
        ({"user-id": "a", "limit": "5"}, "limit", "type"),
        ({"user-id": "a", "limit": None}, "limit", "type"),
        ({"user-id": "a", "limit": True}, "limit", "type"),
        ({"user-id": "a", "filter": {"tags": "x"}}, "filter.tags", "unknown"),
        ({"user-id": 5}, "user-id", "type"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], field: str, kind: str) -> None:
    """M19: unknown fields, at depth too, wrong types and limits are refused before the server is asked."""
    checked = made(SCHEMA).validate(arguments)
    assert isinstance(checked, Invalid)
    assert [(problem.field, problem.kind) for problem in checked.problems] == [(field, kind)]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "number"}, [1, 1.5, 12345678901234567890], ["1", True, None]),
        ({"type": "number", "minimum": 0.5}, [1, 0.5], [0, 0.4]),
        ({"type": "integer", "multipleOf": 5}, [10], [7]),
        ({"type": "integer", "exclusiveMinimum": 0.5, "maximum": 2.5}, [1, 2], [0, 3]),
        ({"type": "integer", "multipleOf": 0.5}, [3], [True]),
        ({"type": "integer", "multipleOf": 1.5}, [3, 6], [2]),
        ({"type": "number", "multipleOf": 1.5}, [3, 4.5], [2, 2.0]),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": 1.5}, [3], [2]),
        ({"type": "integer", "exclusiveMaximum": 4.5, "maximum": 2}, [2], [3]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": 1.5}, [2], [1]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"enum": ["a", 1, None]}, ["a", 1, None], [True, "b", 2]),
        ({"enum": [1.5, [1]]}, [1.5, [1]], [1, [2]]),
        ({"enum": [1, 2**63, -(2**70)]}, [1, 2**63, -(2**70)], [2, True, 2**64, "1"]),
        ({"const": 2**64}, [2**64], [2**64 + 1, 1]),
        ({"const": "x"}, ["x"], ["y"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [1.5, None]),
        ({"oneOf": [{"type": "boolean"}, {"type": "null"}]}, [True, None], [1]),
        ({"allOf": [{"type": "string", "maxLength": 2}]}, ["ab"], ["abc", 1]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [[1]], [[], ["1"], 1]),
        ({"type": "array"}, [[1, "a"]], [{}]),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, [["a", 1]], ["a"]),
        ({"type": "object"}, [{"a": [1]}], [[]]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "1"}]),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, [{"a": 1, "b": 2}], [1]),
        ({"type": "object", "properties": {"a": {}}}, [{"a": 1}], [{"b": 2}]),
        ({"type": "object", "required": ["a"]}, [{"a": 1}], [{}]),
        ({"properties": {"a": {"type": "string"}}}, [{"a": "1"}], [{"a": 1}]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
        ({"type": "string", "pattern": "^(?=.*x)"}, ["x", "y"], [1]),
        ({"type": "string", "minLength": 2}, ["ab"], ["a"]),
        ({}, [1, "a", None, {"x": 1}], []),
        (True, [1], []),
        ({"$ref": "#/$defs/none"}, [1], []),
        ({"type": "string", "minLength": "two"}, ["a"], [1]),
    ],
)
def test_keywords(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """Each keyword accepts and refuses what it should; a pattern that needs backtracking is left to the server."""
    one = of(x=schema)
    for value in good:
        assert valid(one, x=value).call_with == {"x": value}
    for value in bad:
        assert isinstance(one.validate({"x": value}), Invalid), value


def test_hostile_patterns_take_no_time() -> None:
    """A pattern that would backtrack for ever is matched in linear time, or not at all."""
    assert isinstance(of(x={"type": "string", "pattern": "^(a+)+$"}).validate({"x": "a" * 5000 + "b"}), Invalid)


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "object", "properties": []}])
def test_a_schema_of_no_object_is_refused(schema: dict[str, Any]) -> None:
    """Arguments are an object; anything else is refused at definition."""
    with pytest.raises(ToolDefinitionError, match="an object"):
        made(schema)


def test_no_properties_means_no_arguments() -> None:
    """M11: an empty schema accepts `{}` only, unless it says that it takes anything."""
    assert valid(made({"type": "object"})).call_with == {}
    assert isinstance(made({"type": "object"}).validate({"x": 1}), Invalid)
    assert valid(made({"type": "object", "additionalProperties": True}), x=1).call_with == {"x": 1}


SCALAR_SCHEMAS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 3},
        {"type": "integer"},
        {"type": "integer", "minimum": 2},
        {"type": "number", "exclusiveMaximum": 5},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", 1, None]},
        {},
    ]
)
SCHEMAS = st.recursive(
    SCALAR_SCHEMAS,
    lambda inner: st.one_of(
        inner.map(lambda one: {"type": "array", "items": one}),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some}),
        st.dictionaries(st.sampled_from(["a", "b", "_c", "model_dump", "x-y"]), inner, max_size=3).map(
            lambda some: {"type": "object", "properties": some, "additionalProperties": False}
        ),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from([1.5, "a", "abcd", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "_c", "x-y"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_agrees_with_a_reference_validator(schema: dict[str, Any], value: Any) -> None:
    """On closed schemas the verdict is that of `jsonschema`, and what is accepted is passed on unchanged."""
    checked = of(x=schema).validate({"x": value})
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert isinstance(checked, Valid) is expected, schema
    if isinstance(checked, Valid):
        assert json.dumps(checked.call_with) == json.dumps({"x": value}) or checked.call_with == {"x": value}


@given(
    st.recursive(
        VALUES,
        lambda inner: st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "enum", "items", "$ref"]), inner),
    )
)
def test_any_schema_is_used_or_refused(schema: Any) -> None:
    """A schema from a hostile server is used or refused; it raises nothing else."""
    try:
        one = of(x=schema)
    except ToolDefinitionError:
        return
    assert isinstance(one.validate({"x": 1}), (Valid, Invalid))
