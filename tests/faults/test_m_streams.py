"""Family M: what a server sends otherwise than the client expects: pieces of calls, whole replies for streams, old forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from fsm_agent import Status, StopReason
from fsm_agent.testing import Call, call, fault, forever, reply, server
from fsm_agent.testing.wire import as_sending
from tests.faults.kit import WAYS, Ledger, client, make, run
from tests.faults.malformed import one_field, purge_of


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sent", [{"scope": "tmp"}, '"{\\"scope\\": \\"tmp\\"}"'], ids=["object", "encoded twice"])
@pytest.mark.parametrize("call_id", ["a", 7])
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the client's own models
def test_m10_arguments_that_the_client_cannot_take_are_read_all_the_same(sent: Any, call_id: Any, way: str) -> None:
    """A server that sends an object, a text of a text, or a number for an id means one call; streamed or not, it runs."""
    ledger = Ledger()

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        for said in body["choices"]:
            for one in (said.get("message") or said["delta"]).get("tool_calls", ()):
                one["id"] = call_id
                one["function"]["arguments"] = sent if one["function"].get("name") else ""
        return body

    with server([replace(as_sending(call("purge")), edits=(edit,)), "done"]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", way)
    assert (result.status, ledger.entries) == (Status.COMPLETED, [{"scope": "tmp"}])
    assert s.requests[1].messages[2]["tool_calls"][0]["id"] == str(call_id)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", ["missing", None], ids=str)
def test_a_reply_without_a_role_is_the_assistants(role: str | None, way: str) -> None:
    """Some servers leave the role out of a whole reply, or send a null: calls and text are read as they are."""
    ledger = Ledger()

    def edit(body: dict[str, Any]) -> dict[str, Any]:
        for said in body["choices"]:
            message = said.get("message") or said["delta"]
            message.pop("role", None)
            if role is None:
                message["role"] = None
        return body

    asked, told = (replace(as_sending(one), edits=(edit,)) for one in (call("purge", scope="tmp"), "done"))
    with server([asked, told]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", way)
    assert (result.answer, ledger.entries, s.count) == ("done", [{"scope": "tmp"}], 2)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_m10_a_stream_cut_by_the_network_runs_nothing(streamed: bool) -> None:
    """A stream that just ends inside the arguments, with no label at all, is truncation."""
    ledger = Ledger()
    cut = fault.cut_stream(Call("purge", '{"scope": "tmp"}'), after_chars=12)
    with server([cut, "sorry"]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", "stream" if streamed else "invoke")
    assert (len(ledger), result.tool_calls, s.count) == (0, 0, 2)
    assert result.status is Status.COMPLETED


class OldServer(GenericFakeChatModel):
    """A model behind a server from before `tool_calls`."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The tools are told in another way."""
        return self.bind()


@pytest.mark.parametrize("way", WAYS)
def test_a_call_in_the_old_form_is_a_call(way: str) -> None:
    """`function_call` beside a text is executed, in pieces too; it is not taken for the text's answer."""
    ledger = Ledger()
    old = {"function_call": {"name": "lookup", "arguments": '{"q": "1"}'}}
    model = OldServer(messages=iter([AIMessage("Let me look.", additional_kwargs=old), AIMessage("found")]))
    result = run(make(model, [one_field(ledger)]), "look", way)
    assert (ledger.entries, result.answer, result.tool_calls) == ([{"q": "1"}], "found", 1)


Piece = tuple[int | None, str, str, str]
"""Index, id, name and arguments of one piece of a streamed call."""
PIECES: dict[str, tuple[list[Piece], list[str]]] = {
    "a new id for each piece": (
        [(0, "x", "purge", ""), (0, "y", "purge", '{"scope":'), (0, "z", "purge", '"b"}')],
        ["b"],
    ),
    "no index, the name in each": ([(None, "x", "purge", ""), (None, "x", "purge", '{"scope":"b"}')], ["b"]),
    "the name again at the end": ([(0, "", "purge", '{"scope":"b"}'), (0, "", "purge", "")], ["b"]),
    "one index, no ids": ([(0, "", "purge", '{"scope":"b"}'), (0, "", "purge", '{"scope":"c"}')], ["b", "c"]),
    "one index, no ids, in pieces": (
        [(0, "", "purge", ""), (0, "", "", '{"scope":"b"}'), (0, "", "keep", ""), (0, "", "", '{"scope":"c"}')],
        ["b", "keep c"],
    ),
    "one index and id": ([(0, "x", "purge", '{"scope":"b"}'), (0, "x", "keep", '{"scope":"c"}')], ["b", "keep c"]),
    "a name in two pieces": ([(0, "x", "pur", ""), (0, "", "ge", ""), (0, "", "", '{"scope":"b"}')], ["b"]),
}


@pytest.mark.parametrize(("pieces", "done"), PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("way", ["stream", "astream"])
def test_m10_a_piece_of_a_streamed_call_is_not_executed_as_a_call(
    way: str, pieces: list[Piece], done: list[str]
) -> None:
    """However a server tells the pieces of calls apart, each call runs with its own arguments, and none with its defaults."""
    ran: list[str] = []

    def purge(scope: str = "all") -> str:
        """Purge."""
        ran.append(scope)
        return "purged"

    def keep(scope: str = "all") -> str:
        """Keep."""
        ran.append(f"keep {scope}")
        return "kept"

    events: list[Any] = []
    for index, call_id, name, arguments in pieces:
        given = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
        delta = {"tool_calls": [{key: value for key, value in given.items() if value not in ("", None)}]}
        events.append({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    with server([fault.raw_stream(*events, end, "[DONE]"), "done"]) as s:
        result = run(make(client(s), [purge, keep], limits={"max_parallel": 1}), "purge", way)
    assert (result.answer, ran) == ("done", done)


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_m10_a_whole_reply_is_read_where_a_stream_was_asked_for(way: str) -> None:
    """A server or proxy that knows no streams answers with one JSON body: it is read as it is, calls and all, and asked for once."""
    ledger = Ledger()
    plain = reply("Done.", finish_reason=None, usage=None)
    script = [reply("Wait.", call("lookup", q="1"), call("lookup", q="2")), call("lookup", q="3"), plain]
    with server([fault.not_streamed(one) for one in script]) as s:
        agent = make(client(s), [one_field(ledger)], limits={"max_parallel": 1})
        result = run(agent, "look", way)
    assert (result.status, result.answer, s.count) == (Status.COMPLETED, "Done.", 3)
    assert ledger.entries == [{"q": "1"}, {"q": "2"}, {"q": "3"}]
    assert result.usage.estimated < result.usage.total


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_m10_a_whole_reply_that_was_cut_runs_nothing_though_a_stream_was_asked_for(way: str) -> None:
    """What is read of it is strict, as of any other."""
    ledger = Ledger()
    cut = reply("", Call("purge", '{"scope": "tm'), finish_reason="length")
    with server([fault.not_streamed(cut), "sorry"]) as s:
        result = run(make(client(s), [purge_of(ledger)]), "clean up", way)
    assert (result.answer, len(ledger)) == ("sorry", 0)


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no credit left", "code": 402}}', "no credit left"),
        ('{"error": {"message": "no credit left", "code": 402}, "choices": [{}]}', "no credit left"),
        ('{"detail": "nothing"}', "No generation chunks"),
        ("[]", "No generation chunks"),
        ('{"choices": [3]}', "No generation chunks"),
        ("no JSON", "No generation chunks"),
    ],
)
def test_m10_a_body_that_is_no_reply_is_a_failure_where_a_stream_was_asked_for(way: str, body: str, said: str) -> None:
    """The run ends with what the server said, typed."""
    with server([forever(fault.raw(body))]) as s:
        result = run(make(client(s)), "hi", way)
    assert result.reason is StopReason.MODEL_FAILED
    assert said in result.detail


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_m10_a_stream_under_the_label_of_json_is_read(way: str) -> None:
    """The body counts, not what the server calls it."""
    with server([fault.wrong_content_type(reply("Hello."), "application/json")]) as s:
        result = run(make(client(s)), "hi", way)
    assert (result.answer, s.count) == ("Hello.", 1)
