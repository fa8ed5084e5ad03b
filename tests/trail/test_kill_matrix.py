"""Kill -9 at every instant: before and after each durable write and each effect, no effect is ever done twice or lost."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections import Counter
from pathlib import Path

import pytest

from fsm_agent import Answer, Approve, RunResult, Status, StopReason
from fsm_agent.errors import UnknownRun
from fsm_agent.trail.audit import audit
from tests.trail.killed import RUN_ID, STEPS, Instant, Place, agent_of, calls_of_step, done_in, live

SPAWNER = multiprocessing.get_context("forkserver")
SPAWNER.set_forkserver_preload(["tests.trail.killed", "fsm_agent.agent", "langchain_core.tools"])
ALL_CALLS = [call for step in range(1, STEPS + 1) for call in calls_of_step(step)]
# Two writes a step, one more for the second of two calls at once, and the ends of the run.
WRITES = 2 * STEPS + STEPS // 2 + 2
INSTANTS = [
    *(Instant(number, "write", when) for number in range(1, WRITES + 1) for when in ("before", "after")),
    *(Instant(number, "effect", when) for number in range(1, len(ALL_CALLS) + 1) for when in ("before", "after")),
]


def killed_at(place: Place, instant: Instant, *, resuming: bool = False) -> bool:
    """Let a process live until the instant. True when it was killed there; False when it lived on to the end."""
    process = SPAWNER.Process(target=live, args=(place, instant, resuming))
    process.start()
    process.join(60)
    code = process.exitcode
    process.close()
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return code != 0


def gone_on(place: Place) -> RunResult | None:
    """Go on with the run in this process; None when there is nothing to go on with: it was never begun, or has ended."""
    try:
        return agent_of(place).resume(RUN_ID)
    except UnknownRun:
        return None


def nothing_left(place: Place) -> bool:
    """True when the run left no trace, or the whole of it."""
    done = seen(place)
    if not done:
        return True
    check_honest(place)
    return done == Counter(ALL_CALLS)


def seen(place: Place) -> Counter[tuple[int, str]]:
    """How often the world has seen each call."""
    return Counter((int(step), side) for _, step, side in (line.split() for line in done_in(place)))


def check_honest(place: Place) -> None:
    """The trail is whole, and the table gives it."""
    assert audit(agent_of(place).journal, RUN_ID).findings == ()


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_an_idempotent_call_is_done_exactly_once(tmp_path: Path, instant: Instant) -> None:
    """Wherever the process dies, the run goes on to its end, and each effect is there once, under its own key."""
    place = Place(tmp_path, idempotent=True)
    killed_at(place, instant)
    result = gone_on(place)
    if result is None:
        assert nothing_left(place)
        return
    assert (result.status, result.answer) == (Status.COMPLETED, "all charged")
    assert seen(place) == Counter(ALL_CALLS)
    check_honest(place)


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_any_other_call_is_done_once_or_parked_in_doubt(tmp_path: Path, instant: Instant) -> None:
    """Wherever the process dies, no effect is there twice; a call whose outcome is unknown waits for a person."""
    place = Place(tmp_path, idempotent=False)
    killed_at(place, instant)
    result = gone_on(place)
    if result is None:
        assert nothing_left(place)
        return
    if result.status is Status.SUSPENDED:
        assert result.reason is StopReason.IN_DOUBT
        assert result.pending is not None
        done, doubt = seen(place), [(call.arguments["step"], call.arguments["side"]) for call in result.pending.calls]
        assert set(done.values()) <= {1}
        # The person looks at the world, and says which of them took effect.
        decisions = {
            call.id: Answer(f"charged {where[0]} {where[1]}") if done[where] else Approve()
            for call, where in zip(result.pending.calls, doubt, strict=True)
        }
        result = agent_of(place).resume(RUN_ID, decision=decisions, by="ann")
    assert (result.status, result.answer) == (Status.COMPLETED, "all charged")
    assert seen(place) == Counter(ALL_CALLS)
    check_honest(place)


@pytest.mark.parametrize("instant", INSTANTS[1::7], ids=str)
def test_the_model_may_be_told_instead_of_a_person(tmp_path: Path, instant: Instant) -> None:
    """With `in_doubt="tell"` nobody is asked, and nothing is called again: the effect is there at most once."""
    place = Place(tmp_path, idempotent=False, in_doubt="tell")
    killed_at(place, instant)
    result = gone_on(place)
    if result is not None:
        assert result.status is Status.COMPLETED
        assert set(seen(place).values()) <= {1}
        check_honest(place)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(INSTANTS[6:60:18], INSTANTS[2:50:12])), ids=str)
def test_a_process_that_goes_on_may_be_killed_too(tmp_path: Path, first: Instant, second: Instant) -> None:
    """Killed, taken up, and killed again: still each effect once."""
    place = Place(tmp_path, idempotent=True)
    killed_at(place, first)
    killed_at(place, second, resuming=True)
    result = gone_on(place)
    assert result is None or result.status is Status.COMPLETED
    assert seen(place) == Counter(ALL_CALLS)
    check_honest(place)
