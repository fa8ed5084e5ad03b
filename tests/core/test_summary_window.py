"""`SummaryWindow`: what leaves the window is summarised, nothing is lost, and a failure waits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.history import block, flatten
from fsm_agent.language import EN
from fsm_agent.memory import SummaryWindow
from fsm_agent.memory.summary import summary_prompt
from fsm_agent.testing.strategies import history_of, turns
from tests.core.histories import NATIVE, said_in, spoken, summaries, summarised


def test_what_is_summarised_is_what_left_the_window() -> None:
    """With `rounds` and `every` rounds since the last summary, all but the newest `rounds` are due; one fewer, none."""
    memory = SummaryWindow(rounds=3, every=2)
    assert memory.leaving(spoken(4)) is None
    history = spoken(5)
    leaving = memory.leaving(history)
    assert leaving == range(3)
    prompt = said_in(summary_prompt(history, leaving, "task 0.", EN))
    for number in range(5):
        assert (f"result id-0-{number}-0." in prompt) == (number < 2)
        assert (f"said 0-{number}." in prompt) == (number < 2)


def test_a_summary_takes_the_place_of_what_it_tells_of() -> None:
    """After the task stands the newest summary, then every block that it does not tell of; the next one is made from it."""
    memory = SummaryWindow(rounds=2, every=1)
    history = summarised(spoken(6), memory)
    text = said_in(flatten(memory.view(history)))
    assert text.index("task 0.") < text.index("summary") < text.index("said 0-4.")
    assert [number for number in range(6) if f"said 0-{number}." in text] == [4, 5]
    history = [*history, *spoken(1)[1:]]
    leaving = memory.leaving(history)
    assert leaving is not None
    assert "summary 0." in said_in(summary_prompt(history, leaving, "task 0.", EN))


@given(made=turns, memory=summaries)
def test_nothing_is_lost_by_summaries(made: Any, memory: SummaryWindow) -> None:
    """Every block is either shown whole or covered by a summary, and the newest rounds are shown whole; the history has all."""
    history = history_of(NATIVE, made)
    after = summarised(history, memory)
    assert [one for one in after if one.kind != "summary"] == history
    view = memory.view(after)
    at = max((index for index, one in enumerate(after) if one.kind == "summary"), default=-1)
    assert all(one in view for one in after[at + 1 :])
    rounds = [one for one in history if one.kind in ("round", "answer")]
    assert all(one in view for one in rounds[-memory.rounds :])
    assert sum(one.kind in ("round", "answer") for one in view) < memory.rounds + memory.every


def test_after_a_failure_newer_rounds_are_waited_for() -> None:
    """A summary that failed at 5 rounds is tried again at 7, with all that is due by then."""
    memory = SummaryWindow(rounds=2, every=2)
    assert memory.leaving(spoken(5)) is not None
    assert memory.leaving(spoken(5), failed_at=5) is None
    assert memory.leaving(spoken(6), failed_at=5) is None
    assert memory.leaving(spoken(7), failed_at=5) == range(6)


def test_a_long_conversation_is_summarised_in_pieces() -> None:
    """One call is given about `chunk_tokens`, and at least one round, however large that is."""
    history = spoken(30)
    size = history[1].tokens
    leaving = SummaryWindow(rounds=1, every=1, chunk_tokens=size * 4).leaving(history)
    assert leaving is not None
    assert sum(history[index].tokens for index in leaving) <= size * 6
    assert SummaryWindow(rounds=1, every=1, chunk_tokens=1).leaving(history) == range(2)


def test_a_huge_result_reaches_the_summary_with_both_its_ends() -> None:
    """The call for the summary must itself fit: the middle of a very long text is left out, and that is marked."""
    long = block(
        "round",
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}]),
        ToolMessage("first" + "x" * 9_000 + "last", tool_call_id="a"),
    )
    prompt = said_in(summary_prompt([block("task", HumanMessage("t")), long], range(2), "t", EN))
    assert len(prompt) < 4_000
    assert "first" in prompt
    assert " [...] " in prompt
    assert "last" in prompt
