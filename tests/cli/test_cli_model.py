"""Local models on the command line: fetched with progress, listed, found, served, and used by a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.cli import weights
from fsm_agent.errors import ModelError
from fsm_agent.local import stop_all
from tests.cli.kit import ROOT, SECONDS, command, environment, fsm

# Stands where the runtime is: the same two names, and a scripted server behind them.
RUNTIME = """
import os, threading, types
from pathlib import Path
from fsm_agent.testing import fault, server

class CommonParams:
    def __init__(self):
        self.model = types.SimpleNamespace(path="")
        self.sampling = types.SimpleNamespace(temp=0.8)
        self.cpuparams = types.SimpleNamespace(n_threads=-1)

class Server:
    def __init__(self, params):
        if params.model.path.endswith("broken.gguf"):
            raise SystemExit("unknown architecture")
        finish = '{"action": "FINISH", "action_input": {"answer": "It is 14."}}'
        call = '{"action": "calculator", "action_input": {"expression": "2+3*4"}}'
        replies = lambda request: finish if ") = 14" in request.text else call
        routes = {"/health": {"status": "ok"}, "/props": {"chat_template_caps": {}}}
        if params.model.path.endswith("silent.gguf"):
            Path(params.model.path).with_suffix(".pid").write_text(str(os.getpid()))
            replies = lambda request: fault.held("never", threading.Event())
        self.server = server(replies, routes=routes)
        self.listening_address = self.server.base_url.removesuffix("/v1")
"""


@pytest.fixture(name="gguf")
def _gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A GGUF file that the stand-in serves."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "xllamacpp.py").write_text(RUNTIME, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{runtime}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(str(runtime))
    for name in ("small", "broken", "silent"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    yield tmp_path / "small.gguf"
    stop_all()


@pytest.fixture(name="empty_cache", autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of weights with nothing in it."""
    monkeypatch.setenv("FSM_AGENT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_run_starts_and_uses_a_model_of_this_machine(gguf: Path) -> None:
    """A GGUF file is served in a child, asked in the dialect for small models, and says what it took to start."""
    done = fsm("run", "What is 2+3*4?", "--model", str(gguf))
    assert (done.code, done.out) == (0, "It is 14.\n")
    assert f"model {gguf} (--model)" in done.err
    assert f"{gguf} started in " in done.err


def test_a_local_server_that_does_not_start_is_exit_2_with_its_last_lines(gguf: Path) -> None:
    """What the runtime said is shown, and the ways out."""
    done = fsm("run", "x", "--model", str(gguf.with_name("broken.gguf")))
    assert (done.code, done.out) == (2, "")
    assert "unknown architecture" in done.err
    assert "--base-url" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("args", [["run", "x", "--model"], ["model", "path"], ["model", "pull"], ["model", "serve"]])
def test_a_model_that_does_not_exist_is_exit_2(args: list[str]) -> None:
    """The known names are said, and that a GGUF file would do."""
    done = fsm(*args, "local:70b")
    assert (done.code, done.out) == (2, "")
    assert "local:1.5b, local:0.5b" in done.err


def test_models_are_listed_without_the_network(empty_cache: Path) -> None:
    """Name, size, and whether the weights are here."""
    listed = fsm("model", "list", "--json").document
    assert [(one["name"], one["bytes"], one["cached"]) for one in listed] == [
        ("local:1.5b", 1117320768, False),
        ("local:0.5b", 491400064, False),
    ]
    shown = fsm("model", "list")
    assert "1,117 MB" in shown.out
    assert str(empty_cache) in shown.err
    assert max(map(len, shown.out.splitlines())) <= 80


def test_a_path_is_printed_alone_or_the_way_to_get_it_said(gguf: Path) -> None:
    """The path is for `$(...)`; weights that are not here are an error with the command that fetches them."""
    assert fsm("model", "path", str(gguf)).out == f"{gguf}\n"
    done = fsm("model", "path", "local:0.5b")
    assert (done.code, done.out) == (2, "")
    assert "fsm-agent model pull local:0.5b" in done.err


def test_a_download_reports_each_tenth_once_where_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of a pipe gets some ten lines for a gigabyte, not ten thousand, and the path goes to standard output."""
    file = tmp_path / "w.gguf"
    file.write_bytes(b"GGUF")

    def ensure(name: str, *, progress: Any = None, source: str | None = None) -> Path:
        assert (name, source) == ("local:0.5b", "hub")
        for part in range(1001):
            progress(part * 1_000_000, 1_000_000_000, f"downloading local:0.5b, part {part // 100 + 1} of 10")
        return file

    monkeypatch.setattr(weights, "cached", lambda name: None)
    monkeypatch.setattr(weights, "ensure", ensure)
    monkeypatch.setattr("fsm_agent.cli.model.ensure", lambda name: file)
    done = fsm("model", "pull", "local:0.5b", "--source", "hub")
    assert (done.code, done.out) == (0, f"{file}\n")
    lines = done.err.splitlines()
    assert len(lines) == 12
    assert lines[5] == "downloading local:0.5b, part 6 of 10: 500 of 1,000 MB"
    assert lines[-1] == f"local:0.5b is here and its hash is right: {file}"
    assert fsm("model", "pull", "local:0.5b", "--source", "hub", "--quiet").err == ""
    monkeypatch.setattr(weights, "interactive", lambda stream: True)
    assert fsm("model", "pull", "local:0.5b", "--source", "hub").code == 0


def test_a_download_that_fails_is_one_line_and_exit_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` with a model that cannot be fetched ends before anything runs."""

    def ensure(name: str, **_: Any) -> Path:
        raise ModelError(f"{name} is not here and could not be fetched: no network. Ways out: another network.")

    monkeypatch.setattr(weights, "ensure", ensure)
    done = fsm("run", "x", "--model", "local:0.5b")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith("error: local:0.5b is not here")


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_ctrl_c_leaves_no_server_behind(gguf: Path) -> None:
    """Ctrl-C while the local model is thinking ends the run in order, and its server with it."""
    silent = gguf.with_name("silent.gguf")
    env = environment(PYTHONPATH=os.environ["PYTHONPATH"])
    running = subprocess.Popen(
        command("run", "x", "--model", str(silent)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with running:
        try:
            assert running.stderr is not None
            while " started in " not in running.stderr.readline():
                pass
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=SECONDS)
        finally:
            running.kill()
    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(int(silent.with_suffix(".pid").read_text(encoding="utf-8")), 0)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_serve_prints_the_base_url_and_stops_on_ctrl_c(gguf: Path) -> None:
    """The URL stands alone on standard output, an agent can use it, and Ctrl-C ends server and command with exit 0."""
    env = environment(PYTHONPATH=os.environ["PYTHONPATH"])
    serving = subprocess.Popen(
        command("model", "serve", str(gguf)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().strip()
            done = fsm("run", "What is 2+3*4?", "--base-url", url, "--dialect", "json_action", "--quiet")
            assert (done.code, done.out) == (0, "It is 14.\n")
            serving.send_signal(signal.SIGINT)
            out, err = serving.communicate(timeout=SECONDS)
        finally:
            serving.kill()
    assert (serving.returncode, out) == (0, "")
    assert err.endswith("stopped\n")
    assert fsm("run", "x", "--base-url", url, "--model", "m").code == 1
