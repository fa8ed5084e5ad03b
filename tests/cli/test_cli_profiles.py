"""`fsm-agent profiles`, and `run` with a profile: what is shown, what wins, and what a trail keeps of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.observe import silent_logger
from fsm_agent.profiles import NAMES, profile
from fsm_agent.testing import ScriptedModel, call, server
from tests.cli.kit import Done, environment, fsm
from tests.cli.room import error_of
from tests.profiles.kit import act, done, finish, react
from tests.readme_parts import profiles_table


def run_as(name: str, script: list[Any], *args: str, task: str | None = "go") -> tuple[Done, list[Any]]:
    """`run --profile` against a server with this script, and the bodies of its requests."""
    with server(script) as s:
        words = [] if task is None else [task]
        ended = fsm("run", *words, "--profile", name, "--base-url", s.base_url, *args)
        return ended, [request.body for request in s.requests]


# ---------------------------------------------------------------- the table


def test_the_profiles_stand_side_by_side() -> None:
    """A column each, and what each is made of in rows."""
    lines = profiles_table().splitlines()
    assert lines[1].split() == list(NAMES)
    row = {line.split()[0]: line.split()[1:] for line in lines if line[1:2].isalpha() and len(line.split()) == 6}
    assert row["max_steps"] == ["6", "6", "10", "10", "5"]
    assert row["token_budget"] == ["100000", "100000", "100000", "18000", "100000"]
    assert row["on_limit"] == ["stop", "answer", "stop", "answer", "answer"]
    assert row["max_result_chars"] == ["8000", "200", "8000", "8000", "8000"]


@pytest.mark.parametrize(("columns", "tables"), [("80", 2), ("40", 5)])
def test_a_narrow_terminal_gets_several_tables_and_no_torn_word(columns: str, tables: int) -> None:
    """What does not fit beside the others stands below them."""
    printed = fsm("profiles", env={"COLUMNS": columns}).out
    assert printed.count(" dialect ") == tables
    assert set(printed.split()) >= {*NAMES, "search_documents", "max_tokens=22000", "MessageWindow,"}


def test_the_profiles_as_a_document() -> None:
    """Every value of each, all limits among them."""
    documents = fsm("profiles", "--json").document
    assert [one["name"] for one in documents] == list(NAMES)
    breaker = documents[3]
    assert breaker["limits"]["token_budget"] == 18_000
    assert breaker["limits"]["max_tool_calls"] == 50
    assert (breaker["memory"], breaker["max_tokens"]) == ("DualBuffer, reasoning=6, results=3, max_tokens=22000", 512)


def test_showing_profiles_loads_no_client() -> None:
    """It costs what the table costs: no provider, no Redis, no engine."""
    code = (
        "import sys; from fsm_agent.cli import app; app(['profiles'], standalone_mode=False); "
        "sys.exit([name for name in ('openai', 'langchain_openai', 'redis', 'langchain_core.tools', 'fsm_agent.agent', "
        "'fsm_agent.runner', 'transitions') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert ended.stderr.strip() in ("", "[]"), ended.stderr


# ---------------------------------------------------------------- run --profile


def test_a_run_is_made_as_the_profile_says() -> None:
    """Dialect, temperature, tools and limits come from it, with nothing else given."""
    ended, sent = run_as("breaker", [react("calculator", '{"expression": "1 + 2"}'), done("3")])
    assert (ended.code, ended.out) == (0, "3\n")
    assert [body["temperature"] for body in sent] == [0.3, 0.3]
    assert "search_documents" in sent[0]["messages"][0]["content"]


def test_options_win_over_the_profile() -> None:
    """Dialect, limits, tools, system text and memory that are given take the place of the profile's; the rest stays."""
    script = [call("calculator", expression="1 + 2"), "so far"]
    ended, sent = run_as(
        *("breaker", script, "--dialect", "native", "--max-steps", "1", "--system", "Be brief.", "--memory", "full"),
        *("--tools", "fsm_agent.tools:calculator", "--json"),
    )
    assert ended.document["status"] == "partial"
    assert "max_steps=1" in ended.document["detail"]
    assert sent[0]["messages"][0]["content"] == "Be brief."
    assert [one["function"]["name"] for one in sent[0]["tools"]] == ["calculator"]
    assert sent[0]["temperature"] == 0.3


def test_the_environment_wins_over_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does over a default."""
    monkeypatch.setenv("FSM_AGENT_MAX_STEPS", "1")
    ended, _ = run_as("native", [call("calculator", expression="1 + 2"), "so far"])
    assert ended.code == 3
    assert "max_steps=1" in ended.err


def test_an_unknown_profile_is_refused() -> None:
    """Before any model is chosen, with those that there are."""
    told = error_of(fsm("run", "go", "--profile", "brake"))
    assert "there are session, lightweight, controlled, breaker, native" in told


def test_a_run_needs_a_task() -> None:
    """Leaving it out says what to give."""
    assert "say what to do" in error_of(fsm("run"))


def test_the_tools_of_a_profile_can_be_looked_at(tmp_path: Path) -> None:
    """`tools --profile` lists them; what writes files needs approval on the command line."""
    (one,) = fsm("tools", "--profile", "controlled", "--files", str(tmp_path), "--json").document
    assert (one["name"], one["requires_approval"], one["fallback"]) == ("file_write", True, "write_temporary_file")


def test_a_profile_without_a_directory_gets_the_file_tools(tmp_path: Path) -> None:
    """`--files` adds them to its own."""
    shown = fsm("tools", "--profile", "session", "--files", str(tmp_path), "--json").document
    assert [one["name"] for one in shown] == ["query_order", "read_file", "write_file", "list_files"]


# ---------------------------------------------------------------- the trail


def test_a_suspended_run_of_a_profile_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trail knows the profile: another process resumes it from another directory with the same tools and root, and audit agrees."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    store = str(tmp_path / "runs.db")
    monkeypatch.chdir(home)
    ended, _ = run_as(
        "controlled", [call("file_write", path="a.txt", content="one")], "--approve", "defer", "--store", store
    )
    assert ended.code == 4
    (run,) = fsm("runs", "--store", store, "--json").document
    monkeypatch.chdir(away)
    with server(["written"]) as s:
        after = fsm("approve", run["run_id"], "--store", store, "--base-url", s.base_url)
    assert (after.code, after.out) == (0, "written\n")
    assert (home / "a.txt").read_text(encoding="utf-8") == "one"
    assert list(away.iterdir()) == []
    assert fsm("audit", run["run_id"], "--store", store).code == 0
    assert fsm("replay", run["run_id"], "--store", store).code == 0


# ---------------------------------------------------------------- threads


def test_a_thread_goes_on_in_the_next_command(tmp_path: Path) -> None:
    """With a file of conversations, for a profile and without one."""
    place = str(tmp_path / "threads.db")
    for name, first, second in (("session", finish("Hello Ada."), finish("Ada.")), ("native", "Hello Ada.", "Ada.")):
        kept = ("--thread", name, "--conversations", place)
        run_as(name, [first], *kept, task="I am Ada.")
        _, sent = run_as(name, [second], *kept, task="Who am I?")
        assert "I am Ada." in str(sent[0]["messages"])


def test_a_thread_that_nothing_keeps_is_refused() -> None:
    """And so is a place without a thread; `session` has a place of its own, and says when it is not there."""
    with server([]) as s:
        told = error_of(
            fsm("run", "go", "--profile", "native", "--thread", "t", "--base-url", s.base_url, "--model", "m", "-q")
        )
        assert "--conversations FILE" in told
        told = error_of(fsm("run", "go", "--conversations", "x.db", "--base-url", s.base_url, "--model", "m", "-q"))
        assert "--thread NAME" in told
        nowhere = {"FSM_AGENT_REDIS_URL": "redis://127.0.0.1:1/0"}
        ended = fsm(
            "run",
            "go",
            "--profile",
            "session",
            "--thread",
            "t",
            "--base-url",
            s.base_url,
            "--model",
            "m",
            "-q",
            env=nowhere,
        )
        assert ended.code == 2
        assert "see that the server runs" in ended.err


# ---------------------------------------------------------------- examples

RIGHT: dict[str, list[Any]] = {
    "session": [act("query_order", order_id="SO-2024-001"), finish("Lin Wei; 129.90 EUR.")],
    "lightweight": [
        act("search_documents", query="max_tool_calls"),
        act("calculator", expression="50 * 17"),
        finish("It is 850."),
    ],
    "controlled": [call("file_write", path="notes/greeting.txt", content="hello world"), "Done."],
    "breaker": [
        react("search_documents", '{"query": "max_retries"}'),
        react("calculator", '{"expression": "2 ** 10 + 1"}'),
        done("It is 1,025."),
    ],
    "native": [
        [call("query_order", order_id="SO-2024-001"), call("query_order", order_id="SO-2024-002")],
        call("calculator", expression="129.90 + 45.00"),
        "Together they cost 174.9 EUR.",
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_each_example_runs_and_is_checked(name: str) -> None:
    """`--example` runs the task with the profile's tools, and says of each thing that it must come to whether it did."""
    ended, sent = run_as(name, RIGHT[name], "--example", task=None)
    assert ended.code == 0, ended.err
    example = profile(name).example
    assert ended.err.count("right: ") == len(example.answer) + len(example.files)
    assert example.tasks["en"] in str(sent[0]["messages"])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_right_follows_from_the_tools(name: str) -> None:
    """The numbers that an example wants are those that its tools give."""
    ended, _ = run_as(name, RIGHT[name], "--example", "--json", task=None)
    given = " ".join(str(one["result"]) for one in ended.document["calls"])
    for wanted in profile(name).example.answer:
        assert wanted.removesuffix("0") in given


def test_a_wrong_example_is_a_failure() -> None:
    """The run may have ended well; the exit code says that it is not right."""
    ended, _ = run_as("native", ["I guess 100."], "--example", task=None)
    assert ended.code == 1
    assert "wrong: the answer says 174.90; found: I guess 100." in ended.err


def test_an_example_in_chinese() -> None:
    """The same task in the other language."""
    _, sent = run_as("session", RIGHT["session"], "--example", "--language", "zh", task=None)
    assert "订单 SO-2024-001" in str(sent[0]["messages"])


def test_an_example_is_of_a_profile_and_alone() -> None:
    """Without a profile there is none, and a task beside it is refused."""
    assert "--profile NAME" in error_of(fsm("run", "--example"))
    assert "leave TASK out" in error_of(fsm("run", "go", "--profile", "native", "--example"))


# ---------------------------------------------------------------- what is proved and drawn of one


@pytest.mark.parametrize("name", NAMES)
def test_what_is_proved_of_a_profile_is_what_its_agent_proves(name: str) -> None:
    """`verify --profile` explores the loop of the agent that `run --profile` makes: its limits, ladder, tools, memory and reflection."""
    proved = Agent.from_profile(name, ScriptedModel([]), logger=silent_logger()).verify().to_data()
    printed = fsm("verify", "--profile", name, "--json").document
    assert {**printed, "seconds": 0} == {**json.loads(json.dumps(proved)), "seconds": 0}


def test_the_table_and_the_picture_of_a_profile_have_its_limits() -> None:
    """An option of a limit wins over the profile, as for `run`; a profile that there is not is refused."""
    assert "pass 18000" in fsm("table", "--profile", "breaker", "--markdown").out
    assert "at least 6 steps" in fsm("diagram", "--profile", "session", "--detail", "sentences").out
    wins = fsm("diagram", "--profile", "session", "--max-steps", "4", "--detail", "sentences").out
    assert "at least 4 steps" in wins
    for command in ("table", "diagram", "verify"):
        assert "profile 'lazy' does not exist" in error_of(fsm(command, "--profile", "lazy"))
