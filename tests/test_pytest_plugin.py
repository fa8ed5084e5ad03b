"""The pytest plugin: its fixtures, its transition coverage, and that it does nothing to those who do not ask."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fsm_agent import Limits, State
from fsm_agent.alphabet import Event
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.table import TABLE
from fsm_agent.testing import at
from fsm_agent.testing.coverage import Coverage, collecting
from fsm_agent.verify import verify

pytest_plugins = ("pytester",)

# By name, in place of the entry point: the same whether or not this checkout is installed.
PLUGIN = (
    *("-p", "no:fsm_agent", "-p", "fsm_agent.pytest_plugin"),
    *("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:cov", "-p", "no:hypothesispytest", "-p", "no:langsmith"),
)
ONE_ROW = """
from fsm_agent import State
from fsm_agent.testing import at

def test_one():
    assert at(State.RETRY, failure="model").fire().target is State.PLAN
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """An inner pytest with the plugin."""
    return pytester.runpytest_inprocess(*PLUGIN, *args)


def test_the_plugin_is_where_pytest_looks_for_it() -> None:
    """The package declares the plugin under its own name, so that it comes with the installation."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"fsm_agent": "fsm_agent.pytest_plugin"}


def test_loading_the_plugin_loads_nothing_of_the_engine() -> None:
    """It is loaded into every pytest run of the environment, so it costs next to nothing until it is asked for."""
    code = (
        "import pytest, sys; before = set(sys.modules); import fsm_agent.pytest_plugin; "
        "print(sorted(name for name in set(sys.modules) - before if name.partition('.')[0] != 'importlib'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fsm_agent', 'fsm_agent.pytest_plugin']"


def test_who_does_not_ask_notices_nothing(pytester: pytest.Pytester) -> None:
    """Without an option nothing is counted and nothing printed, and the machine is as it was."""
    pytester.makepyfile(
        """
        def test_nothing(request):
            assert not request.config.pluginmanager.has_plugin("fsm_agent_coverage")
        """
    )
    fire = Machine.fire
    found = run(pytester)
    found.assert_outcomes(passed=1)
    found.stdout.no_fnmatch_line("*transition coverage*")
    assert Machine.fire is fire


# ---------------------------------------------------------------- fixtures

FIXTURES = """
import pytest
from fsm_agent.testing import FakeClock, call

def test_used_up(scripted_model, scripted_tool, silent_agent, fake_clock, capsys):
    tool = scripted_tool("add", [ConnectionError("down"), "3"], args={"a": int, "b": int})
    agent = silent_agent(scripted_model([call("add", a=1, b=2), "It is 3."]), [tool])
    assert agent.invoke("1 + 2?").answer == "It is 3."
    assert len(fake_clock.slept) == 1
    assert capsys.readouterr().out == ""

def test_script(silent_agent):
    assert silent_agent(["Hello."]).invoke("Hi.").answer == "Hello."

def test_model_not_used_up(scripted_model):
    scripted_model(["never said"])

def test_tool_not_used_up(scripted_tool):
    scripted_tool("add", ["never given"])

def test_script_not_used_up(silent_agent):
    silent_agent(["Hello.", "never said"]).invoke("Hi.")

def test_fails_by_itself(scripted_model):
    scripted_model(["never said"])
    assert False, "the only thing to tell"
"""


def test_what_a_fixture_made_has_to_be_used_up(pytester: pytest.Pytester) -> None:
    """A script that is left over fails its test; a test that has failed already is told of nothing else."""
    pytester.makepyfile(FIXTURES)
    found = run(pytester)
    found.assert_outcomes(passed=5, failed=1, errors=3)
    found.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_model_not_used_up*",
            "*1 of 1 entries were never asked for*never said*",
            "*ERROR at teardown of test_tool_not_used_up*",
            "*tool 'add'*1 of 1 entries were never asked for*never given*",
            "*ERROR at teardown of test_script_not_used_up*",
            "*1 of 2 entries were never asked for*",
        ]
    )


# ---------------------------------------------------------------- coverage


def test_what_was_exercised_is_told(pytester: pytest.Pytester) -> None:
    """Each row that never fired and each guard outcome that was never seen is a line, and the count is the last."""
    pytester.makepyfile(ONE_ROW)
    found = run(pytester, "--fsm-cov")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(
        [
            "*transition coverage*",
            "row never fired: PLAN --replied--> VALIDATE",
            "row never fired: RETRY --waited--> EXECUTE",
            "guard never seen to fail: retrying_model",
            f"1 of {len(TABLE)} rows, 1 of * guard outcomes: * %",
        ]
    )
    found.stdout.no_fnmatch_line("*never fired: RETRY --waited [[]*")


@pytest.mark.parametrize(("least", "code"), [("1", 0), ("99.5", 1), ("100", 1)])
def test_a_threshold_fails_the_session(pytester: pytest.Pytester, least: str, code: int) -> None:
    """Tests that all pass fail the session when they exercise too little, and say so."""
    pytester.makepyfile(ONE_ROW)
    found = run(pytester, f"--fsm-cov-fail-under={least}")
    assert found.ret == code
    found.assert_outcomes(passed=1)
    if code:
        found.stdout.fnmatch_lines([f"FAIL: fewer than the {least} % that --fsm-cov-fail-under asks for"])


@pytest.mark.parametrize("least", ["800", "-1", "nan", "inf", "most"])
def test_a_threshold_is_a_percentage(pytester: pytest.Pytester, least: str) -> None:
    """A number that no coverage can reach, or each does, and what is no number, are refused before a test runs."""
    pytester.makepyfile(ONE_ROW)
    found = run(pytester, f"--fsm-cov-fail-under={least}")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"*--fsm-cov-fail-under: {least!r} is no percentage: give a number from 0 to 100"])


def test_a_failed_test_stays_what_is_told(pytester: pytest.Pytester) -> None:
    """The threshold changes no exit code but that of success, and collecting alone measures nothing."""
    pytester.makepyfile("def test_bad():\n    assert False")
    assert run(pytester, "--fsm-cov-fail-under=0").ret == pytest.ExitCode.TESTS_FAILED
    assert run(pytester, "--fsm-cov-fail-under=100", "--collect-only").ret == pytest.ExitCode.OK
    pytester.makepyfile("")
    assert run(pytester, "--fsm-cov-fail-under=100", "-k", "none").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_reports_are_written(pytester: pytest.Pytester) -> None:
    """A table of everything, the numbers as JSON, and diagrams in which what never fired is marked."""
    pytester.makepyfile(ONE_ROW)
    files = {"markdown": "cov.md", "json": "deep/er/cov.json", "mermaid": "cov.mmd", "dot": "cov.dot"}
    found = run(
        pytester, *(f"--fsm-cov-report={kind}:{file}" for kind, file in files.items()), "--fsm-cov-report=term-all"
    )
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["wrote markdown to cov.md", "| `RETRY --waited [[]retrying_model[]]--> PLAN` | 1 |"])
    written = {kind: (pytester.path / file).read_text(encoding="utf-8") for kind, file in files.items()}
    assert "| `RETRY --waited--> EXECUTE` | **never** |" in written["markdown"]
    assert "| `retrying_model` | 1 | **never** |" in written["markdown"]
    data = json.loads(written["json"])
    assert data["rows"]["RETRY --waited [retrying_model]--> PLAN"] == 1
    assert sum(data["rows"].values()) == 1
    assert data["guards"]["retrying_model"] == {"held": 1, "did_not_hold": 0}
    assert "1x" in written["mermaid"]
    assert written["dot"].startswith("digraph")


def test_a_report_that_cannot_be_written_fails_nothing(pytester: pytest.Pytester) -> None:
    """The file is named with the reason; the tests are what they are."""
    pytester.makepyfile(ONE_ROW)
    (pytester.path / "taken").mkdir()
    found = run(pytester, "--fsm-cov-report=json:taken")
    assert found.ret == 0
    found.stdout.fnmatch_lines(["cannot write json to taken: *"])


@pytest.mark.parametrize("report", ["html", "json", "term:file", "svg:"])
def test_a_report_that_there_is_not_is_refused(pytester: pytest.Pytester, report: str) -> None:
    """Before any test: the kinds are listed."""
    found = run(pytester, f"--fsm-cov-report={report}")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"*--fsm-cov-report: '{report}' is none of term, term-all, markdown, *"])


def test_a_table_of_ones_own_is_measured_by_name(pytester: pytest.Pytester) -> None:
    """Rows, a machine or an agent; what other tables did is said, not counted. A name that there is not is refused."""
    pytester.syspathinsert()
    pytester.makepyfile(
        mine="""
        from fsm_agent import Agent
        from fsm_agent.alphabet import Event, State, StopReason
        from fsm_agent.guards import Guard
        from fsm_agent.machine import Machine
        from fsm_agent.table import TABLE, Row, Table
        from fsm_agent.testing import ScriptedModel

        RICH = Guard("rich", "there is plenty", lambda ctx: (ctx.usage.total > 5, {"tokens": ctx.usage.total}))
        ROWS = (Row(State.DECIDE, Event.DECIDED, State.ABORT, (RICH,), StopReason.DENIED), *TABLE)
        MACHINE = Machine(ROWS)
        AGENT = Agent(ScriptedModel(["x"]), table=Table(rows=ROWS))
        """,
        test_mine="""
        from fsm_agent import State
        from fsm_agent.testing import at
        from mine import MACHINE

        def test_rich():
            assert at(State.DECIDE, table=MACHINE, tokens=6).fire().target is State.ABORT
            assert at(State.DECIDE).fire().target is State.PLAN
        """,
    )
    for name in ("mine:ROWS", "mine:MACHINE", "mine:AGENT"):
        found = run(pytester, f"--fsm-cov-table={name}")
        found.stdout.fnmatch_lines(
            [
                "guard never seen to fail: rich",
                f"1 of {len(TABLE) + 1} rows*",
                "1 transitions of other tables are not counted*",
            ]
        )
        found.stdout.no_fnmatch_line("*never fired: DECIDE --decided [[]rich[]]*")
    found = run(pytester, "--fsm-cov-table=mine:NOTHING")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*--fsm-cov-table=mine:NOTHING*write MODULE:ATTR*"])
    found = run(pytester, "--fsm-cov-table=mine:RICH")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*--fsm-cov-table=mine:RICH is a Guard: name rows, *"])


def test_a_worker_hands_over_what_it_counted(pytester: pytest.Pytester) -> None:
    """With pytest-xdist a worker counts what it runs, and the controller adds that up and tells it."""
    pytester.makepyfile(
        test_a=ONE_ROW, test_b=ONE_ROW.replace('"model").fire().target is State.PLAN', '"tool").fire()')
    )
    found = pytester.runpytest_subprocess(*PLUGIN, "-n", "1", "--fsm-cov", "--fsm-cov-fail-under=4")
    found.stdout.fnmatch_lines([f"2 of {len(TABLE)} rows, 2 of * guard outcomes: * %", "FAIL: fewer than the 4 %*"])
    assert found.ret == 1


# ---------------------------------------------------------------- the counting


def test_only_what_happens_in_the_block_is_counted() -> None:
    """Collectors may stand inside each other, and leave the machine as they found it."""
    fire = Machine.fire
    outer, inner = Coverage(), Coverage()
    with collecting(outer):
        at(State.DECIDE).fire()
        with collecting(inner):
            at(State.RETRY, failure="model").fire()
    at(State.DECIDE).fire()
    assert Machine.fire is fire
    assert (sum(outer.fired), sum(inner.fired)) == (2, 1)
    assert inner.asked["retrying_model"] == {True: 1, False: 0}


def test_exploring_is_no_test() -> None:
    """What `verify` asks of the machine counts for nothing, or one call of it would be full coverage."""
    with collecting(Coverage()) as coverage:
        verify(
            Limits(max_steps=1, max_nudges=0, max_degradations=0, degrade_after=1, abort_after=1, no_progress_steps=1)
        )
    assert sum(coverage.fired) == 0


def test_nothing_exercised_is_no_percent_and_all_is_a_hundred() -> None:
    """The percentage is of rows and guard outcomes together, and is rounded down, so that 100 % means all."""
    coverage = Coverage()
    assert (coverage.percent, len(coverage.idle_rows)) == (0.0, len(TABLE))
    guards = {name: {"held": 1, "did_not_hold": 1} for name in coverage.asked}
    full = {"rows": {str(row): 1 for row in TABLE}, "guards": guards, "other_tables": 0}
    coverage.add(full)
    assert (coverage.percent, coverage.missing()) == (100.0, "")
    nearly = Coverage()
    nearly.add({**full, "guards": guards | {"steps_spent": {"held": 999, "did_not_hold": 0}}})
    assert nearly.missing() == "guard never seen to fail: steps_spent"
    assert not str(nearly).endswith(" 100 %")


def test_the_diagram_marks_what_never_fired() -> None:
    """Rows that fired are drawn with how often, all others grey and dashed."""
    with collecting(Coverage()) as coverage:
        for _ in range(3):
            DEFAULT_MACHINE.fire(State.DECIDE, Event.DECIDED, at(State.DECIDE).context)
    drawn = coverage.diagram("mermaid")
    assert "3x" in drawn
    assert 's_RETRY -.->|"waited"| s_PLAN' in drawn
    assert 's_DECIDE ==>|"(15) decided<br/>3x"| s_PLAN' in drawn


def test_the_same_rows_in_another_machine_are_the_same_table() -> None:
    """What counts is what the rows are, not which machine fires them; a row less is another table."""
    with collecting(Coverage()) as coverage:
        at(State.DECIDE, table=Machine(list(TABLE))).fire()
    assert (sum(coverage.fired), coverage.others) == (1, 0)
    with collecting(Coverage(TABLE[1:])) as other:
        at(State.DECIDE).fire()
    assert (sum(other.fired), other.others, other.percent) == (0, 1, 0.0)
