"""What a provider wants back with the calls of its model goes back as it came: thinking with its signature, items of reasoning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage

from fsm_agent import Agent, Edit, Status, tool
from fsm_agent.history import estimate_tokens
from fsm_agent.opaque import merged, opaque_of, restored
from fsm_agent.replies import ChunkReader
from fsm_agent.testing import ScriptedModel, ServerRequest, call, fault, server
from fsm_agent.testing.wire import Sending, as_sending
from tests.agent.kit import RUN, THREAD, WAYS, add, make, run
from tests.faults.kit import client

THINKING: dict[str, Any] = {"type": "thinking", "thinking": "I should add.", "signature": "c2ln"}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def asked(*before: Any, block: dict[str, Any] | None = None, **more: Any) -> AIMessage:
    """A reply that asks for a sum, with `before` and the call among its blocks."""
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call_1", "type": "tool_call"}
    return AIMessage([*before, *([block] if block else [])], tool_calls=[call], **more)


def sent_back(agent: Agent, model: ScriptedModel, way: str) -> AIMessage:
    """What the second request of a run in this `way` holds for the reply of the first."""
    run(agent, "1 + 2?", way)
    (message,) = [one for one in model.requests[1].messages if isinstance(one, AIMessage)]
    return message


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "more",
    [
        {"content": [THINKING, {"type": "text", "text": "Let me see."}]},
        {"content": [REASONING], "response_metadata": {"model_provider": "openai", "output_version": "v1"}},
        {"content": "", "additional_kwargs": {"signatures": {"call_1": "c2ln"}}},
        {"content": [{"type": "text", "text": "Let me see.", "extras": {"signature": "c2ln"}}]},
    ],
    ids=["thinking", "reasoning", "kwargs", "signed text"],
)
def test_what_came_with_a_call_goes_back(way: str, more: dict[str, Any]) -> None:
    """Blocks and keys that are neither text nor calls are in the next request, whichever way the run goes."""
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call_1", "type": "tool_call"}
    model = ScriptedModel([AIMessage(**{"tool_calls": [call], "id": "one", **more}), "3"])
    back = sent_back(make(model, [add]), model, way)
    assert (back.id, back.content) == ("one", more["content"])
    assert back.additional_kwargs == more.get("additional_kwargs", {})
    assert back.response_metadata == more.get("response_metadata", {})
    assert [(one["id"], one["args"]) for one in back.tool_calls] == [("call_1", {"a": 1, "b": 2})]


def test_a_plain_reply_keeps_nothing_more() -> None:
    """A reply of text blocks and calls is kept as text and calls."""
    call = {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1, "b": 2}}
    assert opaque_of(asked({"type": "text", "text": "Let me see."}, block=call)) is None
    assert opaque_of(AIMessage("3", additional_kwargs={"refusal": None})) is None


@pytest.mark.parametrize(
    ("block", "made"),
    [
        ({"type": "tool_use", "input": {"a": 1}, "id": "call_1"}, {"input": {"a": 1, "b": 5}}),
        ({"type": "tool_use", "partial_json": '{"a": 1}', "id": "call_1"}, {"partial_json": '{"a": 1, "b": 5}'}),
        (
            {"type": "function_call", "arguments": '{"a": 1}', "call_id": "call_1", "id": "fc_1"},
            {"arguments": '{"a": 1, "b": 5}'},
        ),
        (
            {"type": "tool_call_chunk", "args": '{"a": 1}', "id": "call_1"},
            {"args": {"a": 1, "b": 5}, "type": "tool_call"},
        ),
    ],
    ids=["input", "partial_json", "arguments", "chunk"],
)
def test_a_call_among_the_blocks_is_told_as_it_was_made(block: dict[str, Any], made: dict[str, Any]) -> None:
    """A block of a call has the arguments that were validated or edited, in the form in which the provider wrote them."""
    opaque = opaque_of(asked(REASONING, block=block))
    assert opaque is not None
    now = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 5}, "id": "call_1", "type": "tool_call"}])
    assert restored(now, opaque).content == [REASONING, {**block, **made, "name": "add"}]


def test_a_call_that_is_no_call_of_the_message_is_left_out() -> None:
    """A block of a call that was not made goes back with nobody: it would have no result."""
    opaque = opaque_of(asked(THINKING, block={"type": "tool_use", "name": "add", "input": {}, "id": "call_9"}))
    assert opaque is not None
    assert restored(AIMessage("", tool_calls=asked().tool_calls), opaque).content == [THINKING]


def test_what_json_does_not_hold_is_not_kept() -> None:
    """A reply with bytes, half a character or no end in it is read as text and calls, and its run goes on."""
    endless: dict[str, Any] = {"type": "thinking"}
    endless["more"] = endless
    assert opaque_of(AIMessage("", additional_kwargs={"signature": b"sig"})) is None
    assert opaque_of(AIMessage("", additional_kwargs={"score": float("nan")})) is None
    assert opaque_of(AIMessage("", additional_kwargs={"note": "a\ud800"})) is None
    assert opaque_of(AIMessage.model_construct(content=[endless], additional_kwargs={}, response_metadata={})) is None


def test_pieces_of_thinking_are_joined_by_their_index() -> None:
    """A streamed reply keeps its thinking whole, with the text before it, and its signature."""
    reader = ChunkReader()
    pieces: list[Any] = [
        "First. ",
        [{"type": "thinking", "thinking": "I should ", "index": 0}],
        [{"type": "thinking", "thinking": "add.", "index": 0}],
        [{"type": "thinking", "signature": "c2ln", "index": 0}],
        [{"type": "text", "text": "Let me see.", "index": 1}],
    ]
    for piece in pieces:
        reader.add(AIMessageChunk(content=piece))
    call = {"name": "add", "args": '{"a": 1, "b": 2}', "id": "call_1", "index": 2, "type": "tool_call_chunk"}
    reader.add(AIMessageChunk(content="", tool_call_chunks=[call], response_metadata={"model_provider": "anthropic"}))
    reply = reader.replied(estimate=0, cap=None, at=0.0)
    assert reply.opaque is not None
    assert reply.opaque["content"] == [
        "First. ",
        {"type": "thinking", "thinking": "I should add.", "signature": "c2ln", "index": 0},
        {"type": "text", "text": "Let me see.", "index": 1},
    ]
    assert reply.opaque["response_metadata"] == {"model_provider": "anthropic"}
    assert merged([AIMessageChunk(content="plain")]) is None


def test_an_answer_keeps_nothing_more() -> None:
    """Only the message that asked for tools must come back whole: an answer is its text."""
    model = ScriptedModel([AIMessage([THINKING, {"type": "text", "text": "3"}])])
    result = make(model).invoke("1 + 2?")
    assert result.answer == "3"
    assert [one.content for one in result.messages] == ["1 + 2?", "3"]


def test_a_run_that_is_resumed_sends_the_same_back(tmp_path: Path) -> None:
    """What came with a call is in the trail: another process sends it back as this one would, with what a person edited."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    block = {"type": "tool_use", "id": "call_1", "name": "pay", "input": {"amount": 5}}
    call = {"name": "pay", "args": {"amount": 5}, "id": "call_1", "type": "tool_call"}
    first = ScriptedModel([AIMessage([THINKING, block], tool_calls=[call])])
    store = tmp_path / "trail.db"
    paused = make(first, [pay], store=store).invoke("Pay 5.", RUN)
    assert paused.status is Status.SUSPENDED
    second = ScriptedModel(["done"])
    result = make(second, [pay], store=store).resume("r", decision={"call_1": Edit({"amount": 4})})
    assert result.answer == "done"
    (back,) = [one for one in second.requests[0].messages if isinstance(one, AIMessage)]
    assert back.content == [THINKING, {**block, "input": {"amount": 4}}]


def test_a_call_with_an_id_of_ours_goes_back_plain() -> None:
    """A reply whose calls had no id, or a used one, is told as text and calls: its blocks name other calls."""
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "", "type": "tool_call"}
    model = ScriptedModel([AIMessage([THINKING], tool_calls=[call]), "3"])
    assert sent_back(make(model, [add]), model, "invoke").content == ""


def test_a_given_history_keeps_what_its_provider_wants() -> None:
    """A conversation that comes with its messages sends the reasoning of earlier calls back too."""
    model = ScriptedModel(["4"])
    before = [HumanMessage("1 + 2?"), asked(REASONING), ToolMessage("3", tool_call_id="call_1"), AIMessage("3")]
    make(model, [add]).invoke({"messages": [*before, HumanMessage("And 2 + 2?")]})
    (back,) = [one for one in model.requests[0].messages if isinstance(one, AIMessage) and one.tool_calls]
    assert back.content == [REASONING]


def test_what_was_said_before_a_call_of_a_given_history_is_kept_beside_it() -> None:
    """Two messages of an assistant's become one, which has the text of both; blocks with only the second's do not take its place."""
    model = ScriptedModel(["4"])
    before = [HumanMessage("1 + 2?"), AIMessage("Well."), asked(REASONING), ToolMessage("3", tool_call_id="call_1")]
    make(model, [add]).invoke({"messages": [*before, AIMessage("3"), HumanMessage("And 2 + 2?")]})
    (back,) = [one for one in model.requests[0].messages if isinstance(one, AIMessage) and one.tool_calls]
    assert back.content == "Well."


@pytest.mark.parametrize("way", WAYS)
def test_a_message_keeps_its_id(way: str) -> None:
    """Who showed the pieces of a message as they came (LangGraph does) knows by its id that the history tells of no other."""
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call_1", "type": "tool_call"}
    model = ScriptedModel([AIMessage("Let me see.", tool_calls=[call], id="one"), AIMessage("It is 3.", id="two")])
    result = run(make(model, [add]), "1 + 2?", way)
    assert [one.id for one in result.messages if isinstance(one, AIMessage)] == ["one", "two"]


def test_an_answer_that_is_told_otherwise_has_no_id_of_its_reply() -> None:
    """The answer in a JSON reply is another text than the pieces that were shown: it is a message of its own."""
    said = '{"action": "FINISH", "action_input": {"answer": "It is 3."}}'
    result = make(ScriptedModel([AIMessage(said, id="one")]), [add], dialect="json_action").invoke("1 + 2?")
    assert (result.answer, result.messages[-1].id) == ("It is 3.", None)


def thinking(item: Any) -> Sending:
    """The reply as servers of thinking models send it, whole or in pieces."""
    pieces = ["I should ", "add."]

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        for choice in body["choices"]:
            if "message" in choice:
                choice["message"]["reasoning_content"] = "".join(pieces)
            elif pieces:
                choice["delta"]["reasoning_content"] = pieces.pop(0)
        return body

    return replace(as_sending(item), edits=(edit,))


def thoughts_sent(request: ServerRequest) -> list[Any]:
    """What the assistant's messages of a request say that the model thought."""
    return [one.get("reasoning_content") for one in request.body["messages"] if one["role"] == "assistant"]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_model_behind_a_server_thought_goes_back_with_its_calls(way: str) -> None:
    """DeepSeek and Kimi refuse the next request without `reasoning_content`, which LangChain's client drops; an answer needs none."""
    with server([thinking(call("add", a=1, b=2)), thinking("It is 3."), "It is 3 still."]) as s:
        agent = make(client(s), [add])
        assert run(agent, "1 + 2?", way, THREAD).answer == "It is 3."
        assert run(agent, "Sure?", way, THREAD).answer == "It is 3 still."
        assert [thoughts_sent(one) for one in s.requests] == [[], ["I should add."], ["I should add.", None]]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_does_not_want_thoughts_back_is_asked_without(way: str) -> None:
    """One that gives `reasoning_content` and refuses it is asked again without it, as a visible retry, and from then on."""
    refusal = fault.bad_request("Unknown parameter: 'messages[2].reasoning_content'.")
    said = thinking(call("add", a=1, b=2)), refusal, thinking(call("add", a=2, b=2)), "It is 4."
    with server(said) as s:
        result = run(make(client(s), [add]), "1 + 2?", way)
        assert (result.answer, result.model_calls) == ("It is 4.", 4)
        assert [thoughts_sent(one) for one in s.requests[1:]] == [["I should add."], [None], [None, None]]


def test_what_a_model_thought_is_counted() -> None:
    """The estimate of a prompt holds what goes back of the model's thinking: a window that leaves it out is passed."""
    call_ = {"name": "add", "args": {}, "id": "call_1", "type": "tool_call"}
    plain = AIMessage("", tool_calls=[call_])
    beside = AIMessage("", tool_calls=[call_], additional_kwargs={"reasoning_content": "word " * 400})
    inside = AIMessage([{"type": "thinking", "thinking": "word " * 400}], tool_calls=[call_])
    assert estimate_tokens([beside]) == estimate_tokens([inside]) == estimate_tokens([plain]) + 500
