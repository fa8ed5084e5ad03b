"""`lint`: what is found in the descriptions and names of tools, what is not, and what is said about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from fsm_agent.demo import demo_tools
from fsm_agent.profiles import NAMES, profiles
from fsm_agent.tools.builtin import calculator, files, query_order, web_search
from fsm_agent.tools.lint import MOST_ALIKE, Finding, Lint, lint
from fsm_agent.tools.spec import Tool, tool

Key = Annotated[str, Field(description="The key.")]
GOOD = "Look up the customer of an order by its number. Use it when an order is known."


def named(name: str, description: str = "", **options: Any) -> Tool:
    """A tool with one described field; without a description, one of its own that says when to use it."""
    own = " ".join(f"{name.encode().hex()}{letter}" for letter in "abcd")

    @tool(name=name, description=description or f"{own}, when it is so.", **options)
    def run(key: Key) -> str:
        return key

    return run


def rules(*tools: Tool) -> list[str]:
    """What is found, by rule."""
    return [finding.rule for finding in lint(tools)]


def test_our_own_tools_have_nothing_to_mend(tmp_path: Path) -> None:
    """The built-in tools keep the rules that they are to be judged by."""
    assert lint([calculator, query_order, web_search, *files(tmp_path)]) == ()
    assert lint(demo_tools(tmp_path)) == ()
    assert [lint(one.tools(None)) for one in profiles()] == [()] * len(NAMES)


@pytest.mark.parametrize(
    "description",
    [
        GOOD,
        "Current weather in a city. Not for forecasts.",
        "Send a message to a person. Do not use it for drafts.",
        "Read one page of a site, instead of searching all of them.",
        "查询订单的状态和金额。需要订单信息时使用。",
        "把金额换算成另一种货币，不适用于历史汇率。",
        "仅在用户确认之后发送邮件。",
    ],
)
def test_a_description_that_says_when_is_left_alone(description: str) -> None:
    """When to use it or when not, in English or Chinese, is enough."""
    assert rules(named("order_customer", description)) == []


@pytest.mark.parametrize(
    "description",
    [
        "Current weather in a city.",
        "Send messages to several people.",
        "查询订单的状态和金额。",
        "发送一封邮件给联系人。",
    ],
)
def test_a_description_that_does_not_say_when_is_found(description: str) -> None:
    """The finding says what to add; `not_for` is enough to mend it."""
    (finding,) = lint([named("city_weather", description)])
    assert (finding.rule, finding.tool, finding.field) == (Lint.NO_WHEN, "city_weather", "")
    assert "not_for=" in finding.text
    assert rules(named("city_weather", description, not_for="forecasts")) == []


@pytest.mark.parametrize("description", ["Weather.", "Do it for you.", "天气"])
def test_a_description_that_says_nothing_is_found(description: str) -> None:
    """Fewer than three telling words, in any script, are no description."""
    assert rules(named("city_weather", description)) == [Lint.NO_DESCRIPTION]


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (GOOD, "Look up the customer of an order by its number. Use it when a number is known.", True),
        (GOOD, "Cancel an order. Use it only when a person has agreed.", False),
        ("查询订单的状态和金额，需要订单信息时使用。", "查询订单的状态和金额，需要订单信息时调用。", True),
        ("查询订单的状态和金额，需要订单信息时使用。", "把金额换算成另一种货币，仅用于当前汇率。", False),
    ],
)
def test_descriptions_that_say_the_same_are_found(one: str, other: str, found: bool) -> None:
    """Two tools that share most of their words are told together; what is about the same things but says more is not."""
    findings = lint([named("order_customer", one), named("parcel_tracker", other)])
    assert [finding.rule for finding in findings] == ([Lint.OVERLAP] if found else [])
    assert all((finding.tool, finding.other) == ("order_customer", "parcel_tracker") for finding in findings)


class Address(BaseModel):
    """Where somebody lives."""

    street: str
    town: Annotated[str, Field(description="The town.")]


def test_fields_without_a_description_are_found_at_every_depth() -> None:
    """A field inside an object, a list or a choice is named by its path."""

    @tool(not_for="invoices")
    def send_parcel(
        order: str,
        address: Address,
        more: Annotated[list[Address], Field(description="Others.")],
        note: Annotated[str | None, Field(description="For the sender.")] = None,
    ) -> str:
        """Send a parcel to an address."""
        return order

    found = lint([send_parcel])
    assert {finding.rule for finding in found} == {Lint.NO_FIELD_DESCRIPTION}
    assert [finding.field for finding in found] == ["order", "address.street", "more[].street"]


@pytest.mark.parametrize("name", ["run", "do", "get", "x", "get_data", "process2", "doTask", "RUN"])
def test_a_name_that_could_be_any_tools_is_found(name: str) -> None:
    """A name of words that say nothing is told, however it is written."""
    assert rules(named(name)) == [Lint.GENERIC_NAME]


@pytest.mark.parametrize("name", ["get_order", "run_tests", "web_search", "calculator", "processOrder"])
def test_a_name_with_one_telling_word_is_left_alone(name: str) -> None:
    """A generic verb with something that it acts on is a name."""
    assert rules(named(name)) == []


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("find_order", "findOrder", "in case or separators"),
        ("find_order", "Find_Order", "in case or separators"),
        ("find_order", "find_orders", "in singular and plural"),
        ("find_city", "find_cities", "in singular and plural"),
        ("find_box", "find_boxes", "in singular and plural"),
        ("find_order", "find_order_v2", "in a number"),
        ("find_order", "find_order2", "in a number"),
        ("find_order", "order_find", "in the order of its words"),
        ("find_colour", "find_color", "in 'colour' and 'color'"),
    ],
)
def test_names_that_a_model_takes_for_each_other_are_found(one: str, other: str, how: str) -> None:
    """Both names and what little tells them apart are in the finding."""
    (finding,) = lint([named(one), named(other)])
    assert (finding.rule, finding.tool, finding.other) == (Lint.SIMILAR_NAMES, one, other)
    assert f"differs from {other} only {how}" in finding.text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("read_file", "write_file"),
        ("get_order", "set_order"),
        ("encode_text", "decode_text"),
        ("find_order", "find_order_items"),
    ],
)
def test_names_that_differ_in_a_word_are_left_alone(one: str, other: str) -> None:
    """Opposites, and a name that goes on, are told apart by what they say."""
    assert rules(named(one), named(other)) == []


@given(st.lists(st.tuples(st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True), st.text(max_size=60)), max_size=5))
def test_any_names_and_descriptions_can_be_judged(given_tools: list[tuple[str, str]]) -> None:
    """Whatever a tool is called and says, the findings are about it, are data, and are the same each time."""
    tools = [named(name, text) for name, text in dict(given_tools).items()]
    found = lint(tools)
    names = {one.name for one in tools}
    assert lint(tools) == found
    for finding in found:
        assert finding.tool in names
        assert finding.other in {"", *names}
        assert finding.text
        data: Any = finding.to_data()
        assert Finding(**{**data, "rule": Lint(data["rule"])}) == finding


def test_the_threshold_is_a_share() -> None:
    """What is said about overlap in the docs is a number between none and all."""
    assert 0 < MOST_ALIKE < 1
