"""The memories that show less of a round, or tell of it: what they show is valid at every size, and what must stay stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.dialects import DIALECTS, dialect_for
from fsm_agent.errors import DefinitionError
from fsm_agent.history import Block, block, flatten, text_of
from fsm_agent.language import EN, ZH
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.memory.facts import key_sentences, sentences
from fsm_agent.memory.fit import fit
from fsm_agent.memory.summary import summary_block, summary_prompt
from fsm_agent.memory.tokens import fitted
from tests.core.test_memory import Round, history_of, round_of, said_in, sent, turns
from tests.core.validity import wrong_prompt

NATIVE = dialect_for("native")
sizes = st.integers(1, 7)
dual_buffers = st.builds(
    DualBuffer, reasoning=sizes, results=sizes, max_tokens=st.none() | st.sampled_from([1, 40, 80, 160, 320])
)
summaries = st.builds(
    SummaryWindow, rounds=sizes, every=st.integers(1, 3), chunk_tokens=st.sampled_from([1, 100, 6_000])
)
inner: st.SearchStrategy[Memory] = st.one_of(
    st.just(Full()), st.builds(Window, rounds=sizes), st.builds(MessageWindow, messages=sizes), dual_buffers, summaries
)
memories: st.SearchStrategy[Memory] = inner | st.builds(KeyFacts, inner=inner, per_round=st.integers(1, 4))


def summarised(history: Sequence[Block], memory: Any) -> list[Block]:
    """The history after the summaries that `memory` asks for, each named by its number."""
    blocks = list(history)
    number = 0
    while (leaving := memory.leaving(blocks)) is not None:
        blocks.insert(leaving.stop, summary_block(f"summary {number}.", EN, blocks[-1].turn))
        number += 1
        assert number <= len(history), "each summary takes at least one round away"
    return blocks


# ---------------------------------------------------------------- what every memory must do


APART = sorted(set(DIALECTS) - {"guided_json"})
"""The dialects that write a call and its result apart; `guided_json` says the call again with its result."""


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


@pytest.mark.parametrize("memory", [Full(), Window(9), MessageWindow(99), DualBuffer()], ids=str)
def test_a_summary_of_another_memory_is_not_shown_beside_what_it_tells_of(memory: Memory) -> None:
    """A thread whose agent had a SummaryWindow before: the blocks are all there, so their summary is left out."""
    history = summarised(history_of(NATIVE, [([Round(1, False, False)] * 5, False)]), SummaryWindow(1, 1))
    assert any(one.kind == "summary" for one in history)
    assert not any(one.kind == "summary" for one in memory.view(history))


# ---------------------------------------------------------------- DualBuffer


def spoken(count: int, dialect: Any = NATIVE) -> list[Block]:
    """One task and so many rounds in which the model speaks and calls once."""
    return history_of(dialect, [([Round(1, True, False)] * count, False)])


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


# ---------------------------------------------------------------- SummaryWindow


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


# ---------------------------------------------------------------- KeyFacts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The price is 3.50 EUR. It rose. Stock: 7.", ["The price is 3.50 EUR.", "Stock: 7."]),
        ("See https://shop.example/a?b=1.2&c=3. Nothing else.", ["See https://shop.example/a?b=1.2&c=3."]),
        ("Version 1.2.3 is out! Python 3.12? Yes.", ["Version 1.2.3 is out!", "Python 3.12?"]),
        ("Dr. Lee paid approx. 5 USD, e.g. in cash. Good.", ["Dr. Lee paid approx. 5 USD, e.g. in cash."]),
        ("U.S. sales were 7. Fine.", ["U.S. sales were 7."]),
        ("Fig. 3 and No. 5 at 10 a.m. today. So.", ["Fig. 3 and No. 5 at 10 a.m. today."]),
        ("价格是3.50元。天气很好。库存7件！", ["价格是3.50元。", "库存7件！"]),
        ("请看 https://例子.test/一；没有别的。", ["请看 https://例子.test/一；"]),
        ("他说“总共三百元。”然后走了。", ["他说“总共三百元。”"]),
        ("３．１４是圆周率。是的。", ["３．１４是圆周率。"]),
        ("Mixed 中文 text。Has 2 parts. End", ["Has 2 parts."]),
        ("1. First: 5 kg.\n2. Second.\nplain\n- third: 7", ["1. First: 5 kg.", "2. Second.", "- third: 7"]),
        ("mail bob@x.example. Or call.", ["mail bob@x.example."]),
        ("no numbers here. none at all.", []),
        ("", []),
    ],
)
def test_sentences_with_a_number_or_a_link_are_key_facts(text: str, expected: list[str]) -> None:
    """Chinese and Latin marks end sentences; decimals, versions, addresses and abbreviations do not."""
    assert list(key_sentences(text)) == expected


@given(
    st.lists(
        st.sampled_from(
            ["3.14", "a", "。", ". ", "!", "；", "\n", "https://a.example/1.2", "e.g. ", "七", "…", "”", "v1.2.3"]
        ),
        max_size=20,
    )
)
def test_sentences_lose_nothing_but_space(parts: list[str]) -> None:
    """Joined again they are the text; and no number or address is in two of them."""
    text = "".join(parts)
    found = list(sentences(text))
    assert "".join("".join(found).split()) == "".join(text.split())
    for whole in ("3.14", "https://a.example/1.2", "v1.2.3"):
        assert sum(one.count(whole) for one in found) == text.count(whole)


@given(st.text(st.sampled_from("ab1 ,.，。"), max_size=900))
def test_a_very_long_sentence_is_cut_where_words_part(text: str) -> None:
    """At most about 300 characters, and no number is cut: every word of the fact is a word of the text."""
    words = set(text.replace("，", " ").replace(",", " ").split())
    for fact in key_sentences(text):
        assert len(fact) <= 304
        if fact.endswith(" ..."):
            assert set(fact[:-4].replace("，", " ").replace(",", " ").split()) <= words


def numbered(count: int, dialect: Any = NATIVE) -> list[Block]:
    """A task and rounds whose results hold four facts each and a sentence that is none."""
    history = [block("task", HumanMessage("task 0."))]
    for number in range(count):
        one = round_of(dialect, Round(1, False, False), 0, f"0-{number}")
        told = [
            message.model_copy(
                update={"content": text_of(message.content).replace(f"result id-0-{number}-0.", facts_text(number))}
            )
            for message in one.messages
        ]
        history.append(block("round", *told))
    return history


def facts_text(number: int) -> str:
    """A result with four key facts."""
    return f"Alpha{number} is 1. Nothing. Beta{number} is 2. Gamma{number} is 3. Delta{number} is 4."


@pytest.mark.parametrize("name", APART)
def test_key_facts_stay_after_their_round_has_left(name: str) -> None:
    """Three a round, in order, of the rounds that are not shown, and only of those; after the task, before the rounds."""
    dialect = dialect_for(name)
    history = numbered(5, dialect)
    text = said_in(sent(dialect, KeyFacts(Window(2)).view(history)))
    for number in range(5):
        gone = number < 3
        assert text.count(f"Alpha{number} is 1.") == 1
        assert text.count(f"Gamma{number} is 3.") == 1
        assert (f"Delta{number} is 4." in text) == (not gone)
        assert (text.index(f"Alpha{number}") < text.index("q 0-3-0.")) == gone
    assert text.index("task 0.") < text.index("Alpha0")
    assert "Nothing." not in text.partition("q 0-3-0.")[0]


@pytest.mark.parametrize("memory", [Window(1), MessageWindow(4), DualBuffer(1, 1), SummaryWindow(1, 1)], ids=str)
def test_key_facts_go_with_any_memory(memory: Memory) -> None:
    """Whatever the inner memory has let go, its numbers are still there; a summary stays the newest word before them."""
    history = numbered(6)
    if isinstance(memory, SummaryWindow):
        assert KeyFacts(memory).leaving(history) == memory.leaving(history)
        history = summarised(history, KeyFacts(memory))
    text = said_in(flatten(KeyFacts(memory).view(history)))
    assert all(f"Beta{number} is 2." in text for number in range(6))
    assert ("summary" in text) == isinstance(memory, SummaryWindow)
    assert KeyFacts(Full()).view(numbered(3)) == tuple(numbered(3))


def test_the_same_fact_is_kept_once_and_the_newest_are_kept() -> None:
    """A prompt stays flat: told twice it stands once, and beyond `at_most` the oldest go."""
    history = [*numbered(1), *numbered(30)[1:]]
    facts = KeyFacts(Window(1), at_most=5).facts(history)
    assert len(facts) == len(set(facts)) == 5
    assert facts[-1] == "look: Gamma29 is 3."


def test_an_error_is_no_fact() -> None:
    """What a failing tool says of port 8080 is not remembered as known."""
    failed = block(
        "round",
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}]),
        ToolMessage("No reply from port 8080.", tool_call_id="a", status="error"),
    )
    assert KeyFacts(Window(1)).facts([failed, *numbered(2)[1:]]) == KeyFacts(Window(1)).facts(numbered(2)[1:])


# ---------------------------------------------------------------- fit


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


@given(made=turns, room=st.integers(0, 500))
def test_a_cut_view_is_never_larger(made: Any, room: int) -> None:
    """Cutting cuts: the result has no more tokens, and no more than the room when anything could go."""
    view = Full().view(history_of(NATIVE, made))
    shown = fit(view, room, "[cut]")
    assert sum(one.tokens for one in shown) <= sum(one.tokens for one in view)
