"""The pytest plugin: fixtures of the test kit, and transition coverage.

pytest loads it wherever the package is installed, so that it imports nothing of the engine until a test or an option asks for it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from fsm_agent.agent import Agent
    from fsm_agent.table import Row
    from fsm_agent.testing import FakeClock, ScriptedModel, ScriptedTool
    from fsm_agent.testing.coverage import Coverage

_REPORTS: Final = ("term", "term-all", "markdown", "json", "mermaid", "dot", "svg")
_ALL: Final = 100.0
_KEY: Final = "fsm_agent_coverage"
_FAILED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of transition coverage. None of them is on by default."""
    group = parser.getgroup("fsm_agent", "transition coverage of fsm_agent")
    group.addoption(
        "--fsm-cov", action="store_true", help="Count which rows of the table fire, and which answers its guards give."
    )
    group.addoption(
        "--fsm-cov-table",
        metavar="MODULE:ATTR",
        help="Another table: rows, a Table, a Machine, or an Agent. Default: the one of fsm_agent.",
    )
    group.addoption(
        "--fsm-cov-report",
        action="append",
        default=[],
        metavar="REPORT",
        type=_report,
        help="What to tell: term (default: what is missing), term-all, or markdown:FILE, json:FILE, mermaid:FILE, dot:FILE, "
        "svg:FILE. May be given more than once.",
    )
    group.addoption(
        "--fsm-cov-fail-under",
        type=_percent,
        metavar="PERCENT",
        help="Fail when fewer rows and guard outcomes than that were exercised, 0 to 100.",
    )


def _report(text: str) -> tuple[str, str]:
    kind, _, file = text.partition(":")
    if kind not in _REPORTS or bool(file) is kind.startswith("term"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of {', '.join(_REPORTS)}; all but term and term-all need a file: {kind}:FILE"
        )
    return kind, file


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not 0.0 <= percent <= _ALL:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage: give a number from 0 to 100")
    return percent


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, if an option asks for it."""
    option = config.option
    asked = option.fsm_cov or option.fsm_cov_report or option.fsm_cov_table or option.fsm_cov_fail_under is not None
    if asked and not option.collectonly and not config.pluginmanager.has_plugin(_KEY):
        config.pluginmanager.register(_Collector(config), _KEY)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test has failed: what its fixtures would say then is no news."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


class _Collector:
    """Counts while the tests run, and tells at the end. With pytest-xdist each worker counts, and the controller adds up."""

    def __init__(self, config: pytest.Config) -> None:
        from fsm_agent.testing.coverage import Coverage, collecting  # noqa: PLC0415 - the engine, when it is asked for

        self._config = config
        self._coverage: Coverage = Coverage(_rows(config.option.fsm_cov_table))
        self._block = ExitStack()
        self._block.enter_context(collecting(self._coverage))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker of pytest-xdist counted."""
        data = getattr(node, "workeroutput", {}).get(_KEY)
        if data is not None:
            self._coverage.add(data)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Stop counting. A worker hands over what it has; anybody else fails the session below the threshold."""
        self._block.close()
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self._coverage.data()
        elif exitstatus == pytest.ExitCode.OK and self._short:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def _short(self) -> bool:
        least = self._config.option.fsm_cov_fail_under
        return least is not None and self._coverage.percent < least

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print and write the reports."""
        coverage = self._coverage
        terminalreporter.section("transition coverage")
        for kind, file in self._config.option.fsm_cov_report or [("term", "")]:
            if not file:
                terminalreporter.write(coverage.table() if kind == "term-all" else "")
                continue
            terminalreporter.write_line(_written(coverage, kind, Path(file)))
        missing = coverage.missing()
        if missing:
            terminalreporter.write_line(missing)
        terminalreporter.write_line(str(coverage))
        if coverage.others:
            terminalreporter.write_line(
                f"{coverage.others} transitions of other tables are not counted; --fsm-cov-table=MODULE:ATTR names one"
            )
        if self._short:
            least = self._config.option.fsm_cov_fail_under
            terminalreporter.write_line(
                f"FAIL: fewer than the {least:g} % that --fsm-cov-fail-under asks for", red=True
            )


def _written(coverage: Coverage, kind: str, file: Path) -> str:
    """Write a report; what cannot be drawn or written here is told, and fails nothing."""
    try:
        if kind == "json":
            text = json.dumps(coverage.data(), indent=2) + "\n"
        elif kind == "markdown":
            text = coverage.table()
        else:
            text = coverage.diagram(kind)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        return f"cannot write {kind} to {file}: {error}"
    return f"wrote {kind} to {file}"


def _rows(name: str | None) -> Sequence[Row]:
    """The rows that `--fsm-cov-table` names. Raises `pytest.UsageError` for what is no table."""
    from fsm_agent import table  # noqa: PLC0415 - the engine, when it is asked for

    if name is None:
        return table.TABLE
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"--fsm-cov-table={name}: {error}; write MODULE:ATTR") from error
    rows = getattr(getattr(found, "machine", found), "rows", found)
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, table.Row) for row in rows):
        raise pytest.UsageError(
            f"--fsm-cov-table={name} is a {type(found).__name__}: name rows, a Table, a Machine or an Agent"
        )
    return rows


# ---------------------------------------------------------------- fixtures


def _used_up(request: pytest.FixtureRequest, checks: list[Callable[[], None]]) -> None:
    """Check what a test has made, unless the test has failed already."""
    if not request.node.stash.get(_FAILED, False):
        for check in checks:
            check()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that never waits."""
    from fsm_agent.testing import FakeClock  # noqa: PLC0415 - the engine, when a test asks for it

    return FakeClock()


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Iterator[Callable[..., ScriptedModel]]:
    """Makes a `ScriptedModel`; the test fails when its script is not used up."""
    from fsm_agent.testing import ScriptedModel  # noqa: PLC0415 - the engine, when a test asks for it

    checks: list[Callable[[], None]] = []

    def make(script: Any = None, **options: Any) -> ScriptedModel:
        made = ScriptedModel(script, **options)
        checks.append(made.assert_exhausted)
        return made

    yield make
    _used_up(request, checks)


@pytest.fixture
def scripted_tool(request: pytest.FixtureRequest) -> Iterator[Callable[..., ScriptedTool]]:
    """Makes a `ScriptedTool`; the test fails when its script is not used up."""
    from fsm_agent.testing import ScriptedTool  # noqa: PLC0415 - the engine, when a test asks for it

    checks: list[Callable[[], None]] = []

    def make(stands_for: Any, results: Any = (), **options: Any) -> ScriptedTool:
        made = ScriptedTool(stands_for, results, **options)
        checks.append(made.assert_used_up)
        return made

    yield make
    _used_up(request, checks)


@pytest.fixture
def silent_agent(scripted_model: Callable[..., ScriptedModel], fake_clock: FakeClock) -> Callable[..., Agent]:
    """Makes an `Agent` that logs nothing and never waits. The model may be a script, which then has to be used up."""
    from fsm_agent.agent import Agent  # noqa: PLC0415 - the engine, when a test asks for it
    from fsm_agent.observe import silent_logger  # noqa: PLC0415 - the same

    def make(model: Any, tools: Any = (), **options: Any) -> Agent:
        chosen = scripted_model(model) if isinstance(model, list | tuple) else model
        return Agent(chosen, tools, **{"logger": silent_logger(), "clock": fake_clock, **options})

    return make
