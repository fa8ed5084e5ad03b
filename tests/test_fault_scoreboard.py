"""The engine's column of the scoreboard in `tests/benchmarks/faults.py`: sixteen of sixteen, with the exact costs."""

from __future__ import annotations

import pytest

from fsm_agent.testing import ScriptedModel
from tests.benchmarks.fault_scripts import CAP, FAULTS, HONEST, Fault, Turn
from tests.benchmarks.faults import Ending, Told, beaten, engine, run, table

RIGHT, HONESTLY, STOPPED = Ending.RIGHT, Ending.HONEST, Ending.STOPPED

EXPECTED: dict[str, tuple[Ending, str, int]] = {
    "arguments fenced once": (RIGHT, "", 3),
    "arguments fenced always": (RIGHT, "", 3),
    "curly quotes once": (RIGHT, "", 3),
    "curly quotes always": (RIGHT, "", 3),
    "a whole call as fenced text": (RIGHT, "", 3),
    "unknown tool": (RIGHT, "", 4),
    "schema violation": (RIGHT, "", 4),
    "tool raises twice, then works": (RIGHT, "", 3),
    "tool always raises": (HONESTLY, "", 2),
    "the same call 18 times": (RIGHT, "repeated_action", 4),
    "A/B forever": (RIGHT, "repeated_action", 6),
    "empty once": (RIGHT, "", 4),
    "empty forever": (STOPPED, "empty_reply", 3),
    "500 KB of output, then three calls": (RIGHT, "", 5),
    "usage missing": (RIGHT, "", 3),
    "model times out once": (RIGHT, "", 4),
}
"""Fault -> how the run ends, why it did not simply complete, and the number of model calls."""
BY_NAME = {fault.name: fault for fault in FAULTS}


def test_the_scoreboard_has_the_sixteen_faults() -> None:
    """Sixteen different faults, each with its expectation here."""
    assert len(FAULTS) == 16
    assert [fault.name for fault in FAULTS] == list(EXPECTED)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_engine_ends_well(fault: Fault) -> None:
    """Every fault ends well, for the exact reason and with the exact number of model calls."""
    outcome = run(engine, fault)
    assert (outcome.ending, outcome.why, outcome.calls) == EXPECTED[fault.name]
    assert outcome.well


def test_a_large_result_does_not_reach_the_prompts() -> None:
    """Four prompts behind a result of 500 KB stay below what one of them would have cost."""
    outcome = run(engine, BY_NAME["500 KB of output, then three calls"])
    assert outcome.tokens < 10_000 < 500_000 // 4


@pytest.mark.parametrize(
    ("answer", "why", "ending", "well"),
    [
        ("It is 142.", "", Ending.RIGHT, True),
        ("It is 142.", "repeated_action", Ending.RIGHT, True),
        ("", "", Ending.SILENT, False),
        ("It is 1429.", "", Ending.SILENT, False),
        ("It is 5.", "", Ending.SILENT, False),
        (f"{HONEST}: no tool.", "", Ending.HONEST, False),
        ("Model call limits exceeded: run limit (10/10)", "", Ending.TOLD, False),
        (None, "max_steps", Ending.STOPPED, False),
    ],
)
def test_only_the_right_answer_ends_a_mendable_fault_well(
    answer: str | None, why: str, ending: Ending, well: bool
) -> None:
    """Neither an empty or wrong answer nor any way to stop counts where the fault can be mended."""
    outcome = run(lambda _model, _fault: Told(answer, why), BY_NAME["unknown tool"])
    assert (outcome.ending, outcome.well) == (ending, well)


@pytest.mark.parametrize(
    ("answer", "why", "well"),
    [
        (f"{HONEST}: it keeps failing.", "", True),
        ("Agent stopped due to max iterations.", "", True),
        (None, "consecutive_failures", True),
        (None, "internal_error", False),
        ("It failed, so it is 5.", "", False),
        ("", "", False),
    ],
)
def test_a_hopeless_fault_ends_well_when_the_caller_is_told(answer: str | None, why: str, well: bool) -> None:
    """An honest answer or a right reason will do; a wrong reason, an invention or nothing will not."""
    assert run(lambda _model, _fault: Told(answer, why), BY_NAME["tool always raises"]).well is well


def test_what_never_ends_is_capped_and_what_raises_is_a_crash() -> None:
    """A loop without a limit is cut after `CAP` model calls, an exception is recorded; neither ends well."""

    def endless(model: object, fault: Fault) -> Told:
        assert isinstance(model, ScriptedModel)
        bound = model.bind_tools(fault.tools())
        while bound.invoke("go on").tool_calls:
            pass
        return Told("Tea costs 3 and coffee costs 4.")

    outcome = run(endless, BY_NAME["A/B forever"])
    assert (outcome.ending, outcome.calls, outcome.well) == (Ending.ENDLESS, CAP, False)

    def crashing(model: object, fault: Fault) -> Told:
        raise RecursionError(f"{fault.name} went round and round in {model}")

    outcome = run(crashing, BY_NAME["A/B forever"])
    assert (outcome.ending, outcome.why, outcome.well) == (Ending.CRASHED, "RecursionError", False)


def test_the_table_shows_who_is_behind() -> None:
    """One row a fault, one column a contender, a total each; a peer that ends well with fewer calls is named."""
    fault = BY_NAME["empty once"]
    ours = run(engine, fault)
    faster = run(lambda model, _: Told("It is 142.", str(model.invoke("x").content)), fault)
    rows = {fault.name: {"ours": ours, "theirs": faster}}
    printed = table(rows)
    assert "| empty once | answered right; 4 calls" in printed
    assert "- **theirs**: 1 of 1 ended well, 0 silently wrong; 1 model calls" in printed
    assert beaten(rows, "ours") == [f"empty once: {ours}; theirs needs 1"]
    assert beaten(rows, "theirs") == []


def test_a_prompt_is_estimated_by_its_texts_and_calls() -> None:
    """The tokens of a request grow with its texts; the results and the last message are those that were sent."""
    model = ScriptedModel(["x", "x"])
    model.invoke([("user", "four")])
    model.invoke([("user", "four"), ("ai", "and then four more")])
    seen = [Turn.of(request) for request in model.requests]
    assert [turn.tokens for turn in seen] == [1, 6]
    assert [turn.last for turn in seen] == ["four", "and then four more"]
    assert not seen[0].offered
    assert seen[0].results == ()
