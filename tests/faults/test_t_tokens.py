"""Family T: every token is counted, whatever the server says of it, and the budget holds before it is overrun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from fsm_agent import Event, Limits, State, Status, StopReason, SummaryWindow, Transitioned
from fsm_agent.effects import Usage
from fsm_agent.testing import Call, ScriptedModel, call, fault, forever, reply, server
from fsm_agent.usage import read_usage
from tests.faults.kit import BOTH, WAYS, Ledger, answers_in, assert_sendable, client, make, run


def add_of(ledger: Ledger) -> Any:
    """A tool whose every result is new."""

    def add(a: int, b: int) -> str:
        """Add two numbers."""
        ledger.note(a=a, b=b)
        return f"sum {a + b}"

    return add


def endless(request: Any) -> Any:
    """A model that never answers of itself."""
    return call("add", a=request.number, b=1) if request.tools else "what I have"


def charged(records: tuple[Transitioned, ...]) -> list[int]:
    """What each model call cost, in order, from the records."""
    totals = [record.tokens for record in records if record.event in (Event.REPLIED, Event.MODEL_FAILED)]
    return [now - before for before, now in zip([0, *totals], totals, strict=False)]


# ---------------------------------------------------------------- T02 no usage at all


@pytest.mark.parametrize("way", WAYS)
def test_t02_a_server_without_usage_still_meets_the_budget(way: str) -> None:
    """Usage None for up to 50 replies and a budget of 1000: estimated, marked as estimated, and the budget trips."""
    ledger = Ledger()
    model = ScriptedModel(endless, usage=None)
    limits = {"token_budget": 1000, "max_steps": 50, "on_limit": "stop"}
    result = run(make(model, [add_of(ledger)], limits=limits), "add", way)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.TOKEN_BUDGET)
    assert 1 < model.count < 50
    assert 0 < result.usage.total <= 1000
    assert result.usage.estimated == result.usage.total
    assert result.transitions[-1].estimated_tokens == result.usage.total
    assert all(cost > 0 for cost in charged(result.transitions))


@pytest.mark.parametrize("way", WAYS)
def test_t02_a_forced_answer_stays_within_the_budget(way: str) -> None:
    """With an answer asked for at the limit, the whole run stays within the budget: a reserve was kept for it."""
    model = ScriptedModel(endless, usage=None)
    limits = {"token_budget": 3000, "max_steps": 50}
    result = run(make(model, [add_of(Ledger())], limits=limits), "add", way)
    assert (result.status, result.answer) == (Status.PARTIAL, "what I have")
    assert result.usage.total <= 3000
    assert "token_budget=3000" in result.detail


@pytest.mark.parametrize("way", WAYS)
def test_t02_through_the_real_client_without_usage(way: str) -> None:
    """A server of one's own that reports no usage, streamed or not."""
    with server(
        lambda request: call("add", a=request.number, b=1) if request.tool_names else "what I have", usage=None
    ) as s:
        limits = {"token_budget": 700, "max_steps": 50, "on_limit": "stop"}
        result = run(make(client(s), [add_of(Ledger())], limits=limits), "add", way)
        assert 1 < s.count < 20
    assert result.reason is StopReason.TOKEN_BUDGET
    assert result.usage.estimated == result.usage.total > 0


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_t02_a_stream_is_asked_for_its_usage(way: str) -> None:
    """With a custom base_url LangChain does not ask a stream for usage; the agent does, and counts it exactly."""
    with server([call("add", a=1, b=1), "2"], usage=(11, 7)) as s:
        result = run(make(client(s), [add_of(Ledger())]), "1+1", way)
    assert [request.body["stream_options"] for request in s.requests] == [{"include_usage": True}] * 2
    assert result.usage == Usage(22, 14, 36, 0)


_NO_INPUT = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
NO_USAGE = {
    "azure": fault.http_error(400, "Validation error at #/stream_options: Extra inputs are not permitted"),
    "mistral": fault.raw(json.dumps({"object": "error", "message": {"detail": [_NO_INPUT]}}).encode(), status=422),
    "fastapi": fault.raw(json.dumps({"detail": [_NO_INPUT]}).encode(), status=400),
}


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize("refusal", NO_USAGE.values(), ids=NO_USAGE)
def test_t02_a_server_that_cannot_report_the_usage_of_a_stream_is_not_asked_again(refusal: Any, way: str) -> None:
    """Refused once, each run streams and completes, and what it cost is estimated."""

    def strict(request: Any) -> Any:
        if "stream_options" in request.body:
            return refusal
        return "hello"

    with server(strict) as s:
        agent = make(client(s))
        first, second = run(agent, "hi", way), run(agent, "hi", way)
    assert (first.answer, second.answer, s.count) == ("hello", "hello", 3)
    assert second.usage.estimated == second.usage.total > 0


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_t02_cumulative_usage_is_not_summed(way: str) -> None:
    """A server that repeats its running totals on every chunk is counted once."""
    with server([fault.cumulative_usage(reply("one two three four", usage=(50, 4)))]) as s:
        result = run(make(client(s)), "count", way)
    assert (result.usage.input, result.usage.output, result.usage.total) == (50, 4, 54)


def test_t02_an_estimate_grows_with_what_was_sent_and_written() -> None:
    """An estimate is no constant: a longer task and a longer reply cost more."""
    costs = []
    for size in (10, 1000, 4000):
        with ScriptedModel(["word " * size], usage=None) as model:
            costs.append(run(make(model), "x" * size).usage)
    assert costs[0].input < costs[1].input < costs[2].input
    assert costs[0].output < costs[1].output < costs[2].output
    assert 900 < costs[2].input < 1500


# ---------------------------------------------------------------- T03 partial and odd usage


ODD: list[tuple[str, Any, tuple[int, int, int]]] = [
    ("none-detail", {"input_tokens": 10, "output_tokens": 5, "input_token_details": {"cache_read": None}}, (10, 5, 15)),
    (
        "none-details",
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_token_details": None},
        (10, 5, 15),
    ),
    ("no-total", {"input_tokens": 10, "output_tokens": 5}, (10, 5, 15)),
    ("total-0", {"input_tokens": 10, "output_tokens": 5, "total_tokens": 0}, (10, 5, 15)),
    ("text", {"input_tokens": "12", "output_tokens": " 3 ", "total_tokens": "15"}, (12, 3, 15)),
    ("float", {"input_tokens": 12.0, "output_tokens": 3.7, "total_tokens": None}, (12, 3, 15)),
    ("only-total", {"total_tokens": 40, "input_tokens": None, "output_tokens": 10}, (30, 10, 40)),
    ("text-detail", {"input_tokens": 10, "output_tokens": 5, "input_token_details": "x"}, (10, 5, 15)),
    ("extra", {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cost": 0.1}, (10, 5, 15)),
]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(("name", "usage", "expected"), ODD, ids=[one[0] for one in ODD])
def test_t03_odd_usage_is_read_field_by_field(name: str, usage: Any, expected: tuple[int, int, int], way: str) -> None:
    """A field that is missing, null, text or zero never raises; the total is that of the parts."""
    with ScriptedModel([reply("ok", usage=usage)]) as model:
        result = run(make(model), "hi", way)
    assert (result.usage.input, result.usage.output, result.usage.total) == expected, name
    assert result.usage.estimated == 0


NONSENSE: list[Any] = [
    {"input_tokens": True, "output_tokens": True, "total_tokens": True},
    {"input_tokens": -5, "output_tokens": -1, "total_tokens": -6},
    {"input_tokens": "abc", "output_tokens": "?", "total_tokens": ""},
    {"input_tokens": float("nan"), "output_tokens": float("inf"), "total_tokens": None},
    {"input_tokens": [1], "output_tokens": {}, "total_tokens": ()},
    {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    {},
]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("usage", NONSENSE, ids=["bool", "negative", "words", "nan", "containers", "zero", "empty"])
def test_t03_nonsense_is_estimated_instead(usage: Any, way: str) -> None:
    """Booleans, negatives and words are no counts: the call is estimated, marked, and neither free nor refunded."""
    with ScriptedModel([reply("ok", usage=usage)]) as model:
        result = run(make(model), "hi", way)
    assert result.status is Status.COMPLETED
    assert result.usage.input > 0
    assert result.usage.output > 0
    assert result.usage.estimated == result.usage.total == result.usage.input + result.usage.output


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "usage",
    [
        None,
        "none",
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": "12", "completion_tokens": 3},
        {"prompt_tokens": "abc"},
        [],
        7,
    ],
)
def test_t03_odd_usage_of_a_real_server_never_ends_the_run(usage: Any, way: str) -> None:
    """Through the real client, which raises for some of these: the run gets its answer, and tokens are counted."""
    with server([fault.usage_as(usage, "ok"), forever("ok")], usage=(10, 5)) as s:
        result = run(make(client(s)), "hi", way)
        assert s.count <= 2
    assert (result.status, result.answer) == (Status.COMPLETED, "ok")
    assert result.usage.total > 0


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the client's own, when it dumps the odd report
@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": "abc"}, {"prompt_tokens": 10.5, "completion_tokens": 1}, "none", [], 7]
)
def test_t03_a_whole_reply_is_not_asked_for_again_because_of_its_usage(usage: Any, way: str) -> None:
    """The client raises over the last chunk's usage when the reply has arrived: the reply counts, estimated, once."""
    with server([fault.usage_as(usage, "the whole answer")]) as s:
        result = run(make(client(s)), "hi", way)
    assert (result.status, result.answer, s.count) == (Status.COMPLETED, "the whole answer", 1)
    assert result.usage.total > 0


def test_t03_one_odd_report_does_not_mislead_the_budget() -> None:
    """An absurd prompt count is charged as reported, but does not make all later estimates absurd."""
    huge = reply("", call("add", a=1, b=1), usage={"input_tokens": 50_000, "output_tokens": 1, "total_tokens": 50_001})
    with ScriptedModel([huge, "2"]) as model:
        result = run(make(model, [add_of(Ledger())]), "1+1")
    decided = next(record for record in result.transitions if record.event is Event.DECIDED)
    budget = next(guard for guard in decided.guards if guard.guard == "token_budget_spent")
    assert budget.values["next_prompt"] < 1000
    assert result.status is Status.COMPLETED


# ---------------------------------------------------------------- T04 cached tokens


CACHED: list[tuple[str, Mapping[str, Any], int]] = [
    (
        "subset",
        {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110, "input_token_details": {"cache_read": 40}},
        110,
    ),
    (
        "apart",
        {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "input_token_details": {"cache_read": 12000}},
        12004,
    ),
    (
        "apart-created",
        {"input_tokens": 3, "output_tokens": 1, "input_token_details": {"cache_read": 9000, "cache_creation": 3000}},
        12004,
    ),
    ("all", {"input_tokens": 40, "output_tokens": 2, "input_token_details": {"cache_read": 40}}, 42),
    ("none", {"input_tokens": 100, "output_tokens": 10, "input_token_details": {"cache_read": 0}}, 110),
    ("negative", {"input_tokens": 100, "output_tokens": 10, "input_token_details": {"cache_read": -40}}, 110),
]


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(("name", "usage", "total"), CACHED, ids=[one[0] for one in CACHED])
def test_t04_cached_tokens_are_counted_once(name: str, usage: Any, total: int, way: str) -> None:
    """Cached tokens inside the input are not added again; those counted apart from it are."""
    with ScriptedModel([reply("ok", usage=usage)]) as model:
        result = run(make(model), "hi", way)
    assert result.usage.total == total, name
    assert result.usage.estimated == 0


def test_t03_a_total_that_is_less_than_the_reply_is_not_believed() -> None:
    """A negative part makes such a total: the prompt is estimated, and not taken for free."""
    reported = {"input_tokens": -1, "output_tokens": 3, "total_tokens": 2}
    usage, _ = read_usage(reported, prompt_estimate=7, reply_estimate=1)
    assert (usage.input, usage.output, usage.total, usage.estimated) == (7, 3, 10, 7)


def test_t04_the_uncached_part_is_never_negative() -> None:
    """Whatever the parts say, no count is negative and the input holds the cached part."""
    for cached in (0, 1, 39, 40, 41, 10_000):
        usage, _ = read_usage(
            {"input_tokens": 40, "output_tokens": 2, "input_token_details": {"cache_read": cached}},
            prompt_estimate=1,
            reply_estimate=1,
        )
        assert usage.input >= max(cached, 40)
        assert usage.total == usage.input + 2


# ---------------------------------------------------------------- T05 before the batch, before the call


def five_then_three(request: Any) -> Any:
    """Five calls one by one, then three in one reply, then an answer where no tool is offered."""
    if not request.tools:
        return "what I have"
    if request.number <= 5:
        return call("add", a=request.number, b=1)
    return [call("add", a=10 * request.number + number, b=1) for number in range(3)]


@pytest.mark.parametrize("on_limit", ["answer", "stop"])
@pytest.mark.parametrize("way", WAYS)
def test_t05_a_batch_that_would_pass_the_limit_runs_none(way: str, on_limit: str) -> None:
    """Limit 6, five used, three asked for: none of the three runs, each is answered, the run ends for that."""
    ledger = Ledger()
    model = ScriptedModel(five_then_three)
    limits = {"max_tool_calls": 6, "on_limit": on_limit}
    result = run(make(model, [add_of(ledger)], limits=limits), "add", way)
    assert (len(ledger), result.tool_calls) == (5, 5)
    if on_limit == "answer":
        assert (result.status, result.answer, model.count) == (Status.PARTIAL, "what I have", 7)
        texts = [message.text for message in answers_in(model.requests[-1])][-3:]
        assert all("Not executed" in text for text in texts)
        assert any(
            record.target is State.DEGRADE and record.reason is StopReason.MAX_TOOL_CALLS
            for record in result.transitions
        )
    else:
        assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.MAX_TOOL_CALLS, 6)
    assert "tool_calls=5, asked=3, max_tool_calls=6" in result.detail
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", BOTH)
def test_t05_control_a_batch_that_just_fits_runs_whole(way: str) -> None:
    """Limit 8: the same three run."""
    ledger = Ledger()
    model = ScriptedModel(five_then_three)
    result = run(make(model, [add_of(ledger)], limits={"max_tool_calls": 8}), "add", way)
    assert (len(ledger), result.tool_calls, result.status) == (8, 8, Status.PARTIAL)


def test_t05_a_limit_of_no_tool_calls_executes_none() -> None:
    """max_tool_calls=0 is a limit like any other."""
    ledger = Ledger()
    model = ScriptedModel(endless)
    result = run(make(model, [add_of(ledger)], limits={"max_tool_calls": 0}), "add")
    assert (len(ledger), result.answer) == (0, "what I have")


@pytest.mark.parametrize("way", WAYS)
def test_t05_the_next_prompt_is_counted_before_it_is_sent(way: str) -> None:
    """Ninety percent used and a next prompt of a fifth: the call is not made, the budget is not passed."""
    ledger = Ledger()
    big = "y" * 800
    spent = reply("", call("add", a=1, b=1), usage=(700, 200))
    with ScriptedModel([spent]) as model:
        limits = {"token_budget": 1000, "on_limit": "stop"}
        result = run(make(model, [add_of(ledger)], limits=limits), big, way)
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.TOKEN_BUDGET, 1)
    assert (result.usage.total, len(ledger)) == (900, 1)
    decided = next(guard for guard in result.transitions[-1].guards if guard.guard == "token_budget_spent")
    assert decided.result is True
    assert decided.values["tokens"] == 900
    assert decided.values["next_prompt"] > 100
    assert_sendable(model.requests)


@pytest.mark.parametrize("budget", [120, 200, 400, 800, 1600])
def test_t05_no_budget_is_ever_passed_by_what_was_foreseeable(budget: int) -> None:
    """For any budget, with honest reports, the spent tokens pass it at most by the last reply's own length."""
    said = 30

    def honest(request: Any) -> Any:
        prompt = sum(len(message.text) for message in request.messages) // 4 + 20
        if not request.tools:
            return reply("what I have", usage=(prompt, 3))
        return reply("", call("add", a=request.number, b=1), usage=(prompt, said))

    result = run(
        make(ScriptedModel(honest), [add_of(Ledger())], limits={"token_budget": budget, "max_steps": 100}), "add"
    )
    assert result.usage.total <= budget + said
    assert result.status in (Status.PARTIAL, Status.FAILED)


def test_t05_no_budget_means_no_budget() -> None:
    """token_budget=None never trips."""
    spent = reply("", call("add", a=1, b=1), usage=(10_000_000, 10_000_000))
    with ScriptedModel([spent, "2"]) as model:
        result = run(make(model, [add_of(Ledger())], limits={"token_budget": None}), "add")
    assert (result.status, result.usage.total) == (Status.COMPLETED, 20_000_015)
    assert Limits(token_budget=None).answer_reserve == 0


# ---------------------------------------------------------------- T06 attempts that failed


@pytest.mark.parametrize("way", WAYS)
def test_t06_unusable_replies_are_charged_each_by_itself(way: str) -> None:
    """An empty reply, a cut one, one that calls nothing known, and the answer: four charges, each at its own record."""
    script = [
        reply("", usage=(10, 1)),
        reply("", Call("add", '{"a": 1'), usage=(20, 2)),
        reply("", call("nothing"), usage=(30, 3)),
        reply("done", usage=(40, 4)),
    ]
    with ScriptedModel(script) as model:
        result = run(make(model, [add_of(Ledger())], limits={"abort_after": 9, "degrade_after": 9}), "go", way)
    assert charged(result.transitions) == [11, 22, 33, 44]
    assert (result.usage, result.model_calls) == (Usage(100, 10, 110, 0), 4)


@pytest.mark.parametrize("way", WAYS)
def test_t06_an_attempt_that_broke_off_is_charged_as_an_estimate(way: str) -> None:
    """A reply that was dropped in the middle was paid for: prompt and what arrived are counted, marked as estimated."""
    with server([fault.drop_connection("one two three four five six", after_chars=12), "ok"], usage=(10, 5)) as s:
        result = run(make(client(s)), "hi", way)
    assert (result.answer, s.count, result.model_calls) == ("ok", 2, 2)
    first, second = charged(result.transitions)
    assert second == 15
    assert first > 0
    assert result.usage.estimated == first


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "refused", [fault.rate_limited(1), fault.server_error(), fault.unauthorized()], ids=["429", "500", "401"]
)
def test_t06_an_attempt_that_was_refused_costs_nothing(refused: Any, way: str) -> None:
    """What the server refused before it wrote anything is an attempt in the records, and no tokens."""
    with server([forever(refused)], usage=(10, 5)) as s:
        result = run(make(client(s)), "hi", way)
        assert s.count == result.model_calls
    assert result.usage.total == 0


@pytest.mark.parametrize("way", BOTH)
def test_t06_a_forced_answer_is_charged_too(way: str) -> None:
    """The engine's own last call is in the sum, at its own record."""
    script = [reply("", call("add", a=1, b=1), usage=(10, 1)), reply("what I have", usage=(20, 2))]
    with ScriptedModel(script) as model:
        result = run(make(model, [add_of(Ledger())], limits={"max_steps": 1}), "go", way)
    assert (charged(result.transitions), result.usage.total, result.model_calls) == ([11, 22], 33, 2)


@pytest.mark.parametrize("way", WAYS)
def test_t06_failed_attempts_and_a_summary_are_all_charged_apart(way: str) -> None:
    """Two attempts that broke off, a success and a summary call: four charges, each at a record of its own, and two steps."""
    script = [
        fault.drop_connection("one two three four five six", after_chars=12),
        fault.drop_connection("one two three four five six", after_chars=12),
        reply("", call("add", a=1, b=1), usage=(10, 1)),
        reply("", call("add", a=2, b=1), usage=(20, 2)),
        reply("Notes.", usage=(30, 3)),
        reply("done", usage=(40, 4)),
    ]
    with server(script) as s:
        agent = make(
            client(s),
            [add_of(Ledger())],
            memory=SummaryWindow(rounds=1, every=1),
            limits={"max_retries": 2, "backoff": 0},
        )
        result = run(agent, "go", way)
        assert s.count == result.model_calls == 6
    assert (result.answer, result.steps) == ("done", 3)
    calls = (Event.REPLIED, Event.MODEL_FAILED, Event.COMPACTED)
    records = [record for record in result.transitions if record.event in calls]
    assert [record.event for record in records].count(Event.COMPACTED) == 1
    costs = [now.tokens - before for now, before in zip(records, [0, *(one.tokens for one in records)], strict=False)]
    assert costs[2:] == [11, 22, 33, 44]
    assert min(costs) > 0
    assert result.usage.total == sum(costs)
    assert [record.model_calls for record in records] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("way", WAYS)
def test_t06_a_summary_that_failed_is_charged(way: str) -> None:
    """What an unusable summary cost is in the sum, at the record that says why it was of no use."""
    script = [
        reply("", call("add", a=1, b=1), usage=(10, 1)),
        reply("", call("add", a=2, b=1), usage=(20, 2)),
        reply("", usage=(30, 3)),
        reply("done", usage=(40, 4)),
    ]
    with ScriptedModel(script) as model:
        agent = make(model, [add_of(Ledger())], memory=SummaryWindow(rounds=1, every=1))
        result = run(agent, "go", way)
    (failed,) = [record for record in result.transitions if record.event is Event.SUMMARY_FAILED]
    assert (failed.tokens, failed.error) == (66, "the summary was empty")
    assert (result.answer, result.usage.total, result.steps) == ("done", 110, 3)


def test_t06_the_counters_of_a_run_are_its_own() -> None:
    """A second run of the same agent starts from zero."""
    with ScriptedModel(["a", "b"], usage=(10, 5)) as model:
        agent = make(model)
        assert [run(agent, "hi").usage.total, run(agent, "hi").usage.total] == [15, 15]


def test_t06_records_never_count_down() -> None:
    """Tokens, model calls and tool calls only grow along a run."""
    result = run(make(ScriptedModel(endless), [add_of(Ledger())]), "add")
    for name in ("tokens", "estimated_tokens", "model_calls", "tool_calls", "step", "seq"):
        values = [getattr(record, name) for record in result.transitions]
        assert values == sorted(values), name
