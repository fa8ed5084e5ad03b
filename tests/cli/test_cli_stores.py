"""Stored runs from the command line: where they are kept, which there are, and what is refused."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sqlite3
import sys
import textwrap
from typing import Any
from urllib.parse import quote

import pytest

from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call, server
from fsm_agent.trail import SQLiteTrail
from fsm_agent.trail.entries import canonical_json
from fsm_agent.trail.store import Batch
from tests.cli.kit import fsm
from tests.cli.room import ANA, Room, error_of
from tests.report.runs import resealed


def test_the_environment_names_the_store(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """With FSM_AGENT_STORE no command needs --store, and none is suggested."""
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    with server([ANA]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--tools", "letters:send", "--approve", "defer")
    assert done.code == 4
    assert "--store" not in done.err
    assert len(fsm("runs").out.splitlines()) == 2


def test_the_line_break_behind_a_name_of_a_store_is_none_of_it(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that was read from a file names the store that it means, and one of blanks names none."""
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db\n")
    with server([ANA]) as s:
        assert fsm("run", "x", "--base-url", s.base_url, "--tools", "letters:send", "--approve", "defer").code == 4
    assert (room.folder / "runs.db").exists()
    monkeypatch.setenv("FSM_AGENT_STORE", " ")
    assert "no store is given" in error_of(fsm("runs"))


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


@pytest.mark.parametrize("store", ["", " ", "redis://ana:hunter2@localhost/0"])
def test_what_can_be_no_store_is_refused_before_anything_runs(room: Room, store: str) -> None:
    """An option without a name (a variable that is not set) does not run a task unkept, and a URL makes no file of that name."""
    before = sorted(room.folder.iterdir())
    with server([]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--store", store, "--quiet")
    assert "give a file, a directory or postgresql://" in error_of(done)
    assert "hunter2" not in done.err
    assert "give a file, a directory or postgresql://" in error_of(fsm("runs", "--store", store))
    assert sorted(room.folder.iterdir()) == before


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
    "command", ["show", "approve", "resume", "cancel", "replay", "fork", "audit", "export", "report", "answer"]
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


def test_no_text_of_a_run_passes_for_a_line_of_show(room: Room) -> None:
    """A task, a reason and a message of several lines are indented, or put on one line: none stands where a field does."""
    forged = "Write\nstatus   completed (answered)\n  99 VALIDATE --answered--> FINISH"
    room.run([ANA], task=forged)
    (run_id,) = room.ids()
    room.on("deny", run_id, "--reason", forged, "--by", "Zoe", script=[forged])
    lines = room.on("show", run_id, "--messages").out.splitlines()
    assert [line for line in lines if line.startswith(("status", "  99"))] == ["status   completed (answered)"]
    assert "         status   completed (answered)" in lines
    assert sum("Write status completed (answered) 99 VALIDATE" in line for line in lines) == 1


def test_who_decided_is_told_once(room: Room) -> None:
    """Taking a run up to decide is told as the decision; going on with it is told by itself."""
    room.run([ANA])
    (run_id,) = room.ids()
    room.on("approve", run_id, "--by", "Zoe", "--no-go-on")
    assert "resumed" not in (shown := room.on("show", run_id).out)
    assert shown.count("by Zoe") == 1
    room.on("resume", run_id, "--by", "Yan", script=["Done."])
    assert room.on("show", run_id).out.count("resumed by Yan") == 1


FIRE = """
    from pathlib import Path
    from fsm_agent import Agent
    from fsm_agent.observe import silent_logger
    from fsm_agent.testing import ScriptedModel, call

    def burn() -> str:
        "Burn the store."
        for file in Path().glob("runs*.db*"):
            file.unlink()
        return "burnt"

    def agent(store):
        return Agent(ScriptedModel([call("burn")]), [burn], store=store, logger=silent_logger())
"""


def test_a_run_that_its_store_breaks_off_is_no_wrong_usage(room: Room) -> None:
    """Once something ran, the exit code is 1, and the error says so; before anything ran it is 2."""
    (room.folder / "fire.py").write_text(textwrap.dedent(FIRE), encoding="utf-8")
    with server([call("burn")]) as s:
        done = fsm("run", "x", "--base-url", s.base_url, "--tools", "fire:burn", "--store", "runs.db", "-q")
    assert done.code == 1
    hint, said = done.err.splitlines()
    assert hint.startswith("go on with what is stored of it: fsm-agent resume ")
    assert said.startswith("error: the run had begun, and was broken off: ")
    sys.path.insert(0, str(room.folder))
    try:
        made = importlib.import_module("fire").agent("runs.db").pause_at("PLAN")
        made.invoke("x", {"configurable": {"run_id": "mine"}})
        made.trails.close()
        assert "the run had begun" in error_of(room.on("resume", "mine", "--agent", "fire:agent"), 1)
    finally:
        sys.modules.pop("fire", None)
    with server([]) as s:
        assert "no trail" in error_of(fsm("run", "x", "--base-url", s.base_url, "--store", "fire.py", "-q"), 2)


def test_a_damaged_run_hides_no_other(room: Room) -> None:
    """It is listed and audited by its id, with what is wrong, and makes the exit code 1; the others are listed, audited and shown."""
    folder = Room(room.folder, "trails/")
    for _ in range(3):
        folder.run([ANA])
    good, bad, unread = folder.ids()
    with (room.folder / "trails" / f"{bad}.jsonl").open("a", encoding="utf-8") as file:
        file.write("torn")
    (room.folder / "trails" / f"{unread}.jsonl").unlink()
    (room.folder / "trails" / f"{unread}.head").rename(room.folder / "trails" / "nobody~0.head")
    listed = folder.on("runs")
    assert listed.code == 1
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [
        [good, "suspended"], [bad, "damaged"], ["nobody~0", "damaged"]
    ]  # fmt: skip
    assert f"{bad}.jsonl" in listed.err
    for status, ids in (("suspended", [good]), ("damaged", [bad, "nobody~0"]), ("failed", [])):
        some = folder.on("runs", "--status", status)
        assert (some.code, [line.split()[0] for line in some.out.splitlines()[1:]]) == (1, ids)
        assert f"{bad}.jsonl" in some.err
    shown = folder.on("runs", "--json")
    assert (shown.code, [one["status"] for one in shown.document]) == (1, ["suspended", "damaged", "damaged"])
    checked = folder.on("audit", "--all")
    assert checked.code == 1
    assert any(line.startswith("ok ") and good in line for line in checked.out.splitlines())
    assert checked.out.count("NOT OK") == 2
    assert folder.on("show", good[:8]).code == 0
    assert f"{bad}.jsonl" in error_of(folder.on("show", bad[:8]))


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


def test_nobody_is_sent_to_resume_what_another_process_drives(room: Room) -> None:
    """A decision about a run that waits for none, because it goes on elsewhere, is told who has it."""
    room.run([ANA])
    (run_id,) = room.ids()
    room.on("approve", run_id, "--no-go-on")
    trails = SQLiteTrail("runs.db")
    trails.claim(run_id, f"elsewhere:{os.getpid()}:token", 9e9, 0.0)
    trails.close()
    said = error_of(room.on("deny", run_id))
    assert "is held by elsewhere" in said
    assert "for its lease to run out (2255-03-14 16:00:00 UTC, if its process is gone)" in said


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
    assert both.err == "2 runs, 1 not ok\n"
    for file in room.folder.glob("runs.db*"):
        file.write_bytes(b"no database at all")
    assert room.on("audit", "--all").code == 1
    assert "damaged, or no trail" in room.on("runs").err


@pytest.mark.parametrize(
    ("kind", "nonsense"),
    [
        ("header", {"task": None}),
        ("header", {"origin": "fsm-agent run"}),
        ("transition", {"guards": [None]}),
        ("transition", {"seq": [1]}),
        ("transition", {"signatures": [[1]]}),
        ("transition", {"error": 1.5}),
        ("started", {"effect": ["call_model"]}),
        ("outcome", {"usage": {"input": "many"}}),
    ],
)
def test_a_trail_written_anew_with_nonsense_is_named_by_whoever_shows_it(
    room: Room, kind: str, nonsense: dict[str, Any]
) -> None:
    """Seals that hold say nothing of what is sealed: the entry is named in one line, with exit code 2, and there is no traceback."""
    run_id, seq, other = _with_nonsense(room, kind, nonsense)
    shown = (["show"], ["show", "--json"], ["export"], ["export", "-f", "csv"], ["diagram", "--run"], ["trail-to-test"])
    for command in shown:
        said = error_of(other.on(*command, run_id))
        assert f"entry {seq}: holds what no entry of the kind '{kind}' can" in said


@pytest.mark.parametrize(
    ("kind", "nonsense", "command"),
    [
        ("header", {"setup": None}, "trail-to-test"),
        ("header", {"setup": {"limits": {}, "tools": [{"name": ["send"]}]}}, "trail-to-test"),
        ("header", {"language": [1]}, "trail-to-test"),
        ("outcome", {"at": "late"}, "trail-to-test"),
        ("outcome", {"calls": [3]}, "trail-to-test"),
        ("header", {"setup": None}, "diagram --run"),
        ("header", {"setup": {"limits": 3}}, "diagram --run"),
    ],
)
def test_what_a_test_and_a_picture_are_made_of_is_named_where_it_is_nonsense(
    room: Room, kind: str, nonsense: dict[str, Any], command: str
) -> None:
    """A test reads more of an entry than what shows it, and a picture the limits: the entry is named all the same."""
    run_id, seq, other = _with_nonsense(room, kind, nonsense, "--deadline", "100")
    said = error_of(other.on(*command.split(), run_id))
    assert f"entry {seq}: holds what no entry of the kind '{kind}' can" in said


def test_a_replay_names_the_header_whose_tools_are_none(room: Room) -> None:
    """Whether only code could judge the run is asked of its tools, and nonsense in their place says nothing of it."""
    room.run(["Hello."])
    (run_id,) = room.ids()
    with contextlib.closing(SQLiteTrail("runs.db")) as trails:
        entries = [json.loads(one.text) for one in trails.read(run_id)]
    entries[0]["body"]["setup"]["tools"] = None
    assert "entry 0: (header) lacks something" in error_of(_anew(room, run_id, entries).on("replay", run_id))


def test_a_run_written_anew_with_an_origin_that_no_command_writes_is_not_gone_on_with(room: Room) -> None:
    """What a command makes an agent of is checked before it is used: the entry is named, and there is no traceback."""
    room.run([ANA])
    (run_id,) = room.ids()
    with contextlib.closing(SQLiteTrail("runs.db")) as trails:
        entries = [json.loads(one.text) for one in trails.read(run_id)]
    entries[0]["body"]["origin"]["base_url"] = 5
    other = _anew(room, run_id, entries)
    for command in (["show"], ["export"]):
        assert other.on(*command, run_id).code == 0
    assert "entry 0: holds what no command writes of itself" in error_of(other.on("approve", run_id))


def test_the_origin_of_an_agent_in_code_is_whatever_its_author_says(room: Room) -> None:
    """It is JSON data of the author's own, so no form of it damages a trail."""
    origin = {"model": {"name": "small", "revision": 2}, "base_url": 5}
    model = ScriptedModel(["Hello."])
    run_id = Agent(model, store="runs.db", origin=origin, logger=silent_logger()).invoke("Say hello.").run_id
    assert "model    {'name': 'small', 'revision': 2} at 5\n" in room.on("show", run_id).out
    for command in (["show", "--json"], ["export"], ["export", "-f", "otel"], ["report"], ["replay"]):
        assert room.on(*command, run_id).code == 0


def _anew(room: Room, run_id: str, entries: list[dict[str, Any]]) -> Room:
    """A store beside that of `room` with these entries, sealed as whoever can write the store could do it."""
    with contextlib.closing(SQLiteTrail("other.db")) as trails:
        anew = tuple(resealed(map(canonical_json, entries)))
        trails.append(Batch(run_id=run_id, owner="me", lease=0.0, time=1.0, status="completed", entries=anew)).result()
    return Room(room.folder, "other.db")


def _with_nonsense(room: Room, kind: str, nonsense: dict[str, Any], *options: str) -> tuple[str, int, Room]:
    """The id of a run, where its first entry of this kind is, and a room where that holds nonsense under right seals."""
    room.run(["Hello."], *options)
    (run_id,) = room.ids()
    with contextlib.closing(SQLiteTrail("runs.db")) as trails:
        entries = [json.loads(one.text) for one in trails.read(run_id)]
    wrong = next(one for one in entries if one["kind"] == kind)
    wrong["body"] |= nonsense
    return run_id, wrong["seq"], _anew(room, run_id, entries)
