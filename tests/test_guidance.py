"""What is concluded without a model: values of a task, spellings that an error suggests, tools that a task names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.dialects.guidance import (
    codes,
    corrections,
    form_of,
    marks,
    named_by,
    number_in,
    offered_by,
    shared_words,
    without_own_name,
    without_used,
)


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("Add 4389 and 7754.", ("4389", "7754")),
        ("Compute 12.5 * (1,200 - 3)", ("12.5", "1,200", "3")),
        ("What is the status of order B42?", ("B42",)),
        ("Days from 2024-02-01 to 2024-03-15?", ("2024-02-01", "2024-03-15")),
        ("Write the sum of SO-2024-001 to total.txt.", ("SO-2024-001", "total.txt")),
        ("Count the words of 'a b 3'.", ("a b 3",)),
        ('Who wrote "Red Sails" in 1999?', ("Red Sails", "1999")),
        ("It's Ann's turn, isn't it?", ()),
        ("买 5 瓶《青山》牌牛奶，订单D200，共 3.5 元", ("青山", "D200", "5", "3.5")),
        ("How are you? Fine.", ()),
        ("Move 5kg by 3pm, 24/7.", ("5", "3", "24", "7")),
    ],
)
def test_what_a_task_gives_letter_for_letter_is_found(task: str, found: tuple[str, ...]) -> None:
    """Quoted texts, codes and numbers, and no word of the sentence."""
    assert marks(task) == found


def test_codes_of_capitals_are_found_when_asked_for() -> None:
    """GBP may be an argument or a mere unit, so it takes the word of the caller."""
    assert marks("The price in GBP?") == ()
    assert marks("The price in GBP?", capitals=True) == ("GBP",)


@given(st.text(max_size=60))
def test_any_text_is_a_task(text: str) -> None:
    """Never an error, never the same value twice, and each stands in the task."""
    found = marks(text, capitals=True)
    assert len(set(found)) == len(found)
    assert all(one in text for one in found)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ([], ("7", "B42", "a.txt")),
        ([7.0], ("B42", "a.txt")),
        (["7 * 3", "order b42"], ("a.txt",)),
        ([True, None, {"path": ["a.txt"]}, 77, "17"], ("7", "B42")),
        ([70], ("7", "B42", "a.txt")),
    ],
)
def test_a_value_is_used_when_an_argument_holds_it(arguments: list[object], left: tuple[str, ...]) -> None:
    """As the same number, as text in a text, at any depth; not as a part of another number, nor as True."""
    assert without_used(("7", "B42", "a.txt"), arguments) == left


@pytest.mark.parametrize(
    ("text", "number"), [("1,200.5", 1200.5), ("-3", -3.0), ("٣", None), ("inf", None), ("nan", None), ("B42", None)]
)
def test_a_number_is_what_json_can_hold(text: str, number: float | None) -> None:
    """Commas between thousands are read; what is no finite number is none."""
    assert number_in(text) == number


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Tamsin", ("Tamsin",)),
        ("270", ("270",)),
        ('{"status": "cancelled", "by": ["Tom", 3], "paid": true}', ("cancelled", "Tom", "3")),
        ("one\ntwo", ()),
        ("x" * 61, ()),
        ("[" * 5_000, ()),
        ("[" * 5_000 + "]" * 5_000, ()),
        ("", ()),
    ],
)
def test_a_result_offers_its_short_values(text: str, values: tuple[str, ...]) -> None:
    """What could be the argument of the next call: not a page of text."""
    assert offered_by(text) == values


@pytest.mark.parametrize(
    ("name", "value", "error", "meant"),
    [
        ("product", "lamps", "unknown product 'lamps'; known: keyboard, lamp, desk", ("lamp",)),
        ("team", "support team", "unknown team 'support team'; known: design, support", ("support",)),
        ("product", "Desk", "unknown product 'Desk'", ()),
        ("city", "Veloria", "unknown city 'Veloria'; known: tamsin, kellmar", ()),
        ("department", "市场部负责人", "未知部门 '市场部负责人'; 已知: 市场部, 财务部", ("市场部",)),
        ("product", "苹", "未知商品 '苹'; 已知: 苹果, 香蕉", ()),
    ],
)
def test_an_error_suggests_the_spelling_that_was_meant(
    name: str, value: str, error: str, meant: tuple[str, ...]
) -> None:
    """Only what is nearly the value, or a word of it; the value itself is no suggestion, nor the name of the argument."""
    assert corrections(name, value, error) == meant


@pytest.mark.parametrize(
    ("value", "name", "left"),
    [
        ("support team", "team", "support"),
        ("Team Support", "team", "Support"),
        ("support", "team", ""),
        ("team", "team", ""),
    ],
)
def test_a_value_does_not_repeat_the_name_of_its_argument(value: str, name: str, left: str) -> None:
    """Empty says that nothing was left out, or that nothing would be left."""
    assert without_own_name(value, name) == left


@pytest.mark.parametrize(
    ("tool", "named"),
    [("get_order", True), ("get_customer_email", True), ("refund_order", False), ("get", False), ("delete", False)],
)
def test_a_task_names_a_tool_by_all_its_words(tool: str, named: bool) -> None:
    """Verbs of looking up aside, so that a tool that does something is never named by what it does it to."""
    assert named_by(tool, "What is the email address of the customer of order B42?") is named


def test_words_are_shared_in_both_languages() -> None:
    """Latin words without their plural, and pairs of Chinese characters."""
    assert shared_words("How many lamps are in stock?", "get stock lamp") == 2
    assert shared_words("市场部负责人的分机号", "查询部门的负责人") == 2


def test_codes_of_one_kind_have_one_form() -> None:
    """Letters and digits in the same places; words and numbers of other lengths are no siblings."""
    assert form_of("SO-2024-001") == form_of("SO-2025-117") != form_of("SO-2024-1")
    assert (form_of("B42"), form_of("total.txt"), form_of("12")) == ("A00", "", "")


def test_codes_are_neither_numbers_nor_quotations() -> None:
    """What names one thing has to be used; a number or a quotation may be an aside."""
    assert codes("Write 'x1 y2' and 12 of B42 to a.txt.") == ("B42", "a.txt")
