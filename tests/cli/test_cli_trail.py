"""Stored runs from the command line: kept, listed, decided about and gone on with, in this process and in others."""

from __future__ import annotations

import getpass
import importlib
import json
import os
import sqlite3
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from fsm_agent.cli import decide
from fsm_agent.testing import call, reply, server
from fsm_agent.trail import SQLiteTrail
from fsm_agent.trail.store import Batch
from tests.cli.kit import Done, fsm, process

TOOLS = """
    import os, pathlib, signal
    from fsm_agent import tool

    def fragile(to):
        with open("sent.txt", "a") as file:
            file.write(to + "\\n")
        if not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "sent to " + to

    @tool(requires_approval=True)
    def send(to: str, password: str = "") -> str:
        "Send a letter."
        with open("sent.txt", "a") as file:
            file.write(to + "\\n")
        return "sent to " + to

    @tool(idempotent=True)
    def safe(to: str) -> str:
        "Send a letter, once whatever happens."
        return fragile(to)

    @tool
    def unsafe(to: str) -> str:
        "Send a letter."
        return fragile(to)
"""


@dataclass(frozen=True)
class Room:
    """A directory with a module of tools and a store."""

    folder: Path
    store: str = "runs.db"

    def run(self, script: list[object], *args: str, tools: str = "send", task: str = "Write a letter") -> Done:
        """`run` into the store against a server with this script."""
        with server(script) as s:
            return fsm(
                *("run", task, "--base-url", s.base_url, "--tools", f"letters:{tools}", "--approve", "defer"),
                *("--store", self.store, *args),
            )

    def on(self, command: str, *args: str, script: list[object] | None = None) -> Done:
        """A command about the store; with a script, the model is a server that says it."""
        if script is None:
            return fsm(command, *args, "--store", self.store)
        with server(script) as s:
            return fsm(command, *args, "--store", self.store, "--base-url", s.base_url)

    def ids(self) -> list[str]:
        """The runs of the store, newest first."""
        return [one["run_id"] for one in self.on("runs", "--json").document]

    def sent(self) -> list[str]:
        """What the world has seen."""
        file = self.folder / "sent.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture(name="room")
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """An empty current directory with a module of tools, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "letters.py").write_text(textwrap.dedent(TOOLS), encoding="utf-8")
    yield Room(tmp_path)
    sys.modules.pop("letters", None)


def error_of(done: Done, code: int = 2) -> str:
    """The one red line of a command that did nothing."""
    assert (done.code, done.out) == (code, "")
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    return line


ANA, BEN = call("send", to="Ana"), call("send", to="Ben")


# ---------------------------------------------------------------- across processes


def test_a_run_is_approved_from_another_process_after_a_restart(room: Room) -> None:
    """The process that began it is gone; another one makes the agent again from the trail, and goes on."""
    with server([ANA, "Done."]) as s:
        begun = process(
            *("run", "Write to Ana", "--base-url", s.base_url, "--tools", "letters:send", "--store", "runs.db"),
            cwd=room.folder,
        )
        assert (begun.code, begun.out) == (4, "")
        (run_id,) = room.ids()
        assert f"fsm-agent approve {run_id[:8]} --store runs.db" in begun.err
        assert "agent.resume" not in begun.err
        assert room.sent() == []
        ended = process("approve", run_id[:8], "--by", "Zoe", "--store", "runs.db", cwd=room.folder)
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert room.sent() == ["Ana"]
    assert "by Zoe" in room.on("show", run_id).out


@pytest.mark.parametrize("tool", ["safe", "unsafe"])
def test_a_killed_process_is_gone_on_with(room: Room, tool: str) -> None:
    """After SIGKILL in the middle of a call: an idempotent one is made again, any other waits for a person who knows."""
    with server([call(tool, to="Ana"), "Done."]) as s:
        args = ("run", "Write", "--base-url", s.base_url, "--tools", f"letters:{tool}", "--store", "runs.db")
        assert process(*args, cwd=room.folder).code < 0
        (run_id,) = room.ids()
        assert "status   broken off" in room.on("show", run_id).out
        assert "in doubt" in room.on("show", run_id).out
        ended = room.on("resume", run_id)
        if tool == "unsafe":
            assert ended.code == 4
            assert room.sent() == ["Ana"]
            shown = room.on("show", run_id)
            assert "a crash left open whether it ran (in_doubt)" in shown.out
            ended = room.on("answer", run_id, "It was sent.")
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert room.sent() == (["Ana"] if tool == "unsafe" else ["Ana", "Ana"])
    assert room.on("audit", run_id).code == 0


# ---------------------------------------------------------------- decisions


def test_each_call_of_a_batch_is_decided_by_itself(room: Room) -> None:
    """In any order, by different people; the run goes on after the last, and each decision counts once."""
    assert room.run([reply("", ANA, BEN)]).code == 4
    (run_id,) = room.ids()
    first, second = (one["id"] for one in room.on("show", run_id, "--json").document["waiting"])
    assert "2 calls wait" in error_of(room.on("approve", run_id))
    undecided = room.on("resume", run_id, "--model", "nonsense:x")
    assert (undecided.code, undecided.out) == (4, "")
    assert f"fsm-agent approve {run_id[:8]} {first}" in undecided.err
    half = room.on("deny", run_id, second, "--reason", "not Ben", "--by", "Zoe", "--json")
    assert half.code == 4
    assert [one["id"] for one in half.document["pending"]] == [first]
    assert f"fsm-agent approve {run_id[:8]}" in half.err
    assert "is decided already: denied by Zoe" in error_of(room.on("approve", run_id, second))
    with server(["Only Ana."]) as s:
        done = fsm("approve", run_id, "--store", "runs.db", "--base-url", s.base_url)
        assert "not Ben" in s.requests[0].text
    assert (done.code, done.out) == (0, "Only Ana.\n")
    assert room.sent() == ["Ana"]
    assert f"approved {first} by {getpass.getuser()}" in room.on("show", run_id).out
    assert "has ended (completed)" in error_of(room.on("approve", run_id))


def test_all_calls_that_wait_are_approved_at_once(room: Room) -> None:
    """--all is one decision about each."""
    room.run([reply("", ANA, BEN)])
    assert room.on("approve", room.ids()[0], "--all", script=["Done."]).code == 0
    assert sorted(room.sent()) == ["Ana", "Ben"]


def test_edited_arguments_are_checked_before_they_count(room: Room) -> None:
    """What does not fit the tool is refused and the run waits on; what fits is what runs."""
    room.run([ANA])
    (run_id,) = room.ids()
    assert "--args is not JSON" in error_of(room.on("edit", run_id, "--args", "{"))
    assert "one JSON object" in error_of(room.on("edit", run_id, "--args", "[1]"))
    assert "the edited arguments do not fit" in error_of(room.on("edit", run_id, "--args", '{"whom": "Eve"}'))
    assert room.on("edit", run_id, "--args", '{"to": "Eve"}', script=["Done."]).code == 0
    assert room.sent() == ["Eve"]


def test_a_decision_can_be_left_for_a_later_resume(room: Room) -> None:
    """With --no-go-on nothing runs, not even the model is made; `resume` goes on with what was decided."""
    room.run([ANA])
    (run_id,) = room.ids()
    left = room.on("approve", run_id, "--no-go-on", "--model", "nonsense:x")
    assert (left.code, left.out) == (0, "")
    assert f"fsm-agent resume {run_id[:8]}" in left.err
    assert room.sent() == []
    assert "everything is decided" in error_of(room.on("deny", run_id))
    assert room.on("resume", run_id, script=["Done."]).out == "Done.\n"
    assert room.sent() == ["Ana"]


def test_a_decision_is_bound_to_what_was_seen(room: Room) -> None:
    """With --digest the decision counts for the call as it was shown, and for no other."""
    room.run([ANA])
    (run_id,) = room.ids()
    (one,) = room.on("show", run_id, "--json").document["waiting"]
    assert "look at it again" in error_of(room.on("approve", run_id, "--digest", "0" * 64))
    assert room.on("approve", run_id, "--digest", one["digest"][:16], script=["Done."]).code == 0


def test_denying_with_stop_ends_the_run(room: Room) -> None:
    """--stop ends it as denied, and the model is not asked again."""
    room.run([ANA])
    done = room.on("deny", room.ids()[0], "--stop", "--json", script=[])
    assert (done.code, done.document["reason"]) == (1, "denied")


def test_a_decision_that_comes_too_late_ends_the_run(room: Room) -> None:
    """After the time to decide nothing is approved: the run ends as expired."""
    room.run([ANA], "--approval-timeout", "0.000001")
    (run_id,) = room.ids()
    done = room.on("approve", run_id, "--json")
    assert (done.code, done.document["reason"]) == (1, "expired")
    assert "nothing was decided" in done.err
    assert room.sent() == []
    assert room.on("audit", run_id).code == 0
    room.run([ANA], "--approval-timeout", "0.000001")
    assert room.on("resume", room.ids()[0], "--json").document["reason"] == "expired"


def test_a_run_is_cancelled_while_it_waits(room: Room) -> None:
    """`cancel` ends it for good."""
    room.run([ANA])
    (run_id,) = room.ids()
    assert room.on("cancel", run_id).code == 0
    assert "cancelled" in room.on("runs").out
    assert "has ended (cancelled)" in error_of(room.on("cancel", run_id))
    assert "has ended (cancelled)" in error_of(room.on("resume", run_id))


def test_a_limit_is_changed_for_the_rest_of_a_run(room: Room) -> None:
    """--set goes into the trail as a change, and counts from there on; what is no limit is refused."""
    room.run([ANA], "--max-steps", "1", "--on-limit", "stop")
    (run_id,) = room.ids()
    room.on("approve", run_id, "--no-go-on")
    assert "there is no limit 'steps'" in error_of(room.on("resume", run_id, "--set", "steps=2"))
    assert "max_steps" in error_of(room.on("resume", run_id, "--set", "max_steps=many"))
    assert room.on("resume", run_id, "--set", "max_steps=5", script=["Done."]).code == 0
    assert "changed: max_steps=5" in room.on("show", run_id).out
    assert room.on("audit", run_id).code == 0


def test_a_run_of_an_agent_in_code_is_gone_on_with_by_that_agent(room: Room) -> None:
    """--agent names a function that takes the store; without it, a run that no command began is refused."""
    (room.folder / "mine.py").write_text(
        textwrap.dedent("""
            from fsm_agent import Agent
            from fsm_agent.observe import silent_logger
            from fsm_agent.testing import ScriptedModel, call
            from letters import send
            def agent(store, script=("Done.",)):
                return Agent(ScriptedModel(list(script)), [send], store=store, logger=silent_logger())
            number = 5
        """),
        encoding="utf-8",
    )
    sys.path.insert(0, str(room.folder))
    try:
        begun = importlib.import_module("mine").agent("runs.db", [ANA])
        begun.invoke("Write", {"configurable": {"run_id": "mine"}})
        assert "--agent MODULE:ATTR" in error_of(room.on("approve", "mine"))
        assert "name an Agent" in error_of(room.on("approve", "mine", "--agent", "mine:number"))
        done = room.on("approve", "mine", "--agent", "mine:agent", "-q")
        assert (done.code, done.out) == (0, "Done.\n")
        assert room.on("audit", "mine", "--agent", "mine:agent").code == 0
    finally:
        sys.modules.pop("mine", None)
    assert room.sent() == ["Ana"]


def test_a_paused_run_goes_on_under_another_limit(room: Room) -> None:
    """Where code said `pause_at`, `show` says so, and `resume --set` goes on differently."""
    (room.folder / "mine.py").write_text(
        textwrap.dedent("""
            from fsm_agent import Agent, Limits
            from fsm_agent.observe import silent_logger
            from fsm_agent.testing import ScriptedModel
            from letters import unsafe
            def agent(store, script=("Done.",)):
                limits = Limits(max_steps=1, on_limit="stop")
                return Agent(ScriptedModel(list(script)), [unsafe], limits=limits, store=store, logger=silent_logger())
        """),
        encoding="utf-8",
    )
    (room.folder / "killed").touch()
    sys.path.insert(0, str(room.folder))
    try:
        mine = importlib.import_module("mine")
        paused = mine.agent("runs.db", [call("unsafe", to="Ana")]).pause_at("EXECUTE")
        paused.invoke("Write", {"configurable": {"run_id": "mine"}})
        assert "suspended, paused" in room.on("show", "mine").out
        assert "waits for nobody's decision" in error_of(room.on("approve", "mine", "--agent", "mine:agent"))
        done = room.on("resume", "mine", "--agent", "mine:agent", "--set", "max_steps=5", "-q")
        assert (done.code, done.out) == (0, "Done.\n")
    finally:
        sys.modules.pop("mine", None)
    assert room.sent() == ["Ana"]


def test_tools_that_are_elsewhere_now_are_asked_for(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another directory the line says where the run was begun; another definition of a tool is refused."""
    room.run([ANA])
    (run_id,) = room.ids()
    (room.folder / "other").mkdir()
    (room.folder / "changed.py").write_text(
        textwrap.dedent(TOOLS).replace("Send a letter.", "Send a parcel."), encoding="utf-8"
    )
    store = str(room.folder / "runs.db")
    refused = error_of(room.on("approve", run_id, "--tools", "changed:send"))
    assert "another definition of send" in refused
    monkeypatch.chdir(room.folder / "other")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(room.folder)])
    for name in ("letters", "changed"):
        sys.modules.pop(name, None)
    said = error_of(fsm("approve", run_id, "--store", store))
    assert f"The run was begun in {room.folder}: go there, or give --tools" in said


def test_an_answer_is_a_text_with_or_without_its_call(room: Room) -> None:
    """One word is the text, two are call and text, more are refused."""
    assert decide.call_and_text(["It went."]) == (None, "It went.")
    assert decide.call_and_text(["call_1", "It went."]) == ("call_1", "It went.")
    room.run([ANA])
    assert "with the text in quotes" in error_of(room.on("answer", room.ids()[0], "It", "went", "out"))


# ---------------------------------------------------------------- the store


def test_the_environment_names_the_store(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """With FSM_AGENT_STORE no command needs --store, and none is suggested."""
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    with server([ANA]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--tools", "letters:send", "--approve", "defer")
    assert done.code == 4
    assert "--store" not in done.err
    assert len(fsm("runs").out.splitlines()) == 2


def test_a_directory_is_a_store_of_json_lines(room: Room) -> None:
    """A name that ends in a slash, and later the directory itself."""
    folder = Room(room.folder, "trails/")
    assert folder.run([ANA]).code == 4
    assert list((room.folder / "trails").glob("*.jsonl"))
    again = Room(room.folder, "trails")
    assert again.on("approve", again.ids()[0], script=["Done."]).out == "Done.\n"


def test_a_server_is_a_store_whose_password_is_never_shown(room: Room) -> None:
    """postgresql://... works like a file; what is suggested and what is said names the server, not the password."""
    pytest.importorskip("psycopg")
    from tests.trail.postgres_server import serving  # needs psycopg

    with serving() as started:
        parts = dict(pair.split("=", 1) for pair in started.new_database().split())
        url = f"postgresql://{parts.pop('user')}:hunter2@/{parts.pop('dbname')}?"
        remote = Room(room.folder, url + "&".join(f"{name}={quote(value, safe='')}" for name, value in parts.items()))
        begun = remote.run([ANA])
        assert begun.code == 4
        (run_id,) = remote.ids()
        assert f"approve {run_id[:8]} --store 'postgresql://" in begun.err
        assert "hunter2" not in begun.err + remote.on("show", run_id).out
        assert remote.on("approve", run_id, script=["Done."]).out == "Done.\n"
        assert remote.on("audit", "--all").code == 0


def test_to_defer_needs_a_store(room: Room) -> None:
    """Nothing runs that could not be gone on with."""
    with server([]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--approve", "defer", "--quiet")
    assert "needs --store FILE" in error_of(done)


def test_the_trail_keeps_no_secret_of_the_agent(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header says how the agent was made, without keys and without what stands in a URL beside the server."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a1B2" * 8)
    with server(["Hello."]) as s:
        url = s.base_url.replace("http://", "http://me:hunter2@")
        assert fsm("run", "x", "--model", "fake", "--base-url", url, "--store", "runs.db", "--files", ".").code in (
            0,
            1,
        )
    raw = b"".join(file.read_bytes() for file in room.folder.glob("runs.db*"))
    assert b"made_by" in raw
    assert b"hunter2" not in raw
    assert b"a1B2" not in raw


def test_runs_are_listed_newest_first_and_by_status(room: Room) -> None:
    """A line each, with status and reason; --status keeps some, --json says everything."""
    room.run(["Hello."])
    room.run([ANA])
    waiting, ended = room.ids()
    lines = room.on("runs").out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", waiting, ended]
    assert "completed (answered)" in lines[2]
    assert [one["run_id"] for one in room.on("runs", "--status", "suspended", "--json").document] == [waiting]
    assert room.on("runs", "--status", "failed").out == ""


@pytest.mark.parametrize(
    "command", ["show", "approve", "resume", "cancel", "replay", "fork", "audit", "export", "answer"]
)
def test_what_is_not_there_is_one_line(room: Room, command: str) -> None:
    """No store, none of that name, an unknown run: a line that says so, exit code 2, and nothing is made."""
    rest = {"fork": ["--at", "1"], "answer": ["It is so."]}.get(command, [])
    assert "no store is given" in error_of(fsm(command, "x", *rest))
    assert "there is no store 'none.db'" in error_of(fsm(command, "x", *rest, "--store", "none.db"))
    assert not (room.folder / "none.db").exists()
    SQLiteTrail("runs.db").append(
        Batch(run_id="r", owner="", lease=0.0, time=0.0, status="running", entries=())
    ).exception()
    room.run(["Hello."])
    assert "there is no run 'x'" in error_of(room.on(command, "x", *rest))


def test_a_beginning_names_a_run_when_it_is_the_only_one(room: Room) -> None:
    """A unique prefix is enough everywhere; one of several is refused with their names."""
    room.run(["Hello."])
    room.run(["Hello."])
    first, second = room.ids()
    for other in room.ids():
        assert room.on("fork", other, "--at", "1", "--run-id", f"same-{other[:4]}").code == 0
    said = error_of(room.on("show", "same-"))
    assert "2 runs begin with 'same-'" in said
    assert f"same-{first[:4]}" in said
    assert f"run      same-{second[:4]}" in room.on("show", f"same-{second[:4]}"[:-1]).out or first[:3] == second[:3]
    assert "stopped in FINISH" in fsm("diagram", "--run", first[:13], "--store", "runs.db").out


def test_a_run_that_another_process_holds_is_left_alone(room: Room) -> None:
    """Who holds it is said; nothing of it is changed."""
    room.run([ANA])
    (run_id,) = room.ids()
    trails = SQLiteTrail("runs.db")
    trails.claim(run_id, f"elsewhere:{os.getpid()}:token", 9e9, 0.0)
    trails.close()
    assert "held by elsewhere" in room.on("show", run_id).out
    assert "elsewhere" in room.on("runs").out
    for command in ("approve", "resume", "cancel"):
        assert (
            "is held by elsewhere"
            in room.on(command, run_id, *(["--model", "openai:x"] if command == "resume" else [])).err
        )
    assert room.on("show", run_id, "--json").document["waiting"]


def test_another_key_is_told_apart_from_damage(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trail sealed with a key is refused without it, by a line that says which."""
    monkeypatch.setenv("FSM_AGENT_TRAIL_HMAC_KEY", "one key of many bytes")
    room.run([ANA])
    (run_id,) = room.ids()
    assert "no key" not in room.on("audit", run_id).out
    monkeypatch.setenv("FSM_AGENT_TRAIL_HMAC_KEY", "another key of many bytes")
    for command in ("show", "approve", "resume", "replay", "export"):
        assert "give the key that wrote it" in error_of(room.on(command, run_id))
    checked = room.on("audit", run_id)
    assert checked.code == 1
    assert "give the key that wrote it" in checked.out


def test_a_damaged_trail_is_found_located_and_used_for_nothing(room: Room) -> None:
    """One changed character: the audit names the entry and exits with 1, every other command refuses."""
    room.run([ANA])
    room.run(["Hello."])
    other, run_id = room.ids()
    with sqlite3.connect("runs.db") as link:
        link.execute("UPDATE entries SET text = replace(text, 'Ana', 'Eve') WHERE run_id = ? AND seq = 2", (run_id,))
    link.close()
    for command in ("show", "approve", "resume", "replay", "export", "cancel"):
        assert "entry 2" in error_of(room.on(command, run_id))
    one = room.on("audit", run_id, "--json")
    assert (one.code, one.document["ok"], one.document["findings"][0]["entry"]) == (1, False, 2)
    both = room.on("audit", "--all")
    assert both.code == 1
    assert f"NOT OK   {run_id}" in both.out
    assert f"ok       {other}" in both.out
    for file in room.folder.glob("runs.db*"):
        file.write_bytes(b"no database at all")
    assert room.on("audit", "--all").code == 1
    assert "damaged, or no trail" in room.on("runs").err


# ---------------------------------------------------------------- what is read


def test_show_tells_the_run_without_its_secrets(room: Room) -> None:
    """Transitions with guards, the call that waits, and how to go on; what looks like a secret only when asked for."""
    room.run([call("send", to="Ana", password="hunter2")], task="Write to Ana with the password: hunter2")
    (run_id,) = room.ids()
    shown = room.on("show", run_id[:6]).out
    assert "2 VALIDATE --accepted--> REVIEW" in shown
    assert "approval_required=yes (calls_waiting=1)" in shown
    assert '"to": "Ana"' in shown
    assert "expires: never" in shown
    assert f"fsm-agent deny {run_id[:8]} --reason TEXT --store runs.db" in shown
    assert "hunter2" not in shown
    document = room.on("show", run_id, "--json", "--messages")
    assert "hunter2" not in document.out
    assert document.document["messages"][0]["role"] == "user"
    assert document.document["waiting"][0]["why"] == "requires_approval"
    assert len(document.document["waiting"][0]["digest"]) == 64
    assert "hunter2" in room.on("show", run_id, "--unredacted").out


def test_a_replay_calls_nobody_and_can_stop_anywhere(room: Room) -> None:
    """The same transitions as the run had, each with its guards, from the trail alone."""
    room.run([ANA])
    (run_id,) = room.ids()
    room.on("approve", run_id, script=["Done."])
    (room.folder / "letters.py").unlink()
    whole = room.on("replay", run_id)
    assert whole.code == 0
    assert "steps_spent=no (max_steps=10, steps=1)" in whole.out
    assert "EXECUTE --executed--> OBSERVE  send(password='', to='Ana')" in whole.out
    assert "FINISH, step 2, 30 tokens, answer: Done." in whole.out
    part = room.on("replay", run_id, "--to", "2", "--json").document
    assert (part["state"], part["ended"], [one["seq"] for one in part["transitions"]]) == ("REVIEW", False, [1, 2])
    assert "there is no transition 99; the run has 8" in error_of(room.on("replay", run_id, "--to", "99"))
    assert room.sent() == ["Ana"]


def test_a_fork_says_what_it_would_repeat_and_asks_before_it_does(room: Room) -> None:
    """A new run with the same past; a call that the old one made needs approval there, whatever the policy was."""
    (room.folder / "killed").touch()
    room.run([call("unsafe", to="Ana"), "Done."], tools="unsafe")
    (run_id,) = room.ids()
    made = room.on("fork", run_id, "--at", "1", "--run-id", "second", "--resume", script=[])
    assert (made.code, made.out) == (4, "")
    assert "unsafe(to='Ana')" in made.err
    assert room.sent() == ["Ana"]
    assert f"forked   from {run_id} at transition 1" in room.on("show", "second").out
    assert "there is a run 'second' already" in error_of(room.on("fork", run_id, "--at", "1", "--run-id", "second"))
    assert "has ended at transition" in error_of(room.on("fork", run_id, "--at", "7"))


def test_an_audit_says_what_it_cannot_show(room: Room) -> None:
    """A chain without a key, and a run that has not ended, are said plainly; a seal kept elsewhere is looked for."""
    room.run([ANA])
    (run_id,) = room.ids()
    done = room.on("audit", run_id)
    assert done.code == 0
    assert done.out.startswith(f"ok       {run_id}: 6 entries, 2 transitions, sha256, not ended, head ")
    assert "not that somebody rewrote the whole trail" in done.out
    assert "were cut off shows only against a seal kept elsewhere" in done.out
    head = room.on("audit", run_id, "--json").document["head"]
    assert room.on("audit", run_id, "--head", head).code == 0
    assert room.on("audit", run_id, "--head", "0" * 64).code == 1
    assert "name one run, or check them --all" in error_of(room.on("audit"))


def test_json_of_a_stored_run_has_what_a_decision_needs(room: Room) -> None:
    """The document of `run` gives a program the digest of each call that waits, and the newest seal."""
    document = room.run([ANA], "--json").document
    (pending,) = document["pending"]
    assert set(pending) == {"id", "tool", "arguments", "why", "digest", "expires_at"}
    assert document["trail_head"] == room.on("audit", document["run_id"], "--json").document["head"]


def test_an_export_goes_to_a_file_or_to_standard_output(room: Room) -> None:
    """The same text either way; secrets only when asked for."""
    room.run([call("send", to="Ana", password="hunter2")])
    (run_id,) = room.ids()
    shown = room.on("export", run_id).out
    assert room.on("export", run_id, "-o", "run.jsonl").out == ""
    assert (room.folder / "run.jsonl").read_text(encoding="utf-8") == shown
    assert [json.loads(line)["seq"] for line in shown.splitlines()] == list(range(6))
    assert "hunter2" not in shown
    assert "hunter2" in room.on("export", run_id, "--unredacted").out
    assert "cannot write" in error_of(room.on("export", run_id, "-o", "none/run.csv", "-f", "csv"))
