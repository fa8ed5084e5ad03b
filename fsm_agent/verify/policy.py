"""Proof of a tool policy: no rule can be broken, and every tool has its turn.

It is separate from the exploration of the loop, and holds together with it. The loop is explored with each call either refused or not,
whatever was called before, so a policy, which only refuses, takes behaviours away and adds none: what is proved of the loop stays true.
And the loop proves that EXECUTE is entered only with calls that VALIDATE or a person let through, or to try them again; so the
batches that are executed are among those that the policy admits one after the other, and these are all that is explored here.

Rule by rule, because a call is admitted only when every rule admits it: whatever the whole policy lets happen, each rule alone would. Each
rule is turned, by its own code, through all its marks, beside a record of what has begun and succeeded that knows nothing of marks; the
rule is broken when a call begins that the record forbids. Batches are of up to two calls, for a rule looks at the calls that run beside
another one by one; they end in any order, each succeeding or not, at once or when it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from fsm_agent.errors import PolicyError
from fsm_agent.limits import Limits
from fsm_agent.policy import AtMost, NeverAfter, OneOf, Order, Rule, Stages, ToolPolicy
from fsm_agent.policy.machine import machines
from fsm_agent.policy.reach import Reach, reach
from fsm_agent.policy.rules import Mark
from fsm_agent.verify.certificate import Fault, PolicyProof

__all__ = ["examined"]


class _Record(NamedTuple):
    """What has happened: how often each tool has begun (counted as far as a rule does), and what has succeeded, in order, once each."""

    begun: tuple[tuple[str, int], ...] = ()
    succeeded: tuple[str, ...] = ()
    stage: str = ""


def examined(
    policy: ToolPolicy, limits: Limits, names: Sequence[str] | None = None
) -> tuple[PolicyProof, tuple[Fault, ...]]:
    """What was explored of the policy, and what is wrong with it in a loop with these limits and tools (None: any tools).

    Faults are a rule that can be broken, a tool that there is not, and one that can never be called.
    """
    explored = [_explored(rule) for rule in policy.rules]
    faults = [
        Fault(kind="policy", sentence=f"{broken}, though the policy says: {rule.sentence()}")
        for rule, (_, wrong) in zip(policy.rules, explored, strict=True)
        for broken in wrong
    ]
    if names is not None:
        try:
            policy.check_names(names)
        except PolicyError as error:
            faults.append(Fault(kind="uncallable", sentence=str(error)))
    soonest = {tool: reach(policy.rules, tool) for tool in policy.tools}
    faults += [_uncallable(policy, tool, found, limits) for tool, found in soonest.items() if not _fits(found, limits)]
    drawn = machines(policy.rules)
    proof = PolicyProof(
        rules=tuple(rule.sentence() for rule in policy.rules),
        positions=sum(len(one.names) for one in drawn),
        moves=sum(len(one.moves) for one in drawn),
        explored=sum(len(found) for found, _ in explored),
        soonest={tool: (found.steps, found.calls) for tool, found in soonest.items() if found is not None},
    )
    return proof, tuple(faults)


def _uncallable(policy: ToolPolicy, tool: str, found: Reach | None, limits: Limits) -> Fault:
    """The fault names the last rule without which the tool could be called, if one alone is to blame."""
    freeing = [rule for rule in policy.rules if _fits(_without(policy, rule, tool), limits)]
    blamed = "; ".join(rule.sentence() for rule in freeing[-1:] or policy.rules if freeing or tool in rule.tools)
    return Fault(kind="uncallable", sentence=f"{tool} can never be called: {_late(found, limits)} (rule: {blamed})")


def _without(policy: ToolPolicy, rule: Rule, tool: str) -> Reach | None:
    return reach([one for one in policy.rules if one != rule], tool)


def _fits(found: Reach | None, limits: Limits) -> bool:
    return found is not None and found.steps <= limits.step_bound and found.calls <= limits.max_tool_calls


def _late(found: Reach | None, limits: Limits) -> str:
    if found is None:
        return "what it waits for can never come"
    if found.steps > limits.step_bound:
        return f"it is due in step {found.steps} at the earliest, and max_steps is {limits.step_bound}"
    return f"it is call {found.calls} at the earliest, and max_tool_calls is {limits.max_tool_calls}"


def _explored(rule: Rule) -> tuple[set[tuple[Mark, _Record]], tuple[str, ...]]:
    """Every mark of the rule with what may have happened by then, and in words how it can be broken."""
    start = (rule.first, _Record(stage=rule.rows[0][0] if isinstance(rule, Stages) else ""))
    found, waiting = {start}, [start]
    broken: dict[str, None] = {}
    for mark, record in waiting:
        for batch in _batches(rule, mark):
            for index, tool in enumerate(batch):
                if not _may_begin(rule, record, tool, [*batch[:index], *batch[index + 1 :]]):
                    beside = f" beside {', '.join(batch[:index])}" if index else ""
                    broken.setdefault(f"{tool} can be executed{beside} at {rule.said(mark) or 'the start'}")
            for after in _ended(rule, mark, record, batch):
                if after not in found:
                    found.add(after)
                    waiting.append(after)
    return found, tuple(broken)


def _batches(rule: Rule, mark: Mark) -> Iterator[tuple[str, ...]]:
    """The replies of one and two calls that the rule admits."""
    for first in rule.tools:
        if rule.refusal(mark, first, (), "en"):
            continue
        yield (first,)
        begun = rule.began(mark, first)
        yield from ((first, second) for second in rule.tools if not rule.refusal(begun, second, (first,), "en"))


def _ended(rule: Rule, mark: Mark, record: _Record, batch: Sequence[str]) -> Iterator[tuple[Mark, _Record]]:
    """What a batch can have led to: any of its calls succeeded, in any order."""
    for tool in batch:
        mark, record = rule.began(mark, tool), _begun(rule, record, tool)
    for count in range(len(batch) + 1):
        for order in permutations(batch, count):
            after, then = mark, record
            for tool in order:
                after, then = rule.succeeded(after, tool), _succeeded(rule, then, tool)
            yield after, then


def _begun(rule: Rule, record: _Record, tool: str) -> _Record:
    counts = dict(record.begun)
    most = rule.times + 1 if isinstance(rule, AtMost) else 1
    counts[tool] = min(counts.get(tool, 0) + 1, most)
    return record._replace(begun=tuple(sorted(counts.items())))


def _succeeded(rule: Rule, record: _Record, tool: str) -> _Record:
    if isinstance(rule, Stages):
        rows = {(stage, name): target for stage, name, target in rule.rows}
        return record._replace(stage=rows.get((record.stage, tool), record.stage))
    if tool in record.succeeded or not isinstance(rule, Order):
        return record
    return record._replace(succeeded=(*record.succeeded, tool))


def _may_begin(rule: Rule, record: _Record, tool: str, beside: Iterable[str]) -> bool:
    """What the rule means, said of the record: may `tool` begin while `beside` run too?"""
    others = list(beside)
    touched = {name for name, _ in record.begun} | set(others)
    match rule:
        case Order(tools=tools):
            return record.succeeded[: tools.index(tool)] == tools[: tools.index(tool)]
        case AtMost(times=times):
            return dict(record.begun).get(tool, 0) + 1 + others.count(tool) <= times
        case NeverAfter(tool=late, after=after):
            return tool != late or after not in touched
        case OneOf():
            return touched <= {tool}
        case Stages(rows=rows):
            here = {name: target for stage, name, target in rows if stage == record.stage}
            return tool in here and (not others or all(here.get(name) == record.stage for name in (tool, *others)))
    raise AssertionError(rule)
