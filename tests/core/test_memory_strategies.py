"""What every memory must do: what it shows is valid at every size, and what must stay stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.history import flatten, text_of
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.memory.fit import fit
from fsm_agent.testing.strategies import Round, history_of, turns
from tests.core.histories import NATIVE, said_in, sent, sizes, summaries, summarised
from tests.core.validity import wrong_prompt

dual_buffers = st.builds(
    DualBuffer, reasoning=sizes, results=sizes, max_tokens=st.none() | st.sampled_from([1, 40, 80, 160, 320])
)
inner: st.SearchStrategy[Memory] = st.one_of(
    st.just(Full()), st.builds(Window, rounds=sizes), st.builds(MessageWindow, messages=sizes), dual_buffers, summaries
)
memories: st.SearchStrategy[Memory] = inner | st.builds(KeyFacts, inner=inner, per_round=st.integers(1, 4))


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=200)
@given(made=turns, memory=memories, room=st.none() | st.integers(0, 400))
def test_what_any_memory_shows_is_valid(name: str, made: Any, memory: Memory, room: int | None) -> None:
    """At every size, for every history, summarised or not, cut to any room: a strict provider takes it, tasks and news are in it."""
    dialect = dialect_for(name)
    history = history_of(dialect, made)
    if hasattr(memory, "leaving"):
        history = summarised(history, memory)
    view = memory.view(history)
    seen = view if room is None else fit(view, room, "[cut]")
    messages = sent(dialect, seen)
    assert wrong_prompt(messages) == [], (memory, messages)
    text = said_in(messages)
    assert "task 0." in text
    assert f"task {len(made) - 1}." in text
    if room is None:
        assert all(text_of(message.content) in text for message in history[-1].messages)


@given(made=turns, memory=memories)
def test_a_memory_changes_nothing_and_says_the_same_twice(made: Any, memory: Memory) -> None:
    """A view is a function of the history: no block of it is touched, and the next view is equal."""
    history = tuple(history_of(NATIVE, made))
    before = said_in(flatten(history)), [one.tokens for one in history]
    first = memory.view(history)
    assert memory.view(list(history)) == first
    assert (said_in(flatten(history)), [one.tokens for one in history]) == before


@pytest.mark.parametrize("memory", [DualBuffer(), SummaryWindow(), KeyFacts(Window(2)), MessageWindow(4)], ids=str)
def test_a_memory_of_nothing_is_nothing(memory: Memory) -> None:
    """An empty history has an empty view."""
    assert memory.view(()) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MessageWindow(0),
        lambda: DualBuffer(reasoning=0),
        lambda: DualBuffer(results=True),
        lambda: DualBuffer(max_tokens=0),
        lambda: DualBuffer(share_of_context=0),
        lambda: DualBuffer(share_of_context=1.5),
        lambda: DualBuffer(share_of_context=True),
        lambda: SummaryWindow(rounds=0),
        lambda: SummaryWindow(every=0),
        lambda: SummaryWindow(chunk_tokens=-1),
        lambda: KeyFacts(per_round=0),
        lambda: KeyFacts(at_most=0),
    ],
)
def test_a_size_that_is_none_is_refused(wrong: Any) -> None:
    """The error names the memory and the field."""
    with pytest.raises(DefinitionError, match=r"(MessageWindow|DualBuffer|SummaryWindow|KeyFacts)\(\w+="):
        wrong()


@pytest.mark.parametrize("inner", [3, "window", Window])
def test_key_facts_around_no_memory_are_refused(inner: Any) -> None:
    """Where they are written, not when a run first asks for its view."""
    with pytest.raises(DefinitionError, match=r"KeyFacts\(.*give a memory, as in KeyFacts\(Window\(rounds=3\)\)"):
        KeyFacts(inner)


@pytest.mark.parametrize("memory", [Full(), Window(9), MessageWindow(99), DualBuffer()], ids=str)
def test_a_summary_of_another_memory_is_not_shown_beside_what_it_tells_of(memory: Memory) -> None:
    """A thread whose agent had a SummaryWindow before: the blocks are all there, so their summary is left out."""
    history = summarised(history_of(NATIVE, [([Round(1, False, False)] * 5, False)]), SummaryWindow(1, 1))
    assert any(one.kind == "summary" for one in history)
    assert not any(one.kind == "summary" for one in memory.view(history))
