"""A view that is cut to the room that a server has: the oldest rounds first, never the task."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.history import block, flatten, text_of
from fsm_agent.memory import Full
from fsm_agent.memory.fit import fit
from fsm_agent.testing.strategies import history_of, turns
from tests.core.histories import NATIVE, numbered, said_in


@pytest.mark.parametrize("name", DIALECTS)
def test_a_view_is_cut_from_its_oldest_round(name: str) -> None:
    """With less and less room the oldest rounds go, one by one; then the results of what came last are cut; the task never is."""
    dialect = dialect_for(name)
    view = tuple(numbered(4, dialect))
    total = sum(one.tokens for one in view)
    assert fit(view, total, "[cut]") == view
    seen = []
    for room in range(total, 0, -5):
        shown = fit(view, room, "[cut]")
        text = said_in(flatten(shown))
        assert "task 0." in text
        assert view[-1].messages[0] in flatten(shown)
        assert sum(one.tokens for one in shown) <= room or len(shown) == 2
        seen.append(tuple(number for number in range(4) if f"q 0-{number}-0" in text))
    assert list(dict.fromkeys(seen)) == [(0, 1, 2, 3), (1, 2, 3), (2, 3), (3,)]


def test_a_huge_newest_result_is_cut_and_says_so() -> None:
    """When one result alone is too large, its beginning is sent, with a mark."""
    huge = block(
        "round",
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}]),
        ToolMessage("begins " + "x" * 40_000, tool_call_id="a"),
    )
    (_, shown) = fit((block("task", HumanMessage("task")), huge), 1_000, "[cut]")
    assert shown.tokens <= 1_010
    content = text_of(shown.messages[1].content)
    assert content.startswith("begins xxx")
    assert content.endswith("x[cut]")


def test_a_summary_is_cut_and_never_left_out() -> None:
    """It stands for all that was said before, whatever message it is."""
    said: list[HumanMessage | AIMessage] = [HumanMessage("so far " + "x" * 8_000), AIMessage("so far " + "x" * 8_000)]
    for summary in said:
        view = (
            block("task", HumanMessage("first"), turn=0),
            block("summary", summary, turn=0),
            block("task", HumanMessage("now"), turn=1),
        )
        shown = fit(view, 200, "[cut]")
        assert [one.kind for one in shown] == ["task", "summary", "task"]
        content = text_of(shown[1].messages[0].content)
        assert (content[:7], content[-5:], len(content) < 1_000) == ("so far ", "[cut]", True)


def test_a_note_after_a_result_in_words_is_no_result() -> None:
    """What the engine told the model is not cut, long as it is; the result before it is."""
    note = "You must " + "y" * 2_000
    words = (AIMessage("look"), HumanMessage("seen " + "x" * 8_000), HumanMessage(note))
    shown = fit((block("task", HumanMessage("task")), block("round", *words)), 1, "[cut]")[-1]
    assert text_of(shown.messages[1].content).endswith("[cut]")
    assert shown.messages[2].content == note


@given(made=turns, room=st.integers(0, 500))
def test_a_cut_view_is_never_larger(made: Any, room: int) -> None:
    """Cutting cuts: the result has no more tokens, and no more than the room when anything could go."""
    view = Full().view(history_of(NATIVE, made))
    shown = fit(view, room, "[cut]")
    assert sum(one.tokens for one in shown) <= sum(one.tokens for one in view)
