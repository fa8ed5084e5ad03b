"""The degrade ladder: which rung is next, which calls may be retried, and how long a retry waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.alphabet import State, StopReason
from fsm_agent.context import Cause, Context, Failure
from fsm_agent.effects import Call
from fsm_agent.ladder import Rung, backoff, fallbacks, next_rung, retryable_calls, wanted_rung
from fsm_agent.limits import Limits
from fsm_agent.tools import Tool, tool
from tests.core.builders import TOOLS, at, make_setup, result_of


def after(limits: dict[str, Any] | None = None, *, tools: tuple[Tool, ...] = TOOLS, **fields: Any) -> Context:
    """A context in DECIDE under these limits."""
    return at(State.DECIDE).change(setup=make_setup(limits=limits, tools=tools), **fields)


def wished(seconds: float | None) -> Failure:
    """A model failure with the server's wish."""
    return Failure("model", "model", "429", retryable=True, retry_after=seconds)


# ---------------------------------------------------------------- how long


@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 30.0), (7, 30.0), (99, 30.0)]
)
def test_a_wait_doubles_up_to_the_longest(attempt: int, wait: float) -> None:
    """Exponential backoff in seconds, by the defaults and without jitter: 1, 2, 4, ... 30."""
    assert backoff(after({"jitter": 0}, failure=wished(None), attempt=attempt)) == wait


@pytest.mark.parametrize(
    ("wish", "wait"),
    [(7.0, 7.0), (2.0, 2.0), (29.5, 29.5), (86_400.0, 86_400.0), (0.1, 0.1), (0.05, 0.1)],
)
def test_the_servers_wish_is_what_is_waited(wish: float, wait: float) -> None:
    """R02: a hint counts as it is, whatever the attempt, down to a floor; one too long is left for the guard."""
    assert backoff(after(failure=wished(wish), attempt=1)) == wait
    assert backoff(after(failure=wished(wish), attempt=4)) == wait


def test_a_wish_of_zero_has_a_floor_with_jitter() -> None:
    """R02: "at once" from a server that is overloaded is not taken at its word by every run at the same moment."""
    waits = {backoff(after({"jitter": 1}, failure=wished(0.0), run_id=f"run-{n}")) for n in range(20)}
    assert len(waits) == 20
    assert all(0.1 <= wait <= 0.2 for wait in waits)


def test_the_wish_is_that_of_the_newest_failure() -> None:
    """R02: a hint of an earlier failure is not waited for again."""
    assert backoff(after({"jitter": 0}, failure=wished(7.0))) == 7.0
    assert backoff(after({"jitter": 0}, failure=wished(None))) == 1.0


@given(st.integers(1, 30), st.text("abc", min_size=1), st.integers(0, 999), st.floats(0, 1))
def test_jitter_spreads_runs_and_replays_the_same(attempt: int, run_id: str, seq: int, jitter: float) -> None:
    """The wait lies between the plain one and its share more, never above the longest, and is the same in a replay."""
    ctx = after({"jitter": jitter}, failure=wished(None), attempt=attempt, run_id=run_id, seq=seq)
    plain = backoff(ctx.change(setup=make_setup(limits={"jitter": 0})))
    assert plain <= backoff(ctx) <= min(plain * (1 + jitter), 30.0)
    assert backoff(ctx) == backoff(ctx.change())


def test_jitter_uses_all_of_its_share() -> None:
    """Over many runs the waits lie all over the share, from next to nothing to next to all of it."""
    ctx = after({"jitter": 1, "backoff_max": 1000}, failure=wished(None))
    waits = sorted(backoff(ctx.change(run_id=f"run-{n}")) for n in range(200))
    assert 1.0 <= waits[0] < 1.05
    assert 1.95 < waits[-1] < 2.0


def test_jitter_differs_between_runs_and_between_waits() -> None:
    """Runs that failed together do not come back together, and neither do the waits of one run."""
    ctx = after({"jitter": 1, "backoff_max": 1000}, failure=wished(None))
    assert len({backoff(ctx.change(run_id=f"run-{n}")) for n in range(50)}) == 50
    assert len({backoff(ctx.change(seq=n)) for n in range(50)}) == 50


@given(
    st.integers(1, 5_000),
    st.floats(0, 1e300),
    st.floats(1, 1e300),
    st.floats(0, 1e300),
)
def test_no_limits_make_the_wait_overflow(attempt: int, first: float, factor: float, longest: float) -> None:
    """For any limits and any row of failures a wait is a number of seconds up to the longest."""
    limits = Limits(backoff=first, backoff_factor=factor, backoff_max=longest)
    ctx = after(failure=wished(None), attempt=attempt).change(setup=make_setup(limits=limits))
    assert 0 <= backoff(ctx) <= longest


# ---------------------------------------------------------------- which calls


@tool(retry=3, idempotent=True)
def patient(q: str) -> str:
    """Find something; worth three more tries."""
    return q


@tool(retry=0)
def proud(q: str) -> str:
    """Find something; never tried again."""
    return q


def batch(*names: str, **fields: Any) -> Context:
    """A round whose calls of these tools all failed in a way that a retry may mend."""
    calls = tuple(Call(id=f"c{n}", name=name, tool=name, signature=f"s{n}") for n, name in enumerate(names))
    results = tuple(result_of(call.id, call.tool, "boom", ok=False, retryable=True) for call in calls)
    return after(tools=(*TOOLS, patient, proud), calls=calls, results=results, **fields)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [(1, ["add", "patient"]), (2, ["patient"]), (3, ["patient"]), (4, [])],
)
def test_each_call_has_its_own_number_of_retries(attempt: int, expected: list[str]) -> None:
    """A tool's own `retry` counts for its calls, the run's `max_retries` for all others; N are allowed, N + 1 not."""
    ctx = batch("add", "patient", "proud", attempt=attempt)
    assert [call.tool for call in retryable_calls(ctx)] == expected


def test_only_what_failed_and_may_be_mended_is_retried() -> None:
    """A success, and a failure that would come again, are left as they are."""
    ctx = batch("add", "look", "patient")
    results = (result_of("c0", "add", "3"), result_of("c1", "look", "bug", ok=False), ctx.results[2])
    assert [call.tool for call in retryable_calls(ctx.change(results=results))] == ["patient"]


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_needs_approval_is_never_retried(approved: bool) -> None:
    """A yes is for one execution: a second one is not covered by it."""
    call = Call(id="c0", name="pay", tool="pay", needs_approval=True, approved=approved)
    results = (result_of("c0", "pay", "boom", ok=False, retryable=True),)
    assert retryable_calls(after(calls=(call,), results=results)) == ()


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ({"refusal": "no", "refusal_kind": "invalid"}, {}),
        ({}, {"ok": True}),
        ({}, {"retryable": False}),
        ({"tool": "look"}, {}),
        ({"id": "c9"}, {}),
    ],
    ids=["refused", "a success", "of no use", "of another tool", "of another call"],
)
def test_what_would_not_be_the_same_call_again_is_not_retried(call: dict[str, Any], result: dict[str, Any]) -> None:
    """A retry makes the call that failed, and no other."""
    ctx = batch("add")
    assert len(retryable_calls(ctx)) == 1
    changed = ctx.change(
        calls=(replace(ctx.calls[0], **call),),
        results=(replace(ctx.results[0], **result),),
    )
    assert retryable_calls(changed) == ()


def test_a_tool_that_is_gone_is_not_retried() -> None:
    """A tool may be unregistered while a run goes on."""
    ctx = batch("add")
    assert retryable_calls(ctx.change(setup=make_setup(tools=()))) == ()


# ---------------------------------------------------------------- which rung


@tool(fallback="look")
def first(q: str) -> str:
    """Find something."""
    return q


def failed(name: str, *, executed: bool = True, **fields: Any) -> Context:
    """A round with one failed call of `name`."""
    call = Call(id="c0", name=name, tool=name)
    result = result_of("c0", name, "boom", ok=False)
    if not executed:
        result = type(result)(call_id="c0", tool=name, ok=False, text="no", error="invalid", executed=False)
    given = {"failure": Failure("tool", name, "boom"), "calls": (call,), "results": (result,), **fields}
    return after(tools=(*TOOLS, first), **given)


def test_a_fallback_is_for_a_call_that_was_executed_and_failed() -> None:
    """A refused call has not shown that its tool fails, and a success needs no fallback."""
    assert [(call.id, tool.name) for call, _, tool in fallbacks(failed("first"))] == [("c0", "look")]
    assert fallbacks(failed("first", executed=False)) == ()
    assert fallbacks(failed("first").change(results=(result_of("c0", "first", "3"),))) == ()
    assert fallbacks(failed("add")) == ()
    assert fallbacks(failed("first").change(calls=())) == ()


@pytest.mark.parametrize(
    ("reason", "forced", "rung"),
    [
        (StopReason.CONSECUTIVE_FAILURES, False, Rung.FALLBACK),
        (StopReason.CONSECUTIVE_FAILURES, True, Rung.FALLBACK),
        (StopReason.MAX_STEPS, False, Rung.ANSWER),
        (StopReason.TOKEN_BUDGET, False, Rung.ANSWER),
        (StopReason.REPEATED_ACTION, False, Rung.ANSWER),
        (StopReason.NO_PROGRESS, False, Rung.ANSWER),
        (StopReason.MAX_TOOL_CALLS, False, Rung.ANSWER),
        (StopReason.MAX_STEPS, True, None),
    ],
)
def test_the_reason_chooses_the_rung(reason: StopReason, forced: bool, rung: Rung | None) -> None:
    """Failures go down the ladder; a limit asks for an answer, once."""
    assert wanted_rung(failed("first", cause=Cause(reason), forced=forced)) is rung


def test_a_reply_that_was_no_use_changes_the_strategy_though_a_tool_failed_before() -> None:
    """The newest failure chooses; a fallback would not help against it."""
    assert next_rung(failed("first")) is Rung.FALLBACK
    assert next_rung(failed("first", failure=Failure("reply", "malformed", "not JSON"))) is Rung.STRATEGY


def test_a_model_failure_has_no_rung() -> None:
    """Neither another tool nor another strategy helps a model that does not answer."""
    assert next_rung(failed("first", failure=Failure("model", "model", "503"))) is None


def test_the_rungs_are_taken_in_order() -> None:
    """Another tool before another way; each may be left out of the ladder."""
    ctx = failed("first")
    ladders = {
        ("fallback", "strategy"): Rung.FALLBACK,
        ("strategy",): Rung.STRATEGY,
        ("fallback",): Rung.FALLBACK,
        (): None,
    }
    for ladder, rung in ladders.items():
        assert next_rung(ctx.change(setup=make_setup(tools=(*TOOLS, first), ladder=ladder))) is rung
