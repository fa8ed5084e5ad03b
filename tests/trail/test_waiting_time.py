"""Time that a run waits for people, or for a process, takes nothing from its deadline."""

from __future__ import annotations

import pytest

from fsm_agent import Agent, Approve, Limits, Status, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import Batch, MemoryTrail
from fsm_agent.trail.store import RUNNING


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
    assert 2000.0 <= done.elapsed < 2100.0


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


def test_time_stands_still_while_no_process_has_the_run() -> None:
    """A run that a crash broke off in the middle of its calls goes on within its deadline, however late."""
    whole, clock = MemoryTrail(), FakeClock()

    @tool(idempotent=True)
    def seek() -> str:
        """Look."""
        return "seen"

    def agent(store: MemoryTrail, *script: object) -> Agent:
        limits = Limits(deadline=50.0)
        return Agent(
            ScriptedModel(list(script)), [seek], limits=limits, store=store, clock=clock, logger=silent_logger()
        )

    begun = agent(whole, call("seek"), "done").invoke("Look", {"configurable": {"run_id": "r"}})
    assert begun.status is Status.COMPLETED
    kept = whole.read("r")
    cut = ['"effect":"call_tools"' in one.text for one in kept].index(True) + 1
    broken = MemoryTrail()
    broken.append(Batch(run_id="r", owner="gone", lease=0.0, time=0.0, status=RUNNING, entries=tuple(kept[:cut])))
    clock.advance(1000.0)
    result = agent(broken, "done").resume("r")
    assert (result.status, result.elapsed < 50.0) == (Status.COMPLETED, True)
