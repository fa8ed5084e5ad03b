"""Calls in doubt, for any batch: one result a call, valid history, and no second execution without a yes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from fsm_agent.alphabet import Event
from fsm_agent.dialects import DIALECTS
from fsm_agent.dialects.base import merge_neighbours
from fsm_agent.effects import Answer, Approve, Decision, Deny, Edit, RawCall
from fsm_agent.history import block, flatten
from fsm_agent.tools import tool
from tests.core.builders import (
    TOOLS,
    Line,
    Moment,
    asks,
    crashes,
    decides,
    fails,
    fold,
    gives,
    make_setup,
    start,
    waits,
)
from tests.core.doubts import TELL, asked, observed, ran
from tests.core.validity import wrong_history


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
        if moment.fired.row.event is Event.OBSERVED and Event.DOUBTED in [one.fired.row.event for one in moments]:
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
