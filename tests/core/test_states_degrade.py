"""DEGRADE: another tool, another way, an answer from what is known; each once, none for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.effects import AskHuman, CallModel, CallTools
from fsm_agent.history import flatten, text_of
from fsm_agent.language import EN, ZH
from fsm_agent.tools import Tool, tool
from tests.core.builders import (
    ADD,
    APPROVES,
    DENIES,
    TOOLS,
    Moment,
    asks,
    down,
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
    steady,
    waits,
)
from tests.core.validity import wrong_history

AT_ONCE = {"degrade_after": 1}
SHAKY = asks(raw("shaky", q="x", depth=3))


def told(ctx: Context) -> str:
    """What the model was told last."""
    last: AnyMessage = ctx.blocks[-1].messages[-1]
    assert isinstance(last, HumanMessage)
    return text_of(last.content)


def batches(moments: list[Moment]) -> list[list[tuple[str, dict[str, Any]]]]:
    """The batches that were executed: tool and arguments of each call."""
    return [[(call.tool, dict(call.arguments)) for call in effect.calls] for effect in effects(moments, CallTools)]


def events(moments: list[Moment]) -> list[Event]:
    """What DEGRADE chose, in order."""
    return [moment.fired.row.event for moment in moments if moment.state is State.DEGRADE]


# ---------------------------------------------------------------- another tool


def with_fallback(
    fallback: Tool | str, mapping: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A setup with a tool `weak` that has this fallback."""

    @tool(fallback=fallback, map_fallback=mapping)
    def weak(q: str, lang: str = "en") -> str:
        """Find something."""
        return q

    return {"setup": make_setup(tools=(*TOOLS, weak), limits=AT_ONCE)}


WEAK = asks(raw("weak", q="x", lang="fr"))


def test_r08_a_fallback_gets_the_arguments_that_it_knows() -> None:
    """Without a mapping, what both have in common; validated against the fallback's own model, defaults and all."""
    moments = play(WEAK, fails("down"), gives("found"), **with_fallback(steady))
    assert batches(moments) == [[("weak", {"q": "x", "lang": "fr"})], [("steady", {"q": "x"})]]
    assert path(moments)[-6:-1] == [State.DEGRADE, State.VALIDATE, State.EXECUTE, State.OBSERVE, State.DECIDE]
    assert moments[-1].fired.ctx.degradations == 1


def test_r08_a_mapping_makes_the_arguments_of_the_fallback() -> None:
    """The tool's own mapping is what counts."""
    mapped = with_fallback(steady, lambda given: {"q": f"{given['q']} in {given['lang']}"})
    assert batches(play(WEAK, fails("down"), gives("found"), **mapped))[1] == [("steady", {"q": "x in fr"})]


@pytest.mark.parametrize(
    "mapping",
    [lambda given: {"q": given["missing"]}, lambda given: {"nothing": 1}, lambda given: {"q": 3}],
    ids=["it raises", "an unknown field", "a wrong type"],
)
def test_r08_malformed_arguments_never_reach_the_fallback(mapping: Any) -> None:
    """A mapping that fails, or gives what the fallback does not take, runs nothing; the run goes on."""
    moments = play(WEAK, fails("down"), on(model=says("Done."), tools=gives("x")), **with_fallback(steady, mapping))
    assert len(batches(moments)) == 1
    assert path(moments)[-1] is State.FINISH


@pytest.mark.parametrize(("decision", "ran"), [(APPROVES, 2), (DENIES, 1)], ids=["yes", "no"])
def test_r08_a_fallback_that_needs_approval_asks(decision: Any, ran: int) -> None:
    """The approval of the failed call, or none being needed for it, is no approval of another tool."""
    mapped = with_fallback("pay", lambda given: {"to": given["q"], "amount": 5})
    going_on = on(model=says("Done."), tools=gives("paid"))
    moments = play(WEAK, fails("down"), decision, going_on, going_on, **mapped)
    asked = effects(moments, AskHuman)
    assert [effect.calls[0].tool for effect in asked] == ["pay"]
    assert len(batches(moments)) == ran
    assert path(moments)[-1] is State.FINISH


def test_a_fallback_that_fails_too_leads_on_down_the_ladder() -> None:
    """A fallback has none itself here: the next rung is another way, and both failures count."""
    moments = play(WEAK, fails("down"), fails("down too"), says("Done."), **with_fallback(steady))
    assert events(moments) == [Event.FALLBACK_CHOSEN, Event.STRATEGY_CHANGED]


def test_fallbacks_of_fallbacks_are_taken_one_by_one() -> None:
    """A chain ends where it has no further fallback, or where degradations are used up."""

    @tool(fallback=steady)
    def second(q: str) -> str:
        """Stand in."""
        return q

    moments = play(WEAK, fails("1"), fails("2"), fails("3"), says("Done."), **with_fallback(second))
    assert [batch[0][0] for batch in batches(moments)] == ["weak", "second", "steady"]
    assert events(moments)[:2] == [Event.FALLBACK_CHOSEN, Event.FALLBACK_CHOSEN]


def test_only_the_calls_that_failed_get_a_fallback() -> None:
    """A sibling that succeeded is not executed again, and keeps its result."""
    both = asks(raw("look", q="x"), raw("weak", q="x"))
    given = with_fallback(steady)
    moments = play(both, mixed(False, False), gives("found"), **given)
    assert [call[0] for call in batches(moments)[1]] == ["steady"]
    ctx = moments[-1].fired.ctx
    assert [result.tool for result in ctx.results] == ["look", "steady"]
    assert wrong_history(flatten(ctx.blocks)) == []


def test_two_calls_with_the_same_fallback_run_it_once() -> None:
    """What the two ask of the fallback is the same call, and the same call is executed once, like in a reply."""
    both = asks(raw("shaky", q="x", depth=1), raw("shaky", q="x", depth=2))
    moments = play(both, fails("down"), gives("found"), limits=AT_ONCE)
    assert batches(moments)[1] == [("steady", {"q": "x"})]
    ctx = moments[-1].fired.ctx
    assert [result.ok for result in ctx.results] == [True, False]
    assert wrong_history(flatten(ctx.blocks)) == []


# ---------------------------------------------------------------- another way


def test_the_model_is_told_what_keeps_failing_and_what_it_has() -> None:
    """A change of strategy names the tool, the error, and the tools; in the language of the run."""
    moments = play(ADD, fails("no such account"), limits=AT_ONCE)
    note = told(moments[-1].fired.ctx)
    for part in ("add", "no such account", *(one.name for one in TOOLS)):
        assert part in note
    assert events(moments) == [Event.STRATEGY_CHANGED]


def test_replies_that_cannot_be_used_change_the_strategy_too() -> None:
    """Two unreadable replies in a row: the model is told what is wrong with them, in one sentence with one full stop."""
    moments = play(*[says("x", unreadable="no message")] * 2)
    assert events(moments) == [Event.STRATEGY_CHANGED]
    note = told(moments[-1].fired.ctx)
    assert "2 replies" in note
    assert ".." not in note


def test_a_note_goes_with_its_round() -> None:
    """A window keeps both or neither: the note is in the round's block, and the history stays valid."""
    ctx = play(ADD, fails("boom"), limits=AT_ONCE)[-1].fired.ctx
    assert [one.kind for one in ctx.blocks] == ["task", "round"]
    assert wrong_history(flatten(ctx.blocks)) == []


def test_degradations_are_counted_and_bounded() -> None:
    """N may be taken, the next failure aborts; a forced answer is not one of them."""
    script = [line for n in range(9) for line in (asks(raw("add", a=n, b=2)), fails(f"boom {n}"))]
    limits = {"degrade_after": 1, "abort_after": 9, "max_degradations": 2, "no_progress_steps": 99}
    moments = play(*script, limits={**limits, "on_limit": "stop"})
    assert events(moments) == [Event.STRATEGY_CHANGED] * 2
    assert moments[-1].fired.ctx.degradations == 2


# ---------------------------------------------------------------- an answer


@pytest.mark.parametrize(
    ("script", "limits", "reason"),
    [
        ([ADD, gives("3")], {"max_steps": 1}, "max_steps"),
        ([ADD], {"max_tool_calls": 0}, "max_tool_calls"),
        ([ADD, gives("3")] * 2 + [ADD], {}, "repeated_action"),
        ([ADD, gives("3"), asks(raw("add", a=2, b=1)), gives("3")], {"no_progress_steps": 1}, "no_progress"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_model_is_told_why_it_has_to_answer(script: Any, limits: Any, reason: str, language: str) -> None:
    """The reason is said in the language of the run, after whatever the round before gave."""
    task = "What is 1 + 2?" if language == "en" else "一加二等于几？"
    begun = play(setup=make_setup(limits={"token_budget": 1}))[0].ctx  # the context at the start of a run
    ctx = begun.change(setup=make_setup(limits=limits), task=task, language=language)
    moments = play(*script, ctx=ctx)
    after = moments[-1].fired.ctx
    assert (after.forced, path(moments)[-1]) == (True, State.PLAN)
    assert told(after).startswith((EN if language == "en" else ZH).because[reason])
    assert wrong_history(flatten(after.blocks)) == []


def test_an_answer_is_forced_once() -> None:
    """The reserve is spent on one call; a reply that is no answer ends the run with the first reason."""
    moments = play(ADD, ADD, limits={"max_tool_calls": 0})
    calls = effects(moments, CallModel)
    assert [call.purpose for call in calls] == ["plan", "answer"]
    cause = moments[-1].fired.ctx.cause
    assert cause is not None
    assert (path(moments)[-1], cause.reason) == (State.ABORT, "max_tool_calls")


def test_a_forced_answer_may_be_retried_when_the_model_fails() -> None:
    """The failure is the server's, not the answer's: the retry is for the same call."""
    moments = play(ADD, down(), waits, says("It is 3."), limits={"max_tool_calls": 0})
    assert path(moments)[-1] is State.FINISH
    assert events(moments) == [Event.ANSWER_FORCED]


def test_without_a_rung_the_run_ends_with_the_reason_that_led_there() -> None:
    """Exhausted is no reason of its own."""

    @tool(fallback=steady, map_fallback=lambda given: {"q": given["missing"]})
    def weak(q: str) -> str:
        """Find something."""
        return q

    setup = make_setup(tools=(*TOOLS, weak), limits=AT_ONCE, ladder=("fallback",))
    moments = play(asks(raw("weak", q="x")), fails("boom"), setup=setup)
    assert events(moments) == [Event.EXHAUSTED]
    cause = moments[-1].fired.ctx.cause
    assert cause is not None
    assert (path(moments)[-1], cause.reason) == (State.ABORT, "consecutive_failures")
