"""`--policy FILE`: a tool policy for a run, its certificate and its picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsm_agent.policy import AtMost, Order, ToolPolicy
from fsm_agent.testing import call
from tests.cli.kit import fsm
from tests.cli.room import Room, error_of

ONCE = {"rules": [{"rule": "at_most", "tool": "send", "times": 1}]}
FEW = (
    "--max-steps",
    "2",
    "--abort-after",
    "2",
    "--no-progress-steps",
    "1",
    "--max-nudges",
    "0",
    "--max-degradations",
    "0",
)


def kept(folder: Path, data: object) -> str:
    """The file that holds a policy."""
    file = folder / "policy.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return str(file)


def test_a_run_is_held_to_its_policy_and_goes_on_under_it(room: Room) -> None:
    """The policy is in the trail: a command that goes on with the run needs no file, and a call too many is refused."""
    script = [call("send", to="Ada")]
    begun = room.run(list(script), "--policy", kept(room.folder, ONCE))
    assert begun.code != 0
    (room.folder / "policy.json").unlink()
    (run,) = room.ids()
    done = room.on("approve", run, script=[call("send", to="Bob"), "Sent."])
    assert (done.code, done.out) == (0, "Sent.\n")
    assert room.sent() == ["Ada"]
    assert room.on("audit", run).code == 0
    assert "send may be called at most once" in room.on("show", run).out


def test_a_policy_is_proved_and_drawn(tmp_path: Path) -> None:
    """`verify` tells a tool that is never due, with 1; `diagram` draws the policy in the format that the file name says."""
    file = kept(tmp_path, ToolPolicy(Order("look", "discount", "pay"), AtMost("pay")).to_data())
    done = fsm("verify", "--policy", file, "--json", *FEW)
    assert done.code == 1
    assert [fault["kind"] for fault in done.document["faults"]] == ["uncallable"]
    assert "s_0_2 ==>" in fsm("diagram", "--policy", file).out
    assert fsm("diagram", "--policy", file, "-o", str(tmp_path / "policy.md")).code == 0
    assert "- pay at most once" in (tmp_path / "policy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "policy.json"),
        ("[" * 100_000, "policy.json"),
        ('{"rules": [{"rule": "at_most", "tool": "a", "times": 0}]}', "give 1 or more"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_policy_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    """What is wrong is told in one line, with the file."""
    file = tmp_path / "policy.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert said in error_of(fsm("diagram", "--policy", str(file)))


@pytest.mark.parametrize("other", [("--run", "0a0c"), ("--table", "fsm_agent.examples.compliance:TABLE")])
def test_a_policy_is_drawn_alone(tmp_path: Path, other: tuple[str, str]) -> None:
    """A run or a table to draw beside a policy is refused, not passed over."""
    done = fsm("diagram", "--policy", kept(tmp_path, ONCE), *other)
    assert done.code == 2
    assert "--policy" in error_of(done)
