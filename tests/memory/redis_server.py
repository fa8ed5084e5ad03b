"""A Redis server for the tests: on a free port of this machine, with nothing on disk, gone afterwards."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import redis

SETTINGS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "notice", "--databases", "1")


def binary() -> str | None:
    """The path of `redis-server`, None where it is not installed."""
    return shutil.which("redis-server")


class RedisServer:
    """A server that can be stopped and started again, on the same port and with nothing left of what it held."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._running: subprocess.Popen[str] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.start()
        self.client: Any = redis.Redis(port=self.port)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        command = [self._program, "--port", str(self.port), "--dir", str(self._folder), *SETTINGS]
        self._running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._running.stdout is not None
        said: list[str] = []
        for line in self._running.stdout:
            said.append(line)
            if "Ready to accept connections" in line:
                return
        raise AssertionError(f"redis-server did not start: {''.join(said)}")

    def stop(self) -> None:
        """Kill it; what it held is gone."""
        if self._running is not None and self._running.stdout is not None:
            self._running.kill()
            self._running.wait()
            self._running.stdout.close()
        self._running = None

    def end(self) -> None:
        """Stop it for good."""
        self.client.close()
        self.stop()
