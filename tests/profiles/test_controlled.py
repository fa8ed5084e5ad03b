"""`controlled`: each sentence of what it promises."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from fsm_agent import State, Status, StopReason, Tool, Window, tool
from fsm_agent.profiles.tools.file_write import file_write
from fsm_agent.testing import FakeClock, ModelRequest, ScriptedModel, call, forever
from tests.faults.kit import answers_in
from tests.profiles.kit import by_name

WRITE = call("file_write", path="a.txt", content="one")


@tool
def search(query: str, request_id: str = "", seed: int = 0, at: str = "") -> str:
    """Search."""
    return "three results"


@tool
def add(a: int, b: int) -> str:
    """Add; the sum is kept to itself."""
    return "ok"


# ---------------------------------------------------------------- bounds


def test_at_most_ten_iterations() -> None:
    """A model that never ends is stopped after ten."""
    agent, model = by_name(
        "controlled",
        ScriptedModel(lambda request: call("numbered", n=request.number)),
        [tool("numbered")(lambda_numbered)],
    )
    result = agent.invoke("go")
    assert (result.steps, model.count, result.reason) == (10, 10, StopReason.MAX_STEPS)


def lambda_numbered(n: int) -> str:
    """Give a number."""
    return f"number {n}"


def test_the_window_has_three_rounds() -> None:
    """The model is shown the newest three rounds, and the task."""
    script = [*(call("numbered", n=n) for n in range(6)), "done"]
    agent, model = by_name("controlled", script, [tool("numbered")(lambda_numbered)])
    agent.invoke("go")
    assert agent.setup.memory == Window(rounds=3)
    assert [one.text for one in answers_in(model.requests[-1])] == ["number 3", "number 4", "number 5"]
    assert "go" in model.requests[-1].text


def test_at_most_two_failures_in_a_row() -> None:
    """After two the model is told to take another way; the third ends the run."""
    agent, model = by_name("controlled", [call("nothing", n=n) for n in range(3)], [search])
    result = agent.invoke("go")
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES, 3)
    assert "failures=3" in result.detail


# ---------------------------------------------------------------- the same call


def test_the_third_time_the_same_call_is_refused_and_the_run_ends() -> None:
    """Executed twice, refused the third time, with the guard and the numbers as the reason."""
    agent, model = by_name("controlled", [forever(call("search", query="tests"))], [search])
    result = agent.invoke("go")
    assert (result.tool_calls, model.count) == (2, 3)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.REPEATED_ACTION)
    assert "repeat_threshold=2" in result.detail


@pytest.mark.parametrize(
    "changing",
    [
        lambda n: {"request_id": str(uuid.UUID(int=n))},
        lambda n: {"query": f"tests for {uuid.UUID(int=n)}"},
        lambda n: {"at": f"2026-11-30T10:00:{n:02}Z"},
        lambda n: {"seed": n * 7919},
    ],
    ids=["request id", "uuid in a text", "timestamp", "random number"],
)
def test_what_is_volatile_does_not_make_a_call_another(changing: Any) -> None:
    """The same call with a new request id, timestamp or random number is the same call."""
    agent, model = by_name(
        "controlled",
        ScriptedModel(lambda request: call("search", **{"query": "tests", **changing(request.number)})),
        [search],
    )
    result = agent.invoke("go")
    assert (result.tool_calls, model.count, result.reason) == (2, 3, StopReason.REPEATED_ACTION)


def test_two_different_calculations_are_no_repeat() -> None:
    """1 + 2 and 3 + 4 are two calls, and so are all others with other numbers, though every one gives the same text."""
    script = [call("add", a=1, b=2), call("add", a=3, b=4), call("add", a=5, b=6), "done"]
    agent, _ = by_name("controlled", script, [add], limits={"no_progress_steps": 9})
    result = agent.invoke("go")
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 3)


# ---------------------------------------------------------------- failures


def test_a_failed_model_call_counts_and_the_run_goes_on() -> None:
    """One lost connection is a failure, waited out and tried again."""
    agent, model = by_name("controlled", [ConnectionError("lost"), call("search", query="x"), "done"], [search])
    result = agent.invoke("go")
    assert (result.status, result.answer, model.count) == (Status.COMPLETED, "done", 3)
    assert 1 in [one.failures for one in result.transitions]


class Full(Exception):
    """No space."""


def broken(backup: Tool) -> Tool:
    """`file_write` with the same fallback, whose disk is full."""

    @tool("file_write", idempotent=True, fallback=backup)
    def write(path: str, content: str) -> str:
        """Write a file."""
        raise Full("no space left on the device")

    return write


def test_a_failure_waits_a_second_retries_once_and_takes_the_fallback(tmp_path: Path) -> None:
    """One second, one more try, and then the content stands in a temporary file that the model is told of."""
    clock = FakeClock()
    backup = file_write(tmp_path).fallback
    assert isinstance(backup, Tool)
    agent, model = by_name("controlled", [WRITE, "written"], [broken(backup)], clock=clock)
    before = clock.monotonic()
    result = agent.invoke("Write one.")
    assert clock.monotonic() - before == pytest.approx(1.0)
    states = [one.target for one in result.transitions]
    assert (states.count(State.RETRY), states.count(State.DEGRADE)) == (1, 1)
    assert states.index(State.RETRY) < states.index(State.DEGRADE)
    told = model.requests[1].messages[-1].text
    (place,) = [Path(word) for word in told.split() if "file_write-" in word]
    assert place.read_text(encoding="utf-8") == "one"
    place.unlink()
    assert result.ok


# ---------------------------------------------------------------- file_write


def test_file_write_overwrites(tmp_path: Path) -> None:
    """The file holds what was written last, and only that."""
    agent, _ = by_name(
        "controlled", [WRITE, call("file_write", path="a.txt", content="2"), "done"], [file_write(tmp_path)]
    )
    agent.invoke("go")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "2"


def test_file_write_is_the_tool_of_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tools it has one, which writes below the current directory."""
    monkeypatch.chdir(tmp_path)
    agent, _ = by_name("controlled", [WRITE, "done"])
    assert agent.tools.names() == ("file_write",)
    agent.invoke("go")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/cron.d/evil",
        "../evil.txt",
        "a/../../evil.txt",
        "out/evil.txt",
        "link.txt",
        "~/evil.txt",
        "a\\..\\evil.txt",
    ],
)
def test_file_write_never_leaves_its_root(tmp_path: Path, path: str) -> None:
    """Absolute paths, `..`, and links that lead outside are refused; nothing outside is written, and the model is told why."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "kept.txt").write_text("kept", encoding="utf-8")
    (root / "out").symlink_to(outside)
    (root / "link.txt").symlink_to(outside / "kept.txt")
    agent, model = by_name("controlled", [call("file_write", path=path, content="evil"), "no"], [file_write(root)])
    result = agent.invoke("go")
    assert result.results == ()
    assert "ToolRefusal" in model.requests[1].messages[-1].text
    assert [one.name for one in outside.iterdir()] == ["kept.txt"]
    assert (outside / "kept.txt").read_text(encoding="utf-8") == "kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["outside", "root"]


# ---------------------------------------------------------------- the end


def test_a_stop_without_an_answer_says_how_far_it_came() -> None:
    """How many iterations ran, and the last useful result."""
    agent, _ = by_name("controlled", [forever(call("search", query="tests"))], [search])
    result = agent.invoke("go")
    assert result.answer is None
    assert "3 steps ran" in result.detail
    assert "last useful result, from search: three results" in result.detail


def test_no_deadlocks() -> None:
    """Whatever a model repeats, a run of it ends by itself within ten rounds (measured elsewhere: 18 % of runs never did)."""
    for period in (1, 2, 3):
        agent, model = by_name(
            "controlled",
            ScriptedModel(lambda request, period=period: call("search", query=str(request.number % period))),  # type: ignore[misc] # mypy does not read defaults of lambdas
            [search],
        )
        assert agent.invoke("go").status is Status.FAILED
        assert model.count <= 10


# ---------------------------------------------------------------- asked for next


def test_a_tracer_sees_the_run_with_its_calls() -> None:
    """What LangSmith hangs on (LangChain's callbacks) is told of the run, each model call and each tool call."""
    collector = RunCollectorCallbackHandler()
    agent, _ = by_name("controlled", [call("search", query="x"), "done"], [search])
    agent.invoke("go", {"callbacks": [collector]})
    (run,) = collector.traced_runs
    kinds = [child.run_type for child in run.child_runs]
    assert (kinds.count("llm"), kinds.count("tool")) == (2, 1)


def test_a_tool_may_be_registered_while_a_run_goes_on() -> None:
    """The next round offers it, and the model calls it."""

    def script(request: ModelRequest) -> Any:
        if request.number == 1:
            return call("search", query="x")
        if request.number == 2:
            assert "add" in request.tool_names
            return call("add", a=1, b=2)
        return "done"

    agent, model = by_name("controlled", ScriptedModel(script), [])

    @tool("search")
    def growing(query: str) -> str:
        """Search, and find a tool."""
        agent.tools.register(add)
        return "found a tool"

    agent.tools.register(growing)
    result = agent.invoke("go")
    assert (result.status, [one.tool for one in result.results]) == (Status.COMPLETED, ["search", "add"])
    assert "add" not in model.requests[0].tool_names
