"""A PostgreSQL server for the tests: its own data directory, reached through a Unix socket in there, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

# Where Debian and Ubuntu put what is not on PATH.
DEBIAN = Path("/usr/lib/postgresql")
# Fast, and safe enough: the server itself is stopped in these tests, the machine is not.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "autovacuum": "off",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
PATIENCE = 60.0
# Where it can be had, the server ends with the process that started it, however that ends.
TOGETHER = ["setpriv", "--pdeathsig", "QUIT", "--"] if shutil.which("setpriv") else []


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; None where PostgreSQL is not installed."""
    for found in (shutil.which("initdb"), *sorted(map(str, DEBIAN.glob("*/bin/initdb")), reverse=True)):
        # On PATH there may be a link, whose neighbours are others.
        folder = None if found is None else Path(found).resolve().parent
        if folder is not None and (folder / "postgres").exists():
            return folder
    return None


class Server:
    """A server that can be stopped and started again. The one user is `postgres`, who needs no password."""

    def __init__(self, folder: Path, programs: Path, account: dict[str, Any]) -> None:
        self.folder = folder
        self._programs = programs
        self._account = account
        self._running: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def conninfo(self, database: str = "postgres") -> str:
        """How to connect."""
        return f"host={self.folder} user=postgres dbname={database}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs that come with the server, as the user that it runs as."""
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            capture_output=True,
            timeout=PATIENCE,
            cwd=self.folder,
            **self._account,
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        settings.append(f"--unix_socket_directories={self.folder}")
        with (self.folder / "log").open("ab") as log:
            command = [*TOGETHER, str(self._programs / "postgres"), "-D", str(self.folder / "data"), *settings]
            self._running = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self._account
            )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.conninfo(), connect_timeout=10).close()
            except psycopg.OperationalError:
                if self._running.poll() is not None or time.monotonic() > until:
                    said = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                    pytest.fail(f"PostgreSQL does not start:\n{said[-2000:]}")
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: connections are cut, what was not committed is gone. SIGQUIT leaves it no time to tidy up."""
        running, self._running = self._running, None
        if running is not None:
            running.send_signal(how)
            running.wait(PATIENCE)

    def new_database(self, more: str = "") -> str:
        """The connection string of a new and empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {more}".encode())
        return self.conninfo(name)


@contextmanager
def serving() -> Iterator[Server]:
    """A running server. Skips the test where PostgreSQL is not installed, but not in CI, which installs it."""
    programs = binaries()
    if programs is None:
        missing = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    # Not below pytest's own folder, which the unprivileged account cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="fsm-pg-"))
    account: dict[str, Any] = {}
    if os.geteuid() == 0:
        # The server refuses to run as root.
        entry = next(found for found in pwd.getpwall() if found.pw_name in ("postgres", "nobody"))
        account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    server = Server(folder, programs, account)
    try:
        server.run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
