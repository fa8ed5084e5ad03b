"""llama.cpp's OpenAI-compatible server in a child process on a free loopback port, stopped with its parent.

The runtime is `xllamacpp` (a prebuilt wheel, no compiler). It lives in a child because it holds the interpreter
while it loads and cannot be stopped otherwise; the child ends when this process does, however it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from fsm_agent.errors import ModelError
from fsm_agent.local.catalogue import CATALOGUE
from fsm_agent.local.sources import Progress
from fsm_agent.local.weights import ensure

__all__ = ["DEFAULT_CTX", "LocalServer", "shared", "stop_all"]

DEFAULT_CTX: Final = 8192
"""Tokens of context per slot: plenty for a windowed memory, and some 100-230 MB of memory for the two known models."""

_CHILD: Final = Path(__file__).with_name("child.py")
_LOG_LINES: Final = 200
_SHOWN_LINES: Final = 8
_CACHE_MIB: Final = 512
_STOP_SECONDS: Final = 5.0
_HTTP_SECONDS: Final = 10.0


class LocalServer:
    """A running server; a context manager that stops it.

    `base_url` is what an OpenAI client wants (`http://127.0.0.1:PORT/v1`), `alias` the model's name there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ctx: int = DEFAULT_CTX,
        threads: int | None = None,
        parallel: int = 1,
        port: int = 0,
        alias: str | None = None,
        api_key: str | None = None,
        start_timeout: float = 120.0,
    ) -> None:
        """Start the child and wait until it answers; seconds once the file is in the system's page cache.

        path: a GGUF file. ctx: tokens of context for each of the `parallel` slots. threads: default the cores this
        process may use. port: 0 takes a free one. api_key: asked of every request if given. start_timeout: seconds.

        Raises `ModelError` with the child's last lines when it does not come up.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelError(
                "the local model needs the package xllamacpp: pip install 'fsm-agent[local]'; or use a server that "
                "runs already, with --base-url; or set an API key (OPENAI_API_KEY)"
            )
        self.path = Path(path)
        self.alias = alias or self.path.name
        self.api_key = api_key
        self._owner = os.getpid()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        options = {
            "path": str(self.path),
            "alias": self.alias,
            "ctx": ctx,
            "parallel": parallel,
            "port": port,
            "threads": threads or _limited_cores(),
            "api_key": api_key,
            "cache_mib": _CACHE_MIB,
            "parent": os.getpid(),
        }
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name != "nt",  # Ctrl-C at the terminal reaches this process alone
        )
        self._reading = threading.Thread(target=self._read_log, name="fsm-agent-server-log", daemon=True)
        self._reading.start()
        try:
            self._address = self._await_address(start_timeout)
            self._props = self._get("/props")
            self._get("/health")
        except BaseException:
            self.stop()
            raise

    @property
    def base_url(self) -> str:
        """Root of the OpenAI-compatible API."""
        return f"{self._address}/v1"

    @property
    def supports_tools(self) -> bool:
        """Whether the model's own chat template knows tools; if not, `tools` would be dropped without an error."""
        caps = self._props.get("chat_template_caps")
        return isinstance(caps, dict) and caps.get("supports_tools") is True

    @property
    def running(self) -> bool:
        """Whether the child is alive."""
        return self._child.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def props(self) -> dict[str, Any]:
        """What `GET /props` answered at the start: template, its capabilities, context size."""
        return dict(self._props)

    def healthy(self) -> bool:
        """Whether the server answers now."""
        try:
            self._get("/health")
        except ModelError:
            return False
        return True

    def log(self) -> list[str]:
        """The child's last lines, oldest first."""
        return list(self._log)

    def wait(self) -> int:
        """Block until the child ends; its exit status."""
        return self._child.wait()

    def stop(self) -> None:
        """Stop the child and wait for it. Harmless when it has ended, or in a fork that does not own it."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            cast(Any, self._child.stdin).close()
        try:
            self._child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # it is still loading, and hears nothing until it has loaded
            self._child.kill()
            self._child.wait()
        self._reading.join(_STOP_SECONDS)
        for stream in (self._child.stdout, self._child.stderr):
            cast(Any, stream).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read_log(self) -> None:
        for line in cast(Any, self._child.stderr):
            self._log.append(line.decode("utf-8", "replace").rstrip())

    def _await_address(self, seconds: float) -> str:
        """The line in which the child says where it listens; a child that says nothing in time is killed."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._child.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            line = cast(Any, self._child.stdout).readline()
        finally:
            timer.cancel()
        if line:
            return str(json.loads(line)["address"])
        status = self._child.wait()
        self._reading.join(_STOP_SECONDS)
        why = f"no answer within {seconds:g} s" if late.is_set() else f"exit status {status}"
        tail = "\n  ".join(self.log()[-_SHOWN_LINES:]) or "(it said nothing)"
        raise ModelError(
            f"the local server did not start with {self.path.name}: {why}. Its last lines:\n  {tail}\n"
            "Ways out: another GGUF file; a server that runs already, with --base-url; an API key (OPENAI_API_KEY)."
        )

    def _get(self, route: str) -> dict[str, Any]:
        request = urllib.request.Request(self._address + route)  # noqa: S310 - the address is our own child's
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is never behind a proxy
        try:
            with direct.open(request, timeout=_HTTP_SECONDS) as response:
                return cast(dict[str, Any], json.loads(response.read()))
        except (OSError, ValueError) as error:
            raise ModelError(f"the local server does not answer {route}: {error}") from error


def _limited_cores() -> int | None:
    """Cores this process may use when that is fewer than the machine has; None leaves the choice to llama.cpp."""
    every = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    with contextlib.suppress(OSError, ValueError):  # a container's quota, which llama.cpp does not see
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed if allowed < every else None


_servers: Final[dict[Path, LocalServer]] = {}
_servers_lock: Final = threading.Lock()


def shared(
    name_or_path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    ctx: int = DEFAULT_CTX,
    threads: int | None = None,
    parallel: int = 1,
) -> LocalServer:
    """The one server of this process for a model: fetched and started at the first call, stopped at exit.

    A server that died is replaced. The options count for the call that starts it. Raises `ModelError`.
    """
    with _servers_lock:
        path = ensure(name_or_path, progress=progress).resolve()
        known = _servers.get(path)
        if known is not None and known.running and known._owner == os.getpid():
            return known
        if known is not None:
            known.stop()  # it died: close what is left of it
        text = os.fspath(name_or_path)
        alias = text if text in CATALOGUE else path.name
        _servers[path] = LocalServer(path, ctx=ctx, threads=threads, parallel=parallel, alias=alias)
        return _servers[path]


@atexit.register
def stop_all() -> None:
    """Stop every shared server of this process; they start again when asked for."""
    with _servers_lock:
        while _servers:
            _servers.popitem()[1].stop()
