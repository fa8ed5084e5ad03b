"""The engine against hypothesis: whatever the model, the tools, people and the clock do, the promises hold.

The machine below is everybody that a run deals with. After every transition it checks what must hold then, and at the
end of every example the run is driven to its end by a model that never gives up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langchain_core.messages import HumanMessage

from fsm_agent.alphabet import INITIAL, TERMINAL, Event, State, Status, StopReason
from fsm_agent.context import Setup
from fsm_agent.dialects.base import merge_neighbours
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
    Deny,
    Doubted,
    Edit,
    Effect,
    Outcome,
    Returned,
    Wait,
    Waited,
)
from fsm_agent.errors import IllegalTransition
from fsm_agent.history import block, flatten
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.prompt import prompt_of
from fsm_agent.records import Transitioned
from fsm_agent.runs import drive
from fsm_agent.states import Step
from fsm_agent.table import TABLE
from fsm_agent.testing.strategies import doubts, returns
from tests.core.adversary import (
    MOST_CRASHES,
    answers,
    decisions,
    drive_with,
    most_transitions,
    new_play,
    raw_calls,
    replies,
    setups,
)
from tests.core.builders import asks, gives, raw
from tests.core.validity import wrong_history, wrong_prompt

FATES = st.sampled_from(["none", "none", "none", "none", "cancelled", "broke", "closed"])


def row_of(record: Transitioned) -> bool:
    """Whether a record is the row that the table gives for its own recorded guards."""
    held = {one.guard: one.result for one in record.guards}
    for row in TABLE:
        if (row.source, row.event) == (record.source, record.event) and all(
            held.get(g.name, False) for g in row.guards
        ):
            return row.target is record.target and (row.reason in (None, record.reason) or row.target is State.ABORT)
    return False


class Engine(RuleBasedStateMachine):
    """One run, and what must hold of it."""

    @initialize(setup=setups, fate=FATES, after=st.integers(0, 30))
    def begin(self, setup: Setup, fate: str, after: int) -> None:
        """A run begins under any limits, tools, dialect, memory and ladder; it may be broken off from outside later.

        A `fate` of "cancelled" or "broke" is the outcome of the first effect after so many transitions; "closed" stops
        the run between two transitions, as a stream that is closed does.
        """
        self.setup = setup
        self.limits = setup.limits
        self.play = new_play(setup)
        self.run = self.play.run
        self.core = drive(self.run)
        self.pending: Effect | None = None
        self.fate, self.after = fate, after
        self.effects: list[Effect] = []
        self.digests: dict[str, list[str]] = {}
        self.granted: Counter[tuple[str, str]] = Counter()
        self.edited: set[str] = set()
        self.refused: set[str] = set()
        self.in_doubt: set[str] = set()
        self.doubted: set[str] = set()
        self.settled: set[str] = set()
        self._turn(next(self.core, None))

    # ------------------------------------------------------------ what everybody does

    def _waits_for(self, kind: type) -> bool:
        return isinstance(self.pending, kind)

    def _waited(self) -> float:
        """How long the run has waited for a person."""
        return self.run.job.now() - self.run.transitions[-1].at

    def _now(self, pause: float = 0.0) -> float:
        self.play.passes(pause)
        return self.run.job.now()

    @precondition(lambda self: self._waits_for(CallModel))
    @rule(data=st.data(), pause=st.sampled_from([0.0, 0.0, 0.5, 5.0]))
    def the_model_answers(self, data: st.DataObject, pause: float) -> None:
        """A reply of any kind, or a failure."""
        self._answer(data.draw(replies(self._now(pause))))

    @precondition(lambda self: self._waits_for(CallModel))
    @rule(calls=st.lists(raw_calls, min_size=1, max_size=3))
    def the_model_asks_for_tools(self, calls: list[Any]) -> None:
        """Calls, mostly ones that fit."""
        self._answer(asks(*calls, at=self._now()))

    @precondition(lambda self: self._waits_for(CallTools))
    @rule(data=st.data(), pause=st.sampled_from([0.0, 0.0, 0.5, 5.0]))
    def the_tools_return(self, data: st.DataObject, pause: float) -> None:
        """Each call gives something old or new, fails, or is gone."""
        assert isinstance(self.pending, CallTools)
        self._answer(data.draw(returns(self.pending, self._now(pause))))

    @precondition(lambda self: self._waits_for(CallTools) and self.play.crashes < MOST_CRASHES)
    @rule(data=st.data())
    def the_program_dies(self, data: st.DataObject) -> None:
        """A crash in the middle of a batch: some results are known, some calls may or may not have run."""
        assert isinstance(self.pending, CallTools)
        self._answer(data.draw(doubts(self.pending, self._now())))

    @precondition(lambda self: self._waits_for(Wait))
    @rule()
    def the_wait_passes(self) -> None:
        """The backoff is over."""
        assert isinstance(self.pending, Wait)
        self._answer(Waited(self._now(self.pending.seconds)))

    @precondition(lambda self: self._waits_for(AskHuman))
    @rule(data=st.data(), pause=st.sampled_from([0.0, 500.0]))
    def a_person_decides(self, data: st.DataObject, pause: float) -> None:
        """Yes, no, something else, or nothing in time."""
        assert isinstance(self.pending, AskHuman)
        now = self._now(pause)
        self._answer(data.draw(answers(self.pending, now, self._waited())))

    @precondition(lambda self: self._waits_for(AskHuman))
    @rule(data=st.data())
    def a_person_decides_about_everything(self, data: st.DataObject) -> None:
        """A decision about every call, also about those that nobody asked about."""
        decided = {call.id: data.draw(decisions) for call in self.run.ctx.calls}
        now = self._now()
        self._answer(Answered(decisions=decided, waited=self._waited(), at=now))

    @precondition(lambda self: self._waits_for(AskHuman))
    @rule(pause=st.sampled_from([0.0, 500.0]))
    def nobody_is_there(self, pause: float) -> None:
        """The run is suspended, and later gone on with: the same question is asked again."""
        asked = self.pending
        assert self._send(None) is None
        assert self.run.result().status is Status.SUSPENDED
        assert self.run.asking == asked
        self._now(pause)
        self.core = drive(self.run)
        assert next(self.core) == asked

    @precondition(lambda self: self.pending is not None)
    @rule(data=st.data(), times=st.integers(3, 9))
    def everybody_goes_on(self, data: st.DataObject, times: int) -> None:
        """Several effects in a row, each with whatever comes of it."""
        for _ in range(times):
            if self.pending is None:
                return
            match self.pending:
                case CallModel():
                    self._answer(data.draw(replies(self._now())))
                case CallTools():
                    self._answer(data.draw(returns(self.pending, self._now())))
                case AskHuman():
                    self._answer(data.draw(answers(self.pending, self._now(), self._waited())))
                case Wait(seconds=seconds):
                    self._answer(Waited(self._now(seconds)))

    @precondition(lambda self: self.pending is None)
    @rule(event=st.sampled_from(list(Event)))
    def nothing_more_happens(self, event: Event) -> None:
        """A run that has ended stays as it is, whatever comes."""
        before = self.run.ctx, self.run.state, list(self.run.transitions)
        assert self.run.stop(Cancelled("too late", self._now())) is None
        assert next(drive(self.run), None) is None
        with pytest.raises(IllegalTransition):
            self.run.advance(Step(event, self.run.ctx))
        assert (self.run.ctx, self.run.state, list(self.run.transitions)) == before

    # ------------------------------------------------------------ turning the machine

    def _answer(self, outcome: Outcome) -> None:
        if len(self.run.transitions) >= self.after:
            at = self._now()
            fates: dict[str, Outcome] = {
                "cancelled": Cancelled("enough", at),
                "broke": Broke(error="KeyError", message="x", at=at),
            }
            outcome = fates.get(self.fate, outcome)
        self._note(outcome)
        self._turn(self._send(outcome))

    def _send(self, outcome: Outcome | None) -> Transitioned | Effect | None:
        try:
            return self.core.send(outcome)
        except StopIteration:
            return None

    def _turn(self, item: Transitioned | Effect | None) -> None:
        """Up to the next effect, or to the end."""
        while isinstance(item, Transitioned):
            self._check_record(item)
            if self.fate == "closed" and len(self.run.transitions) >= self.after:
                self.run.stop(Cancelled("closed", self.run.job.now()))
            item = next(self.core, None)
        self.pending = item
        if item is not None:
            self.effects.append(item)
            self._check_effect(item)

    def _note(self, outcome: Outcome) -> None:
        """What was decided and executed, as far as the promises below are about it."""
        if isinstance(outcome, Answered) and isinstance(self.pending, AskHuman):
            stop = any(isinstance(one, Deny) and one.stop for one in outcome.decisions.values())
            for call in self.pending.calls:
                decision = outcome.decisions.get(call.id)
                if isinstance(decision, Approve):
                    self.granted[call.id, call.signature] += 1
                elif isinstance(decision, Answer):
                    self.settled.add(call.id)
                elif isinstance(decision, Edit) and not stop:
                    self.edited.add(call.id)
                elif not isinstance(decision, Edit) and self._only_one(call):
                    self.refused.add(call.signature)
        if isinstance(outcome, Returned | Doubted) and isinstance(self.pending, CallTools):
            calls = {call.id: call for call in self.pending.calls}
            digests = [(calls[one.call_id], one.digest) for one in outcome.results if one.executed]
            self.settled |= {result.call_id for result in outcome.results if result.ok}
            if isinstance(outcome, Doubted):
                # A yes for a call that never began is still to be used.
                began = {*outcome.calls, *(one.call_id for one in outcome.results)}
                self.granted.update((call.id, call.signature) for call in self.pending.calls if call.id not in began)
                if self.limits.in_doubt == "tell":
                    # The model knows that the outcome is unknown; nothing is done about it in its place.
                    self.settled |= set(outcome.calls)
                    digests += [(calls[call_id], "") for call_id in outcome.calls]
                else:
                    self.doubted |= set(outcome.calls)
                    self.in_doubt |= set(outcome.calls)
            if self.limits.repeats == "in_a_row" and digests and self.pending.attempt == 1:
                self.digests.clear()
            for call, digest in digests:
                done = self.digests.setdefault(call.signature, [])
                # The engine's own retry takes the place of the attempt before.
                done[len(done) - (self.pending.attempt > 1) :] = [digest]

    def _only_one(self, call: Call) -> bool:
        """Whether no other call of the round is the same: a decision is for one call."""
        return [one.signature for one in self.run.ctx.calls].count(call.signature) == 1

    # ------------------------------------------------------------ what must hold

    def _check_record(self, record: Transitioned) -> None:
        records = self.run.transitions
        assert records[-1] is record
        assert row_of(record), f"{record} is not what the table gives"
        assert record.seq == len(records)
        assert record.source is (records[-2].target if len(records) > 1 else INITIAL)
        if record.target is State.EXECUTE:
            assert (record.source, record.event) in {
                (State.VALIDATE, Event.ACCEPTED),
                (State.REVIEW, Event.APPROVED),
                (State.RETRY, Event.WAITED),
            }
        if record.target is State.ABORT:
            assert record.reason is not None

    def _check_effect(self, effect: Effect) -> None:
        if isinstance(effect, CallModel):
            assert wrong_prompt(effect.messages) == [], effect.messages
            budget = self.limits.token_budget
            assert budget is None or self.run.ctx.usage.total + effect.estimate <= budget
            assert not (effect.tools and effect.purpose != "plan")
        if isinstance(effect, AskHuman):
            assert effect.calls
            assert not {call.id for call in effect.calls} & self.settled, "asked about what is settled"
        if isinstance(effect, CallTools):
            assert effect.calls
            assert effect.time_left is None or effect.time_left > 0
            seen: Counter[str] = Counter()
            for call in effect.calls:
                self._check_call(call, effect.attempt, seen)

    def _check_call(self, call: Call, attempt: int, seen: Counter[str]) -> None:
        assert not call.refusal
        assert call.id not in self.settled, "what succeeded, or was answered, is executed again"
        assert call.signature not in self.refused, "a call that a person refused is executed"
        tool = self.setup.tools.resolve(call.tool)
        assert tool is not None
        by_edit = call.id in self.edited
        if tool.needs_approval(call.arguments) or call.id in self.in_doubt:
            assert attempt == 1 or call.id in self.in_doubt, "a yes is for one execution"
            assert by_edit or self.granted[call.id, call.signature] > 0, "executed without a yes"
            self.granted[call.id, call.signature] -= not by_edit
            self.edited.discard(call.id)
            self.in_doubt.discard(call.id)
        if not tool.repeatable and attempt == 1:
            seen[call.signature] += 1
            assert seen[call.signature] == 1 or call.needs_approval, "executed twice in one batch"
            newest = self.digests.get(call.signature, [])[-self.limits.repeat_threshold :]
            used_up = len(newest) == self.limits.repeat_threshold and len(set(newest)) == 1
            assert not used_up or (by_edit and call.id in self.doubted), (
                "the same call with the same result is executed beyond its threshold"
            )

    @invariant()
    def no_count_passes_its_limit(self) -> None:
        """Steps, tool calls, degradations, forced answers and transitions are bounded."""
        ctx, limits = self.run.ctx, self.limits
        events = Counter(record.event for record in self.run.transitions)
        assert ctx.step <= limits.step_bound
        assert ctx.tool_calls <= limits.max_tool_calls
        assert ctx.degradations <= limits.max_degradations
        assert events[Event.ANSWER_FORCED] <= 1
        assert len(self.run.transitions) <= most_transitions(self.setup, self.play.crashes)
        asked = [effect for effect in self.effects if isinstance(effect, CallModel)]
        assert events[Event.OVERFLOWED] <= 3
        assert events[Event.GAVE_WAY] <= 5
        again = events[Event.OVERFLOWED] + events[Event.GAVE_WAY]
        assert sum(effect.attempt == 1 and effect.purpose == "plan" for effect in asked) <= limits.step_bound + again
        assert sum(effect.attempt == 1 and effect.purpose == "answer" for effect in asked) <= 1 + again

    @invariant()
    def the_history_could_be_sent(self) -> None:
        """Wherever the run stops, its history with a next task is one that a strict provider takes."""
        ctx = self.run.ctx
        closed = self.run.closed_history()
        next_task = block("task", HumanMessage("And now?"), turn=ctx.turn + 1)
        merged = self.setup.dialect.compose(replace(prompt_of(ctx, "plan"), blocks=(*closed, next_task)))
        assert wrong_prompt(merged) == [], merged
        assert wrong_history([message for message in merged if message.type != "system"]) == []
        assert flatten(closed)[0] == flatten(ctx.history)[0]

    @invariant()
    def an_ending_is_typed(self) -> None:
        """A run has ended exactly when its state is terminal, and then says how and why; one that waits says what for."""
        result = self.run.result()
        ended = self.run.state in TERMINAL
        assert ended == (self.pending is None)
        assert ended == (result.reason not in (None, StopReason.IN_DOUBT))
        assert result.detail
        if ended:
            assert (result.answer is not None) == (result.status in (Status.COMPLETED, Status.PARTIAL))
            assert (result.reason is StopReason.CANCELLED) == (result.status is Status.CANCELLED)
            assert wrong_history(merge_neighbours(result.messages)) == []

    def teardown(self) -> None:
        """A model that never gives up, tools that always give something new, a person who always says yes: it ends."""
        if not hasattr(self, "run"):
            return
        number = 0
        while self.pending is not None:
            number += 1
            assert number <= most_transitions(self.setup, self.play.crashes), "the run does not end"
            self._answer(self._going_on(self.pending, number))
        self.an_ending_is_typed()
        self.the_history_could_be_sent()

    def _going_on(self, effect: Effect, number: int) -> Outcome:
        match effect:
            case CallModel():
                return asks(raw("look", q=f"more {number}"), at=self._now())
            case CallTools():
                return gives(f"new {number}", at=self._now())(effect)
            case Wait():
                return Waited(self._now())
            case AskHuman():
                decided = {call.id: Approve() for call in effect.calls}
                return Answered(decisions=decided, waited=self._waited(), at=self._now())


TestEngine = Engine.TestCase
TestEngine.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), setups)
def test_every_run_ends_within_a_bound_that_its_limits_give(data: st.DataObject, setup: Setup) -> None:
    """For any limits and any behaviour of model, tools and people, a run ends; how soon can be computed beforehand."""
    play = drive_with(data.draw, new_play(setup))
    assert play.run.state in TERMINAL
    assert len(play.run.transitions) <= most_transitions(setup, play.crashes)
    assert play.run.machine is DEFAULT_MACHINE
