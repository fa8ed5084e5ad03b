"""Family M: replies and calls that were cut, which are never completed, executed or shown as the answer."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from fsm_agent import Event, Status, StopReason
from fsm_agent.testing import Call, ScriptedModel, forever, reply, server
from tests.faults.kit import WAYS, Ledger, answers_in, assert_sendable, client, make, run
from tests.faults.malformed import purge_of, repairs_of


@pytest.mark.parametrize("way", WAYS)
def test_m03_cut_arguments_are_truncation_whatever_the_label(way: str) -> None:
    """A call that the token cap cut is not executed whatever its label, and the model is told to be shorter."""
    ledger = Ledger()
    cut = reply("", Call("purge", '{"scope": "tm'), usage=(10, 20), finish_reason="tool_calls")
    with ScriptedModel([cut, "done"]) as model:
        result = run(make(model.bind(max_tokens=20), [purge_of(ledger)]), "clean up", way)
    assert (result.status, result.answer, len(ledger)) == (Status.COMPLETED, "done", 0)
    assert result.tool_calls == 0
    told = answers_in(model.requests[1])
    assert [message.status for message in told] == ["error"]
    assert "cut off" in told[0].text
    assert "shorter" in told[0].text
    assert "JSON" not in told[0].text
    rejected = next(record for record in result.transitions if record.event is Event.OBSERVED)
    assert "cut off" in rejected.error
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_m03_control_complete_arguments_at_the_cap_run_and_are_flagged(way: str) -> None:
    """The same cap reached with complete arguments runs, and the record says that the cap was reached."""
    ledger = Ledger()
    whole = reply("", Call("purge", '{"scope": "tmp"}'), usage=(10, 20), finish_reason="tool_calls")
    with ScriptedModel([whole, "done"]) as model:
        result = run(make(model.bind(max_tokens=20), [purge_of(ledger)]), "clean up", way)
    assert ledger.entries == [{"scope": "tmp"}]
    assert "cap_reached" in repairs_of(result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("label", ["length", "max_tokens"])
def test_m03_complete_arguments_under_the_label_of_a_cut_run_and_are_flagged(way: str, label: str) -> None:
    """Complete arguments of a reply that its server calls cut run, and the record says so."""
    ledger = Ledger()
    whole = reply("", Call("purge", '{"scope": "tmp"}'), finish_reason=label)
    with ScriptedModel([whole, "done"]) as model:
        result = run(make(model, [purge_of(ledger)]), "clean up", way)
    assert ledger.entries == [{"scope": "tmp"}]
    assert "cut_by_label" in repairs_of(result)


_AT_THE_CAP = {
    "native": reply("", Call("purge", ""), usage=(10, 20), finish_reason="tool_calls"),
    "json_action": reply("", Call("purge", ""), usage=(10, 20), finish_reason="tool_calls"),
    "react": reply("Thought: clean\nAction: purge\nAction Input:", usage=(10, 20)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", sorted(_AT_THE_CAP))
def test_m03_arguments_that_had_not_begun_at_the_cap_are_not_those_of_no_arguments(way: str, dialect: str) -> None:
    """A reply that reached its cap before its arguments began is not executed with all defaults, whatever its label."""
    ledger = Ledger()
    done = {"native": "done", "json_action": '{"action": "FINISH", "action_input": {"answer": "done"}}'}
    with ScriptedModel([_AT_THE_CAP[dialect], done.get(dialect, "Final Answer: done")]) as model:
        result = run(make(model.bind(max_tokens=20), [purge_of(ledger)], dialect=dialect), "clean up", way)
    assert (result.status, result.answer, len(ledger)) == (Status.COMPLETED, "done", 0)
    assert "cut off" in model.requests[1].text


@pytest.mark.parametrize(("task", "told"), [("clean up", "This call was cut off"), ("清理", "这次调用")])
def test_m03_a_cut_call_beside_a_whole_one_is_told_of_alone(task: str, told: str) -> None:
    """The whole call of a cut reply runs, and what is told of the cut one does not say that nothing ran."""
    ledger = Ledger()
    both = reply("", Call("purge", '{"scope": "tmp"}'), Call("purge", '{"scope": "lo'), finish_reason="length")
    with ScriptedModel([both, "done"]) as model:
        run(make(model, [purge_of(ledger)]), task)
    assert ledger.entries == [{"scope": "tmp"}]
    whole, cut = answers_in(model.requests[1])
    assert whole.text == "purged tmp"
    assert cut.text.startswith(told)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("label", ["tool_calls", "stop", None, "length"])
def test_m03_the_real_client_and_a_cut_call(way: str, label: str | None) -> None:
    """Through the real client, streamed or not, a cut call is never completed and run, under no label."""
    ledger = Ledger()
    cut = reply("", Call("purge", '{"scope": "tm'), usage=(10, 20), finish_reason=label)
    with server([cut, "done"]) as s:
        result = run(make(client(s, max_tokens=20), [purge_of(ledger)]), "clean up", way)
    assert (result.status, len(ledger), s.count) == (Status.COMPLETED, 0, 2)
    assert "cut off" in s.requests[1].text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "label",
    [
        *("length", "max_tokens", "content_filter", "MAX_TOKENS", "SAFETY", "RECITATION"),
        *("model_context_window_exceeded", "insufficient_system_resource"),
    ],
)
def test_m03_a_cut_text_is_not_the_answer(way: str, label: str) -> None:
    """A text that was cut is no answer: the model is told, and the whole answer counts."""
    with ScriptedModel([reply("The result is 12", finish_reason=label), "The result is 1234."]) as model:
        result = run(make(model), "how much?", way)
    assert (result.status, result.answer, result.model_calls) == (Status.COMPLETED, "The result is 1234.", 2)
    assert "cut off" in model.requests[1].text


@pytest.mark.parametrize("label", ["content_filter", "refusal", "PROHIBITED_CONTENT"])
@pytest.mark.parametrize("said", ["", "The result is"])
def test_m03_a_reply_that_a_filter_cut_is_told_as_that(said: str, label: str) -> None:
    """Shorter is no help against a filter: the model is asked for other words, and the person reads what it was."""
    with ScriptedModel([forever(reply(said, finish_reason=label))]) as model:
        result = run(make(model), "how much?")
    assert (result.status, result.reason) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES)
    assert "content filter of the provider" in result.detail
    assert "Say it in other words" in model.requests[1].text
    asked = reply("", Call("purge", '{"scope": "tm'), finish_reason=label)
    ledger = Ledger()
    with ScriptedModel([asked, "sorry"]) as model:
        run(make(model, [purge_of(ledger)]), "清理")
    assert (len(ledger), "内容过滤器" in answers_in(model.requests[1])[0].text) == (0, True)


@pytest.mark.parametrize(
    "why", [{"reason": "max_output_tokens"}, {"reason": "content_filter"}, {"reason": "other"}, None]
)
@pytest.mark.parametrize("way", WAYS)
def test_m03_a_reply_without_a_label_says_otherwise_that_it_was_cut(way: str, why: Any) -> None:
    """OpenAI's Responses API has a status: half a text is no answer, and the whole answer counts."""
    cut = {"status": "incomplete", "incomplete_details": why}
    whole = {"status": "completed", "incomplete_details": None}
    replies = [AIMessage("It is 12", response_metadata=cut), AIMessage("It is 1234.", response_metadata=whole)]
    with ScriptedModel(replies) as model:
        result = run(make(model), "how much?", way)
    assert (result.status, result.answer, result.model_calls) == (Status.COMPLETED, "It is 1234.", 2)
    assert "cut off" in model.requests[1].text


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_m03_a_call_cut_behind_its_name_without_a_label(way: str) -> None:
    """The client reads no text as no arguments; the status says that there was more to come."""
    ledger = Ledger()
    asked = [{"name": "purge", "args": {}, "id": "c", "type": "tool_call"}]
    cut = AIMessage("", tool_calls=asked, response_metadata={"status": "incomplete"})
    with ScriptedModel([cut, "done"]) as model:
        result = run(make(model, [purge_of(ledger)]), "clean up", way)
    assert (len(ledger), result.tool_calls, result.answer) == (0, 0, "done")


@pytest.mark.parametrize("way", WAYS)
def test_m03_a_text_that_is_always_cut_ends_the_run(way: str) -> None:
    """A model that never gets to its end within the cap is not asked for ever, and half an answer is not an answer."""
    with ScriptedModel([forever(reply("The result is 12", finish_reason="length"))]) as model:
        result = run(make(model), "how much?", way)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES, None)
    assert model.count == 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["", "   "])
def test_m03_no_arguments_in_a_cut_reply_are_not_no_arguments(text: str, way: str) -> None:
    """Cut right behind the name, a call has no arguments yet: its defaults are not what the model wanted."""
    ledger = Ledger()
    cut = reply("", Call("purge", text), finish_reason="length")
    with ScriptedModel([cut, "done"]) as model:
        result = run(make(model, [purge_of(ledger)]), "clean up", way)
    assert (len(ledger), result.tool_calls, result.answer) == (0, 0, "done")
    assert "cut off" in answers_in(model.requests[1])[0].text


@pytest.mark.parametrize("text", ['{"scope": "tmp", "n', '{"scope": "tmp"', '{"scope"', "{", '{"scope": ["a", "b"'])
def test_m03_no_prefix_of_a_call_is_a_call(text: str) -> None:
    """Wherever the arguments were cut, what a lenient parser would complete is not executed."""
    ledger = Ledger()
    with ScriptedModel([reply("", Call("purge", text), finish_reason="tool_calls"), "done"]) as model:
        run(make(model, [purge_of(ledger)]), "clean up", "stream")
    assert len(ledger) == 0
