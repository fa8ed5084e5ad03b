"""Family J: the log of a run is complete, strict, quiet about secrets, and never in the run's way."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
import structlog

from fsm_agent import Event, State, Status, Transitioned, tool
from fsm_agent.machine import Evaluated
from fsm_agent.observe import EVENT_NAME, StructlogObserver, event_of, json_logger
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.tools import ToolResult, current_call
from tests.faults.kit import WAYS, Ledger, Seen, answers_in, assert_sendable, consistent, make, run

RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "event", "level", "logger", "timestamp", "method_name", "exception", "stack", "log_level"),
}


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


@pytest.fixture
def host() -> Iterator[list[dict[str, Any]]]:
    """A host that has configured structlog in its own way; gives back what was logged, and the defaults at the end."""
    logged: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, event: Any) -> Any:
        logged.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, keep],
        cache_logger_on_first_use=False,
    )
    yield logged
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def strict(text: str) -> Any:
    """The JSON of one line, read as strictly as JSON is defined."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def some_record(**changes: Any) -> Transitioned:
    """A record of a run, with `changes`."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add]), "1+2")
    return dataclasses.replace(result.transitions[1], **changes)


# ---------------------------------------------------------------- J02 names that clash


def test_j02_no_field_of_ours_is_a_reserved_one() -> None:
    """None of the event's own keys is one that structlog or the standard library keeps for itself."""
    fields = event_of(some_record(error="x", repairs=("fence",)))
    assert not fields.keys() & RESERVED
    assert {
        "run_id",
        "seq",
        "source",
        "fsm_event",
        "target",
        "guards",
        "step",
        "tokens",
        "elapsed_ms",
        "reason",
    } <= fields.keys()


def test_j02_guard_values_with_awkward_names_are_kept() -> None:
    """A guard that compares values called event, level, logger or exc_info loses none of them and breaks nothing."""
    values = {"event": 1, "level": 3, "logger": "l", "timestamp": 0, "args": "a", "method_name": "m", "exc_info": True}
    record = some_record(guards=(Evaluated("odd", True, values),))
    out = io.StringIO()
    StructlogObserver(json_logger(out))(record)
    (line,) = out.getvalue().splitlines()
    (guard,) = strict(line)["guards"]
    assert guard == {"name": "odd", "result": True, **values}


def test_j02_through_the_standard_library_nothing_raises_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    """A host that sends structlog into `logging`, keys as `extra`, gets every record with every key."""
    structlog.configure(
        processors=[structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    try:
        with caplog.at_level(logging.INFO), ScriptedModel([call("add", a=1, b=2), "3"]) as model:
            result = run(make(model, [add], logger=None), "1+2")
    finally:
        structlog.reset_defaults()
    records = [record for record in caplog.records if record.getMessage() == EVENT_NAME]
    assert [vars(record)["seq"] for record in records] == [record.seq for record in result.transitions]
    assert [vars(record)["fsm_event"] for record in records] == [record.event for record in result.transitions]


@pytest.mark.parametrize("way", WAYS)
def test_j02_a_logger_that_raises_never_reaches_the_run(way: str) -> None:
    """Whatever the host's logger raises, the run goes on to its answer."""

    class Broken:
        """Raises."""

        def info(self, event: str, **fields: Any) -> None:
            """Raise."""
            raise OSError("disk full")

    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        assert run(make(model, [add], logger=Broken()), "1+2", way).answer == "3"


# ---------------------------------------------------------------- J03 values that JSON does not know


class Unshowable:
    """Its repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def circular() -> list[Any]:
    """A list that holds itself."""
    ring: list[Any] = [1]
    ring.append(ring)
    return ring


AWKWARD: list[tuple[str, Any]] = [
    ("uuid-key", {uuid.UUID(int=1): "a"}),
    ("tuple-key", {(1, 2): "a"}),
    ("circular", circular()),
    ("bytes", b"\x00\xff"),
    ("nan", float("nan")),
    ("inf-inside", [float("inf"), {"x": float("-inf")}]),
    ("unshowable", Unshowable()),
    ("surrogate", "half \ud83d of a smile"),
    ("surrogate-inside", {"k\udc00": ["\ud800"]}),
    ("five-megabytes", "x" * 5_000_000),
    ("set", {1, 2}),
    ("path", PurePosixPath("a/b")),
    ("exception", ValueError("v")),
    ("generator", (number for number in range(3))),
    ("deep", json.loads("[" * 400 + "]" * 400)),
    ("none", None),
    ("control", "a\x00b\x1b[31mred"),
]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize(("name", "value"), AWKWARD, ids=[one[0] for one in AWKWARD])
def test_j03_an_awkward_result_stops_neither_run_nor_log(name: str, value: Any, way: str) -> None:
    """Whatever a tool returns: the run completes, each log line is small strict JSON, the prompt is encodable text."""

    def odd() -> Any:
        """Return something odd."""
        return value

    out = io.StringIO()
    with ScriptedModel([call("odd"), "done"]) as model:
        result = run(make(model, [odd], logger=json_logger(out)), "go", way)
    assert (result.status, result.answer) == (Status.COMPLETED, "done"), name
    lines = out.getvalue().splitlines()
    assert [strict(line)["seq"] for line in lines] == [record.seq for record in result.transitions]
    assert max(map(len, lines)) < 5_000
    told = answers_in(model.requests[1])[0]
    told.text.encode()
    assert len(told.text) < 9_000
    assert_sendable(model.requests)


@pytest.mark.parametrize(("name", "value"), AWKWARD, ids=[one[0] for one in AWKWARD])
def test_j03_awkward_metadata_and_guard_values_are_strict_too(name: str, value: Any) -> None:
    """The same values as metadata of a result, and as values of a guard."""

    def odd() -> ToolResult:
        """Return something odd."""
        return ToolResult(content="fine", metadata={"odd": value})

    with ScriptedModel([call("odd"), "done"]) as model:
        result = run(make(model, [odd]), "go")
    strict(json.dumps(result.results[0].metadata, allow_nan=False))
    out = io.StringIO()
    seen = Seen()
    record = some_record(guards=(Evaluated("g", False, {"value": value}),))
    StructlogObserver(json_logger(out))(record)
    seen(record)
    (line,) = out.getvalue().splitlines()
    assert strict(line)["seq"] == record.seq, name
    assert len(line) < 5_000


def test_j03_a_secret_in_an_error_is_in_no_log() -> None:
    """A key that a tool puts into its exception is in no log line, no record, no detail and no prompt."""
    secret = "sk-" + "a1B2c3D4" * 6

    def leaky() -> str:
        """Fail with a secret."""
        raise ConnectionError(f"401 for https://user:{secret}@host/ with Authorization: Bearer {secret}")

    out = io.StringIO()
    with ScriptedModel([call("leaky"), "done"]) as model:
        result = run(make(model, [leaky], logger=json_logger(out), limits={"max_retries": 0}), "go")
    assert secret not in out.getvalue()
    assert secret not in str(result.transitions)
    assert secret not in result.detail
    assert secret not in model.requests[1].text


# ---------------------------------------------------------------- J05 the host's context


@pytest.mark.parametrize("way", WAYS)
def test_j05_the_hosts_context_is_everywhere_and_stays(way: str, host: list[dict[str, Any]]) -> None:
    """What the host bound is in every event of ours and in its own logs, and is still bound afterwards, alone."""
    inside: list[dict[str, Any]] = []

    def works(n: int) -> str:
        """Log something."""
        inside.append(dict(structlog.contextvars.get_contextvars()))
        structlog.get_logger().info("host.tool", n=n)
        return str(n)

    structlog.contextvars.bind_contextvars(request_id="req-1")
    with ScriptedModel([call("works", n=1), [call("works", n=2), call("works", n=3)], "done"]) as model:
        result = run(make(model, [works], logger=None), "go", way)
    assert structlog.contextvars.get_contextvars() == {"request_id": "req-1"}
    assert inside == [{"request_id": "req-1"}] * 3
    ours = [event for event in host if event["event"] == EVENT_NAME]
    assert {event["request_id"] for event in ours} == {"req-1"}
    assert {event["run_id"] for event in ours} == {result.run_id}
    theirs = [event for event in host if event["event"] == "host.tool"]
    assert {event["request_id"] for event in theirs} == {"req-1"}
    assert all("run_id" not in event for event in theirs), "nothing of ours is bound into the host's context"


async def test_j05_two_runs_at_once_do_not_mix(host: list[dict[str, Any]]) -> None:
    """Two concurrent runs: every event has its own run's id and its own request's id."""

    def where() -> str:
        """Say which run it is."""
        return current_call().run_id

    with ScriptedModel(by_task={f"<{n}>": [call("where"), "done"] for n in range(2)}) as model:
        agent = make(model, [where], logger=None)

        async def one(number: int) -> str:
            structlog.contextvars.bind_contextvars(request_id=f"req-{number}")
            result = await agent.ainvoke(f"<{number}>", {"configurable": {"run_id": f"run-{number}"}})
            assert result.results[0].text == f"run-{number}"
            return result.run_id

        await asyncio.gather(one(0), one(1))
    pairs = {(event["run_id"], event["request_id"]) for event in host}
    assert pairs == {("run-0", "req-0"), ("run-1", "req-1")}
    assert current_call().run_id == ""


def test_j05_the_hosts_configuration_is_not_touched(host: list[dict[str, Any]]) -> None:
    """A run neither configures structlog nor adds handlers to the standard library's loggers."""
    before = structlog.get_config()
    handlers = list(logging.getLogger().handlers)
    with ScriptedModel(["done"]) as model:
        run(make(model, logger=None), "go")
    assert structlog.get_config() == before
    assert logging.getLogger().handlers == handlers
    assert len(host) == 2


@pytest.mark.parametrize("way", WAYS)
def test_j05_a_host_that_logs_from_coroutines_loses_nothing(way: str, host: list[dict[str, Any]]) -> None:
    """The methods of structlog's AsyncBoundLogger have to be awaited: each transition is logged all the same, with the host's context."""
    config = structlog.get_config()
    structlog.configure(**{**config, "wrapper_class": structlog.stdlib.AsyncBoundLogger})
    structlog.contextvars.bind_contextvars(request_id="req-1")
    with ScriptedModel(["done"]) as model:
        result = run(make(model, logger=None), "go", way)
    assert [(event["event"], event["request_id"]) for event in host] == [(EVENT_NAME, "req-1")] * len(
        result.transitions
    )


# ---------------------------------------------------------------- J06 a row for every attempt


@pytest.mark.parametrize("way", WAYS)
def test_j06_every_attempt_has_its_row(way: str) -> None:
    """Failed, refused, retried and successful attempts: as many rows as attempts, each with what became of it."""
    ledger = Ledger()

    def boom() -> str:
        """Fail once."""
        ledger.note()
        if len(ledger) == 1:
            raise ConnectionError("down")
        return "up"

    script = [RuntimeError("model down"), call("boom"), call("unknown"), "done"]
    with ScriptedModel(script) as model:
        result = run(make(model, [boom]), "go", way)
    rows = result.transitions
    assert consistent(rows)
    asked = [record for record in rows if record.event in (Event.REPLIED, Event.MODEL_FAILED)]
    assert [record.event.value for record in asked] == ["model_failed", "replied", "replied", "replied"]
    assert len(asked) == model.count == result.model_calls
    assert [record.event for record in rows].count(Event.EXECUTED) == len(ledger) == result.tool_calls == 2
    observed = [record for record in rows if record.event is Event.OBSERVED]
    assert ["down" in observed[0].error, observed[1].error, "There is no tool" in observed[2].error] == [True, "", True]
    assert "model down" in asked[0].error


@pytest.mark.parametrize(
    ("cause", "event", "state"),
    [
        ("cancel", Event.CANCELLED, State.EXECUTE),
        ("broke", Event.BROKE, State.PLAN),
        ("denied", Event.DENIED, State.REVIEW),
    ],
)
def test_j06_what_ends_badly_has_its_row_too(cause: str, event: Event, state: State) -> None:
    """A cancellation, an internal error and a denial are rows like any other, with source, event, target and reason."""

    @tool(requires_approval=True)
    def act() -> str:
        """Act."""
        if cause == "cancel":
            agent.cancel("r")
        return "acted"

    class Bad:
        """A memory that raises."""

        def view(self, history: Any) -> Any:
            """Raise."""
            raise ValueError("bad memory")

    seen = Seen()
    options: dict[str, Any] = {"memory": Bad()} if cause == "broke" else {}
    model = ScriptedModel([call("act"), "done"])
    agent = make(model, [act], observers=[seen], approve=lambda _: cause != "denied", **options)
    run(agent, "go", config={"configurable": {"run_id": "r"}})
    row = next(record for record in seen.records if record.event is event)
    assert consistent(seen.records)
    assert cause == "cancel" or row.source is state
    if cause != "denied":
        assert row.target is State.ABORT
        assert row.reason is not None


def test_j06_a_guard_that_refused_is_in_the_row() -> None:
    """The row of a decision holds every guard that was asked, in order, with its values, up to the one that held."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add], limits={"max_steps": 1}), "1+2")
    decided = next(record for record in result.transitions if record.event is Event.DECIDED)
    assert (decided.target, decided.reason) == (State.DEGRADE, "max_steps")
    assert [guard.guard for guard in decided.guards if guard.result] == ["steps_spent", "can_answer_now"]
    steps = next(guard for guard in decided.guards if guard.guard == "steps_spent")
    assert steps.values == {"steps": 1, "max_steps": 1}


# ---------------------------------------------------------------- J07 a sink that fails in between


def test_j07_a_sink_that_fails_once_spoils_nothing_after_it() -> None:
    """A sink that fails on row 3 gets all other rows; the gap is visible in the numbers, the run is complete."""

    class Flaky:
        """Fails on its third event."""

        def __init__(self) -> None:
            self.rows: list[int] = []

        def info(self, event: str, **fields: Any) -> None:
            """Keep the number, or fail."""
            if fields["seq"] == 3:
                raise OSError("disk full")
            self.rows.append(fields["seq"])

    sink, seen = Flaky(), Seen()
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add], logger=sink, observers=[seen]), "1+2")
    assert sink.rows == [1, 2, 4, 5, 6, 7]
    assert [record.seq for record in seen.records] == [record.seq for record in result.transitions] == list(range(1, 8))


async def test_j07_two_runs_in_one_file_stay_two_chains() -> None:
    """Two concurrent runs log to one stream: every line is whole, and each run's numbers are its own."""
    out = io.StringIO()
    script = [call("add", a=1, b=2), call("add", a=3, b=4), "done"]
    with ScriptedModel(by_task={"<a>": script, "<b>": script}) as model:
        agent = make(model, [add], logger=json_logger(out))
        results = await asyncio.gather(agent.ainvoke("<a>"), agent.ainvoke("<b>"))
    rows = [strict(line) for line in out.getvalue().splitlines()]
    for result in results:
        own = [row["seq"] for row in rows if row["run_id"] == result.run_id]
        assert own == list(range(1, len(result.transitions) + 1))


# ---------------------------------------------------------------- J08 text that looks like a format


@pytest.mark.parametrize("text", ["progress 100% of x", "%s %d %(name)s", "{} {0} {name}", "{event}", "%", "\n{\n"])
@pytest.mark.parametrize("way", WAYS)
def test_j08_text_of_models_and_tools_is_never_a_format(text: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Percent signs and braces pass through untouched wherever they come from; the event name is constant."""
    structlog.configure(
        processors=[structlog.stdlib.PositionalArgumentsFormatter(), structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )

    def says(words: str) -> str:
        """Say it back."""
        return words

    def fails(words: str) -> str:
        """Fail with it."""
        raise ValueError(words)

    @tool(requires_approval=True)
    def asks(words: str) -> str:
        """Ask."""
        return words

    from fsm_agent import Deny

    script = [[call("says", words=text), call("fails", words=text), call("asks", words=text)], text]
    try:
        with caplog.at_level(logging.INFO), ScriptedModel(script) as model:
            agent = make(
                model,
                [says, fails, asks],
                logger=None,
                system=text,
                approve=lambda _: Deny(text),
                limits={"max_retries": 0},
            )
            result = run(agent, f"task {text}", way)
    finally:
        structlog.reset_defaults()
    assert (result.status, result.answer) == (Status.COMPLETED, text.strip())
    assert {record.getMessage() for record in caplog.records if record.name == "fsm_agent"} == {EVENT_NAME}
    assert result.transitions
    said, failed, denied = (message.text for message in answers_in(model.requests[1]))
    assert said == text
    assert text.strip() in failed
    assert text in denied
