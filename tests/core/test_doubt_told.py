"""Calls in doubt whose outcome is told to be unknown: to the model, and to whoever reads a run that ended with one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Setup
from fsm_agent.effects import Answer, Answered, Approve, Deny, Edit, Expired, RawCall
from fsm_agent.language import EN
from tests.core.builders import Line, asks, crashes, decides, fails, gives, make_setup, path, play, waits
from tests.core.doubts import (
    FALLS_BACK,
    LOOK,
    SHAKY,
    TELL,
    THREE,
    UNKNOWN,
    after,
    asked,
    ended,
    events,
    observed,
    ran,
    read,
    run_in,
    stopped,
)

# ---------------------------------------------------------------- the model is told


def test_the_model_is_told_that_the_outcome_is_unknown() -> None:
    """Nobody is asked, nothing runs again; the call counts as executed and as failed."""
    moments = play(THREE, crashes("+?."), limits=TELL)
    assert (asked(moments), len(ran(moments))) == ([], 1)
    assert path(moments)[3:5] == [State.OBSERVE, State.DECIDE]
    ctx = observed(moments)
    assert read(ctx) == {"a": ("success", "known 0"), "b": ("error", UNKNOWN), "c": ("error", EN.interrupted)}
    (unknown,) = [result for result in ctx.results if result.call_id == "b"]
    assert (unknown.error, unknown.executed, unknown.retryable) == ("in_doubt", True, False)
    assert ctx.tool_calls == 2
    assert not any(call.doubt for call in ctx.calls)


def test_an_unknown_outcome_is_never_retried() -> None:
    """Retries are for failures that are known; the sibling's is."""
    moments = play(THREE, crashes("?r+"), waits, gives("again"), limits=TELL)
    assert ran(moments) == [["a", "b", "c"], ["b"]]
    assert read(moments[-1].fired.ctx)["a"] == ("error", UNKNOWN)


def test_an_unknown_outcome_has_no_fallback() -> None:
    """What may have taken effect once is not done a second time by another tool; the model is asked to choose another way."""
    moments = play(SHAKY, crashes("?"), limits={"degrade_after": 1, **TELL})
    assert Event.STRATEGY_CHANGED in events(moments)
    assert len(ran(moments)) == 1


def test_an_unknown_outcome_is_a_failure_of_the_tool() -> None:
    """Alone it counts, beside a success it does not."""
    alone, beside = after(LOOK, crashes("?"), limits=TELL), after(THREE, crashes("?+?"), limits=TELL)
    assert alone.failure is not None
    assert (alone.failures, alone.failure.of, alone.failure.retryable) == (1, "tool", False)
    assert (beside.failures, beside.successes) == (0, 1)


# ---------------------------------------------------------------- runs that end with a call in doubt


SCRIPTS: Mapping[str, tuple[list[Line], Setup, str]] = {
    "the first attempt": ([asks(RawCall("a", "look", {"q": "x"})), crashes("?")], make_setup(), "look"),
    "a retry": (
        [asks(RawCall("a", "look", {"q": "x"})), fails("boom", retryable=True), waits, crashes("?")],
        make_setup(),
        "look",
    ),
    "a fallback": ([SHAKY, fails("down"), crashes("?")], FALLS_BACK, "steady"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_run_that_ends_before_anybody_decided_says_that_it_is_unknown(name: str) -> None:
    """Neither "not executed" nor the failure of an attempt before: the next run of a conversation must not guess."""
    script, setup, tool_name = SCRIPTS[name]
    expected = {"a": ("error", EN.in_doubt.format(tool=tool_name))}
    assert stopped(State.REVIEW, after(*script, setup=setup)) == expected
    moments = play(*script, Expired(), setup=setup)
    run = run_in(State.ABORT, moments[-1].fired.ctx)
    assert moments[-1].fired.row.target is State.ABORT
    assert ended(run) == expected


def test_a_run_that_ends_on_the_way_to_edited_arguments_says_that_it_is_unknown() -> None:
    """The call in doubt may have taken effect, though what stands in its place never ran."""
    late = Answered(decisions={"a": Edit({"q": "w"})}, at=9.0)
    moments = play(asks(RawCall("a", "look", {"q": "x"})), crashes("?"), late, limits={"deadline": 5.0})
    assert path(moments)[-2:] == [State.VALIDATE, State.ABORT]
    assert ended(run_in(State.ABORT, moments[-1].fired.ctx)) == {"a": ("error", UNKNOWN)}


def test_a_run_that_is_cancelled_while_it_calls_again_says_that_it_is_unknown() -> None:
    """The results that the crash left are kept."""
    ctx = after(THREE, crashes("+?-"), decides(Approve()))
    assert stopped(State.EXECUTE, ctx) == {
        "a": ("success", "known 0"),
        "b": ("error", EN.cancelled_result),
        "c": ("error", "known 2"),
    }


def test_a_stop_leaves_each_call_with_what_is_known_of_it() -> None:
    """The one whose decision was a stop reads as refused; an answer beside it counts, a yes beside it is none."""
    script: list[Line] = [THREE, crashes("???"), decides(Answer("done"), Approve(), Deny("enough", stop=True))]
    moments = play(*script)
    run = run_in(State.ABORT, moments[-1].fired.ctx)
    assert run.ctx.cause is not None
    assert run.ctx.cause.reason == "denied"
    assert ended(run) == {
        "a": ("success", "done"),
        "b": ("error", UNKNOWN),
        "c": ("error", "A person refused this call: enough"),
    }
