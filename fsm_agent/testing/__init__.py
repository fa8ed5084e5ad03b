"""A kit for testing agents without a real model, a real clock or a real server.

`ScriptedModel` is a chat model that says what its script says; `server` is a real HTTP server that does, with every
fault of `fault`; `FakeClock` is a clock that never waits. Replies are written with `reply`, `call`, `forever`, `Delay`.
"""

from __future__ import annotations

from fsm_agent.testing import fault
from fsm_agent.testing.clock import FakeClock
from fsm_agent.testing.model import ScriptedModel
from fsm_agent.testing.script import Call, Delay, Reply, call, forever, reply
from fsm_agent.testing.server import FaultServer, ServerRequest, server
from fsm_agent.testing.stage import ModelRequest

__all__ = [
    "Call",
    "Delay",
    "FakeClock",
    "FaultServer",
    "ModelRequest",
    "Reply",
    "ScriptedModel",
    "ServerRequest",
    "call",
    "fault",
    "forever",
    "reply",
    "server",
]
