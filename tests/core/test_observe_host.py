"""The host's logging: structlog as the host has configured it is used, and left as it is."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from fsm_agent import Agent, Limits
from fsm_agent.observe import EVENT_NAME, StructlogObserver, json_logger, silent_logger
from fsm_agent.testing import ScriptedModel, call
from tests.core.builders import TOOLS
from tests.core.logged import DECIDED, LONG, logged


@pytest.fixture
def host() -> Iterator[Callable[..., list[Any]]]:
    """Configure structlog as a host would, with these processors; gives the list of what comes out of them."""
    before, configured = structlog.get_config(), structlog.is_configured()

    def configure(*processors: Any, **options: Any) -> list[Any]:
        lines: list[Any] = []

        def keep(_: Any, __: str, event: Any) -> Any:
            lines.append(event)
            raise structlog.DropEvent

        structlog.configure(processors=[*processors, keep], **options)
        return lines

    yield configure
    structlog.configure(**before) if configured else structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_the_hosts_configuration_is_used_and_left_as_it_is(host: Callable[..., list[Any]]) -> None:
    """What the host configured comes to bear, and is the very same afterwards; its root logger too."""
    lines = host(structlog.processors.add_log_level)
    config, root = structlog.get_config(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    result = Agent(ScriptedModel(["3"])).invoke("x")
    stream = io.StringIO()
    Agent(ScriptedModel(["3"]), logger=json_logger(stream)).invoke("x")
    after = structlog.get_config()
    assert after == config
    assert after["processors"] is config["processors"]
    assert (root.handlers, root.level) == (handlers, level)
    assert [line["level"] for line in lines] == ["info"] * len(result.transitions)
    assert [line["event"] for line in lines] == [EVENT_NAME] * len(result.transitions)


def test_importing_and_building_configures_nothing() -> None:
    """An unconfigured host stays unconfigured."""
    before = structlog.is_configured(), structlog.get_config()
    Agent(ScriptedModel(["3"]), logger=silent_logger()).invoke("x")
    StructlogObserver()
    assert (structlog.is_configured(), structlog.get_config()) == before


def test_without_a_configuration_the_log_is_kept_out_of_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script prints stays its own: structlog's lines go to standard error until the host says otherwise."""
    assert not structlog.is_configured()
    result = Agent(ScriptedModel(["3"])).invoke("x")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count(EVENT_NAME) == len(result.transitions)


def test_without_a_configuration_what_is_no_terminal_gets_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of log lines can be read by a program, with what the host bound; a person at a terminal gets structlog's own lines."""
    file, terminal = io.StringIO(), Terminal()
    with structlog.contextvars.bound_contextvars(request_id="r-7"):
        for stream in (file, terminal):
            monkeypatch.setattr("sys.stderr", stream)
            Agent(ScriptedModel(["3"])).invoke("x")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["event"], line["request_id"]) for line in lines] == [(EVENT_NAME, "r-7")] * 2
    assert [line.startswith("{") for line in terminal.getvalue().splitlines()] == [False] * 2
    assert terminal.getvalue().count("r-7") == 2


def test_without_a_configuration_any_stream_that_writes_gets_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host may have put something of its own in the place of standard error, or have none: then nothing goes to its output."""
    said: list[str] = []
    monkeypatch.setattr("sys.stderr", WritesOnly(said))
    Agent(ScriptedModel(["3"])).invoke("x")
    assert [json.loads(line)["event"] for line in said] == [EVENT_NAME] * 2
    monkeypatch.setattr("sys.stderr", None)
    Agent(ScriptedModel(["3"])).invoke("x")
    assert capsys.readouterr().out == ""


class WritesOnly:
    """What redirects standard error, as little as `print` needs."""

    def __init__(self, said: list[str]) -> None:
        self.write = said.append

    def flush(self) -> None:
        """Nothing waits."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """True."""
        return True


def test_a_configuration_that_comes_later_counts_from_the_next_run(host: Callable[..., list[Any]]) -> None:
    """An agent may be built at import time, before the host configures its logging."""
    agent = Agent(ScriptedModel(["3", "4"]), logger=None)
    first = host()
    agent.invoke("x")
    second = host()
    agent.invoke("x")
    assert len(first) == len(second) == 2


def test_j05_what_the_host_has_bound_is_in_every_event_and_stays_bound(host: Callable[..., list[Any]]) -> None:
    """Our keys are arguments of the event, never bound: the host's context is neither cleared nor added to."""
    lines = host(structlog.contextvars.merge_contextvars)
    structlog.contextvars.bind_contextvars(request_id="r-7")
    Agent(ScriptedModel([call("look", q="x"), "3"]), TOOLS).invoke("x")
    assert len(lines) > 5
    assert {line["request_id"] for line in lines} == {"r-7"}
    assert structlog.contextvars.get_contextvars() == {"request_id": "r-7"}


def test_j02_no_key_clashes_with_a_loggers_own() -> None:
    """The names that structlog and the standard library keep for themselves are not ours."""
    taken = {
        *vars(logging.makeLogRecord({})),
        *("message", "asctime", "event", "level", "logger", "timestamp", "exc_info", "stack_info", "stack"),
        *("method_name", "positional_args", "log_level", "extra"),
    }
    _, events = logged(LONG, limits=Limits(backoff=0, no_progress_steps=9, abort_after=9, degrade_after=9))
    for _, fields in events:
        assert not fields.keys() & taken


def test_j02_the_standard_library_takes_every_key(host: Callable[..., list[Any]], caplog: Any) -> None:
    """A host that renders into `logging` with our keys as `extra` loses none and raises nothing."""
    structlog_config = structlog.get_config()
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    try:
        with caplog.at_level(logging.INFO):
            result = Agent(ScriptedModel([call("look", q="x"), "3"]), TOOLS).invoke("x")
    finally:
        structlog.configure(**structlog_config)
    ours = [one for one in caplog.records if one.getMessage() == EVENT_NAME]
    assert len(ours) == len(result.transitions)
    assert all(key in vars(one) for one in ours for key in DECIDED)


@pytest.mark.parametrize("text", ["100% done", "%s %d %(x)s", "{braces} {0}", "\x1b[31mred"])
def test_j08_text_is_never_taken_for_a_format(text: str, host: Callable[..., list[Any]]) -> None:
    """A host that formats positional arguments gets none: text with % in it is a value like any other."""
    lines = host(structlog.stdlib.PositionalArgumentsFormatter(), structlog.processors.KeyValueRenderer())
    Agent(ScriptedModel([ValueError(text)]), limits=Limits(max_retries=0)).invoke(text)
    assert len(lines) == 2
