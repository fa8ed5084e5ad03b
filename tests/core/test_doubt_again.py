"""Retries and fallbacks in doubt, and what a call that is made again counts as."""

from __future__ import annotations

import pytest

from fsm_agent.alphabet import State
from fsm_agent.effects import Answer, Answered, Approve, CallTools, Decision, Deny
from fsm_agent.language import EN
from tests.core.builders import (
    Line,
    asks,
    crashes,
    decides,
    edits,
    effects,
    fails,
    gives,
    make_setup,
    mixed,
    path,
    play,
    waits,
)
from tests.core.doubts import FALLS_BACK, LOOK, SHAKY, TELL, THREE, UNKNOWN, after, asked, observed, ran, read

# ---------------------------------------------------------------- retries and fallbacks in doubt


def test_a_retry_in_doubt_is_a_question() -> None:
    """The engine retries a failure that it knows, not what may have taken effect; the sibling's retry is finished."""
    moments = play(THREE, mixed(True, False, False, retryable=True), waits, crashes("?+"), decides(Approve()))
    assert asked(moments) == [["b"]]
    moments = play(
        THREE, mixed(True, False, False, retryable=True), waits, crashes("?+"), decides(Approve()), gives("again")
    )
    assert ran(moments) == [["a", "b", "c"], ["b", "c"], ["b"]]
    ctx = moments[-1].fired.ctx
    assert read(ctx) == {"a": ("success", "result 0"), "b": ("success", "again"), "c": ("success", "known 1")}
    assert ctx.tool_calls == 5
    assert (ctx.failures, ctx.idle_steps) == (0, 0)


def test_a_retry_in_doubt_counts_as_the_attempt_that_it_is() -> None:
    """Neither the crash nor the yes gives a call more retries, nor makes one failure two repeats."""
    script: list[Line] = [asks(*THREE.calls[:2]), mixed(False, False, retryable=True), waits, crashes("r?")]
    moments = play(*script, decides(Approve()), fails("known 0", retryable=True))
    batches = effects(moments, CallTools)
    assert [batch.attempt for batch in batches] == [1, 2, 2]
    ctx = moments[-1].fired.ctx
    # A retry takes the place of the attempt before it: each of the two calls was seen once, with its newest result.
    assert [seen.count for seen in ctx.seen.values()] == [1, 1]
    assert len(ctx.recent) == 2
    assert ctx.idle_steps == 1
    assert path(moments)[-1] is not State.RETRY


def test_a_retry_in_doubt_that_is_denied_reads_as_denied() -> None:
    """What the attempt before it gave is not what the model reads of it."""
    script: list[Line] = [LOOK, fails("boom", retryable=True), waits, crashes("?")]
    assert list(read(after(*script, decides(Deny("no")))).values()) == [("error", "A person refused this call: no")]
    assert list(read(after(*script, decides(Answer("yes")))).values()) == [("success", "yes")]
    assert list(read(after(*script, limits=TELL)).values()) == [("error", UNKNOWN)]


def test_a_fallback_in_doubt_is_a_question_of_its_own() -> None:
    """What is asked about, and executed on a yes, is the fallback; the result says what it stands in for."""
    moments = play(SHAKY, fails("down"), crashes("?"), decides(Approve()), gives("found"), setup=FALLS_BACK)
    batches = [[call.tool for call in one.calls] for one in effects(moments, CallTools)]
    assert batches == [["shaky"], ["steady"], ["steady"]]
    ctx = moments[-1].fired.ctx
    assert read(ctx) == {
        "a": ("success", EN.fallback.format(error="down", tool="steady", failed="shaky", text="found"))
    }
    assert ctx.tool_calls == 2


@pytest.mark.parametrize(
    ("decision", "shown", "failures"),
    [
        (Deny("no"), ("error", "A person refused this call: no"), 1),
        (Answer("it was found"), ("success", "it was found"), 0),
    ],
    ids=["deny", "answer"],
)
def test_a_fallback_in_doubt_that_does_not_run_again(decision: Decision, shown: tuple[str, str], failures: int) -> None:
    """The model reads what was decided, not the failure before it, and never that nothing ran."""
    moments = play(SHAKY, fails("down"), crashes("?"), decides(decision), setup=FALLS_BACK)
    ctx = observed(moments, 1)
    assert read(ctx) == {"a": shown}
    assert ctx.failures == failures


def test_a_fallback_in_doubt_may_be_edited() -> None:
    """It has no name that a model could call, but a person has seen it; arguments that do not fit are said to be so."""
    script: list[Line] = [SHAKY, fails("down"), crashes("?")]
    moments = play(*script, edits(q="w"), gives("found"), setup=FALLS_BACK)
    assert read(moments[-1].fired.ctx)["a"][0] == "success"
    batches = [[call.arguments for call in one.calls] for one in effects(moments, CallTools)]
    assert batches[2:] == [[{"q": "w"}]]
    wrong = observed(play(*script, edits(q=3), setup=FALLS_BACK), 1)
    assert read(wrong)["a"][0] == "error"
    assert "q" in read(wrong)["a"][1]
    assert "down" not in read(wrong)["a"][1]


def test_a_fallback_whose_outcome_is_unknown_is_told_to_be_so() -> None:
    """With "tell" the model reads it of the tool that was under way."""
    limits = {"degrade_after": 1, **TELL}
    ctx = observed(play(SHAKY, fails("down"), crashes("?"), setup=make_setup(limits=limits)), 1)
    assert read(ctx) == {"a": ("error", EN.in_doubt.format(tool="steady"))}


# ---------------------------------------------------------------- counts


def test_a_call_in_doubt_that_is_called_again_is_counted_once() -> None:
    """One execution that is known: one tool call, one sighting for the repeat guard, one failure."""
    ctx = after(LOOK, crashes("?"), decides(Approve()), fails("boom"))
    assert (ctx.tool_calls, ctx.failures, ctx.idle_steps) == (1, 1, 1)
    assert [(seen.digest != "", seen.count) for seen in ctx.seen.values()] == [(True, 1)]
    assert len(ctx.recent) == 1
    twice = play(LOOK, crashes("?"), decides(Approve()), gives("same"), LOOK, gives("same"))[-1].fired.ctx
    assert [seen.count for seen in twice.seen.values()] == [2]
    assert twice.tool_calls == 2


def test_a_call_that_was_approved_after_a_crash_is_not_retried_under_the_same_yes() -> None:
    """The next execution would need the next yes."""
    moments = play(LOOK, crashes("?"), decides(Approve()), fails("boom", retryable=True))
    assert State.RETRY not in path(moments)


def test_edited_arguments_are_not_retried_under_the_same_decision() -> None:
    """What stands in place of a call in doubt runs once, like the call itself would."""
    moments = play(LOOK, crashes("?"), edits(q="w"), fails("boom", retryable=True))
    assert len(ran(moments)) == 2
    assert State.RETRY not in path(moments)


def test_the_limit_of_tool_calls_holds_across_a_crash() -> None:
    """What was allowed when the batch was asked for is what runs, known results and second calls together."""
    moments = play(THREE, crashes("+?."), decides(Approve()), gives("x"), LOOK, limits={"max_tool_calls": 3})
    assert observed(moments).tool_calls == 3
    assert [record.fired.row.target for record in moments][-2:] != [State.EXECUTE, State.OBSERVE]
    assert ran(moments) == [["a", "b", "c"], ["b", "c"]]


def test_time_passes_until_the_crash_is_folded() -> None:
    """The outcome says when; the waiting for a person does not count for the deadline."""
    moments = play(LOOK, crashes("?", at=7.0), Answered(decisions={}, waited=500.0, at=507.0))
    assert moments[2].fired.ctx.at == 7.0
    assert moments[-1].fired.ctx.elapsed == 7.0
