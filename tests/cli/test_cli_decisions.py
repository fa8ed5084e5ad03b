"""Stored runs from the command line: decided about and gone on with, in this process and in others."""

from __future__ import annotations

import getpass
import importlib
import json
import sys
import textwrap
from contextlib import closing
from dataclasses import replace

import pytest

from fsm_agent.cli import decide
from fsm_agent.testing import call, reply, server
from fsm_agent.trail import Batch, SQLiteTrail
from tests.cli.kit import fsm, process
from tests.cli.room import ANA, BEN, TOOLS, Room, error_of

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
        assert "\n  call_1_0  send(to='Ana', password='')\n" in begun.err
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


def test_a_command_to_copy_takes_every_id_for_one_word(room: Room) -> None:
    """The id of a call is the server's: what a shell would make of it is quoted where a person is told what to type."""
    room.run([reply("", replace(ANA, id="a;$(touch${IFS}x)"), BEN)])
    (run_id,) = room.ids()
    told = room.on("resume", run_id).err
    assert f"fsm-agent approve {run_id[:8]} 'a;$(touch${{IFS}}x)'" in told
    assert room.on("deny", run_id, "a;", "--no-go-on").code == 4


def test_all_calls_that_wait_are_approved_at_once(room: Room) -> None:
    """--all is one decision about each; beside the name of one call it decides nothing."""
    room.run([reply("", ANA, BEN)])
    for command in ("approve", "deny"):
        assert "--all that wait; not both" in error_of(room.on(command, room.ids()[0], "call_1_0", "--all"))
    assert room.on("approve", room.ids()[0], "--all", script=["Done."]).code == 0
    assert sorted(room.sent()) == ["Ana", "Ben"]


def test_edited_arguments_are_checked_before_they_count(room: Room) -> None:
    """What does not fit the tool is refused and the run waits on; what fits is what runs."""
    room.run([ANA])
    (run_id,) = room.ids()
    assert "--args is not JSON" in error_of(room.on("edit", run_id, "--args", "{"))
    assert "--args is not JSON" in error_of(room.on("edit", run_id, "--args", "[" * 5_000))
    assert "one JSON object" in error_of(room.on("edit", run_id, "--args", "[1]"))
    assert "the edited arguments do not fit" in error_of(room.on("edit", run_id, "--args", '{"whom": "Eve"}'))
    edited = room.on("edit", run_id, "--args", '{"to": "Eve"}', script=["Done."])
    assert edited.code == 0
    assert "(to='Eve')" in edited.err.splitlines()[0]
    assert room.sent() == ["Eve"]


def test_the_summary_tells_no_secret(room: Room) -> None:
    """What is retold of the calls at the end may go to a log: it is redacted as `show` is, and the call itself is not."""
    begun = room.run([call("send", to="Ana", password="hunter2-mule")])
    assert "send(to='Ana', password='[redacted]')\n" in begun.err
    assert "hunter2-mule" not in begun.err
    (run_id,) = room.ids()
    arguments = '{"to": "Ana", "password": "hunter2-horse"}'
    done = room.on("edit", run_id, "--args", arguments, script=["Done."])
    assert "send(to='Ana', password='[redacted]') -> sent to Ana" in done.err
    assert "hunter2-horse" not in done.err
    assert "hunter2-horse" in room.on("show", run_id, "--unredacted").out


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


@pytest.mark.parametrize(
    ("command", "option"), [("approve", "--digest"), ("approve", "--by"), ("audit", "--head"), ("report", "--head")]
)
def test_an_empty_value_switches_no_check_off(room: Room, command: str, option: str) -> None:
    """`--digest "$SEEN"` with a variable that failed to load is refused: it neither approves what waits now, nor is it no check."""
    room.run([ANA])
    (run_id,) = room.ids()
    done = room.on(command, run_id, option, "")
    assert done.code == 2
    assert "it is empty; give it a value" in done.err
    assert room.on("runs", "--status", "suspended").out


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


def test_a_run_that_a_crash_broke_off_is_cancelled_with_what_is_known_of_it(room: Room) -> None:
    """A reply that was written down just before the program died is counted, as when its agent cancels the run."""
    room.run(["Hello."])
    (run_id,) = room.ids()
    with closing(SQLiteTrail("runs.db")) as whole, closing(SQLiteTrail("cut.db")) as trails:
        kinds = [json.loads(one.text)["kind"] for one in whole.read(run_id)]
        kept = tuple(whole.read(run_id)[: kinds.index("outcome") + 1])
        trails.append(Batch(run_id=run_id, owner="gone", lease=0.0, time=0.0, status="running", entries=kept)).result()
    cut = Room(room.folder, "cut.db")
    assert cut.on("cancel", run_id).code == 0
    assert cut.on("show", run_id, "--json").document["transitions"][-1]["model_calls"] == 1
    assert cut.on("audit", run_id).code == 0


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
            def broken(store):
                raise ValueError("no network")
            elsewhere = agent("elsewhere.db")
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
        assert "failed: ValueError: no network" in error_of(room.on("approve", "mine", "--agent", "mine:broken"))
        assert room.on("approve", "mine", "--agent", "mine:agent", "--no-go-on").code == 0
        assert "a store of its own" in error_of(room.on("resume", "mine", "--agent", "mine:elsewhere"))
        done = room.on("resume", "mine", "--agent", "mine:agent", "-q")
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
