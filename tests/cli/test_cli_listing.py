"""`tools`, `table`, `limits`, `version` and the help: complete, configured, and fit for 80 columns."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fsm_agent.alphabet import State
from fsm_agent.limits import Limits
from fsm_agent.table import TABLE
from fsm_agent.tools.builtin import calculator
from tests.cli.kit import environment, fsm, process

COMMANDS = ("run", "demo", "tools", "table", "limits", "version", "model")


def width(text: str) -> int:
    """The longest line."""
    return max(map(len, text.splitlines()))


def test_tools_are_listed_as_the_model_sees_them() -> None:
    """The schema that is shown is the schema that is sent."""
    (found,) = fsm("tools", "--json").document
    assert found["name"] == "calculator"
    assert found["description"] == calculator.full_description
    assert found["parameters"] == calculator.parameters()


def test_tools_are_readable_in_80_columns(tmp_path: Path) -> None:
    """Name, description, marks and schema, without a line that a terminal breaks."""
    shown = fsm("tools", "--files", str(tmp_path)).out
    assert width(shown) <= 80
    assert "write_file  needs approval, fallback: write_temp_file" in shown
    assert '"expression": {' in shown


def test_tools_are_linted(tmp_path: Path) -> None:
    """Findings are a line each, or JSON, and end the command with 1; without any it says so."""
    (tmp_path / "odd.py").write_text('def run(x: int) -> int:\n    """Do it."""\n    return x\n', encoding="utf-8")
    assert fsm("tools", "--lint").out == "nothing to mend in 1 tool\n"
    found = process("tools", "--lint", "--tools", "odd:run", cwd=tmp_path)
    assert (found.code, len(found.out.splitlines())) == (1, 3)
    assert "run.x: the field has no description" in found.out
    document = process("tools", "--lint", "--json", "--tools", "odd:run", cwd=tmp_path).document
    assert [one["rule"] for one in document] == ["no-description", "no-field-description", "generic-name"]


def test_every_row_of_the_table_is_printed_with_its_sentences() -> None:
    """As JSON: all rows, in their order, with what each guard says under the limits of the command line."""
    rows = fsm("table", "--json", "--max-steps", "77").document
    assert [(row["source"], row["event"], row["target"], row["reason"]) for row in rows] == [
        (row.source, row.event, row.target, row.reason) for row in TABLE
    ]
    assert [[guard["name"] for guard in row["guards"]] for row in rows] == [
        [guard.name for guard in row.guards] for row in TABLE
    ]
    sentences = {guard["name"]: guard["sentence"] for row in rows for guard in row["guards"]}
    assert "77" in sentences["steps_spent"]
    assert not any("{" in sentence for sentence in sentences.values())


def test_the_table_is_readable_in_80_columns() -> None:
    """Every state, event and guard is there, and rows that all states have stand once."""
    shown = fsm("table").out
    assert width(shown) <= 80
    words = set(shown.replace(":", " ").split())
    assert {row.event.value for row in TABLE} <= words
    assert {guard.name for row in TABLE for guard in row.guards} <= words
    assert {state.value for state in State} <= words
    assert shown.count("cancelled -> ABORT") == 1


def test_the_table_as_markdown_has_one_line_a_row() -> None:
    """A table that GitHub shows, as `diagram` writes it: as many cells in each line, no line broken, and what each guard means."""
    shown = fsm("table", "--markdown", "--max-steps", "77").out
    lines = shown.partition("\n\n")[0].splitlines()
    shared = len(State) - 2
    assert len(lines) == 2 + len(TABLE) - 2 * (shared - 1)
    assert {line.count("|") for line in lines} == {7}
    assert "- `steps_spent`: at least 77 steps were taken" in shown
    assert shown == fsm("diagram", "--format", "markdown", "--max-steps", "77").out


def test_every_limit_is_listed_with_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Option, environment or default."""
    monkeypatch.setenv("FSM_AGENT_MAX_NUDGES", "5")
    monkeypatch.setenv("FSM_AGENT_MAX_RETRIES", "")
    shown = fsm("limits", "--max-steps", "9").out
    rows = {line.split()[0]: line.split()[1:3] for line in shown.splitlines() if line.strip()}
    assert rows["max_steps"] == ["9", "option"]
    assert rows["max_nudges"] == ["5", "environment"]
    assert rows["max_retries"] == ["1", "default"]
    assert set(Limits.model_fields) <= set(rows)
    assert width(shown) <= 80


def test_version_names_the_package_and_what_it_stands_on() -> None:
    """What a bug report needs, by command and by option."""
    for args in (["version"], ["--version"]):
        lines = fsm(*args).out.splitlines()
        assert lines[0].startswith("fsm-agent ")
        assert f"langchain-core {version('langchain-core')}" in lines


@pytest.mark.parametrize("name", ["", *COMMANDS, *(f"model {one}" for one in ("pull", "list", "path", "serve"))])
def test_every_command_has_a_help_that_fits(name: str) -> None:
    """Each command says in a sentence what it does, in 80 columns."""
    done = fsm(*name.split(), "--help")
    assert done.code == 0
    assert width(done.out) <= 80
    assert "Usage: fsm-agent" in done.out
    assert fsm(*name.split(), "-h").out == done.out


def test_exit_codes_stand_in_the_help() -> None:
    """A script finds them where it looks."""
    for args in ([], ["run"], ["demo"]):
        shown = " ".join(fsm(*args, "--help").out.split())
        assert "0 completed, 3 partial (an answer forced at a limit), 1 failed, 4 suspended" in shown
        assert "130 cancelled, 2 wrong usage" in shown


def test_help_loads_nothing_that_runs_an_agent() -> None:
    """`--help` is quick: neither LangChain nor a client is imported for it."""
    code = (
        "import sys; from typer.testing import CliRunner; from fsm_agent.cli import app; "
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0; "
        "print({'langchain_core', 'openai', 'structlog', 'transitions', 'rich.live'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    """`fsm-agent table | head -1` ends without a traceback."""
    program = f"{sys.executable} -m fsm_agent table --json | head -c 1"
    done = subprocess.run(
        ["/bin/sh", "-c", program], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "["
    assert "Traceback" not in done.stderr


def test_python_dash_m_is_the_same_command(tmp_path: Path) -> None:
    """`python -m fsm_agent` works where scripts are not on the path, and is called by the same name."""
    assert "Usage: fsm-agent" in process("--help", cwd=tmp_path).out
