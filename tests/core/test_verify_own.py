"""The abstraction of states of one's own covers reality: what real runs through them do is among what `verify` explores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent import table
from fsm_agent.alphabet import INITIAL, TERMINAL
from fsm_agent.context import Context
from fsm_agent.custom import OwnState, Said
from fsm_agent.limits import Limits
from fsm_agent.machine import Machine
from fsm_agent.memory import Full
from fsm_agent.records import Transitioned
from fsm_agent.verify import verify
from fsm_agent.verify.configuration import Bounds, Config, abstracted
from fsm_agent.verify.graph import Graph, explore
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.longest import measure
from tests.core.adversary import ALL_TOOLS, drive_with, new_play, setup_of

LIMITS = Limits(max_steps=3, no_progress_steps=2, max_nudges=1, max_degradations=1, deadline=20.0, token_budget=3_000)
RUNGS = ("fallback", "strategy", "answer")
RETRIES = max(one.retry or 0 for one in ALL_TOOLS)
LAST = "DECIDE --decided--> PLAN"


def state_of(
    name: str, *events: str, does: Callable[[Context, str], Context] = lambda ctx, _: ctx, **more: float
) -> OwnState:
    """A state that says each of its events in turn, by the number of the transition, and does something for it."""

    def says(ctx: Context) -> Said:
        event = events[ctx.seq // 2 % len(events)]
        return event, does(ctx, event)

    return table.state(name, events=events, **more)(says)


def refusing(ctx: Context, event: str) -> Context:
    """Refuse what is open for an event that does not let it on."""
    return table.refuse(ctx, event) if event == "flagged" else ctx


def asking(ctx: Context, event: str) -> Context:
    """Have a person asked for the event that leads to one."""
    return table.require_approval(ctx) if event == "unsure" else ctx


@table.guard("the transition has an even number")
def even(ctx: Context) -> bool:
    """A guard that `verify` cannot know."""
    return ctx.seq % 2 == 0


TABLES = {
    "calls": table.extend(
        states=[state_of("CHECK", "cleared", "flagged", "blocked", does=refusing)],
        instead={
            "VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted--> CHECK",
            "REVIEW --approved--> EXECUTE": "REVIEW --approved--> CHECK",
        },
        rows=[
            "CHECK --cleared--> EXECUTE",
            "CHECK --flagged--> OBSERVE",
            "CHECK --blocked [even]--> ABORT (blocked)",
            "CHECK --blocked--> OBSERVE",
        ],
        guards=[even],
    ),
    "people": table.extend(
        states=[state_of("CHECK", "unsure", "cleared", does=asking)],
        instead={
            "VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted--> CHECK",
            "REVIEW --approved--> EXECUTE": "REVIEW --approved--> CHECK",
        },
        rows=[
            "CHECK --cleared--> EXECUTE",
            "CHECK --unsure [approval_required]--> REVIEW",
            "CHECK --unsure--> EXECUTE",
        ],
    ),
    "everywhere": table.extend(
        states=[
            state_of("READ", "read"),
            state_of("PROOF", "confirmed", "flagged", does=refusing),
            state_of("NOTED", "noted"),
            state_of("SEEN", "seen"),
            state_of("PACE", "paced", wait=2.0),
            state_of("TRIED", "tried"),
            state_of("LOWER", "lowered"),
        ],
        instead={
            "PLAN --replied--> VALIDATE": "PLAN --replied--> READ",
            "VALIDATE --answered--> FINISH": "VALIDATE --answered--> PROOF",
            "VALIDATE --rejected--> OBSERVE": "VALIDATE --rejected--> NOTED",
            "EXECUTE --executed--> OBSERVE": "EXECUTE --executed--> NOTED",
            "OBSERVE --observed--> DECIDE": "OBSERVE --observed--> SEEN",
            LAST: "DECIDE --decided--> PACE",
            "RETRY --waited--> EXECUTE": "RETRY --waited--> TRIED",
            "DEGRADE --strategy_changed--> PLAN": "DEGRADE --strategy_changed--> LOWER",
            "DEGRADE --answer_forced--> PLAN": "DEGRADE --answer_forced--> LOWER",
        },
        rows=[
            "READ --read--> VALIDATE",
            "PROOF --confirmed--> FINISH",
            "PROOF --flagged--> OBSERVE",
            "NOTED --noted--> OBSERVE",
            "SEEN --seen--> DECIDE",
            "PACE --paced [deadline_passed]--> ABORT (deadline)",
            "PACE --paced--> PLAN",
            "TRIED --tried--> EXECUTE",
            "LOWER --lowered--> PLAN",
        ],
    ),
}


@lru_cache(maxsize=4)
def explored(name: str) -> tuple[Machine, Bounds, Graph, dict[Config, int], int]:
    """The machine of a table, and what `verify` makes of it."""
    machine = Machine(TABLES[name])
    bounds = Bounds(LIMITS, RUNGS, max(LIMITS.max_retries, RETRIES))
    graph = explore(Judge(machine, bounds), 400_000)
    worst = measure(graph, LIMITS.step_bound)
    apart = sum(cost.transitions for cost in worst.extra.values())
    return (
        machine,
        bounds,
        graph,
        {config: at for at, config in enumerate(graph.configs)},
        worst.transitions + 4 * apart,
    )


def assert_covered(name: str, records: Sequence[Transitioned], contexts: Sequence[Context]) -> None:
    """There is a way through the explored graph that is this run. What is open in a state of one's own may be several things."""
    _, bounds, graph, numbers, most = explored(name)
    here = {numbers[Config(INITIAL)]}
    for record, ctx in zip(records, contexts, strict=True):
        config = abstracted(ctx, record.target, record.event, bounds)
        there: set[int] = set()
        for at in here:
            for arc in graph.arcs[at]:
                row = graph.rows[arc.row]
                if (row.source, row.event, row.target) == (record.source, record.event, record.target):
                    there |= {one for one in (arc.target, arc.spent) if one >= 0 and same(graph.configs[one], config)}
        assert there, f"{[str(graph.configs[at]) for at in here]} -> {config} by {record}"
        here = there
    assert len(records) <= most


def same(one: Config, real: Config) -> bool:
    """Alike, as far as a state goes by it. In one of one's own, what only matters behind it is as the state before it told it."""
    if not one.state.is_own:
        return one._replace(holds="") == real._replace(holds="")
    first, second = (
        each._replace(holds="", failure="", fallback=False, attempt=1, changed=False) for each in (one, real)
    )
    return first == second


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_every_transition_through_a_state_of_ones_own_is_explored(name: str, data: st.DataObject) -> None:
    """Whatever hypothesis makes of model, tools, people, clock and crashes, the explored graph holds the run, and it is not longer."""
    machine = explored(name)[0]
    play = new_play(setup_of(LIMITS, "native", Full(), RUNGS))
    play.run.machine = machine
    drive_with(data.draw, play)
    assert play.run.state in TERMINAL
    assert "changed" not in play.run.result().detail
    assert_covered(name, play.run.transitions, play.contexts)


@pytest.mark.parametrize("name", TABLES)
def test_sound_tables_have_no_end_to_a_run_missing(name: str) -> None:
    """None of these tables has a cycle without a bounded counter, wherever its states stand."""
    graph = explored(name)[2]  # measured too, which refuses a cycle
    assert not graph.breaches, [breach.sentence for breach in graph.breaches]


def with_stopover(source: str, event: str) -> table.Table:
    """The table with a state of one's own between `source` and PLAN."""
    return table.extend(
        states=[state_of("STOPOVER", "passed")],
        instead={f"{source} --{event}--> PLAN": f"{source} --{event}--> STOPOVER"},
        rows=["STOPOVER --passed--> PLAN"],
    )


@pytest.mark.parametrize("event", ["reflected", "reflection_failed"])
def test_a_state_may_stand_behind_a_reflection(event: str) -> None:
    """What a reflection leads back to PLAN with may pass through a state of one's own."""
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=0, abort_after=2, token_budget=None)
    certificate = verify(small, rows=with_stopover("PLAN", event), reflections=1)
    assert certificate.ok, certificate


@pytest.mark.parametrize("event", ["defaulted", "simplified"])
def test_a_state_may_stand_behind_every_rung(event: str) -> None:
    """What a rung of the ladder leads back to PLAN with may pass through a state of one's own."""
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)
    rows = with_stopover("DEGRADE", event)
    certificate = verify(small, rows=rows, ladder=["default", "simpler"], simpler=True, defaults=True)
    assert certificate.ok, certificate


MULLED = state_of("MULLED", "mulled")


def mulling(*rows: str) -> table.Table:
    """A table in which a state of one's own stands behind each reflection, with these rows out of it."""
    return table.extend(
        states=[MULLED],
        instead={
            "PLAN --reflected [told_to_stop, can_answer_now]--> DEGRADE": (),
            "PLAN --reflected [told_to_stop]--> ABORT": (),
            "PLAN --reflected--> PLAN": "PLAN --reflected--> MULLED",
        },
        rows=rows,
        guards=[even],
    )


TOLD = "MULLED --mulled [told_to_stop, can_answer_now]--> DEGRADE (reflection)"
BACK = "MULLED --mulled--> PLAN"


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        pytest.param((TOLD, "MULLED --mulled [told_to_stop]--> ABORT (reflection)", BACK), set(), id="as without it"),
        pytest.param(("MULLED --mulled [can_answer_now]--> DEGRADE (mulled)", BACK), set(), id="for its own reason"),
        pytest.param(("MULLED --mulled--> DEGRADE (reflection)",), {"untrue"}, id="unasked"),
        pytest.param(
            ("MULLED --mulled [even]--> DEGRADE (consecutive_failures)", BACK),
            {"lost"},
            id="for what failed before",
        ),
    ],
)
def test_a_state_behind_a_reflection_may_ask_what_the_model_said(rows: tuple[str, ...], kinds: set[str]) -> None:
    """It may lead to DEGRADE, as the round before it was observed: for what was said there, not for what failed in that round."""
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)
    small = small.replace(token_budget=None, deadline=None)
    certificate = verify(small, rows=mulling(*rows), reflections=1)
    assert {one.kind for one in certificate.faults} == kinds, certificate


@pytest.mark.parametrize("event", ["reflected", "reflection_failed", "compacted", "overflowed", "gave_way"])
def test_a_row_out_of_plan_does_not_go_back_to_a_round_that_is_over(event: str) -> None:
    """What failed before PLAN is nothing to degrade for there: the fallback of a call that was observed would run behind its round."""
    late = f"PLAN --{event} [even]--> DEGRADE (consecutive_failures)"
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=1, degrade_after=1, abort_after=2)
    rows = table.extend(guards=[even], before={f"PLAN --{event}--> PLAN": late})
    certificate = verify(small.replace(token_budget=None), rows=rows, reflections=1)
    assert [(one.kind, str(one.row)) for one in certificate.faults] == [("lost", late.partition(" (")[0])], certificate
