"""Time that a run waits for people takes nothing from its deadline, however many of them decide, and when."""

from __future__ import annotations

from fsm_agent import Agent, Approve, Limits, Status, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import MemoryTrail


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


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
