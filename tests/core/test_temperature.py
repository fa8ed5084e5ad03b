"""The temperature: which one each model call is made with, how a model gets it, and what happens when one refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from fsm_agent import Agent, Cooling, DefinitionError, Event, Limits, Status, StopReason, SummaryWindow, tool
from fsm_agent.alphabet import State
from fsm_agent.effects import CallModel
from fsm_agent.observe import silent_logger
from fsm_agent.states import BEHAVIOURS
from fsm_agent.temperature import check_temperature, temperature_after
from fsm_agent.testing import FakeClock, ScriptedModel, call, fault, server
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.replay import replay
from tests.core.builders import make_setup, start

RUN: Any = {"configurable": {"run_id": "r"}}


@tool(retry=0)
def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


def agent_of(model: Any, **options: Any) -> Agent:
    """An agent that logs nothing and waits for nothing."""
    return Agent(model, [divide], logger=silent_logger(), clock=FakeClock(), **options)


def temperatures(model: ScriptedModel) -> list[Any]:
    """What each request was made with."""
    return [request.kwargs.get("temperature") for request in model.requests]


def works(n: int) -> Any:
    """A call that succeeds with a result of its own."""
    return call("divide", a=n, b=1)


# ---------------------------------------------------------------- which one


@pytest.mark.parametrize(
    ("given", "successes", "expected"),
    [
        (None, 9, None),
        (0.3, 0, 0.3),
        (0.3, 9, 0.3),
        (Cooling(0.3), 2, 0.3),
        (Cooling(0.3), 3, 0.1),
        (Cooling(0.3), 9, 0.1),
        (Cooling(), 2, None),
        (Cooling(), 3, 0.1),
        (Cooling(1.0, after=1, temperature=0.0), 1, 0.0),
    ],
)
def test_the_temperature_follows_the_successes_in_a_row(given: Any, successes: int, expected: float | None) -> None:
    """A number holds always; a cooling falls with the success that completes the row, and not before."""
    assert temperature_after(given, successes) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Cooling(after=0),
        lambda: Cooling(after=True),
        lambda: Cooling(-0.1),
        lambda: Cooling(temperature=2.1),
        lambda: check_temperature("0.3"),
        lambda: check_temperature(float("nan")),
        lambda: agent_of(ScriptedModel([]), temperature=3),
        lambda: agent_of(ScriptedModel([]), temperature=True),
    ],
)
def test_a_temperature_that_is_none_is_refused_at_once(wrong: Callable[[], Any]) -> None:
    """A wrong number is found where it is written, before any run."""
    with pytest.raises(DefinitionError):
        wrong()


def test_plan_chooses_and_the_effect_carries_it() -> None:
    """The choice is PLAN's, from the context alone, also for an answer that is forced."""
    begun = start(make_setup(temperature=Cooling(0.3)))
    for ctx, expected in (
        (begun, 0.3),
        (begun.change(successes=3), 0.1),
        (begun.change(successes=3, forced=True), 0.1),
    ):
        effect = BEHAVIOURS[State.PLAN].enter(ctx)
        assert isinstance(effect, CallModel)
        assert effect.temperature == expected


# ---------------------------------------------------------------- in a run


def test_three_successes_cool_and_one_failure_restores() -> None:
    """The reference agent's rule: 0.3, after 3 successes 0.1, after a failure 0.3, and the row begins anew."""
    model = ScriptedModel([works(1), works(2), works(3), call("divide", a=1, b=0), works(4), works(5), works(6), "ok"])
    result = agent_of(model, temperature=Cooling(0.3)).invoke("divide")
    assert result.status is Status.COMPLETED
    assert temperatures(model) == [0.3, 0.3, 0.3, 0.1, 0.3, 0.3, 0.3, 0.1]


def test_without_one_nothing_is_sent() -> None:
    """A model goes on with its own temperature, and a cooling without a start leaves it alone until it is due."""
    model = ScriptedModel([works(1), "ok"])
    agent_of(model).invoke("divide")
    assert ["temperature" in request.kwargs for request in model.requests] == [False, False]
    model = ScriptedModel([works(1), works(2), "ok"])
    agent_of(model, temperature=Cooling(after=2)).invoke("divide")
    assert temperatures(model) == [None, None, 0.1]


async def test_every_way_of_running_sends_it() -> None:
    """Sync, async, streamed and traced calls, with text dialects too, and over what was bound before."""
    for dialect in ("native", "json_action", "react"):
        model = ScriptedModel(lambda request: "Final Answer: ok")
        agent = agent_of(model.bind(temperature=0.9), temperature=0.2, dialect=dialect, limits=Limits(max_steps=1))
        agent.invoke("say ok")
        await agent.ainvoke("say ok")
        list(agent.stream("say ok"))
        [item async for item in agent.astream("say ok")]
        agent.invoke("say ok", {"callbacks": [BaseCallbackHandler()]})
        assert set(temperatures(model)) == {0.2}, dialect
        assert model.count >= 5


def test_a_summary_is_asked_for_with_it_too() -> None:
    """Every model call of a run is made with the temperature of the run."""
    model = ScriptedModel([works(1), works(2), "summary", "ok"])
    agent_of(model, temperature=0.4, memory=SummaryWindow(rounds=1, every=1)).invoke("divide")
    assert temperatures(model) == [0.4] * 4


# ---------------------------------------------------------------- how a model gets it


class Fixed(BaseChatModel):
    """A model that knows its temperature as a field only, and refuses it as an argument."""

    temperature: float = 0.9
    asked: list[float] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "fixed"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        assert "temperature" not in kwargs
        self.asked.append(self.temperature)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bound to whichever copy is asked."""
        return self.bind(tools=tools)


def test_a_model_with_a_field_is_asked_as_a_copy() -> None:
    """A client that has no such argument is given its own field, on a copy; the caller's model is never changed."""
    model = Fixed()
    for temperature in (0.2, 0.5):
        assert agent_of(model, temperature=temperature).invoke("say ok").answer == "ok"
    assert agent_of(model).invoke("say ok").answer == "ok"
    assert (model.asked, model.temperature) == ([0.2, 0.5, 0.9], 0.9)


class Refusing(BaseChatModel):
    """A client without the argument, and without a field."""

    @property
    def _llm_type(self) -> str:
        return "refusing"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, *, tools: Any = None) -> ChatResult:  # type: ignore[override] # the point
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bound as usual."""
        return self.bind(tools=tools)


def test_a_client_that_refuses_the_argument_is_asked_without_it() -> None:
    """The trail shows the refusal, and that it was asked again at once without a temperature, which is remembered. It is no failure."""
    agent = agent_of(Refusing(), temperature=0.2)
    result = agent.invoke("say ok")
    events = [record.event for record in result.transitions]
    assert events == [Event.GAVE_WAY, Event.REPLIED, Event.ANSWERED]
    assert "temperature" in result.transitions[0].error
    assert (result.transitions[0].failures, result.transitions[1].step) == (0, 1)
    assert [one.event for one in agent.invoke("say ok").transitions] == [Event.REPLIED, Event.ANSWERED]


def test_a_refusal_costs_no_retry() -> None:
    """Where nothing may be retried, and one failure ends a run, it is asked without the temperature all the same."""
    limits = Limits(max_retries=0, degrade_after=1, abort_after=1)
    result = agent_of(Refusing(), temperature=0.2, limits=limits).invoke("say ok")
    assert (result.status, result.answer) == (Status.COMPLETED, "ok")


def test_what_is_refused_without_it_too_ends_the_run_and_says_so() -> None:
    """A server that goes on to refuse what it was not asked for any more is not asked again."""
    refusal = fault.bad_request("Unsupported value: 'temperature' does not support 0.2 with this model.")
    with server([refusal, refusal]) as served:
        agent = Agent("openai:m", [divide], base_url=served.base_url, logger=silent_logger(), temperature=0.2)
        result = agent.invoke("say ok")
    assert (result.reason, len(served.requests)) == (StopReason.MODEL_FAILED, 2)
    assert "temperature" in result.detail


def test_a_server_that_refuses_it_is_asked_without_it() -> None:
    """Servers of models that reason refuse a temperature with 400: the run goes on without, visibly."""
    refusal = fault.bad_request("Unsupported value: 'temperature' does not support 0.2 with this model.")
    with server([refusal, "ok", "ok"]) as served:
        agent = Agent(
            "openai:m", [divide], base_url=served.base_url, logger=silent_logger(), clock=FakeClock(), temperature=0.2
        )
        result = agent.invoke("say ok")
        assert (result.status, result.answer) == (Status.COMPLETED, "ok")
        assert result.transitions[0].event is Event.GAVE_WAY
        agent.invoke("say ok")
        sent = [request.body.get("temperature") for request in served.requests]
    assert sent == [0.2, None, None]


def test_an_openai_server_gets_it_in_the_body() -> None:
    """With a response format and with tools, whatever the temperature of the client is."""
    with server(["ok", '{"action": "FINISH", "action_input": {"answer": "ok"}}']) as served:
        for dialect in ("native", "json_action"):
            agent_of_server = Agent(
                "openai:m", [divide], base_url=served.base_url, logger=silent_logger(), dialect=dialect, temperature=0.0
            )
            assert agent_of_server.invoke("say ok").answer == "ok"
        assert [request.body["temperature"] for request in served.requests] == [0.0, 0.0]


# ---------------------------------------------------------------- in the trail


def test_a_resumed_run_goes_on_with_the_temperature_it_began_with() -> None:
    """The header keeps the rule, the entries what each call was made with; another agent on the store follows them."""
    store = MemoryTrail()
    first = agent_of(ScriptedModel([works(1), works(2)]), temperature=Cooling(0.3, after=2), store=store)
    first.pause_at(after_step=2).invoke("divide", RUN)
    model = ScriptedModel(["ok"])
    second = agent_of(model, temperature=0.9, store=store)
    assert second.resume("r").answer == "ok"
    assert temperatures(model) == [0.1]
    started = [one.body for one in second.journal.entries("r") if one.kind == "started"]
    asked = [one["temperature"] for one in started if one["effect"] == "call_model"]
    assert asked == [0.3, 0.3, 0.1]
    assert audit(second.journal, "r").findings == ()
    assert replay(list(second.journal.entries("r"))).turns[-1].fired.ctx.temperature == 0.1
