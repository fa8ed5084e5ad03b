"""Family R: retries of model calls, counted in real HTTP requests: the server's wait hint, one layer, and what no retry can mend."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelRateLimitError,
    ModelRefusalError,
    ModelTimeoutError,
)
from langchain_core.runnables import ConfigurableField

from fsm_agent import Event, Limits, Status, StopReason, tool
from fsm_agent import agent as agent_module
from fsm_agent.effects import ModelFailed
from fsm_agent.errors import ModelError
from fsm_agent.failures import model_failure, retry_after
from fsm_agent.testing import FakeClock, ScriptedModel, call, fault, forever, server
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.changes import Change
from tests.faults.kit import (
    BOTH,
    WAYS,
    Ledger,
    answers_in,
    client,
    make,
    run,
)
from tests.faults.retries import EPOCH, failures_of

# ---------------------------------------------------------------- R02 the server's wait hint


@pytest.mark.parametrize("way", WAYS)
def test_r02_the_freshest_retry_after_is_waited_for(way: str) -> None:
    """429 with 7, then 429 with 2, then a reply: waits 7 and 2 seconds, in three requests."""
    clock = FakeClock()
    with server([fault.rate_limited(7), fault.rate_limited(2), "ok"]) as s:
        result = run(make(client(s), clock=clock, limits={"max_retries": 2}), "hi", way)
    assert (result.status, result.answer, s.count) == (Status.COMPLETED, "ok", 3)
    assert clock.slept == [7.0, 2.0]
    assert len(failures_of(result)) == 2
    assert (result.model_calls, result.steps) == (3, 1)


HINTS: list[tuple[str, Any, float, float]] = [
    ("seconds", fault.rate_limited(7), 7, 7),
    ("fraction", fault.rate_limited("1.5"), 1.5, 1.5),
    ("date", fault.rate_limited(EPOCH + timedelta(seconds=9)), 8.9, 9),
    ("past-date", fault.rate_limited(EPOCH - timedelta(hours=1)), 0.05, 0.2),
    ("zero", fault.rate_limited(0), 0.05, 0.2),
    ("garbage", fault.rate_limited("soon"), 1.0, 1.1),
    ("negative", fault.rate_limited(-1), 1.0, 1.1),
    ("nan", fault.rate_limited("nan"), 1.0, 1.1),
    ("infinite", fault.rate_limited("inf"), 1.0, 1.1),
    ("none", fault.rate_limited(), 1.0, 1.1),
    ("ms", fault.rate_limited(retry_after_ms=1500), 1.5, 1.5),
    ("ms-first", fault.rate_limited(20, retry_after_ms="250"), 0.25, 0.25),
    ("ms-garbage", fault.rate_limited(3, retry_after_ms="x"), 3, 3),
    ("503", fault.http_error(503, headers={"Retry-After": "4"}), 4, 4),
    ("500", fault.server_error(), 1.0, 1.1),
]


@pytest.mark.parametrize(("name", "first", "low", "high"), HINTS, ids=[hint[0] for hint in HINTS])
def test_r02_every_form_of_the_hint(name: str, first: Any, low: float, high: float) -> None:
    """Seconds, dates and milliseconds are honoured; 0 has a floor; nonsense falls back to the computed backoff."""
    clock = FakeClock()
    with server([first, "ok"]) as s:
        result = run(make(client(s), clock=clock), "hi")
    assert (result.answer, s.count, len(clock.slept)) == ("ok", 2, 1)
    assert low <= clock.slept[0] <= high, name


def test_r02_a_wait_of_zero_has_a_floor_with_jitter() -> None:
    """Told to come back at once, runs still wait a little, and not all the same."""
    waits = set()
    for run_id in ("a", "b", "c"):
        clock = FakeClock()
        with server([fault.rate_limited(0), "ok"]) as s:
            run(make(client(s), clock=clock), "hi", config={"configurable": {"run_id": run_id}})
        waits.add(clock.slept[0])
    assert len(waits) == 3
    assert all(0.1 <= wait <= 0.11 for wait in waits)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hint", [86400, "86400", EPOCH + timedelta(days=1), 31])
def test_r02_a_wait_beyond_the_cap_fails_fast(hint: Any, way: str) -> None:
    """A server that asks for a day is not waited for: one request, no sleep, a typed ending that names the wait."""
    clock = FakeClock()
    with server([fault.rate_limited(hint)]) as s:
        result = run(make(client(s), clock=clock), "hi", way)
    assert (result.status, result.reason, s.count, clock.slept) == (Status.FAILED, StopReason.MODEL_FAILED, 1, [])
    assert "backoff_max=30" in result.detail


def test_r02_a_wait_beyond_the_deadline_fails_fast() -> None:
    """A wait that the deadline would not survive is not begun."""
    clock = FakeClock()
    with server([fault.rate_limited(20)]) as s:
        result = run(make(client(s), clock=clock, limits={"deadline": 10}), "hi")
    assert (result.status, s.count, clock.slept) == (Status.FAILED, 1, [])


def test_r02_the_hint_of_a_cause_is_not_taken_for_a_newer_one() -> None:
    """Of an exception and the older one that it was raised from, the freshest with headers decides."""

    class Response:
        """What HTTP clients attach."""

        def __init__(self, seconds: str) -> None:
            self.headers = {"retry-after": seconds}
            self.status_code = 429

    class Limited(Exception):
        """A provider's error."""

        def __init__(self, seconds: str) -> None:
            super().__init__("slow down")
            self.response = Response(seconds)

    newest = Limited("2")
    newest.__cause__ = Limited("7")
    clock = FakeClock()
    with ScriptedModel([newest, "ok"]) as model:
        run(make(model, clock=clock), "hi")
    assert clock.slept == [2.0]


def test_r02_backoff_grows_and_is_jittered_but_replays_the_same() -> None:
    """Without a hint the waits grow by the factor, each with at most the jitter on top, and depend on the run only."""
    waits: dict[str, list[float]] = {}
    for run_id in ("a", "b", "a "):
        clock = FakeClock()
        with ScriptedModel([RuntimeError("x")] * 3 + ["ok"]) as model:
            limits = {"max_retries": 3, "degrade_after": 9, "abort_after": 9}
            run(make(model, clock=clock, limits=limits), "hi", config={"configurable": {"run_id": run_id.strip()}})
        waits[run_id] = clock.slept
        for wait, base in zip(clock.slept, [1.0, 2.0, 4.0], strict=True):
            assert base <= wait <= base * 1.1
    assert waits["a"] == waits["a "] != waits["b"]


# ---------------------------------------------------------------- R03 one retry layer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_r03_the_attempts_are_the_requests(attempts: int, way: str) -> None:
    """A server that always says 429 gets exactly our attempts, whatever the client would do by itself."""
    clock = FakeClock()
    model_requests = attempts
    with server([forever(fault.rate_limited(1))]) as s:
        model = client(s)
        result = run(make(model, clock=clock, limits={"max_retries": attempts - 1}), "hi", way)
        assert s.count == model_requests
    assert (result.status, result.reason, result.model_calls) == (Status.FAILED, StopReason.MODEL_FAILED, attempts)
    assert len(failures_of(result)) == attempts
    assert clock.slept == [1.0] * (attempts - 1)
    assert result.usage.total == 0, "a refused request costs no tokens"


def test_r03_the_callers_model_keeps_its_own_retries() -> None:
    """The agent works on a copy: the model that was given still retries when it is used directly."""
    with server([fault.server_error(), "agent", fault.rate_limited("0"), "direct"]) as s:
        model = client(s)
        root = model.root_client
        result = run(make(model), "hi")
        assert result.answer == "agent"
        assert model.root_client is root
        assert model.max_retries is None
        assert model.invoke("hi").text == "direct"


def test_r03_a_retrying_wrapper_is_refused_by_name() -> None:
    """A model that hides its retries, or another model, in a wrapper is no chat model here: the error says what to give."""
    with ScriptedModel([]) as model, pytest.raises(ModelError, match=r"leave with_retry\(\) out: .*max_retries"):
        make(model.with_retry(stop_after_attempt=3))
    with (
        ScriptedModel([]) as model,
        pytest.raises(ModelError, match=r"make an agent of each, and with_fallbacks\(\) of a chain"),
    ):
        make(model.with_fallbacks([model]))
    with ScriptedModel([]) as model, pytest.raises(ModelError, match="has one model: make an agent of each"):
        make(model.configurable_fields(model_name=ConfigurableField(id="name")))
    with ScriptedModel([]) as model, pytest.raises(ModelError, match="stands there with the agent"):
        make(model | str)


@pytest.mark.parametrize("way", BOTH)
def test_r03_a_bound_model_makes_one_request_too(way: str) -> None:
    """Arguments bound by the caller are sent, and bring no retries back."""
    with server([forever(fault.server_error())]) as s:
        run(make(client(s).bind(temperature=0.5), limits={"max_retries": 1}), "hi", way)
        assert s.count == 2
        assert {request.body["temperature"] for request in s.requests} == {0.5}


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(("own", "given"), [(60.0, 60), (600.0, 600), (5.0, 60)], ids=["equal", "longer", "shorter"])
def test_r03_the_client_waits_as_long_as_the_run_does(way: str, own: float, given: float) -> None:
    """The client must not give up before the run's own `model_timeout`, which a change may have made longer."""
    with server(["ok"]) as s:
        agent = make(client(s), store=MemoryTrail(), limits={"model_timeout": 60.0}).pause_at("PLAN")
        paused = run(agent, "hi", way)
        assert agent.resume(paused.run_id, change=Change(limits={"model_timeout": own})).answer == "ok"
        assert float(s.requests[0].headers["x-stainless-read-timeout"]) == given


def test_r03_a_time_out_of_the_callers_own_stays() -> None:
    """A client that was given its own time-out keeps it, whatever the limits say."""
    with server([forever("ok")]) as s:
        for model in (client(s, timeout=7.0), client(s).bind(timeout=7.0)):
            assert run(make(model, limits={"model_timeout": 60.0}), "hi").answer == "ok"
        assert [float(request.headers["x-stainless-read-timeout"]) for request in s.requests] == [7.0, 7.0]


def test_a_model_of_this_machine_has_time_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no time-out: a local model may take ten minutes a reply, or what somebody said."""
    monkeypatch.setattr(agent_module, "resolve", lambda *_, **__: ScriptedModel([]))
    for name in ("local:1.5b", "weights.gguf"):
        assert make(name).limits == Limits(model_timeout=600)
        assert make(name, limits={"model_timeout": 5}).limits == Limits(model_timeout=5)
    assert make("openai:x").limits == Limits()


# ---------------------------------------------------------------- R04 what no retry can mend


HOPELESS: list[tuple[str, Any]] = [
    ("401", fault.unauthorized()),
    ("403", fault.forbidden()),
    ("404", fault.not_found()),
    ("400", fault.bad_request()),
    ("filter", fault.content_filtered()),
    ("context", fault.context_length_exceeded()),
    ("422", fault.http_error(422)),
    ("quota", fault.http_error(429, code="insufficient_quota", kind="insufficient_quota")),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "refusal"), HOPELESS, ids=[one[0] for one in HOPELESS])
def test_r04_a_request_that_is_wrong_is_not_repeated(name: str, refusal: Any, way: str) -> None:
    """Errors that the same request gets again are surfaced after one request, without a wait and without a fallback."""
    clock = FakeClock()
    with server([refusal]) as s:
        result = run(make(client(s), clock=clock), "hi", way)
    assert (result.status, result.reason, s.count, clock.slept) == (Status.FAILED, StopReason.MODEL_FAILED, 1, []), name
    assert "Error" in result.detail
    assert (result.answer, result.usage.total) == (None, 0)


def test_r04_the_cause_of_a_401_is_in_the_result() -> None:
    """The person reads what the server said."""
    with server([fault.unauthorized("Incorrect API key provided")]) as s:
        result = run(make(client(s)), "hi")
    assert "Incorrect API key provided" in result.detail
    assert "Authentication" in result.detail


@pytest.mark.parametrize(
    "body",
    [
        {"error": "no such model"},
        {"detail": "no such model"},
        {"detail": [{"loc": ["body", "model"], "msg": "no such model", "input": "the prompt"}]},
        [{"error": {"code": 400, "message": "no such model"}}],
        "no such model",
    ],
    ids=["error", "detail", "details", "list", "text"],
)
@pytest.mark.parametrize("way", WAYS)
def test_r04_the_cause_is_in_the_result_however_a_server_puts_it(body: Any, way: str) -> None:
    """Many servers do not say it in OpenAI's form, and the client then keeps silent; what they quote of the prompt is left out."""
    page = body if isinstance(body, str) else json.dumps(body)
    with server([fault.raw(page, status=400)]) as s:
        result = run(make(client(s)), "hi", way)
    field = "body.model: " if "loc" in page else ""
    assert f"Error code: 400 - {field}no such model" in result.detail
    assert "the prompt" not in result.detail


def test_r04_of_a_server_that_is_not_there_the_result_says_which_and_why() -> None:
    """The client says "Connection error." and no more; a person has to know where to look."""
    with server([]) as s:
        gone, address = client(s), s.base_url.removeprefix("http://").removesuffix("/v1")
    result = run(make(gone, clock=FakeClock(), limits={"max_retries": 0}), "hi")
    assert result.reason is StopReason.MODEL_FAILED
    assert "refused" in result.detail
    assert f"at {address})" in result.detail


def test_r04_the_code_in_an_error_that_is_a_mapping_counts() -> None:
    """So LangChain raises the error that a server sent as the body of a reply with status 200."""
    wrong = model_failure(ValueError({"message": "no such model", "code": 404}), at=0.0, wall=0.0, estimate=1)
    assert isinstance(wrong, ModelFailed)
    assert (wrong.status, wrong.retryable) == (404, False)


@pytest.mark.parametrize(
    ("url", "said"),
    [("https://gone.test/v1", "down (at gone.test)"), ("http://gone.test:81", "down (at gone.test:81)")],
)
def test_r04_a_server_is_named_once_with_the_port_that_was_written(url: str, said: str) -> None:
    """A connection that failed says where to, and its cause only where that says more."""
    error = httpx.ConnectError("down", request=httpx.Request("GET", url))
    error.__class__ = type("ConnectionFailed", (httpx.ConnectError,), {})
    told = model_failure(error, at=0.0, wall=0.0, estimate=1)
    assert isinstance(told, ModelFailed)
    assert told.message == said


@pytest.mark.parametrize(
    ("error", "paid"),
    [
        (httpx.RemoteProtocolError("peer closed connection (incomplete chunked read)"), 7),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), 0),
        (httpx.ReadError("reset"), 0),
    ],
    ids=["in the middle", "before it", "reset"],
)
def test_r04_a_reply_that_broke_off_has_cost_its_prompt(error: Exception, paid: int) -> None:
    """A server that had begun to answer is paid for what it read; one that had not is not."""
    told = model_failure(error, at=0.0, wall=0.0, estimate=7)
    assert isinstance(told, ModelFailed)
    assert (told.usage.total, told.usage.estimated) == (paid, paid)


def test_r04_a_reply_that_was_no_message_has_cost_its_prompt() -> None:
    """It came whole, with status 200, and the client could make nothing of it."""
    error = ValueError("no message")
    error.response = httpx.Response(200)  # type: ignore[attr-defined] # as clients do
    told = model_failure(error, at=0.0, wall=0.0, estimate=7)
    assert isinstance(told, ModelFailed)
    assert (told.usage.total, told.status, told.retryable) == (7, None, True)


def test_r04_an_error_in_an_error_without_end_is_told() -> None:
    """What a server sends as the body of an error is read only so deep."""
    body: Any = "down"
    for _ in range(5_000):
        body = {"error": body}
    error = ValueError("bad")
    error.body = body  # type: ignore[attr-defined] # as clients do
    told = model_failure(error, at=0.0, wall=0.0, estimate=1)
    assert isinstance(told, ModelFailed)
    assert told.message == "bad"


def test_r04_a_prompt_that_is_too_long_is_not_sent_again_as_it_is() -> None:
    """Some servers call it an error of their own, which would pass."""
    error = ValueError("the request exceeds the context size: n_prompt_tokens: 513, n_ctx: 512")
    error.status_code, error.code = 500, "exceed_context_size_error"  # type: ignore[attr-defined] # as clients do
    told = model_failure(error, at=0.0, wall=0.0, estimate=1)
    assert isinstance(told, ModelFailed)
    assert (told.overflow, told.retryable, told.context_tokens, told.prompt_tokens) == (True, False, 512, 513)


@pytest.mark.parametrize("kind", [ModelAuthenticationError, ModelInvalidRequestError, ModelRefusalError])
@pytest.mark.parametrize("way", WAYS)
def test_r04_an_error_of_langchain_that_no_retry_can_mend_is_not_retried(kind: type[Exception], way: str) -> None:
    """A model class of somebody's own may raise LangChain's errors without an HTTP status; they say themselves whether to retry."""
    model = ScriptedModel([forever(kind("no"))])
    result = run(make(model, clock=FakeClock()), "hi", way)
    assert (result.reason, result.model_calls) == (StopReason.MODEL_FAILED, 1)


@pytest.mark.parametrize("kind", [ModelRateLimitError, ModelTimeoutError, ModelConnectionError])
def test_r04_an_error_of_langchain_that_passes_is_retried(kind: type[Exception]) -> None:
    """The counter-check."""
    assert run(make(ScriptedModel([kind("busy"), "ok"]), clock=FakeClock()), "hi").answer == "ok"


def test_r04_a_code_that_says_hopeless_counts_without_a_status() -> None:
    """In the midst of a stream an error has a code, but no status."""
    error = ValueError("no quota")
    error.code = "insufficient_quota"  # type: ignore[attr-defined] # as clients do
    told = model_failure(error, at=0.0, wall=0.0, estimate=1)
    assert isinstance(told, ModelFailed)
    assert not told.retryable


def test_r04_a_prompt_that_langchain_calls_too_long_is_an_overflow() -> None:
    """LangChain has a class for it, whatever the words and the status."""
    told = model_failure(ContextOverflowError("too much"), at=0.0, wall=0.0, estimate=1)
    assert isinstance(told, ModelFailed)
    assert (told.overflow, told.retryable) == (True, False)


def test_r02_a_date_that_has_passed_is_no_wait() -> None:
    """A server whose clock is behind asks for none, not for less than none."""
    assert retry_after({"Retry-After": "Thu, 01 Jan 1970 00:00:10 GMT"}, wall=25.0) == 0.0


@pytest.mark.parametrize(
    "trouble",
    [
        fault.server_error(),
        fault.http_error(408),
        fault.drop_connection(),
        fault.drop_connection(after_chars=5),
        fault.invalid_json(),
        fault.html_page(502),
        fault.empty_choices(),
        fault.error_in_stream(after_chars=5),
    ],
    ids=["500", "408", "drop", "drop-mid", "no-json", "html", "no-choice", "error-event"],
)
@pytest.mark.parametrize("way", WAYS)
def test_r04_control_what_passes_is_retried_once(trouble: Any, way: str) -> None:
    """Trouble that may pass costs one more request, and the run completes."""
    with server([trouble, "ok"]) as s:
        result = run(make(client(s)), "hi", way)
    assert (result.status, result.answer, s.count) == (Status.COMPLETED, "ok", 2)
    assert result.model_calls == 2


@pytest.mark.parametrize("way", WAYS)
def test_r04_a_deterministic_500_is_bounded(way: str) -> None:
    """A 500 that never passes costs the attempts, no more."""
    with server([forever(fault.server_error())]) as s:
        result = run(make(client(s)), "hi", way)
        assert s.count == 2
    assert (result.status, result.reason) == (Status.FAILED, StopReason.MODEL_FAILED)


@pytest.mark.parametrize("way", WAYS)
def test_r04_a_bug_in_a_tool_is_not_an_argument_error_and_not_retried(way: str) -> None:
    """TypeError out of a tool's own body: executed once, told as the tool's failure, with its type and words."""
    ledger = Ledger()

    def broken(n: int) -> str:
        """Has a typo."""
        ledger.note(n=n)
        return len(n)  # type: ignore[arg-type,return-value]  # the typo

    clock = FakeClock()
    with ScriptedModel([call("broken", n=1), "sorry"]) as model:
        result = run(make(model, [broken], clock=clock), "go", way)
    told = answers_in(model.requests[1])[0].text
    assert (len(ledger), result.tool_calls, clock.slept) == (1, 1, [])
    assert "TypeError: object of type 'int' has no len()" in told
    assert "Fields" not in told
    assert "field" not in told
    observed = next(record for record in result.transitions if record.event is Event.OBSERVED)
    assert "TypeError" in observed.error


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (ValueError("unknown city 'x'"), 1),
        (KeyError("x"), 1),
        (ZeroDivisionError("division by zero"), 1),
        (json.JSONDecodeError("no JSON", "<html>", 0), 2),
        (RuntimeError("busy"), 2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_r04_a_wrong_value_is_told_at_once_and_not_tried_again(error: Exception, times: int) -> None:
    """What was wrong with a value is wrong again: one failure, no wait; a tool that says `retry` knows better."""
    for retry in (None, 1):
        ledger, clock = Ledger(), FakeClock()

        @tool(retry=retry)
        def look(city: str) -> str:
            """Look a city up."""
            ledger.note()  # noqa: B023 - called in this turn of the loop only
            raise error

        with ScriptedModel([call("look", city="x"), "sorry"]) as model:
            result = run(make(model, [look], clock=clock), "go")
        expected = times if retry is None else 2
        assert (len(ledger), len(clock.slept), result.status) == (expected, expected - 1, Status.COMPLETED)


def test_r04_the_original_cause_stays_when_a_fallback_answers() -> None:
    """When a fallback mends it, the records still say what was wrong with the first tool."""

    def spare(n: int) -> str:
        """The spare."""
        return f"spare {n}"

    @tool(fallback=tool(spare))
    def broken(n: int) -> str:
        """Has a bug."""
        raise TypeError("a typo")

    with ScriptedModel([call("broken", n=1), "ok"]) as model:
        result = run(make(model, [broken], limits={"degrade_after": 1}), "go")
    assert result.answer == "ok"
    assert any("TypeError: a typo" in record.error for record in result.transitions)
    told = answers_in(model.requests[1])[0].text
    assert "TypeError: a typo" in told
    assert "spare 1" in told
