"""Family M: arguments and actions as models write them: fences, backticks, braces, quotes, commas and prose around them."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage

from fsm_agent import Event, Status, StopReason
from fsm_agent.dialects import JsonAction
from fsm_agent.dialects.repair import Parsed, parse_object
from fsm_agent.testing import Call, ScriptedModel, call, forever, server
from tests.faults.kit import BOTH, WAYS, Ledger, answers_in, assert_sendable, client, make, run
from tests.faults.malformed import FENCE, one_field, purge_of, repairs_of

# ---------------------------------------------------------------- M04 fences


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(
    "text",
    [
        f'{FENCE}json\n{{"city":"Oslo"}}\n{FENCE}',
        f'{FENCE}\n{{"city":"Oslo"}}\n{FENCE}',
        f'{FENCE}json\r\n{{"city":"Oslo"}}\r\n{FENCE}\r\n',
        f'  {FENCE}json  \n{{"city":"Oslo"}}   \n{FENCE}  ',
    ],
    ids=["json", "plain", "crlf", "spaces"],
)
def test_m04_a_fence_around_the_arguments_is_taken_off(text: str, way: str) -> None:
    """Fenced arguments are one clean call, and the record names the repair."""
    ledger = Ledger()

    def weather(city: str) -> str:
        """The weather."""
        ledger.note(city=city)
        return "rain"

    with ScriptedModel([Call("weather", text), "rain in Oslo"]) as model:
        result = run(make(model, [weather]), "weather in Oslo?", way)
    assert ledger.entries == [{"city": "Oslo"}]
    assert (result.status, model.count) == (Status.COMPLETED, 2)
    assert "fence" in repairs_of(result)
    said = model.requests[1].messages[2]
    assert isinstance(said, AIMessage)
    assert said.tool_calls[0]["args"] == {"city": "Oslo"}


@pytest.mark.parametrize("inner", ['["Oslo"]', '"Oslo"', "5", "true", "city=Oslo"])
def test_m04_a_fenced_value_of_another_shape_is_refused_by_its_shape(inner: str) -> None:
    """What is not an object never degrades to empty arguments: the model reads what shape is wanted."""
    ledger = Ledger()
    text = f"{FENCE}json\n{inner}\n{FENCE}"
    with ScriptedModel([Call("purge", text), "sorry"]) as model:
        run(make(model, [purge_of(ledger)]), "clean up")
    assert len(ledger) == 0
    assert "JSON object" in answers_in(model.requests[1])[0].text


# ---------------------------------------------------------------- M05 backticks that are no fence


CODE = "use `print` here, or ```py\nprint(1)\n``` there"


@pytest.mark.parametrize("way", BOTH)
def test_m05_backticks_inside_a_value_are_text(way: str) -> None:
    """Strict JSON first: a value with backticks arrives byte for byte, with no repair."""
    ledger = Ledger()

    def save(code: str) -> str:
        """Save code."""
        ledger.note(code=code)
        return "saved"

    with ScriptedModel([call("save", code=CODE), call("save", code="use `print` here"), "ok"]) as model:
        result = run(make(model, [save]), "save it", way)
    assert [entry["code"] for entry in ledger.entries] == [CODE, "use `print` here"]
    assert repairs_of(result) == set()


SHELL = f"Use `json` like so:\n\n{FENCE}sh\nrm -rf {{x}}\n{FENCE}\n\n"


def test_m05_an_earlier_code_block_is_not_the_payload() -> None:
    """Prose with inline code and a shell block before the object: the object is the call, the block is nothing."""
    ledger = Ledger()
    said = SHELL + '{"action": "lookup", "action_input": {"q": "x"}}'
    finish = '{"action": "FINISH", "action_input": {"answer": "x is 1"}}'
    with ScriptedModel([said, finish]) as model:
        result = run(make(model, [one_field(ledger)], dialect="json_action"), "what is x?")
    assert (ledger.entries, result.answer) == ([{"q": "x"}], "x is 1")


# ---------------------------------------------------------------- M06 braces in strings


HTML = "</tool_call> } {"


def test_m06_braces_inside_a_string_and_behind_the_object_are_no_json() -> None:
    """The first object of the call shape is taken whole; what follows it is ignored."""
    text = 'Action: {"name":"save","arguments":{"html":"</tool_call> } {"}} then a stray }looks like json{'
    read = parse_object(text, accept=lambda value: "name" in value)
    assert isinstance(read, Parsed)
    assert read.value == {"name": "save", "arguments": {"html": HTML}}


@pytest.mark.parametrize("way", BOTH)
def test_m06_through_the_agent_the_value_is_untouched(way: str) -> None:
    """The same in the text dialect: the tool gets the string as it was written."""
    ledger = Ledger()

    def save(html: str) -> str:
        """Save HTML."""
        ledger.note(html=html)
        return "saved"

    said = 'Action: {"action":"save","action_input":{"html":"</tool_call> } {"}} then a stray }looks like json{'
    finish = '{"action": "FINISH", "action_input": {"answer": "saved"}}'
    with ScriptedModel([said, finish]) as model:
        result = run(make(model, [save], dialect="json_action"), "save it", way)
    assert (ledger.entries, result.answer) == ([{"html": HTML}], "saved")


# ---------------------------------------------------------------- M08 typographic quotes


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{“q”: “x”}", "x"),
        ('{"q": "She said “hi”"}', "She said “hi”"),
        ("{“q”: “it’s”}", "it’s"),
    ],
    ids=["delimiters", "inside", "apostrophe"],
)
def test_m08_curly_quotes_are_mended_as_delimiters_only(text: str, expected: str, way: str) -> None:
    """Curly quotes around keys and values are delimiters; inside a valid value they are text."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", text), "ok"]) as model:
        run(make(model, [one_field(ledger)]), "look", way)
    assert ledger.entries == [{"q": expected}]


@pytest.mark.parametrize("way", BOTH)
def test_m08_a_value_with_two_readings_is_refused(way: str) -> None:
    """A value opened with a low quote and closed by a straight one is refused, never guessed shorter."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", '{"q": „abc" and more"}'), "ok"]) as model:
        result = run(make(model, [one_field(ledger)]), "look", way)
    assert (len(ledger), result.tool_calls, model.count) == (0, 0, 2)
    assert answers_in(model.requests[1])[0].status == "error"


# ---------------------------------------------------------------- M09 trailing commas, prose, and a cap on failures


def test_m09_trailing_commas_and_prose_in_arguments() -> None:
    """A trailing comma and an apology around the object do not hide it."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", 'Sure! {"q":"x",} Hope that helps.'), "ok"]) as model:
        run(make(model, [one_field(ledger)]), "look")
    assert ledger.entries == [{"q": "x"}]


@pytest.mark.parametrize(
    "said",
    [
        'Sure! {"action":"lookup","action_input":{"q":"x",}} Hope that helps.',
        'Sure! {"name":"lookup","args":{"q":"x",}} Hope that helps.',
    ],
    ids=["own-keys", "other-keys"],
)
def test_m09_in_a_text_dialect(said: str) -> None:
    """In a text dialect q=x is recovered, also under the other usual keys."""
    ledger = Ledger()
    finish = '{"action": "FINISH", "action_input": {"answer": "ok"}}'
    with ScriptedModel([said, forever(finish)]) as model:
        result = run(make(model, [one_field(ledger)], dialect="json_action"), "look")
    assert ledger.entries == [{"q": "x"}]
    assert result.answer == "ok"


@pytest.mark.parametrize("way", WAYS)
def test_m09_unreadable_replies_are_counted_and_capped(way: str) -> None:
    """A model that never writes JSON is asked a bounded number of times; no failure becomes a command or an answer."""
    ledger = Ledger()
    with ScriptedModel([forever("I would rather chat {oops")]) as model:
        result = run(make(model, [one_field(ledger)], dialect="json_action"), "look", way)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES)
    assert (result.answer, len(ledger), result.tool_calls) == (None, 0, 0)
    assert model.count == 3
    assert Event.STRATEGY_CHANGED in [record.event for record in result.transitions]
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", BOTH)
def test_m09_unreadable_arguments_are_counted_and_capped(way: str) -> None:
    """The same for native calls whose arguments never parse: three replies, no execution."""
    ledger = Ledger()
    with ScriptedModel([forever(Call("lookup", "q is x"))]) as model:
        result = run(make(model, [one_field(ledger)]), "look", way)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES)
    assert (model.count, len(ledger), result.tool_calls) == (3, 0, 0)
    assert_sendable(model.requests)


# ---------------------------------------------------------------- M20 one brace too many


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("text", ['{"q":"1"}}', '{"q":"1"}]', '{"q":"1"};'])
def test_m20_closing_punctuation_behind_a_complete_object_is_dropped(text: str, way: str) -> None:
    """A complete object with a bracket too many is that object."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", text), "ok"]) as model:
        result = run(make(model, [one_field(ledger)]), "look", way)
    assert ledger.entries == [{"q": "1"}]
    assert "extra_closing" in repairs_of(result)


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("text", ['{"{"q":1}', '{"q":1}{"q":2}', '{"q":"1"} {"q":"2"', "}{", '{"q": "1" "r"}'])
def test_m20_a_garbled_object_is_refused_without_a_crash(text: str, way: str) -> None:
    """What has no single reading takes the malformed path: nothing runs, nothing raises."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", text), "ok"]) as model:
        result = run(make(model, [one_field(ledger)]), "look", way)
    assert (result.status, len(ledger), result.tool_calls) == (Status.COMPLETED, 0, 0)


def test_m_a_json_action_schema_leaves_the_model_no_room() -> None:
    """Where the server constrains the reply, the schema admits exactly the tools and FINISH, with closed objects."""
    with server(['{"action": "FINISH", "action_input": {"answer": "ok"}}']) as s:
        result = run(make(client(s), [one_field(Ledger())], dialect=JsonAction()), "look")
    sent = s.requests[0].body["response_format"]["json_schema"]["schema"]
    names = [variant["properties"]["action"]["const"] for variant in sent["anyOf"]]
    assert (result.answer, names) == ("ok", ["lookup", "FINISH"])
    assert all(variant["additionalProperties"] is False for variant in sent["anyOf"])
