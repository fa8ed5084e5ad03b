"""Replay: folding the recorded outcomes of a run gives the same contexts, at every prefix, by the table alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, Limits
from fsm_agent.context import Setup
from fsm_agent.effects import Outcome
from fsm_agent.testing import FakeClock, ScriptedModel
from tests.core.adversary import Play, drive_with, new_play, setups
from tests.core.builders import Line, fold, frozen, start
from tests.core.recorded import read, recorded


def lines(play: Play) -> list[Line]:
    """The recorded outcomes, through JSON and back, as a trail would hold them; each waits for its own effect."""
    return [at_effect(read(recorded(outcome))) for _, outcome in play.asked]


def at_effect(outcome: Outcome) -> Line:
    """`outcome`, also of a cancellation, at the effect that it came of."""
    return lambda _: outcome


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), setups)
def test_folding_the_outcomes_gives_an_equal_context_at_every_prefix(data: st.DataObject, setup: Setup) -> None:
    """For any limits, tools, dialect, memory and behaviour: same rows, same guards, same contexts, same effects."""
    play = new_play(setup)
    first, before = play.run.ctx, frozen(play.run.ctx)
    drive_with(data.draw, play)
    outcomes = lines(play)
    # What a setup remembers between runs only saves work: the fold has one that remembers nothing.
    moments = list(fold(start(replace(setup, memo={})), outcomes))
    assert [moment.fired.ctx for moment in moments] == play.contexts
    assert [(one.fired.row.source, one.fired.row.event, one.fired.row.target, one.fired.guards) for one in moments] == [
        (one.source, one.event, one.target, one.guards) for one in play.run.transitions
    ]
    asked = [moment.effect for moment in moments if moment.effect is not None]
    assert asked == [effect for effect, _ in play.asked]
    # No context of the run was changed after it was left, and the first outcomes lead to where the run was after them.
    assert frozen(first) == before
    assert [frozen(moment.fired.ctx) for moment in moments] == [frozen(ctx) for ctx in play.contexts]
    cut = data.draw(st.integers(0, len(outcomes)))
    contexts = [moment.fired.ctx for moment in fold(start(setup), outcomes[:cut])]
    assert contexts == play.contexts[: len(contexts)]


def test_jitter_is_part_of_the_fold() -> None:
    """The wait of a retry is drawn from the run, so a replay waits, or rather records, the same."""
    clock = FakeClock()
    agent = Agent(ScriptedModel([RuntimeError("down"), "3"]), clock=clock, limits=Limits(jitter=1.0))
    config: Any = {"run_id": "00000000-0000-0000-0000-000000000001"}
    agent.invoke("x", config)
    again = FakeClock()
    Agent(ScriptedModel([RuntimeError("down"), "3"]), clock=again, limits=Limits(jitter=1.0)).invoke("x", config)
    assert clock.slept == again.slept
    assert 1.0 < clock.slept[0] <= 2.0
