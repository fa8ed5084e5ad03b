"""What the model reads: the same sentences in both languages, and the choice between them."""

from __future__ import annotations

import string
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent import Agent
from fsm_agent.alphabet import State
from fsm_agent.language import EN, TEXTS, ZH, Language, Texts, detect_language, texts_for
from fsm_agent.table import TABLE
from fsm_agent.testing import ScriptedModel

SENTENCES = [field.name for field in fields(Texts) if field.name not in ("language", "because")]


def placeholders(text: str) -> set[str]:
    """The names between braces."""
    return {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}


def test_every_language_has_its_texts() -> None:
    """The languages that can be asked for are those that are written."""
    assert set(TEXTS) == set(get_args(Language))
    assert all(texts_for(language).language == language for language in TEXTS)


@pytest.mark.parametrize("name", [name for name in SENTENCES if name not in ("json_call",)])
def test_a_sentence_takes_the_same_values_in_both_languages(name: str) -> None:
    """Whoever fills in a sentence need not know in which language it is."""
    assert placeholders(getattr(EN, name)) == placeholders(getattr(ZH, name))


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_is_written_in_its_own_language(name: str) -> None:
    """English is ASCII, so that nothing is garbled on the way; Chinese is Chinese."""
    assert getattr(EN, name).isascii()
    assert getattr(EN, name).strip()
    assert any("\u4e00" <= char <= "\u9fff" for char in getattr(ZH, name))


@pytest.mark.parametrize("language", TEXTS)
def test_every_reason_for_a_forced_answer_has_a_sentence(language: Language) -> None:
    """The model is told why it has to answer now, whatever row led there."""
    reasons = {row.reason for row in TABLE if row.target is State.DEGRADE}
    assert reasons == set(TEXTS[language].because)
    assert all(TEXTS[language].because.values())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is 1 + 2?", "en"),
        ("", "en"),
        ("12 + 7 = ?", "en"),
        ("巴黎的天气怎么样？", "zh"),
        ("把 README.md 翻译成英文", "zh"),
        ("用 Python 写一个 quicksort 函数", "zh"),
        ("Translate 你好 into English for the greeting card, please", "en"),
        ("¿Qué tiempo hace en París?", "en"),
        ("Какая погода в Париже?", "en"),
        ("①②③ ！？", "en"),
        ("𝟙 + 𝟚", "en"),
    ],
)
def test_a_task_is_taken_to_be_in_its_own_script(text: str, language: Language) -> None:
    """Chinese is spoken to whoever writes mostly Chinese, English to everybody else."""
    assert detect_language(text) == language


@pytest.mark.parametrize(("chinese", "other", "language"), [(1, 4, "zh"), (1, 5, "en"), (2, 8, "zh"), (2, 9, "en")])
def test_a_fifth_of_the_letters_decides(chinese: int, other: int, language: Language) -> None:
    """One Chinese character in five letters is Chinese, one in six is not; digits and marks do not count."""
    assert detect_language("\u4e2d" * chinese + "a" * other + " 1, 2!") == language


@pytest.mark.parametrize(
    ("char", "language"),
    [("\u3400", "zh"), ("\u4dbf", "zh"), ("\u4e00", "zh"), ("\u9fff", "zh"), ("\u33ff", "en"), ("\uac00", "en")],
)
def test_the_chinese_blocks_are_known_to_their_ends(char: str, language: Language) -> None:
    """Unified ideographs and their first extension count; what lies beside them does not."""
    assert detect_language(char) == language


@given(st.text())
def test_any_text_has_a_language(text: str) -> None:
    """Detection never fails, and gives a language that is written."""
    assert detect_language(text) in TEXTS


@pytest.mark.parametrize(
    ("task", "asked_for", "expected"),
    [
        ("What is 1 + 2?", None, EN),
        ("一加二等于几？", None, ZH),
        ("What is 1 + 2?", "zh", ZH),
        ("一加二等于几？", "en", EN),
    ],
)
def test_an_agent_speaks_the_language_of_its_task_unless_told(
    task: str, asked_for: Language | None, expected: Texts
) -> None:
    """The system text follows the task's script; `language=` is stronger."""
    model = ScriptedModel(["3"])
    Agent(model, language=asked_for).invoke(task)
    assert model.requests[0].messages[0].content == expected.system
