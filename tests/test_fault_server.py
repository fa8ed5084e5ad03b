"""The fault server: that it speaks the protocol, records, and closes; and every fault as the real client meets it.

The client is `ChatOpenAI` of langchain-openai. Where it hides a fault or makes another of it, the test says so: these
are the facts that the reading of replies in the engine rests on.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import exceptions as lc
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI

from fsm_agent.errors import ScriptError
from fsm_agent.testing import (
    Call,
    Delay,
    FakeClock,
    FaultServer,
    ServerRequest,
    call,
    fault,
    forever,
    reply,
    server,
)
from fsm_agent.testing.wire import as_sending, chunks_of, split_chunks
from tests.faults.kit import transports

ADD = call("add", a=1, b=2)
ADD_TEXT = '{"a": 1, "b": 2}'
ADD_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "act", "strict": True, "schema": {"type": "object"}}}


def client(s: FaultServer, **options: Any) -> ChatOpenAI:
    """The real client, with its own retries off unless they are what is tested."""
    return ChatOpenAI(
        **{"base_url": s.base_url, "api_key": "none", "model": "fake", "max_retries": 0, **transports(), **options}
    )


def whole(entry: Any, **options: Any) -> AIMessage:
    """What the client gives for one entry, not streamed."""
    with server([entry]) as s:
        return client(s).invoke("hi", **options)


def pieces(entry: Any, **options: Any) -> list[Any]:
    """The chunks that the client gives for one entry, streamed."""
    with server([entry]) as s:
        return list(client(s).stream("hi", **options))


def merged(entry: Any, **options: Any) -> AIMessageChunk:
    """The chunks of one entry, added up as LangChain adds them."""
    first, *rest = pieces(entry, **options)
    for chunk in rest:
        first += chunk
    assert isinstance(first, AIMessageChunk)
    return first


def raised(ask: Callable[[Any], Any], entry: Any, **options: Any) -> Any:
    """The exception that the client raises for one entry."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the tests look at
        ask(entry, **options)
    assert not isinstance(caught.value, ScriptError)
    return caught.value


both_ways = pytest.mark.parametrize("ask", [whole, merged], ids=["whole", "streamed"])


# ------------------------------------------------------------------ the protocol


@both_ways
def test_text(ask: Callable[..., AIMessage]) -> None:
    """A str arrives as the text of a message with its stop label."""
    message = ask("one  two\nthree ünï 中")
    assert (message.content, message.tool_calls) == ("one  two\nthree ünï 中", [])
    assert message.response_metadata["finish_reason"] == "stop"


@both_ways
def test_calls_and_text(ask: Callable[..., AIMessage]) -> None:
    """Text and several calls of one reply arrive together, in order, each call with its own id."""
    message = ask(reply("Let me look.", ADD, call("note", text="中")))
    assert message.content == "Let me look."
    assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
        ("add", {"a": 1, "b": 2}, "call_1_0"),
        ("note", {"text": "中"}, "call_1_1"),
    ]
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_a_stream_has_many_chunks() -> None:
    """Text streams word by word and arguments in pieces; the first piece of a call has its name and id."""
    chunks = pieces(reply("Let me see.", call("add", a=123456, b=7)))
    assert [chunk.content for chunk in chunks if chunk.content] == ["Let", " me", " see."]
    calls = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert (calls[0]["name"], calls[0]["id"], calls[0]["args"]) == ("add", "call_1_0", "")
    assert all((piece["name"], piece["id"]) == (None, None) for piece in calls[1:])
    assert "".join(piece["args"] for piece in calls) == '{"a": 123456, "b": 7}'


def test_async_client() -> None:
    """The async client gets the same replies, whole and streamed."""

    async def main(s: FaultServer) -> tuple[Any, list[Any]]:
        message = await client(s).ainvoke("hi")
        return message.content, [chunk.content async for chunk in client(s).astream("hi")]

    with server(["a b", "c d"]) as s:
        assert asyncio.run(main(s)) == ("a b", ["", "c", " d", "", ""])


def test_requests_are_recorded() -> None:
    """Every chat request is kept with number, body, headers, tools and whether a stream was asked for."""
    with server(["a", "b"]) as s:
        client(s).bind_tools([ADD_TOOL]).invoke([("system", "be brief"), ("user", "one")], temperature=0.5)
        list(client(s).stream("two"))
    first, second = s.requests
    assert (first.number, first.text, first.tool_names, first.stream) == (1, "be brief\none", ("add",), False)
    assert (first.body["temperature"], first.headers["authorization"]) == (0.5, "Bearer none")
    assert (second.number, second.messages, second.stream) == (2, [{"role": "user", "content": "two"}], True)
    assert (s.count, s.paths) == (2, ["POST /v1/chat/completions"] * 2)


def get(s: FaultServer, path: str) -> tuple[int, Any]:
    """GET a path of the server without any client library."""
    host, port = s.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_other_paths() -> None:
    """The model list and the given routes answer; an unknown path is a 404 that names what there is."""
    with server([], model="tiny", routes={"/props": {"chat_template_caps": {"supports_tools": False}}}) as s:
        assert get(s, "/v1/models")[1]["data"][0]["id"] == "tiny"
        assert get(s, "/props") == (200, {"chat_template_caps": {"supports_tools": False}})
        status, body = get(s, "/v1/nope?x=1")
    assert status == 404
    assert "GET /v1/nope" in body["error"]["message"]
    assert "/props" in body["error"]["message"]
    assert s.paths == ["GET /v1/models", "GET /props", "GET /v1/nope"]


def test_functions_see_the_request() -> None:
    """A script may be a function of the request, and an entry of a sequence may be one too."""

    def echo(request: ServerRequest) -> Any:
        return [ADD] if request.tool_names else f"you said {request.text}"

    with server(echo) as s:
        assert client(s).invoke("moo").content == "you said moo"
        assert client(s).bind_tools([ADD_TOOL]).invoke("moo").tool_calls
    with server(["x", echo]) as s:
        assert [client(s).invoke("a").content, client(s).invoke("b").content] == ["x", "you said b"]


def test_a_failing_function_is_reported() -> None:
    """What a function in the script raises reaches the test at the end, not only the client as a 500."""

    def broken(request: ServerRequest) -> Any:
        raise KeyError(request.text)

    s = server(broken)
    with pytest.raises(openai.InternalServerError):
        client(s, max_retries=2).invoke("hi")
    assert s.count == 1
    with pytest.raises(ScriptError, match="the script itself failed: KeyError"), s:
        pass


def test_clients_at_the_same_time() -> None:
    """Clients told apart by a word of their request each get their own script, and no request is lost."""
    words = [f"secret-{n}" for n in range(12)]
    with server(by_task={word: [f"{word} one", f"{word} two"] for word in words}) as s:

        def run(word: str) -> list[Any]:
            return [client(s).invoke(f"my word is {word}").content for _ in range(2)]

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(run, words)) == [[f"{word} one", f"{word} two"] for word in words]
    assert [request.number for request in s.requests] == list(range(1, 25))


def test_unused_entries_fail_the_test() -> None:
    """Leaving the with statement raises for entries that were never asked for."""
    with pytest.raises(ScriptError, match=r"1 of 2 entries were never asked for.*'b'"), server(["a", "b"]) as s:
        client(s).invoke("hi")


def test_asking_too_much_fails_the_test() -> None:
    """A request beyond the end gets a 500 that no client retries, and raises at the end."""
    s = server(["a"])
    client(s).invoke("hi")
    with pytest.raises(openai.InternalServerError, match="request 2 has no reply"):
        client(s, max_retries=2).invoke("hi")
    assert s.count == 2
    with pytest.raises(ScriptError, match="request 2 has no reply"), s:
        pass


@pytest.mark.parametrize("script", [[3], [ValueError], ["a", Delay(1, None)], [forever("x"), "y"], "text", None])
def test_impossible_scripts_are_refused(script: Any) -> None:
    """What can never be sent is refused before the server starts."""
    before = threading.active_count()
    with pytest.raises(ScriptError):
        server(script)
    assert threading.active_count() == before


def test_delay_is_on_the_clock() -> None:
    """A Delay sleeps on the injected clock, so that no test waits."""
    clock = FakeClock()
    with server([Delay(30, "late")], clock=clock) as s:
        assert client(s).invoke("hi").content == "late"
    assert clock.slept == [30.0]


def test_closing_is_clean() -> None:
    """Closing ends every thread, lets go of a held reply, frees the port, and can be done twice."""
    before = threading.active_count()
    never = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        s = server([fault.held("late", never)])
        asked = pool.submit(lambda: client(s).invoke("hi").content)
        s.wait_for(1)
        s.close()
        assert asked.result(10) == "late"
    s.close()
    assert threading.active_count() == before
    with pytest.raises(lc.ModelConnectionError):
        client(s).invoke("hi")


def test_waiting_for_requests() -> None:
    """wait_for returns once the requests are there, and says how many came when they are not."""
    with server(["a"]) as s:
        with pytest.raises(TimeoutError, match="0 of 1 chat requests"):
            s.wait_for(1, timeout=0.01)
        client(s).invoke("hi")
        s.wait_for(1)


# ------------------------------------------------------------------ error responses


ERRORS: list[tuple[str, Any, type[Exception], int, str | None]] = [
    ("400", fault.bad_request(), lc.ModelInvalidRequestError, 400, None),
    ("401", fault.unauthorized(), lc.ModelAuthenticationError, 401, "invalid_api_key"),
    ("403", fault.forbidden(), lc.ModelPermissionDeniedError, 403, "unsupported_country_region_territory"),
    ("404", fault.not_found(), lc.ModelNotFoundError, 404, "model_not_found"),
    ("409", fault.http_error(409), openai.ConflictError, 409, None),
    ("413", fault.http_error(413), openai.APIStatusError, 413, None),
    ("422", fault.http_error(422), openai.UnprocessableEntityError, 422, None),
    ("429", fault.rate_limited(), lc.ModelRateLimitError, 429, "rate_limit_exceeded"),
    ("500", fault.server_error(), lc.ModelAPIError, 500, None),
    ("503", fault.server_error(status=503), lc.ModelAPIError, 503, None),
    ("html 502", fault.html_page(), lc.ModelAPIError, 502, None),
    # Not lc.ContextOverflowError: the client looks for the code in the message only, where it no longer stands.
    ("context", fault.context_length_exceeded(), lc.ModelInvalidRequestError, 400, "context_length_exceeded"),
    ("filter", fault.content_filtered(), lc.ModelInvalidRequestError, 400, "content_filter"),
]


@both_ways
@pytest.mark.parametrize(("entry", "kind", "status", "code"), [row[1:] for row in ERRORS], ids=[r[0] for r in ERRORS])
def test_error_responses(
    ask: Callable[..., Any], entry: Any, kind: type[Exception], status: int, code: str | None
) -> None:
    """Each error status arrives as its class with status and code, alike whether a stream was asked for or not."""
    error = raised(ask, entry)
    assert (isinstance(error, kind), error.status_code, error.code) == (True, status, code)


@both_ways
@pytest.mark.parametrize(
    ("entry", "header", "value"),
    [
        (fault.rate_limited("7"), "retry-after", "7"),
        (fault.rate_limited(0), "retry-after", "0"),
        (fault.rate_limited(86400), "retry-after", "86400"),
        (fault.rate_limited(-1), "retry-after", "-1"),
        (fault.rate_limited(1.5), "retry-after", "1.5"),
        (fault.rate_limited("soon"), "retry-after", "soon"),
        (fault.rate_limited(datetime(2030, 1, 2, tzinfo=UTC)), "retry-after", "Wed, 02 Jan 2030 00:00:00 GMT"),
        (fault.rate_limited(retry_after_ms=1500), "retry-after-ms", "1500"),
        (fault.rate_limited(), "retry-after", None),
        (fault.http_error(503, headers={"retry-after": "3"}), "retry-after", "3"),
    ],
)
def test_wait_hints(ask: Callable[..., Any], entry: Any, header: str, value: str | None) -> None:
    """R02: the wait hint is on `error.response.headers`, letter for letter as the server sent it."""
    assert raised(ask, entry).response.headers.get(header) == value


def test_passing_and_deterministic_errors() -> None:
    """An error entry passes with the next request; forever(...) never does."""
    with server([fault.server_error(), "well again"]) as s:
        with pytest.raises(lc.ModelAPIError):
            client(s).invoke("hi")
        assert client(s).invoke("hi").content == "well again"
    with server([forever(fault.server_error())]) as s:
        for _ in range(3):
            with pytest.raises(lc.ModelAPIError):
                client(s).invoke("hi")
        assert s.count == 3


# ------------------------------------------------------------------ connections and streams


@both_ways
@pytest.mark.parametrize("after", [None, 0, 10])
def test_dropped_connections(ask: Callable[..., Any], after: int | None) -> None:
    """A connection dropped before the first byte or in the middle is a connection error, without a response."""
    error = raised(ask, fault.drop_connection(after_chars=after))
    assert isinstance(error, lc.ModelConnectionError)
    assert not hasattr(error, "response")


def test_what_came_before_a_drop() -> None:
    """The chunks before the drop were handed out, exactly as far as the script says."""
    seen: list[str] = []

    def read(s: FaultServer) -> None:
        for chunk in client(s).stream("hi"):
            seen.append(str(chunk.content))  # noqa: PERF401 - a comprehension would lose what came before the error

    with server([fault.drop_connection("One answer, here.", after_chars=6)]) as s:
        with pytest.raises(lc.ModelConnectionError):
            read(s)
        assert "".join(seen) == "One an"


def test_a_cut_stream_is_silent() -> None:
    """M03: a stream that ends in good order too early raises nothing; only the finish reason is missing."""
    message = merged(fault.cut_stream("One answer, in words.", after_chars=10))
    assert message.content == "One answer"
    assert "finish_reason" not in message.response_metadata
    assert message.chunk_position == "last"


@pytest.mark.parametrize(
    ("after", "looks_like"), [(0, {}), (8, {"a": 1}), (15, {"a": 1, "b": 2})], ids=["name", "half", "brace"]
)
def test_calls_of_a_cut_stream_look_good(after: int, looks_like: dict[str, int]) -> None:
    """M10: the client completes cut arguments to a good-looking call; only the raw text tells that they are cut."""
    message = merged(fault.cut_stream(ADD, after_chars=after))
    assert [c["args"] for c in message.tool_calls] == [looks_like]
    assert message.invalid_tool_calls == []
    assert [c["args"] for c in message.tool_call_chunks] == [ADD_TEXT[:after]]
    assert "finish_reason" not in message.response_metadata


def test_a_cut_body_is_no_json() -> None:
    """Not streamed, a body that ends too early is a JSON error."""
    assert isinstance(raised(whole, fault.cut_stream(ADD, after_chars=8)), json.JSONDecodeError)


@pytest.mark.parametrize("text", ['{"a": 1, "b', '{"a": 1', '{"a": "x', '{"{"q":1}'])
def test_truncated_arguments_under_a_good_label(text: str) -> None:
    """M03, M20: truncated or spoilt arguments with a good label are invalid when whole, and look good when streamed."""
    assert [c["args"] for c in whole(Call("add", text)).invalid_tool_calls] == [text]
    message = merged(Call("add", text))
    assert (len(message.tool_calls), message.invalid_tool_calls) == (1, [])
    assert message.response_metadata["finish_reason"] == "tool_calls"
    assert [c["args"] for c in message.tool_call_chunks] == [text]


def test_invoke_streams_behind_the_back() -> None:
    """A model made with streaming=True streams in invoke too, and loses even the raw text; stream=False prevents it."""
    truncated = Call("add", '{"a": 1, "b')
    with server([truncated, truncated]) as s:
        model = client(s, streaming=True)
        hidden, honest = model.invoke("hi"), model.invoke("hi", stream=False)
    assert [request.stream for request in s.requests] == [True, False]
    assert (hidden.tool_calls[0]["args"], hasattr(hidden, "tool_call_chunks")) == ({"a": 1}, False)
    assert (honest.tool_calls, honest.invalid_tool_calls[0]["args"]) == ([], '{"a": 1, "b')


def test_no_done_does_no_harm() -> None:
    """A complete stream without [DONE] is complete."""
    message = merged(fault.no_done(ADD))
    assert message.tool_calls[0]["args"] == {"a": 1, "b": 2}
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_error_inside_a_stream() -> None:
    """An error event in a stream of status 200 is a plain APIError, without status or response."""
    error = raised(merged, fault.error_in_stream(after_chars=5))
    assert type(error) is openai.APIError
    assert (error.type, hasattr(error, "status_code"), hasattr(error, "response")) == ("server_error", False, False)
    assert isinstance(raised(whole, fault.error_in_stream()), ValueError)


def test_held_before_the_first_byte() -> None:
    """A slow first byte is a timeout of its own class, without a response; nothing waits longer than the client."""
    never = threading.Event()
    with server([fault.held("late", never), fault.held("late", never)]) as s:
        for ask in (lambda: client(s).invoke("hi", timeout=0.05), lambda: list(client(s).stream("hi", timeout=0.05))):
            with pytest.raises(lc.ModelTimeoutError) as caught:
                ask()
            assert isinstance(caught.value, openai.APITimeoutError)


def test_held_in_the_middle() -> None:
    """A reply held in the middle hands out what came before, and goes on when it is let go."""
    gate = threading.Event()
    with server([fault.held("One answer, here.", gate, after_chars=3), fault.held(ADD, gate)]) as s:
        stream = client(s).stream("hi")
        text = ""
        while text != "One":
            text += str(next(stream).content)
        gate.set()
        assert text + "".join(str(chunk.content) for chunk in stream) == "One answer, here."
        assert client(s).invoke("hi").tool_calls


def test_a_cancelled_client_does_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    """A client that is cancelled in the middle leaves a server that answers the next one, and prints nothing."""

    async def main(s: FaultServer, gate: threading.Event) -> Any:
        task = asyncio.create_task(client(s).ainvoke("hi"))
        await asyncio.to_thread(s.wait_for, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        return (await client(s).ainvoke("hi")).content

    gate = threading.Event()
    with server([fault.held("x" * 3_000_000, gate), "next"]) as s:
        assert asyncio.run(main(s, gate)) == "next"
    assert capfd.readouterr().err == ""


# ------------------------------------------------------------------ bad bodies


@pytest.mark.parametrize(
    ("entry", "when_whole", "when_streamed"),
    [
        (fault.empty_choices(), IndexError, None),
        (fault.raw({"choices": None}), TypeError, ValueError),
        (fault.raw({"error": {"message": "upstream"}}), ValueError, ValueError),
        ({"error": {"message": "upstream"}}, ValueError, ValueError),
        (fault.html_page(200), ValueError, ValueError),
        (fault.invalid_json(), json.JSONDecodeError, ValueError),
        (fault.raw(""), json.JSONDecodeError, ValueError),
        (fault.raw("null"), ValueError, ValueError),
        (fault.raw('"oops"'), ValueError, ValueError),
        (fault.not_streamed(), None, ValueError),
        (fault.unasked_stream(), ValueError, None),
        (fault.raw_stream("{nope"), ValueError, json.JSONDecodeError),
        (fault.raw_stream("[DONE]"), ValueError, ValueError),
        (fault.wrong_content_type(), None, None),
        (fault.wrong_content_type(content_type="text/html"), None, None),
        (fault.object_arguments(ADD), pydantic.ValidationError, pydantic.ValidationError),
        (fault.usage_as("12"), AttributeError, AttributeError),
        (fault.usage_as([1]), AttributeError, AttributeError),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the client's own models, about the same faults
def test_bad_bodies(entry: Any, when_whole: type[Exception] | None, when_streamed: type[Exception] | None) -> None:
    """A bad body with status 200 escapes as whatever the client trips over, none of it an error of the protocol."""
    for ask, kind in ((whole, when_whole), (merged, when_streamed)):
        if kind is None:
            ask(entry)
        else:
            error = raised(ask, entry)
            assert isinstance(error, kind)
            assert not hasattr(error, "status_code")


def test_no_choice_in_a_stream_is_silent() -> None:
    """A stream without any choice is an empty message with no label, and no error."""
    message = merged(fault.empty_choices())
    assert (message.content, message.tool_calls, message.response_metadata.get("finish_reason")) == ("", [], None)


@both_ways
def test_huge_bodies(ask: Callable[..., AIMessage]) -> None:
    """A text of megabytes arrives whole."""
    assert len(str(ask(fault.huge_body(2_000_000)).content)) == 2_000_000


def test_faults_can_be_put_around_each_other() -> None:
    """A fault takes another as its reply, and both happen."""
    message = merged(fault.wrong_content_type(fault.cut_stream(ADD, after_chars=8)))
    assert [c["args"] for c in message.tool_call_chunks] == [ADD_TEXT[:8]]
    counted = merged(fault.cumulative_usage(fault.no_done(fault.tool_call_index(ADD, 0))))
    assert counted.usage_metadata is not None


# ------------------------------------------------------------------ contents


@both_ways
def test_null_content(ask: Callable[..., AIMessage]) -> None:
    """H09: null content arrives as empty text."""
    assert ask(reply(None)).content == ""


def test_refusals() -> None:
    """A refusal is beside the empty content when whole; streamed, the client loses it."""
    assert whole(reply("", refusal="I cannot.")).additional_kwargs["refusal"] == "I cannot."
    message = merged(reply("", refusal="I cannot."))
    assert (message.content, message.additional_kwargs) == ("", {})
    assert message.response_metadata["finish_reason"] == "stop"


@both_ways
@pytest.mark.parametrize(
    "entry",
    [
        reply("part", finish_reason="length"),
        reply("part", finish_reason="content_filter"),
        reply("", ADD, finish_reason="stop"),
        reply("", finish_reason="tool_calls"),
    ],
)
def test_labels_are_passed_on(ask: Callable[..., AIMessage], entry: Any) -> None:
    """A finish reason arrives as it was sent, right or wrong."""
    assert ask(entry).response_metadata["finish_reason"] == entry.finish_reason


@both_ways
def test_a_missing_label(ask: Callable[..., AIMessage]) -> None:
    """A finish reason that was never sent reads as None, whole or streamed."""
    assert ask(reply("x", finish_reason=None)).response_metadata.get("finish_reason") is None


def test_labels_of_a_stream_are_glued() -> None:
    """Two finish reasons in one stream become one word, so they are to be read chunk by chunk."""
    end = {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    assert merged(fault.raw_stream(end, end, "[DONE]")).response_metadata["finish_reason"] == "stopstop"


@both_ways
def test_ids(ask: Callable[..., AIMessage]) -> None:
    """H06: ids arrive as sent: missing as None, empty, repeated, the same in every turn."""
    calls = [Call("f", {}, id="c"), Call("f", {}, id="c"), Call("f", {}, id=""), Call("f", {}, id=None)]
    assert [c["id"] for c in ask(calls).tool_calls] == ["c", "c", "", None]
    assert ask(Call("f", {}, id="call_0")).tool_calls[0]["id"] == ask(Call("f", {}, id="call_0")).tool_calls[0]["id"]


@both_ways
@pytest.mark.parametrize("text", ['```json\n{"a":1}\n```', '{"a":1}}', "{'a': 1}"])
def test_broken_arguments(ask: Callable[..., AIMessage], text: str) -> None:
    """M04, M20: arguments that are no JSON are invalid calls with their text, whole or streamed."""
    message = ask(Call("add", text))
    assert (message.tool_calls, [c["args"] for c in message.invalid_tool_calls]) == ([], [text])


@pytest.mark.parametrize("text", ["null", "[]", "0", "false", '""'])
def test_arguments_that_become_nothing(text: str) -> None:
    """M10: arguments that are no object but falsy become an empty object when whole; streamed they are invalid."""
    assert [c["args"] for c in whole(Call("add", text)).tool_calls] == [{}]
    assert [c["args"] for c in merged(Call("add", text)).invalid_tool_calls] == [text]


@pytest.mark.parametrize("text", ["[1]", '"x"', "5", "true"])
def test_arguments_that_are_no_object(text: str) -> None:
    """Arguments of another JSON type break the client when whole; streamed they are invalid."""
    assert isinstance(raised(whole, Call("add", text)), pydantic.ValidationError)
    assert [c["args"] for c in merged(Call("add", text)).invalid_tool_calls] == [text]


@both_ways
def test_calls_as_text(ask: Callable[..., AIMessage]) -> None:
    """M15: a call written as text stays text."""
    text = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    assert (ask(text).content, ask(text).tool_calls) == (text, [])


def test_streamed_calls_under_one_index() -> None:
    """Calls that a server streams under one index run into each other: the raw text holds both."""
    message = merged(fault.tool_call_index([ADD, call("add", a=3, b=4)], 0))
    assert [c["args"] for c in message.tool_call_chunks] == [ADD_TEXT + '{"a": 3, "b": 4}', ""]


def test_streamed_calls_without_index() -> None:
    """Without an index nothing is put together: every piece is a call of its own, most without a name."""
    message = merged(fault.tool_call_index(ADD, None))
    assert [(c["name"], c["args"]) for c in message.tool_call_chunks] == [
        ("add", ""),
        (None, ADD_TEXT[:8]),
        (None, ADD_TEXT[8:]),
    ]


# ------------------------------------------------------------------ usage


def counts(message: AIMessage) -> tuple[int, int, int] | None:
    """Input, output and total tokens of a message, or None."""
    usage = message.usage_metadata
    return usage and (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])


def test_usage() -> None:
    """Usage arrives whole; streamed only when it is asked for, which this client does not by itself."""
    assert counts(whole(reply("x", usage=(7, 2)))) == (7, 2, 9)
    assert counts(merged(reply("x", usage=(7, 2)))) is None
    assert counts(merged(reply("x", usage=(7, 2)), stream_usage=True)) == (7, 2, 9)


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        (None, None),
        ({}, (0, 0, 0)),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, (0, 0, 0)),
        ({"prompt_tokens": 12}, (12, 0, 12)),
        ({"completion_tokens": 3}, (0, 3, 3)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 0}, (10, 2, 0)),
        ({"prompt_tokens": "12", "completion_tokens": 3, "total_tokens": 15}, (12, 3, 15)),
        ({"prompt_tokens": True, "completion_tokens": 2, "total_tokens": 3}, (1, 2, 3)),
        ({"prompt_tokens": -5, "completion_tokens": 2, "total_tokens": -3}, (-5, 2, -3)),
    ],
)
def test_odd_usage(usage: Any, read_as: Any) -> None:
    """T02, T03: what the client makes of a partial or wrong count, whole and streamed alike."""
    assert counts(whole(reply("x", usage=usage))) == read_as
    assert counts(merged(reply("x", usage=usage), stream_usage=True)) == read_as


def test_null_usage() -> None:
    """A usage of null reads as none."""
    assert counts(whole(fault.usage_as(None))) is None
    assert counts(merged(fault.usage_as(None))) is None


def test_cumulative_usage_is_summed() -> None:
    """T02: adding up the chunks sums counts that were cumulative; the largest of the chunks is the true one."""
    chunks = pieces(fault.cumulative_usage(reply("a b c d", usage=(10, 8))))
    seen = [counts(chunk) for chunk in chunks if chunk.usage_metadata]
    assert (seen[0], seen[-1], len(seen)) == ((10, 1, 11), (10, 8, 18), 6)
    assert counts(merged(fault.cumulative_usage(reply("a b c d", usage=(10, 8))))) == (60, 26, 86)


# ------------------------------------------------------------------ one request, one schema


def single(model: ChatOpenAI) -> ChatOpenAI:
    """A copy of a built client that makes exactly one HTTP request a call; the original is left alone."""
    sync, aio = model.root_client.with_options(max_retries=0), model.root_async_client.with_options(max_retries=0)
    clients = {"root_client": sync, "client": sync.chat.completions}
    clients |= {"root_async_client": aio, "async_client": aio.chat.completions}
    return model.model_copy(update={"max_retries": 0, **clients})


def test_one_request_an_attempt() -> None:
    """R03: a copy with clients of its own makes one request a call, however it is asked, and shares the connections."""
    with server([forever(fault.rate_limited(retry_after_ms=1))]) as s:
        original = client(s, max_retries=None)
        model = single(original)
        for ask in (
            lambda: model.invoke("hi"),
            lambda: list(model.stream("hi")),
            lambda: asyncio.run(model.ainvoke("hi")),
            lambda: model.bind_tools([ADD_TOOL]).invoke("hi"),
        ):
            before = s.count
            with pytest.raises(lc.ModelRateLimitError):
                ask()
            assert s.count == before + 1
        with pytest.raises(lc.ModelRateLimitError):
            original.invoke("hi")
        assert s.count == 4 + 3
        assert model.root_client._client is original.root_client._client


def test_retries_cannot_be_set_per_call() -> None:
    """R03: max_retries is unknown to a call, and a copy of the model alone keeps the client that retries."""
    with server([forever(fault.rate_limited(retry_after_ms=1))]) as s:
        model = client(s, max_retries=None)
        with pytest.raises(TypeError, match="max_retries"):
            model.invoke("hi", max_retries=0)
        assert s.count == 0
        with pytest.raises(lc.ModelRateLimitError):
            model.model_copy(update={"max_retries": 0}).invoke("hi")
        assert s.count == 3


@pytest.mark.parametrize(
    ("label", "error"),
    [("length", openai.LengthFinishReasonError), ("content_filter", openai.ContentFilterFinishReasonError)],
)
@both_ways
def test_schemas_and_truncation(ask: Callable[..., AIMessage], label: str, error: type[Exception]) -> None:
    """A truncated reply under response_format is an exception; the same schema as extra_body gives the message."""
    cut = reply('{"a": 1', finish_reason=label)
    assert isinstance(raised(ask, cut, response_format=SCHEMA), error)
    message = ask(cut, extra_body={"response_format": SCHEMA})
    assert (message.content, message.response_metadata["finish_reason"]) == ('{"a": 1', label)


def test_both_ways_to_send_a_schema_are_the_same_on_the_wire() -> None:
    """response_format and extra_body put the same field into the request; a model's own extra_body is replaced."""
    with server(["{}", "{}", "{}"]) as s:
        model = client(s, extra_body={"top_k": 5})
        model.invoke("hi", response_format=SCHEMA)
        model.invoke("hi", extra_body={"response_format": SCHEMA})
        model.invoke("hi")
    sent = [(request.body.get("response_format"), request.body.get("top_k")) for request in s.requests]
    assert sent == [(SCHEMA, 5), (SCHEMA, None), (None, 5)]


# ------------------------------------------------------------------ the pieces of a stream


@given(st.text(), st.dictionaries(st.text(), st.text()), st.integers(min_value=0, max_value=60))
def test_splitting_a_stream_loses_nothing(text: str, args: dict[str, str], after: int) -> None:
    """Wherever a stream is cut, the two parts hold the whole, and the first has exactly the length asked for."""
    sending = as_sending(reply(text, Call("act", args)))
    chunks = chunks_of(sending, number=1, model="fake", created=0, usage=(1, 1), include_usage=True)
    before, rest = split_chunks(chunks, after)

    def said(part: list[dict[str, Any]]) -> str:
        deltas = [choice["delta"] for chunk in part for choice in chunk["choices"]]
        texts = [delta.get("content") or "" for delta in deltas]
        calls = [c["function"]["arguments"] for delta in deltas for c in delta.get("tool_calls", ())]
        return "".join(texts + calls)

    everything = text + json.dumps(args, ensure_ascii=False)
    assert said(chunks) == everything
    assert said(before) + said(rest) == everything
    assert len(said(before)) == min(after, len(everything))
