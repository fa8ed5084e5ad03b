"""`DualBuffer`: what the model said and what its tools gave are remembered for different lengths, within a ceiling."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.history import block, flatten, text_of
from fsm_agent.language import EN, ZH
from fsm_agent.memory import DualBuffer, KeyFacts, Window
from fsm_agent.memory.tokens import fitted
from tests.core.histories import APART, NATIVE, said_in, sent, spoken


@pytest.mark.parametrize("name", DIALECTS)
def test_reasoning_of_six_rounds_and_results_of_three(name: str) -> None:
    """The numbers of the reference: what was said and asked of the last 6, what came of the last 3, nothing of older ones."""
    text = said_in(sent(dialect_for(name), DualBuffer().view(spoken(8, dialect_for(name)))))
    asked = [number for number in range(8) if f"q 0-{number}-0." in text]
    given_ = [number for number in range(8) if f"result id-0-{number}-0." in text]
    assert (asked, given_) == ([2, 3, 4, 5, 6, 7], [5, 6, 7])
    assert text.count(EN.older_result) == 3
    if name == "native":
        assert [number for number in range(8) if f"said 0-{number}." in text] == asked


def test_every_call_still_has_its_result() -> None:
    """Strict providers take no call without a result: an old one is answered by a short stand-in under its own id."""
    messages = sent(NATIVE, DualBuffer(reasoning=4, results=1).view(spoken(4)))
    answers = {one.tool_call_id: one.content for one in messages if isinstance(one, ToolMessage)}
    assert [answers[f"id-0-{number}-0"] == EN.older_result for number in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("name", APART)
def test_above_the_ceiling_reasoning_goes_first_and_oldest_first(name: str) -> None:
    """From ceiling to ceiling one more round loses its reasoning, the oldest that has any; the three results never go."""
    dialect = dialect_for(name)
    history = spoken(8, dialect)
    whole = sum(one.tokens for one in DualBuffer().view(history))
    shown_by_size = []
    for ceiling in range(whole, 0, -1):
        text = said_in(sent(dialect, DualBuffer(max_tokens=ceiling).view(history)))
        shown_by_size.append(tuple(number for number in range(8) if f"q 0-{number}-0." in text))
        assert [number for number in range(8) if f"result id-0-{number}-0." in text] == [5, 6, 7]
    assert list(dict.fromkeys(shown_by_size)) == [tuple(range(first, 8)) for first in range(2, 8)]


def test_a_result_without_its_reasoning_is_told_by_the_user() -> None:
    """No provider takes a result without its call, so the result is written as a message of the user's, with its tool."""
    view = DualBuffer(reasoning=1, results=2).view(spoken(2))
    assert [type(one) for one in flatten(view)] == [HumanMessage, HumanMessage, AIMessage, ToolMessage]
    assert text_of(flatten(view)[1].content) == "Result of look: result id-0-0-0."


@given(st.integers(1, 400), st.integers(1, 9))
def test_a_ceiling_is_kept_as_far_as_results_and_tasks_allow(ceiling: int, count: int) -> None:
    """The view is within the ceiling, or nothing with reasoning is left in it but the newest round."""
    view = DualBuffer(max_tokens=ceiling).view(spoken(count))
    older = [message for one in view[:-1] for message in one.messages]
    assert sum(one.tokens for one in view) <= ceiling or not any(isinstance(one, AIMessage) for one in older)


def test_the_ceiling_is_a_share_of_the_context() -> None:
    """70 % of what the model holds, unless a number is given; unknown until an agent says how large the context is."""
    assert DualBuffer(context_tokens=32_000).ceiling == 22_400
    assert DualBuffer(context_tokens=32_000, share_of_context=0.5).ceiling == 16_000
    assert DualBuffer(context_tokens=32_000, max_tokens=18_000).ceiling == 18_000
    assert DualBuffer().ceiling is None
    assert DualBuffer().for_context(1_000).ceiling == 700
    assert DualBuffer(max_tokens=5).for_context(1_000).ceiling == 5


@pytest.mark.parametrize(
    "profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": "9"}, {"max_input_tokens": 0}]
)
def test_a_model_without_a_profile_leaves_the_memory_as_it_is(profile: Any) -> None:
    """Only a whole number of tokens is believed."""

    class Model:
        _generate = None

        def __init__(self) -> None:
            self.profile = profile

    assert fitted(DualBuffer(), Model()).ceiling is None
    sized = Model()
    sized.profile = {"max_input_tokens": 10_000}
    assert fitted(DualBuffer(), sized).ceiling == 7_000
    assert fitted(KeyFacts(DualBuffer()), sized).inner.ceiling == 7_000
    assert fitted(Window(3), sized) == Window(3)


def test_a_chinese_task_gets_chinese_stand_ins() -> None:
    """What the memory adds is in the language of the task."""
    history = [block("task", HumanMessage("查一下价格")), *spoken(3)[1:]]
    assert ZH.older_result in said_in(flatten(DualBuffer(reasoning=3, results=1).view(history)))
