"""The memory benchmark in `tests/benchmarks/memory.py`: it runs, its model knows only what its prompt shows, and its prompts are valid."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from fsm_agent.language import texts_for
from fsm_agent.testing import Call, ModelRequest
from tests.benchmarks.memory import MEMORIES, Outcome, main, run, work
from tests.benchmarks.memory_model import Forgetful, needed
from tests.benchmarks.reliability import Ending
from tests.benchmarks.reliability_model import prompt_tokens
from tests.benchmarks.reliability_tasks import KINDS, Task
from tests.core.validity import wrong_prompt

ROOT = Path(__file__).resolve().parents[1]
LONG = [next(one for one in work(count=12, sizes={12: 1}) if one.kind == kind) for kind in KINDS]
"""One of each kind, of twelve calls."""
RATES = Forgetful.__module__


def outcomes(name: str) -> list[Outcome]:
    """What the long tasks come to with one memory."""
    return [run(MEMORIES[name], task, 1) for task in LONG]


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that never guesses, notes, loses or is distracted."""
    for rate in ("GUESSES", "NOTES", "LOSES", "DISTRACTS"):
        monkeypatch.setattr(f"{RATES}.{rate}", 0.0)


def test_the_tasks_are_long_whole_and_the_same_for_a_seed() -> None:
    """All four kinds, four to twelve calls, nothing troubled, nothing huge."""
    made = work(count=40)
    assert made == work(count=40)
    assert {one.kind for one in made} == set(KINDS)
    assert all(4 <= len(one.steps) <= 12 and one.possible and not one.broken and not one.huge for one in made)


@pytest.mark.parametrize("name", MEMORIES)
def test_every_prompt_is_valid(name: str) -> None:
    """Prompts of steps and of summaries: a strict provider takes them all."""
    asked: list[ModelRequest] = []
    for task in LONG:
        run(MEMORIES[name], task, 1, asked.append)
    assert len(asked) > len(LONG)
    for request in asked:
        assert wrong_prompt(request.messages) == []


def test_a_full_history_loses_nothing() -> None:
    """What a prompt showed, all later ones show; so nothing is asked for again."""
    for task in LONG:
        asked: list[ModelRequest] = []
        outcome = run(MEMORIES["Full()"], task, 1, asked.append)
        shown = [marks(task, request.text) for request in asked]
        assert all(before <= after for before, after in pairwise(shown))
        assert outcome.again == 0


def marks(task: Task, text: str) -> set[str]:
    """The results of a task that a text holds."""
    return {step.mark for step in task.steps if step.mark in text}


@pytest.mark.usefixtures("calm")
def test_without_its_lapses_the_model_is_right_where_nothing_is_lost() -> None:
    """With a full history and with summaries every long task is done in one step for each call and one for the answer."""
    for name in ("Full()", "SummaryWindow()", "SummaryWindow(3)"):
        for task, outcome in zip(LONG, outcomes(name), strict=True):
            assert (outcome.ending, outcome.steps, outcome.again) == (Ending.COMPLETED, len(task.steps) + 1, 0)


@pytest.mark.usefixtures("calm")
def test_a_short_window_loses_results_that_are_asked_for_again() -> None:
    """The model never guesses here: what has left a window of three it asks for, and never answers wrongly."""
    ended = outcomes("Window(3)")
    assert sum(one.again for one in ended) > 0
    assert not any(one.ending is Ending.SILENT for one in ended)


@pytest.mark.usefixtures("calm")
def test_every_other_memory_costs_less_than_a_full_history() -> None:
    """On tasks of twelve calls, the summary calls included."""
    spent = {name: sum(one.tokens for one in outcomes(name)) for name in MEMORIES}
    full = spent.pop("Full()")
    assert {name: tokens for name, tokens in spent.items() if tokens >= full} == {}


def test_a_summary_call_counts_as_a_model_call_and_as_no_step() -> None:
    """What it costs is in the tokens of the run."""
    asked: list[ModelRequest] = []
    outcome = run(MEMORIES["SummaryWindow(3)"], LONG[0], 1, asked.append)
    summaries = sum(request.messages[0].content == texts_for("en").summarise for request in asked)
    assert summaries > 0
    assert outcome.calls == len(asked) == outcome.steps + summaries
    assert outcome.tokens > sum(map(prompt_tokens, asked))


def test_the_model_knows_only_what_its_prompt_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on after what it sees, asks for what has left, and guesses at the rate that is stated."""
    monkeypatch.setattr(f"{RATES}.DISTRACTS", 0.0)
    monkeypatch.setattr(f"{RATES}.GUESSES", 0.0)
    task = next(one for one in LONG if one.kind == "lookup")
    last = len(task.steps)
    assert list(needed(task, last)) == list(range(last))
    assert asks(task, task.steps[0].mark) == Call(task.steps[1].tool, task.steps[1].args)
    everything = " ".join(step.mark for step in task.steps)
    assert asks(task, everything) == f"The result is {task.value}."
    without_first = " ".join(step.mark for step in task.steps[1:])
    assert asks(task, without_first) == Call(task.steps[0].tool, task.steps[0].args)
    monkeypatch.setattr(f"{RATES}.GUESSES", 1.0)
    assert asks(task, without_first) == f"The result is {int(task.value) + 1}."


def asks(task: Task, shown: str) -> Call | str:
    """What the model says to a prompt that shows this."""
    messages = (SystemMessage("s"), HumanMessage(task.text), AIMessage("noted"), HumanMessage(shown))
    tool = {"type": "function", "function": {"name": "price"}}
    said = Forgetful(task, 1)(ModelRequest(1, messages, (tool,), {}, stream=False))
    if not said.calls:
        return str(said.text)
    return Call(said.calls[0].name, said.calls[0].args)


def test_a_long_prompt_distracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate grows with the tokens of the prompt, so that a full history is not free."""
    monkeypatch.setattr(f"{RATES}.DISTRACTS", 1_000.0)
    assert all(one.ending is Ending.SILENT and one.calls == 1 for one in outcomes("Full()"))


def test_it_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each memory that was asked for."""
    main(["--tasks", "2", "--only", "KeyFacts(Window"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("| memory | tokens a task | right |")
    assert [line.split(" | ")[0] for line in printed[2:]] == ["| `KeyFacts(Window(5))`", "| `KeyFacts(Window(3))`"]


@pytest.mark.parametrize("page", ["REFERENCE.md", "REFERENCE.zh-CN.md"])
def test_both_pages_have_a_row_for_each_memory(page: str) -> None:
    """The table that the command prints stands there, with the same figures."""
    english, told = ((ROOT / one).read_text(encoding="utf-8").split("memory -->")[1] for one in ("REFERENCE.md", page))
    assert re.findall(r"^\| `([^`]+)`", told, re.MULTILINE) == list(MEMORIES)
    assert re.findall(r"^\| `.*", told, re.MULTILINE) == re.findall(r"^\| `.*", english, re.MULTILINE)
