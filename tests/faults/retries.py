"""What the tests of family R read of a result."""

from __future__ import annotations

from datetime import UTC, datetime

from fsm_agent import Event, RunResult
from fsm_agent.testing import FakeClock

EPOCH = datetime.fromtimestamp(FakeClock().time(), UTC)


def failures_of(result: RunResult) -> list[str]:
    """The error of every failed model attempt that the records hold."""
    return [record.error for record in result.transitions if record.event is Event.MODEL_FAILED]
