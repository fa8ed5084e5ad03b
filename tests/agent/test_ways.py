"""Every way to call an agent gives the same run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from fsm_agent import RunError, RunResult, State, Status, StopReason, Token, Transitioned
from fsm_agent.testing import ScriptedModel, call, fault, reply, server
from tests.agent.kit import RUN, WAYS, add, items_of, make, run


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_result(way: str) -> None:
    """The four ways to run a task end in the same result."""
    with ScriptedModel([reply("Let me see.", call("add", a=1, b=2)), "It is 3."]) as model:
        result = run(make(model, [add]), "1+2?", way)
    assert (result.status, result.reason, result.answer) == (Status.COMPLETED, StopReason.ANSWERED, "It is 3.")
    assert result.ok
    assert (result.steps, result.model_calls, result.tool_calls, result.usage.total) == (2, 2, 1, 30)
    assert [message.type for message in result.messages] == ["human", "ai", "tool", "ai"]
    assert [one.text for one in result.results] == ["3"]
    assert result.path()[0] is State.PLAN
    assert result.path()[-1] is State.FINISH


def comparable(result: RunResult) -> list[Any]:
    """What must not depend on how a run was asked for."""
    rows = [(str(row), row.tokens, row.tools, row.signatures, row.reason, row.error) for row in result.transitions]
    return [result.status, result.reason, result.answer, result.detail, result.usage, *rows, *map(str, result.messages)]


SCRIPTS: dict[str, list[Any]] = {
    "plain": ["hello there, friend"],
    "tools": [reply("Let me see.", call("add", a=1, b=2), call("add", a=3, b=4)), call("add", a=5, b=6), "done"],
    "trouble": [RuntimeError("down"), "", call("nothing"), call("add", a="x"), call("add", a=1, b=2), "done"],
    "repeats": [*[call("add", a=1, b=2)] * 3, "enough"],
    "fails": [RuntimeError("down")] * 2,
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("way", ["stream", "astream", "ainvoke"])
def test_the_last_item_of_a_stream_is_what_invoke_gives(script: str, way: str) -> None:
    """Streaming, and the event loop, never change the outcome: same transitions, tokens, history and result."""
    results = []
    for one in ("invoke", way):
        with ScriptedModel(SCRIPTS[script]) as model:
            results.append(run(make(model, [add]), "go", one, RUN))
    assert comparable(results[0]) == comparable(results[1])


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_a_stream_gives_transitions_as_they_happen_and_tokens_of_the_answer(way: str) -> None:
    """Transitions and pieces of the reply in order, one result at the end; the pieces join to the answer."""
    with ScriptedModel([call("add", a=1, b=2), "one two three"]) as model:
        items = items_of(make(model, [add]), "go", way)
    *before, result = items
    assert isinstance(result, RunResult)
    assert [item for item in before if isinstance(item, Transitioned)] == list(result.transitions)
    tokens = [item for item in before if isinstance(item, Token)]
    assert "".join(token.text for token in tokens) == result.answer == "one two three"
    assert len(tokens) > 1
    assert {token.run_id for token in tokens} == {result.run_id}
    replied = before.index(result.transitions[-2])
    assert all(before.index(token) < replied for token in tokens)


def test_a_stream_is_live() -> None:
    """The first token comes while the model is still writing the rest."""
    hold = threading.Event()
    with server([fault.held("one two three four", hold, after_chars=5)]) as s:
        from langchain_openai import ChatOpenAI

        agent = make(ChatOpenAI(base_url=s.base_url, api_key="none", model="fake"))
        stream = agent.stream("count")
        first = next(item for item in stream if isinstance(item, Token))
        assert not hold.is_set()
        hold.set()
        rest = list(stream)
    assert rest[-1].answer == "one two three four"
    assert rest[-1].answer.startswith(first.text)


def test_batch_keeps_the_order_and_the_inputs_apart() -> None:
    """Fifty tasks in a batch: each answer at its own place."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    results = make(model).batch([f"t{n}" for n in range(50)], {"max_concurrency": 8})
    assert [result.answer for result in results] == [f"echo t{n}" for n in range(50)]
    assert len({result.run_id for result in results}) == 50


async def test_abatch_keeps_the_order_and_the_inputs_apart() -> None:
    """The same on the event loop, with a config for each."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    configs: list[RunnableConfig] = [{"configurable": {"thread_id": str(n)}} for n in range(20)]
    results = await make(model).abatch([f"t{n}" for n in range(20)], configs)
    assert [result.answer for result in results] == [f"echo t{n}" for n in range(20)]
    assert [result.thread_id for result in results] == [str(n) for n in range(20)]


def test_batch_can_return_what_a_wrong_input_raises() -> None:
    """One wrong input among good ones is an error at its own place; what a model does is a result as ever."""
    model = ScriptedModel(by_task={"good": ["fine"], "bad model": [ValueError("no")] * 2})
    results: list[Any] = make(model).batch(["good", "", "bad model"], return_exceptions=True)
    assert results[0].answer == "fine"
    assert isinstance(results[1], RunError)
    assert results[2].reason is StopReason.MODEL_FAILED


def test_batch_as_completed_gives_every_index_once() -> None:
    """The other form of a batch works too."""
    model = ScriptedModel(lambda request: f"echo {request.messages[-1].text}")
    pairs = dict(make(model).batch_as_completed(["a", "b", "c"]))
    assert {index: result.answer for index, result in pairs.items()} == {0: "echo a", 1: "echo b", 2: "echo c"}
