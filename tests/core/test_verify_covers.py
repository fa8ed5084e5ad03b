"""The abstraction of `verify` covers reality: what real runs do is among what it explores."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.alphabet import INITIAL, TERMINAL
from fsm_agent.context import Context, Setup
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.memory import Memory
from fsm_agent.records import Transitioned
from fsm_agent.verify.configuration import Bounds, Config, abstracted
from fsm_agent.verify.graph import Arc, Graph, explore
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.measure import Worst, measure
from tests.core.adversary import ALL_TOOLS, drive_with, memories, new_play, setup_of

RUNGS = ("fallback", "strategy", "answer")
RETRIES = max(one.retry or 0 for one in ALL_TOOLS)
TIGHT = (
    (
        Limits(max_steps=4, no_progress_steps=2, max_nudges=1, max_degradations=1, deadline=20.0, token_budget=3_000),
        RUNGS,
    ),
    (Limits(max_steps=3, on_limit="stop", in_doubt="tell", degrade_after=1, abort_after=2, max_degradations=2), RUNGS),
    (
        Limits(max_steps=6, repeat_threshold=1, max_nudges=0, max_retries=0, max_degradations=1, token_budget=None),
        RUNGS,
    ),
    (Limits(max_steps=5, max_tool_calls=3, token_budget=1_500, degrade_after=1, abort_after=1, backoff_max=3.0), ()),
)


@lru_cache(maxsize=16)
def explored(limits: Limits, ladder: frozenset[str]) -> tuple[Judge, Graph, dict[Config, int], Worst]:
    """The graph for these limits, the number of each configuration, and the longest path."""
    judge = Judge(DEFAULT_MACHINE, Bounds(limits, ladder, max(limits.max_retries, RETRIES)))
    graph = explore(judge, 400_000)
    return (
        judge,
        graph,
        {config: number for number, config in enumerate(graph.configs)},
        measure(graph, limits.max_steps),
    )


def goes(graph: Graph, source: int, record: Transitioned, target: int) -> Arc | None:
    """The explored transition that this record is, None when there is none."""
    for arc in graph.arcs[source]:
        row = graph.rows[arc.row]
        fits = (row.source, row.event, row.target) == (record.source, record.event, record.target)
        if fits and target in (arc.target, arc.spent):
            return arc
    return None


def assert_covered(setup: Setup, records: list[Transitioned], contexts: list[Context]) -> None:
    """Every configuration and every transition of a real run was explored, and the run is no longer than the longest path."""
    judge, graph, numbers, worst = explored(setup.limits, setup.ladder)
    at = numbers[Config(INITIAL)]
    for record, ctx in zip(records, contexts, strict=True):
        config = abstracted(ctx, record.target, record.event, judge.bounds)
        assert config in numbers, f"{config} was never explored; from {graph.configs[at]} by {record}"
        assert goes(graph, at, record, numbers[config]) is not None, f"{graph.configs[at]} -> {config} by {record}"
        at = numbers[config]
    apart = {"compacted": "summary", "summary_failed": "summary", "overflowed": "overflow", "doubted": "crash"}
    more = [worst.extra[apart[one.event]] for one in records if one.event in apart]
    assert len(records) <= worst.transitions + sum(cost.transitions for cost in more)
    if records and contexts:
        assert contexts[-1].model_calls <= worst.model_calls + sum(cost.model_calls for cost in more)
        assert contexts[-1].tool_calls <= max(setup.limits.max_tool_calls, 0)


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    data=st.data(),
    tight=st.sampled_from(TIGHT),
    dialect=st.sampled_from(["native", "json_action", "react"]),
    memory=memories,
)
def test_every_transition_of_a_real_run_is_explored(
    data: st.DataObject, tight: tuple[Limits, tuple[str, ...]], dialect: str, memory: Memory
) -> None:
    """Whatever hypothesis makes of model, tools, people, clock and crashes, the explored graph holds it, and no run is longer."""
    limits, ladder = tight
    play = drive_with(data.draw, new_play(setup_of(limits, dialect, memory, ladder)))
    assert play.run.state in TERMINAL
    assert_covered(play.run.ctx.setup, play.run.transitions, play.contexts)
