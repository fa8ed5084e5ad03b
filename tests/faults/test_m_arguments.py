"""Family M: arguments that are none, of another shape or type, missing, or beside their place: never guessed, never dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage

from fsm_agent import Status, tool
from fsm_agent.testing import Call, ScriptedModel, call, fault, reply, server
from tests.faults.kit import BOTH, WAYS, Ledger, answers_in, client, make, run
from tests.faults.malformed import one_field, purge_of, repairs_of

# ---------------------------------------------------------------- M10 never an empty object for failed text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "text", ['{"scope":"tm', '{"scope":', "[", "scope=tmp", '{"scope" "tmp"}', "[1]", '"x"', "7", "true"]
)
def test_m10_failed_text_is_never_an_empty_object(text: str, way: str) -> None:
    """A tool whose defaults do harm is not run on arguments that could not be read."""
    ledger = Ledger()
    with ScriptedModel([Call("purge", text), "sorry"]) as model:
        result = run(make(model, [purge_of(ledger)]), "clean up", way)
    assert (len(ledger), result.tool_calls, result.status) == (0, 0, Status.COMPLETED)
    assert answers_in(model.requests[1])[0].status == "error"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["[]", "0", "false", '""', "[1]", '"x"', "7"])
def test_m10_a_value_that_is_no_object_is_not_no_arguments(text: str, way: str) -> None:
    """The real client reads [], 0, false and "" as {}; still the tool with the harmful defaults is not run."""
    ledger = Ledger()
    with server([Call("purge", text), "sorry"]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", way)
    assert (len(ledger), result.tool_calls, result.status, s.count) == (0, 0, Status.COMPLETED, 2)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [([], "a list"), (["tmp"], "a list"), ([{"scope": "tmp"}], "a list"), (True, "true or false")],
)
def test_m10_arguments_that_a_client_read_as_no_object_are_told_by_their_shape(arguments: Any, shape: str) -> None:
    """An array in the place of the object runs nothing, whatever is in it, and the model reads that it sent one."""
    ledger = Ledger()
    asked = AIMessage("")
    asked.tool_calls = [{"name": "purge", "args": arguments, "id": "a", "type": "tool_call"}]
    with ScriptedModel([asked, "sorry"]) as model:
        run(make(model, [purge_of(ledger)]), "clean up")
    assert len(ledger) == 0
    assert f"must be a JSON object, not {shape}" in answers_in(model.requests[1])[0].text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the client's own models
def test_m10_an_empty_object_of_a_cut_reply_is_not_no_arguments(way: str) -> None:
    """The cap was reached before the arguments began; that the server closed the object for it changes nothing."""
    ledger = Ledger()
    cut = replace(fault.object_arguments(call("purge")), reply=reply("", call("purge"), finish_reason="length"))
    with server([cut, "done"]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", way)
    assert (result.status, len(ledger), s.count) == (Status.COMPLETED, 0, 2)


BESIDE = {
    "flat": ('{"action": "purge", "scope": "tmp"}', ["tmp"]),
    "flat, under the key of a name": ('{"tool": "purge", "scope": "tmp"}', ["tmp"]),
    "flat, behind a thought": ('{"thought": "tidy", "action": "purge", "scope": "tmp"}', ["tmp"]),
    "under another key": ('{"action": "purge", "kwargs": {"scope": "tmp"}}', []),
    "beside an empty input": ('{"action": "purge", "action_input": {}, "scope": "tmp"}', []),
    "beside no input": ('{"action": "purge", "action_input": null, "arguments": {"scope": "tmp"}}', ["tmp"]),
    "two inputs": ('{"action": "purge", "action_input": {}, "arguments": {"scope": "tmp"}}', []),
    "a flag beside": ('{"action": "purge", "action_input": {"scope": "tmp"}, "dry_run": true}', []),
    "thoughts only": ('{"thought": "all of it", "action": "purge", "observation": ""}', ["all"]),
    "an envelope": ('{"id": "1", "type": "function", "name": "purge", "parameters": {"scope": "tmp"}}', ["tmp"]),
    "words for a reader": (
        '{"action": "purge", "action_input": {"scope": "tmp"}, "reason": "tidy", "next_step": "none", "status": "ok"}',
        ["tmp"],
    ),
    "only words for a reader": ('{"action": "purge", "reason": "asked for"}', ["all"]),
    "empty, beside": ('{"action": "purge", "action_input": {"scope": "tmp"}, "error": null}', ["tmp"]),
}


@pytest.mark.parametrize("dialect", ["json_action", "guided_json"])
@pytest.mark.parametrize(("text", "done"), BESIDE.values(), ids=BESIDE)
def test_m10_what_stands_beside_the_input_of_an_action_is_not_dropped(text: str, done: list[str], dialect: str) -> None:
    """Arguments that are not where they belong are read from there, or the model is told; the defaults never run in their place."""
    ledger = Ledger()
    with ScriptedModel([text, '{"action": "FINISH", "answer": "done"}']) as model:
        result = run(make(model, [purge_of(ledger)], dialect=dialect), "clean up")
    assert ([entry["scope"] for entry in ledger.entries], result.answer) == (done, "done")
    assert done or "purge" in model.requests[1].text


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "refund", "action_input": {"order": "7"}, "reason": "broken"}',
        '{"action": "refund", "order": "7", "reason": "broken"}',
    ],
)
def test_m19_a_word_beside_an_action_that_its_tool_has_an_argument_for_is_told(text: str) -> None:
    """What is commentary for one tool is an argument of another: it is not left out there."""
    ledger = Ledger()

    def refund(order: str, reason: str = "none given") -> str:
        """Refund an order."""
        ledger.note(order=order, reason=reason)
        return "refunded"

    with ScriptedModel([text, '{"action": "FINISH", "answer": "done"}']) as model:
        result = run(make(model, [refund], dialect="json_action"), "refund it")
    assert (len(ledger), result.answer) == (0, "done")
    assert 'found "reason" outside of "action_input"' in model.requests[1].text


@pytest.mark.parametrize("dialect", ["json_action", "guided_json"])
@pytest.mark.parametrize(
    "text",
    [
        '{"id": "call_1", "type": "function", "name": "ponder", "parameters": {"thought": "deep", "id": "7"}}',
        '{"thought": "I should think", "solved": false, "action": "ponder", "action_input": {"thought": "deep", "id": "7"}}',
    ],
)
def test_m10_an_argument_in_its_place_is_taken_whatever_stands_beside_it(text: str, dialect: str) -> None:
    """A word around an action that has the name of an argument hides nothing where the argument is given: the call runs."""
    ledger = Ledger()

    def ponder(thought: str, id: str) -> str:
        """Think about a case."""
        ledger.note(thought=thought, id=id)
        return "noted"

    with ScriptedModel([text, '{"action": "FINISH", "answer": "done"}']) as model:
        result = run(make(model, [ponder], dialect=dialect), "think it over")
    assert (ledger.entries, result.answer) == ([{"thought": "deep", "id": "7"}], "done")


@pytest.mark.parametrize("way", WAYS)
def test_m10_half_a_character_is_refused_in_a_stream_too(way: str) -> None:
    """Half of a surrogate pair is no character, and nothing else is put in its place; two pieces that make one are it."""
    ledger = Ledger()

    def look(q: str) -> str:
        """Look."""
        ledger.note(q=q)
        return "seen"

    halves = "\ud83d" + "\ude00"
    said = [call("look", q="a\ud800"), call("look", q="C:\\\ud800"), Call("look", '{"q": "C:\\\ud800"}')]
    with ScriptedModel([*said, Call("look", f'{{"q": "{halves}"}}'), "done"]) as model:
        run(make(model, [look], limits={"abort_after": 9}), "look", way)
    assert ledger.entries == [{"q": "\U0001f600"}]
    for request, asked in enumerate(said, start=1):
        assert "half of a surrogate pair" in model.requests[request].messages[-1].text, asked


def test_m10_nesting_without_end_breaks_no_guided_run() -> None:
    """A result, and a text beside calls, that nest deeper than a parser follows are texts like others."""
    ledger = Ledger()

    def dig(q: str) -> str:
        """Dig."""
        ledger.note(q=q)
        return "[" * 5_000

    nested = reply("[" * 5_000, call("dig", q="a"))
    model = ScriptedModel([nested, '{"action": "FINISH", "action_input": {"answer": "a hole"}}'])
    result = run(make(model, [dig], dialect="guided_json"), "dig 'a'")
    assert (ledger.entries, result.answer) == ([{"q": "a"}], "a hole"), result.detail


def test_m10_the_thought_of_a_guided_reply_is_no_argument() -> None:
    """The dialect asks for it beside each action, so that it says nothing of an argument of that name."""
    ledger = Ledger()

    def close(ticket: str, solved: bool = False, thought: str = "") -> str:
        """Close a ticket."""
        ledger.note(ticket=ticket, solved=solved, thought=thought)
        return "closed"

    text = '{"thought": "It must be closed", "solved": false, "action": "close", "action_input": {"ticket": "7"}}'
    with ScriptedModel([text, '{"action": "FINISH", "answer": "done"}']) as model:
        run(make(model, [close], dialect="guided_json"), "close it")
    assert ledger.entries == [{"ticket": "7", "solved": False, "thought": ""}]


# ---------------------------------------------------------------- M11 no arguments


NO_ARGUMENTS = ["", "   ", "null", "{}", " {} "]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("text", NO_ARGUMENTS)
def test_m11_a_tool_without_parameters_runs_on_nothing(text: str, way: str) -> None:
    """Empty, blank, null and {} all run a tool that takes nothing, once."""
    ledger = Ledger()

    def now() -> str:
        """The time."""
        ledger.note()
        return "12:00"

    with ScriptedModel([Call("now", text), "noon"]) as model:
        result = run(make(model, [now]), "time?", way)
    assert (len(ledger), result.answer, model.count) == (1, "noon", 2)


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("text", NO_ARGUMENTS)
def test_m11_a_required_field_is_said_to_be_missing(text: str, way: str) -> None:
    """The same texts for a tool with a required field: the message names the field, not JSON."""
    ledger = Ledger()
    with ScriptedModel([Call("lookup", text), "ok"]) as model:
        run(make(model, [one_field(ledger)]), "look", way)
    told = answers_in(model.requests[1])[0].text
    assert len(ledger) == 0
    assert '"q" is missing' in told
    assert "JSON" not in told


@pytest.mark.parametrize("arguments", [None, "", "{}"], ids=["null", "empty", "object"])
def test_m11_null_arguments_of_a_server(arguments: str | None) -> None:
    """Arguments that are a JSON null on the wire are no arguments."""
    ledger = Ledger()

    def now() -> str:
        """The time."""
        ledger.note()
        return "12:00"

    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}],
    }
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    with server([body, "noon"]) as s:
        result = run(make(client(s), [now]), "time?")
    assert (len(ledger), result.answer) == (1, "noon")


# ---------------------------------------------------------------- M18 types


def typed(ledger: Ledger, **options: Any) -> Any:
    """A tool with one field of each awkward type."""

    @tool(**options)
    def typed_call(
        flag: bool = True,
        text: str = "",
        count: int = 0,
        ratio: float = 0.0,
        either: str | int = "",
        kind: Literal[1, 2] = 1,
    ) -> str:
        """Take typed values."""
        ledger.note(flag=flag, text=text, count=count, ratio=ratio, either=either, kind=kind)
        return "ok"

    return typed_call


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "12345678901234567890"),
        ("text", "true"),
        ("text", "null"),
        ("either", "5"),
        ("either", 5),
        ("flag", False),
        ("count", 5),
        ("ratio", 5.5),
    ],
)
@pytest.mark.parametrize("way", BOTH)
def test_m18_a_value_of_its_declared_type_arrives_unchanged(field: str, value: Any, way: str) -> None:
    """Text stays text, a number a number: nothing is guessed from what a value looks like."""
    ledger = Ledger()
    with ScriptedModel([call("typed_call", **{field: value}), "ok"]) as model:
        result = run(make(model, [typed(ledger)]), "go", way)
    got = ledger.entries[0][field]
    assert (got, type(got)) == (value, type(value))
    assert repairs_of(result) == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flag", "false"),
        ("flag", 0),
        ("text", 5),
        ("count", True),
        ("count", "5"),
        ("count", 5.5),
        ("ratio", True),
        ("either", True),
        ("kind", True),
        ("text", None),
    ],
)
def test_m18_a_value_of_another_type_is_refused_not_dropped(field: str, value: Any) -> None:
    """A wrong-typed field is named to the model; it is neither read as something else nor replaced by its default."""
    ledger = Ledger()
    with ScriptedModel([call("typed_call", **{field: value}), "ok"]) as model:
        result = run(make(model, [typed(ledger)]), "go")
    assert (len(ledger), result.tool_calls) == (0, 0)
    assert f'"{field}"' in answers_in(model.requests[1])[0].text


def test_m18_a_lax_tool_coerces_and_says_so() -> None:
    """A tool that was declared lax takes "5" for a number, and the record names each coercion."""
    ledger = Ledger()
    with ScriptedModel([call("typed_call", count="5", flag="false"), "ok"]) as model:
        result = run(make(model, [typed(ledger, lax=True)]), "go")
    assert (ledger.entries[0]["count"], ledger.entries[0]["flag"]) == (5, False)
    named = " ".join(repairs_of(result))
    assert "count" in named
    assert "flag" in named


# ---------------------------------------------------------------- M19 unknown fields


def paying(ledger: Ledger, **options: Any) -> Any:
    """A tool that costs money."""

    @tool(**options)
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        ledger.note(to=to, amount=amount)
        return "paid"

    return pay


@pytest.mark.parametrize("way", BOTH)
def test_m19_an_unknown_field_refuses_the_call(way: str) -> None:
    """A safety flag that does not exist is not dropped: nothing is paid, and the model reads which fields there are."""
    ledger = Ledger()
    with ScriptedModel([call("pay", to="bob", amount=10, dry_run=True), "ok"]) as model:
        result = run(make(model, [paying(ledger)]), "pay bob", way)
    told = answers_in(model.requests[1])[0].text
    assert (len(ledger), result.tool_calls) == (0, 0)
    assert '"dry_run" does not exist' in told
    assert "to, amount" in told


def test_m19_named_fields_can_be_ignored() -> None:
    """A tool may name fields that its host injects: they are dropped, visibly, and others are still refused."""
    ledger = Ledger()
    script = [call("pay", to="bob", amount=10, trace="t"), call("pay", to="bob", amount=11, dry_run=True), "ok"]
    with ScriptedModel(script) as model:
        result = run(make(model, [paying(ledger, ignore_extra=frozenset({"trace"}))]), "pay bob")
    assert ledger.entries == [{"to": "bob", "amount": 10}]
    assert any("trace" in repair for repair in repairs_of(result))
