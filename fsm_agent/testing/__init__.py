"""A kit for testing agents without a real model, a real clock or a real server.

`at` fires one transition alone: no model, no store, no loop. `run_until` stops a real run on its way into a state. `ScriptedTool` gives
what its script says, and `assert_path`, `assert_called` and their like tell the path that was taken when they fail.
`ScriptedModel` is a chat model that says what its script says; `server` is a real HTTP server that does, with every
fault of `fault`; `FakeClock` is a clock that never waits. Replies are written with `reply`, `call`, `forever`, `Delay`.
"""

from __future__ import annotations

from fsm_agent.testing import fault
from fsm_agent.testing.asserts import (
    assert_answer,
    assert_called,
    assert_guard,
    assert_path,
    assert_reason,
    assert_status,
    assert_transitions,
)
from fsm_agent.testing.clock import FakeClock
from fsm_agent.testing.failures import model_error, tool_error
from fsm_agent.testing.model import ScriptedModel
from fsm_agent.testing.regression import as_test
from fsm_agent.testing.script import Call, Delay, Reply, call, forever, reply
from fsm_agent.testing.server import FaultServer, ServerRequest, server
from fsm_agent.testing.single import At, Transition, at
from fsm_agent.testing.stage import ModelRequest
from fsm_agent.testing.tool import ScriptedTool
from fsm_agent.testing.until import StoppedRun, run_until

__all__ = [
    "At",
    "Call",
    "Delay",
    "FakeClock",
    "FaultServer",
    "ModelRequest",
    "Reply",
    "ScriptedModel",
    "ScriptedTool",
    "ServerRequest",
    "StoppedRun",
    "Transition",
    "as_test",
    "assert_answer",
    "assert_called",
    "assert_guard",
    "assert_path",
    "assert_reason",
    "assert_status",
    "assert_transitions",
    "at",
    "call",
    "fault",
    "forever",
    "model_error",
    "reply",
    "run_until",
    "server",
    "tool_error",
]
