"""`breaker`: each sentence of what it promises."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from fsm_agent import Agent, DualBuffer, Event, Registry, Status, StopReason, tool
from fsm_agent.context import Context
from fsm_agent.history import Block, block, task_block
from fsm_agent.observe import silent_logger
from fsm_agent.table import extend, guard
from fsm_agent.testing import FakeClock, ModelRequest, ScriptedModel, forever, reply, server
from fsm_agent.tools import ToolResult
from tests.faults.kit import client
from tests.profiles.kit import by_name, done, react


@tool
def numbered(n: int) -> str:
    """Give a number."""
    return f"number {n}"


@tool(retry=0)
def shaky(n: int) -> str:
    """Fail."""
    raise RuntimeError(f"no luck with {n}")


def ask(n: int, name: str = "numbered") -> str:
    """A call with a number."""
    return react(name, f'{{"n": {n}}}')


# ---------------------------------------------------------------- the server


def test_it_runs_on_any_server_of_the_protocol() -> None:
    """By `base_url` and the name of a model, with temperature 0.3 and replies of at most 512 tokens."""
    with server([react("calculator", '{"expression": "1 + 2"}'), done("3")]) as s:
        agent = Agent.from_profile(
            "breaker", "openai:Qwen2.5-7B", base_url=s.base_url, clock=FakeClock(), logger=silent_logger()
        )
        assert agent.invoke("What is 1 + 2?").answer == "3"
        sent = [request.body for request in s.requests]
    assert [one["model"] for one in sent] == ["Qwen2.5-7B"] * 2
    assert [one["temperature"] for one in sent] == [0.3] * 2
    assert [one.get("max_tokens", one.get("max_completion_tokens")) for one in sent] == [512] * 2
    assert not any("tools" in one for one in sent)


# ---------------------------------------------------------------- the registry


def test_tools_come_and_go_while_it_runs() -> None:
    """What is registered in a round is offered in the next, and what is taken away is not any more."""
    registry = Registry([numbered])

    def script(request: ModelRequest) -> Any:
        system = request.messages[0].text
        if request.number == 1:
            registry.register(shaky)
            return ask(1)
        if request.number == 2:
            assert "shaky" in system
            registry.unregister("shaky")
            return ask(2)
        assert "shaky" not in system
        return done("ok")

    agent, model = by_name("breaker", ScriptedModel(script), registry)
    assert agent.invoke("go").ok
    assert model.count == 3


def test_the_registry_shows_use_and_the_last_error_of_each_tool() -> None:
    """`usage_count` counts executions, `last_error` says what went wrong last."""
    agent, _ = by_name("breaker", [ask(1), ask(2), ask(7, "shaky"), done("ok")], [numbered, shaky])
    agent.invoke("go")
    assert (agent.tools.stats("numbered").usage_count, agent.tools.stats("numbered").last_error) == (2, "")
    stats = agent.tools.stats("shaky")
    assert (stats.usage_count, stats.last_error) == (1, "RuntimeError: no luck with 7")


# ---------------------------------------------------------------- memory


def rounds(count: int, size: int = 4) -> tuple[Block, ...]:
    """A task, and so many rounds with a thought and a result, each of about `size` tokens."""
    made = [task_block("The task.")]
    for n in range(count):
        said = AIMessage(f"Thought: {n} {'t ' * size}\nAction: numbered\nAction Input: {{}}")
        made.append(block("round", said, HumanMessage(f"Result of numbered: value {n} {'r ' * size}"), turn=0))
    return tuple(made)


def test_reasoning_is_remembered_for_six_rounds_and_results_for_three() -> None:
    """Of ten rounds the model sees the thoughts of the last six, and what the tools gave in the last three."""
    agent, model = by_name(
        "breaker", [*(react("numbered", f'{{"n": {n}}}', f"think {n}") for n in range(9)), done("ok")], [numbered]
    )
    assert agent.invoke("go").ok
    history = "\n".join(message.text for message in model.requests[-1].messages[1:])
    assert [n for n in range(9) if f"think {n}\n" in history] == [3, 4, 5, 6, 7, 8]
    given = "\n".join(line for line in history.splitlines() if line.startswith("Result of numbered"))
    assert [n for n in range(9) if f"number {n}" in given] == [6, 7, 8]


def test_above_the_ceiling_reasoning_goes_first_and_results_stay() -> None:
    """22,000 tokens: the oldest reasoning is dropped until it fits; no result of the last three is."""
    agent, _ = by_name("breaker", [])
    memory = agent.setup.memory
    assert memory == DualBuffer(reasoning=6, results=3, max_tokens=22_000)
    history = rounds(8, size=6_000)
    shown = memory.view(history)
    text = "\n".join(message.text for one in shown for message in one.messages)
    kept = [n for n in range(8) if f"Thought: {n} " in text]
    assert kept == list(range(kept[0], 8))
    assert len(kept) < 6
    assert [n for n in range(8) if f"value {n} " in text] == [5, 6, 7]
    assert sum(one.tokens for one in shown) <= 22_000


def test_the_ceiling_may_be_a_share_of_the_models_context() -> None:
    """Without a number it is 70 % of the context that the model says that it has."""
    assert DualBuffer(reasoning=6, results=3).for_context(32_000).ceiling == 22_400


# ---------------------------------------------------------------- counters


def test_three_successes_in_a_row_lower_the_temperature() -> None:
    """Asked with 0.3 until three calls in a row succeeded, then with 0.1, and with 0.3 again after a failure."""
    script = [ask(1), ask(2), ask(3), ask(4, "shaky"), done("ok")]
    agent, model = by_name("breaker", script, [numbered, shaky])
    assert agent.invoke("go").ok
    assert [request.kwargs["temperature"] for request in model.requests] == [0.3, 0.3, 0.3, 0.1, 0.3]


def test_after_two_failures_the_model_is_told_to_choose_another_tool() -> None:
    """It reads what failed, and which tools there are."""
    agent, model = by_name("breaker", [ask(1, "shaky"), ask(2, "shaky"), ask(3), done("ok")], [shaky, numbered])
    result = agent.invoke("go")
    told = model.requests[2].messages[-1].text
    assert "shaky" in told
    assert "Choose a different way" in told
    assert "numbered" in told
    assert Event.STRATEGY_CHANGED in [one.event for one in result.transitions]
    assert result.ok


def test_after_three_failures_the_circuit_opens_and_the_run_fails() -> None:
    """No fourth call is made, and no answer is asked for."""
    agent, model = by_name("breaker", [ask(n, "shaky") for n in range(3)], [shaky])
    result = agent.invoke("go")
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES, 3)
    assert "circuit_open: failures=3, abort_after=3" in result.detail


def test_the_counters_are_independent() -> None:
    """A success ends a row of failures and begins one of successes; two failures before it do not count again."""
    script = [ask(1, "shaky"), ask(2, "shaky"), ask(3), ask(4, "shaky"), ask(5, "shaky"), ask(6), done("ok")]
    agent, _ = by_name("breaker", script, [shaky, numbered], limits={"no_progress_steps": 9})
    assert agent.invoke("go").ok


def test_the_budget_of_18000_tokens_stops_with_status_partial() -> None:
    """What all calls took together is counted, and never passes the budget."""
    agent, model = by_name(
        "breaker",
        ScriptedModel(
            lambda request: reply(
                ask(request.number) if "Action Input" in request.messages[0].text else done("so far"),
                usage=(3_000, 100),
            )
        ),
        [numbered],
    )
    result = agent.invoke("go")
    assert (result.status, result.answer) == (Status.PARTIAL, "so far")
    assert "token_budget=18000" in result.detail
    assert model.count <= 6
    assert result.usage.total <= 18_000 + 3_100


def test_at_most_ten_iterations() -> None:
    """The eleventh is not begun."""
    agent, model = by_name(
        "breaker", ScriptedModel(lambda request: ask(request.number)), [numbered], limits={"on_limit": "stop"}
    )
    result = agent.invoke("go")
    assert (result.steps, model.count, result.reason) == (10, 10, StopReason.MAX_STEPS)


def test_it_stops_when_recent_results_are_errors_and_nothing_is_learned() -> None:
    """Two errors and a thought: three rounds without anything new, before the circuit would open."""
    agent, model = by_name(
        "breaker", [ask(1, "shaky"), ask(2, "shaky"), "Thought: hm.", done("I could not.")], [shaky, numbered]
    )
    result = agent.invoke("go")
    assert (result.status, result.answer, model.count) == (Status.PARTIAL, "I could not.", 4)
    assert "no_progress: idle_steps=3, no_progress_steps=3" in result.detail


# ---------------------------------------------------------------- metadata


def test_tools_may_return_metadata() -> None:
    """`retry_count`, `memory_usage`, `confidence_score` stand in the result, and the text without them before the model."""

    @tool
    def measured() -> ToolResult:
        """Measure."""
        return ToolResult(content="42", metadata={"retry_count": 1, "memory_usage": 2.5, "confidence_score": 0.9})

    agent, _ = by_name("breaker", [react("measured"), done("42")], [measured])
    (one,) = agent.invoke("go").results
    assert one.metadata == {"retry_count": 1, "memory_usage": 2.5, "confidence_score": 0.9}
    assert one.text == "42"


def test_a_decision_can_read_metadata() -> None:
    """A guard of one's own compares the confidence of the newest result, and its row asks for an answer before another search."""

    @guard("the newest result is less sure than 0.5")
    def unsure(ctx: Context) -> tuple[bool, dict[str, Any]]:
        newest = ctx.done[-1].result.metadata if ctx.done else {}
        score = newest.get("confidence_score", 1.0)
        return score < 0.5, {"confidence_score": score}

    careful = extend(
        before={"DECIDE --decided--> PLAN": "DECIDE --decided [unsure, can_answer_now]--> DEGRADE (unsure)"},
        guards=[unsure],
    )

    @tool
    def measured(n: int) -> ToolResult:
        """Measure."""
        return ToolResult(content=str(n), metadata={"confidence_score": 1 / n, "retry_count": 0, "memory_usage": 0.5})

    agent, model = by_name(
        "breaker", [ask(1, "measured"), ask(4, "measured"), done("about 4")], [measured], table=careful
    )
    result = agent.invoke("go")
    assert (result.status, result.answer, model.count) == (Status.PARTIAL, "about 4", 3)
    assert "unsure: confidence_score=0.25" in result.detail


def test_the_search_of_its_own_says_how_well_it_fits() -> None:
    """The share of the words asked for that the best passage holds, as `confidence_score`."""
    agent, _ = by_name("breaker", [react("search_documents", '{"query": "max_retries elephants"}'), done("1")])
    (one,) = agent.invoke("go").results
    assert 0 < one.metadata["confidence_score"] < 1
    assert "max_retries" in one.text


# ---------------------------------------------------------------- the protocol


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"text": "plain", "more": {}}', {"text": "plain", "more": {}}),
        ("{\u201ctext\u201d: \u201ccurly\u201d, \u201cmore\u201d: {}}", {"text": "curly", "more": {}}),
        (
            '{"text": "a } in it", "more": {"a": {"b": {"c": [1, {"d": 2}]}}}}',
            {"text": "a } in it", "more": {"a": {"b": {"c": [1, {"d": 2}]}}}},
        ),
    ],
    ids=["plain", "curly quotes", "nested braces"],
)
def test_the_action_input_is_read_whole(arguments: str, read: dict[str, Any]) -> None:
    """`Thought: / Action: / Action Input: {json}`, with curly quotes repaired, and braces at any depth and in texts."""
    got: list[dict[str, Any]] = []

    @tool
    def take(text: str, more: dict[str, Any]) -> str:
        """Take what is given."""
        got.append({"text": text, "more": more})
        return "taken"

    agent, _ = by_name("breaker", [react("take", arguments), done("ok")], [take])
    assert agent.invoke("go").ok
    assert got == [read]


def test_a_stream_without_usage_still_counts() -> None:
    """A streaming server that says nothing of tokens: they are estimated, and the budget stops the run all the same."""
    big = "x " * 3_000
    with server([forever(reply(react("numbered", '{"n": 1}', big), usage=None))]) as s:
        agent = Agent.from_profile(
            "breaker",
            client(s),
            [numbered],
            clock=FakeClock(),
            logger=silent_logger(),
            limits={"on_limit": "stop", "repeat_threshold": 50, "no_progress_steps": 50},
        )
        *_, result = agent.stream("go")
    assert (result.status, result.reason) == (Status.FAILED, StopReason.TOKEN_BUDGET)
    assert result.usage.estimated == result.usage.total > 10_000
    assert result.usage.total <= 18_000
