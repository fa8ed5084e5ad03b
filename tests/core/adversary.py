"""Hypothesis as everybody that a run deals with: the model, the tools, the people, the clock, and whoever cancels.

`drive_with` turns the real loop (`fsm_agent.runs.drive`) and records what was asked and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from fsm_agent.context import Context, Setup
from fsm_agent.dialects import DIALECTS
from fsm_agent.effects import (
    Answered,
    Approve,
    AskHuman,
    Broke,
    Call,
    CallModel,
    CallTools,
    Cancelled,
    Decision,
    Deny,
    Edit,
    Effect,
    Expired,
    ModelFailed,
    Outcome,
    RawCall,
    Replied,
    Result,
    Returned,
    Usage,
    Wait,
    Waited,
)
from fsm_agent.jobs import Job
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.memory import Full, Window
from fsm_agent.records import Transitioned
from fsm_agent.runs import Run, drive
from fsm_agent.testing import FakeClock
from fsm_agent.tools import Tool, tool
from tests.core.builders import TOOLS, make_setup, result_of, start, steady


@tool(fallback="pay", map_fallback=lambda given: {"to": given["q"], "amount": 1}, retry=2, idempotent=True)
def weak(q: str) -> str:
    """Find something; its fallback needs a person's yes."""
    return q


@tool(fallback=steady, map_fallback=lambda given: {"q": given["missing"]})
def hopeless(q: str) -> str:
    """Find something; the mapping to its fallback is broken."""
    return q


@tool(requires_approval=lambda arguments: arguments["amount"] > 2)
def lend(amount: int) -> str:
    """Lend something; a person decides about large amounts."""
    return f"{amount}"


ALL_TOOLS: tuple[Tool, ...] = (*TOOLS, weak, hopeless, lend)
NAMES = [*(one.name for one in ALL_TOOLS), "nothing", "functions.look", ""]

limits = st.builds(
    lambda degrade_after, more, **given: Limits(degrade_after=degrade_after, abort_after=degrade_after + more, **given),
    degrade_after=st.integers(1, 3),
    more=st.integers(0, 3),
    max_steps=st.integers(1, 6),
    max_tool_calls=st.integers(0, 8),
    token_budget=st.none() | st.integers(1, 6_000),
    deadline=st.none() | st.floats(0.5, 60),
    repeat_threshold=st.integers(1, 3),
    no_progress_steps=st.integers(1, 4),
    max_retries=st.integers(0, 3),
    backoff=st.floats(0, 5),
    backoff_max=st.floats(0, 30),
    max_nudges=st.integers(0, 2),
    max_degradations=st.integers(0, 3),
    approval_timeout=st.none() | st.just(5.0),
    on_limit=st.sampled_from(["answer", "stop"]),
)
ladders = st.sets(st.sampled_from(["fallback", "strategy", "answer"]))
setups: st.SearchStrategy[Setup] = st.builds(
    make_setup,
    limits=limits,
    tools=st.just(ALL_TOOLS),
    dialect=st.sampled_from(sorted(DIALECTS)),
    memory=st.just(Full()) | st.builds(Window, rounds=st.integers(1, 3)),
    ladder=ladders,
)

small = st.integers(0, 2)
arguments = st.one_of(
    st.fixed_dictionaries({"q": st.sampled_from("xyz")}),
    st.fixed_dictionaries({"a": small, "b": small}),
    st.fixed_dictionaries({"to": st.sampled_from(["Ada", "Bob"]), "amount": st.integers(1, 4)}),
    st.fixed_dictionaries({"amount": st.integers(1, 4)}),
    st.fixed_dictionaries({"job": small}),
    st.sampled_from([{}, {"q": 3}, {"q": "x", "dry_run": True}, None, "", "{", '{"q": "x"', '{"q": "x"}', "[1]"]),
)
raw_calls = st.builds(RawCall, st.sampled_from(["", "", "call_0", "call_1"]), st.sampled_from(NAMES), arguments)
texts = st.sampled_from(
    [
        *("", " ", "It is 3.", "<think>hm</think>", "<think>hm</think>It is 3."),
        '{"action": "FINISH", "action_input": {"answer": "It is 3."}}',
        '{"action": "THINK", "action_input": {"thought": "hm"}}',
        '{"action": "look", "action_input": {"q": "x"}}',
        '{"action": "look", "action_input": {"q": ',
        '<tool_call>{"name": "look", "arguments": {"q": "x"}}</tool_call>',
    ]
)
usages = st.builds(lambda tokens: Usage(tokens, 0, tokens), st.integers(0, 600))


@st.composite
def replies(draw: st.DrawFn, at: float) -> Replied | ModelFailed:
    """What comes of a model call."""
    if draw(st.integers(0, 5)) == 0:
        return ModelFailed(
            error="APIError",
            message="no luck",
            retryable=draw(st.booleans()),
            retry_after=draw(st.none() | st.sampled_from([0.0, 1.0, 90.0])),
            usage=draw(usages),
            at=at,
        )
    calls = draw(st.lists(raw_calls, max_size=3)) if draw(st.booleans()) else []
    return Replied(
        text=draw(texts),
        calls=tuple(calls),
        usage=draw(usages),
        prompt_tokens=draw(st.none() | st.integers(0, 2_000)),
        truncated=draw(st.integers(0, 9)) == 0,
        unreadable="no message" if draw(st.integers(0, 19)) == 0 else "",
        at=at,
    )


@st.composite
def returns(draw: st.DrawFn, effect: CallTools, at: float) -> Returned:
    """What comes of a batch: one result for each call, in order."""
    return Returned(results=tuple(draw(one_result(call)) for call in effect.calls), at=at)


@st.composite
def one_result(draw: st.DrawFn, call: Call) -> Result:
    """What comes of one call."""
    kind = draw(st.sampled_from(["same", "new", "failed", "retryable", "gone"]))
    text = draw(st.sampled_from("abc")) if kind == "new" else kind
    if kind == "gone":
        return Result(call_id=call.id, tool=call.tool, ok=False, text=text, error="unregistered", executed=False)
    return result_of(call.id, call.tool, text, ok=kind in ("same", "new"), retryable=kind == "retryable")


decisions: st.SearchStrategy[Decision] = st.one_of(
    st.builds(Approve),
    st.builds(Deny, st.just("no"), st.integers(0, 4).map(lambda n: n == 0)),
    st.builds(Edit, arguments.filter(lambda given: isinstance(given, dict))),
)


@st.composite
def answers(draw: st.DrawFn, effect: AskHuman, at: float, waited: float) -> Answered | Expired:
    """What a person decides, if at all."""
    if draw(st.integers(0, 7)) == 0:
        return Expired(waited, at)
    decided = {call.id: draw(decisions) for call in effect.calls if draw(st.integers(0, 7))}
    return Answered(decisions=decided, waited=waited, at=at)


@dataclass
class Play:
    """A run between the hands of hypothesis, and everything that happened in it."""

    run: Run
    clock: FakeClock
    asked: list[tuple[Effect, Outcome]] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    def passes(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)


def new_play(setup: Setup, **fields: Any) -> Play:
    """A run that has not begun."""
    clock = FakeClock()
    job = Job(run_id="run-1", clock=clock, started=clock.monotonic())
    return Play(Run(ctx=start(setup, **fields), job=job, machine=DEFAULT_MACHINE), clock)


def outcome_of(draw: Callable[[st.SearchStrategy[Any]], Any], effect: Effect, play: Play) -> Outcome:
    """Draw what comes of `effect`; now and then the run is cancelled, or the engine breaks."""
    play.passes(draw(st.sampled_from([0.0, 0.0, 0.5, 5.0])))
    at = play.run.job.now()
    fate = draw(st.integers(0, 39))
    if fate == 0:
        return Cancelled("enough", at)
    if fate == 1:
        return Broke(error="KeyError", message="x", at=at)
    match effect:
        case CallModel():
            return draw(replies(at))  # type: ignore[no-any-return] # `draw` is untyped
        case CallTools():
            return draw(returns(effect, at))  # type: ignore[no-any-return] # the same
        case Wait(seconds=seconds):
            play.passes(seconds)
            return Waited(play.run.job.now())
        case AskHuman():
            return draw(answers(effect, at, 0.0))  # type: ignore[no-any-return] # the same


def drive_with(draw: Callable[[st.SearchStrategy[Any]], Any], play: Play) -> Play:
    """Drive the run to its end with outcomes that `draw` chooses."""
    core = drive(play.run)
    item = next(core, None)
    while item is not None:
        if isinstance(item, Transitioned):
            play.contexts.append(play.run.ctx)
            item = next(core, None)
            continue
        outcome = outcome_of(draw, item, play)
        play.asked.append((item, outcome))
        try:
            item = core.send(outcome)
        except StopIteration:
            item = None
    return play
