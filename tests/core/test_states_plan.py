"""PLAN and RETRY: what a model call costs and counts, and that it is not made when the budget does not allow it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import SystemMessage

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context, Failure
from fsm_agent.dialects import DIALECTS
from fsm_agent.effects import CallModel, CallTools, Effect, Outcome, Usage, Wait, Waited
from fsm_agent.guards import token_budget_spent
from fsm_agent.history import estimate_text, estimate_tokens
from fsm_agent.memory import Full, Memory, SummaryWindow, Window
from fsm_agent.prompt import estimate_prompt, prompt_of
from fsm_agent.states import BEHAVIOURS
from fsm_agent.testing import FakeClock
from tests.core.builders import (
    ADD,
    TOOLS,
    Line,
    Moment,
    asks,
    at,
    down,
    fails,
    gives,
    make_setup,
    play,
    raw,
    says,
    start,
    waits,
)

PLAN = BEHAVIOURS[State.PLAN]
FORCED: dict[str, Any] = {"max_tool_calls": 0}


def asked(ctx: Context) -> CallModel:
    """The model call that PLAN asks for."""
    effect = PLAN.enter(ctx)
    assert isinstance(effect, CallModel)
    return effect


def final(*script: Any, **limits: Any) -> Context:
    """The context after the script."""
    return play(*script, limits=limits)[-1].fired.ctx


def model_calls(moments: list[Moment]) -> list[Effect | None]:
    """The model calls of a fold."""
    return [moment.effect for moment in moments if moment.state is State.PLAN]


# ---------------------------------------------------------------- what is asked


@pytest.mark.parametrize("name", DIALECTS)
def test_the_model_is_asked_with_what_the_dialect_composes(name: str) -> None:
    """The messages, the tools by name and the response format are the dialect's; the estimate is the prompt's."""
    ctx = start(make_setup(dialect=name))
    effect, prompt = asked(ctx), prompt_of(ctx, "plan")
    assert effect.messages == ctx.setup.dialect.compose(prompt)
    assert effect.tools == tuple(tool.name for tool in TOOLS)
    assert effect.response_format == ctx.setup.dialect.response_format(prompt)
    assert (effect.purpose, effect.estimate, effect.attempt) == ("plan", estimate_prompt(ctx, "plan"), 1)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_forced_answer_is_asked_for_without_tools(name: str) -> None:
    """No tool is offered, so that a server cannot be tempted into a call; the model is told why."""
    ctx = start(make_setup(dialect=name)).change(forced=True)
    effect = asked(ctx)
    assert (effect.tools, effect.purpose) == ((), "answer")
    assert effect.estimate < asked(ctx.change(forced=False)).estimate


@pytest.mark.parametrize(
    ("limits", "at_", "timeout"),
    [
        ({}, 0.0, 60.0),
        ({"model_timeout": 5.0}, 0.0, 5.0),
        ({"deadline": 9.0}, 4.0, 5.0),
        ({"deadline": 90.0}, 4.0, 60.0),
        ({"deadline": 9.0}, 9.0, 0.001),
    ],
)
def test_a_model_call_may_take_what_is_left(limits: dict[str, Any], at_: float, timeout: float) -> None:
    """The shorter of the model's time-out and the time to the deadline, in seconds, and never nothing."""
    assert asked(start(make_setup(limits=limits)).change(at=at_)).timeout == timeout


# ---------------------------------------------------------------- the budget


def test_a_prompt_that_fits_to_the_token_is_sent_and_one_more_is_not() -> None:
    """T05: the check is made before the call, with the prompt counted."""
    limits = {"token_budget": 10_000, "on_limit": "stop"}
    ctx = start(make_setup(limits=limits))
    room = 10_000 - estimate_prompt(ctx, "plan")
    assert PLAN.enter(ctx.change(usage=Usage(0, 0, room))) is not None
    assert PLAN.enter(ctx.change(usage=Usage(0, 0, room + 1))) is None


def test_a_withheld_call_is_neither_a_step_nor_a_call() -> None:
    """T05: what was not sent is not counted, and the run ends by the budget with nothing spent."""
    moments = play(limits={"token_budget": 1, "on_limit": "stop"})
    ctx = moments[-1].fired.ctx
    assert [moment.fired.row.event for moment in moments] == [Event.WITHHELD, Event.DECIDED]
    assert (ctx.step, ctx.model_calls, ctx.usage) == (0, 0, Usage())
    assert ctx.cause is not None
    assert ctx.cause.reason == "token_budget"


@given(st.integers(1, 2_000), st.lists(st.integers(0, 400), max_size=12), st.sampled_from(["answer", "stop"]))
def test_no_call_is_made_that_the_estimate_puts_beyond_the_budget(budget: int, costs: list[int], on_limit: str) -> None:
    """T05: for any budget and any replies, every call that was made fitted when it was made."""
    left = list(enumerate(costs))

    def on(effect: Effect) -> Outcome:
        if isinstance(effect, CallTools):
            return gives(effect.calls[0].id)(effect)
        number, cost = left.pop()
        return asks(raw("look", q=f"{number}"), tokens=cost)

    setup = make_setup(limits={"token_budget": budget, "on_limit": on_limit, "max_steps": 99}, tools=TOOLS[1:2])
    moments = play(*[on] * len(costs), setup=setup)
    for moment in moments:
        if isinstance(moment.effect, CallModel):
            assert moment.ctx.usage.total + moment.effect.estimate <= budget
            assert not token_budget_spent.test(moment.ctx)[0]


# ---------------------------------------------------------------- counting


def test_a_reply_counts_a_step_a_call_and_its_tokens() -> None:
    """One reply, one step."""
    ctx = final(asks(raw("add", a=1, b=2), tokens=15, at=2.5))
    assert (ctx.step, ctx.model_calls, ctx.usage.total, ctx.at) == (1, 1, 15, 2.5)


def test_attempts_that_failed_are_charged_and_are_one_step() -> None:
    """T06: two failing attempts that report usage and a success are three calls and their tokens, and one step."""
    used = Usage(10, 0, 10)
    ctx = final(down(usage=used), waits, down(usage=used), waits, asks(raw("add", a=1, b=2)), max_retries=2)
    assert (ctx.step, ctx.model_calls, ctx.usage.total) == (1, 3, 35)


def test_a_forced_answer_is_no_step() -> None:
    """Steps never pass their limit, although one more call is made at it."""
    ctx = final(ADD, gives("3"), says("It is 3."), max_steps=1)
    assert (ctx.step, ctx.model_calls, ctx.forced, ctx.answer) == (1, 2, True, "It is 3.")


def test_each_attempt_at_a_call_is_numbered() -> None:
    """The first is 1; the next call begins at 1 again, after a retry of the model and after one of a tool."""
    script: list[Line] = [down(), waits, ADD, fails(retryable=True), waits, gives("3"), down(), waits, says("3")]
    effects = [effect for effect in model_calls(play(*script)) if isinstance(effect, CallModel)]
    assert [effect.attempt for effect in effects] == [1, 2, 1, 2]


def test_a_reply_forgives_the_failed_attempts_of_its_own_call_only() -> None:
    """A retry that worked does not count as a failure; failures before it still do."""
    assert final(down(), waits, ADD).failures == 0
    assert final(ADD, fails("boom"), down(), waits, ADD).failures == 1


def test_a_failure_of_the_model_is_kept_for_what_follows() -> None:
    """DECIDE and RETRY read what failed, whether it may be tried again, and when."""
    ctx = final(down("RateLimitError", retry_after=7.0))
    assert ctx.failure == Failure("model", "model", "RateLimitError: no luck", retryable=True, retry_after=7.0)
    assert (ctx.failures, ctx.attempt) == (1, 1)


def test_a_reply_opens_a_new_round_and_clears_the_last() -> None:
    """Nothing of the round before can be executed, shown or counted again."""
    before = play(ADD, gives("3"))[-1].fired.ctx
    ctx = final(ADD, gives("3"), says("4"))
    assert ctx.history == before.blocks
    for name in ("round", "calls", "asked", "results", "fresh", "pending", "note", "failure"):
        assert not getattr(ctx, name), name


# ---------------------------------------------------------------- the estimate


def test_the_servers_count_corrects_the_estimate() -> None:
    """S01: a server that reports twice the estimate makes the next estimate twice as large."""
    ctx = start()
    plain = estimate_prompt(ctx, "plan")
    after = PLAN.resolve(ctx, asks(raw("add", a=1, b=2), prompt_tokens=2 * plain)).ctx
    assert after.prompt_factor == pytest.approx(2.0)
    assert estimate_prompt(ctx.change(prompt_factor=after.prompt_factor), "plan") == pytest.approx(2 * plain, rel=0.1)


@given(st.none() | st.integers(0, 10**9), st.floats(0.5, 4.0))
def test_one_odd_report_cannot_mislead_the_budget(prompt_tokens: int | None, factor: float) -> None:
    """The correction is bounded, and a server that reports nothing changes nothing."""
    ctx = start().change(prompt_factor=factor)
    after = PLAN.resolve(ctx, asks(raw("add", a=1, b=2), prompt_tokens=prompt_tokens)).ctx
    assert 0.5 <= after.prompt_factor <= 4.0
    if not prompt_tokens:
        assert after.prompt_factor == factor


@pytest.mark.parametrize("name", DIALECTS)
def test_the_estimate_grows_with_the_prompt(name: str) -> None:
    """A longer task, more tools and a longer system text cost more."""
    small = estimate_prompt(start(make_setup(dialect=name, tools=TOOLS[:1], system="Be brief.")), "plan")
    for larger in (
        start(make_setup(dialect=name, tools=TOOLS[:1], system="Be brief."), task="x" * 400),
        start(make_setup(dialect=name, tools=TOOLS, system="Be brief.")),
        start(make_setup(dialect=name, tools=TOOLS[:1], system="Be brief. " * 40)),
    ):
        assert estimate_prompt(larger, "plan") > small


def test_the_estimate_is_made_of_blocks_system_text_and_schemas() -> None:
    """Native tools travel beside the messages; the correction is for all of it, and the request has its own few tokens."""
    ctx = play(ADD, gives("3"), setup=make_setup(tools=TOOLS[:2], system="Be brief."))[-1].fired.ctx
    schemas = sum(estimate_text(one.full_description + json.dumps(one.parameters())) for one in TOOLS[:2])
    whole = sum(one.tokens for one in ctx.blocks) + estimate_tokens([SystemMessage("Be brief.")]) + schemas
    assert estimate_prompt(ctx, "plan") == whole + 4
    assert estimate_prompt(ctx, "answer") == whole - schemas + 4
    assert estimate_prompt(ctx.change(prompt_factor=2.0), "plan") == 2 * whole + 4


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("memory", [Full(), Window(rounds=1), Window(rounds=5)], ids=str)
def test_the_estimate_covers_all_that_is_sent(name: str, memory: Memory) -> None:
    """T05: whatever a dialect writes into the prompt is counted before it is sent, in the first step and in the last."""
    script = [
        line
        for number in range(12)
        for line in (asks(raw("look", q=f"query {number}")), gives(f"a rather long result, number {number}. " * 4))
    ]
    for moment in play(*script, setup=make_setup(dialect=name, memory=memory, limits={"max_steps": 99})):
        if isinstance(moment.effect, CallModel):
            sent = estimate_tokens(moment.effect.messages)
            assert sent <= moment.effect.estimate <= 2 * sent + 400


def test_the_estimate_follows_tools_that_come_and_go() -> None:
    """A tool registered while the run goes on is offered and counted from the next prompt on."""
    ctx = start(make_setup(tools=TOOLS[:1]))
    before = estimate_prompt(ctx, "plan"), asked(ctx).tools
    ctx.setup.tools.register(TOOLS[1])
    assert (estimate_prompt(ctx, "plan") > before[0], asked(ctx).tools) == (True, ("add", "look"))
    ctx.setup.tools.unregister("look")
    assert (estimate_prompt(ctx, "plan"), asked(ctx).tools) == before


# ---------------------------------------------------------------- summaries and overflows

TWO_ROUNDS: list[Line] = [ADD, gives("3"), asks(raw("add", a=1, b=3)), gives("4")]


def due(**limits: Any) -> Context:
    """A context in PLAN in which a round is to be summarised."""
    setup = make_setup(memory=SummaryWindow(rounds=1, every=1), limits=limits)
    return play(*TWO_ROUNDS, setup=setup)[-1].fired.ctx


def test_a_summary_is_asked_for_without_tools_and_is_no_step() -> None:
    """The call offers nothing, constrains nothing, and counts in calls and tokens only; the summary stands after its round."""
    ctx = due()
    effect = asked(ctx)
    assert (effect.purpose, effect.tools, effect.response_format, effect.attempt) == ("summary", (), None, 1)
    assert effect.estimate >= estimate_tokens(effect.messages)
    step = PLAN.resolve(ctx, says("Notes.", tokens=7, at=9.0))
    after = step.ctx
    assert step.event is Event.COMPACTED
    assert (after.step, after.model_calls, after.usage.total, after.at) == (2, 3, ctx.usage.total + 7, 9.0)
    assert [one.kind for one in after.blocks] == ["task", "round", "summary", "round"]
    assert [one for one in after.blocks if one.kind != "summary"] == list(ctx.blocks)
    assert (after.reply, after.failures) == (ctx.reply, ctx.failures)
    assert asked(after).purpose == "plan"


def test_a_summary_that_is_of_no_use_changes_the_counts_only() -> None:
    """History, failures and attempts are what they were; the next call is the step, not the summary again."""
    ctx = due()
    for outcome in (down(retryable=True), says(""), says("x", truncated=True), says("", unreadable="no message")):
        step = PLAN.resolve(ctx, outcome)
        assert step.event is Event.SUMMARY_FAILED
        assert step.ctx.setback
        counted = {"at", "usage", "model_calls", "setback", "summary_failed_at"}
        changed = {name for name, value in step.ctx.__dict__.items() if value != ctx.__dict__[name]}
        assert changed <= counted
        assert asked(step.ctx).purpose == "plan"


@pytest.mark.parametrize(
    "change",
    [{"forced": True}, {"failure": Failure("model", "model", "down", retryable=True), "attempt": 2}],
    ids=["forced", "retry"],
)
def test_no_summary_comes_between_a_call_and_its_retry_or_before_a_forced_answer(change: dict[str, Any]) -> None:
    """What is due then is the step itself."""
    assert asked(due().change(**change)).purpose != "summary"


def test_a_summary_is_made_only_when_the_step_after_it_fits_the_budget_too() -> None:
    """T05: with room for the summary alone the step is asked for, and the rounds stay as they are."""
    ctx = due(token_budget=10_000, on_limit="stop")
    both = asked(ctx).estimate + sum(one.tokens for one in ctx.blocks)
    fits = ctx.change(usage=Usage(0, 0, 10_000 - both))
    tight = ctx.change(usage=Usage(0, 0, 10_000 - both + 1))
    assert asked(fits).purpose == "summary"
    instead = PLAN.enter(tight)
    assert instead is None or (isinstance(instead, CallModel) and instead.purpose == "plan")


def test_tools_that_come_and_go_do_not_change_what_a_reply_was_to() -> None:
    """What comes of a summary is read as one, whatever was registered while the call was under way."""
    ctx = due(token_budget=2_000, on_limit="stop")
    assert asked(ctx).purpose == "summary"
    for number in range(40):
        ctx.setup.tools.register(replace(TOOLS[0], name=f"more_{number}"))
    assert PLAN.resolve(ctx, says("Notes.")).event is Event.COMPACTED


def test_after_an_overflow_the_same_call_is_asked_with_less() -> None:
    """By the server's numbers where it gives them: what is sent then fits; it is no step and no failure, and the round stays kept."""
    ctx = play(ADD, gives("x" * 4_000), asks(raw("add", a=1, b=3)), gives("y" * 4_000))[-1].fired.ctx
    whole = asked(ctx).estimate
    said = down(retryable=False, overflow=True, context_tokens=whole // 2, prompt_tokens=whole)
    step = PLAN.resolve(ctx, said)
    assert step.event is Event.OVERFLOWED
    assert (step.ctx.step, step.ctx.failures, step.ctx.failure) == (ctx.step, ctx.failures, ctx.failure)
    assert (step.ctx.model_calls, step.ctx.overflows) == (ctx.model_calls + 1, 1)
    assert step.ctx.blocks == ctx.blocks
    assert asked(step.ctx).estimate <= whole // 2


def test_a_refusal_that_gives_way_is_no_failure_and_is_bounded() -> None:
    """The same call, a summary or a reflection too, is asked again at once and counted; after five times it is a failure as any other."""
    said = down(retryable=False, gives_way=True)
    for first in (start(), due()):
        purpose, events, ctx = asked(first).purpose, [], first
        for _ in range(5):
            step = PLAN.resolve(ctx, said)
            events.append(step.event)
            ctx = step.ctx
            assert asked(ctx).purpose == purpose
            assert (ctx.step, ctx.failures, ctx.failure, ctx.blocks) == (first.step, 0, None, first.blocks)
        assert events == [Event.GAVE_WAY] * 5
        assert ctx.model_calls == first.model_calls + 5
        assert PLAN.resolve(ctx, said).event in (Event.MODEL_FAILED, Event.SUMMARY_FAILED)


def test_an_overflow_that_less_cannot_mend_is_a_failure() -> None:
    """The task alone is too large, or less was tried three times: the run hears of it as of any failure of the model."""
    said = down(retryable=False, overflow=True)
    assert PLAN.resolve(start(task="x" * 9_000), said).event is Event.MODEL_FAILED
    ctx = play(ADD, gives("x" * 90_000))[-1].fired.ctx
    events = []
    for _ in range(4):
        step = PLAN.resolve(ctx, said)
        events.append(step.event)
        ctx = step.ctx
    assert events == [*[Event.OVERFLOWED] * 3, Event.MODEL_FAILED]


def test_an_overflow_of_a_summary_that_cannot_be_made_smaller_is_not_asked_again() -> None:
    """One round of a few words is the least that can be told of: the same request would be refused the same way."""
    step = PLAN.resolve(due(), down(retryable=False, overflow=True))
    assert step.event is Event.SUMMARY_FAILED
    assert asked(step.ctx).purpose == "plan"


# ---------------------------------------------------------------- RETRY


def test_a_retry_waits_and_counts_the_attempt() -> None:
    """RETRY asks for the wait, and the attempt that follows has the next number."""
    moments = play(down(retry_after=7.0), waits)
    (retry,) = [moment for moment in moments if moment.state is State.RETRY]
    assert retry.effect == Wait(7.0)
    assert (retry.ctx.attempt, retry.fired.ctx.attempt) == (1, 2)
    assert BEHAVIOURS[State.RETRY].resolve(retry.ctx, Waited(9.5)).ctx.at == 9.5


def test_the_time_of_an_outcome_becomes_the_time_of_the_run() -> None:
    """A context has no clock: it knows the time that the outcomes were stamped with."""
    clock = FakeClock()
    clock.advance(3.0)
    assert at(State.EXECUTE, script=[asks(raw("add", a=1, b=2), at=clock.monotonic() - 1_000.0)]).at == 3.0
