"""Time that a run waits for people takes nothing from its deadline, however many of them decide, and when."""

from __future__ import annotations

import pytest

from fsm_agent import Agent, Approve, Limits, Status, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import MemoryTrail


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def look(n: int) -> str:
    """Look somewhere."""
    return f"nothing at {n}"


def test_several_people_may_take_their_time_one_after_the_other() -> None:
    """A decision about one of two calls, made from another process, does not count the waiting towards the deadline."""
    trails, clock, limits = MemoryTrail(), FakeClock(), Limits(deadline=50.0)

    def agent(*script: object) -> Agent:
        return Agent(
            ScriptedModel(list(script)), [send], limits=limits, store=trails, clock=clock, logger=silent_logger()
        )

    begun = agent(reply("", call("send", to="Ana"), call("send", to="Ben"))).invoke("Write to both")
    first, second = begun.requests
    clock.advance(1000.0)
    half = agent().resume(begun.run_id, decision={first.call_id: Approve()})
    assert half.status is Status.SUSPENDED
    clock.advance(1000.0)
    done = agent("Both are sent.").resume(begun.run_id, decision={second.call_id: Approve()})
    assert (done.status, done.answer) == (Status.COMPLETED, "Both are sent.")
    assert done.elapsed < 2100.0


@pytest.mark.parametrize("hours", [5, -5])
@pytest.mark.parametrize("trails", [None, MemoryTrail()])
def test_a_clock_that_is_set_while_a_run_is_paused_takes_nothing_from_it(
    hours: int, trails: MemoryTrail | None
) -> None:
    """The time of day may be set forward or back in a pause, several times: the run's own time stands still meanwhile."""

    class SetClock(FakeClock):
        ahead = 0.0

        def time(self) -> float:
            return super().time() + self.ahead

    clock = SetClock()
    script = ScriptedModel([call("look", n=1), call("look", n=2), "Done."])
    agent = Agent(
        script, [look], limits=Limits(deadline=60.0), store=trails, clock=clock, logger=silent_logger()
    ).pause_at("EXECUTE")
    result = agent.invoke("Look twice")
    for _ in range(2):
        assert result.status is Status.SUSPENDED
        clock.ahead += hours * 3600.0
        clock.advance(1000.0)
        result = agent.resume(result.run_id)
    assert (result.status, result.answer, result.elapsed) == (Status.COMPLETED, "Done.", 0.0)
