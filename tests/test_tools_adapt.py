"""LangChain tools run through the same strict checks, and what LangChain injects never comes from the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import Tool as SingleInputTool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field, model_validator
from pydantic import v1 as pydantic_v1

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools import CallInfo, Invalid, Tool, ToolResult, Valid, as_tool, calling, render, tool
from tests.tool_calls import call


def refused(one: Tool, **arguments: Any) -> str:
    """The text for the model."""
    checked = one.validate(arguments)
    assert isinstance(checked, Invalid), checked
    return render(checked.problems, one)


@langchain_tool
def pay(to: str, amount: Annotated[int, Field(gt=0, description="Cents.")], memo: str = "") -> str:
    """Pay somebody."""
    return f"{to} {amount} {memo}"


def test_a_decorated_function_keeps_its_description_and_bounds() -> None:
    """`@tool` of LangChain: same name, description, schema and result, checked strictly (M18, M19)."""
    one = as_tool(pay, retry=2)
    assert (one.name, one.description, one.retry, one.source) == ("pay", "Pay somebody.", 2, pay)
    assert one.parameters()["properties"]["amount"] == {
        "type": "integer",
        "exclusiveMinimum": 0,
        "description": "Cents.",
    }
    assert call(one, to="a", amount=5) == "a 5 "
    assert 'field "dry_run" does not exist' in refused(one, to="a", amount=5, dry_run=True)
    assert 'field "amount" must be integer' in refused(one, to="a", amount=True)
    assert 'field "amount" must be integer' in refused(one, to="a", amount="5")


def test_the_decorator_gives_options_to_a_tool_that_somebody_else_made() -> None:
    """`tool(theirs, ...)` and `@tool(...)` above their decorator do what `as_tool` does, also to a `Tool`."""
    mine = tool(pay, requires_approval=True)
    assert (mine.name, mine.source, mine.requires_approval) == ("pay", pay, True)
    again = tool(mine, retry=0)
    assert (again.retry, again.requires_approval, tool(mine)) == (0, True, mine)
    above = tool(name="transfer", once=True)(pay)
    assert (above.name, above.once, above.source) == ("transfer", True, pay)
    assert call(above, to="a", amount=5) == "a 5 "


class _Inner(BaseModel):
    a: int = 1


class _Args(BaseModel):
    x: str
    inner: _Inner = _Inner()
    n: int = Field(3, alias="theNumber")
    call: Annotated[str, InjectedToolCallId]
    store: Annotated[Any, InjectedToolArg] = None

    @model_validator(mode="after")
    def odd(self) -> _Args:
        """A rule of the author."""
        if self.x == "bad":
            raise ValueError("x must not be bad")
        return self


@langchain_tool(args_schema=_Args)
def search(x: str, inner: _Inner, n: int, call: str, *, config: RunnableConfig, store: Any = None) -> Any:
    """Search."""
    return x, inner, n, call, store, config


def test_the_users_schema_class_is_used_as_it_is() -> None:
    """Validators, aliases and nested models of an `args_schema` work; the class is not changed."""
    one = as_tool(search)
    assert one.args_model is _Args
    assert list(one.parameters()["properties"]) == ["x", "inner", "theNumber"]
    assert "x must not be bad" in refused(one, x="bad")
    assert 'field "inner.b" does not exist' in refused(one, x="a", inner={"b": 1})
    assert _Args.model_validate({"x": "a", "call": "1", "more": 1}).x == "a"


def test_injected_arguments_are_filled_and_never_accepted() -> None:
    """The call id and the config come from the engine; a model that sends them is told only the other fields."""
    one = as_tool(search)
    with calling(CallInfo(call_id="c7", config={"tags": ["t"]})):
        assert call(one, x="a", theNumber=4) == ("a", _Inner(), 4, "c7", None, {"tags": ["t"]})
    for name in ("call", "store", "config"):
        text = refused(one, x="a", **{name: "evil"})
        assert text == f'search: field "{name}" does not exist. Fields: x, inner, theNumber.'
    checked = one.validate({"x": "a"})
    assert isinstance(checked, Valid)
    assert checked.arguments == {"x": "a", "inner": {"a": 1}, "theNumber": 3}
    assert one.validate(checked.arguments) == checked


class _Weather(BaseTool):
    name: str = "weather"
    description: str = "Weather of a city."
    unit: str = "C"

    def _run(
        self,
        city: str,
        days: int = 1,
        config: RunnableConfig | None = None,
        run_manager: CallbackManagerForToolRun | None = None,
    ) -> str:
        return f"{city} {days} {self.unit} {config} {type(run_manager).__name__}"


class _AsyncWeather(_Weather):
    async def _arun(self, city: str, days: int = 1, **_: Any) -> str:
        return f"async {city} {days}"


def test_a_subclass_without_a_schema_is_described_by_its_run_method() -> None:
    """`_run` is called directly on the instance; managers and config are no arguments of the model."""
    one = as_tool(_Weather())
    assert list(one.parameters()["properties"]) == ["city", "days"]
    assert call(one, city="Oslo") == "Oslo 1 C {} NoneType"
    assert one.afunc is None
    both = as_tool(_AsyncWeather())
    assert both.func is not None
    assert both.afunc is not None
    assert asyncio.run(_awaited(both.afunc(city="Oslo", days=2))) == "async Oslo 2"


async def _awaited(value: Any) -> Any:
    return await value


def test_async_only_and_single_input_tools() -> None:
    """A coroutine is the async side; the old single-input tool gets its one value by position."""

    async def later(x: int) -> int:
        """Later."""
        return x + 1

    one = as_tool(StructuredTool.from_function(coroutine=later))
    assert one.func is None
    assert call(one, x=1) == 2
    single = as_tool(SingleInputTool("upper", str.upper, "Upper case."))
    assert call(single, tool_input="abc") == "ABC"


def test_content_and_artifact() -> None:
    """`response_format="content_and_artifact"` gives content and, beside it, an artifact; a wrong shape is an error."""

    @langchain_tool(response_format="content_and_artifact")
    def chart(n: int) -> Any:
        """Draw."""
        return ("drawn", [n]) if n else "nothing"

    one = as_tool(chart)
    assert call(one, n=1) == ToolResult(content="drawn", metadata={"artifact": [1]}, artifact=[1])
    with pytest.raises(ValueError, match="content, artifact"):
        call(one, n=0)


@pytest.mark.parametrize(
    ("reading", "said"), [("sorry", "sorry"), (True, "no luck"), (lambda error: f"<{error}>", "<no luck>")]
)
def test_handle_tool_error_is_kept(reading: Any, said: str) -> None:
    """What the author of a tool wants said about a `ToolException` is said, and counts as a failure."""

    def fail(n: int) -> str:
        """Fail."""
        raise ToolException("no luck")

    assert call(as_tool(StructuredTool.from_function(fail, handle_tool_error=reading)), n=1) == ToolResult(
        content=said, failed=True
    )
    with pytest.raises(ToolException, match="no luck"):
        call(as_tool(StructuredTool.from_function(fail)), n=1)


class _Old(pydantic_v1.BaseModel):
    x: int


class _Foreign(BaseModel):
    state: Annotated[dict[str, Any], InjectedToolArg]


def _pieces(text: str) -> Iterator[str]:
    """Pieces."""
    yield text


async def _later_pieces(text: str) -> AsyncIterator[str]:
    """Pieces."""
    yield text


def _starred(**kwargs: Any) -> str:
    """Starred."""
    return json.dumps(kwargs)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (StructuredTool(name="old", description="", func=print, args_schema=_Old), "no pydantic 2 model"),
        (StructuredTool(name="foreign", description="", func=print, args_schema=_Foreign), "another framework"),
        (StructuredTool.from_function(_starred), "kwargs"),
        (StructuredTool(name="list", description="", func=print, args_schema={"type": "array"}), "an object"),
        (SingleInputTool("two words", str.upper, "Upper."), "name="),
        (StructuredTool.from_function(_pieces), "'_pieces': a generator function gives no result; return a list"),
        (SingleInputTool("pieces", _pieces, "Pieces."), "'pieces': a generator"),
        (StructuredTool.from_function(_later_pieces), "'_later_pieces': a generator"),
    ],
)
def test_what_cannot_be_adapted_is_refused_with_a_reason(source: BaseTool, said: str) -> None:
    """A pydantic 1 schema, a foreign injection, `**kwargs`, an illegal name and a generator are refused at definition."""
    with pytest.raises(ToolDefinitionError, match=said):
        as_tool(source)


class _Collects(BaseTool):
    name: str = "collects"
    description: str = "Collect."
    func: Any = _pieces

    def _run(self, text: str) -> list[str]:
        return list(self.func(text))


def test_a_tool_may_have_a_generator_that_it_runs_itself() -> None:
    """Only the function that is called must not be one, whatever other fields a tool has."""
    assert call(as_tool(_Collects()), text="a") == ["a"]


def test_an_illegal_name_can_be_replaced() -> None:
    """`as_tool(source, name=...)` gives a LangChain tool a name that providers accept."""
    assert as_tool(SingleInputTool("two words", str.upper, "Upper."), name="upper").name == "upper"


async def _shout(text: str) -> str:
    return text.upper()


async def _later(n: int, call_id: Annotated[str, InjectedToolCallId], config: RunnableConfig) -> Any:
    """Later."""
    if n == 0:
        raise ToolException("no luck")
    return f"{n} {call_id} {config}", [n]


def test_the_async_side_is_adapted_the_same() -> None:
    """A coroutine is filled, its artifact is kept, and its `ToolException` is read as the author wants."""
    one = as_tool(
        StructuredTool.from_function(
            coroutine=_later, response_format="content_and_artifact", handle_tool_error="sorry"
        )
    )
    assert list(one.parameters()["properties"]) == ["n"]
    with calling(CallInfo(call_id="c1")):
        assert call(one, n=1) == ToolResult(content="1 c1 {}", metadata={"artifact": [1]}, artifact=[1])
    assert call(one, n=0) == ToolResult(content="sorry", failed=True)
    single = as_tool(SingleInputTool("shout", None, "Shout.", coroutine=_shout))
    assert call(single, tool_input="a") == "A"


def test_a_single_input_tool_is_filled_like_the_others() -> None:
    """Its value goes by position, the config by name, as for a runnable that `as_tool` makes such a tool of."""

    def search(text: str, *, config: RunnableConfig) -> str:
        return f"{text} {config['configurable']['user']}"

    async def later(text: str, config: RunnableConfig) -> str:
        return search(text, config=config)

    with calling(CallInfo(config={"configurable": {"user": "ana"}})):
        for one in (
            SingleInputTool("search", search, "Search."),
            SingleInputTool("search", None, "Search.", coroutine=later),
        ):
            assert call(as_tool(one), tool_input="a") == "a ana"


def test_a_foreign_parameter_of_the_function_is_refused() -> None:
    """An injection that only the function declares, beside its schema, could not be filled either."""

    class Args(BaseModel):
        x: int

    def probe(x: int, state: Annotated[dict[str, Any], InjectedToolArg]) -> str:
        """Probe."""
        return f"{x} {state}"

    with pytest.raises(ToolDefinitionError, match="another framework"):
        as_tool(StructuredTool.from_function(probe, args_schema=Args))


def test_annotations_that_no_longer_resolve_do_not_matter() -> None:
    """With a schema of its own, a tool runs although the annotations of its function cannot be evaluated."""

    class Args(BaseModel):
        x: int

    def probe(x: Gone) -> Any:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        """Probe."""
        return x

    assert call(as_tool(StructuredTool(name="probe", description="", func=probe, args_schema=Args)), x=1) == 1
