"""Conversations in any LangChain chat message history: what others wrote there is read, what we write comes back as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, Field

from fsm_agent import Agent, HistoryConversations
from fsm_agent.dialects import dialect_for
from fsm_agent.errors import ConversationError, DefinitionError
from fsm_agent.history import Block, call_ids, flatten
from fsm_agent.language import texts_for
from fsm_agent.memory.rebuilt import MARK, marked, rebuilt
from fsm_agent.testing import ScriptedModel
from tests.core.validity import wrong_history
from tests.faults.kit import assert_sendable, make, run
from tests.memory.kit import ListHistory, keep, kept, said, worked

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def asks(*ids: str, text: str = "") -> AIMessage:
    """An assistant's message with calls."""
    return AIMessage(text, tool_calls=[{"name": "f", "args": {"x": id}, "id": id} for id in ids])


def tells(id: str) -> ToolMessage:
    """A result."""
    return ToolMessage(f"told {id}", tool_call_id=id, name="f")


def read(*messages: BaseMessage, dialect: str = "native") -> tuple[Block, ...]:
    """These messages as blocks."""
    return rebuilt(messages, dialect_for(dialect), texts_for("en"))


def shape(blocks: Sequence[Block]) -> list[tuple[int, str, list[str]]]:
    """Turn, kind and texts of each."""
    return [(one.turn, one.kind, [message.text for message in one.messages]) for one in blocks]


# ---------------------------------------------------------------- what others wrote


def test_what_another_program_wrote_is_read_as_turns() -> None:
    """Users' messages begin turns, answered calls are rounds, texts are answers."""
    found = read(
        HumanMessage("one"),
        asks("a", "b", text="look"),
        tells("a"),
        tells("b"),
        AIMessage("done"),
        HumanMessage("two"),
        AIMessage("again"),
    )
    assert shape(found) == [
        (0, "task", ["one"]),
        (0, "round", ["look", "told a", "told b"]),
        (0, "answer", ["done"]),
        (1, "task", ["two"]),
        (1, "answer", ["again"]),
    ]


LEFT_OUT: dict[str, tuple[list[BaseMessage], list[BaseMessage]]] = {
    "a greeting": ([AIMessage("Hi!")], []),
    "a head cut within a round": ([tells("z"), AIMessage("so")], []),
    "a system message": ([SystemMessage("s")], [SystemMessage("s")]),
    "a call without its result": ([], [asks("c")]),
    "one of two results": ([], [asks("c", "d"), tells("c")]),
    "a result without its call": ([], [tells("c")]),
    "an empty answer": ([], [AIMessage(" ")]),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_no_provider_takes_is_left_out_of_the_view_only(what: str) -> None:
    """The model does not see it, the next prompt is valid, and the history itself still holds it."""
    before, after = LEFT_OUT[what]
    history = ListHistory(*before, HumanMessage("one"), AIMessage("first"), *after)
    with ScriptedModel(["second"]) as model:
        run(make(model, store=HistoryConversations(lambda _: history)), "two", config=CONFIG)
    assert [message.text for message in model.requests[0].messages[1:]] == ["one", "first", "two"]
    assert_sendable(model.requests)
    assert history.kept[: len(before)] == before
    assert [message.text for message in history.kept[-2:]] == ["two", "second"]
    assert len(history.kept) == len(before) + 2 + len(after) + 2


def test_results_are_put_in_the_order_of_the_calls() -> None:
    """Whatever order they were written in."""
    assert shape(read(HumanMessage("x"), asks("a", "b"), tells("b"), tells("a")))[1][2] == ["", "told a", "told b"]


def test_what_was_said_in_several_messages_is_one() -> None:
    """No strict provider takes two assistant messages in a row, with calls in the second or without."""
    found = read(
        HumanMessage("x"),
        AIMessage("Let me"),
        AIMessage("see."),
        asks("a", text="So:"),
        tells("a"),
        AIMessage("3"),
        AIMessage("!"),
    )
    assert shape(found) == [
        (0, "task", ["x"]),
        (0, "round", ["Let me\n\nsee.\n\nSo:", "told a"]),
        (0, "answer", ["3\n\n!"]),
    ]


def test_what_is_said_after_an_answer_of_ours_is_added_to_it() -> None:
    """Another program that goes on after our answer does not make the next prompt invalid."""
    own = [message for one in said(0) for message in marked(one)]
    found = read(*own, AIMessage("P.S."), HumanMessage("two"))
    assert shape(found) == [(0, "task", ["task 0"]), (0, "answer", ["answer 0\n\nP.S."]), (1, "task", ["two"])]


def test_a_call_of_another_program_leaves_ours_its_id() -> None:
    """Of two calls with one id, the one that we wrote keeps it."""
    own = worked(0)
    (ours,) = call_ids(own)
    found = read(*(message for one in own for message in marked(one)), HumanMessage("two"), asks(ours), tells(ours))
    assert call_ids(found) == {ours, f"{ours}_2"}


@pytest.mark.parametrize("dialect", ["json_action", "react"])
def test_calls_of_another_program_are_written_as_the_agent_writes_them(dialect: str) -> None:
    """A model that is asked in text sees no message that only tool calling has."""
    found = read(HumanMessage("x"), asks("a"), tells("a"), AIMessage("3"), dialect=dialect)
    assert [message.type for message in flatten(found)] == ["human", "ai", "human", "ai"]
    assert "told a" in found[1].messages[1].text
    with pytest.raises(DefinitionError, match="dialect"):
        HistoryConversations(lambda _: ListHistory(), dialect="other")


class ModelHistory(BaseChatMessageHistory, BaseModel):
    """A history that is a pydantic model, as LangChain's own in memory is."""

    messages: list[BaseMessage] = Field(default_factory=list)

    def clear(self) -> None:
        """Forget all of it."""


@pytest.mark.parametrize(
    "history", [ModelHistory(), ListHistory(), lambda _: ListHistory()], ids=["model", "list", "factory"]
)
def test_a_history_that_is_no_store_is_refused_with_the_way_to_make_one(history: Any) -> None:
    """The agent names what stands around a history, and that takes a function of the thread's id."""
    with pytest.raises(DefinitionError, match=r"HistoryConversations\(lambda thread_id: ...\)"):
        Agent(ScriptedModel(["Hi."]), conversations=history)
    if not callable(history):
        with pytest.raises(DefinitionError, match=r"a function of a thread's id.*, not a (Model|List)History"):
            HistoryConversations(history)


any_messages = st.lists(
    st.one_of(
        st.builds(HumanMessage, st.sampled_from(["u", "v"])),
        st.builds(SystemMessage, st.just("s")),
        st.builds(AIMessage, st.sampled_from(["", "a", "b"])),
        st.sampled_from([asks("1"), asks("2", "3"), asks("4", text="t")]),
        st.sampled_from("1234").map(tells),
        st.sampled_from([message for one in (*worked(0), *worked(1, calls=2)) for message in marked(one)]),
    ),
    max_size=14,
)


@given(any_messages)
def test_whatever_is_there_the_next_prompt_is_valid(messages: list[BaseMessage]) -> None:
    """Any mixture of whole and torn, ours and others', is read as something that strict providers take."""
    merged: list[BaseMessage] = []
    for message in flatten(read(*messages)):
        if not (merged and message.type == "human" == merged[-1].type):  # neighbours that the dialect joins
            merged.append(message)
    wrong = [fault for fault in wrong_history(merged) if "not unique" not in fault]  # drawn twice
    assert wrong == [] or merged == []


# ---------------------------------------------------------------- what we write


def test_a_turn_is_added_in_one_call_and_nothing_is_rewritten() -> None:
    """A history that keeps a log, or is slow, is asked for no more than the new messages."""
    history = ListHistory()
    store = HistoryConversations(lambda _: history)
    keep(store, said(0))
    keep(store, (*said(0), *worked(1)))
    keep(store, (*said(0), *worked(1)))
    assert history.log == ["add 2", "add 4"]
    keep(store, said(0, "other"))
    assert history.log[2:] == ["clear", "add 2"]


def test_marks_are_seen_by_nobody_but_the_store() -> None:
    """What the model is sent has none, and what others put into the same field stays."""
    history = ListHistory()
    store = HistoryConversations(lambda _: history)
    task = Block("task", (HumanMessage("x", additional_kwargs={"mine": 1}),), 5)
    keep(store, (task, said(0)[1]))
    assert [MARK in message.additional_kwargs for message in history.kept] == [True, True]
    assert kept(store) == (task, said(0)[1])
    assert task.messages[0].additional_kwargs == {"mine": 1}


@pytest.mark.parametrize(
    "mark",
    [
        *(None, 1, "task", {}, {"kind": "task"}),
        {"kind": "x", "index": 0, "size": 1, "tokens": 1},
        {"kind": "task", "index": "0", "size": 1, "tokens": 1},
        {"kind": "task", "index": 1, "size": 1, "tokens": 1},
        {"kind": "round", "index": -1, "size": 1, "tokens": 1},
    ],
)
def test_a_mark_that_is_not_ours_is_no_mark(mark: Any) -> None:
    """A message with something else under our key is read like any other program's."""
    assert shape(read(HumanMessage("x", additional_kwargs={MARK: mark}))) == [(0, "task", ["x"])]


def test_a_block_of_ours_that_was_cut_is_left_out() -> None:
    """A history that keeps the last so many messages, or failed half-way, parts no call from its result."""
    messages = [message for one in (*worked(0, calls=2), *said(1)) for message in marked(one)]
    for start in range(len(messages)):
        assert wrong_history(flatten(read(*messages[start:]))) in ([], ["the first message is not the user's"])
    for end in range(1, 4):
        assert shape(read(*messages[:end])) == [(0, "task", ["task 0"])]


# ---------------------------------------------------------------- failures


class Broken(BaseChatMessageHistory):
    """A history whose server is away."""

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own documentation does it so
        """Raises."""
        raise OSError("no route")

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Raises."""
        raise OSError("no route")

    def clear(self) -> None:
        """Raises."""
        raise OSError("no route")


def test_what_a_history_raises_is_named_and_the_thread_is_free() -> None:
    """A failing history is a named error of the run's beginning or end, and holds no claim."""
    where: list[BaseChatMessageHistory] = [Broken()]
    store = HistoryConversations(lambda _: where[0])
    with pytest.raises(ConversationError, match="thread 't' failed: OSError: no route"):
        store.open("t", "run-1")
    with pytest.raises(ConversationError):
        store.delete("t")
    where[0] = ListHistory()
    assert store.open("t", "run-2") == ()
    where[0] = Broken()
    with pytest.raises(ConversationError):
        store.close("t", "run-2", said(0))
    where[0] = ListHistory()
    assert kept(store) == ()
