"""Calls in doubt that a person decides about: none is ever executed again unless a person says so."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage

from fsm_agent.alphabet import Event, State
from fsm_agent.effects import Answer, Answered, Approve, AskHuman, Call, Decision, Deny, Edit, RawCall
from tests.core.builders import Line, asks, crashes, decides, edits, fails, gives, on, path, play, raw, says
from tests.core.doubts import LOOK, THREE, after, asked, asking, events, observed, ran, read


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
    assert both[2].fired.row.event is Event.ANSWERED
    assert ran(both) == []
    one = play(pay, decides(Answer("paid in cash"), Approve()), gives("paid"))
    assert one[2].fired.row.event is Event.APPROVED
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


def test_a_yes_after_the_deadline_runs_nothing() -> None:
    """When the deadline had passed as the crash was found, a call in doubt does not run on a person's yes: the run ends there."""
    moments = play(LOOK, crashes("?", at=9.0), late_yes, limits={"deadline": 5.0})
    assert events(moments) == [Event.DOUBTED, Event.APPROVED]
    assert (moments[-1].fired.row.target, len(ran(moments))) == (State.ABORT, 1)


def late_yes(effect: AskHuman) -> Answered:
    """A person's yes, nine seconds after the run began."""
    return Answered(decisions={call.id: Approve() for call in effect.calls}, at=9.0)
