"""Every dialect against the real llama.cpp server with a real small model: whatever it replies, the run ends well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from fsm_agent import Agent, Limits, RunResult, Status, StopReason, tool
from fsm_agent.dialects import DIALECTS
from fsm_agent.local.server import stop_all
from fsm_agent.observe import silent_logger

pytestmark = [pytest.mark.slow, pytest.mark.network]
MODEL = "local:0.5b"
LIMITS = Limits(max_steps=4, model_timeout=600, tool_timeout=60)


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """One server for the module, stopped at its end."""
    pytest.importorskip("xllamacpp")
    yield
    stop_all()


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def solve(dialect: str, **options: Any) -> RunResult:
    """A small task that needs one call."""
    agent = Agent(MODEL, [add], dialect=dialect, limits=LIMITS, logger=silent_logger(), **options)
    return agent.invoke("What is 1234 plus 4321?")


def assert_well_ended(result: RunResult) -> None:
    """The ending is typed, no call was executed beyond its threshold, and every call in the history is answered."""
    assert result.status in (Status.COMPLETED, Status.PARTIAL, Status.FAILED)
    assert result.reason not in (None, StopReason.INTERNAL_ERROR, StopReason.MODEL_FAILED)
    executed = Counter(call.signature for call in result.calls)
    assert max(executed.values(), default=0) <= LIMITS.repeat_threshold
    asked = [call["id"] for one in result.messages if isinstance(one, AIMessage) for call in one.tool_calls]
    assert asked == [one.tool_call_id for one in result.messages if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_ends_well_in_every_dialect(dialect: str) -> None:
    """Native calls that the model writes as text, JSON within a schema, labelled lines: read, answered, ended."""
    result = solve(dialect)
    assert_well_ended(result)
    assert result.usage.total > 0
    assert result.usage.estimated == 0


@pytest.mark.parametrize("dialect", ["json_action", "guided_json"])
def test_a_reply_within_a_schema_calls_the_tool_and_answers(dialect: str) -> None:
    """Where the server constrains by a schema, even half a billion parameters add two numbers by the tool."""
    result = solve(dialect)
    assert [(call.tool, dict(call.arguments)) for call in result.calls][:1] == [("add", {"a": 1234, "b": 4321})]
    assert "5555" in (result.answer or "").replace(",", "")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_streaming_never_changes_the_outcome(dialect: str) -> None:
    """The same greedy model, streamed and not, leads to the same transitions and the same answer."""
    agent = Agent(MODEL, [add], dialect=dialect, limits=LIMITS, logger=silent_logger())
    *_, streamed = agent.stream("What is 20 plus 22?")
    whole = agent.invoke("What is 20 plus 22?")
    assert isinstance(streamed, RunResult)
    assert (streamed.answer, streamed.path()) == (whole.answer, whole.path())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_the_server_cuts_is_never_executed(dialect: str) -> None:
    """With room for a handful of tokens nothing is called, and the run ends with a reason, not an exception."""
    model = Agent(MODEL, []).model.model_copy(update={"max_tokens": 5})
    agent = Agent(model, [add], dialect=dialect, limits=LIMITS, logger=silent_logger())
    result = agent.invoke("What is 1234 plus 4321?")
    assert result.calls == ()
    assert_well_ended(result)
