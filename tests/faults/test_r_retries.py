"""Family R: retries, fallbacks and time-outs, counted in real HTTP requests where a server is involved."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from langchain_core.runnables import ConfigurableField

from fsm_agent import Event, Limits, RunResult, State, Status, StopReason, Tool, tool
from fsm_agent import agent as agent_module
from fsm_agent.errors import ModelError
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call, fault, forever, server
from fsm_agent.tools import CallInfo, ToolRefusal, ToolResult
from fsm_agent.trail import MemoryTrail, audit
from fsm_agent.trail.changes import Change
from tests.faults.kit import (
    BOTH,
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

EPOCH = datetime.fromtimestamp(FakeClock().time(), UTC)


def failures_of(result: RunResult) -> list[str]:
    """The error of every failed model attempt that the records hold."""
    return [record.error for record in result.transitions if record.event is Event.MODEL_FAILED]


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


# ---------------------------------------------------------------- R06 the event loop stays free


async def heartbeat(beats: int, go: threading.Event) -> int:
    """Let the loop turn `beats` times, then let the blocked one go."""
    for _ in range(beats):
        await asyncio.sleep(0)
    go.set()
    return beats


@pytest.mark.parametrize("batch", [1, 3])
async def test_r06_a_blocking_tool_leaves_the_event_loop_free(batch: int) -> None:
    """A sync tool blocks until another task of the same loop has run: were it on the loop, neither would end."""
    go = threading.Event()

    def blocks(n: int) -> str:
        """Block."""
        return "freed" if go.wait(PATIENCE) else f"never freed {n}"

    script = [[call("blocks", n=number) for number in range(batch)], "done"]
    with ScriptedModel(script) as model:
        agent = make(model, [blocks])
        result, _ = await asyncio.gather(agent.ainvoke("go"), heartbeat(20, go))
    assert [message.text for message in answers_in(model.requests[1])] == ["freed"] * batch
    assert result.answer == "done"


async def test_r06_a_blocking_approval_leaves_the_event_loop_free() -> None:
    """A plain function that asks a person does not stop the loop."""
    go = threading.Event()

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    with ScriptedModel([call("pay"), "done"]) as model:
        agent = make(model, [pay], approve=lambda _: go.wait(PATIENCE))
        result, _ = await asyncio.gather(agent.ainvoke("go"), heartbeat(20, go))
    assert (result.answer, result.tool_calls) == ("done", 1)


class Patient(FakeClock):
    """A clock whose async sleep really waits, for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep_now, self.wake = asyncio.Event(), asyncio.Event()

    async def asleep(self, seconds: float) -> None:
        """Wait until woken."""
        self.slept.append(seconds)
        self.asleep_now.set()
        await self.wake.wait()

    def sleep(self, seconds: float) -> None:
        """Never used by an async run."""
        raise AssertionError("an async run slept on the thread")


async def test_r06_backoff_sleeps_on_the_loop_and_can_be_cancelled() -> None:
    """A retry's wait is an async sleep: a cancellation ends it at once, with no further model call."""
    clock, seen = Patient(), Seen()
    with ScriptedModel([RuntimeError("down")]) as model:
        agent = make(model, clock=clock, observers=[seen])
        task = asyncio.ensure_future(agent.ainvoke("go"))
        await clock.asleep_now.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert model.count == 1
    assert consistent(seen.records)
    assert (seen.records[-1].source, seen.records[-1].event) == (State.RETRY, Event.CANCELLED)


async def test_r06_control_the_same_backoff_ends_in_a_retry() -> None:
    """Woken, the same run goes on and completes."""
    clock = Patient()
    with ScriptedModel([RuntimeError("down"), "up"]) as model:
        task = asyncio.ensure_future(make(model, clock=clock).ainvoke("go"))
        await clock.asleep_now.wait()
        clock.wake.set()
        result = await task
    assert (result.answer, len(clock.slept)) == ("up", 1)


# ---------------------------------------------------------------- R07 one giant result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "unit", ["é", "汉", "👨‍👩‍👧‍👦", "e\u0301", "x"], ids=["latin", "chinese", "family", "combining", "ascii"]
)
def test_r07_a_giant_result_is_cut_on_a_character(unit: str, way: str) -> None:
    """Two megabytes are cut at the cap, on a character, with the original size; the whole text stays in the result."""
    whole = unit * (2_000_000 // len(unit.encode()))

    def big() -> str:
        """Return a lot."""
        return whole

    with ScriptedModel([call("big"), "seen"]) as model:
        result = run(make(model, [big]), "go", way)
    told = answers_in(model.requests[1])[0].text
    body, marker = told.rsplit("\n", 1)
    assert len(told) < 8_200
    assert len(body) > 7_900
    assert not body.replace(unit, ""), "no character is cut in half"
    assert str(len(whole)) in marker
    assert result.results[0].full == whole
    assert result.answer == "seen"
    assert_sendable(model.requests)


def test_r07_a_tools_own_cap_counts_and_a_small_result_is_whole() -> None:
    """A tool may have its own cap, however small: behind it stands how much there was; what fits is neither cut nor marked."""

    @tool(max_result_chars=200)
    def search(n: int) -> str:
        """Search."""
        return "r" * n

    with ScriptedModel([[call("search", n=200), call("search", n=201)], "ok"]) as model:
        result = run(make(model, [search]), "go")
    fits, cut = answers_in(model.requests[1])
    assert fits.text == "r" * 200
    assert cut.text == "r" * 200 + "\n[cut: the first 200 of 201 characters]"
    assert [one.full for one in result.results] == [None, "r" * 201]


def test_r07_what_was_cut_is_told_in_the_language_of_the_task() -> None:
    """The mark behind a result that was cut is one of the things that the model reads in Chinese too."""

    @tool(max_result_chars=2)
    def search() -> str:
        """Search."""
        return "北京上海"

    with ScriptedModel([call("search"), "好"]) as model:
        run(make(model, [search]), "查一下城市")
    assert answers_in(model.requests[1])[0].text == "北京\n[已截断：共 4 个字符，这里是前 2 个]"


def test_r07_an_error_of_two_megabytes_is_cut_too() -> None:
    """A tool that raises a giant message does not fill the prompt with it."""

    def boom() -> str:
        """Fail at length."""
        raise ValueError("y" * 2_000_000)

    with ScriptedModel([call("boom"), "ok"]) as model:
        result = run(make(model, [boom], limits={"max_retries": 0}), "go")
    assert len(model.requests[1].text) < 3_000
    assert len(result.detail) < 3_000


# ---------------------------------------------------------------- R08 fallbacks


def chain(ledger: Ledger, **options: Any) -> list[Tool]:
    """Search -> search_basic -> delete_cache (which a person must approve)."""

    @tool(requires_approval=True)
    def delete_cache() -> str:
        """Delete the cache."""
        ledger.note(tool="delete_cache")
        return "deleted"

    @tool(fallback=delete_cache)
    def search_basic(query: str) -> str:
        """Search simply."""
        ledger.note(tool="search_basic", query=query)
        if options.get("basic_fails"):
            raise ConnectionError("basic down")
        return f"basic result for {query}"

    @tool(fallback=search_basic, map_fallback=options.get("mapper"))
    def search(q: str, lang: str = "en") -> str:
        """Search."""
        ledger.note(tool="search", q=q, lang=lang)
        raise ConnectionError("search down")

    return [search]


def by_query(arguments: dict[str, Any]) -> dict[str, Any]:
    """The mapping from search to search_basic."""
    return {"query": arguments["q"]}


@pytest.mark.parametrize("way", WAYS)
def test_r08_a_fallback_gets_mapped_and_checked_arguments(way: str) -> None:
    """After its retry the call is made by the fallback, once, with its own arguments; the model reads which ran."""
    ledger = Ledger()
    with ScriptedModel([Call("search", {"q": "x", "lang": "no"}, id="c1"), "found"]) as model:
        result = run(make(model, chain(ledger, mapper=by_query)), "go", way)
    assert [entry["tool"] for entry in ledger.entries] == ["search", "search", "search_basic"]
    assert ledger.entries[2] == {"tool": "search_basic", "query": "x"}
    (told,) = answers_in(model.requests[1])
    assert told.tool_call_id == "c1"
    assert "search_basic was executed instead" in told.text
    assert "basic result for x" in told.text
    assert (result.status, result.answer, result.tool_calls) == (Status.COMPLETED, "found", 3)
    assert model.count == 2, "choosing the fallback takes no model call"
    events = [record.event for record in result.transitions]
    assert events.count(Event.FALLBACK_CHOSEN) == 1
    assert result.path()[result.path().index(State.DEGRADE) + 1] is State.VALIDATE
    assert_sendable(model.requests)


@pytest.mark.parametrize("mapper", [None, lambda given: {"query": 5}, lambda given: given["nothing"], dict])
def test_r08_arguments_that_do_not_fit_the_fallback_run_nothing(mapper: Any) -> None:
    """Another signature without a mapping, or a mapping that gives the wrong thing or raises, executes no fallback."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x"), "sorry"]) as model:
        result = run(make(model, chain(ledger, mapper=mapper), limits={"abort_after": 5}), "go")
    assert {entry["tool"] for entry in ledger.entries} == {"search"}
    assert (result.status, result.answer) == (Status.COMPLETED, "sorry")
    assert "search down" in model.requests[1].text
    assert "could not be used" not in model.requests[1].text, "the model's own reply was right"
    assert_sendable(model.requests)


@pytest.mark.parametrize(
    ("mapper", "told"),
    [
        (None, 'search_basic could not stand in: search_basic: field "query" is missing'),
        (lambda given: {"query": 5}, 'field "query" must be string'),
        (lambda given: given["nothing"], "map_fallback of search raised KeyError: 'nothing'"),
        (lambda given: 5, "map_fallback of search raised TypeError"),
    ],
)
def test_r08_why_a_fallback_did_not_stand_in_is_told(mapper: Any, told: str) -> None:
    """A mapping that fails is somebody's bug: one record of the run names it, and the model is told only of the tool that it called."""
    with ScriptedModel([call("search", q="x"), call("search", q=1), "sorry"]) as model:
        agent = make(model, chain(Ledger(), mapper=mapper), limits={"abort_after": 9}, store=MemoryTrail())
        result = run(agent, "go")
    errors = [record.error for record in result.transitions]
    assert [told in error for error in errors].count(True) == 1, errors
    assert "stand in" not in model.requests[2].text
    assert audit(agent.journal, result.run_id, agent.setup).ok


def test_r08_a_fallback_that_needs_approval_asks() -> None:
    """The second fallback deletes: nothing of it happens before a person has said yes to exactly that call."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x")]) as model:
        agent = make(
            model, chain(ledger, mapper=by_query, basic_fails=True), limits={"degrade_after": 1, "abort_after": 9}
        )
        result = run(agent, "go")
    assert result.status is Status.SUSPENDED
    assert result.pending is not None
    assert [one.tool for one in result.pending.calls] == ["delete_cache"]
    assert "delete_cache" not in {entry["tool"] for entry in ledger.entries}


def test_r08_a_refused_fallback_is_not_run_and_the_model_goes_on() -> None:
    """Denied, the fallback is not executed; the model reads what happened and decides."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x"), "I could not search"]) as model:
        agent = make(
            model,
            chain(ledger, mapper=by_query, basic_fails=True),
            limits={"degrade_after": 1, "abort_after": 9},
            approve=lambda _: False,
        )
        result = run(agent, "go")
    assert result.answer == "I could not search"
    assert "delete_cache" not in {entry["tool"] for entry in ledger.entries}
    assert_sendable(model.requests)


def test_r08_malformed_arguments_never_reach_a_fallback() -> None:
    """Arguments that were refused were never executed, so there is nothing to fall back from."""
    ledger = Ledger()
    with ScriptedModel([call("search", q=5), call("search", q=6), "sorry"]) as model:
        result = run(make(model, chain(ledger, mapper=by_query)), "go")
    assert (len(ledger), result.tool_calls, result.answer) == (0, 0, "sorry")
    assert Event.FALLBACK_CHOSEN not in [record.event for record in result.transitions]


def test_r08_a_hidden_fallback_cannot_be_called_by_the_model() -> None:
    """A fallback that is no registered tool is not offered, and a call of it is unknown."""
    ledger = Ledger()
    with ScriptedModel([call("search_basic", query="x"), "sorry"]) as model:
        run(make(model, chain(ledger)), "go")
    assert model.requests[0].tool_names == ("search",)
    assert len(ledger) == 0
    assert "There is no tool" in model.requests[1].text


# ---------------------------------------------------------------- R09 what a tool may raise


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
            return cast(Exception, type("ClientResponseError", (Exception,), {"status": status})("no"))
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
    [lost("ConnectError"), lost("ConnectionError", lost("NewConnectionError", ConnectionRefusedError()))],
    ids=["httpx", "requests"],
)
def test_r09_control_a_connection_that_never_was_is_retried(error: Exception) -> None:
    """Nothing was sent, so that the call is made again."""
    ledger = Ledger()

    @tool
    def pay() -> str:
        """Pay."""
        ledger.note()
        raise error

    with ScriptedModel([call("pay"), "ok"]) as model:
        run(make(model, [pay]), "go")
    assert len(ledger) == 2


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
