"""The certificate: what it says of the table, and that its numbers are right."""

from __future__ import annotations

import json

import pytest

from fsm_agent import Agent, Limits, SummaryWindow
from fsm_agent.alphabet import Event, State
from fsm_agent.errors import DefinitionError
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.observe import silent_logger
from fsm_agent.testing import ScriptedModel
from fsm_agent.verify import Certificate, longest, verify
from fsm_agent.verify.configuration import Bounds
from fsm_agent.verify.graph import Graph, explore
from fsm_agent.verify.judge import Judge
from tests.cli.kit import fsm
from tests.core.builders import asks, down, gives, play, raw, says, waits

RUNGS = ("fallback", "strategy", "answer")
SMALL = Limits(max_steps=3, no_progress_steps=2, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)


@pytest.fixture(scope="module")
def default() -> Certificate:
    """The certificate of the table under the default limits."""
    return verify()


def graph_of(limits: Limits) -> Graph:
    """What is explored under these limits."""
    return explore(Judge(DEFAULT_MACHINE, Bounds(limits, RUNGS, limits.max_retries)), 400_000)


def test_the_table_is_proved_under_the_default_limits(default: Certificate) -> None:
    """Nothing is wrong with the table, in less time than ten seconds of a processor."""
    assert default
    assert not default.faults
    assert default.seconds < 10
    assert "every run ends" in default.proved
    assert "an answer is forced at most once" in default.proved
    assert default.configurations > 10_000


def test_the_worst_case_of_the_default_limits(default: Certificate) -> None:
    """Ten steps with a retry each, the forced answer with one, three prompts sent again smaller, and five without what was refused."""
    worst = default.worst
    assert worst is not None
    assert worst.steps == 10
    assert worst.model_calls == 2 * 10 + 2 + 8
    assert worst.tool_calls == 50
    assert worst.sent_again == 8
    # The model's retries, those of the tools, of the forced answer, and of as many fallbacks as failures lead to.
    assert worst.retries == 10 + 10 + 1 + 3
    assert worst.backoff == pytest.approx(11 * 30.0 + 13 * 1.1)


def test_rows_that_the_limits_switch_off_are_named_with_the_reason(default: Certificate) -> None:
    """A row that cannot fire under these limits is no fault when other limits let it fire, and the certificate says why."""
    told = {str(one.row): one.why for one in default.unused}
    assert "deadline is off" in told["DECIDE --decided [deadline_passed]--> ABORT"]
    assert "EXECUTE --doubted [person_settles_doubt]--> REVIEW" in told["EXECUTE --doubted--> OBSERVE"]
    assert (
        "DECIDE --decided [steps_spent, can_answer_now]--> DEGRADE" in told["DECIDE --decided [steps_spent]--> ABORT"]
    )
    # What is off unless an agent is given it: reflection, defaults of tools, simpler tools.
    optional = {Event.REFLECTED, Event.REFLECTION_FAILED, Event.DEFAULTED, Event.SIMPLIFIED}
    assert [one.row.event for one in default.unused if one.row.event in optional] == [
        *[Event.REFLECTED] * 3,
        Event.REFLECTION_FAILED,
        Event.DEFAULTED,
        Event.SIMPLIFIED,
    ]
    assert len(told) == 6 + 6


def test_a_certificate_is_printed_and_is_json(default: Certificate) -> None:
    """What is printed names every number, and the JSON says the same."""
    data = json.loads(default.to_json())
    assert data == default.to_data()
    assert data["ok"] is True
    assert data["worst"]["transitions"] == default.worst.transitions if default.worst else False
    printed = str(default)
    assert printed.startswith("verified: ")
    for name in (
        "model calls",
        "tool calls",
        "retries",
        "seconds of backoff",
        "transitions",
        "never under these limits",
    ):
        assert name in printed


def test_the_worst_case_is_met_by_a_run() -> None:
    """A model that fails before each reply, with tools that always bring something new, makes as many calls as are certified."""
    limits = SMALL.replace(abort_after=3, degrade_after=3)
    steps = [line for n in range(3) for line in (down(), waits, asks(raw("look", q=f"{n}")), gives(f"{n}"))]
    moments = play(*steps, down(), waits, says("3"), limits=limits)
    assert moments[-1].fired.row.target is State.FINISH
    worst = verify(limits).worst
    assert worst is not None
    assert moments[-1].fired.ctx.model_calls == worst.model_calls - worst.sent_again


@pytest.mark.parametrize("more", [{}, {"max_retries": 2, "abort_after": 4}, {"deadline": 60.0}, {"token_budget": None}])
def test_the_longest_path_goes_on_as_it_began(monkeypatch: pytest.MonkeyPatch, more: dict[str, int]) -> None:
    """Going on evenly from a few steps gives the same as measuring each step by itself."""
    graph = graph_of(SMALL.replace(max_steps=23, **more))
    short = longest.measure(graph, 23)
    monkeypatch.setattr(longest, "_steady", lambda layers, going: 0)
    assert longest.measure(graph, 23) == short


def test_many_steps_cost_no_more_than_few() -> None:
    """A hundred thousand steps are explored as few are, and each adds the same to the worst case."""
    few, many = verify(SMALL.replace(max_steps=8)), verify(SMALL.replace(max_steps=100_000))
    assert few.worst is not None
    assert many.worst is not None
    assert many.configurations == few.configurations
    assert many.worst.model_calls == few.worst.model_calls + 2 * (100_000 - 8)
    assert many.worst.transitions > 1_000_000


def test_a_graph_with_a_cycle_has_no_longest_path() -> None:
    """Measuring is refused where runs need not end."""
    graph = graph_of(SMALL)
    begin = next(n for n, one in enumerate(graph.configs) if one.state is State.OBSERVE)
    graph.arcs[begin] = (graph.arcs[begin][0]._replace(target=begin),)
    with pytest.raises(ValueError, match="cycle"):
        longest.measure(graph, 3)


@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(max_nudges=1_000_000), 200_000), (Limits(), 1_000), (Limits(abort_after=90_000), 200_000)],
)
def test_too_much_to_explore_is_refused_with_what_to_lower(limits: Limits, most: int) -> None:
    """Limits whose counters allow too many configurations are refused at once, and the message names them."""
    with pytest.raises(DefinitionError, match=r"max_nudges.*lower one of them, or give more with most="):
        verify(limits, most=most)


def test_waiting_never_passes_the_deadline() -> None:
    """With a deadline, the seconds of backoff are at most that."""
    worst = verify(SMALL.replace(deadline=5.0)).worst
    assert worst is not None
    assert worst.backoff == 5.0


def test_without_retries_nothing_waits() -> None:
    """`max_retries=0` means no retry and no second of backoff, unless a tool has retries of its own."""
    limits = SMALL.replace(max_retries=0)
    worst, own = verify(limits).worst, verify(limits, tool_retries=1).worst
    assert worst is not None
    assert own is not None
    assert (worst.retries, worst.backoff) == (0, 0.0)
    assert own.retries > 0


def test_an_agent_verifies_its_own_definition() -> None:
    """`agent.verify()` takes the agent's limits, ladder, tools and memory."""
    agent = Agent(ScriptedModel([]), limits=SMALL, ladder=["strategy"], memory=SummaryWindow(), logger=silent_logger())
    found = agent.verify()
    assert found.ok
    assert found.limits["max_steps"] == 3
    assert found.worst is not None
    assert found.worst.summaries == 2 * 3
    unused = [one.row for one in found.unused]
    assert any(row.event is Event.FALLBACK_CHOSEN for row in unused)
    assert any(row.event is Event.ANSWER_FORCED for row in unused)


def test_the_command_prints_the_certificate() -> None:
    """`fsm-agent verify` takes the limits as options, and `--json` gives one document."""
    given = (
        "--max-steps",
        "3",
        "--max-nudges",
        "0",
        "--max-degradations",
        "1",
        "--degrade-after",
        "1",
        "--abort-after",
        "2",
    )
    done = fsm("verify", *given, "--no-progress-steps", "2", "--json")
    assert done.code == 0
    assert done.document["worst"] == verify(SMALL).to_data()["worst"]
    printed = fsm("verify", *given, "--no-progress-steps", "2")
    assert printed.code == 0
    assert printed.out.startswith("verified: ")


def test_the_command_refuses_what_is_too_large() -> None:
    """Limits that allow too much end the command with 2 and one line."""
    done = fsm("verify", "--max-nudges", "1000000")
    assert done.code == 2
    assert "lower one of them" in done.err
