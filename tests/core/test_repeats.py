"""Repeats, cycles and progress: counted over (signature, result), tripped exactly on the configured count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.alphabet import State, StopReason
from fsm_agent.context import Context
from fsm_agent.effects import Call, RawCall, Result
from fsm_agent.repeats import is_repeated, learned_from, times_seen
from fsm_agent.tools import tool
from tests.core.builders import Line, asks, fails, frozen, gives, make_setup, path, play, raw, result_of, start


def pair(signature: str, text: str) -> tuple[Call, Result]:
    """One executed call and what it gave."""
    return Call(id="c", name="look", tool="look", signature=signature), result_of("c", "look", text)


def learn(ctx: Context, pairs: Sequence[tuple[Call, Result]]) -> Context:
    """The context after these were executed."""
    return ctx.change(**learned_from(ctx, pairs))


def learned(*pairs: tuple[str, str], **limits: Any) -> Context:
    """A context that has executed these, one after the other."""
    ctx = start(make_setup(limits=limits))
    for signature, text in pairs:
        ctx = learn(ctx, [pair(signature, text)])
    return ctx


@pytest.mark.parametrize("threshold", [1, 2, 3, 7])
def test_the_count_is_exact(threshold: int) -> None:
    """L01: N executions with the same result are allowed, the one after them is a repeat."""
    ctx = start(make_setup(limits={"repeat_threshold": threshold}))
    for count in range(threshold):
        assert times_seen(ctx, "s") == count
        assert not is_repeated(ctx, "s")
        ctx = learn(ctx, [pair("s", "same")])
    assert times_seen(ctx, "s") == threshold
    assert is_repeated(ctx, "s")
    assert not is_repeated(ctx, "another")


def test_another_result_is_progress() -> None:
    """L03: a poll that returns something new starts the count anew."""
    ctx = learned(("s", "10%"), ("s", "10%"), ("s", "20%"))
    assert times_seen(ctx, "s") == 1
    assert not is_repeated(ctx, "s")
    assert is_repeated(learn(ctx, [pair("s", "20%")]), "s")


def test_a_call_in_between_does_not_start_the_count_anew() -> None:
    """A loop that is broken by an unrelated call is a loop all the same."""
    assert is_repeated(learned(("s", "x"), ("t", "y"), ("s", "x")), "s")


def test_in_a_row_another_call_starts_the_count_anew() -> None:
    """Only executions that follow each other count, a batch as one, its retries with it; a cycle is a repeat all the same."""
    row: dict[str, Any] = {"repeats": "in_a_row", "repeat_threshold": 1}
    assert is_repeated(learned(("s", "x"), **row), "s")
    between = learned(("s", "x"), ("t", "y"), **row)
    assert (is_repeated(between, "s"), is_repeated(between, "t")) == (False, True)
    both = learn(learned(**row), [pair("s", "x"), pair("t", "y")])
    assert is_repeated(both, "s")
    assert is_repeated(both, "t")
    assert is_repeated(learn(both, []), "s"), "a step without a call is none in between"
    assert is_repeated(learned(*CYCLE_2, *CYCLE_2, **row), "a")
    retried = learn(both.change(attempt=2), [pair("t", "z")])
    assert (times_seen(retried, "s"), times_seen(retried, "t")) == (1, 1)


CYCLE_2 = [("a", "1"), ("b", "2")]
CYCLE_3 = [("a", "1"), ("b", "2"), ("c", "3")]


@pytest.mark.parametrize(
    ("threshold", "done", "next_", "repeated"),
    [
        pytest.param(9, [*CYCLE_2, *CYCLE_2] * 4, "a", False, id="threshold 9: eight rounds of two"),
        pytest.param(9, CYCLE_2 * 9, "a", True, id="threshold 9: nine rounds of two"),
        pytest.param(5, CYCLE_3 * 4, "a", False, id="threshold 5: four rounds of three"),
        pytest.param(5, CYCLE_3 * 5, "a", True, id="threshold 5: five rounds of three"),
        pytest.param(3, CYCLE_2 * 2, "a", False, id="threshold 3: two rounds of two"),
        pytest.param(3, [("s", "A"), ("s", "B")] * 2, "s", False, id="threshold 3: one call with two results, twice"),
        pytest.param(3, [("s", "A"), ("s", "B")] * 3, "s", True, id="threshold 3: one call with two results, thrice"),
        pytest.param(2, [("s", "A"), ("s", "B")] * 2, "s", True, id="threshold 2: one call with two results"),
        pytest.param(7, [("s", "A"), ("s", "B")] * 7, "s", True, id="threshold 7: one call with two results, 7 times"),
        pytest.param(5, [("s", n) for n in "123"] * 4, "s", False, id="threshold 5: one call with three, 4 times"),
        pytest.param(5, [("s", n) for n in "123"] * 5, "s", True, id="threshold 5: one call with three, 5 times"),
        pytest.param(
            2, [("s", "A"), ("t", "B"), ("s", "C")] * 2, "s", True, id="threshold 2: three pairs of two calls"
        ),
        pytest.param(2, [("s", "A"), ("s", "B"), ("t", "C")] * 2, "t", True, id="threshold 2: the call itself"),
        pytest.param(2, [("s", "A"), ("s", "B")] * 2, "t", False, id="threshold 2: out of the cycle"),
        pytest.param(1, [("s", "A"), ("s", "B")], "s", True, id="threshold 1: the call itself"),
        pytest.param(3, [*CYCLE_3, ("a", "9"), *CYCLE_3[1:]], "a", False, id="threshold 3: a cycle with a new result"),
    ],
)
def test_a_cycle_is_a_repeat_after_as_many_rounds_as_a_call(
    threshold: int, done: Sequence[tuple[str, str]], next_: str, repeated: bool
) -> None:
    """Two or three (call, result) pairs in turn, as often as the threshold says, are a repeat when they go on."""
    assert is_repeated(learned(*done, repeat_threshold=threshold), next_) is repeated


def expected(done: Sequence[tuple[str, str]], signature: str, threshold: int) -> bool:
    """The rule in other words: the newest results of the call are the same, or the pairs go round."""
    results = [text for one, text in done if one == signature]
    newest = results[-threshold:]
    if len(newest) == threshold and len(set(newest)) == 1:
        return True
    for period in (2, 3):
        length = period * max(threshold, 2)
        tail = list(done[-length:])
        goes_round = len(tail) == length and tail == tail[:period] * (length // period) and len(set(tail)) > 1
        if goes_round and tail[-period][0] == signature:
            return True
    return False


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=30)
    | st.builds(
        lambda cycle, times, before: [*before, *(cycle * times)],
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), min_size=1, max_size=3),
        st.integers(1, 9),
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=3),
    ),
    st.sampled_from("abc"),
    st.integers(1, 9),
)
def test_repeats_are_counted_by_the_rule(done: list[tuple[str, str]], signature: str, threshold: int) -> None:
    """For any history and any threshold, a call is a repeat exactly when the rule says so."""
    ctx = learned(*done, repeat_threshold=threshold)
    assert is_repeated(ctx, signature) is expected(done, signature, threshold)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=40))
def test_what_is_remembered_stays_small(done: list[tuple[str, str]]) -> None:
    """What the next decision needs does not grow with the length of a run, only with what was really different."""
    ctx = learned(*done, repeat_threshold=2)
    assert len(ctx.seen) == len({signature for signature, _ in done})
    assert len(ctx.recent) <= 3 * 2 * 2  # two rounds of the longest cycle, or a little more
    assert len(ctx.learned) == len({text for _, text in done})


def test_learning_changes_nothing_in_place() -> None:
    """The context before is as it was: a replay folds it again."""
    ctx = learned(("s", "x"), ("t", "y"))
    before = frozen(ctx)
    learn(ctx, [pair("s", "x"), pair("u", "z")])
    assert frozen(ctx) == before


def test_a_batch_counts_each_of_its_calls_in_order() -> None:
    """Two calls of one reply are two executions."""
    ctx = learn(start(), [pair("s", "x"), pair("t", "y"), pair("s", "x")])
    assert (times_seen(ctx, "s"), times_seen(ctx, "t")) == (2, 1)
    assert [signature for signature, _ in ctx.recent] == ["s", "t", "s"]


def test_the_engines_own_retries_are_not_repeats() -> None:
    """A retry takes the place of the attempt before: what the model asked for once was asked for once."""
    ctx = learned(("s", "boom"), repeat_threshold=2)
    for attempt in (2, 3, 4, 5):
        ctx = learn(ctx.change(attempt=attempt), [pair("s", "boom")])
    assert times_seen(ctx, "s") == 1
    assert not is_repeated(ctx, "s")
    again = learn(ctx.change(attempt=1), [pair("s", "boom")])
    assert is_repeated(again, "s")
    assert is_repeated(learn(again.change(attempt=2), [pair("s", "boom")]), "s")
    assert not is_repeated(learn(again.change(attempt=2), [pair("s", "done")]), "s")


def test_what_counts_of_a_retried_call_is_what_the_retry_gave() -> None:
    """A tool that always fails first and then gives the same is a loop like one that gives it at once."""
    ctx = learned(("s", "done"), ("s", "boom"), repeat_threshold=2)
    ctx = learn(ctx.change(attempt=2), [pair("s", "done")])
    assert times_seen(ctx, "s") == 2
    assert is_repeated(ctx, "s")
    ctx = learn(ctx.change(attempt=3), [pair("s", "something else")])
    assert times_seen(ctx, "s") == 1


def test_the_first_result_of_a_call_may_be_that_of_a_retry() -> None:
    """A call of a batch may be seen for the first time in a retry; it then counts once."""
    ctx = learn(start().change(attempt=2), [pair("s", "x")])
    assert times_seen(ctx, "s") == 1
    assert ctx.recent == ()


@pytest.mark.parametrize(("threshold", "kept"), [(1, 6), (2, 6), (3, 9), (7, 21)])
def test_the_window_is_as_long_as_the_longest_cycle_that_counts(threshold: int, kept: int) -> None:
    """Three pairs as often as the threshold says, at least twice; no more is remembered."""
    ctx = learned(*[(f"s{n}", "x") for n in range(50)], repeat_threshold=threshold)
    assert len(ctx.recent) == kept


# ---------------------------------------------------------------- through the machine

LOOK = asks(raw("look", q="x"))


def executions(*script: Line, **limits: Any) -> tuple[int, State, StopReason | None]:
    """How many calls were executed, where the run got to, and why it left the ordinary path."""
    moments = play(*script, limits={"no_progress_steps": 99, "max_steps": 99, **limits})
    cause = moments[-1].fired.ctx.cause
    return moments[-1].fired.ctx.tool_calls, path(moments)[-1], None if cause is None else cause.reason


@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
def test_a_model_that_repeats_itself_is_stopped_on_the_configured_count(threshold: int) -> None:
    """L01: exactly N executions, then a refusal that ends the run with the reason, and no further call to the model."""
    script: list[Line] = [LOOK, gives("same")] * 99
    found = executions(*script, repeat_threshold=threshold, on_limit="stop")
    assert found == (threshold, State.ABORT, StopReason.REPEATED_ACTION)


def test_the_model_is_warned_once_with_the_last_execution_that_is_allowed() -> None:
    """L01: one warning, in the result that uses up the threshold."""
    ctx = play(*(LOOK, gives("same")) * 3, limits={"repeat_threshold": 3})[-1].fired.ctx
    told = [str(message.content) for one in ctx.blocks for message in one.messages if message.type == "tool"]
    assert told[:2] == ["same", "same"]
    assert told[2].startswith("same\n")
    assert "3 times" in told[2]


def test_a_poll_that_moves_on_is_never_stopped() -> None:
    """L03: the same call with another result each time goes on for as long as it likes."""
    script = [line for percent in range(20) for line in (LOOK, gives(f"{percent}%"))]
    assert executions(*script)[0] == 20


def test_a_tool_that_may_repeat_is_never_stopped_for_it() -> None:
    """L03: a repeatable tool may return the same for ever; the limit on steps still holds."""
    script: list[Line] = [asks(raw("poll", job=7)), gives("pending")] * 99
    assert executions(*script, max_steps=12, on_limit="stop") == (12, State.ABORT, StopReason.MAX_STEPS)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"q": "x", "deep": {"x": 1, "y": 2}}, {"deep": {"y": 2, "x": 1}, "q": "x"}, True),
        ({"q": "x", "deep": {"list": [1, 2]}}, {"q": "x", "deep": {"list": [2, 1]}}, False),
        ({"q": "x", "deep": {}}, {"q": "x", "deep": {}, "n": 5}, True),
        ({"q": "x", "deep": {}, "n": 6}, {"q": "x", "deep": {}}, False),
    ],
    ids=["key order", "list order", "a default left out", "another value"],
)
def test_calls_are_the_same_when_they_ask_for_the_same(
    first: dict[str, Any], second: dict[str, Any], same: bool
) -> None:
    """L04: keys in another order and a default left out do not hide a loop; a list in another order is another call."""

    @tool
    def dig(q: str, deep: dict[str, Any], n: int = 5) -> str:
        """Dig."""
        return q

    moments = play(
        *(asks(RawCall("", "dig", first)), gives("x"), asks(RawCall("", "dig", second))),
        setup=make_setup(tools=(dig,), limits={"repeat_threshold": 1, "on_limit": "stop"}),
    )
    assert path(moments)[-1] is (State.ABORT if same else State.EXECUTE)


def test_the_same_failure_again_and_again_is_a_repeat_too() -> None:
    """L05: a call that fails alike is counted like one that succeeds alike."""
    script: list[Line] = [LOOK, fails("permission denied")] * 9
    found = executions(*script, abort_after=9, degrade_after=9, on_limit="stop")
    assert found == (2, State.ABORT, StopReason.REPEATED_ACTION)


def test_failing_alike_in_ever_new_ways_is_no_progress() -> None:
    """L05: eight calls with other arguments and the same refusal do not go on for ever."""
    script = [line for n in range(8) for line in (asks(raw("look", q=f"-{n}")), fails("permission denied"))]
    calls, state, reason = executions(*script, no_progress_steps=3, abort_after=99, degrade_after=99, on_limit="stop")
    assert (calls, state, reason) == (3, State.ABORT, StopReason.NO_PROGRESS)


def test_a_repeat_beside_a_fresh_call_is_refused_alone() -> None:
    """The fresh call runs; the repeated one is answered with the refusal, and the run goes on."""
    moments = play(LOOK, gives("same"), LOOK, gives("same"), asks(raw("look", q="x"), raw("look", q="y")), gives("new"))
    ctx = moments[-1].fired.ctx
    assert path(moments)[-1] is State.PLAN
    assert [(result.ok, result.error) for result in ctx.results] == [(False, "repeated"), (True, "")]
    assert ctx.tool_calls == 3
