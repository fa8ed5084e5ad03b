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
    Answered,
    AskHuman,
    Broke,
    CallModel,
    CallTools,
    Cancelled,
    Effect,
    Expired,
    ModelFailed,
    Outcome,
    RawCall,
    Replied,
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
from fsm_agent.testing import strategies as kit
from fsm_agent.testing.strategies import doubts, rarely, returns
from fsm_agent.tools import Tool, tool
from tests.core.builders import TOOLS, make_setup, start, steady
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


limits = kit.limits()


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
    ladder=kit.ladders(),
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


def replies(at: float) -> st.SearchStrategy[Replied | ModelFailed]:
    """What comes of a model call."""
    return kit.replies(calls_of=raw_calls, texts=texts, at=at)


decisions = kit.decisions(st.one_of(*fitting.values(), st.just({"to": 3})))


def answers(effect: AskHuman, at: float, waited: float) -> st.SearchStrategy[Answered | Expired]:
    """What a person decides, if at all; a call may be left out."""
    return kit.answers(effect, decisions, at, waited)


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
    if isinstance(effect, CallTools) and effect.calls and play.crashes < MOST_CRASHES and draw(CRASHES):
        return draw(doubts(effect, play.run.job.now()))  # type: ignore[no-any-return] # `draw` is untyped
    paused = draw(PAUSES)
    play.passes(paused)
    at = play.run.job.now()
    fate = draw(FATES)
    if fate == "cancelled":
        returned = draw(returns(effect, at)).results if isinstance(effect, CallTools) else ()
        return Cancelled("enough", at, tuple(one for one in returned if draw(st.booleans())))
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
    one more batch. A summary needs a round of its own, and so does one that failed; an overflow is met three times at most,
    and a refusal that gives way five times.
    A crash in the middle of a batch leads to one question more, one check of what was edited, and the rest of the batch.
    """
    limits = setup.limits
    retries = max([limits.max_retries, *(one.retry or 0 for one in ALL_TOOLS)])
    batch = 7 + 4 * retries
    plans = (limits.step_bound + 1) * (1 + limits.max_retries) + 2
    beside = 2 * (limits.step_bound + 1) + 8 + (0 if setup.reflect is None else setup.reflect.most)
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
