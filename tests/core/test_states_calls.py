"""VALIDATE, REVIEW, EXECUTE and OBSERVE: the way of a call from the reply to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.dialects import JsonAction
from fsm_agent.effects import (
    Answered,
    Approve,
    AskHuman,
    CallTools,
    Decision,
    Deny,
    Edit,
    Expired,
    RawCall,
    Replied,
    Result,
    Returned,
)
from fsm_agent.states import BEHAVIOURS
from fsm_agent.tools import tool
from tests.core.builders import (
    ADD,
    APPROVES,
    DENIES,
    STOPS,
    TOOLS,
    Line,
    Moment,
    asks,
    at,
    decides,
    edits,
    effects,
    fails,
    gives,
    make_setup,
    mixed,
    on,
    path,
    play,
    raw,
    says,
    start,
    waits,
)

VALIDATE, REVIEW, EXECUTE, OBSERVE = (
    BEHAVIOURS[state] for state in (State.VALIDATE, State.REVIEW, State.EXECUTE, State.OBSERVE)
)
PAY = asks(raw("pay", to="Ada", amount=5))
TWO_PAYMENTS = asks(raw("pay", to="Ada", amount=5), raw("pay", to="Bob", amount=6))


def validated(reply: Replied, **fields: Any) -> tuple[Event, Context]:
    """What VALIDATE makes of a reply."""
    step = VALIDATE.resolve(at(State.VALIDATE, script=[reply]).change(**fields), None)
    return step.event, step.ctx


def kinds(ctx: Context) -> list[str]:
    """Why each call of the round was refused, "" for none."""
    return [call.refusal_kind for call in ctx.calls]


def executed(moments: Sequence[Moment]) -> list[list[Mapping[str, Any]]]:
    """The arguments of the calls of each batch that was executed."""
    return [[call.arguments for call in effect.calls] for effect in effects(moments, CallTools)]


# ---------------------------------------------------------------- VALIDATE: what a reply is


@pytest.mark.parametrize(
    ("reply", "event", "note_kind"),
    [
        (says("It is 3."), Event.ANSWERED, ""),
        (says(""), Event.REJECTED, "empty"),
        (says(" \n\t"), Event.REJECTED, "empty"),
        (says("<think>hm</think>"), Event.REJECTED, "empty"),
        (says("cut off in the mid", truncated=True), Event.REJECTED, "truncated"),
        (says("", truncated=True), Event.REJECTED, "truncated"),
        (says("x", unreadable="no message"), Event.REJECTED, "malformed"),
        (says("", refusal="I will not."), Event.ANSWERED, ""),
        (ADD, Event.ACCEPTED, ""),
        (asks(raw("add", a=1, b=2), text="It is 3."), Event.ACCEPTED, ""),
        (asks(raw("add", a="one")), Event.REJECTED, ""),
        (asks(raw("nothing")), Event.REJECTED, ""),
        (asks(RawCall("", "add", '{"a": 1')), Event.REJECTED, ""),
        (asks(raw("nothing"), raw("add", a=1, b=2)), Event.ACCEPTED, ""),
    ],
)
def test_a_reply_is_read_strictly(reply: Replied, event: Event, note_kind: str) -> None:
    """An answer, calls, or something that the model is told about; calls win over text beside them."""
    found, ctx = validated(reply)
    assert (found, ctx.note_kind) == (event, note_kind)
    assert bool(ctx.note) == bool(note_kind)
    assert ctx.answer == ("I will not." if reply.refusal else reply.text if event is Event.ANSWERED else None)


def test_a_thought_is_neither_a_call_nor_an_answer() -> None:
    """A dialect may let the model think; that costs a step and says so."""
    thinks = says('{"action": "THINK", "action_input": {"thought": "hm"}}')
    moments = play(thinks, setup=make_setup(dialect=JsonAction(think=True)))
    assert moments[1].fired.row.event is Event.THOUGHT
    assert (moments[-1].fired.ctx.idle_steps, moments[-1].fired.ctx.failures) == (1, 0)


def test_a_call_where_an_answer_was_forced_is_refused() -> None:
    """Without tools there is nothing to call: the run does not execute one more, and its detail says what the model did."""
    event, ctx = validated(ADD, forced=True)
    assert (event, ctx.note_kind, ctx.calls) == (Event.REJECTED, "call_when_forced", ())
    assert ctx.note.startswith("Your last reply called a tool")


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([raw("add", a=1, b=2)], [""]),
        ([raw("nothing")], ["unknown_tool"]),
        ([raw("steady", q="x")], ["unknown_tool"]),
        ([raw("add", a="one", b=2)], ["invalid"]),
        ([raw("add", a=1)], ["invalid"]),
        ([raw("add", a=1, b=2, dry_run=True)], ["invalid"]),
        ([RawCall("", "add", "a is 1")], ["malformed"]),
        ([RawCall("", "add", '{"a": 1, "b"')], ["truncated"]),
        ([raw("add", a=1, b=2), raw("add", b=2, a=1)], ["", "duplicate"]),
        ([raw("poll", job=7), raw("poll", job=7)], ["", ""]),
        ([raw("add", a="one"), raw("add", a="one")], ["invalid", "invalid"]),
    ],
)
def test_a_call_is_refused_for_what_is_wrong_with_it(calls: list[RawCall], expected: list[str]) -> None:
    """Each call has its own verdict and words; a hidden fallback is no tool that a model may call."""
    _, ctx = validated(asks(*calls))
    assert kinds(ctx) == expected
    assert [bool(call.refusal) for call in ctx.calls] == [bool(kind) for kind in expected]
    assert ctx.asked == ctx.calls


def test_arguments_are_validated_with_their_defaults() -> None:
    """What runs is what was validated: the signature is that of the whole call."""
    _, ctx = validated(asks(raw("shaky", q="x")))
    _, full = validated(asks(raw("shaky", depth=1, q="x")))
    assert ctx.calls[0].arguments == {"q": "x", "depth": 1}
    assert ctx.calls[0].signature == full.calls[0].signature


def test_a_known_prefix_is_taken_off_the_name() -> None:
    """M13: the tool that runs is the registered one, and the repair is on record."""
    _, ctx = validated(asks(RawCall("", "functions.add", {"a": 1, "b": 2})))
    assert (ctx.calls[0].tool, ctx.calls[0].repairs) == ("add", ("name_prefix",))
    assert "name_prefix" in ctx.repairs


# ---------------------------------------------------------------- VALIDATE: ids


def ids_of(*calls: RawCall, **fields: Any) -> list[str]:
    """The ids of the calls after VALIDATE."""
    return [call.id for call in validated(asks(*calls), **fields)[1].calls]


def test_an_id_of_the_model_is_kept() -> None:
    """A result answers the call under the id that the server knows."""
    assert ids_of(RawCall("call_7", "look", {"q": "x"})) == ["call_7"]


def test_h06_a_missing_id_is_minted_in_the_strictest_form() -> None:
    """Nine letters and digits, the same in a replay, another one for each call and each round."""
    first = ids_of(raw("look", q="x"), raw("look", q="y"))
    assert all(len(one) == 9 and one.isalnum() and one.isascii() for one in first)
    assert len(set(first)) == 2
    assert ids_of(raw("look", q="x"), raw("look", q="y")) == first
    assert not set(first) & set(ids_of(raw("look", q="x"), model_calls=2))
    assert not set(first) & set(ids_of(raw("look", q="x"), run_id="run-2"))


@pytest.mark.parametrize("given", ["a b", "a\nstatus   completed", "\u202ea", "a\x1b[2J", "--all", " "])
def test_an_id_that_is_not_one_plain_word_is_replaced(given: str) -> None:
    """A person reads ids in lines, and copies them into commands: none is a line of its own, or an option."""
    (made,) = ids_of(RawCall(given, "look", {"q": "x"}))
    assert len(made) == 9
    assert made.isalnum()


@given(st.lists(st.sampled_from(["", "a", "b", "call_1"]), min_size=1, max_size=5), st.integers(1, 4))
def test_no_two_calls_of_a_run_share_an_id(ids: list[str], rounds: int) -> None:
    """Servers repeat ids, within a reply and between replies; the history must not."""
    seen: list[str] = []
    script: list[Line] = []
    for number in range(rounds):
        script += [
            asks(*(RawCall(one, "look", {"q": f"{number}-{n}"}) for n, one in enumerate(ids))),
            gives(f"{number}"),
        ]
    for moment in play(*script, limits={"max_steps": 99, "no_progress_steps": 99}):
        if moment.state is State.EXECUTE:
            seen += [call.id for call in moment.ctx.calls]
    assert len(seen) == len(ids) * rounds
    assert len(set(seen)) == len(seen)
    assert "" not in seen


# ---------------------------------------------------------------- REVIEW


def test_a_person_is_asked_about_the_calls_that_need_it_exactly_as_they_would_run() -> None:
    """The others wait with them, and are not shown."""
    batch = asks(raw("look", q="x"), raw("pay", to="Ada", amount=5), raw("pay", amount=6))
    (effect,) = effects(play(batch, APPROVES), AskHuman)
    assert [(call.tool, dict(call.arguments)) for call in effect.calls] == [("pay", {"to": "Ada", "amount": 5})]
    assert effect.expires_in is None


def test_the_time_that_a_person_has_is_said() -> None:
    """`approval_timeout` seconds, for whoever asks."""
    (effect,) = effects(play(PAY, APPROVES, limits={"approval_timeout": 60.0}), AskHuman)
    assert effect.expires_in == 60.0


@pytest.mark.parametrize(
    ("decision", "event", "ran"),
    [
        (APPROVES, Event.APPROVED, [["Ada", "Bob"]]),
        (DENIES, Event.DENIED, []),
        (STOPS, Event.DENIED, []),
        (decides(Approve(), Deny()), Event.APPROVED, [["Ada"]]),
        (decides(Deny(), Approve()), Event.APPROVED, [["Bob"]]),
        (decides(Approve(), Deny(stop=True)), Event.DENIED, []),
        (decides(Edit({"to": "Eve", "amount": 1}), Approve()), Event.EDITED, [["Eve", "Bob"]]),
        (decides(Edit({"to": "Eve", "amount": 1}), Deny()), Event.EDITED, [["Eve"]]),
        (decides(Edit({"to": "Eve", "amount": 1}), Deny(stop=True)), Event.DENIED, []),
        (Answered(decisions={}), Event.DENIED, []),
        (Answered(decisions={"somebody else's": Approve()}), Event.DENIED, []),
    ],
    ids=range(11),
)
def test_each_decision_is_for_one_call(decision: Line, event: Event, ran: list[list[str]]) -> None:
    """C07, C11: exactly what was approved runs; silence is no yes; one "stop" stops everything."""
    moments = play(TWO_PAYMENTS, decision, on(tools=gives("paid"), model=says("Done.")))
    assert moments[2].fired.row.event is event
    assert [[arguments["to"] for arguments in batch] for batch in executed(moments)] == ran


@pytest.mark.parametrize(
    "decision", [Approve(), Edit({"to": "Eve", "amount": 9}), Deny(stop=True)], ids=lambda one: one.kind
)
def test_a_decision_about_a_call_that_nobody_asked_about_is_none(decision: Decision) -> None:
    """C08: only what was shown can be decided: neither a refused sibling nor one that needs no approval changes."""
    batch = asks(raw("pay", to="Ada", amount=5), raw("pay", amount=5, to="Ada"), raw("look", q="x"), raw("pay", to=3))

    def on_all(effect: AskHuman) -> Answered:
        (shown,) = effect.calls
        review = at(State.REVIEW, script=[batch])
        others = {call.id: decision for call in review.calls if call.id != shown.id}
        return Answered(decisions={shown.id: Approve(), **others})

    moments = play(batch, on_all, gives("paid", "found"))
    assert executed(moments) == [[{"to": "Ada", "amount": 5}, {"q": "x"}]]


def test_an_approval_is_bound_to_the_call_that_was_shown() -> None:
    """C08: the next call, even the same one, needs a decision of its own."""
    moments = play(PAY, APPROVES, gives("paid"), PAY, APPROVES)
    assert len(effects(moments, AskHuman)) == 2


def test_edited_arguments_are_validated_again() -> None:
    """C08: arguments that do not fit the tool run nothing, whoever wrote them."""
    moments = play(PAY, edits(to="Ada", amount="much"))
    assert executed(moments) == []
    assert kinds(moments[-1].fired.ctx) == ["invalid"]
    assert State.OBSERVE in path(moments)


def test_edited_arguments_run_without_a_second_question() -> None:
    """The edit is the approval of what it says, and of nothing else."""
    moments = play(PAY, edits(to="Ada", amount=1), gives("paid"))
    assert executed(moments) == [[{"to": "Ada", "amount": 1}]]
    assert len(effects(moments, AskHuman)) == 1


def test_a_denied_call_is_refused_without_asking_again() -> None:
    """C11: the same call, spelled in another way, is answered by itself; another amount is another question."""
    moments = play(PAY, DENIES, asks(raw("pay", amount=5, to="Ada")), asks(raw("pay", to="Ada", amount=4)), APPROVES)
    asked = effects(moments, AskHuman)
    assert [effect.calls[0].arguments["amount"] for effect in asked] == [5, 4]
    assert executed(moments) == []


def test_a_denial_is_no_failure() -> None:
    """A person's no does not bring the run closer to degrading."""
    ctx = play(PAY, DENIES)[-1].fired.ctx
    assert (ctx.failures, ctx.failure) == (0, None)


def test_the_time_of_a_person_is_no_time_of_the_run() -> None:
    """Waiting does not count for the deadline, whether it ends with a decision or by itself."""
    for outcome in (Answered(decisions={}, waited=500.0, at=502.0), Expired(500.0, at=502.0)):
        ctx = play(PAY, outcome, limits={"deadline": 9.0})[-1].fired.ctx
        assert (ctx.at, ctx.waited, ctx.elapsed) == (502.0, 500.0, 2.0)


# ---------------------------------------------------------------- EXECUTE


def test_what_is_executed_is_what_nothing_refused() -> None:
    """The batch, the width and the time left."""
    moments = play(
        asks(raw("look", q="x"), raw("nothing"), raw("look", q="y"), at=2.0),
        gives("found", at=3.5),
        limits={"max_parallel": 3, "deadline": 9.0},
    )
    (effect,) = effects(moments, CallTools)
    assert [call.arguments["q"] for call in effect.calls] == ["x", "y"]
    assert (effect.parallel, effect.time_left, effect.attempt) == (3, 7.0, 1)
    assert (moments[-1].fired.ctx.at, moments[-1].fired.ctx.tool_calls) == (3.5, 2)


def test_a_retry_executes_only_what_failed_under_the_same_id() -> None:
    """R03: a call that succeeded is not made twice; the attempt is counted and visible."""
    batch = asks(raw("look", q="x"), raw("look", q="y"))
    moments = play(batch, mixed(True, False, retryable=True), waits, gives("found"))
    first, second = effects(moments, CallTools)
    assert second.calls == first.calls[1:]
    assert (first.attempt, second.attempt) == (1, 2)
    assert moments[-1].fired.ctx.tool_calls == 3


@tool(retry=3)
def patient(q: str) -> str:
    """Find something; worth three more tries."""
    return q


@pytest.mark.parametrize(
    ("name", "retries", "times"), [("look", 0, 1), ("look", 1, 2), ("look", 4, 5), ("patient", 0, 4)]
)
def test_a_call_is_made_as_often_as_it_may_be_retried_and_once_more(name: str, retries: int, times: int) -> None:
    """R03: N retries are N + 1 executions, whether the tool or the run says so."""
    limits = {"max_retries": retries, "abort_after": 99, "degrade_after": 99}
    going_on = on(tools=fails("boom", retryable=True), model=says("Done."))
    moments = play(asks(raw(name, q="x")), *[going_on] * 20, setup=make_setup(tools=(*TOOLS, patient), limits=limits))
    assert len(effects(moments, CallTools)) == times


def test_a_call_that_was_not_executed_is_not_counted() -> None:
    """A tool that was unregistered in between gave a result without running."""
    gone = Result(call_id="a", tool="look", ok=False, text="unregistered", executed=False)
    assert EXECUTE.resolve(at(State.EXECUTE), Returned(results=(gone,))).ctx.tool_calls == 0


# ---------------------------------------------------------------- OBSERVE


def observed(*script: Line, **fields: Any) -> Context:
    """The context after the round of `script`."""
    return play(*script, ctx=start().change(**fields))[-1].fired.ctx


@pytest.mark.parametrize(
    ("outcome", "before", "after"),
    [
        (gives("3"), 1, 0),
        (fails("boom"), 1, 2),
        (mixed(True, False), 1, 0),
        (mixed(False, True), 1, 0),
        (mixed(False, False), 1, 2),
    ],
    ids=["success", "failure", "one of two", "the other of two", "none of two"],
)
def test_one_success_ends_a_row_of_failures(outcome: Line, before: int, after: int) -> None:
    """A batch counts as one: as a failure when none of its calls succeeded."""
    two = asks(raw("look", q="x"), raw("look", q="y"))
    assert observed(two, outcome, failures=before).failures == after


@pytest.mark.parametrize(
    ("script", "of"),
    [
        ([asks(raw("nothing"))], "reply"),
        ([says("x", unreadable="no message")], "reply"),
        ([ADD, fails("boom")], "tool"),
        ([asks(raw("nothing"), raw("look", q="x")), fails("boom", retryable=True)], "tool"),
    ],
    ids=[
        "a call that was refused",
        "a reply that cannot be read",
        "a tool",
        "a tool that may be retried, first of all",
    ],
)
def test_a_failure_says_what_failed(script: list[Line], of: str) -> None:
    """The ladder chooses by it."""
    failure = play(*script, limits={"max_retries": 0})[-1].fired.ctx.failure
    assert failure is not None
    assert failure.of == of


def test_empty_replies_are_nudged_and_counted_apart_from_failures() -> None:
    """M17: so many nudges, then the end; the repeat guard alone would not see it."""
    moments = play(says(""), says(""), says(""), limits={"max_nudges": 2})
    assert [moment.fired.ctx.nudges for moment in moments if moment.state is State.OBSERVE] == [1, 2, 3]
    assert path(moments)[-1] is State.ABORT
    cause = moments[-1].fired.ctx.cause
    assert cause is not None
    assert cause.reason == "empty_reply"
    assert moments[-1].fired.ctx.failures == 0


@pytest.mark.parametrize(
    ("script", "idle"),
    [
        ([ADD, gives("3")], 0),
        ([ADD, gives("3"), asks(raw("add", a=2, b=1)), gives("3")], 1),
        ([ADD, gives("3"), asks(raw("look", q="x")), gives("3")], 0),
        ([ADD, gives("3"), asks(raw("look", q="x"), raw("add", a=2, b=1)), gives("3", "3")], 0),
        ([ADD, fails("boom")], 1),
        ([ADD, fails("boom", retryable=True), waits, fails("boom", retryable=True)], 1),
        ([ADD, fails("boom", retryable=True), waits, gives("3")], 0),
        ([asks(raw("nothing"))], 1),
        ([asks(raw("poll", job=1)), gives("wait"), asks(raw("poll", job=1)), gives("wait")], 0),
        ([asks(raw("poll", job=1)), gives("wait"), ADD, gives("3"), asks(raw("poll", job=1)), gives("wait")], 0),
    ],
    ids=[
        *("something new", "the same again", "the same from another tool", "one of two is new"),
        *("a failure", "a failed retry is the same step", "a retry that worked", "a refused call"),
        *("polling", "polling again"),
    ],
)
def test_a_step_is_idle_when_nothing_new_was_learned(script: list[Line], idle: int) -> None:
    """Progress is a result that its tool had not given before; waiting for a job is neither progress nor idleness."""
    assert play(*script, limits={"no_progress_steps": 9})[-1].fired.ctx.idle_steps == idle


def test_what_was_done_is_kept_for_the_answer() -> None:
    """Successful calls with their results, in order; a failed one is not among them."""
    ctx = play(ADD, gives("3"), asks(raw("look", q="x"), raw("look", q="y")), mixed(False, True))[-1].fired.ctx
    assert [(done.call.tool, done.result.text) for done in ctx.done] == [("add", "3"), ("look", "result 1")]


def test_a_result_is_observed_once() -> None:
    """What was counted is not counted again by the next step."""
    ctx = play(ADD, gives("3"))[-1].fired.ctx
    assert ctx.fresh == ()
    assert OBSERVE.resolve(ctx, None).ctx.learned == ctx.learned
