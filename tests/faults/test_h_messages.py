"""Family H: histories that strict servers take: ids, one system message, no neighbours of one role, no null, a user's turn."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Agent, Full, RunError, Status, StopReason, Window
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, fault, reply, server
from tests.faults.histories import Summarised, add, calls_and
from tests.faults.kit import (
    BOTH,
    WAYS,
    answers_in,
    assert_sendable,
    client,
    make,
    run,
)

# ---------------------------------------------------------------- H06 ids


def _asked(*ids: str, name: str = "add") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {"a": 1, "b": 1}, "id": one} for one in ids])


def _told(text: str, call_id: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


@pytest.mark.parametrize(
    ("brought", "told"),
    [
        ([_asked("c", "c"), _told("one", "c"), _told("two", "c")], ["one", "two"]),
        (
            [_asked("c"), _told("one", "c"), AIMessage("x"), HumanMessage("q"), _asked("c"), _told("two", "c")],
            ["one", "two"],
        ),
        ([_asked("c", "d"), _told("two", "d"), _told("one", "c")], ["one", "two"]),
        ([_asked("c", name="functions.add"), _told("one", "c")], ["one"]),
    ],
)
def test_h06_a_history_that_a_caller_brings_is_made_sendable(brought: list[Any], told: list[str]) -> None:
    """Calls that share an id keep their own results under ids of their own, and a name is one that every server takes."""
    with ScriptedModel([Call("add", {"a": 2, "b": 2}, id="c"), "4"]) as model:
        run(make(model, [add]), [HumanMessage("before"), *brought, HumanMessage("2+2")])
    assert_sendable(model.requests)
    assert [message.text for message in answers_in(model.requests[1])] == [*told, "sum 4"]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("given", [None, ""])
def test_h06_a_missing_id_is_minted_for_both_messages(given: str | None, way: str) -> None:
    """A call without an id gets one, the same in the assistant's message and in the result."""
    with ScriptedModel([Call("add", {"a": 1, "b": 2}, id=given), "3"]) as model:
        run(make(model, [add]), "1+2", way)
    asked, told = model.requests[1].messages[2:4]
    assert isinstance(asked, AIMessage)
    assert isinstance(told, ToolMessage)
    assert asked.tool_calls[0]["id"] == told.tool_call_id
    assert len(told.tool_call_id) == 9
    assert told.tool_call_id.isalnum()


@pytest.mark.parametrize("way", BOTH)
def test_h06_repeated_ids_are_told_apart(way: str) -> None:
    """The same id twice in a reply, and again in the next turn: every call has its own in the history."""
    script = [
        [
            Call("add", {"a": 1, "b": 1}, id="c"),
            Call("add", {"a": 2, "b": 2}, id="c"),
            Call("add", {"a": 3, "b": 3}, id=None),
        ],
        Call("add", {"a": 4, "b": 4}, id="c"),
        "done",
    ]
    with ScriptedModel(script) as model:
        run(make(model, [add], memory=Full()), "go", way)
    assert_sendable(model.requests)
    assert [message.text for message in answers_in(model.requests[2])] == ["sum 2", "sum 4", "sum 6", "sum 8"]


def test_h06_ids_that_restart_with_every_turn_of_a_thread() -> None:
    """A server that counts its ids from call_0 in every reply does not collide across the turns of a thread."""
    script = [Call("add", {"a": 1, "b": 1}, id="call_0"), "2", Call("add", {"a": 2, "b": 2}, id="call_0"), "4"]
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel(script) as model:
        agent = make(model, [add], memory=Full())
        run(agent, "first", config=config)
        run(agent, "second", config=config)
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_h06_through_the_real_client(way: str) -> None:
    """No id on the wire: the next request carries one, in both places."""
    with server([Call("add", {"a": 1, "b": 2}, id=None), "3"]) as s:
        result = run(make(client(s), [add]), "1+2", way)
    asked, told = s.requests[1].messages[2:4]
    assert result.answer == "3"
    assert asked["tool_calls"][0]["id"] == told["tool_call_id"] != ""


# ---------------------------------------------------------------- H07 one system message


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h07_exactly_one_system_message_and_it_is_first(dialect: str) -> None:
    """After nudge, unreadable reply, warning, strategy and forced answer there is one system message, the first."""

    def boom() -> str:
        """Fail."""
        raise ValueError("no")

    native = dialect == "native"
    acts: list[Any] = [
        "",
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        Call("add", "{") if native else '{"action": "add", "action_',
        call("boom") if native else '{"action": "boom", "action_input": {}}',
        call("add", a=1, b=1) if native else '{"action": "add", "action_input": {"a": 1, "b": 1}}',
        "forced" if native else '{"action": "FINISH", "action_input": {"answer": "forced"}}',
    ]
    with ScriptedModel(acts) as model:
        agent = make(
            model,
            [add, boom],
            system="Be good.",
            memory=Summarised(3),
            dialect=dialect,
            limits={"max_retries": 0, "no_progress_steps": 9},
        )
        result = run(agent, "go")
    assert (result.status, result.answer) == (Status.PARTIAL, "forced")
    assert_sendable(model.requests)
    assert all(request.text.startswith("Be good.") for request in model.requests)
    assert "Summary of" in model.requests[-1].text


def test_h07_a_system_message_of_the_input_is_the_system_text_of_that_run() -> None:
    """A system message that the caller sends first is in the prompt, as the one system message."""
    with ScriptedModel(["hi"]) as model:
        run(make(model, system="Base."), [SystemMessage("Answer in rhyme."), HumanMessage("hello")])
    (request,) = model.requests
    assert_sendable([request])
    assert "Answer in rhyme." in request.messages[0].text


# ---------------------------------------------------------------- H08 no neighbours of one role


@pytest.mark.parametrize("way", WAYS)
def test_h08_a_failed_turn_is_rolled_back(way: str) -> None:
    """A turn that failed before anything happened leaves nothing: the retry's prompt holds the task once, no error."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([RuntimeError("down"), "hello"]) as model:
        agent = make(model, limits={"max_retries": 0})
        failed = run(agent, "say hello", way, config)
        again = run(agent, "say hello", way, config)
    assert (failed.status, failed.reason, failed.answer) == (Status.FAILED, StopReason.MODEL_FAILED, None)
    assert again.answer == "hello"
    assert_sendable(model.requests)
    users = [message for message in model.requests[1].messages if isinstance(message, HumanMessage)]
    assert [message.text for message in users] == ["say hello"]
    assert "down" not in model.requests[1].text


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h08_a_failed_turn_that_did_something_is_kept_valid(dialect: str) -> None:
    """A turn whose tools ran stays; the next one has no neighbours of one role and no error text as an answer."""
    act: Any = call("add", a=1, b=1) if dialect == "native" else '{"action": "add", "action_input": {"a": 1, "b": 1}}'
    end = "two" if dialect == "native" else '{"action": "FINISH", "action_input": {"answer": "two"}}'
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([act, RuntimeError("down"), end]) as model:
        agent = make(model, [add], dialect=dialect, limits={"max_retries": 0})
        failed = run(agent, "go on", config=config)
        again = run(agent, "go on", config=config)
    assert (failed.status, again.answer) == (Status.FAILED, "two")
    assert_sendable(model.requests)
    assert "sum 2" in model.requests[2].text
    assert "down" not in model.requests[2].text


MISPLACED = {
    "mistral": (400, "Unexpected role 'user' after role 'tool'"),
    "template": (400, "After the optional system message, conversation roles must alternate user/assistant/user/..."),
    "llama": (500, "After the optional system message, conversation roles must alternate user and assistant roles"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("refusal", MISPLACED.values(), ids=MISPLACED)
def test_h08_a_server_that_takes_no_user_after_a_result_is_sent_a_word_between(
    refusal: tuple[int, str], way: str
) -> None:
    """Told to answer now, and in the next turn of a thread whose turn got no answer: refused once, and never again."""
    refused: list[int] = []
    asked: list[Any] = [call("look"), "It is open.", call("look"), fault.unauthorized(), "Closed."]

    def strict(request: Any) -> Any:
        roles = [message["role"] for message in request.messages]
        if ("tool", "user") in pairwise(roles):
            refused.append(request.number)
            return fault.http_error(refusal[0], refusal[1])
        return asked.pop(0)

    def look() -> str:
        """Look."""
        return "open"

    thread = {"configurable": {"thread_id": "t"}}
    with server(strict) as s:
        agent = make(client(s), [look], limits={"max_steps": 1})
        first = run(agent, "Is it open?", way, thread)
        second = run(agent, "And now?", way, thread)
        third = run(agent, "And now?", way, thread)
        sent = s.requests[-1].messages
    assert (first.status, first.answer, third.answer) == (Status.PARTIAL, "It is open.", "Closed.")
    assert (second.status, len(refused), asked) == (Status.FAILED, 1, [])
    assert not any("OK." in message.text for message in (*first.messages, *third.messages)), "the history is as it was"
    assert [message["content"] for message in sent if message["role"] == "assistant"][-1] == "OK."


def test_h08_a_model_of_mistrals_is_never_refused_for_a_user_after_a_result() -> None:
    """Its name is known: what is told after two failures would be refused as the third, which ends the run."""
    asked: list[Any] = [call("look", at=1), call("look", at=2), "Nothing."]

    def look(at: int) -> str:
        """Look."""
        raise RuntimeError("dark")

    with server(asked) as s:
        result = run(make(client(s, model="devstral-small"), [look], limits={"max_retries": 0}), "Look.")
        roles = [message["role"] for message in s.requests[-1].messages]
    assert result.answer == "Nothing."
    assert roles[-3:] == ["tool", "assistant", "user"]


def test_a_model_of_mistrals_is_sent_ids_of_nine_letters_and_digits() -> None:
    """It refuses all others, as a history that another server began has them; its own stay as they are, and results go with their calls."""
    told = [
        HumanMessage("Look twice."),
        AIMessage(
            "",
            tool_calls=[
                {"name": "look", "args": {"at": 1}, "id": "call_0123456789abcdef"},
                {"name": "look", "args": {"at": 2}, "id": "aB3456789"},
            ],
        ),
        ToolMessage("dark", tool_call_id="call_0123456789abcdef"),
        ToolMessage("light", tool_call_id="aB3456789"),
        AIMessage("Dark, then light."),
        HumanMessage("And now?"),
    ]
    sent: dict[str, list[str]] = {}
    for name in ("devstral-small", "gpt-4o-mini"):
        with server(["Dark."]) as s:
            run(make(client(s, model=name)), {"messages": told})
            asked = [one["id"] for message in s.requests[0].messages for one in message.get("tool_calls") or ()]
            given = [message["tool_call_id"] for message in s.requests[0].messages if message["role"] == "tool"]
        assert asked == given
        sent[name] = asked
    assert sent["gpt-4o-mini"] == ["call_0123456789abcdef", "aB3456789"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", sent["devstral-small"][0])
    assert sent["devstral-small"][1] == "aB3456789"


@pytest.mark.parametrize("dialect", ["native", "json_action"])
def test_h08_a_conversation_alternates(dialect: str) -> None:
    """Turn after turn the roles alternate, and each turn sees the ones before."""
    ends = ["uno", "due", "tre"]
    script = (
        ends
        if dialect == "native"
        else [f'{{"action": "FINISH", "action_input": {{"answer": "{end}"}}}}' for end in ends]
    )
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel(script) as model:
        agent = make(model, [add], dialect=dialect)
        for turn in ("first", "second", "third"):
            run(agent, turn, config=config)
    assert_sendable(model.requests)
    text = model.requests[2].text
    positions = [text.index(word) for word in ("first", "uno", "second", "due", "third")]
    assert positions == sorted(positions)


def test_h08_neighbours_in_the_callers_own_messages() -> None:
    """Two user messages in a row from the caller are sent as one."""
    with ScriptedModel(["hi"]) as model:
        run(make(model), [HumanMessage("first thing"), HumanMessage("second thing")])
    assert_sendable(model.requests)
    assert "first thing" in model.requests[0].text
    assert "second thing" in model.requests[0].text


# ---------------------------------------------------------------- H09 null content


@pytest.mark.parametrize("way", WAYS)
def test_h09_null_content_beside_a_call_is_replayed_as_a_call(way: str) -> None:
    """An assistant message with null content and a call keeps its call in the next request."""
    with server([reply(None, call("add", a=1, b=2)), "3"]) as s:
        result = run(make(client(s), [add]), "1+2", way)
    asked = s.requests[1].messages[2]
    assert (result.answer, asked["role"]) == ("3", "assistant")
    assert asked["tool_calls"][0]["function"]["name"] == "add"
    assert asked["content"] == "", "null is refused by one server, and by another the message is dropped"
    assert [message["role"] for message in s.requests[1].messages] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("way", BOTH)
def test_h09_content_in_blocks_is_replayed_as_text(way: str) -> None:
    """Content blocks beside a call are kept as text, so that a server without blocks takes the history."""
    script = [reply([{"type": "text", "text": "Let me see."}], call("add", a=1, b=2)), "3"]
    with ScriptedModel(script) as model:
        run(make(model, [add]), "1+2", way)
    asked = model.requests[1].messages[2]
    assert asked.content == "Let me see."


def test_h09_an_empty_result_is_not_an_empty_message() -> None:
    """A tool that returns nothing has a result with a text, which strict servers ask for."""

    def quiet() -> str:
        """Say nothing."""
        return ""

    with ScriptedModel([call("quiet"), "done"]) as model:
        run(make(model, [quiet]), "go")
    assert answers_in(model.requests[1])[0].text.strip()


# ---------------------------------------------------------------- H10 prompts without a user


@pytest.mark.parametrize("on_limit", ["answer", "stop"])
@pytest.mark.parametrize("way", WAYS)
def test_h10_a_message_beyond_the_budget_is_never_sent(way: str, on_limit: str) -> None:
    """One user message that is larger than everything allowed: no model call, and a named reason."""
    with ScriptedModel([]) as model:
        agent = make(model, limits={"token_budget": 50, "on_limit": on_limit}, system="s")
        result = run(agent, "x" * 4000, way)
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.TOKEN_BUDGET, 0)
    assert (result.usage.total, result.model_calls) == (0, 0)
    assert "token_budget=50" in result.detail


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "task", [[], "", "   ", {"messages": []}, {"input": ""}, [AIMessage("hi")], {"nothing": 1}, None, 5]
)
def test_h10_a_task_without_a_user_turn_is_refused_by_name(task: Any, way: str) -> None:
    """An empty list, an empty text or a list without a user's last message never reaches the model."""
    with ScriptedModel([]) as model, pytest.raises(RunError):
        run(make(model), task, way)
    assert model.count == 0


@pytest.mark.parametrize("rounds", [1, 3])
def test_h10_the_newest_user_message_is_always_sent(rounds: int) -> None:
    """However long the conversation and small the window, the current task is in every prompt, whole."""
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with ScriptedModel([*calls_and("one", 4), *calls_and("two", 4)]) as model:
        agent = make(model, [add], memory=Window(rounds))
        run(agent, "first " + "y" * 4000, config=config)
        run(agent, "second " + "z" * 4000, config=config)
    assert_sendable(model.requests)
    assert all("second " + "z" * 4000 in request.text for request in model.requests[5:])


def test_h_the_agents_history_is_the_callers_to_replay() -> None:
    """The messages of a result can be sent as the input of the next run, and are valid there."""
    with ScriptedModel([*calls_and("2", 1), "again"]) as model:
        agent = Agent(model, [add], clock=FakeClock())
        first = agent.invoke("1+1")
        agent.invoke([*first.messages, HumanMessage("sure?")])
    assert_sendable(model.requests)
    assert "1+1" in model.requests[2].text
    assert "sure?" in model.requests[2].text
    assert "sum 1" in model.requests[2].text, "the results of the earlier run are part of what the caller sent"


def test_h_forever_broken_histories_are_never_sent() -> None:
    """Sixty steps of everything at once: each of the prompts is one that a strict server takes."""

    def flaky(n: int) -> str:
        """Work sometimes."""
        if n % 3 == 0:
            raise ValueError("odd")
        return f"n is {n}"

    def acts(request: Any) -> Any:
        number = request.number
        kinds = [
            [Call("flaky", {"n": number}, id="c"), Call("flaky", {"n": number + 1}, id="c")],
            reply("thinking", call("flaky", n=number), call("nothing")),
            Call("flaky", f'{{"n": {number}'),
            call("flaky", n=number),
            call("flaky", n=number + 1),
        ]
        return kinds[number % len(kinds)]

    model = ScriptedModel(acts)
    limits = {"max_steps": 60, "max_tool_calls": 500, "degrade_after": 50, "abort_after": 50, "no_progress_steps": 50}
    limits |= {"repeat_threshold": 50}
    result = run(make(model, [flaky], limits=limits, memory=Window(3)), "go")
    assert result.reason is StopReason.MAX_STEPS
    assert model.count >= 60
    assert_sendable(model.requests)
