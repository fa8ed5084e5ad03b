"""Rounds: one assistant message with exactly one result for each of its calls, in their order, on every way out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from fsm_agent.alphabet import State
from fsm_agent.context import Context
from fsm_agent.effects import Approve, Call, Deny, Result
from fsm_agent.rounds import close_round, merge_results, not_executed, runnable
from tests.core.builders import (
    DENIES,
    asks,
    at,
    decides,
    edits,
    fails,
    frozen,
    gives,
    make_setup,
    mixed,
    play,
    raw,
    result_of,
    says,
    waits,
)


def answers(ctx: Context) -> list[tuple[str, str, str]]:
    """The tool messages of the open round: call id, status, text."""
    assert ctx.round is not None
    return [
        (one.tool_call_id, one.status, str(one.content)) for one in ctx.round.messages if isinstance(one, ToolMessage)
    ]


def asked_ids(ctx: Context) -> list[str]:
    """The ids that the open round's assistant message asks for."""
    assert ctx.round is not None
    first = ctx.round.messages[0]
    assert isinstance(first, AIMessage)
    return [str(call["id"]) for call in first.tool_calls]


def texts(ctx: Context) -> list[str]:
    """What the model reads of each call of the open round, in order; the round is whole."""
    found = answers(ctx)
    assert [call_id for call_id, _, _ in found] == asked_ids(ctx)
    return [text for _, _, text in found]


def batch(*refusals: str) -> tuple[Call, ...]:
    """Calls c0, c1, ...: refused where a text is given."""
    return tuple(
        Call(id=f"c{n}", name="look", tool="look", refusal=text, refusal_kind="invalid" if text else "")
        for n, text in enumerate(refusals)
    )


def executing(calls: Sequence[Call], results: Sequence[Result] = ()) -> Context:
    """A run in EXECUTE with these calls, and what they have given so far."""
    return at(State.EXECUTE, asked=tuple(calls), calls=tuple(calls), results=tuple(results))


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=5), st.randoms())
def test_every_call_is_answered_once_and_in_order(kinds: list[tuple[bool, bool, bool]], order: object) -> None:
    """H03: refused, executed or left out: one result each, under its own id, in the order of the calls."""
    calls = batch(*("no" if refused else "" for refused, _, _ in kinds))
    results = [
        result_of(call.id, "look", f"gave {call.id}", ok=ok)
        for call, (refused, executed, ok) in zip(calls, kinds, strict=True)
        if executed and not refused
    ]
    shuffled = sorted(results, key=lambda result: hash((result.call_id, order)))
    closed = close_round(executing(calls, shuffled), unanswered="stopped")
    assert [call_id for call_id, _, _ in answers(closed)] == asked_ids(closed) == [call.id for call in calls]
    assert [result.call_id for result in closed.results] == [call.id for call in calls]
    assert closed.fresh == ()
    for (refused, executed, ok), (call_id, status, text) in zip(kinds, answers(closed), strict=True):
        assert text == ("no" if refused else f"gave {call_id}" if executed else "stopped")
        assert status == ("success" if executed and ok and not refused else "error")


def test_closing_twice_is_closing_once() -> None:
    """A round that is closed stays as it is."""
    once = close_round(executing(batch("", "no"), [result_of("c0", "look", "x")]))
    assert close_round(once, unanswered="other") == once


def test_closing_changes_nothing_in_place() -> None:
    """The context before is as it was."""
    ctx = executing(batch("", "no"))
    before = frozen(ctx)
    close_round(ctx)
    assert frozen(ctx) == before


def test_without_calls_there_is_nothing_to_close() -> None:
    """A reply without calls, and a run without a reply, leave the context as it is."""
    for ctx in (at(State.PLAN), play(says(""))[-1].fired.ctx):
        assert close_round(ctx) is ctx


def test_what_may_run_is_what_nothing_refused() -> None:
    """A refused call is never executed."""
    assert [call.id for call in runnable(executing(batch("", "no", "")))] == ["c0", "c2"]


def test_newer_results_take_the_place_of_older_ones() -> None:
    """A retry's result stands where the failed one stood."""
    old = [result_of("a", "f", "1"), result_of("b", "f", "boom", ok=False), result_of("c", "f", "3")]
    new = [result_of("b", "f", "2"), result_of("d", "f", "4")]
    merged = merge_results(old, new)
    assert [(one.call_id, one.text) for one in merged] == [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]


@pytest.mark.parametrize(
    ("call", "text", "error"),
    [
        (Call(id="a", name="f", tool="f", refusal="no", refusal_kind="denied"), "no", "denied"),
        (Call(id="a", name="f", tool="f"), "stopped", "interrupted"),
    ],
    ids=["refused", "left out"],
)
def test_a_call_that_did_not_run_says_so(call: Call, text: str, error: str) -> None:
    """Its result is a failure that was not executed, with the refusal or what stopped it."""
    result = not_executed(call, "stopped")
    assert (result.text, result.error, result.ok, result.executed) == (text, error, False, False)


# ---------------------------------------------------------------- rounds of real runs


def test_a_mixed_batch_leaves_one_round() -> None:
    """H03: one call runs, one fails, one is unknown, one is invalid: four results, each with its own text."""
    moments = play(
        asks(raw("look", q="x"), raw("look", q="y"), raw("nothing"), raw("add", a="one"), text="Let me see."),
        mixed(True, False),
    )
    ctx = moments[-1].fired.ctx
    shown = texts(ctx)
    assert shown[0] == "result 0"
    assert shown[1] == "result 1"
    assert "nothing" in shown[2]
    assert "add" in shown[3] or "a" in shown[3]
    assert ctx.round is not None
    assert ctx.round.messages[0].content == "Let me see."


def test_a_retried_call_has_the_newer_result() -> None:
    """The model reads what the second attempt gave, once."""
    moments = play(
        asks(raw("look", q="x"), raw("look", q="y")),
        mixed(True, False, retryable=True),
        waits,
        gives("second try"),
    )
    assert texts(moments[-1].fired.ctx) == ["result 0", "second try"]


def test_a_person_s_reason_reaches_the_model() -> None:
    """C07: a denied call is answered with the reason, alone or beside a sibling that ran."""
    alone = play(asks(raw("pay", to="Ada", amount=5)), DENIES)
    assert texts(alone[-1].fired.ctx) == ["A person refused this call: too dear"]
    beside = play(
        asks(raw("pay", to="Ada", amount=5), raw("pay", to="Bob", amount=6)),
        decides(Deny("too dear"), Approve()),
        gives("paid"),
    )
    assert texts(beside[-1].fired.ctx) == ["A person refused this call: too dear", "paid"]


def test_an_edited_call_is_in_the_history_as_it_ran() -> None:
    """C08: the model must not believe that its own arguments were used when a person changed them."""
    ctx = play(asks(raw("pay", to="Ada", amount=5)), edits(to="Ada", amount=1), gives("paid"))[-1].fired.ctx
    assert ctx.round is not None
    written: AnyMessage = ctx.round.messages[0]
    assert isinstance(written, AIMessage)
    assert [call["args"] for call in written.tool_calls] == [{"to": "Ada", "amount": 1}]


def test_a_fallback_answers_the_call_that_was_asked_for() -> None:
    """R08: the result stands under the id that the model gave, and says which tool failed and which one really ran."""
    moments = play(
        asks(raw("shaky", q="x")),
        fails("down"),
        gives("found"),
        setup=make_setup(limits={"degrade_after": 1}),
    )
    ctx = moments[-1].fired.ctx
    (text,) = texts(ctx)
    assert "shaky" in text
    assert "steady" in text
    assert "down" in text
    assert text.endswith("found")


def test_a_batch_that_would_pass_the_limit_runs_none_and_is_answered() -> None:
    """T05: six calls allowed, five used, three asked for: none runs, each is answered, the reason is the limit."""
    five = asks(*(raw("look", q=f"{n}") for n in range(5)))
    three = asks(*(raw("look", q=f"more {n}") for n in range(3)))
    moments = play(five, gives("a", "b", "c", "d", "e"), three, limits={"max_tool_calls": 6})
    ctx = moments[-1].fired.ctx
    assert ctx.tool_calls == 5
    assert ctx.cause is not None
    assert ctx.cause.reason == "max_tool_calls"
    assert ctx.round is not None
    assert [status for _, status, _ in answers(ctx)] == ["error"] * 3
    assert asked_ids(ctx) == [call_id for call_id, _, _ in answers(ctx)]
