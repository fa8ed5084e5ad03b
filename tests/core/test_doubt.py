"""Calls in doubt: a crash left open whether they ran. None is ever executed again unless a person says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import DIALECTS
from fsm_agent.dialects.base import merge_neighbours
from fsm_agent.effects import (
    Answer,
    Answered,
    Approve,
    AskHuman,
    Call,
    CallTools,
    Cancelled,
    Decision,
    Deny,
    Edit,
    Expired,
    RawCall,
)
from fsm_agent.history import block, flatten
from fsm_agent.jobs import Job
from fsm_agent.language import EN
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.runs import Run
from fsm_agent.testing import FakeClock
from fsm_agent.tools import tool
from tests.core.builders import (
    TOOLS,
    Line,
    Moment,
    asks,
    crashes,
    decides,
    edits,
    fails,
    fold,
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
from tests.core.validity import wrong_history

TELL = {"in_doubt": "tell"}
LOOK = asks(raw("look", q="x"))
THREE = asks(RawCall("a", "look", {"q": "x"}), RawCall("b", "look", {"q": "y"}), RawCall("c", "look", {"q": "z"}))
SHAKY = asks(RawCall("a", "shaky", {"q": "x"}))
UNKNOWN = EN.in_doubt.format(tool="look")
FALLS_BACK = make_setup(limits={"degrade_after": 1})


def after(*script: Line, **kwargs: Any) -> Context:
    """The context at the end of a script."""
    return play(*script, **kwargs)[-1].fired.ctx


def asked(moments: Sequence[Moment]) -> list[list[str]]:
    """The ids of the calls of each question to a person."""
    return [[call.id for call in one.effect.calls] for one in moments if isinstance(one.effect, AskHuman)]


def ran(moments: Sequence[Moment]) -> list[list[str]]:
    """The ids of the calls of each batch that was executed."""
    return [[call.id for call in one.effect.calls] for one in moments if isinstance(one.effect, CallTools)]


def events(moments: Sequence[Moment]) -> list[Event]:
    """The events from the crash on."""
    found = [moment.step.event for moment in moments]
    return found[found.index(Event.DOUBTED) :]


def read(ctx: Context) -> dict[str, tuple[str, str]]:
    """What the model reads of each call of the open round, by call id: the status and the text. The round is valid."""
    assert ctx.round is not None
    answers = [message for message in ctx.round.messages if isinstance(message, ToolMessage)]
    assert [one.tool_call_id for one in answers] == [call.id for call in ctx.asked]
    assert wrong_history(flatten(ctx.blocks)) == []
    return {one.tool_call_id: (one.status, str(one.content)) for one in answers}


def stopped(state: State, ctx: Context) -> dict[str, tuple[str, str]]:
    """What a next run reads of the round of a run that is cancelled where it is."""
    job = Job(run_id="run-1", clock=FakeClock(), started=0.0)
    run = Run(ctx=ctx, job=job, machine=DEFAULT_MACHINE, state=state)
    run.stop(Cancelled("enough"))
    return ended(run)


def ended(run: Run) -> dict[str, tuple[str, str]]:
    """What a next run reads of the round that a run has left."""
    messages = flatten(run.closed_history())
    assert wrong_history([*messages, HumanMessage("And now?")][:-1]) == []
    return {one.tool_call_id: (one.status, str(one.content)) for one in messages if isinstance(one, ToolMessage)}


# ---------------------------------------------------------------- a person decides


def test_a_person_is_asked_about_what_is_in_doubt_and_nothing_else() -> None:
    """Finished calls and calls that had not begun are no question; the crash takes back an earlier yes."""
    moments = play(asks(*THREE.calls, raw("pay", to="Ada", amount=5)), decides(Approve()), crashes("+.??"))
    ctx = moments[-1].fired.ctx
    assert moments[-1].fired.row.target is State.REVIEW
    assert [(one.doubt, one.needs_approval, one.approved) for one in ctx.calls] == [
        *((False, False, False), (False, False, False)),
        *((True, True, False), (True, True, False)),
    ]
    assert [call.id for call in asking(ctx).calls] == ["c", ctx.calls[3].id]
    assert all(call.doubt for call in asking(ctx).calls)


def asking(ctx: Context) -> AskHuman:
    """The question of REVIEW."""
    effect = DEFAULT_MACHINE.behaviours[State.REVIEW].enter(ctx)
    assert isinstance(effect, AskHuman)
    return effect


def test_a_yes_calls_it_again_and_no_finished_sibling() -> None:
    """The one in doubt and the one that had not begun are executed; the finished one never again."""
    moments = play(THREE, crashes("+?."), decides(Approve()), gives("again", "first"))
    assert asked(moments) == [["b"]]
    assert ran(moments) == [["a", "b", "c"], ["b", "c"]]
    ctx = moments[-1].fired.ctx
    assert read(ctx) == {"a": ("success", "known 0"), "b": ("success", "again"), "c": ("success", "first")}
    assert ctx.tool_calls == 3
    assert [done.result.text for done in ctx.done] == ["known 0", "again", "first"]
    assert [seen.count for seen in ctx.seen.values()] == [1, 1, 1]
    assert events(moments)[:3] == [Event.DOUBTED, Event.APPROVED, Event.EXECUTED]


def test_a_no_is_what_the_model_reads() -> None:
    """Nothing runs, and the same call is not asked about again in this run."""
    moments = play(LOOK, crashes("?"), decides(Deny("look at the bank first")), LOOK)
    ((status, text),) = read(observed(moments)).values()
    assert (status, text) == ("error", "A person refused this call: look at the bank first")
    assert events(moments)[:2] == [Event.DOUBTED, Event.DENIED]
    assert len(ran(moments)) == 1
    assert len(asked(moments)) == 1
    assert observed(moments).failures == 0


def observed(moments: Sequence[Moment], number: int = 0) -> Context:
    """The context after one OBSERVE, the first unless another is asked for."""
    return [moment.fired.ctx for moment in moments if moment.state is State.OBSERVE][number]


def test_an_answer_stands_as_the_result_and_nothing_runs() -> None:
    """A person who knows what came of it says so: the model reads it as a success, and nothing is counted as executed."""
    moments = play(LOOK, fails("boom"), LOOK, crashes("?"), decides(Answer("it was found")))
    assert events(moments)[:2] == [Event.DOUBTED, Event.ANSWERED]
    ctx = moments[-1].fired.ctx
    assert list(read(ctx).values()) == [("success", "it was found")]
    assert (ctx.failures, ctx.successes, ctx.failure, ctx.tool_calls) == (0, 1, None, 1)
    assert len(ran(moments)) == 2
    assert ctx.done == ()


def test_an_answer_without_words_is_one_all_the_same() -> None:
    """A server refuses an empty message, whatever the dialect."""
    ctx = after(LOOK, crashes("?"), decides(Answer("")))
    assert list(read(ctx).values()) == [("success", "(empty)")]
    assert [result.text for result in ctx.results] == ["(empty)"]


def test_an_answer_is_a_decision_about_any_call_that_waits() -> None:
    """Also about one that needs approval without a crash, alone and beside one that then runs."""
    pay = asks(RawCall("a", "pay", {"to": "Ada", "amount": 5}), RawCall("b", "pay", {"to": "Bob", "amount": 6}))
    both = play(pay, decides(Answer("paid in cash")))
    assert both[2].step.event is Event.ANSWERED
    assert ran(both) == []
    one = play(pay, decides(Answer("paid in cash"), Approve()), gives("paid"))
    assert one[2].step.event is Event.APPROVED
    assert ran(one) == [["b"]]
    assert read(one[-1].fired.ctx) == {"a": ("success", "paid in cash"), "b": ("success", "paid")}


def test_edited_arguments_run_in_place_of_the_call_in_doubt() -> None:
    """They are validated again, run once, and stand in the history as they ran; the finished sibling stays."""
    moments = play(THREE, crashes("+?+"), edits(q="elsewhere"), gives("found"))
    assert ran(moments)[1:] == [["b"]]
    assert events(moments)[:4] == [Event.DOUBTED, Event.EDITED, Event.ACCEPTED, Event.EXECUTED]
    ctx = moments[-1].fired.ctx
    assert read(ctx)["b"] == ("success", "found")
    assert ctx.round is not None
    written = ctx.round.messages[0]
    assert isinstance(written, AIMessage)
    assert [call["args"]["q"] for call in written.tool_calls] == ["x", "elsewhere", "z"]
    assert ctx.tool_calls == 3


@pytest.mark.parametrize("fates", ["?", "+?", "r?", "-?"])
def test_edited_arguments_that_do_not_fit_run_nothing(fates: str) -> None:
    """Whatever is known of the siblings is observed, and the round is not executed with no calls in it."""
    batch = asks(*THREE.calls[: len(fates)])
    moments = play(batch, crashes(fates), edits(q=3))
    assert events(moments)[:4] == [Event.DOUBTED, Event.EDITED, Event.REJECTED, Event.OBSERVED]
    assert ran(moments) == [[call.id for call in batch.calls]]
    ctx = observed(moments)
    assert read(ctx)[batch.calls[-1].id][0] == "error"
    assert len(ctx.done) == fates.count("+")


def test_an_edit_into_a_call_that_is_used_up_still_observes_what_is_known() -> None:
    """A result that the crash left is learned from before anything else follows, and is never lost."""
    twice: list[Line] = [asks(raw("look", q="w")), gives("same")] * 2
    moments = play(*twice, asks(*THREE.calls[:2]), crashes("+?"), edits(q="w"), limits={"no_progress_steps": 9})
    assert events(moments)[:4] == [Event.DOUBTED, Event.EDITED, Event.REJECTED, Event.OBSERVED]
    ctx = observed(moments, 2)
    assert [done.result.text for done in ctx.done] == ["same", "same", "known 0"]
    assert read(ctx)["b"][0] == "error"


@pytest.mark.parametrize(
    ("decisions", "event", "again"),
    [
        ((Approve(), Deny("no"), Answer("done")), Event.APPROVED, ["a"]),
        ((Deny("no"), Answer("done"), Approve()), Event.APPROVED, ["c"]),
        ((Answer("done"), Answer("done"), Answer("done")), Event.ANSWERED, None),
        ((Deny("no"), Deny("no"), Answer("done")), Event.ANSWERED, None),
        ((Deny("no"), Deny("no"), Deny("no")), Event.DENIED, None),
        ((Edit({"q": "w"}), Answer("done"), Deny("no")), Event.EDITED, ["a"]),
        ((Edit({"q": "w"}), Approve(), Answer("done")), Event.EDITED, ["a", "b"]),
        ((Answer("done"), Approve(), Deny("no", stop=True)), Event.DENIED, None),
        ((Answer("done"), Answer("done"), Deny("no", stop=True)), Event.DENIED, None),
    ],
    ids=range(9),
)
def test_decisions_in_one_batch_are_each_for_one_call(
    decisions: tuple[Decision, ...], event: Event, again: list[str] | None
) -> None:
    """Each call gets what was decided about it, and the history that follows is one that a strict provider takes."""
    moments = play(THREE, crashes("???"), decides(*decisions), on(tools=gives("again"), model=says("Done.")))
    assert events(moments)[1] is event
    assert ran(moments)[1:] == ([] if again is None else [again])
    if any(isinstance(one, Deny) and one.stop for one in decisions):
        assert path(moments)[-1] is State.ABORT
        return
    shown = read(observed(moments))
    for call_id, decision in zip("abc", decisions, strict=True):
        expected = {"answer": ("success", "done"), "deny": ("error", "A person refused this call: no")}
        assert shown[call_id] == expected.get(decision.kind, ("success", "again"))


def test_silence_is_no_answer_either() -> None:
    """A call in doubt that nobody decided about is not executed again."""
    moments = play(THREE, crashes("??+"), Answered(decisions={"a": Answer("done")}))
    assert len(ran(moments)) == 1
    shown = read(moments[-1].fired.ctx)
    assert shown["a"] == ("success", "done")
    assert shown["b"][0] == "error"


@pytest.mark.parametrize("decision", [Approve(), Answer("forged"), Deny("no"), Edit({"q": "w"})], ids=lambda d: d.kind)
def test_a_finished_sibling_cannot_be_decided_about(decision: Decision) -> None:
    """What is known to have happened stays so, whatever an outcome holds about it."""
    outcome = Answered(decisions={"a": decision, "b": Approve(), "c": decision})
    moments = play(THREE, crashes("+?-"), outcome, gives("again"))
    assert ran(moments)[1:] == [["b"]]
    assert read(moments[-1].fired.ctx) == {
        "a": ("success", "known 0"),
        "b": ("success", "again"),
        "c": ("error", "known 2"),
    }


def test_a_second_crash_asks_again() -> None:
    """A yes is for one execution: what was approved is in doubt once more, what was answered is settled."""
    moments = play(
        *(THREE, crashes("???"), decides(Answer("done"), Approve(), Approve())),
        *(crashes("+?"), decides(Deny("enough"))),
    )
    assert asked(moments) == [["a", "b", "c"], ["c"]]
    assert ran(moments) == [["a", "b", "c"], ["b", "c"]]
    assert [event for event in events(moments) if event in (Event.DENIED, Event.ANSWERED)] == [Event.DENIED]
    assert read(moments[-1].fired.ctx) == {
        "a": ("success", "done"),
        "b": ("success", "known 0"),
        "c": ("error", "A person refused this call: enough"),
    }


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
    batches = [one.effect for one in moments if isinstance(one.effect, CallTools)]
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
    batches = [[call.tool for call in one.effect.calls] for one in moments if isinstance(one.effect, CallTools)]
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
    batches = [[call.arguments for call in one.effect.calls] for one in moments if isinstance(one.effect, CallTools)]
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
    job = Job(run_id="run-1", clock=FakeClock(), started=0.0)
    run = Run(ctx=moments[-1].fired.ctx, job=job, machine=DEFAULT_MACHINE, state=State.ABORT)
    assert moments[-1].fired.row.target is State.ABORT
    assert ended(run) == expected


def test_a_run_that_ends_on_the_way_to_edited_arguments_says_that_it_is_unknown() -> None:
    """The call in doubt may have taken effect, though what stands in its place never ran."""
    late = Answered(decisions={"a": Edit({"q": "w"})}, at=9.0)
    moments = play(asks(RawCall("a", "look", {"q": "x"})), crashes("?"), late, limits={"deadline": 5.0})
    assert path(moments)[-2:] == [State.VALIDATE, State.ABORT]
    job = Job(run_id="run-1", clock=FakeClock(), started=0.0)
    run = Run(ctx=moments[-1].fired.ctx, job=job, machine=DEFAULT_MACHINE, state=State.ABORT)
    assert ended(run) == {"a": ("error", UNKNOWN)}


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
    job = Job(run_id="run-1", clock=FakeClock(), started=0.0)
    run = Run(ctx=moments[-1].fired.ctx, job=job, machine=DEFAULT_MACHINE, state=State.ABORT)
    assert run.ctx.cause is not None
    assert run.ctx.cause.reason == "denied"
    assert ended(run) == {
        "a": ("success", "done"),
        "b": ("error", UNKNOWN),
        "c": ("error", "A person refused this call: enough"),
    }


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


# ---------------------------------------------------------------- for any batch


@tool(retry=2, idempotent=True)
def sure(q: str) -> str:
    """Find something; may be called again."""
    return q


FATES = st.text("+-r?.", min_size=1, max_size=4).filter(lambda fates: "?" in fates)
DECISIONS = st.sampled_from([Approve(), Deny("no"), Answer("done"), Edit({"q": "w"}), Edit({"q": 3})])


@given(FATES, st.lists(DECISIONS, min_size=4, max_size=4), st.sampled_from(sorted(DIALECTS)), st.booleans())
def test_whatever_is_decided_the_round_is_whole_and_nothing_known_runs_again(
    fates: str, decisions: list[Decision], dialect: str, retried: bool
) -> None:
    """For any batch, any point of the crash and any decisions: one result a call, valid history, no second execution."""
    calls = tuple(RawCall(f"c{n}", "look", {"q": f"{n}"}) for n in range(len(fates)))
    setup = make_setup(limits={"no_progress_steps": 9, "abort_after": 9}, tools=(*TOOLS, sure), dialect=dialect)
    before: list[Line] = [fails("boom", retryable=True), waits] if retried else []
    script: list[Line] = [asks(*calls), *before, crashes(fates), decides(*decisions), gives("again")]
    moments: list[Moment] = []
    for moment in fold(start(setup), script):
        moments.append(moment)
        if moment.step.event is Event.OBSERVED and Event.DOUBTED in [one.step.event for one in moments]:
            break
    ctx = moments[-1].fired.ctx
    assert [result.call_id for result in ctx.results] == [call.id for call in calls]
    merged = merge_neighbours([*flatten(ctx.blocks), *block("task", HumanMessage("And now?")).messages])
    assert wrong_history(merged) == []
    doubtful = [call.id for call, fate in zip(calls, fates, strict=True) if fate == "?"]
    assert asked(moments) == [doubtful]
    again = ran(moments)[1 + retried :]
    assert len(again) <= 1
    decided = dict(zip(doubtful, decisions, strict=False))
    expected = [
        call.id
        for call, fate in zip(calls, fates, strict=True)
        if fate == "." or (fate == "?" and decided[call.id] in (Approve(), Edit({"q": "w"})))
    ]
    if retried and not any(call_id in doubtful for call_id in expected):
        expected = []  # what was due for its own retry goes on with what a person said yes to, or not at all
    # Edited into the same call, only the first runs.
    edited = [call_id for call_id in expected if decided.get(call_id) == Edit({"q": "w"})]
    expected = [call_id for call_id in expected if call_id not in edited[1:]]
    assert sorted(call_id for batch in again for call_id in batch) == expected
    assert ctx.tool_calls == len(calls) * retried + sum(fate in "+-r" for fate in fates) + len(expected)
    shown = {result.call_id: result for result in ctx.results}
    for call, fate in zip(calls, fates, strict=True):
        if fate in "+-r":
            assert shown[call.id].ok is (fate == "+")
        if decided.get(call.id) == Answer("done"):
            assert (shown[call.id].ok, shown[call.id].text, shown[call.id].executed) == (True, "done", False)


@given(FATES, st.sampled_from(sorted(DIALECTS)))
def test_told_or_not_the_round_is_whole(fates: str, dialect: str) -> None:
    """With "tell", for any batch: nothing runs again, and what is unknown says so."""
    calls = tuple(RawCall(f"c{n}", "look", {"q": f"{n}"}) for n in range(len(fates)))
    setup = make_setup(limits={"no_progress_steps": 9, **TELL}, dialect=dialect)
    ctx = observed(list(fold(start(setup), [asks(*calls), crashes(fates)])))
    errors = {"+": "", "-": "ValueError", "r": "ValueError", "?": "in_doubt", ".": "interrupted"}
    assert [result.error for result in ctx.results] == [errors[fate] for fate in fates]
    assert ctx.tool_calls == len(fates) - fates.count(".")
    merged = merge_neighbours([*flatten(ctx.blocks), *block("task", HumanMessage("And now?")).messages])
    assert wrong_history(merged) == []


# ---------------------------------------------------------------- what a decision is bound to


def test_a_digest_names_the_call_as_it_was_shown() -> None:
    """Another id, tool or argument is another digest; the order of the arguments and what was decided are not part of it."""
    call = Call(id="a", name="pay", tool="pay", arguments={"to": "Ada", "amount": 5})
    same = Call(id="a", name="x", tool="pay", arguments={"amount": 5, "to": "Ada"}, doubt=True, approved=True)
    others = [
        Call(id="b", name="pay", tool="pay", arguments=call.arguments),
        Call(id="a", name="pay", tool="lend", arguments=call.arguments),
        Call(id="a", name="pay", tool="pay", arguments={"to": "Ada", "amount": 6}),
        Call(id="a", name="pay", tool="pay", arguments={"to": "Ada", "amount": "5"}),
    ]
    assert same.digest == call.digest
    assert len({call.digest, *(one.digest for one in others)}) == 5
    assert len(call.digest) == 64
