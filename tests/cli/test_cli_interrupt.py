"""Ctrl-C on a real process: one cancels the run in order, two kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsm_agent import cli
from fsm_agent.testing import call, fault, server
from tests.cli.kit import SECONDS, command, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")

PROGRAM = """
    from threading import Event
    from fsm_agent.cli.interrupt import cancelling_on_interrupt

    with cancelling_on_interrupt(lambda: False, lambda: print("told", flush=True)):
        print("open", flush=True)
        while True:
            Event().wait(60)
"""
TOOLS = """
    from threading import Event

    def hang() -> str:
        "Never returns."
        print("hanging", flush=True)
        Event().wait()
        return ""
"""


@contextmanager
def started(args: list[str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the latest at the end."""
    process = subprocess.Popen(
        args, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ends after one Ctrl-C."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


@pytest.mark.parametrize("streaming", ["--stream", "--no-stream"])
@pytest.mark.parametrize("until", ["first byte", "middle"])
def test_ctrl_c_while_the_model_is_silent_ends_the_run_in_order(tmp_path: Path, streaming: str, until: str) -> None:
    """A server that never answers holds nobody: the run is cancelled, with its summary, document and exit code 130."""
    never = threading.Event()
    with server([fault.held("It is 14.", never, after_chars=None if until == "first byte" else 3)]) as s:
        with started(command("run", "x", "--base-url", s.base_url, streaming, "--json"), tmp_path) as process:
            s.wait_for(1, SECONDS)
            code, out, err = interrupted(process)
        never.set()
    assert code == 130
    assert "cancelling; Ctrl-C again kills\n" in err
    assert "cancelled (cancelled): " in err
    assert "Traceback" not in err
    document = json.loads(out)
    assert (document["status"], document["exit_code"]) == ("cancelled", 130)
    assert document["transitions"][-1]["fsm_event"] == "cancelled"


def test_ctrl_c_while_a_tool_hangs_ends_the_run_in_order(tmp_path: Path) -> None:
    """A tool that never returns does not keep the program."""
    (tmp_path / "my_tools.py").write_text(textwrap.dedent(TOOLS), encoding="utf-8")
    with server([call("hang")]) as s:
        args = ["run", "x", "--base-url", s.base_url, "--tools", "my_tools:hang"]
        with started(command(*args), tmp_path) as process:
            assert process.stderr is not None
            wait_for_line(process.stderr.readline, "hanging")
            code, out, err = interrupted(process)
    assert (code, out) == (130, "")
    assert "cancelled (cancelled): " in err
    assert "Traceback" not in err


def test_ctrl_c_before_the_run_is_one_line(tmp_path: Path) -> None:
    """While tools are still being imported, Ctrl-C ends the program without a traceback."""
    text = "import sys, threading\nprint('importing', file=sys.stderr, flush=True)\nthreading.Event().wait()\n"
    (tmp_path / "my_tools.py").write_text(text, encoding="utf-8")
    with started(command("tools", "--tools", "my_tools:x"), tmp_path) as process:
        assert process.stderr is not None
        wait_for_line(process.stderr.readline, "importing")
        code, out, err = interrupted(process)
    assert (code, out, err) == (130, "", "cancelled\n")


def test_ctrl_c_before_any_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the commands are being put together, too."""

    def interrupted_early(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted_early)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "cancelled\n")


def test_a_second_ctrl_c_kills(tmp_path: Path) -> None:
    """When the run does not hear of the first one, the second ends the process at once."""
    with started([sys.executable, "-c", textwrap.dedent(PROGRAM)], tmp_path) as process:
        assert process.stdout is not None
        wait_for_line(process.stdout.readline, "open")
        process.send_signal(signal.SIGINT)
        wait_for_line(process.stdout.readline, "told")
        code, _, err = interrupted(process)
    assert code == -signal.SIGINT
    assert "Traceback" not in err


def test_the_first_process_of_a_container_hears_sigterm(tmp_path: Path) -> None:
    """The system drops the signal where process 1 does not handle it: `docker stop` would wait, and kill."""
    first = "import os, sys; os.getpid = lambda: 1; from fsm_agent import cli; cli.main()"
    never = threading.Event()
    with server([fault.held("It is 14.", never)]) as s:
        args = [sys.executable, "-c", first, "run", "x", "--base-url", s.base_url]
        with started(args, tmp_path) as process:
            s.wait_for(1, SECONDS)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
        never.set()
    assert process.returncode == 128 + signal.SIGTERM


def wait_for_line(readline: Callable[[], str], wanted: str) -> None:
    """Read lines until the wanted one."""
    while line := readline():
        if line.strip() == wanted:
            return
    raise AssertionError(f"it ended without saying {wanted!r}")
