"""`fsm-agent diagram` and `diff`: what the library draws, where it was asked to go."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import pytest

from fsm_agent import Agent, Limits, tool
from fsm_agent.diagrams import diagram
from fsm_agent.observe import silent_logger
from fsm_agent.table import TABLE
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import SQLiteTrail
from fsm_agent.trail.changes import Change
from tests.cli.kit import SECONDS, command, environment, fsm


@tool
def look(number: int) -> str:
    """Look it up."""
    return f"it is {number}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file with two runs, `one` that answers at once and `two` that looks something up before, under six steps."""
    path = tmp_path / "runs.db"
    trails = SQLiteTrail(path)
    model = ScriptedModel(["done", call("look", number=1), "done"])
    agent = Agent(model, [look], limits=Limits(max_steps=6), store=trails, logger=silent_logger())
    for name in ("one", "two"):
        agent.invoke("look", {"configurable": {"run_id": name}})
    trails.close()
    return path


def test_the_machine_is_drawn_with_the_limits_of_the_command_line() -> None:
    """Standard output is the Mermaid text that the library gives for these limits, and nothing else."""
    done = fsm("diagram", "--max-steps", "77", "--token-budget", "none")
    assert done.code == 0
    assert done.out == diagram("mermaid", limits=Limits(max_steps=77, token_budget=None))
    assert fsm("diagram", env={"FSM_AGENT_MAX_STEPS": "78"}).out == diagram("mermaid", limits=Limits(max_steps=78))
    assert "at least 5 steps were taken" in fsm("diagram", "--detail", "sentences", "--max-steps", "5").out


def test_a_run_that_was_given_other_limits_is_drawn_with_those(tmp_path: Path) -> None:
    """Its newest limits are the ones that stopped it, or did not; the report shows the same."""
    model = ScriptedModel([call("look", number=1), "done"])
    agent = Agent(model, [look], limits=Limits(max_steps=1), store=tmp_path / "runs.db", logger=silent_logger())
    agent.pause_at("DECIDE").invoke("look", {"configurable": {"run_id": "r"}})
    assert agent.pause_at().resume("r", change=Change(limits={"max_steps": 77})).ok
    kept = ("--store", str(tmp_path / "runs.db"))
    drawn = fsm("diagram", "--run", "r", "-f", "markdown", *kept).out
    assert "at least 77 steps were taken" in drawn
    assert "at least 1 steps" not in drawn
    assert "at least 77 steps were taken" in fsm("report", "r", *kept).out


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.mmd", b"flowchart TD\n"),
        ("a.dot", b"digraph machine {\n"),
        ("a.gv", b"digraph machine {\n"),
        ("a.svg", b"<?xml"),
        ("a.PNG", b"\x89PNG\r\n"),
        ("a.md", b"| source | event |"),
        ("a.csv", b"source,event,turn"),
    ],
)
def test_the_name_of_the_file_says_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    """`-o FILE` writes what its name says, and leaves standard output alone."""
    done = fsm("diagram", "-o", str(tmp_path / name))
    assert (done.code, done.out) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert name in done.err.replace("\n", "")


def test_a_format_that_is_given_comes_before_the_name(tmp_path: Path) -> None:
    """`--format` decides; without it a name that says nothing is refused, as is a file that cannot be written."""
    assert fsm("diagram", "-f", "csv", "-o", str(tmp_path / "a.txt")).code == 0
    assert (tmp_path / "a.txt").read_text(encoding="utf-8").startswith("source,event")
    unsaid = fsm("diagram", "-o", str(tmp_path / "b.txt"))
    assert unsaid.code == 2
    assert "add --format" in unsaid.err
    assert not (tmp_path / "b.txt").exists()
    assert fsm("diagram", "-o", str(tmp_path / "none" / "c.svg")).code == 2


def test_an_image_can_be_piped(tmp_path: Path) -> None:
    """The bytes of a PNG go to a standard output that is no terminal, as they are."""
    words = command("diagram", "--format", "png")
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, timeout=SECONDS, check=True)
    assert done.stdout.startswith(b"\x89PNG\r\n")
    assert done.stdout.endswith(b"IEND\xaeB`\x82")


def test_a_stored_run_is_drawn_under_its_own_limits(store: Path) -> None:
    """`--run` draws the path of that run, with the limits that it had, whatever is configured now."""
    done = fsm("diagram", "--run", "two", "--store", str(store), "--max-steps", "50")
    assert done.code == 0
    assert "run two stopped in FINISH" in done.out
    assert "(7) accepted<br/>1x at 2" in done.out
    drawn = fsm("diagram", "--run", "two", "--store", str(store), "-f", "markdown").out
    assert "at least 6 steps were taken" in drawn


def test_two_stored_runs_are_compared(store: Path) -> None:
    """`diff` shows what each of them did, and where they part."""
    done = fsm("diff", "one", "two", "--store", str(store), "-f", "csv")
    assert done.code == 0
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == len(TABLE)
    taken = {
        (one["source"], one["event"]): (one["times_a"], one["times_b"]) for one in rows if one["turn"] in {"", "7"}
    }
    assert (taken["VALIDATE", "answered"], taken["VALIDATE", "accepted"]) == (("1", "1"), ("0", "1"))
    assert "They part at transition 2" in fsm("diff", "one", "two", "--store", str(store)).out


@pytest.mark.parametrize("args", [["runs"], ["show", "one"], ["diagram", "--run", "one"], ["diff", "one", "two"]])
def test_an_env_file_names_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """Whatever shows stored runs finds them, and the keys to them, where an env file says."""
    monkeypatch.setenv("FSM_AGENT_STORE", "")
    monkeypatch.delenv("FSM_AGENT_STORE")
    file = tmp_path / "settings.env"
    file.write_text(f"FSM_AGENT_STORE={store}\n", encoding="utf-8")
    done = fsm(*args, "--env-file", str(file))
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--run", "one"), "--store FILE"),
        (("--run", "one", "--store", "nowhere.db"), "there is no store 'nowhere.db'"),
        (("--max-steps", "0"), "max_steps"),
    ],
)
def test_what_is_missing_is_named(args: tuple[str, ...], said: str) -> None:
    """Without a store, with one that is not there, with a wrong limit: one line, and exit code 2."""
    done = fsm("diagram", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_an_unknown_run_is_refused(store: Path) -> None:
    """A run that the file does not hold is named, and nothing is drawn."""
    done = fsm("diagram", "--run", "three", "--store", str(store))
    assert (done.code, done.out) == (2, "")
    assert "three" in done.err
