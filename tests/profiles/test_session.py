"""`session`: each sentence of what it promises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field

from fsm_agent import Registry, Status, StopReason
from fsm_agent.errors import ConversationError, DefinitionError
from fsm_agent.memory import SQLiteConversations
from fsm_agent.testing import ScriptedModel
from tests.memory.redis_server import RedisServer
from tests.profiles.kit import act, by_name, finish

LOOK = act("query_order", order_id="SO-2024-001")
THINK = act("THINK", thought="I need the order.")


class _Args(BaseModel):
    city: str = Field(min_length=2)
    days: int = Field(1, ge=1, le=7)


class Weather(BaseTool):
    """A tool as LangChain has them."""

    name: str = "weather"
    description: str = "The weather of a city."
    args_schema: type[BaseModel] = _Args
    asked: list[dict[str, Any]] = Field(default_factory=list)

    def _run(self, city: str, days: int = 1) -> str:
        self.asked.append({"city": city, "days": days})
        if city == "Atlantis":
            raise RuntimeError("no such city")
        return f"{city}: 21 °C"


def thread(name: str) -> Any:
    """The config of a conversation."""
    return {"configurable": {"thread_id": name}}


def messages_in(server: RedisServer, name: str) -> list[str]:
    """The texts of the messages that Redis holds for a session, in order."""
    found = []
    for element in server.client.lrange(f"agent:memory:{name}", 0, -1):
        found += [message["data"]["content"] for message in json.loads(element)["messages"]]
    return found


# ---------------------------------------------------------------- tools


def test_tools_are_langchain_tools_in_a_registry() -> None:
    """A `BaseTool` with a pydantic `args_schema` is offered by its schema, and held in a registry."""
    weather = Weather(asked=[])
    agent, model = by_name("session", [act("weather", city="Oslo", days=2), finish("21 °C")], [weather])
    assert isinstance(agent.tools, Registry)
    assert agent.tools.names() == ("weather",)
    assert agent.invoke("How warm is Oslo?").answer == "21 °C"
    assert weather.asked == [{"city": "Oslo", "days": 2}]
    assert "weather" in model.requests[0].text


def test_arguments_are_checked_before_the_call() -> None:
    """What does not fit the schema never reaches the tool."""
    weather = Weather(asked=[])
    agent, _ = by_name("session", [act("weather", city="Oslo", days=9), finish("-")], [weather])
    assert agent.invoke("How warm is Oslo?").tool_calls == 0
    assert weather.asked == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (act("weather", city="Oslo", days=9), "days"),
        (act("wether_report", city="Oslo"), "weather"),
        (act("weather", city="Atlantis"), "no such city"),
    ],
    ids=["argument", "tool", "raises"],
)
def test_a_wrong_call_is_an_observation_to_correct(wrong: str, told: str) -> None:
    """A bad argument is named, an unknown tool gets the list of those that exist, an exception its words; then the model goes on."""
    agent, model = by_name(
        "session", [wrong, act("weather", city="Oslo"), finish("21 °C")], [Weather(asked=[])], limits={"max_retries": 0}
    )
    result = agent.invoke("How warm is it?")
    assert (result.status, result.answer) == (Status.COMPLETED, "21 °C")
    assert told in model.requests[1].messages[-1].text


# ---------------------------------------------------------------- memory in Redis


def at(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the server as a user of the profile does."""
    monkeypatch.setenv("FSM_AGENT_REDIS_URL", server.url)


def test_a_session_is_a_key_of_redis(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of session s1 stand under `agent:memory:s1`, and another agent goes on with them."""
    at(redis_server, monkeypatch)
    first, _ = by_name("session", [finish("Hello Ada.")])
    first.invoke("I am Ada.", thread("s1"))
    assert redis_server.client.keys("agent:memory:*") == [b"agent:memory:s1"]
    second, model = by_name("session", [finish("Ada.")])
    assert second.invoke("Who am I?", thread("s1")).answer == "Ada."
    assert "I am Ada." in model.requests[0].text
    other, model = by_name("session", [finish("No idea.")])
    other.invoke("Who am I?", thread("s2"))
    assert "I am Ada." not in model.requests[0].text


def test_the_newest_12_messages_are_kept_in_order(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine turns of two messages the last six are left, oldest first."""
    at(redis_server, monkeypatch)
    agent, _ = by_name("session", [finish(f"answer {n}") for n in range(9)])
    for n in range(9):
        agent.invoke(f"question {n}", thread("long"))
    kept = messages_in(redis_server, "long")
    assert len(kept) == 12
    assert [text for text in kept if text.startswith("question")] == [f"question {n}" for n in range(3, 9)]
    assert [f"answer {n}" in text for n, text in zip(range(3, 9), kept[1::2], strict=True)] == [True] * 6


def test_two_equal_messages_of_one_instant_are_both_kept(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still and the texts are the same; none takes the place of the other."""
    at(redis_server, monkeypatch)
    agent, _ = by_name("session", [finish("yes"), finish("yes")])
    for _ in range(2):
        agent.invoke("Again?", thread("same"))
    assert messages_in(redis_server, "same").count("Again?") == 2
    assert len(messages_in(redis_server, "same")) == 4


def test_without_a_server_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that cannot be kept is refused by name before the model is asked; a run without one needs no server."""
    monkeypatch.setenv("FSM_AGENT_REDIS_URL", "redis://127.0.0.1:1/0")
    agent, model = by_name("session", [finish("Hello.")])
    with pytest.raises(ConversationError, match="see that the server runs"):
        agent.invoke("Hello?", thread("s1"))
    assert model.count == 0
    assert agent.invoke("Hello?").answer == "Hello."


def test_a_wrong_address_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no URL is refused when the agent is made, with the variable and what can be given instead."""
    monkeypatch.setenv("FSM_AGENT_REDIS_URL", "no address")
    with pytest.raises(DefinitionError, match=r"FSM_AGENT_REDIS_URL.*SQLiteConversations"):
        by_name("session", [])


def test_sqlite_can_take_the_place_of_redis(tmp_path: Any) -> None:
    """`conversations=` is another store, and Redis is not asked."""
    with SQLiteConversations(tmp_path / "threads.db") as store:
        agent, model = by_name("session", [finish("Hello Ada."), finish("Ada.")], conversations=store)
        agent.invoke("I am Ada.", thread("s1"))
        agent.invoke("Who am I?", thread("s1"))
        assert "I am Ada." in model.requests[1].text


# ---------------------------------------------------------------- the protocol


def test_the_model_answers_in_json_and_finish_carries_the_answer() -> None:
    """`{"action": ..., "action_input": {...}}` calls a tool, FINISH answers."""
    agent, _ = by_name("session", [LOOK, finish("It was shipped.")])
    result = agent.invoke("Where is order SO-2024-001?")
    assert (result.status, result.answer, result.tool_calls) == (Status.COMPLETED, "It was shipped.", 1)
    assert result.results[0].tool == "query_order"


def test_thinking_costs_a_step_and_calls_nothing() -> None:
    """THINK is offered, counts as a step, runs no tool."""
    agent, model = by_name("session", [THINK, LOOK, finish("Shipped.")])
    result = agent.invoke("Where is order SO-2024-001?")
    assert "THINK" in model.requests[0].text
    assert (result.steps, result.tool_calls) == (3, 1)


def test_a_thought_is_never_the_answer() -> None:
    """A model that only thinks gets no answer out of it, whatever it writes there."""
    agent, _ = by_name(
        "session", ScriptedModel(lambda request: act("THINK", thought=f"the answer is {request.number}"))
    )
    result = agent.invoke("Where is order SO-2024-001?")
    assert (result.status, result.answer, result.tool_calls) == (Status.FAILED, None, 0)


# ---------------------------------------------------------------- bounds


def test_at_most_six_steps() -> None:
    """A model that always finds something new to ask is stopped after six steps."""
    agent, model = by_name(
        "session", ScriptedModel(lambda request: act("query_order", order_id=f"SO-2024-{request.number:03}"))
    )
    result = agent.invoke("Which orders are there?")
    assert (result.steps, model.count, result.reason) == (6, 6, StopReason.MAX_STEPS)


def test_the_same_action_twice_in_a_row_stops_with_an_explanation() -> None:
    """The second call is not made, and the end says which guard, which call, and what was known."""
    agent, model = by_name("session", [LOOK, LOOK])
    result = agent.invoke("Where is order SO-2024-001?")
    assert (result.status, result.reason, result.tool_calls) == (Status.FAILED, StopReason.REPEATED_ACTION, 1)
    assert model.count == 2
    assert "repeated_action" in result.detail
    assert "last useful result, from query_order" in result.detail


def test_the_same_action_after_another_goes_on() -> None:
    """Twice in a row is twice in a row: an order may be looked at again once another one was."""
    other = act("query_order", order_id="SO-2024-002")
    agent, _ = by_name("session", [LOOK, other, LOOK, finish("both are there")])
    result = agent.invoke("Compare the orders.")
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 3)


# ---------------------------------------------------------------- the demo tool


def test_query_order_knows_orders_and_refuses_other_ids() -> None:
    """`SO-2024-001` is an order, with its items on request; what does not look like one is refused by name of the field."""
    agent, model = by_name(
        "session",
        [
            act("query_order", order_id="2024/1"),
            act("query_order", order_id="SO-2024-001", include_items=True),
            finish("-"),
        ],
    )
    result = agent.invoke("What is in order SO-2024-001?")
    assert agent.tools.names() == ("query_order",)
    assert "order_id" in model.requests[1].messages[-1].text
    (found,) = result.results
    assert "keyboard" in found.text
    agent, _ = by_name("session", [LOOK, finish("-")])
    assert "keyboard" not in agent.invoke("Order SO-2024-001?").results[0].text
