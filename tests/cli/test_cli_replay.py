"""Stored runs from the command line: shown, replayed, forked, audited and exported."""

from __future__ import annotations

import base64
import json
import sqlite3

import pytest

from fsm_agent import Agent, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel, call
from tests.cli.room import ANA, Room, error_of


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


def test_show_tells_what_a_run_came_to(room: Room) -> None:
    """Of a run that has ended how, and its answer, without its secrets; of a call that failed that it did, once."""
    room.run([ANA])
    (waiting,) = room.ids()
    assert "answer" not in room.on("show", waiting).out.partition("transitions")[0]
    assert room.on("show", waiting, "--json").document["answer"] is None
    room.on("approve", waiting, script=["Done.\nThe password is hunter2-horse."])
    shown = room.on("show", waiting).out
    assert "\ndetail   answered after 2 steps\nanswer   Done.\n         The password is [" in shown
    assert "hunter2-horse" in room.on("show", waiting, "--unredacted").out
    document = room.on("show", waiting, "--json").document
    assert (document["detail"], document["answer"][:5]) == ("answered after 2 steps", "Done.")
    room.run([call("broken", to="Ana"), "It is broken."], tools="broken")
    (failing,) = set(room.ids()) - {waiting}
    assert "\n  broken(to='Ana') -> failed: OSError: no stamp\n" in room.on("show", failing).out


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


def test_a_fork_names_the_agent_with_which_to_go_on(room: Room) -> None:
    """The command that `fork --agent` gives to go on with can be copied: it has the agent."""
    (room.folder / "killed").touch()
    room.run([call("unsafe", to="Ana"), "Done."], tools="unsafe")
    (run_id,) = room.ids()
    made = room.on("fork", run_id, "--at", "1", "--run-id", "second", "--agent", "mine:agent")
    assert "fsm-agent resume second --agent mine:agent" in made.err


def test_a_run_that_was_begun_in_code_is_gone_on_with_by_naming_its_agent(room: Room) -> None:
    """The commands that `show` gives to copy have the option that they would be refused without."""
    agent = Agent(ScriptedModel([ANA]), [tool(requires_approval=True)(send)], store=room.store, logger=silent_logger())
    run_id = agent.invoke("Write to Ana.").run_id
    shown = room.on("show", run_id).out
    assert f"fsm-agent approve {run_id[:8]} --agent MODULE:ATTR --store runs.db" in shown
    assert "--agent MODULE:ATTR" in error_of(room.on("approve", run_id))
    (room.folder / "desk.py").write_text(DESK, encoding="utf-8")
    kept = room.on("approve", run_id, "--agent", "desk:agent", "--no-go-on")
    assert f"go on with it: fsm-agent resume {run_id[:8]} --agent desk:agent --store runs.db" in kept.err


@pytest.mark.parametrize("command", [("audit",), ("replay",), ("report",), ("cancel",), ("approve", "--no-go-on")])
def test_the_agent_of_a_command_is_made_once(room: Room, command: tuple[str, ...]) -> None:
    """What `--agent` names may open connections: it is called no more often than it is used."""
    agent = Agent(ScriptedModel([ANA]), [tool(requires_approval=True)(send)], store=room.store, logger=silent_logger())
    run_id = agent.invoke("Write to Ana.").run_id
    (room.folder / "desk.py").write_text(DESK, encoding="utf-8")
    assert room.on(command[0], run_id, *command[1:], "--agent", "desk:agent").code in (0, 4)
    assert (room.folder / "made.txt").read_text(encoding="utf-8") == "made\n"


DESK = """
from fsm_agent import Agent, tool
from fsm_agent.testing import ScriptedModel
from tests.cli.test_cli_replay import send

def agent(store):
    with open("made.txt", "a") as file:
        file.write("made\\n")
    return Agent(ScriptedModel(["Done."]), [tool(requires_approval=True)(send)], store=store)
"""


def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


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
    assert "is the seal of one run" in error_of(room.on("audit", "--all", "--head", head))


def test_an_audit_without_the_key_of_an_encrypted_run_says_that_it_checked_the_seals(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not read may check the seals, and no transition is counted as checked; with another key it is not right."""
    pytest.importorskip("cryptography")
    keys = [base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2)]
    monkeypatch.setenv("FSM_AGENT_TRAIL_ENCRYPTION_KEY", keys[0])
    room.run([ANA])
    (run_id,) = room.ids()
    assert "2 transitions" in room.on("audit", run_id).out
    monkeypatch.delenv("FSM_AGENT_TRAIL_ENCRYPTION_KEY")
    done = room.on("audit", run_id)
    assert (done.code, "6 entries, only their seals checked" in done.out, "transitions," in done.out) == (
        0,
        True,
        False,
    )
    document = room.on("audit", run_id, "--json").document
    assert (document["ok"], document["seals_only"]) == (True, True)
    monkeypatch.setenv("FSM_AGENT_TRAIL_ENCRYPTION_KEY", keys[1])
    assert room.on("audit", run_id).code == 1


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


def test_a_report_is_a_page_of_any_run_that_can_be_read(room: Room) -> None:
    """To a file or to standard output, the same; secrets only when asked for; a damaged run too, which every other command refuses."""
    room.run([call("send", to="Ana", password="hunter2")])
    (run_id,) = room.ids()
    shown = room.on("report", run_id).out
    assert shown.startswith("<!doctype html>")
    assert "It needs a decision about send." in shown
    assert room.on("report", run_id[:13], "-o", "run.html").out == ""
    assert (room.folder / "run.html").read_text(encoding="utf-8") == shown
    assert "hunter2" not in shown
    assert "hunter2" in room.on("report", run_id, "--unredacted").out
    assert "audit: nothing wrong" in room.on("report", run_id, "--tools", "letters:send").out
    assert "was cut off or rewritten" in room.on("report", run_id, "--head", "none").out
    assert "cannot write" in error_of(room.on("report", run_id, "-o", "none/run.html"))
    with sqlite3.connect("runs.db") as link:
        link.execute("UPDATE entries SET text = replace(text, 'Ana', 'Eve') WHERE seq = 2")
    link.close()
    damaged = room.on("report", run_id)
    assert damaged.code == 0
    assert "The audit found fault with this trail." in damaged.out
    assert "Eve" in damaged.out
