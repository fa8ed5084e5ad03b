"""The server of a local model: a child that answers on the loopback and never outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.errors import ModelError
from fsm_agent.local import LocalServer, ensure, shared, stop_all

RUNTIME = '''
"""Stands where the runtime is: the same two names, a server that answers two routes."""
import http.server, json, threading, types

class CommonParams:
    def __init__(self):
        self.model = types.SimpleNamespace(path="")
        self.sampling = types.SimpleNamespace(temp=0.8)
        self.cpuparams = types.SimpleNamespace(n_threads=-1)

class Server:
    def __init__(self, params):
        name = params.model.path.rsplit("/", 1)[-1]
        if name == "broken.gguf":
            import sys
            print("cannot load: unknown architecture", file=sys.stderr)
            raise SystemExit(3)
        if name == "hanging.gguf":
            threading.Event().wait()
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if params.__dict__.get("api_keys") and self.headers.get("Authorization") != "Bearer secret":
                    self.send_error(401)
                    return
                body = {"/health": {"status": "ok"}, "/props": {
                    "chat_template_caps": {"supports_tools": name == "tools.gguf"},
                    "ctx": params.n_ctx, "parallel": params.n_parallel, "temp": params.sampling.temp,
                    "hosts": params.hostnames, "threads": params.cpuparams.n_threads}}[self.path]
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            def log_message(self, *args): pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", params.port), Answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{self._server.server_port}"
        print("a library that prints to standard output")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with GGUF files that a stand-in for the runtime serves."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "xllamacpp.py").write_text(RUNTIME)
    monkeypatch.setenv("PYTHONPATH", f"{runtime}{os.pathsep}{Path.cwd()}")
    monkeypatch.syspath_prepend(str(runtime))
    for name in ("tools", "plain", "broken", "hanging"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    yield tmp_path
    stop_all()


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_a_server_answers_on_the_loopback_and_stops(folder: Path) -> None:
    """The context manager starts a child on a free port, tells what it can, and leaves nothing behind."""
    with LocalServer(folder / "tools.gguf", ctx=1024, parallel=2, threads=3) as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        assert server.base_url.endswith("/v1")
        assert server.supports_tools
        assert server.healthy()
        props = server.props()
        assert (props["ctx"], props["parallel"], props["threads"]) == (2048, 2, 3)
        assert (props["temp"], props["hosts"]) == (0.0, ["127.0.0.1"])
        pid = server.pid
    assert "a library that prints to standard output" in server.log()
    assert not server.running
    assert not alive(pid)
    assert not server.healthy()
    server.stop()


def test_a_template_without_tools_is_told(folder: Path) -> None:
    """`supports_tools` is what the server's own props say of the chat template."""
    with LocalServer(folder / "plain.gguf") as server:
        assert not server.supports_tools


def test_a_key_is_asked_of_every_request(folder: Path) -> None:
    """With `api_key`, the server wants it and this class sends it."""
    with LocalServer(folder / "plain.gguf", api_key="secret") as server:
        assert server.healthy()
        server.api_key = None
        assert not server.healthy()


def test_a_failed_start_says_what_the_child_said(folder: Path) -> None:
    """The error carries the exit status, the child's last lines and the ways out."""
    with pytest.raises(ModelError, match=r"exit status 3(?s:.)*unknown architecture(?s:.)*--base-url"):
        LocalServer(folder / "broken.gguf")


def test_a_child_that_says_nothing_is_given_up(folder: Path) -> None:
    """A start that hangs ends after its timeout, with the child killed."""
    with pytest.raises(ModelError, match=r"no answer within 0\.3 s"):
        LocalServer(folder / "hanging.gguf", start_timeout=0.3)


def test_without_the_runtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra is named, and so are the ways that need no local model."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelError, match=r"pip install 'fsm-agent\[local\]'.*--base-url"):
        LocalServer(tmp_path / "any.gguf")


def test_shared_starts_one_server_a_model_and_replaces_a_dead_one(folder: Path) -> None:
    """Two calls give one child; after it died, or after `stop_all`, the next call starts another."""
    first = shared(folder / "plain.gguf")
    assert shared(str(folder / "plain.gguf")) is first
    other = shared(folder / "tools.gguf")
    assert other is not first
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = shared(folder / "plain.gguf")
    assert second is not first
    assert second.healthy()
    stop_all()
    assert not second.running
    assert not other.running


PARENT = """
import os, signal, sys
from fsm_agent.local import LocalServer, shared
start, path, ending = sys.argv[1:]
server = {"shared": shared, "own": LocalServer}[start](path)
print(server.pid, flush=True)
if ending == "fork":
    if os.fork() == 0:
        signal.alarm(60)
        signal.pause()
elif ending == "exit":
    sys.exit(0)
sys.stdin.read()
"""


def children_end(start: str, path: Path, ending: str) -> None:
    """Run a parent that ends in the given way and wait until its server's output is closed by its end."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, start, str(path), ending],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if ending != "exit":
            assert alive(pid)
            parent.kill()
        parent.wait(20)
        wait_for_end(pid)


def wait_for_end(pid: int) -> None:
    """Block until a process that is not our child has ended; fails after 15 seconds."""
    descriptor = os.pidfd_open(pid) if alive(pid) else None
    if descriptor is not None:
        import select

        readable, _, _ = select.select([descriptor], [], [], 15)
        os.close(descriptor)
        assert readable, "the server outlived its parent"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a stranger's process, which only Linux offers")
@pytest.mark.parametrize(
    ("start", "ending"), [("own", "kill"), ("shared", "kill"), ("shared", "exit"), ("own", "fork")]
)
def test_the_server_ends_with_its_parent(folder: Path, start: str, ending: str) -> None:
    """However the parent ends - normally, by SIGKILL, with a fork that keeps its files open - the child ends too."""
    children_end(start, folder / "plain.gguf", ending)


def test_a_fork_does_not_stop_its_parents_server(folder: Path) -> None:
    """The exit of a forked copy leaves the server that it does not own alone."""
    program = textwrap.dedent(
        """
        import os, sys
        from fsm_agent.local import shared, stop_all
        server = shared(sys.argv[1])
        child = os.fork()
        if child == 0:
            stop_all()
            os._exit(0)
        os.waitpid(child, 0)
        print(server.healthy())
        """
    )
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(folder / "plain.gguf")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "True"


def ask(server: LocalServer, **body: Any) -> dict[str, Any]:
    """One chat completion of a real server."""
    request = urllib.request.Request(  # noqa: S310 - the address is our own child's
        f"{server.base_url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


@pytest.mark.slow
@pytest.mark.network
def test_the_real_small_model_answers_within_a_schema() -> None:
    """`local:0.5b` on the real runtime: constrained JSON, the same twice, its prompt cached, and a clean end."""
    pytest.importorskip("xllamacpp")
    server = shared("local:0.5b")
    try:
        schema = {
            "type": "object",
            "properties": {"action": {"const": "add"}, "action_input": {"type": "object", "properties": {}}},
            "required": ["action"],
        }
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": "Add two numbers with the tool add. Reply as JSON."}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "action", "schema": schema}},
            "max_tokens": 60,
        }
        first, second = ask(server, **body), ask(server, **body)
        content = first["choices"][0]["message"]["content"]
        assert json.loads(content)["action"] == "add"
        assert second["choices"][0]["message"]["content"] == content
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert isinstance(server.supports_tools, bool)
    finally:
        stop_all()
    assert not server.running


@pytest.mark.slow
def test_a_damaged_gguf_is_a_model_error(tmp_path: Path) -> None:
    """The real runtime refuses a file that only begins like a GGUF, and its reason is shown."""
    pytest.importorskip("xllamacpp")
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"did not start with cut\.gguf(?s:.)*last lines"):
        LocalServer(ensure(tmp_path / "cut.gguf"))
