"""What every test runs under: no network but loopback, no settings of whoever runs it, repeatable examples."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# "ci" gives the same examples on every machine; HYPOTHESIS_PROFILE=dev looks for new ones. Neither has a deadline:
# a loaded machine is no fault of the code.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")
FOREIGN_SETTINGS = ("FSM_AGENT_", "OPENAI_", "LANGCHAIN_", "LANGSMITH_")


class LoopbackOnly:
    """Replaces what opens a connection or looks up a host; refuses everything beyond this machine while `closed`."""

    def __init__(self) -> None:
        self.closed = True
        self.original: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Wrap the four ways out of `socket`."""
        for name in ("connect", "connect_ex", "sendto"):
            self.original[name] = getattr(socket.socket, name)
            setattr(socket.socket, name, self._guarded_method(self.original[name]))
        self.original["getaddrinfo"] = socket.getaddrinfo
        setattr(socket, "getaddrinfo", self._guarded_lookup(self.original["getaddrinfo"]))  # noqa: B010 - mypy

    def remove(self) -> None:
        """Put back what `install` replaced."""
        setattr(socket, "getaddrinfo", self.original.pop("getaddrinfo"))  # noqa: B010 - mypy: assigning to a module
        for name, method in self.original.items():
            setattr(socket.socket, name, method)

    def _guarded_method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(sock: socket.socket, *args: Any) -> Any:
            # The address is the last argument of all three; a Unix socket has a path and never leaves the machine.
            if args and isinstance(args[-1], tuple):
                self._check(args[-1][0])
            return method(sock, *args)

        return guarded

    def _guarded_lookup(self, lookup: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
            self._check(host)
            return lookup(host, *args, **kwargs)

        return guarded

    def _check(self, host: Any) -> None:
        if self.closed and not is_loopback(host):
            # Not an OSError: code under test must not be able to take this for a server that is down.
            pytest.fail(f"a test reached for the network ({host!r}); only loopback is open to tests", pytrace=True)


def is_loopback(host: Any) -> bool:
    """Whether `host` (a name, an address, or None for "any interface") is this machine."""
    name = host.decode() if isinstance(host, bytes) else host
    if not name or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


_NETWORK = LoopbackOnly()


def pytest_configure() -> None:
    """Close the network before any test module is imported."""
    _NETWORK.install()


def pytest_unconfigure() -> None:
    """Leave the interpreter as it was."""
    _NETWORK.remove()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that is named after an address in memory: processes that share the suite would name it differently."""
    unstable = [item.nodeid for item in items if ADDRESS.search(item.nodeid)]
    if unstable:
        raise pytest.UsageError(f"give these parameters ids: {', '.join(unstable[:3])}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Open the network for a test marked `network`, its fixtures of every scope included."""
    _NETWORK.closed = item.get_closest_marker("network") is None
    try:
        return (yield)
    finally:
        _NETWORK.closed = True


@pytest.fixture(autouse=True)
def _clean_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide keys and settings of whoever runs the tests; `network` tests keep them (mirrors, caches)."""
    if request.node.get_closest_marker("network") is None:
        for name in [name for name in os.environ if name.startswith(FOREIGN_SETTINGS)]:
            monkeypatch.delenv(name)
