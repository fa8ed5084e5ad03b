"""The text protocol Thought / Action / Action Input / Final Answer, as models really write it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.dialects.react_text import ReactReply, parse_react
from fsm_agent.dialects.repair import Fault, Malformed, Parsed, Repair

FENCE = "```"


def called(text: str, **options: Any) -> tuple[str | None, dict[str, Any]]:
    """The action and the arguments of a reply that must be a readable call."""
    reply = parse_react(text, **options)
    assert isinstance(reply.arguments, Parsed), reply
    assert reply.answer is None
    return reply.action, reply.arguments.value


def refused(text: str, **options: Any) -> Fault:
    """The fault of a reply whose action has unusable arguments."""
    reply = parse_react(text, **options)
    assert isinstance(reply.arguments, Malformed), reply
    assert reply.answer is None
    return reply.arguments.kind


def test_a_reply_in_the_protocol_is_read_without_repairs() -> None:
    """Thought, action and input come out as they were written."""
    reply = parse_react('Thought: look it up\nAction: lookup\nAction Input: {"q": "x"}')
    assert reply == ReactReply("look it up", "lookup", Parsed({"q": "x"}), None, ())


def test_a_final_answer_is_read_to_its_end() -> None:
    """The answer is everything behind the label, over several lines and with words that look like labels."""
    reply = parse_react(
        "Thought: done\nFinal Answer: It is 5.\nAction: none taken\nThought: I am sure\nObservation: so it is"
    )
    answer = "It is 5.\nAction: none taken\nThought: I am sure\nObservation: so it is"
    assert reply == ReactReply("done", None, None, answer, ())


@pytest.mark.parametrize(
    "text",
    [
        'action: lookup\naction input: {"q": "x"}',
        'ACTION: lookup\nACTION INPUT: {"q": "x"}',
        'Action： lookup\nAction Input： {"q": "x"}',
        'Thought：查一下\nAction：lookup\nAction Input：{"q"："x"}',
        '**Action:** lookup\n**Action Input:** {"q": "x"}',
        '**Action**: lookup\n**Action Input**: {"q": "x"}',
        '- Action: lookup\n- Action Input: {"q": "x"}',
        '### Action: lookup\n### Action Input: {"q": "x"}',
        'Action 1: lookup\nAction Input 1: {"q": "x"}',
        'Action_Input: {}\nAction: lookup\nAction_Input: {"q": "x"}',
        'Action:\nlookup\nAction Input:\n{"q": "x"}\n',
        'Action: lookup\r\nAction Input: {"q": "x"}\r\n',
        'Action: lookup Action Input: {"q": "x"}',
        f'Action: lookup\nAction Input: {FENCE}json\n{{"q": "x"}}\n{FENCE}',
        f'Action: lookup\nAction Input:\n{FENCE}\n{{"q": "x"}}\n{FENCE}\n',
        "Action: lookup\nAction Input: {“q”: “x”}",
        "Action: lookup\nAction Input: {'q': 'x',}",
        'Action: lookup\nAction Input: {"q": "x"} I will wait.',
        'Action: lookup\nAction Input: {"q": "x"}}',
    ],
)
def test_labels_and_inputs_are_read_in_the_forms_models_write(text: str) -> None:
    """Case, full-width colons, Markdown, numbers, one line, fences and repaired inputs all give the same call."""
    assert called(text) == ("lookup", {"q": "x"})


def test_m08_curly_quotes_in_the_input_are_repaired_and_visible() -> None:
    """The repairs of the input are those of its arguments."""
    reply = parse_react("Action: lookup\nAction Input: {“q”: “x”}")
    assert reply.arguments == Parsed({"q": "x"}, (Repair.TYPOGRAPHIC_QUOTES,))


@pytest.mark.parametrize(
    "value",
    [
        "{'a': {'b': {'c': [1, {'d': 2}]}}}",
        '{"q": "x\\nObservation: no\\nFinal Answer: no"}',
        '{"q": "x\nObservation: no\nAction: delete\nAction Input: {}\nFinal Answer: no"}',
        '{"q": "} Action Input: {"}',
        '{"q":\n  {"Action": "Action: no"}\n}',
    ],
)
def test_labels_and_braces_inside_the_input_are_text(value: str) -> None:
    """Nested braces, and labels inside strings even on lines of their own, belong to the input."""
    reply = parse_react(f"Action: lookup\nAction Input: {value}\nObservation: made up")
    assert reply.action == "lookup"
    assert isinstance(reply.arguments, Parsed)
    assert reply.repairs == (Repair.DROPPED_OBSERVATION,)


def test_of_several_actions_the_first_counts() -> None:
    """Only the first action is taken, and that there were more is visible."""
    reply = parse_react("Action: a\nAction Input: {}\nThought: then\nAction: b\nAction Input: {}")
    assert reply == ReactReply("", "a", Parsed({}), None, (Repair.FIRST_OF_SEVERAL,))


def test_what_follows_an_invented_observation_is_dropped() -> None:
    """Neither the observation nor the answer built on it counts; that they were dropped is visible."""
    text = 'Thought: t\nAction: a\nAction Input: {"q":1}\nObservation: 42\nThought: I know\nFinal Answer: 42'
    assert parse_react(text) == ReactReply("t", "a", Parsed({"q": 1}), None, (Repair.DROPPED_OBSERVATION,))


@pytest.mark.parametrize(
    "text", ["Thought: t\nObservation: 42\nFinal Answer: 42", "Observation: 42\nAction: a\nAction Input: {}"]
)
def test_an_observation_before_any_action_is_invented_too(text: str) -> None:
    """What stands on an invented observation is neither an answer nor a call."""
    reply = parse_react(text)
    assert (reply.action, reply.arguments, reply.answer) == (None, None, None)
    assert reply.repairs == (Repair.DROPPED_OBSERVATION,)


def test_a_stop_word_at_the_end_is_no_repair() -> None:
    """A bare `Observation:` where the model was stopped drops nothing."""
    assert parse_react("Action: a\nAction Input: {}\nObservation:").repairs == ()


@pytest.mark.parametrize(
    "text", ["Action: a\nAction Input: {}\nFinal Answer: 7", "Final Answer: 7\nAction: a\nAction Input: {}"]
)
def test_an_action_outweighs_a_final_answer(text: str) -> None:
    """With both in one reply the action runs and the answer waits, by a named rule."""
    assert parse_react(text) == ReactReply("", "a", Parsed({}), None, (Repair.ACTION_OVER_ANSWER,))


@pytest.mark.parametrize("none", ["None", "none", "N/A", "No action needed.", "-", ""])
def test_no_action_beside_a_final_answer_is_no_action(none: str) -> None:
    """`Action: None` says that there is none, with or without an input of the same kind."""
    for text in (f"Action: {none}\nFinal Answer: 7", f"Action: {none}\nAction Input: None\nFinal Answer: 7"):
        assert parse_react(text).answer == "7"


CUT_INPUTS = [
    '{"q": "x',
    '{"q": "x"',
    '{"q":',
    "{",
    '{"q": "x\nObservation: y',
    "{'q': [1",
    f'{FENCE}json\n{{"q":',
    f"{FENCE}json\n",
]


@pytest.mark.parametrize("cut", CUT_INPUTS)
@pytest.mark.parametrize("label", [False, True])
def test_m03_an_input_cut_in_the_middle_is_truncated(cut: str, label: bool) -> None:
    """An incomplete input is truncated whatever the label, and what follows it is not read as anything."""
    assert refused(f"Thought: t\nAction: pay\nAction Input: {cut}", truncated=label) is Fault.TRUNCATED


@pytest.mark.parametrize(
    "text", ["Action: pay", "Action: pa", "Action: pay\nAction Input:", "Thought: t\nAction: pay\nThought: so"]
)
def test_m10_a_cut_reply_never_runs_an_action_without_input(text: str) -> None:
    """With the label of truncation an action whose input is not there is truncated, not called with nothing."""
    kind = Fault.MISSING if text.endswith("so") else Fault.TRUNCATED
    assert refused(text, truncated=True) is kind


@pytest.mark.parametrize(
    "text",
    [
        "Action: pay",
        "Action: pay\nThought: so",
        "Action: pay\nObservation: ok",
        "Action: a\nAction: b\nAction Input: {}",
    ],
)
def test_m10_an_action_without_its_input_is_refused(text: str) -> None:
    """Without a label too: the protocol asks for an input, and one that is missing is not `{}`."""
    assert refused(text) is Fault.MISSING


@pytest.mark.parametrize("given", ["", " ", "{}", "null", "None"])
def test_m11_an_empty_input_is_no_arguments(given: str) -> None:
    """An input that is there and empty is for a tool without parameters."""
    assert called(f"Action: now\nAction Input: {given}\nObservation:") == ("now", {})
    assert called(f"Action: now\nAction Input: {given}") == ("now", {})


def test_m03_control_a_complete_call_before_the_cut_is_read() -> None:
    """The label of truncation belongs to what was cut: a call with text behind it was complete."""
    text = "Action: now\nAction Input:\nObservation: it is lat"
    assert called(text, truncated=True) == ("now", {})
    assert called('Action: a\nAction Input: {"q":1}', truncated=True) == ("a", {"q": 1})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("Oslo", Fault.NOT_JSON),
        ('"Oslo"', Fault.NOT_OBJECT),
        ("[1]", Fault.NOT_OBJECT),
        ('{"q": oops}', Fault.NOT_JSON),
        ('{"q":1} {"q":2}', Fault.AMBIGUOUS),
        ('{"q": „x"}', Fault.AMBIGUOUS),
    ],
)
def test_m09_an_input_that_is_no_object_is_refused(given: str, kind: Fault) -> None:
    """The action is known and its input is not usable: the fault says which, and nothing runs."""
    reply = parse_react(f"Action: lookup\nAction Input: {given}")
    assert reply.action == "lookup"
    assert isinstance(reply.arguments, Malformed)
    assert reply.arguments.kind is kind


def test_an_input_without_an_action_is_refused() -> None:
    """An input that belongs to no action is a fault, not a thought."""
    reply = parse_react('Thought: t\nAction Input: {"q":1}')
    assert (reply.action, reply.answer) == (None, None)
    assert isinstance(reply.arguments, Malformed)
    assert reply.arguments.kind is Fault.MISSING


def test_empty_thinking_is_named_too() -> None:
    """The empty block that some templates always write is passed over, and that is visible."""
    expected = ReactReply("", "a", Parsed({}), None, (Repair.THINKING,))
    assert parse_react("<think>\n\n</think>\n\nAction: a\nAction Input: {}") == expected


def test_thinking_is_a_thought_and_never_an_action() -> None:
    """A call considered inside the thinking is not one."""
    text = "<think>Action: pay\nAction Input: {}</think>\nThought: no\nFinal Answer: 3"
    assert parse_react(text) == ReactReply("no", None, None, "3", (Repair.THINKING,))


@pytest.mark.parametrize("text", ["The answer is 4.", "I will take Action: none of it", "", "  \n"])
def test_text_without_labels_is_only_a_thought(text: str) -> None:
    """Whether plain text is an answer is for the dialect; here it is neither action nor answer."""
    assert parse_react(text) == ReactReply(text.strip(), None, None, None, (), labelled=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('思考：查一下\n行动：look\n行动输入：{"q": "最终答案：1"}', ("查一下", "look", {"q": "最终答案：1"}, None)),
        ("**思考**：查\n**动作**: `look`\n**动作输入**: {“q”：“x”，}", ("查", "`look`", {"q": "x"}, None)),
        ("操作：look\n操作参数：{}\n观察：编造的\n最终答案：7", ("", "look", {}, None)),
        ("思考：好了\n最终答案：完成\n谢谢", ("好了", None, None, "完成\n谢谢")),
        ("最终答案：如下\n行动：跑步\n观察：天晴", ("", None, None, "如下\n行动：跑步\n观察：天晴")),
        ('行动：look\n行动输入：{"q": "一\n思考：二"}', ("", "look", {"q": "一\n思考：二"}, None)),
        ("思考：先看看", ("先看看", None, None, None)),
        ("行动：无\n最终答案：好", ("", None, None, "好")),
    ],
)
def test_labels_in_chinese_are_labels(text: str, expected: tuple[str, str | None, Any, str | None]) -> None:
    """A model that puts the labels into Chinese with its reply is read by them: its call is not taken for an answer."""
    reply = parse_react(text)
    given = reply.arguments.value if isinstance(reply.arguments, Parsed) else reply.arguments
    assert (reply.thought, reply.action, given, reply.answer) == expected
    assert Repair.TRANSLATED_LABELS in reply.repairs


@pytest.mark.parametrize(
    "text",
    ["计划如下。\n行动：明天去北京\n谢谢", "观察：天很蓝", "最终答案是 5", "Thought: 好\n最终答案：5", "行动输入：{}"],
)
def test_chinese_words_that_look_like_one_label_are_words(text: str) -> None:
    """Text that does not go by the labels, or has them in English, is left as it is."""
    reply = parse_react(text)
    assert (reply.action, reply.answer) == (None, None)
    assert Repair.TRANSLATED_LABELS not in reply.repairs


def test_a_call_under_chinese_labels_that_was_cut_is_cut() -> None:
    """The labels are read, and nothing else is mended."""
    assert refused('行动：look\n行动输入：{"q": "x') is Fault.TRUNCATED


def test_an_empty_final_answer_is_none() -> None:
    """A label with nothing behind it is no answer."""
    assert parse_react("Final Answer:  \n").answer is None


@given(
    st.text(st.characters(categories=["L", "N", "Zs"]), max_size=40),
    st.text(st.characters(categories=["L", "N"]), min_size=1),
)
def test_a_well_formed_reply_is_read_whatever_its_words(thought: str, name: str) -> None:
    """Any thought and any name that is not a word for "none" come out as they went in."""
    if name.lower() in {"none", "na", "null"}:
        return
    reply = parse_react(f'Thought: {thought}\nAction: {name}\nAction Input: {{"q": 1}}')
    assert (reply.thought, reply.action, reply.arguments) == (thought.strip(), name, Parsed({"q": 1}))
