"""The live view: what it shows, that it fits, and that a real terminal is left as it was."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from fsm_agent.alphabet import Event, State
from fsm_agent.cli.picture import Picture, as_read, describe, draw
from fsm_agent.limits import Limits
from fsm_agent.machine import Evaluated
from fsm_agent.records import Transitioned
from fsm_agent.testing import call, fault, server
from fsm_agent.visible import safe
from tests.cli.kit import SECONDS, command, environment

pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX")

LETTER = """
from fsm_agent import tool

@tool(requires_approval=True)
def send(to: str, copies: int = 1) -> str:
    "Send a letter."
    return f"sent {copies} to {to}"
"""


def record(
    source: State, event: Event, target: State, *, step: int = 1, tools: tuple[str, ...] = (), **more: object
) -> Transitioned:
    """A transition record with what matters here."""
    values: dict[str, object] = {
        "run_id": "r", "seq": 7, "source": source, "event": event, "target": target, "guards": (), "step": step,
        "tokens": 1234, "estimated_tokens": 0, "model_calls": 1, "tool_calls": 0, "failures": 0, "tools": tools,
        "signatures": (), "repairs": (), "elapsed_ms": 1.0, "at": 1.0,
    }  # fmt: skip
    return Transitioned(**{**values, **more})  # type: ignore[arg-type] # the keywords of the record


def drawn(picture: Picture, now: float, width: int = 80) -> list[str]:
    """What a terminal of this width shows."""
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    console.print(draw(picture, Limits(), now, console))
    return console.export_text().splitlines()


def test_the_view_shows_state_tool_step_time_and_tokens() -> None:
    """One look says where the run is, since when, and how much is used up."""
    start = Picture(started=100.0, since=100.0)
    assert re.fullmatch(
        r"\S PLAN asking the model 2\.0 s +step 1/10  2\.0 s  0 of 100,000 tokens", drawn(start, 102.0)[-1]
    )
    running = start.after(record(State.VALIDATE, Event.ACCEPTED, State.EXECUTE, tools=("search",)), 103.0)
    assert re.fullmatch(
        r"\S EXECUTE running search 1\.5 s +step 1/10  4\.5 s  1,234 of 100,000 tokens", drawn(running, 104.5)[-1]
    )
    planning = running.after(record(State.DECIDE, Event.DECIDED, State.PLAN, step=1, estimated_tokens=5), 105.0)
    assert re.search(r"PLAN asking the model .*step 2/10 .* ~1,234 of 100,000 tokens$", drawn(planning, 105.0)[-1])


def test_the_view_keeps_the_last_transitions_with_their_guards() -> None:
    """The newest transitions stand above the status, with the guards that fired and the failure."""
    guards = (Evaluated("steps_spent", True, {}), Evaluated("no_progress", False, {}))
    picture = Picture(started=0.0, since=0.0)
    for seq in range(1, 20):
        picture = picture.after(record(State.DECIDE, Event.DECIDED, State.PLAN, seq=seq, guards=guards), 0.0)
    lines = drawn(
        picture.after(record(State.OBSERVE, Event.OBSERVED, State.DECIDE, seq=20, error="it\nfell"), 0.0), 0.0
    )
    assert lines[-2] == "  20 OBSERVE --observed--> DECIDE (it fell)"
    assert lines[-3] == "  19 DECIDE --decided--> PLAN [steps_spent]"
    assert len(lines) == 7


@example("0", ["\n", "\n"], 43, State.REVIEW)
@given(
    st.text(max_size=300),
    st.lists(st.text(max_size=60), max_size=5),
    st.integers(30, 120),
    st.sampled_from(list(State)),
)
def test_the_view_always_fits(said: str, tools: list[str], width: int, state: State) -> None:
    """Whatever a model writes and tools are called, no line is wider than the terminal, and there are few."""
    picture = Picture(started=0.0, since=0.0).after(
        record(State.VALIDATE, Event.ACCEPTED, state, tools=tuple(tools), error=said), 0.0
    )
    lines = drawn(picture.said(said), 3.0, width)
    console = Console(width=width)
    assert all(console.measure(line).maximum <= width for line in lines)
    assert len(lines) <= 6
    assert not any(char in "".join(lines) for char in "\x1b\x07\x9b\u202e")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("It is 14.", "It is 14."),
        ('{"action": "FINISH", "action_input": {"answer": "It is \\"14\\"', 'It is "14"'),
        ('{"action": "FINISH", "action_input": {"answer": "a\\u00', "a\\u00"),
        ('```json\n{"action": "THINK", "action_input": {"thought": "hm', "hm"),
        ('{"action": "search", "action_input": {"q": "x"}}', "calls search ..."),
        ('{"action": "sea', ""),
        ('{"act', ""),
        ("", ""),
        ('{"name": "Ana"}', '{"name": "Ana"}'),
    ],
)
def test_half_a_reply_is_shown_as_a_person_reads_it(text: str, read: str) -> None:
    """Of the JSON action dialect the answer is shown while it is written, not its wrapping."""
    assert as_read(text) == read


@given(st.text(max_size=80))
def test_any_half_reply_can_be_shown(text: str) -> None:
    """What a model writes never breaks the view."""
    for prefix in ("", '{"action": "FINISH", "action_input": {"answer": "'):
        assert isinstance(as_read(prefix + text), str)


@given(st.text())
def test_nothing_that_steers_a_terminal_is_shown(text: str) -> None:
    """Control, direction and invisible characters are written out; other text stays as it is."""
    shown = safe(text)
    harmful = {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert harmful <= set("\n\t\u200c\u200d")
    if text.isprintable():
        assert shown == text


def test_a_transition_names_its_tools_only_where_they_matter() -> None:
    """The tools stand in the line that leads to EXECUTE or to a person."""
    line = describe(record(State.VALIDATE, Event.ACCEPTED, State.REVIEW, tools=("send", "send")))
    assert line == "   7 VALIDATE --accepted--> REVIEW send, send"
    assert describe(record(State.EXECUTE, Event.EXECUTED, State.OBSERVE, tools=("send",))).endswith("OBSERVE")


# ---------------------------------------------------------------- a real terminal


def at_a_terminal(args: list[str], cwd: Path, typed: str = "", *, ahead: str = "") -> tuple[int, str, str]:
    """(exit code, standard output, what the terminal was sent) of a process whose stdin and stderr are a terminal.

    `ahead` is typed before it begins, `typed` at its first question.
    """
    leader, follower = pty.openpty()
    os.write(leader, ahead.encode())
    env = environment(TERM="xterm-256color", COLUMNS="80", LINES="24")
    with subprocess.Popen(
        args, cwd=cwd, env=env, stdin=follower, stderr=follower, stdout=subprocess.PIPE, text=True
    ) as process:
        os.close(follower)
        seen = b""
        try:
            while piece := os.read(leader, 65536):
                seen += piece
                if typed and b"reason to refuse: " in seen:
                    os.write(leader, typed.encode())
                    typed = ""
        except OSError:
            pass  # how Linux says that the other side is closed
        finally:
            os.close(leader)
        assert process.stdout is not None
        out = process.stdout.read()
        return process.wait(SECONDS), out, seen.decode()


def test_a_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    """The view redraws in place, takes its lines away and gives the cursor back; the answer goes to standard output."""
    with server([call("calculator", expression="2+3*4"), "It is 14."]) as s:
        code, out, seen = at_a_terminal(command("run", "x", "--base-url", s.base_url), tmp_path)
        assert [one.stream for one in s.requests] == [True, True]
    assert (code, out) == (0, "It is 14.\n")
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25l\x1b[?25h") == 1
    assert "PLAN" in seen
    rest = seen.rpartition("\x1b[?25h")[2]
    assert re.match(r"\r(\x1b\[1A\x1b\[2K)+", rest)
    assert "--replied-->" not in rest
    assert "completed (answered)" in re.sub(r"\x1b\[[0-9;]*m", "", rest)


def test_a_run_that_is_killed_leaves_the_cursor(tmp_path: Path) -> None:
    """Whatever signal ends the program at once, nobody has to bring the cursor of the terminal back."""
    never = threading.Event()
    with server([fault.held("It is 14.", never)]) as s:
        leader, follower = pty.openpty()
        env = environment(TERM="xterm-256color", COLUMNS="80", LINES="24")
        args = command("run", "x", "--base-url", s.base_url)
        with subprocess.Popen(args, cwd=tmp_path, env=env, stdin=follower, stderr=follower) as process:
            os.close(follower)
            seen = b""
            while b"PLAN" not in seen:
                seen += os.read(leader, 65536)
            process.kill()
        os.close(leader)
        never.set()
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l")


def test_no_color_is_honoured(tmp_path: Path) -> None:
    """With NO_COLOR nothing is coloured, at a terminal too."""
    (tmp_path / "no.env").write_text("", encoding="utf-8")
    with server(["14"]) as s:
        env = ["env", "NO_COLOR=1"]
        _, _, seen = at_a_terminal([*env, *command("run", "x", "--base-url", s.base_url)], tmp_path)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", seen)


@pytest.mark.parametrize(
    ("typed", "sent", "told"),
    [
        ("y\n", "sent 1 to Ana", None),
        ('e\n{"to": "Bo", "copies": 2}\n', "sent 2 to Bo", None),
        ('\ne\n{"to": 5}\ne\nno json\ne\n\ny\n', "sent 1 to Ana", None),
        ("n\n", None, "no reason was given"),
        ("Ana has moved\n", None, "Ana has moved"),
    ],
)
def test_a_person_decides_at_the_terminal(tmp_path: Path, typed: str, sent: str | None, told: str | None) -> None:
    """Yes, no with a reason, and edited arguments that are checked first: what is typed is what happens."""
    (tmp_path / "letters.py").write_text(LETTER, encoding="utf-8")
    with server([call("send", to="Ana"), "Done."]) as s:
        args = command("run", "x", "--base-url", s.base_url, "--tools", "letters:send")
        code, out, seen = at_a_terminal(args, tmp_path, typed)
        result = s.requests[1].text
    assert (code, out) == (0, "Done.\n")
    assert "approve? " in seen
    assert '"to": "Ana"' in seen
    assert (sent or told or "") in result
    assert ("sent" in result) is (sent is not None)


def test_a_person_is_asked_at_a_terminal_that_cannot_redraw(tmp_path: Path) -> None:
    """A question is a line of its own: it needs no terminal that can move the cursor, as one in an editor cannot."""
    (tmp_path / "letters.py").write_text(LETTER, encoding="utf-8")
    with server([call("send", to="Ana"), "Done."]) as s:
        args = command("run", "x", "--base-url", s.base_url, "--tools", "letters:send")
        code, out, seen = at_a_terminal(["env", "TERM=dumb", *args], tmp_path, "y\n")
    assert (code, out) == (0, "Done.\n")
    assert "\x1b" not in seen


def test_what_was_typed_before_a_call_is_shown_is_no_answer(tmp_path: Path) -> None:
    """A yes that waits in the terminal, or is typed twice, lets no call through that nobody has seen."""
    (tmp_path / "letters.py").write_text(LETTER, encoding="utf-8")
    with server([call("send", to="Ana"), "Done."]) as s:
        args = command("run", "x", "--base-url", s.base_url, "--tools", "letters:send")
        code, out, _ = at_a_terminal(args, tmp_path, "n\n", ahead="y\ny\n")
        assert "sent" not in s.requests[1].text
    assert (code, out) == (0, "Done.\n")


ASKED = """
import os, pty, sys

def read(fd):
    global typed
    data = os.read(fd, 65536)
    if b"reason to refuse: " in data:
        os.write(fd, typed)
    return data

typed = sys.argv[1].encode()
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[2:], read)))
"""


def in_a_terminal(args: list[str], cwd: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    """A process that has a terminal of its own, for all its streams: a Ctrl-C that is typed at the question is a signal."""
    return subprocess.run(
        [sys.executable, "-c", ASKED, typed, *args],
        cwd=cwd,
        env=environment(TERM="xterm"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_an_answer_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """At a terminal control characters of an answer are written out; a pipe gets the answer letter for letter."""
    answer = "\x1b]0;owned\x07 14"
    with server([answer, answer]) as s:
        args = command("run", "x", "--base-url", s.base_url)
        shown = in_a_terminal(args, tmp_path).stdout
        piped = at_a_terminal(args, tmp_path)[1]
    assert r"\x1b]0;owned\x07 14" in shown
    assert answer not in shown
    assert piped == f"{answer}\n"


@pytest.mark.parametrize(("typed", "code", "ending"), [("q\n", 1, "failed (denied)"), ("\x03", 130, "cancelled")])
def test_a_person_stops_the_run_at_the_terminal(tmp_path: Path, typed: str, code: int, ending: str) -> None:
    """`q` ends the run as denied, Ctrl-C at the question as cancelled; nothing is called, and nobody asked again."""
    (tmp_path / "letters.py").write_text(LETTER, encoding="utf-8")
    with server([call("send", to="Ana")]) as s:
        args = command("run", "x", "--base-url", s.base_url, "--tools", "letters:send")
        done = in_a_terminal(args, tmp_path, typed)
    assert done.returncode == code
    assert ending in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout)
    assert "Traceback" not in done.stdout
