"""The demo: what is right is known without a model, and what a model does is judged by that."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from fsm_agent.alphabet import Status, StopReason
from fsm_agent.demo import FILE, SYSTEMS, TASKS, check, demo_tools, expected
from fsm_agent.local import cached
from fsm_agent.records import RunResult
from fsm_agent.testing import call, server
from tests.cli.kit import fsm

RIGHT = [
    call("query_order", order_id="SO-2024-001"),
    call("query_order", order_id="SO-2024-002"),
    call("calculator", expression="129.90 + 45.00"),
    call("write_file", path=FILE, content="174.9"),
    "The sum is 174.90.",
]


def ended(answer: str | None) -> RunResult:
    """A result with this answer."""
    status, reason = (Status.COMPLETED, StopReason.ANSWERED) if answer else (Status.FAILED, StopReason.MODEL_FAILED)
    return RunResult(run_id="r", status=status, reason=reason, answer=answer)


def test_the_right_sum_comes_from_the_data() -> None:
    """129.90 + 45.00, computed without a model."""
    assert expected() == Decimal("174.90")


@pytest.mark.parametrize(
    ("written", "answer", "holds"),
    [
        ("174.9", "The sum is 174.90.", (True, True)),
        ("Sum: 174.90 EUR\n", "174,90", (True, False)),
        ("1174.90", "1,174.90", (False, False)),
        ("129.90 + 45.00", "174.9 EUR", (False, True)),
        ("", "", (False, False)),
        (None, None, (False, False)),
    ],
)
def test_file_and_answer_are_checked_as_numbers(
    tmp_path: Path, written: str | None, answer: str | None, holds: tuple[bool, bool]
) -> None:
    """The number counts, however it is written; a longer number that holds its digits does not."""
    if written is not None:
        (tmp_path / FILE).write_text(written, encoding="utf-8")
    assert tuple(one.holds for one in check(ended(answer), tmp_path)) == holds


def test_the_demo_writes_in_its_directory_only(tmp_path: Path) -> None:
    """Its tools read demo data, compute, and write one file below the directory that they were given."""
    tools = demo_tools(tmp_path)
    assert tools.names() == ("query_order", "calculator", "write_file")
    write = tools.get("write_file")
    assert write is not None
    assert write.func is not None
    with pytest.raises(Exception, match="leaves the root"):
        write.func(path="../out.txt", content="x")
    write.func(path=FILE, content="174.9")
    assert (tmp_path / FILE).read_text(encoding="utf-8") == "174.9"


def test_no_word_of_the_task_gives_the_answer_away() -> None:
    """Neither task nor system text holds a number that only the tools may give."""
    texts = "".join((*TASKS.values(), *SYSTEMS.values()))
    assert not [number for number in ("174", "129", "45") if number in texts]
    assert TASKS.keys() == SYSTEMS.keys() == {"en", "zh"}


def test_a_model_that_does_the_job_is_told_right(tmp_path: Path) -> None:
    """Calls, answer, checks and the way on; exit 0; the file stays where it was asked for."""
    with server(RIGHT) as s:
        done = fsm("demo", "--base-url", s.base_url, "--dir", str(tmp_path))
        assert s.requests[0].tool_names == ("query_order", "calculator", "write_file")
    assert (done.code, done.out) == (0, "The sum is 174.90.\n")
    assert "calculator(expression='129.90 + 45.00', precision=None) -> 174.9" in done.err
    assert f"right: {FILE} holds 174.90" in done.err
    assert "right: the answer says 174.90" in done.err
    assert "Next:" in done.err
    assert (tmp_path / FILE).read_text(encoding="utf-8") == "174.9"


def test_a_model_that_makes_it_up_is_told_wrong() -> None:
    """A confident answer without the work is called wrong, and the exit code says so although the run completed."""
    with server(["The sum is 200 and I wrote it to total.txt."]) as s:
        done = fsm("demo", "--base-url", s.base_url)
    assert done.code == 1
    assert "completed (answered)" in done.err
    assert f"wrong: {FILE} holds 174.90; found: no such file" in done.err
    assert "wrong: the answer says 174.90; found: The sum is 200" in done.err
    assert "The model did not solve the task" in done.err


def test_the_demo_speaks_chinese_when_asked() -> None:
    """Task and system text are Chinese with --language zh."""
    with server(RIGHT) as s:
        assert fsm("demo", "--base-url", s.base_url, "--language", "zh").code == 0
        assert TASKS["zh"] in s.requests[0].text
        assert SYSTEMS["zh"] in s.requests[0].text


def test_a_key_that_happens_to_be_set_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo is for a model of this machine, so nobody is charged unless they name another."""
    from fsm_agent.cli.choice import Choice
    from fsm_agent.cli.demo import demo_choice

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert demo_choice(None, None).model == "local:1.5b"
    monkeypatch.setenv("FSM_AGENT_MODEL", "openai:x")
    assert demo_choice(None, None) == Choice("openai:x", None, "FSM_AGENT_MODEL")


def test_a_directory_that_does_not_exist_is_refused() -> None:
    """Before a model is started."""
    done = fsm("demo", "--dir", "missing")
    assert (done.code, done.err) == (2, "error: --dir missing: there is no such directory\n")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(cached("local:1.5b") is None, reason="the weights are not here; make demo fetches them")
def test_the_real_model_does_the_job() -> None:
    """The main job, as `make demo` runs it."""
    done = fsm("demo")
    assert done.code == 0, done.err
