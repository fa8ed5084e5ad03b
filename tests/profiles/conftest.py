"""The Redis server of the tests of memory, for the profile that keeps its threads there."""

from __future__ import annotations

from tests.memory.conftest import _server as _server  # noqa: PLC0414 - a fixture is found by the name that it has here
from tests.memory.conftest import redis_server as redis_server  # noqa: PLC0414 - the same
