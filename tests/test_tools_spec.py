"""A tool is described once, from a typed function, and a wrong description is refused where it is written."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, InjectedToolCallId
from langsmith import traceable
from pydantic import BaseModel, Field

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools import CallInfo, Tool, Valid, as_tool, calling, current_call, tool
from fsm_agent.tools.docstring import split_docstring
from tests.tool_calls import call


@tool
def find_flights(origin: str, limit: int = 5, cabin: Literal["eco", "first"] = "eco") -> str:
    """Find flights.

    Searches the timetable of today.

    Args:
        origin: Airport code,
            three letters.
        limit (int): How many.
        cabin: The class: eco or first.

    Returns:
        One line a flight.

    Raises:
        ValueError: Never.
    """
    return f"{origin} {limit} {cabin}"


def test_a_function_describes_its_tool() -> None:
    """Name, description and parameters come from the function; Args goes to the fields, Raises nowhere."""
    assert find_flights.name == "find_flights"
    assert find_flights.description == (
        "Find flights.\n\nSearches the timetable of today.\n\nReturns:\n    One line a flight."
    )
    assert find_flights.parameters() == {
        "type": "object",
        "properties": {
            "origin": {"type": "string", "description": "Airport code, three letters."},
            "limit": {"type": "integer", "default": 5, "description": "How many."},
            "cabin": {
                "type": "string",
                "enum": ["eco", "first"],
                "default": "eco",
                "description": "The class: eco or first.",
            },
        },
        "required": ["origin"],
    }
    assert find_flights.parameters() is find_flights.parameters()
    assert call(find_flights, origin="OSL") == "OSL 5 eco"


def test_options_in_the_decorator() -> None:
    """`@tool(...)` and `@tool("name", ...)` take the fields of `Tool`; `replace` and `as_tool` change a copy."""

    @tool("other-name", idempotent=True, retry=2, not_for="hotels; use find_hotels")
    def original() -> str:
        """Find it."""
        return ""

    assert (original.name, original.idempotent, original.retry) == ("other-name", True, 2)
    assert original.full_description == "Find it. Do not use it for: hotels; use find_hotels."
    changed = as_tool(original, timeout=3.0)
    assert (changed.timeout, changed.retry, original.timeout) == (3.0, 2, None)
    assert dataclasses.replace(original, lax=True).lax
    assert as_tool(original) is original


def test_when_not_to_use_it_in_chinese() -> None:
    """A Chinese sentence is introduced in Chinese."""

    @tool(not_for="加减法，请用 calculator。")
    def search() -> str:
        """搜索。"""  # noqa: D415 - it ends with the full stop of its language
        return ""

    assert search.full_description == "搜索。 不适用于：加减法，请用 calculator。"


def test_annotations_describe_and_bound_a_field() -> None:
    """`Annotated` texts, `Field` descriptions and bounds reach the schema; the docstring does not override them."""

    @tool
    def probe(  # noqa: D417 - d describes itself
        a: Annotated[int, Field(ge=0, le=10, description="from Field")],
        b: Annotated[str, "from text"] = "x",
        c: int = Field(3, ge=1),
        d: Annotated[str, "from text"] = "y",
    ) -> str:
        """Probe.

        Args:
            a: from docstring
            b: from docstring
            c: from docstring
        """
        return f"{a}{b}{c}"

    shown = probe.parameters()["properties"]
    assert shown["a"] == {"type": "integer", "minimum": 0, "maximum": 10, "description": "from Field"}
    assert shown["b"]["description"] == "from docstring"
    assert shown["d"]["description"] == "from text"
    assert shown["c"] == {"type": "integer", "minimum": 1, "default": 3, "description": "from docstring"}
    assert call(probe, a=1) == "1x3"


def test_async_functions_methods_partials_and_callables() -> None:
    """An async function is the async side; methods, partials and callable objects work as they are."""

    @tool
    async def later(x: int) -> int:
        """Later."""
        return x + 1

    class Shop:
        def price(self, sku: str) -> str:
            """Price of one article."""
            return f"{sku}: 1"

        def __call__(self, sku: str) -> str:
            """Sell."""
            return f"sold {sku}"

    assert later.func is None
    assert call(later, x=1) == 2
    assert call(as_tool(Shop().price), sku="a") == "a: 1"
    assert call(as_tool(Shop(), name="sell"), sku="a") == "sold a"
    bound = as_tool(functools.partial(find_flights.func or print, limit=9), name="nine")
    assert list(bound.parameters()["properties"]) == ["origin", "cabin"]
    assert call(bound, origin="OSL") == "OSL 9 eco"


def test_types_of_an_enclosing_function_are_found() -> None:
    """Annotations may name classes that exist only in the function around."""

    class Mood(Enum):
        GOOD = "good"

    @tool
    def feel(mood: Mood) -> str:
        """Feel."""
        return mood.name

    assert call(feel, mood="good") == "GOOD"


def test_parameter_names_that_pydantic_has_taken() -> None:
    """`schema`, `_private`, `model_x` and the like are parameters like any other."""

    @tool
    def odd(schema: int, _private: int, model_config: int, copy: int = 1, json: str = "") -> tuple[int, ...]:
        """Odd."""
        return schema, _private, model_config, copy

    assert list(odd.parameters()["properties"]) == ["schema", "_private", "model_config", "copy", "json"]
    assert call(odd, schema=1, _private=2, model_config=3) == (1, 2, 3, 1)


def test_what_the_engine_fills_is_hidden() -> None:
    """`CallInfo`, `RunnableConfig`, the call id and callbacks are filled, not shown, and refused from the model."""

    @tool
    def probe(
        x: int,
        info: CallInfo,
        config: RunnableConfig,
        call_id: Annotated[str, InjectedToolCallId],
        *,
        callbacks: Any,
        maybe: RunnableConfig | None = None,
    ) -> Any:
        """Probe."""
        return x, info.idempotency_key, config, call_id, callbacks, maybe

    assert list(probe.parameters()["properties"]) == ["x"]
    with calling(CallInfo(call_id="c1", idempotency_key="r1:c1", config={"tags": ["a"]})):
        assert call(probe, x=1) == (1, "r1:c1", {"tags": ["a"]}, "c1", None, {"tags": ["a"]})
    assert current_call() == CallInfo()
    for name in ("info", "config", "call_id", "callbacks"):
        assert not isinstance(probe.validate({"x": 1, name: "evil"}), Valid)


def test_what_the_engine_fills_in_async_functions() -> None:
    """An async function is filled in the same way."""

    @tool
    async def probe(x: int, info: CallInfo) -> str:
        """Probe."""
        return f"{x} {info.run_id}"

    with calling(CallInfo(run_id="r1")):
        assert call(probe, x=1) == "1 r1"


def test_a_function_that_langsmith_traces_is_a_tool_like_any() -> None:
    """`traceable` adds a parameter `config` without a type: it is LangChain's, as for a function in a chain, and no argument."""

    @traceable
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    @traceable
    async def later(a: int) -> int:
        """Later."""
        return a + 1

    def probe(x: int, config: Any = None, *, run: str = "") -> str:  # a type of its own makes it an argument
        """Probe."""
        return f"{x} {config} {run}"

    assert list(as_tool(add).parameters()["properties"]) == ["a", "b"]
    assert (call(as_tool(add), a=1), call(as_tool(later), a=1)) == (2, 2)
    assert list(as_tool(probe).parameters()["properties"]) == ["x", "config", "run"]


def test_a_foreign_injection_with_a_default_is_left_alone() -> None:
    """What another framework would inject is hidden and keeps its default."""

    @tool
    def probe(x: int, state: Annotated[dict[str, Any] | None, InjectedToolArg] = None) -> str:
        """Probe."""
        return f"{x} {state}"

    assert list(probe.parameters()["properties"]) == ["x"]
    assert call(probe, x=1) == "1 None"


def test_the_current_call_is_per_thread() -> None:
    """A4: what one thread is calling is not seen by another."""
    seen: list[str] = []
    with calling(CallInfo(call_id="mine")):
        thread = threading.Thread(target=lambda: seen.append(current_call().call_id))
        thread.start()
        thread.join()
    assert seen == [""]


def _starred(*args: int) -> None:
    """Starred."""


def _keywords(**kwargs: int) -> None:
    """Keywords."""


def _untyped(x) -> None:  # type: ignore[no-untyped-def]  # that is the point
    """Untyped."""


def _untyped_config(config) -> str:  # type: ignore[no-untyped-def]  # that is the point
    """A config of whose?"""
    return str(config)


def _positional(x: int, /) -> None:
    """Positional."""


def _generator() -> Iterator[int]:
    """Generator."""
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    """Async generator."""
    yield 1


def _unresolvable(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
    """Unresolvable."""


def _opaque(x: Callable[[int], int]) -> None:
    """Opaque."""


class _Args(BaseModel):
    x: int = 1


class _Opaque: ...


class _Thing:
    def method(self, x: int) -> None:
        """Method."""


def _unknown_class(x: _Opaque) -> None:
    """Unknown class."""


def _foreign(state: Annotated[dict[str, Any], InjectedToolArg]) -> None:
    """Foreign."""


@pytest.mark.parametrize(
    ("func", "said"),
    [
        (_starred, r"\*args"),
        (_keywords, r"\*\*kwargs"),
        (_untyped, '"x" without a type'),
        (_untyped_config, '"config" without a type'),
        (_positional, "positional-only"),
        (_generator, "return a list"),
        (_async_generator, "return a list"),
        (_unresolvable, "Missing"),
        (_opaque, '"x" has a type that JSON cannot describe'),
        (_unknown_class, "cannot be validated"),
        (max, "signature"),
        (_foreign, r"injected by another framework; .* a parameter config: RunnableConfig"),
        (_Thing.method, r"method without its object; .* tool\(thing.method\)"),
        (lambda: 1, "name="),
        (print, r"\*args"),
        (5, "typed function"),
        (int, "typed function"),
        (_Args, r"put @tool\(args_model=_Args\) above the function"),
        ({"type": "web_search"}, r"model.bind_tools\("),
        ({"type": "function", "function": {"name": "f", "description": "x" * 999}}, "x{9}; a schema runs nothing"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_reason(func: Any, said: str) -> None:
    """What no model could call is refused at definition, by either way to make a tool, and the message says what to change."""
    with pytest.raises(ToolDefinitionError, match=said):
        as_tool(func)
    with pytest.raises(ToolDefinitionError, match=said):
        tool(func)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "has space"}, {"name": ""}, {"name": "a" * 65}, {"name": "a.b"}, {"name": "näme"}, {"name": "a\n"},
        {"retry": -1}, {"timeout": 0}, {"timeout": float("nan")}, {"max_result_chars": 0}, {"func": None},
        {"args_model": dict}, {"args_model": None},
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(wrong: dict[str, Any]) -> None:
    """Illegal names, negative retries, empty time-outs and a missing function are refused with the name of the tool."""
    right: dict[str, Any] = {"name": "good", "description": "", "args_model": _Args, "func": lambda x: x}
    Tool(**right)
    with pytest.raises(ToolDefinitionError) as raised:
        Tool(**(right | wrong))
    assert raised.value.tool == str(wrong.get("name", "good"))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"volatile": "request_id"}, 'a set of names, as in {"request_id"}'),
        ({"ignore_extra": "trace"}, "True or a set of names"),
        ({"description": None}, "a text"),
        ({"not_for": ["sums"]}, "a text"),
        ({"timeout": "5"}, "a number of seconds"),
        ({"retry": 1.5}, "a whole number"),
        ({"max_result_chars": 1.5}, "a whole number"),
        ({"idempotent": "no"}, "True or False"),
    ],
)
def test_an_option_of_another_kind_is_refused(wrong: dict[str, Any], meant: str) -> None:
    """A text holds each of its parts, so `volatile="request_id"` would take payments with other values of `id` for the same."""

    def pay(id: str, request_id: str) -> str:
        """Pay."""
        return "paid"

    with pytest.raises(ToolDefinitionError, match=re.escape(f"{next(iter(wrong))} is {meant}")):
        tool(**wrong)(pay)


def test_approval_can_depend_on_the_arguments() -> None:
    """`requires_approval` may be a check; one that raises asks a person rather than letting the call pass."""
    right: dict[str, Any] = {"name": "pay", "description": "", "args_model": _Args, "func": lambda x: x}
    assert not Tool(**right).needs_approval({"x": 1})
    assert Tool(**right, requires_approval=True).needs_approval({"x": 1})
    large = Tool(**right, requires_approval=lambda args: args["x"] > 10)
    assert [large.needs_approval(args) for args in ({"x": 1}, {"x": 11}, {})] == [False, True, True]


@pytest.mark.parametrize("given", ["", "no", None, 0, 1])
def test_approval_is_true_false_or_a_check(given: Any) -> None:
    """A setting that is empty or a word does not decide whether a person is asked: the one would let every call pass."""
    right: dict[str, Any] = {"name": "pay", "description": "", "args_model": _Args, "func": lambda x: x}
    with pytest.raises(ToolDefinitionError, match="tool 'pay': requires_approval is True, False, or a function"):
        Tool(**right, requires_approval=given)


def test_a_mapping_for_a_fallback_is_a_function() -> None:
    """It is refused where it is written, not when the tool fails."""
    right: dict[str, Any] = {"name": "pay", "description": "", "args_model": _Args, "func": lambda x: x}
    five: Any = 5
    with pytest.raises(ToolDefinitionError, match=r"map_fallback is a function .* not 5"):
        Tool(**right, fallback="spare", map_fallback=five)


async def _awaits(args: dict[str, Any]) -> bool:
    return bool(args)


@pytest.mark.parametrize(
    "check", [lambda x, y: True, lambda x, **rest: x > 1, lambda *, x: x > 1, lambda: True, _awaits]
)
def test_a_check_for_approval_that_could_never_say_no_is_refused(check: Any) -> None:
    """One that wants the arguments by their names, or is async, would fail at each call, and a person be asked about every one."""
    right: dict[str, Any] = {"name": "pay", "description": "", "args_model": _Args, "func": lambda x: x}
    with pytest.raises(ToolDefinitionError, match=r"tool 'pay': requires_approval is .* all arguments as one dict"):
        Tool(**right, requires_approval=check)
    assert Tool(**right, requires_approval=Mock(return_value=False)).needs_approval({"x": 1}) is False
    assert Tool(**right, requires_approval=bool).needs_approval({}) is False


def test_schemas_are_short_and_self_contained() -> None:
    """Small definitions are written out, recursive ones stay referenced; titles go, fields named `title` stay."""

    class Leaf(BaseModel):
        title: str
        default: int = 0

    class Tree(BaseModel):
        leaf: Leaf
        other: Leaf | None = None
        children: list[Tree] = []

    shown = Tool(name="t", description="", args_model=Tree, func=lambda **_: None).parameters()
    assert shown["properties"]["leaf"]["properties"]["title"] == {"type": "string"}
    assert shown["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert set(shown["$defs"]) == {"Tree"}
    assert "title" not in shown


@pytest.mark.parametrize(
    ("text", "description", "arguments"),
    [
        (None, "", {}),
        ("One line.", "One line.", {}),
        ("Do.\n\nArgs:\n    a: x\n\nMore words.", "Do.\n\nMore words.", {"a": "x"}),
        (
            "Do.\n\nArgs:\n    a: x: y\n    b (int, optional): z\n      and more\n",
            "Do.",
            {"a": "x: y", "b": "z and more"},
        ),
        ("Do.\n\nExample:\n    Args: none", "Do.\n\nExample:\n    Args: none", {}),
        ("Args:\n    *rest: all of it", "", {"rest": "all of it"}),
        ("Do.\n\nArgs:\n", "Do.", {}),
    ],
)
def test_docstrings(text: str | None, description: str, arguments: dict[str, str]) -> None:
    """Google-style sections are told apart from the prose around them."""
    assert split_docstring(text) == (description, arguments)


def test_importing_the_tools_imports_no_langchain() -> None:
    """`fsm_agent.tools` costs pydantic only: LangChain's tools take a second and are not needed for functions."""
    code = (
        "import sys, types; package = types.ModuleType('fsm_agent'); package.__path__ = ['fsm_agent'];"
        "sys.modules['fsm_agent'] = package; import fsm_agent.tools;"
        "assert not [name for name in sys.modules if name.startswith('langchain')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
