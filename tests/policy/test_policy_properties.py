"""Any policy in any run: what is executed is judged by an oracle, and by the trail that a run leaves."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.context import Setup
from fsm_agent.effects import Answer, Answered, AskHuman, CallTools, Doubted, Effect, Outcome, Returned
from fsm_agent.policy import ToolPolicy
from tests.core.adversary import ALL_TOOLS, Play, drive_with, new_play, setups
from tests.policy.kit import Oracle, policies

SLOW = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
NAMES = [*(one.name for one in ALL_TOOLS), "steady"]


def watch(oracle: Oracle, play: Play, effect: Effect, outcome: Outcome) -> None:
    """Tell the oracle what is about to be executed, and what came of it."""
    asked = {call.id: call.tool for call in play.run.ctx.asked}
    if isinstance(effect, CallTools):
        tools = {call.id: call.tool for call in effect.calls}
        oracle.batch([(call.id, call.tool) for call in effect.calls])
        for call_id in outcome.calls if isinstance(outcome, Doubted) else ():
            oracle.began((call_id, tools[call_id]))
        for one in outcome.results if isinstance(outcome, Returned | Doubted) else ():
            if one.executed:
                oracle.began((one.call_id, one.tool))
            if one.ok:
                oracle.came(one.tool, asked.get(one.call_id, one.tool))
    if isinstance(effect, AskHuman) and isinstance(outcome, Answered):
        for call in effect.calls:
            if isinstance(outcome.decisions.get(call.id), Answer):
                oracle.began((call.id, call.tool))
                oracle.came(call.tool, asked.get(call.id, call.tool))


@SLOW
@given(st.data(), setups, policies(NAMES))
def test_nothing_is_executed_that_breaks_a_rule(data: st.DataObject, setup: Setup, policy: ToolPolicy) -> None:
    """For any policy and any behaviour of model, tools, people and crashes, the oracle finds no execution that breaks a rule."""
    held = Setup(**{**vars(setup), "policy": policy, "memo": {}})
    oracle = Oracle(policy)
    drive_with(data.draw, new_play(held), lambda play, effect, outcome: watch(oracle, play, effect, outcome))
    assert oracle.broken == []


@SLOW
@given(st.data(), setups, policies(NAMES))
def test_a_violation_asks_nobody_and_is_answered(data: st.DataObject, setup: Setup, policy: ToolPolicy) -> None:
    """A call that the policy refused is neither executed nor shown to a person."""
    play = new_play(Setup(**{**vars(setup), "policy": policy, "memo": {}}))
    drive_with(data.draw, play)
    refused = {(call.id, call.tool) for ctx in play.contexts for call in ctx.calls if call.refusal_kind == "policy"}
    reached = {
        (call.id, call.tool)
        for effect, _ in play.asked
        if isinstance(effect, CallTools | AskHuman)
        for call in effect.calls
    }
    assert not refused & reached
