"""Hypothesis as everybody that a run deals with: the model, the tools, the people, the clock, and whoever cancels.

`drive_with` turns the real loop (`fsm_agent.runs.drive`) and records what was asked and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import DIALECTS
from fsm_agent.effects import (
    Answer,
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
    Doubted,
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
from fsm_agent.memory import DualBuffer, Full, KeyFacts, Memory, MessageWindow, SummaryWindow, Window
from fsm_agent.records import Transitioned
from fsm_agent.reflection import Reflect
from fsm_agent.runs import Run, drive
from fsm_agent.temperature import Cooling
from fsm_agent.testing import FakeClock
from fsm_agent.tools import Tool, tool
from tests.core.builders import TOOLS, make_setup, result_of, start, steady
from tests.policy.kit import policies


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


@tool(once=True)
def give(amount: int) -> str:
    """Give something away; the same gift is not made twice."""
    return f"{amount}"


@tool(default="unknown", requires_approval=lambda arguments: arguments["q"] == "y")
def guessed(q: str) -> str:
    """Find something; a default stands in for it."""
    return q


ALL_TOOLS: tuple[Tool, ...] = (*TOOLS, weak, hopeless, lend, give)
WITH_DEFAULT: tuple[Tool, ...] = (*ALL_TOOLS, guessed)
NAMES = [*(one.name for one in ALL_TOOLS), "nothing", "functions.look", ""]


def rarely(strategy: st.SearchStrategy[Any], often: Any, *, one_in: int = 4) -> st.SearchStrategy[Any]:
    """`often` most of the time, and one time in so many what `strategy` draws."""
    kinds = st.sampled_from([False, *[False] * (one_in - 2), True])
    return kinds.flatmap(lambda rare: strategy if rare else st.just(often))


limits = st.builds(
    lambda degrade_after, more, **given: Limits(degrade_after=degrade_after, abort_after=degrade_after + more, **given),
    degrade_after=st.sampled_from([1, 1, 2, 3]),
    more=st.sampled_from([1, 3, 0]),
    max_steps=st.sampled_from([9, 9, 6, 4, 2, 1, "adaptive"]),
    base_steps=st.sampled_from([3, 1]),
    most_steps=st.sampled_from([9, 4]),
    max_tool_calls=st.sampled_from([50, 50, 50, 9, 3, 1, 0]),
    token_budget=rarely(st.sampled_from([6_000, 3_000, 1_500, 700, 1]), None, one_in=5),
    deadline=rarely(st.sampled_from([60.0, 20.0, 5.0, 0.5]), None, one_in=5),
    repeat_threshold=st.sampled_from([2, 1, 3]),
    no_progress_steps=st.sampled_from([9, 9, 3, 2, 1]),
    max_retries=st.sampled_from([1, 1, 2, 0]),
    backoff=st.sampled_from([0.0, 1.0, 5.0]),
    backoff_max=rarely(st.sampled_from([3.0, 0.0]), 30.0),
    max_nudges=st.integers(0, 2),
    max_degradations=st.sampled_from([3, 2, 1, 0]),
    approval_timeout=st.none() | st.just(5.0),
    on_limit=st.sampled_from(["answer", "stop"]),
    in_doubt=st.sampled_from(["review", "review", "tell"]),
)
ALL_RUNGS = ("fallback", "default", "strategy", "simpler", "answer", "stop")
ladders = rarely(st.lists(st.sampled_from(ALL_RUNGS), unique=True), ALL_RUNGS[:5], one_in=3)


def setup_of(limits: Limits, dialect: str, memory: Memory, ladder: Iterable[str], **more: Any) -> Setup:
    """A setup with all tools of this module that have no default, unless `more` says otherwise."""
    given = {"tools": ALL_TOOLS, **more}
    return make_setup(limits=limits, dialect=dialect, memory=memory, ladder=ladder, **given)


sizes = st.integers(1, 3)
views: st.SearchStrategy[Memory] = st.one_of(
    st.just(Full()),
    st.builds(Window, rounds=sizes),
    st.builds(MessageWindow, messages=st.integers(1, 9)),
    st.builds(DualBuffer, reasoning=sizes, results=sizes, max_tokens=st.sampled_from([None, 1, 60, 200])),
    st.builds(SummaryWindow, rounds=sizes, every=sizes, chunk_tokens=st.sampled_from([1, 6_000])),
)
memories = views | st.builds(KeyFacts, inner=views, per_round=sizes)


setups: st.SearchStrategy[Setup] = st.builds(
    setup_of,
    limits=limits,
    dialect=st.sampled_from(sorted(DIALECTS)),
    memory=memories,
    ladder=ladders,
    temperature=st.sampled_from([None, 0.5, Cooling(0.3, after=2)]),
    policy=rarely(policies([*(one.name for one in ALL_TOOLS), "steady"]), None, one_in=3),
    tools=st.sampled_from([ALL_TOOLS, WITH_DEFAULT]),
    simpler=st.sampled_from([(), ("look", "poll")]),
    withhold=st.booleans(),
    reflect=st.sampled_from([None, None, Reflect(every=1, most=2)]),
)

small = st.integers(0, 2)
fitting: dict[str, st.SearchStrategy[Any]] = {
    "add": st.fixed_dictionaries({"a": small, "b": small}),
    "look": st.fixed_dictionaries({"q": st.sampled_from("xyz")}),
    "poll": st.fixed_dictionaries({"job": small}),
    "pay": st.fixed_dictionaries({"to": st.sampled_from(["Ada", "Bob"]), "amount": st.integers(1, 4)}),
    "shaky": st.fixed_dictionaries({"q": st.sampled_from("xy")}),
    "weak": st.fixed_dictionaries({"q": st.sampled_from("xy")}),
    "hopeless": st.fixed_dictionaries({"q": st.sampled_from("xy")}),
    "lend": st.fixed_dictionaries({"amount": st.integers(1, 4)}),
    "give": st.fixed_dictionaries({"amount": st.integers(1, 2)}),
    "guessed": st.fixed_dictionaries({"q": st.sampled_from("xy")}),
}
wild = st.sampled_from([{}, {"q": 3}, {"q": "x", "dry_run": True}, None, "", "{", '{"q": "x"', '{"q": "x"}', "[1]"])
ids = st.sampled_from(["", "", "call_0", "call_1"])
raw_calls = st.one_of(
    *[st.builds(RawCall, ids, st.just(name), given) for name, given in fitting.items()],
    st.builds(RawCall, ids, st.sampled_from(NAMES), wild),
)
texts = st.sampled_from(
    [
        *("", " ", "It is 3.", "<think>hm</think>", "<think>hm</think>It is 3."),
        '{"action": "FINISH", "action_input": {"answer": "It is 3."}}',
        '{"go_on": true, "next_tool": "look"}',
        '{"go_on": false, "next_tool": null}',
        '{"action": "THINK", "action_input": {"thought": "hm"}}',
        '{"action": "look", "action_input": {"q": "x"}}',
        '{"action": "look", "action_input": {"q": ',
        '<tool_call>{"name": "look", "arguments": {"q": "x"}}</tool_call>',
    ]
)
usages = st.builds(lambda tokens: Usage(tokens, 0, tokens), st.integers(0, 600))


REPLIES = st.sampled_from([*["calls"] * 12, "text", "text", "failure", "failure", "cut", "unreadable", "both"])


@st.composite
def replies(draw: st.DrawFn, at: float) -> Replied | ModelFailed:
    """What comes of a model call."""
    kind = draw(REPLIES)
    if kind == "failure":
        return ModelFailed(
            error="APIError",
            message="no luck",
            retryable=draw(st.sampled_from([True, True, False])),
            overflow=draw(st.sampled_from([False, False, True])),
            context_tokens=draw(st.sampled_from([None, 100, 4_000])),
            prompt_tokens=draw(st.sampled_from([None, 200, 8_000])),
            retry_after=draw(st.sampled_from([None, None, 0.0, 1.0, 90.0])),
            usage=draw(usages),
            at=at,
        )
    return Replied(
        text=draw(texts) if kind in ("text", "cut", "both") else "",
        calls=tuple(draw(st.lists(raw_calls, min_size=1, max_size=3))) if kind in ("calls", "cut", "both") else (),
        usage=draw(usages),
        prompt_tokens=draw(st.sampled_from([None, None, 0, 100, 2_000])),
        truncated=kind == "cut",
        unreadable="no message" if kind == "unreadable" else "",
        at=at,
    )


@st.composite
def returns(draw: st.DrawFn, effect: CallTools, at: float) -> Returned:
    """What comes of a batch: one result for each call, in order."""
    return Returned(results=tuple(draw(one_result(call)) for call in effect.calls), at=at)


@st.composite
def doubts(draw: st.DrawFn, effect: CallTools, at: float) -> Doubted:
    """What is known of a batch after a crash: at least one call is in doubt, the others too, or known, or not begun."""
    sure = draw(st.integers(0, len(effect.calls) - 1))
    unknown, known = [], []
    for index, call in enumerate(effect.calls):
        fate = "doubt" if index == sure else draw(st.sampled_from(["doubt", "known", "known", "waiting"]))
        if fate == "doubt":
            unknown.append(call.id)
        elif fate == "known":
            known.append(draw(one_result(call)))
    return Doubted(calls=tuple(unknown), results=tuple(known), at=at)


@st.composite
def one_result(draw: st.DrawFn, call: Call) -> Result:
    """What comes of one call."""
    kind = draw(st.sampled_from(["same", "new", "new", "failed", "failed", "retryable", "retryable", "gone"]))
    text = draw(st.sampled_from("abcdefgh")) if kind == "new" else kind
    if kind == "gone":
        return Result(call_id=call.id, tool=call.tool, ok=False, text=text, error="unregistered", executed=False)
    return result_of(call.id, call.tool, text, ok=kind in ("same", "new"), retryable=kind == "retryable")


decisions: st.SearchStrategy[Decision] = st.one_of(
    st.builds(Approve),
    st.builds(Deny, st.just("no"), st.sampled_from([False, False, False, True])),
    st.builds(Edit, st.one_of(*fitting.values(), st.just({"to": 3}))),
    st.builds(Answer, st.sampled_from(["it was done", ""])),
)


@st.composite
def answers(draw: st.DrawFn, effect: AskHuman, at: float, waited: float) -> Answered | Expired:
    """What a person decides, if at all; a call may be left out."""
    if draw(st.sampled_from(["decides", *["decides"] * 8, "expires"])) == "expires":
        return Expired(waited, at)
    silent = draw(st.sampled_from([False] * 8 + [True]))
    decided = {call.id: draw(decisions) for call in effect.calls[1 if silent else 0 :]}
    return Answered(decisions=decided, waited=waited, at=at)


@dataclass
class Play:
    """A run between the hands of hypothesis, and everything that happened in it."""

    run: Run
    clock: FakeClock
    asked: list[tuple[Effect, Outcome]] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    @property
    def crashes(self) -> int:
        """How often the program has died in the middle of a batch."""
        return sum(record.event is Event.DOUBTED for record in self.run.transitions)

    def passes(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)


def new_play(setup: Setup, **fields: Any) -> Play:
    """A run that has not begun."""
    clock = FakeClock()
    job = Job(run_id="run-1", clock=clock, started=clock.monotonic())
    return Play(Run(ctx=start(setup, **fields), job=job, machine=DEFAULT_MACHINE), clock)


FATES = st.sampled_from([*["goes on"] * 40, "cancelled", "broke"])
CRASHES = st.sampled_from([*[False] * 7, True])
MOST_CRASHES = 3
PAUSES = st.sampled_from([0.0, 0.0, 0.0, 0.5, 5.0])


def outcome_of(draw: Callable[[st.SearchStrategy[Any]], Any], effect: Effect, play: Play) -> Outcome:
    """Draw what comes of `effect`; now and then the run is cancelled, the engine breaks, or the program dies."""
    if isinstance(effect, CallTools) and play.crashes < MOST_CRASHES and draw(CRASHES):
        return draw(doubts(effect, play.run.job.now()))  # type: ignore[no-any-return] # `draw` is untyped
    paused = draw(PAUSES)
    play.passes(paused)
    at = play.run.job.now()
    fate = draw(FATES)
    if fate == "cancelled":
        return Cancelled("enough", at)
    if fate == "broke":
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
            return draw(answers(effect, at, paused))  # type: ignore[no-any-return] # the same


def most_transitions(setup: Setup, crashes: int = 0) -> int:
    """More transitions than any run under `setup` can have; what a run is told to do does not come into it.

    A visit to PLAN is a new step, a retry of one, the forced answer, or a call that was withheld before the end. Each
    leads to one reading of a reply, at most one question to a person, one batch with its retries. Each degradation adds
    one more batch. A summary needs a round of its own, and so does one that failed; an overflow is met three times at most.
    A crash in the middle of a batch leads to one question more, one check of what was edited, and the rest of the batch.
    """
    limits = setup.limits
    retries = max([limits.max_retries, *(one.retry or 0 for one in ALL_TOOLS)])
    batch = 7 + 4 * retries
    plans = (limits.step_bound + 1) * (1 + limits.max_retries) + 2
    beside = 2 * (limits.step_bound + 1) + 3 + (0 if setup.reflect is None else setup.reflect.most)
    return 4 * crashes + beside + plans * 3 + (limits.step_bound + 1 + limits.max_degradations + 1) * batch + 2


def drive_with(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    play: Play,
    perform: Callable[[Play, Effect, Outcome], object] = lambda *_: None,
) -> Play:
    """Drive the run to its end with outcomes that `draw` chooses; `perform` is told of each before the run is."""
    core = drive(play.run)
    item = next(core, None)
    while item is not None:
        if isinstance(item, Transitioned):
            play.contexts.append(play.run.ctx)
            item = next(core, None)
            continue
        outcome = outcome_of(draw, item, play)
        perform(play, item, outcome)
        play.asked.append((item, outcome))
        try:
            item = core.send(outcome)
        except StopIteration:
            item = None
    return play
