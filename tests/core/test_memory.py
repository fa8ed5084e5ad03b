"""Memory: for every history, window and dialect, what is sent is whole, valid, and holds what may never be lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from fsm_agent import Agent
from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block, block, flatten, text_of
from fsm_agent.language import EN
from fsm_agent.limits import Limits
from fsm_agent.memory import Full, Memory, MessageWindow, Window
from fsm_agent.testing import ScriptedModel, call, forever
from fsm_agent.testing.strategies import history_of, turns
from tests.core.builders import TOOLS
from tests.core.histories import said_in, sent
from tests.core.validity import wrong_prompt


def views(history: Sequence[Block]) -> list[Memory]:
    """Full, and windows of every size up to one more than there are rounds or messages."""
    count = sum(one.kind in ("round", "answer") for one in history)
    messages = sum(len(one.messages) for one in history)
    windows = [*(Window(rounds=size) for size in range(1, count + 2))]
    return [Full(), *windows, *(MessageWindow(messages=size) for size in range(1, messages + 2, 2))]


@pytest.mark.parametrize("name", DIALECTS)
@given(made=turns)
def test_what_is_sent_is_valid_for_every_history_and_window(name: str, made: Any) -> None:
    """One system message, tasks kept, calls answered once and in order, no neighbours of one role, nothing empty."""
    dialect = dialect_for(name)
    history = history_of(dialect, made)
    for memory in views(history):
        seen = memory.view(history)
        messages = sent(dialect, seen)
        assert wrong_prompt(messages) == [], (memory, messages)
        text = said_in(messages)
        assert "task 0." in text
        assert f"task {len(made) - 1}." in text
        for message in history[-1].messages:
            assert text_of(message.content) in text


@pytest.mark.parametrize("name", DIALECTS)
@given(made=turns)
def test_a_view_is_a_choice_of_whole_blocks_in_order(name: str, made: Any) -> None:
    """Memory never tears, copies, changes or reorders a block, and never changes the history."""
    history = tuple(history_of(dialect_for(name), made))
    before = replace(history[0]), len(history)
    for memory in views(history):
        seen = iter(history)
        assert all(any(one is block for block in seen) for one in memory.view(history))
        assert memory.view(list(history)) == memory.view(history)
    assert (history[0], len(history)) == before


@given(made=turns)
def test_a_window_keeps_exactly_its_rounds(made: Any) -> None:
    """S06: the newest N rounds, not one more or less, and every note among them; a large window is everything."""
    history = history_of(dialect_for("native"), made)
    kinds = [one for one in history if one.kind in ("round", "answer")]
    for size in range(1, len(kinds) + 2):
        seen = Window(rounds=size).view(history)
        assert [one for one in seen if one.kind in ("round", "answer")] == kinds[-size:]
        if size < len(kinds):
            after = history.index(kinds[-size])
            assert [one for one in history[after:] if one not in seen] == []
    assert Window(rounds=len(kinds) + 1).view(history) == Full().view(history)


@given(made=turns, size=st.integers(1, 30))
def test_a_message_window_holds_no_more_than_its_messages(made: Any, size: int) -> None:
    """S06: at most so many, unless the tasks and the newest two rounds are more; and one block more would be too many."""
    history = history_of(dialect_for("native"), made)
    seen = MessageWindow(messages=size).view(history)
    rounds = [one for one in seen if one.kind in ("round", "answer")]
    assert not rounds or rounds == [one for one in history if one.kind in ("round", "answer")][-len(rounds) :]
    assert len(rounds) >= min(2, sum(one.kind in ("round", "answer") for one in history))
    newer = history.index(next(one for one in seen if all(later in seen for later in history[history.index(one) :])))
    if len(flatten(seen)) > size:
        # Nothing is in that two rounds and the tasks do not need.
        assert len(rounds) <= 2
        assert newer == 0 or len(rounds) < 2 or history[newer].kind in ("round", "answer", "task")
    elif newer > 0:
        larger = MessageWindow(messages=size + len(history[newer - 1].messages) + 1).view(history)
        assert len(flatten(larger)) > size


def test_a_message_window_fills_up_to_the_message() -> None:
    """The count is exact: with room for one more message the next note is in, with room for none it is not."""
    history = [
        block("task", HumanMessage("task")),
        block("note", HumanMessage("one")),
        block("note", HumanMessage("two")),
        block("round", AIMessage("a"), HumanMessage("b")),
        block("round", AIMessage("c"), HumanMessage("d")),
    ]
    texts = {
        size: [text_of(one.content) for one in flatten(MessageWindow(messages=size).view(history))]
        for size in range(4, 9)
    }
    assert texts[4] == texts[5] == ["task", "a", "b", "c", "d"]
    assert texts[6] == ["task", "two", "a", "b", "c", "d"]
    assert texts[7] == texts[8] == ["task", "one", "two", "a", "b", "c", "d"]


@pytest.mark.parametrize("name", DIALECTS)
@given(made=turns)
def test_nothing_of_what_is_seen_is_lost_in_writing(name: str, made: Any) -> None:
    """The dialect writes every block that memory chose, each once, in order."""
    dialect = dialect_for(name)
    history = history_of(dialect, made)
    text = said_in(sent(dialect, history))
    position = 0
    for one in history:
        for message in one.messages:
            content = text_of(message.content)
            assert text.count(content) == 1 or not content
            assert text.index(content) >= position or not content
            position = text.index(content)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "5", None])
def test_a_window_of_no_size_is_refused(size: Any) -> None:
    """A window holds at least one round; the error names what keeps everything."""
    with pytest.raises(DefinitionError, match=r"at least 1; use Full\(\)"):
        Window(rounds=size)


def test_a_memory_is_a_value() -> None:
    """Agents share memories; equal ones are the same, and none can be changed."""
    assert len({Window(rounds=2), Window(rounds=2), Window(rounds=3), Full(), Full()}) == 3
    with pytest.raises(FrozenInstanceError):
        Window(rounds=2).rounds = 3  # type: ignore[misc] # what is tested is that this is refused


# ---------------------------------------------------------------- the faults of the field


def long_run(memory: Memory, task: str, *, dialect: str = "native", rounds: int = 20) -> ScriptedModel:
    """A run of so many rounds, each with a new result; the model has kept every request."""
    counted = iter(range(10_000))

    def next_call(_: object) -> Any:
        number = str(next(counted))
        written = json.dumps({"action": "look", "action_input": {"q": number}})
        return written if dialect == "json_action" else call("look", q=number)

    model = ScriptedModel([forever(next_call)])
    Agent(
        model,
        TOOLS,
        memory=memory,
        dialect=dialect,
        limits=Limits(max_steps=rounds, on_limit="stop", repeat_threshold=99, no_progress_steps=99),
    ).invoke(task)
    assert len(model.requests) == rounds
    return model


@pytest.mark.parametrize("dialect", ["native", "json_action"])
@pytest.mark.parametrize("memory", [Window(rounds=1), Window(rounds=3), Full()], ids=str)
def test_s04_the_goal_is_in_every_prompt(memory: Memory, dialect: str) -> None:
    """However long a run gets, the system text and the first task are in what is sent, letter for letter."""
    task = "Find the xylophone-47 and nothing else."
    for request in long_run(memory, task, dialect=dialect).requests:
        assert task in said_in(request.messages)
        assert text_of(request.messages[0].content).startswith(EN.system)
        assert wrong_prompt(request.messages) == []


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_h02_no_window_parts_a_call_from_its_result(rounds: int) -> None:
    """The boundary is always the edge of a round: what is kept of it is kept whole."""
    for request in long_run(Window(rounds=rounds), "Go on.").requests:
        kept = [message for message in request.messages if isinstance(message, AIMessage)]
        assert len(kept) <= rounds
        assert wrong_prompt(request.messages) == []


def test_h07_warnings_and_nudges_are_no_second_system_message() -> None:
    """After a warning, an empty reply and a change of strategy there is still one system message, first."""
    script = [
        call("look", q="x"),
        call("look", q="x"),  # brings the warning
        "",  # brings a nudge
        call("add", a="one"),  # refused
        call("add", a="two"),  # refused: two failures change the strategy
        "Done.",
    ]
    model = ScriptedModel(script)
    result = Agent(model, TOOLS, limits=Limits(no_progress_steps=9)).invoke("Go on.")
    assert "strategy_changed" in [one.event for one in result.transitions]
    for request in model.requests:
        assert [number for number, one in enumerate(request.messages) if isinstance(one, SystemMessage)] == [0]
        assert wrong_prompt(request.messages) == []


def test_h08_a_failed_turn_leaves_neither_its_task_nor_its_error() -> None:
    """The user asks again with the same text: it is sent once, and nothing pretends to be the assistant's."""
    model = ScriptedModel([RuntimeError("secret outage"), RuntimeError("secret outage"), "Done."])
    agent = Agent(model, limits=Limits(backoff=0))
    config: Any = {"configurable": {"thread_id": "t"}}
    assert agent.invoke("Do it.", config).answer is None
    assert agent.invoke("Do it.", config).answer == "Done."
    messages = model.requests[-1].messages
    assert [type(message) for message in messages] == [SystemMessage, HumanMessage]
    assert messages[1].content == "Do it."
    assert "outage" not in said_in(messages)


def test_h08_two_user_messages_in_a_row_are_sent_as_one() -> None:
    """A turn that ended without an answer is followed by the next task: both are kept, in one message."""
    done = '{"action": "FINISH", "action_input": {"answer": "Done."}}'
    model = ScriptedModel(['{"action": "look", "action_input": {"q": "x"}}', RuntimeError("outage"), done])
    agent = Agent(model, TOOLS, dialect="json_action", limits=Limits(max_retries=0))
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke("First.", config)
    agent.invoke("Second.", config)
    messages = model.requests[-1].messages
    assert wrong_prompt(messages) == []
    assert "about x" in text_of(messages[-1].content)
    assert text_of(messages[-1].content).endswith("Second.")


@pytest.mark.parametrize("name", DIALECTS)
def test_h10_a_task_larger_than_any_window_is_still_sent(name: str) -> None:
    """A prompt always has its user turn: the task is never what is cut, whatever its size and the window's."""
    task = "x" * 4_000
    dialect = dialect_for(name)
    history = [block("task", HumanMessage(task))]
    for memory in (Window(rounds=1), Full()):
        messages = sent(dialect, memory.view(history))
        last = [message.content for message in messages if isinstance(message, HumanMessage)][-1]
        assert str(last).endswith(task)


@pytest.mark.parametrize("memory", [Window(rounds=1), Full()], ids=str)
def test_h10_an_empty_history_has_an_empty_view(memory: Memory) -> None:
    """Nothing raises where there is nothing yet."""
    assert memory.view([]) == ()


def test_h10_a_budget_that_the_task_alone_overruns_is_said_before_the_model_is_asked() -> None:
    """A named end, not a prompt without its task."""
    model = ScriptedModel(["never"])
    result = Agent(model, limits=Limits(token_budget=50)).invoke("x" * 4_000)
    assert (result.reason, result.model_calls, model.count) == ("token_budget", 0, 0)


# ---------------------------------------------------------------- turns


def conversation(*texts: str) -> list[Block]:
    """A conversation of answered turns; the last one is open."""
    blocks = []
    for turn, text in enumerate(texts):
        blocks.append(block("task", HumanMessage(text), turn=turn))
        if turn < len(texts) - 1:
            blocks.append(block("answer", AIMessage(f"re {text}"), turn=turn))
    return blocks


def test_an_earlier_task_is_seen_when_its_answer_is() -> None:
    """An answer without its question says little: a task comes along with the turn that is in the window."""
    seen = Window(rounds=1).view(conversation("one", "two", "three", "four"))
    assert [text_of(message.content) for message in flatten(seen)] == ["one", "three", "re three", "four"]


def test_the_first_task_of_a_conversation_and_the_newest_are_always_seen() -> None:
    """What the conversation is about, and what is asked now."""
    history = conversation(*(f"task {turn}" for turn in range(30)))
    texts = [text_of(message.content) for message in flatten(Window(rounds=2).view(history))]
    assert (texts[0], texts[-1]) == ("task 0", "task 29")


@pytest.mark.parametrize("kept", [1, 2, 5, 50])
def test_the_prompt_of_a_long_run_stays_flat(kept: int) -> None:
    """With a window the number of messages sent does not grow with the run."""
    sizes = [len(request.messages) for request in long_run(Window(rounds=kept), "Go on.", rounds=30).requests]
    assert max(sizes) <= 2 + 2 * kept
    assert sizes == sorted(sizes)
