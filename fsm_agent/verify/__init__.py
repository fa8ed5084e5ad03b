"""Proof of the loop: every behaviour of model, tools, people and clock, explored against the real machine and guards.

A configuration is a state with the counters that guards read; for each, every outcome that its state can make of an effect is tried, and
the real machine with its real guards, on a small real context, says where it leads. What has no bound (tokens, time, signatures) is
a choice: both answers of a guard are explored, and a deadline that has passed stays passed. So there are finitely many configurations, and
more behaviours than real runs have: what never happens here never happens.

The cost does not grow with `max_steps` (steps are a measure beside the graph, and the longest path is continued once it grows evenly),
nor with `max_tool_calls`, `token_budget` and times. It grows with the product of `abort_after`, `no_progress_steps`, `max_nudges`,
`max_degradations` and, more gently, retries: three seconds for the defaults, about 15,000 configurations; a `deadline` doubles
it. Past `most` configurations, or a product that must lead there, it is refused with `DefinitionError` instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from fsm_agent.errors import DefinitionError, TableError
from fsm_agent.ladder import LADDER
from fsm_agent.limits import Limits
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.policy import ToolPolicy
from fsm_agent.table import TABLE, Row
from fsm_agent.verify.certificate import Certificate, Fault, PolicyProof, Unused, WorstCase
from fsm_agent.verify.configuration import Bounds
from fsm_agent.verify.findings import faults_of, unused_rows
from fsm_agent.verify.graph import Graph, explore
from fsm_agent.verify.judge import Judge
from fsm_agent.verify.longest import find_cycle, measure
from fsm_agent.verify.policy import examined
from fsm_agent.verify.wording import ASSUMED, ASSUMED_OF_POLICY, PROVED, proved_of_policy, ranking

__all__ = ["MOST", "Certificate", "Fault", "PolicyProof", "Unused", "WorstCase", "verify"]

MOST: Final = 200_000
"""Configurations that are explored at most, unless another number is given; half a minute to a minute."""
_UNBOUNDED: Final = frozenset({"steps", "tool_calls", "unchecked"})
"""Faults that leave something without a bound."""


def verify(
    limits: Limits | None = None,
    *,
    rows: Sequence[Row] = TABLE,
    ladder: Iterable[str] | None = None,
    tool_retries: int | None = None,
    summaries: bool = False,
    simpler: bool = False,
    defaults: bool = False,
    policy: ToolPolicy | None = None,
    tools: Sequence[str] | None = None,
    reflections: int = 0,
    most: int = MOST,
) -> Certificate:
    """Explore every behaviour of `rows` under `limits` (by default the defaults), and say what holds and what does not.

    In a state of one's own (`rows` is then a `fsm_agent.table.Table`) each of its events may happen; a guard of one's own may answer
    either way.
    `ladder` are the rungs that there are, in their order; `tool_retries` the most retries that a tool has of its own, by default
    `max_retries`; `summaries` whether the memory asks the model for summaries; `simpler` whether there are simpler tools to be left with;
    `defaults` whether a tool has a default; `policy` the tool policy, verified with the loop (`fsm_agent.verify.policy` says how), and
    `tools` the names that it may name, by default any; `reflections` how often a run asks the model at most whether to go on. A table
    that is wrong, or refused by `checks`, gives a certificate with `faults`.
    Raises `fsm_agent.errors.DefinitionError` for limits that allow more than `most` configurations.
    """
    begun = time.process_time()
    chosen = Limits() if limits is None else limits
    rungs = LADDER if ladder is None else tuple(ladder)
    retries = max(chosen.max_retries, tool_retries or 0)
    bounds = Bounds(chosen, rungs, retries, simpler=simpler, defaults=defaults, reflections=reflections)
    if bounds.counters > most:
        raise DefinitionError(
            f"abort_after, no_progress_steps, max_nudges and max_degradations allow {bounds.counters:,} combinations, more than the "
            f"{most:,} configurations that are explored at most: lower one of them, or give more with most=... (fsm-agent verify --most)"
        )
    try:
        machine = DEFAULT_MACHINE if tuple(rows) == TABLE else Machine(rows)
    except TableError as error:
        refused = Fault(kind="refused", sentence=str(error), row=_named(rows, error.row))
        return _certificate(bounds, rows, begun, faults=(refused,))
    judge = Judge(machine, bounds)
    graph = explore(judge, most)
    found = find_cycle(graph)
    unused, dead = unused_rows(judge, graph)
    proof, wrong = (None, ()) if policy is None else examined(policy, chosen, tools)
    faults = (*faults_of(judge, graph, found), *dead, *wrong)
    unbounded = found is not None or any(fault.kind in _UNBOUNDED for fault in faults)
    worst = None if unbounded else _worst(judge, graph, summaries=summaries)
    return _certificate(bounds, rows, begun, graph=graph, worst=worst, faults=faults, unused=unused, policy=proof)


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if str(row) == name), None)


def _worst(judge: Judge, graph: Graph, *, summaries: bool) -> WorstCase:
    limits = judge.bounds.limits
    found = measure(graph, limits.step_bound)
    again = judge.most_sent_again()
    extra = found.extra
    apart = [
        (times, extra[name])
        for name, times in (("again", again), ("reflection", judge.bounds.reflections))
        if name in extra
    ]
    return WorstCase(
        steps=limits.step_bound,
        model_calls=found.model_calls + sum(times * more.model_calls for times, more in apart),
        tool_calls=limits.max_tool_calls,
        retries=found.retries,
        transitions=found.transitions + sum(times * more.transitions for times, more in apart),
        backoff=found.backoff if limits.deadline is None else min(found.backoff, limits.deadline),
        sent_again=again,
        summaries=2 * limits.step_bound if summaries else 0,
        crash=extra["crash"].transitions if "crash" in extra else 0,
        within_step=found.longest_step,
    )


def _certificate(
    bounds: Bounds,
    rows: Sequence[Row],
    begun: float,
    *,
    graph: Graph | None = None,
    worst: WorstCase | None = None,
    faults: tuple[Fault, ...] = (),
    unused: tuple[Unused, ...] = (),
    policy: PolicyProof | None = None,
) -> Certificate:
    kinds = {fault.kind for fault in faults}
    held = () if policy is None else proved_of_policy(policy, kinds)
    assumed = ASSUMED if policy is None else (*ASSUMED, *ASSUMED_OF_POLICY)
    return Certificate(
        limits=bounds.limits.model_dump(),
        rows=len(rows),
        worst=worst,
        proved=() if graph is None else (*(text for kind, text in PROVED.items() if kind not in kinds), *held),
        assumed=() if graph is None else assumed,
        ranking=() if worst is None else ranking(bounds, worst),
        unused=unused,
        faults=faults,
        configurations=0 if graph is None else len(graph.configs),
        transitions=0 if graph is None else graph.transitions,
        seconds=time.process_time() - begun,
        policy=policy,
    )
