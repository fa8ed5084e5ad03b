"""`KeyFacts`: sentences with a number or a link stay after their round has left."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage

from fsm_agent.dialects import dialect_for
from fsm_agent.history import block, flatten
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.memory.facts import key_sentences, sentences
from tests.core.histories import APART, numbered, said_in, sent, summarised


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


@pytest.mark.parametrize("text", ["a. ", "No. ", "e.g. ", ".", "a", "a@", "1 2 "])
def test_a_text_of_nothing_but_one_thing_is_read_in_no_time(text: str) -> None:
    """A tool's text may be anything: the time that it takes grows with its length, not with the square of it."""
    begun = time.perf_counter()
    key_sentences(text * 60_000 + "x")
    assert time.perf_counter() - begun < 10


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
    assert text.find("summary") < text.index("Beta0")
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
