"""Family R: what a tool may raise: which exceptions are tried again, and what is said of the others."""

from __future__ import annotations

import asyncio
import gc
import threading
import urllib.error
import warnings
from email.message import Message
from types import SimpleNamespace
from typing import Annotated, Any, cast

import httpx
import pytest
from pydantic import AfterValidator

from fsm_agent import Event, State, Status, tool
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, fault, server
from fsm_agent.tools import CallInfo, ToolRefusal, ToolResult
from tests.faults.kit import (
    PATIENCE,
    WAYS,
    Ledger,
    Seen,
    answers_in,
    assert_sendable,
    client,
    consistent,
    in_thread,
    make,
    run,
)


def raising(error: BaseException, ledger: Ledger, kind: str) -> Any:
    """A tool that raises `error`."""
    if kind == "async":

        @tool("bad")
        async def abad() -> str:
            """Raise."""
            ledger.note()
            raise error

        return abad

    @tool("bad")
    def bad() -> str:
        """Raise."""
        ledger.note()
        raise error

    return bad


class Unsayable(Exception):
    """An exception that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ORDINARY: list[tuple[str, BaseException, str]] = [
    ("value", ValueError("bad value"), "bad failed: ValueError: bad value"),
    ("empty", ValueError(), "bad failed: ValueError"),
    ("blank", RuntimeError("  "), "bad failed: RuntimeError"),
    ("timeout", TimeoutError(), "bad failed: TimeoutError"),
    ("key", KeyError("k"), "bad failed: KeyError: 'k'"),
    ("os", OSError(28, "No space left on device"), "No space left on device"),
    ("group", ExceptionGroup("two", [ValueError("a"), TypeError("b")]), "ExceptionGroup"),
    ("stop", StopIteration("x"), "Stop"),
    ("unsayable", Unsayable(), "Unsayable"),
    ("refusal", ToolRefusal("ask for something else"), "ask for something else"),
    ("surrogate", ValueError("\ud800"), "ValueError"),
]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "error", "said"), ORDINARY, ids=[one[0] for one in ORDINARY])
def test_r09_an_exception_is_a_result_and_the_run_goes_on(
    name: str, error: Any, said: str, way: str, kind: str
) -> None:
    """Whatever exception a tool raises becomes an error result with its name, and the run goes on to its answer."""
    ledger = Ledger()
    with ScriptedModel([call("bad"), "all the same"]) as model:
        result = run(make(model, [raising(error, ledger, kind)], limits={"max_retries": 0}), "go", way)
    assert (result.status, result.answer, len(ledger)) == (Status.COMPLETED, "all the same", 1), name
    (told,) = answers_in(model.requests[1])
    assert told.status == "error"
    assert said in told.text
    told.text.encode()


@pytest.mark.parametrize(("way", "watched"), [("invoke", False), *((way, True) for way in WAYS)])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_r09_what_means_stop_propagates_after_the_run_was_closed(
    error: type[BaseException], kind: str, batch: int, way: str, watched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """KeyboardInterrupt, SystemExit and CancelledError reach the caller; the run is terminal, the thread is free."""
    ledger, seen = Ledger(), Seen()

    def other() -> str:
        """Be well."""
        return "fine"

    calls = [call("bad"), call("other")][:batch]
    config = {"configurable": {"thread_id": "t", "run_id": "r"}}
    with ScriptedModel([calls, "second"]) as model:
        agent = make(
            model,
            [raising(error(), ledger, kind), other],
            observers=[seen] if watched else [],
            limits={"max_retries": 0},
        )
        with pytest.raises(error):
            run(agent, "go", way, config)
        if watched:
            assert consistent(seen.records)
            assert (seen.records[-1].source, seen.records[-1].event) == (State.EXECUTE, Event.CANCELLED)
        assert agent.cancel("r") is False
        assert run(agent, "again", "invoke", config).answer == "second"
    assert len(ledger) == 1
    assert_sendable(model.requests)
    gc.collect(1)
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_r09_a_failure_that_passes_is_retried_once(way: str, kind: str) -> None:
    """A failure that may pass is tried again after the backoff, without a model call in between."""
    ledger, clock = Ledger(), FakeClock()

    def body() -> str:
        ledger.note()
        if len(ledger) == 1:
            raise ConnectionError("down")
        return "up"

    if kind == "async":

        @tool("flaky")
        async def aflaky() -> str:
            """Work the second time."""
            return body()

        flaky = aflaky
    else:

        @tool("flaky")
        def sflaky() -> str:
            """Work the second time."""
            return body()

        flaky = sflaky
    with ScriptedModel([call("flaky"), "done"]) as model:
        result = run(make(model, [flaky], clock=clock), "go", way)
    assert (len(ledger), result.tool_calls, model.count, len(clock.slept)) == (2, 2, 2, 1)
    assert 1.0 <= clock.slept[0] <= 1.1
    assert answers_in(model.requests[1])[0].text == "up"
    assert (result.status, result.transitions[-1].failures) == (Status.COMPLETED, 0)


def lost(name: str, cause: BaseException | None = None, code: int | None = None) -> Exception:
    """An exception of a client, by its class name: raised from `cause`, or with the code of an MCP server."""
    error: Exception = type(name, (Exception,), {} if code is None else {"error": SimpleNamespace(code=code)})("lost")
    error.__context__ = cause
    return error


def from_none(error: Exception) -> Exception:
    """`error` as `raise error from None` leaves it."""
    error.__suppress_context__ = True
    return error


LOST: dict[str, Exception] = {
    "stdlib": ConnectionResetError(),
    "httpx": lost("ReadError"),
    "httpx, closed": lost("RemoteProtocolError"),
    "httpx, late": lost("ReadTimeout"),
    "requests": lost("ConnectionError", lost("ProtocolError", ConnectionResetError())),
    "aiohttp": lost("ServerDisconnectedError"),
    "aiohttp, reset": lost("ClientOSError", ConnectionResetError()),
    "mcp": lost("McpError", code=-32000),
    "mcp, late": lost("McpError", code=408),
}


@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
@pytest.mark.parametrize("way", WAYS)
def test_r09_a_connection_lost_midway_is_no_failure_to_retry(way: str, error: Exception) -> None:
    """The call may have taken effect, whichever client tells of it: it is not made again unless it may be."""
    ledger, again = Ledger(), Ledger()

    @tool
    def pay() -> str:
        """Pay."""
        ledger.note()
        raise error

    @tool(idempotent=True)
    def put() -> str:
        """Put."""
        again.note()
        raise error

    limits = {"degrade_after": 9, "abort_after": 9}
    with ScriptedModel([call("pay"), call("put"), "ok"]) as model:
        run(make(model, [pay, put], limits=limits), "go", way)
    assert (len(ledger), len(again)) == (1, 2)


def said(status: int, by: str) -> Exception:
    """What an HTTP client raises for a reply with this status."""
    match by:
        case "httpx":
            reply = httpx.Response(status, request=httpx.Request("POST", "http://localhost/"))
            return httpx.HTTPStatusError("no", request=reply.request, response=reply)
        case "requests":
            error: Exception = type("HTTPError", (OSError,), {"response": SimpleNamespace(status_code=status)})("no")
            return error
        case "aiohttp":
            # Its `code` warns that it is deprecated, which is an error here: nobody may look at it.
            old = property(lambda _: warnings.warn("use status", DeprecationWarning, stacklevel=2))
            return cast(Exception, type("ClientResponseError", (Exception,), {"status": status, "code": old})("no"))
        case "urllib":
            return urllib.error.HTTPError("http://localhost/", status, "no", Message(), None)
    wrapped = RuntimeError("the service did not take it")
    wrapped.__cause__ = said(status, "httpx")
    return wrapped


@pytest.mark.parametrize("by", ["httpx", "requests", "aiohttp", "urllib", "wrapped"])
@pytest.mark.parametrize(
    ("status", "calls"),
    [(400, 1), (401, 1), (404, 1), (422, 1), (408, 2), (409, 2), (425, 2), (429, 2), (500, 2), (503, 2)],
)
def test_r09_what_a_server_refused_is_not_asked_again(status: int, calls: int, by: str) -> None:
    """A 4xx that does not pass is told to the model at once, whichever client tells of it; a tool that sets `retry` is called again."""
    ledger, told = Ledger(), Ledger()

    @tool
    def order() -> str:
        """Order."""
        ledger.note()
        raise said(status, by)

    @tool(retry=1)
    def insist() -> str:
        """Insist."""
        told.note()
        raise said(status, by)

    limits = {"degrade_after": 9, "abort_after": 9}
    with ScriptedModel([call("order"), call("insist"), "ok"]) as model:
        run(make(model, [order, insist], limits=limits), "go")
    assert (len(ledger), len(told)) == (calls, 2)


@pytest.mark.parametrize("way", WAYS)
def test_r09_an_exception_that_cannot_be_asked_is_a_failure_as_any(way: str) -> None:
    """A property of it that raises in its turn breaks nothing."""

    class Odd(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("no response yet")

    @tool
    def order() -> str:
        """Order."""
        raise Odd("no")

    with ScriptedModel([call("order"), "ok"]) as model:
        result = run(make(model, [order], limits={"degrade_after": 9, "abort_after": 9}), "go", way)
    assert (result.answer, result.tool_calls) == ("ok", 2)


@pytest.mark.parametrize(
    "error",
    [
        lost("ConnectError"),
        lost("ConnectionError", lost("NewConnectionError", ConnectionRefusedError())),
        from_none(lost("NotSent", TimeoutError())),
    ],
    ids=["httpx", "requests", "from None"],
)
def test_r09_control_a_connection_that_never_was_is_retried(error: Exception) -> None:
    """Nothing was sent, or the tool says that what came before does not count, so that the call is made again."""
    ledger = Ledger()

    @tool
    def pay() -> str:
        """Pay."""
        ledger.note()
        raise error

    with ScriptedModel([call("pay"), "ok"]) as model:
        run(make(model, [pay]), "go")
    assert len(ledger) == 2


def test_r09_a_retry_is_made_with_the_same_arguments_or_not_at_all() -> None:
    """A check that changes the arguments each time would have it make another call than the one that was let through."""
    called: list[str] = []

    @tool
    def look(where: Annotated[str, AfterValidator(lambda name: f"{name}!")]) -> str:
        """Look."""
        called.append(where)
        raise ConnectionError("down")

    with ScriptedModel([call("look", where="here"), "ok"]) as model:
        result = run(make(model, [look], clock=FakeClock()), "go")
    assert (result.answer, called) == ("ok", ["here!"])
    assert "makes other arguments of them each time" in answers_in(model.requests[1])[0].text


@pytest.mark.parametrize("retry", [0, 1, 3])
def test_r09_a_tools_own_number_of_retries_counts(retry: int) -> None:
    """A tool that always fails is executed once and then as often as it allows."""
    ledger = Ledger()

    @tool(retry=retry)
    def bad() -> str:
        """Fail."""
        ledger.note()
        raise ConnectionError("down")

    limits = {"degrade_after": 9, "abort_after": 9}
    with ScriptedModel([call("bad"), "ok"]) as model:
        result = run(make(model, [bad], limits=limits), "go")
    assert (len(ledger), result.status) == (1 + retry, Status.COMPLETED)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_r09_a_call_that_timed_out_is_repeated_only_when_idempotent(way: str, idempotent: bool) -> None:
    """Nobody knows whether a call without a result took effect: only an idempotent one is made again."""
    ledger, release = Ledger(), threading.Event()

    @tool(idempotent=idempotent, timeout=0.03)
    def slow() -> str:
        """Take too long."""
        ledger.note()
        release.wait(PATIENCE)
        return "late"

    with ScriptedModel([call("slow"), "ok"]) as model:
        result = run(make(model, [slow]), "go", way)
    release.set()
    assert (len(ledger), result.status) == (2 if idempotent else 1, Status.COMPLETED)
    told = answers_in(model.requests[1])[0].text
    assert "within 0.03 seconds" in told
    assert "unknown" in told


def test_r09_a_tool_that_reports_failure_in_its_result_failed() -> None:
    """`ToolResult(failed=True)` is a failure although nothing was raised."""

    def odd() -> ToolResult:
        """Report a failure."""
        return ToolResult(content="no such order", failed=True)

    with ScriptedModel([call("odd"), "ok"]) as model:
        result = run(make(model, [odd]), "go")
    assert answers_in(model.requests[1])[0].status == "error"
    assert result.transitions[-3].failures == 1


@pytest.mark.parametrize("way", WAYS)
def test_r09_every_attempt_at_a_call_has_the_same_idempotency_key(way: str) -> None:
    """All attempts at a call share one idempotency key, other calls have others, and the attempt is told."""
    ledger = Ledger()

    def pays(amount: int, info: CallInfo) -> str:
        """Pay."""
        ledger.note(amount=amount, key=info.idempotency_key, attempt=info.attempt, run=info.run_id, call=info.call_id)
        if info.attempt == 1:
            raise ConnectionError("no answer")
        return f"paid {amount}"

    batch = [Call("pays", {"amount": 1}, id="a"), Call("pays", {"amount": 2}, id="b")]
    with ScriptedModel([batch, "done"]) as model:
        run(make(model, [pays]), "go", way, {"configurable": {"run_id": "r"}})
    entries = sorted(ledger.entries, key=lambda entry: (entry["amount"], entry["attempt"]))
    assert [(entry["call"], entry["attempt"], entry["run"]) for entry in entries] == [
        ("a", 1, "r"),
        ("a", 2, "r"),
        ("b", 1, "r"),
        ("b", 2, "r"),
    ]
    keys = [entry["key"] for entry in entries]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert model.requests[0].tools[0]["function"]["parameters"]["properties"].keys() == {"amount"}


@pytest.mark.parametrize("way", WAYS)
def test_r09_only_the_failed_call_of_a_batch_is_made_again(way: str) -> None:
    """Of three calls one fails once: it alone is retried, the others keep their results."""
    ledger = Ledger()

    def works(n: int) -> str:
        """Work, except 2 at first."""
        ledger.note(n=n)
        if n == 2 and len([entry for entry in ledger.entries if entry["n"] == 2]) == 1:
            raise ConnectionError("down")
        return f"did {n}"

    with ScriptedModel([[call("works", n=n) for n in (1, 2, 3)], "done"]) as model:
        result = run(make(model, [works]), "go", way)
    assert sorted(entry["n"] for entry in ledger.entries) == [1, 2, 2, 3]
    assert [message.text for message in answers_in(model.requests[1])] == ["did 1", "did 2", "did 3"]
    assert (result.tool_calls, result.status) == (4, Status.COMPLETED)


@pytest.mark.parametrize(
    "said", ["response_format is not supported", "temperature does not support 0.5", "stream_options"]
)
def test_r04_runs_that_are_refused_together_each_go_on_without_it(said: str) -> None:
    """What a server does not take is left out by every run that it has refused for it, not only by the first of them."""
    together = threading.Barrier(4)

    def strict(request: Any) -> Any:
        if said.split(maxsplit=1)[0] in request.body:
            together.wait(PATIENCE)
            return fault.http_error(400, said)
        return '{"action": "FINISH", "action_input": {"answer": "hello"}}'

    with server(strict) as s:
        agent = make(client(s), dialect="json_action", temperature=0.5)
        joins = [in_thread(lambda: run(agent, "hi", "stream")) for _ in range(4)]
        results = [join() for join in joins]
    assert ([result.answer for result in results], s.count) == (["hello"] * 4, 8)
