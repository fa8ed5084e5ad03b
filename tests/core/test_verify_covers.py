"""The abstraction of `verify` covers reality: what real runs do is among what it explores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.alphabet import INITIAL, TERMINAL
from fsm_agent.context import Context, Setup
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.memory import Memory
from fsm_agent.records import Transitioned
from fsm_agent.reflection import Reflect
from fsm_agent.table import Row
from fsm_agent.verify.configuration import Bounds, Config, abstracted
from fsm_agent.verify.graph import Arc, Graph, explore
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.longest import Worst, measure
from tests.core.adversary import ALL_TOOLS, WITH_DEFAULT, drive_with, memories, new_play, setup_of
from tests.core.builders import (
    ANSWERS,
    APPROVES,
    DENIES,
    STOPS,
    Line,
    asks,
    crashes,
    down,
    edits,
    fails,
    gives,
    make_setup,
    mixed,
    play,
    says,
    start,
    waits,
)
from tests.core.builders import raw as call

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
    (
        Limits(
            max_steps="adaptive",
            base_steps=1,
            most_steps=4,
            max_nudges=0,
            max_degradations=1,
            max_retries=0,
            deadline=9.0,
        ),
        RUNGS,
    ),
    (Limits(max_steps=5, max_tool_calls=3, token_budget=1_500, degrade_after=1, abort_after=1, backoff_max=3.0), ()),
)

LOW = Limits(
    max_steps=5, max_nudges=0, max_retries=0, degrade_after=1, abort_after=4, max_degradations=3, token_budget=None
)
FALLING: tuple[tuple[Limits, tuple[str, ...], dict[str, Any]], ...] = (
    (LOW, ("fallback", "default", "strategy", "simpler", "answer"), {"tools": WITH_DEFAULT, "simpler": ("look",)}),
    (LOW, ("strategy", "simpler", "default", "stop"), {"tools": WITH_DEFAULT, "simpler": ("look",), "withhold": True}),
    (
        LOW,
        ("fallback", "simpler", "answer"),
        {"simpler": ("look", "guessed"), "withhold": True, "reflect": Reflect(every=1, most=2)},
    ),
)


@lru_cache(maxsize=16)
def explored(
    limits: Limits, ladder: tuple[str, ...], simpler: bool, defaults: bool, reflections: int
) -> tuple[Judge, Graph, dict[Config, int], Worst]:
    """The graph for these limits, the number of each configuration, and the longest path."""
    retries = max(limits.max_retries, RETRIES)
    judge = Judge(
        DEFAULT_MACHINE, Bounds(limits, ladder, retries, simpler=simpler, defaults=defaults, reflections=reflections)
    )
    graph = explore(judge, 400_000)
    return (
        judge,
        graph,
        {config: number for number, config in enumerate(graph.configs)},
        measure(graph, limits.step_bound),
    )


def goes(graph: Graph, source: int, record: Transitioned | Row, target: int) -> Arc | None:
    """The explored transition that this record is, None when there is none."""
    for arc in graph.arcs[source]:
        row = graph.rows[arc.row]
        fits = (row.source, row.event, row.target) == (record.source, record.event, record.target)
        if fits and target in (arc.target, arc.spent):
            return arc
    return None


def assert_covered(setup: Setup, records: Sequence[Transitioned | Row], contexts: Sequence[Context]) -> None:
    """Every configuration and every transition of a real run was explored, and the run is no longer than the longest path."""
    judge, graph, numbers, worst = explored(
        setup.limits,
        setup.ladder,
        bool(setup.simpler),
        any(one.default is not None for one in setup.tools.known()),
        0 if setup.reflect is None else setup.reflect.most,
    )
    at = numbers[Config(INITIAL)]
    for record, ctx in zip(records, contexts, strict=True):
        config = abstracted(ctx, record.target, record.event, judge.bounds)
        assert config in numbers, f"{config} was never explored; from {graph.configs[at]} by {record}"
        assert goes(graph, at, record, numbers[config]) is not None, f"{graph.configs[at]} -> {config} by {record}"
        at = numbers[config]
    apart = {
        "compacted": "summary",
        "summary_failed": "summary",
        "overflowed": "again",
        "gave_way": "again",
        "doubted": "crash",
        "reflected": "reflection",
        "reflection_failed": "reflection",
    }
    more = [worst.extra[apart[one.event]] for one in records if one.event in apart]
    assert len(records) <= worst.transitions + sum(cost.transitions for cost in more)
    if records and contexts:
        assert contexts[-1].model_calls <= worst.model_calls + sum(cost.model_calls for cost in more)
        assert contexts[-1].tool_calls <= max(setup.limits.max_tool_calls, 0)


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    data=st.data(),
    tight=st.sampled_from([*((*one, {}) for one in TIGHT), *FALLING]),
    dialect=st.sampled_from(["native", "json_action", "react"]),
    memory=memories,
)
def test_every_transition_of_a_real_run_is_explored(
    data: st.DataObject, tight: tuple[Limits, tuple[str, ...], dict[str, Any]], dialect: str, memory: Memory
) -> None:
    """Whatever hypothesis makes of model, tools, people, clock and crashes, the explored graph holds it, and no run is longer."""
    limits, ladder, more = tight
    play = drive_with(data.draw, new_play(setup_of(limits, dialect, memory, ladder, **more)))
    assert play.run.state in TERMINAL
    assert_covered(play.run.ctx.setup, play.run.transitions, play.contexts)


LOOK, POLL, PAY = asks(call("look", q="x")), asks(call("poll", job=1)), asks(call("pay", to="Ada", amount=5))
SHAKY = asks(call("shaky", q="x"))
ROOMY = Limits(max_retries=2, max_steps=5)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param((POLL, gives("1"), POLL, gives("1"), POLL, gives("1"), says("3")), id="polling is not idle"),
        pytest.param((POLL, gives("1"), LOOK, fails(), POLL, gives("1"), says("3")), id="polling after an idle step"),
        pytest.param((LOOK, gives("1"), LOOK, gives("1"), LOOK), id="repeated"),
        pytest.param((says(""), says(""), says("")), id="empty replies"),
        pytest.param((down(), waits, down(), waits, LOOK, fails(), LOOK, fails()), id="failures that are taken back"),
        pytest.param(
            (LOOK, fails("1"), LOOK, fails("2", retryable=True), waits, fails("3", retryable=True), waits, fails("4")),
            id="retries that never open the circuit",
        ),
        pytest.param((SHAKY, fails("1"), SHAKY, fails("2"), gives("3"), says("3")), id="a fallback"),
        pytest.param(
            (SHAKY, fails("1"), SHAKY, fails("2"), crashes("?"), APPROVES, fails("3")), id="a fallback in doubt"
        ),
        pytest.param(
            (asks(call("look", q="x"), call("add", a=1, b=2)), mixed(True, False, retryable=True), waits, gives("3")),
            id="a retry beside a success",
        ),
        pytest.param(
            (PAY, edits(to="Bob", amount=1), gives("1"), PAY, DENIES, PAY, says("3")), id="people edit and deny"
        ),
        pytest.param((PAY, edits(to=3), PAY, ANSWERS, PAY, STOPS), id="people edit badly, answer and stop"),
        pytest.param((LOOK, crashes("?"), DENIES, SHAKY, crashes("?"), ANSWERS, says("3")), id="crashes"),
        pytest.param(
            (LOOK, fails("1", retryable=True), waits, crashes("?"), edits(q="z"), fails("2", retryable=True)),
            id="a retry in doubt, edited",
        ),
        pytest.param((asks(call("nothing")), asks(call("look", x=1)), LOOK, gives("1")), id="calls that are refused"),
    ],
)
def test_rare_ways_are_explored_too(script: tuple[Line, ...]) -> None:
    """What hypothesis seldom comes to by chance is in the explored graph as well."""
    setup = make_setup(limits=ROOMY, tools=ALL_TOOLS)
    moments = play(*script, ctx=start(setup))
    assert len(moments) > len(script)
    assert_covered(setup, [one.fired.row for one in moments], [one.fired.ctx for one in moments])


@pytest.mark.parametrize(
    "failed", [(asks(call("look", x=1)),), (LOOK, fails())], ids=["a refused call", "a failed call"]
)
def test_a_stop_after_a_failed_round_is_explored(failed: tuple[Line, ...]) -> None:
    """The model may say not to go on whatever failed in the round before: the answer that it is asked for does not depend on that."""
    stop = says('{"go_on": false, "next_tool": null}')
    limits = LOW.replace(degrade_after=2)
    setup = make_setup(limits=limits, tools=ALL_TOOLS, ladder=RUNGS, reflect=Reflect(every=1, most=1))
    moments = play(*failed, stop, says("3"), ctx=start(setup))
    assert [one.fired.row.target for one in moments][-5:] == ["PLAN", "DEGRADE", "PLAN", "VALIDATE", "FINISH"]
    assert_covered(setup, [one.fired.row for one in moments], [one.fired.ctx for one in moments])
