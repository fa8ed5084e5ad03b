"""The server that the tests of this folder talk to, and a store of every kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory.kit import DURABLE, STORES, Opener, Shelf
from tests.memory.redis_server import RedisServer, binary


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    program = binary()
    if program is None:
        message = "redis-server is not installed (Debian and Ubuntu: apt-get install redis-server)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    server = RedisServer(program, tmp_path_factory.mktemp("redis"))
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def redis_server(_server: RedisServer) -> RedisServer:
    """A real Redis server that holds nothing."""
    _server.client.flushall()
    return _server


def _opener(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Opener:
    return Opener(kind, tmp_path, request.getfixturevalue("redis_server").url if kind.startswith("redis") else "")


@pytest.fixture(params=STORES)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """A store of each kind, empty."""
    opener = _opener(request.param, tmp_path, request)
    yield opener.open()
    opener.dispose()


@pytest.fixture(params=DURABLE)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """What opens, again and again, a store whose conversations outlive the object."""
    opener = _opener(request.param, tmp_path, request)
    yield opener
    opener.dispose()
