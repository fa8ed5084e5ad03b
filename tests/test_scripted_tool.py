"""`ScriptedTool`: a tool that gives what its script says, tells how it was called, and fails a test that does not use it up."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, tool
from fsm_agent.errors import ScriptError
from fsm_agent.observe import silent_logger
from fsm_agent.records import RunResult
from fsm_agent.testing import Delay, FakeClock, ScriptedModel, ScriptedTool, assert_called, call, forever
from fsm_agent.tools.registry import Registry


@tool(repeatable=True, retry=2)
def weather(city: str, days: int = 1) -> str:
    """Current weather in a city."""
    raise AssertionError("the real tool is never called")


def run(scripted: ScriptedTool, *calls: object, clock: FakeClock | None = None, answer: str = "done") -> RunResult:
    """A run in which the model makes these calls one after the other, and answers."""
    model = ScriptedModel([*calls, answer])
    return Agent(model, tools=[scripted], logger=silent_logger(), clock=clock).invoke("Go.")


def test_each_call_gives_the_next_result() -> None:
    """Entry n answers call n; the arguments of each call are kept in order, with defaults filled in."""
    with ScriptedTool(weather, ["21 °C", "9 °C"]) as scripted:
        result = run(scripted, call("weather", city="Oslo"), call("weather", city="Bern", days=2))
    assert [one.text for one in result.results] == ["21 °C", "9 °C"]
    assert scripted.calls == [{"city": "Oslo", "days": 1}, {"city": "Bern", "days": 2}]
    assert scripted.count == 2


def test_a_tool_is_stood_in_for_with_everything_that_it_says() -> None:
    """Name, description, schema and options are those of the real tool, so that the run goes as it would with it."""
    scripted = ScriptedTool(weather, ["x"])
    assert (scripted.name, scripted.description) == ("weather", "Current weather in a city.")
    assert scripted.parameters() == weather.parameters()
    assert (scripted.repeatable, scripted.retry) == (True, 2)
    assert ScriptedTool(weather, ["x"], retry=0, name="rain").retry == 0
    assert ScriptedTool(weather, ["x"], retry=0, name="rain").name == "rain"


def test_a_typed_function_is_stood_in_for_too() -> None:
    """What is no tool yet is described as a tool is."""

    def look(q: str) -> str:
        """Look something up."""
        return q

    assert ScriptedTool(look, []).parameters() == tool(look).parameters()


def test_exceptions_are_raised_and_tried_again() -> None:
    """An instance or a class is raised, and becomes what the model reads; the retry gets the next entry."""
    clock = FakeClock()
    with ScriptedTool(weather, [ConnectionError("down"), OSError, "21 °C"]) as scripted:
        result = run(scripted, call("weather", city="Oslo"), clock=clock)
    assert [one.text for one in result.results] == ["21 °C"]
    assert scripted.count == 3
    assert len(clock.slept) == 2


def test_a_delay_passes_on_the_clock_of_the_test() -> None:
    """A slow tool takes no time: with a fake clock, a time-out is had in a moment."""
    clock = FakeClock()
    slow = ScriptedTool("slow", [Delay(90.0, "late")], clock=clock, timeout=5.0)
    result = run(slow, call("slow"), clock=clock)
    assert not result.results
    assert "5" in result.messages[2].text


def test_an_entry_may_be_a_function_of_the_arguments() -> None:
    """As one entry, as all of them, and for ever."""
    once = ScriptedTool("double", [lambda n: n * 2, forever(lambda n: n * 3)], args={"n": int})
    assert [one.text for one in run(once, *(call("double", n=n) for n in (1, 2, 3))).results] == ["2", "6", "9"]
    always = ScriptedTool("double", lambda n: n * 2, args={"n": int})
    assert [one.text for one in run(always, call("double", n=4)).results] == ["8"]
    always.assert_used_up()


def test_a_script_that_is_not_used_up_fails_the_test() -> None:
    """What was never asked for is named, with the tool; so is a call beyond the end."""
    with (
        pytest.raises(ScriptError, match=r"tool 'weather': .*1 of 2 entries were never asked for.*9"),
        ScriptedTool(weather, ["21", "9"]) as scripted,
    ):
        run(scripted, call("weather", city="Oslo"))
    over = ScriptedTool(weather, [])
    run(over, call("weather", city="Oslo"))
    with pytest.raises(ScriptError, match=r"tool 'weather': .*call 1 has no result: the script has 0"):
        over.assert_used_up()


def test_an_error_in_the_block_is_not_hidden() -> None:
    """The failure of a test is told, not what follows from it."""
    with pytest.raises(KeyError), ScriptedTool(weather, ["never"]):
        raise KeyError("x")


def test_what_it_takes_is_said_in_any_of_four_ways() -> None:
    """Annotations, a JSON schema, a model, or nothing at all, which takes anything."""

    class Point(BaseModel):
        x: int

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    for args in ({"x": int}, schema, Point):
        scripted = ScriptedTool("move", ["ok"], args=args)
        refused = run(scripted, call("move", x="far"), call("move", x=1))
        assert scripted.calls == [{"x": 1}]
        assert len(refused.results) == 1
    anything = ScriptedTool("move", ["ok"])
    run(anything, call("move", x="far", y={"z": [1]}))
    assert anything.calls == [{"x": "far", "y": {"z": [1]}}]


def test_a_copy_goes_on_in_the_same_script() -> None:
    """What a registry, a policy or a test makes of it with other options is still the same scripted tool."""
    scripted = ScriptedTool(weather, ["21", "9"])
    copy = dataclasses.replace(scripted, requires_approval=True)
    assert isinstance(copy, ScriptedTool)
    assert copy.requires_approval is True
    assert Registry([copy]).get("weather") is copy
    assert copy.func is not None
    assert copy.func(city="Oslo") == "21"
    assert scripted.func is not None
    assert scripted.func(city="Bern") == "9"
    assert scripted.calls == copy.calls == [{"city": "Oslo"}, {"city": "Bern"}]
    copy.assert_used_up()


async def test_it_works_on_the_event_loop() -> None:
    """The async methods of an agent call it like any other tool."""
    scripted = ScriptedTool(weather, ["21 °C"])
    agent = Agent(ScriptedModel([call("weather", city="Oslo"), "ok"]), tools=[scripted], logger=silent_logger())
    assert (await agent.ainvoke("Go.")).answer == "ok"
    assert_called(scripted, times=1, city="Oslo")


def test_calls_are_asserted_by_what_matters() -> None:
    """Arguments that are not named are left open; the message lists the calls that there were."""
    scripted = ScriptedTool("pay", forever("ok"), args={"to": str, "amount": int})
    with pytest.raises(
        AssertionError, match=r"pay\(\) was called 0 times, not at least once\nit was not called at all"
    ):
        assert_called(scripted)
    run(scripted, call("pay", to="Ada", amount=5), call("pay", to="Bob", amount=5))
    assert_called(scripted)
    assert_called(scripted, times=2, amount=5)
    assert_called(scripted, times=1, to="Bob")
    assert_called(scripted, times=0, to="Eve")
    with pytest.raises(AssertionError) as failed:
        assert_called(scripted, to="Eve", times=1)
    assert str(failed.value) == (
        "pay(to='Eve') was called 0 times, not 1 times\ncalls:\n  1. pay(to='Ada', amount=5)\n  2. pay(to='Bob', amount=5)"
    )
