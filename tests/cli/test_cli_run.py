"""`fsm-agent run` against a real HTTP server: what goes where, and the exit code of each ending."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest
import structlog

from fsm_agent.policy import AtMost, ToolPolicy
from fsm_agent.testing import call, fault, server
from tests.cli.kit import command, environment, fsm, process, run_with

SUM = call("calculator", expression="2+3*4")
# ---------------------------------------------------------------- what goes where


def test_the_answer_and_nothing_else_goes_to_standard_output() -> None:
    """Standard output can be piped into the next program; the summary is on standard error."""
    done = run_with([SUM, "It is 14."])
    assert (done.code, done.out) == (0, "It is 14.\n")
    assert "completed (answered): answered after 2 steps" in done.err
    assert "calculator(expression='2+3*4', precision=None) -> 14\n" in done.err
    assert "2 steps, 2 model calls, 1 tool call, 30 tokens, " in done.err
    assert re.search(r"^run [0-9a-f-]{36}$", done.err, re.MULTILINE)


def test_every_transition_is_one_plain_line_where_nobody_watches() -> None:
    """A log of a pipe holds no control sequences and each transition once, with the guards that fired."""
    done = run_with([SUM, "It is 14."], "--max-steps", "1")
    lines = [line for line in done.err.splitlines() if "--" in line and "-->" in line]
    assert [line.split()[2] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
    assert "\x1b" not in done.err
    assert "\r" not in done.err
    assert any("EXECUTE calculator" in line for line in lines)
    assert any("DECIDE --decided--> DEGRADE [steps_spent, can_answer_now]" in line for line in lines)


def test_a_log_says_that_the_model_is_asked_while_it_thinks(tmp_path: Path) -> None:
    """Who watches a pipe sees what the run waits for, from its first second on: the model, and each tool by its name."""
    thought = threading.Event()
    with server([fault.held(SUM, thought), "It is 14."]) as s:
        args = command("run", "x", "--base-url", s.base_url)
        with subprocess.Popen(
            args, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            lines = [process.stderr.readline() for _ in range(2)]
            thought.set()
            lines += process.stderr.read().splitlines()
    assert lines[0].startswith("model openai:fake at ")
    assert lines[1] == "   0.0 s      asking the model\n"
    assert sum("asking the model" in line for line in lines) == 2
    (running,) = [number for number, line in enumerate(lines) if line.endswith(" s      running calculator")]
    assert "VALIDATE --accepted--> EXECUTE calculator" in lines[running - 1]
    assert "EXECUTE --executed--> OBSERVE" in lines[running + 1]


def test_the_model_and_the_reason_for_it_are_said() -> None:
    """Nobody has to guess which model answered."""
    with server(["14"]) as s:
        done = fsm("run", "2+3*4?", "--base-url", s.base_url)
        assert f"model openai:fake at {s.base_url} (the server at {s.base_url})" in done.err
    with server(["14"]) as s:
        done = fsm("run", "2+3*4?", "--base-url", s.base_url, "--model", "other:7b")
        assert s.requests[0].body["model"] == "other:7b"
    assert "(--model)" in done.err


DEAF = {"/props": {"chat_template_caps": {"supports_tools": False}}}
"""What llama.cpp says of a chat template without tools, which it drops without an error."""


def test_where_a_chat_template_has_no_tools_the_run_is_in_json() -> None:
    """The calculator is called all the same, and that is said; a dialect that is named, or a profile's, is taken unasked."""
    call = '{"action": "calculator", "action_input": {"expression": "2+3*4"}}'
    with server([call, '{"action": "FINISH", "action_input": {"answer": "14"}}'], routes=DEAF) as s:
        done = fsm("run", "2+3*4?", "--base-url", s.base_url)
        assert (done.code, done.out) == (0, "14\n")
        assert "its chat template has no tools: asked as json_action" in done.err
        assert all("tools" not in one.body and "response_format" in one.body for one in s.requests)
    for named in (["--dialect", "native"], ["--profile", "native"]):
        with server(["14"], routes=DEAF) as s:
            done = fsm("run", "2+3*4?", "--base-url", s.base_url, *named)
            assert "json_action" not in done.err
            assert "/props" not in s.paths


def test_quiet_leaves_only_the_answer() -> None:
    """With --quiet a run that went well says nothing on standard error."""
    done = run_with([SUM, "It is 14."], "--quiet")
    assert (done.code, done.out, done.err) == (0, "It is 14.\n", "")


def test_quiet_still_says_why_there_is_no_answer() -> None:
    """A failure is never silent."""
    done = run_with([SUM], "-q", "--max-steps", "1", "--on-limit", "stop")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("failed (max_steps)")


def test_the_task_is_read_from_standard_input() -> None:
    """`-` reads the task, line breaks and other scripts included."""
    with server(["14"]) as s:
        done = fsm("run", "-", "--base-url", s.base_url, stdin="What is\n2 + 3 × 4？\n")
        assert "What is\n2 + 3 × 4？\n" in s.requests[0].text
    assert done.code == 0


def test_bytes_that_are_no_text_do_not_break_the_task(here: Path) -> None:
    """Broken bytes, on the command line or on standard input, are sent as question marks."""
    with server(["fine", "fine"]) as s:
        for task in (b"caf\xe9", b"-"):
            args = [*command("run"), task, "--base-url", s.base_url, "-q"]
            env = environment(LC_ALL="C.UTF-8")
            done = subprocess.run(args, cwd=here, env=env, input=b"caf\xe9", capture_output=True, check=False)
            assert (done.returncode, done.stdout) == (0, b"fine\n")
        assert all("caf?" in request.text for request in s.requests)


@pytest.mark.parametrize(
    ("closed", "args", "code", "said"),
    [
        ("<&-", ["run", "-"], 2, "error: the task is empty"),
        (">&-", ["run", "x", "-q"], 0, ""),
        ("2>&-", ["run", "x"], 0, "fine"),
        ("<&- >&- 2>&-", ["run", "x"], 0, ""),
    ],
)
def test_a_stream_that_is_closed_is_the_null_device(
    here: Path, closed: str, args: list[str], code: int, said: str
) -> None:
    """A daemon's process has no standard streams: nothing is read, what is said is dropped, and the run is none the worse."""
    with server(["fine"] if code == 0 else []) as s:
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", *command(*args), "--base-url", s.base_url]
        done = subprocess.run(line, cwd=here, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("args", [["table"], ["table", "--json"], ["--help"], ["--version"]])
def test_an_output_that_cannot_be_written_is_one_line(here: Path, args: list[str]) -> None:
    """A disk that is full below `fsm-agent ... > FILE` is an error of one line, and no success."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*args), cwd=here, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("args", [["run", "x"], ["run", "x", "--log"]])
def test_what_standard_error_does_not_take_breaks_off_no_run(here: Path, args: list[str]) -> None:
    """A full disk below `2> FILE`, or a terminal that was hung up, loses the view of the run and nothing else."""
    with server(["fine"]) as s, Path("/dev/full").open("w") as full:
        line = [*command(*args), "--base-url", s.base_url]
        done = subprocess.run(
            line, cwd=here, env=environment(), stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_an_output_that_does_not_wait_gets_everything(here: Path) -> None:
    """A pipe that a program sharing it set to not waiting takes more than it has room for, piece by piece."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    long = "fine " * 100_000
    with server([long]) as s, os.fdopen(reader, encoding="utf-8") as written:
        line = [*command("run", "x", "-q"), "--base-url", s.base_url]
        with subprocess.Popen(line, cwd=here, env=environment(), stdout=writer) as running:
            os.close(writer)
            assert written.read().strip() == long.strip()
    assert running.returncode == 0


def test_a_terminal_of_no_width_hides_nothing(here: Path) -> None:
    """COLUMNS=0, as a container without a terminal may have it, says that nobody knows the width."""
    at = {**environment(), "COLUMNS": "0", "LINES": "0"}
    done = subprocess.run(command("show", "x"), cwd=here, env=at, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:21]) == (2, "error: no store is gi")


def test_a_current_directory_that_was_removed_is_named(here: Path) -> None:
    """The error says what is missing, although the system names no file."""
    line = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", *command("run", "x")]
    done = subprocess.run(line, cwd=here, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the current directory was removed: go to one that is there\n")


def test_an_empty_task_is_refused_before_anything_runs() -> None:
    """No model is asked about nothing."""
    done = run_with([], task="-", stdin="  \n")
    assert (done.code, done.out) == (2, "")
    assert "error: the task is empty" in done.err


# ---------------------------------------------------------------- exit codes


def test_an_answer_forced_at_a_limit_exits_with_3() -> None:
    """A partial answer is printed, and told apart from a complete one."""
    done = run_with([SUM, "14, I think"], "--max-steps", "1")
    assert (done.code, done.out) == (3, "14, I think\n")
    assert "partial (forced_answer): " in done.err
    assert "steps_spent: steps=1, max_steps=1" in done.err


def test_a_failed_run_exits_with_1() -> None:
    """What a model does ends the run, typed; it is no error of the command."""
    done = run_with([fault.unauthorized()])
    assert (done.code, done.out) == (1, "")
    assert "failed (model_failed): " in done.err
    assert "Traceback" not in done.err


def test_a_run_that_needs_a_person_exits_with_4(here: Path) -> None:
    """Where nobody can be asked, the call is not made, and how to decide is said."""
    done = run_with([call("send", to="Ana")], "--tools", "my_tools:send")
    assert (done.code, done.out) == (4, "")
    said = "suspended: waits for a person to decide about send\n  call_1_0  send(to='Ana')\nNobody can be asked here"
    assert f"{said}, so the run ends." in done.err
    assert "--approve yes|no" in done.err
    assert not (here / "sent.txt").exists()


def test_approve_yes_runs_what_needs_approval(here: Path) -> None:
    """With --approve yes the call is made."""
    done = run_with([call("send", to="Ana"), "Done."], "--tools", "my_tools:send", "--approve", "yes")
    assert (done.code, done.out) == (0, "Done.\n")
    assert (here / "sent.txt").read_text(encoding="utf-8") == "Ana\n"


def test_approve_no_refuses_what_needs_approval(here: Path) -> None:
    """With --approve no the model is told, and the call is not made."""
    with server([call("send", to="Ana"), "I may not."]) as s:
        done = fsm("run", "Write", "--base-url", s.base_url, "--tools", "my_tools:send", "--approve", "no")
        assert "A person refused this call" in s.requests[1].text
    assert (done.code, done.out) == (0, "I may not.\n")
    assert not (here / "sent.txt").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--max-steps", "0"], "max_steps: Input should be greater than or equal to 1, got '0'"),
        (["--max-steps", "many"], "max_steps: Input should be a valid integer"),
        (["--dialect", "latin"], "dialect 'latin' does not exist; there are native"),
        (["--memory", "window:0"], "rounds must be a whole number of at least 1"),
        (["--memory", "all"], "--memory 'all': write full, window:N"),
        (["--memory", "dual:3"], "--memory 'dual:3': write full, window:N"),
        (["--memory", "summary:"], "--memory 'summary:': write full, window:N"),
        (["--memory", "messages:0"], "messages must be a whole number of at least 1"),
        (["--tools", "nowhere:tool"], "there is no module nowhere, neither installed nor in"),
        (["--tools", "my_tools.py:send"], "there is no module my_tools.py; write my_tools:..."),
        (["--tools", "./kit/my_tools.py:send"], "there is no module ./kit/my_tools.py; write kit.my_tools:..."),
        (["--table", "kit/loop:TABLE"], "there is no module kit/loop; write kit.loop:..."),
        (["--tools", "my_tools"], "write MODULE:ATTR"),
        (["--tools", "my_tools:nothing"], "my_tools has no nothing; it has "),
        (["--tools", "my_tools:broken()"], "calling it failed: RuntimeError: no tools today"),
        (["--tools", "my_tools:leave()"], "calling it failed: SystemExit: 0"),
        (["--tools", "script:tool"], "importing it failed: SystemExit: 0"),
        (["--tools", "my_tools:number"], "a tool is a Tool, a LangChain tool or a typed function, not 5"),
        (["--files", "missing"], "the root 'missing' is not a directory"),
        (["--env-file", "missing.env"], "--env-file missing.env: No such file or directory"),
        (["--policy", "missing.json"], "--policy 'missing.json' cannot be read"),
        (["--policy", "pay.json"], "names a tool 'pay' that the agent does not have"),
        (["--table", "my_tools:number"], "--table 'my_tools:number' is a int: name what"),
        (["--profile", "lazy"], "profile 'lazy' does not exist; there are session"),
        (["--thread", "ana"], "say where its messages are kept"),
        (["--thread", "", "--conversations", "threads.db"], "--thread names nothing"),
        (["--thread", "ana", "--conversations", ""], "--conversations names nothing"),
        (["--conversations", "threads.db"], "name it with --thread NAME"),
        (["--store", "runs.jsonl"], "JSON Lines are kept in a directory"),
        (["--approve", "defer"], "so it needs --store FILE"),
    ],
)
def test_a_wrong_definition_is_one_red_line_and_exit_2(here: Path, args: list[str], said: str) -> None:
    """What is wrong, where, and what to do: before the server is asked for its models, and without a traceback."""
    rules = ToolPolicy(AtMost("pay", 1)).to_data()
    (here / "pay.json").write_text(json.dumps(rules), encoding="utf-8")
    (here / "script.py").write_text("raise SystemExit(0)", encoding="utf-8")
    with server([]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, *args)
    assert s.paths == []
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_debug_shows_where_an_error_comes_from(here: Path) -> None:
    """--debug adds the traceback, before or after the name of the command."""
    for args in (["--debug", "run", "x"], ["run", "x", "--debug"]):
        done = fsm(*args, "--tools", "my_tools:broken()", "--model", "openai:fake")
        assert done.code == 2
        assert "Traceback" in done.err
        assert "no tools today" in done.err


@pytest.mark.parametrize(
    "args", [["run", "x", "--files"], ["tools", "--files"], ["resume", "x", "--files"], ["demo", "--dir"]]
)
def test_an_option_for_a_directory_that_names_nothing_is_refused(args: list[str]) -> None:
    """A variable that is not set does not open the current directory to a model."""
    done = fsm(*args, "")
    assert (done.code, done.out) == (2, "")
    assert "it is empty" in done.err


def test_an_unknown_option_exits_with_2() -> None:
    """Wrong usage has the exit code that shells expect."""
    assert fsm("run", "x", "--colour").code == 2
    assert fsm("fly").code == 2


# ---------------------------------------------------------------- the document


def test_json_is_one_document_with_the_whole_result() -> None:
    """--json gives a program everything: ending, answer, counts, transitions as logged, messages as OpenAI's."""
    done = run_with([SUM, "It is 14."], "--json")
    found = done.document
    assert (found["status"], found["reason"], found["answer"]) == ("completed", "answered", "It is 14.")
    assert (found["exit_code"], found["model"], found["steps"], found["tool_calls"]) == (0, "openai:fake", 2, 1)
    assert found["usage"] == {"input": 20, "output": 10, "total": 30, "estimated": 0}
    assert [one["seq"] for one in found["transitions"]] == list(range(1, len(found["transitions"]) + 1))
    assert {one["run_id"] for one in found["transitions"]} == {found["run_id"]}
    assert found["calls"] == [
        {"tool": "calculator", "arguments": {"expression": "2+3*4", "precision": None}, "result": "14"}
    ]
    assert [one["role"] for one in found["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "completed (answered)" in done.err
    assert "asking the model" not in done.err


def test_json_of_a_suspended_run_says_what_is_asked(here: Path) -> None:
    """The calls that wait for a person are in the document, arguments included."""
    done = run_with([call("send", to="Ana")], "--tools", "my_tools:send", "--json")
    assert done.code == 4
    assert done.document["status"] == "suspended"
    (pending,) = done.document["pending"]
    assert (pending["tool"], pending["arguments"]) == ("send", {"to": "Ana"})


def test_what_tools_print_stays_out_of_the_document(here: Path) -> None:
    """Neither print, nor the file descriptor, nor a child process of a tool reaches standard output during a run."""
    with server([call("shout", text="hi"), "HI"]) as s:
        args = ["run", "Shout hi", "--base-url", s.base_url, "--tools", "my_tools:shout", "--json"]
        done = process(*args, cwd=here)
    assert done.code == 0
    assert done.document["answer"] == "HI"
    for printed in ("FROM PRINT", "FROM DESCRIPTOR", "FROM CHILD"):
        assert printed not in done.out
        assert printed in done.err


def test_a_narrow_encoding_does_not_break_the_output(here: Path) -> None:
    """An answer that the terminal's encoding cannot write is escaped, and the document stays JSON."""
    answer = "答案是 14 😀"
    with server([answer, answer]) as s:
        args = ["run", "x", "--base-url", s.base_url]
        plain = process(*args, cwd=here, PYTHONIOENCODING="ascii")
        document = process(*args, "--json", cwd=here, PYTHONIOENCODING="ascii").document
    assert (plain.code, plain.out) == (0, "\\u7b54\\u6848\\u662f 14 \\U0001f600\n")
    assert document["answer"] == answer


# ---------------------------------------------------------------- the log


def test_log_is_one_json_object_a_line_and_leaves_structlog_alone() -> None:
    """--log shows the events of the transitions instead of the view, on a logger of its own."""
    before = (structlog.is_configured(), structlog.get_config())
    done = run_with([SUM, "It is 14."], "--log", "--quiet")
    events = [json.loads(line) for line in done.err.splitlines()]
    assert {one["event"] for one in events} == {"fsm.transition"}
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert (structlog.is_configured(), structlog.get_config()) == before
