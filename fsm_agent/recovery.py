"""Going on with a stored run: after a crash, after a pause, or with what people have decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fsm_agent.alphabet import State
from fsm_agent.context import Context, Setup
from fsm_agent.effects import Answered, Approve, AskHuman, Decision, Edit, Expired, Outcome, to_data
from fsm_agent.errors import RunError, TrailError, TrailVersion, UnknownRun
from fsm_agent.jobs import Job
from fsm_agent.machine import Machine
from fsm_agent.observe import Observer
from fsm_agent.review import decisions_for
from fsm_agent.runs import Recovered, Run
from fsm_agent.tools.registry import Registry
from fsm_agent.trail.changes import Change, apply_change
from fsm_agent.trail.fold import Decided, Folded, fold
from fsm_agent.trail.header import check_agent
from fsm_agent.trail.journal import Journal, Taken
from fsm_agent.trail.toolset import other_tools, tools_data

__all__ = ["Host", "Resumption", "reopened", "taken_over"]

_ASK: Final = "ask_human"


@dataclass(frozen=True, slots=True)
class Host:
    """What the process that takes a run over brings along."""

    observers: Sequence[Observer] = ()
    tools: Registry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What a caller goes on with: decisions (one for all calls, or by call id), a change, and who decided (`by`)."""

    decision: Decision | Mapping[str, Decision] | None = None
    change: Change | None = None
    by: str = ""


def taken_over(journal: Journal, run_id: str, setup: Setup, machine: Machine, host: Host) -> Run:
    """A stored run that has not ended, held by this process and exactly where it was.

    Raises `UnknownRun` for one that is not stored or has ended, `RunHeld`, `TrailDamaged`, `TrailVersion`; nothing is held then.
    """
    taken = journal.take(run_id)
    try:
        if taken.info.ended:
            raise UnknownRun(f"run {run_id!r} has ended ({taken.info.status}): nothing of it is left to go on with")
        check_agent(taken.entries, setup, machine)
        folded = fold(taken.entries, setup, machine=machine)
        if folded.ended:
            raise UnknownRun(f"run {run_id!r} has ended in {folded.state}: nothing of it is left to go on with")
        return _run(journal, taken, folded, machine, host)
    except BaseException:
        journal.let_go(run_id, taken.writer.owner)
        raise


def _run(journal: Journal, taken: Taken, folded: Folded, machine: Machine, host: Host) -> Run:
    clock = journal.clock
    # An effect whose outcome is known is over, though nothing has followed from it yet.
    started = folded.started if folded.outcome is None else None
    asked = started is not None and started.body["effect"] == _ASK
    # Time goes on while a person is asked, and stands still while no process has the run.
    waited = max(clock.time() - started.time, 0.0) if asked and started is not None else 0.0
    job = Job(
        run_id=folded.run_id,
        clock=clock,
        started=clock.monotonic() - folded.at - waited,
        language=folded.ctx.language,
        observed=len(host.observers) > 1,
    )
    run = Run(
        ctx=folded.ctx,
        job=job,
        machine=machine,
        tools=host.tools,
        # What was registered while nobody had the run is not for it; what changes from now on is.
        tools_seen=0 if host.tools is None else host.tools.version,
        observers=host.observers,
        state=folded.state,
        transitions=folded.transitions,
        trail=taken.writer,
        paused=folded.paused,
        # What was begun is past the place where it could have stopped before it.
        passed=folded.ctx.seq if folded.paused or started is not None else -1,
        last=folded.at,
    )
    if asked and started is not None:
        run.asking = _asked(folded, machine)
        run.decided = dict(folded.decided)
        run.asked_at = started.time
    elif started is not None:
        until = started.body.get("until")
        run.recovered = Recovered(results=dict(folded.results), until=until)
    run.unfolded = folded.outcome
    return run


def _asked(folded: Folded, machine: Machine) -> AskHuman:
    effect = machine.behaviours[folded.state].enter(folded.ctx)
    assert isinstance(effect, AskHuman), "the fold has compared the effects"
    return effect


def reopened(run: Run, resumption: Resumption, setup: Setup) -> Outcome | None:
    """Write down what the caller goes on with, and make of it the outcome that the run waits for; None when it goes on by itself.

    Afterwards `run.asking` holds the calls that still wait: with any of them left, the run stays suspended. Raises `RunError` for decisions
    and changes that do not fit; then nothing was written.
    """
    asking, change = run.asking, resumption.change
    if not isinstance(change, Change | None):
        raise RunError(f"change is a {type(change).__name__}; give Change(limits=..., memory=..., arguments=...)")
    if resumption.decision is not None and asking is None:
        raise RunError(f"run {run.ctx.run_id!r} waits for nobody's decision; resume it without one")
    # Before REVIEW a change would stand in for the decision that a person is about to be asked for.
    if change is not None and change.arguments and not (run.paused and run.state is State.EXECUTE):
        raise RunError(
            "arguments can be changed while the run is paused before EXECUTE; a call in review is changed by Edit(args)"
        )
    if change is not None and change.memory is not None and run.trail is not None:
        _check_memory(change)
    decided = _decided(run, asking, resumption, setup) if asking is not None else {}
    if change:
        after = apply_change(run.ctx, change)
        _check_calls(after, change)
        run.ctx = after
    if run.trail is not None:
        run.trail.add("resumed", {"at": run.job.now(), "by": resumption.by, "owner": run.trail.owner})
        if change:
            run.trail.add("changed", change.data())
    run.paused = False
    if asking is None:
        return None
    return _answered(run, asking, decided)


def _check_calls(ctx: Context, change: Change) -> None:
    """A change is no approval: whoever approves a call sees what is executed, and what a person refused stays refused."""
    for call in ctx.calls:
        if call.id not in change.arguments:
            continue
        tool = ctx.setup.tools.resolve(call.tool)
        if call.signature in ctx.denied:
            raise RunError(f"a person has refused this same call of {call.tool} in this run")
        if call.needs_approval or (tool is not None and tool.needs_approval(call.arguments)):
            raise RunError(
                f"{call.id}: a person must approve {call.tool} with these arguments, and a change is no approval; in review a call is "
                "changed by Edit(args)"
            )


def _check_memory(change: Change) -> None:
    """A memory that the trail could not give back would make it unreadable from there on."""
    try:
        Change.of(change.data())
    except TrailError as error:
        name = type(change.memory).__name__
        raise RunError(f"the trail cannot keep the memory {name}: change it to one of fsm_agent.memory") from error


def _decided(run: Run, asking: AskHuman, given: Resumption, setup: Setup) -> dict[str, Decided]:
    if given.decision is None:
        return {}
    open_ = replace(asking, calls=tuple(call for call in asking.calls if call.id not in run.decided))
    decisions = decisions_for(open_, given.decision, setup.tools)
    _check_shown(run, asking, {call_id: one.decision for call_id, one in run.decided.items()} | decisions)
    digests = {call.id: call.digest for call in asking.calls}
    now = run.job.clock.time()
    return {call_id: Decided(one, digests[call_id], given.by, now) for call_id, one in decisions.items()}


def _check_shown(run: Run, asking: AskHuman, decisions: Mapping[str, Decision]) -> None:
    """A yes is for the tools that were shown; one that is gone is not run. Those of a stored run were compared when it was taken."""
    if run.tools is None or run.tools.version == run.tools_seen:
        return
    let = {call.tool for call in asking.calls if isinstance(decisions.get(call.id), Approve | Edit)}
    there = {name for name in let if run.tools.resolve(name) is not None}
    others = other_tools([one for one in tools_data(run.ctx.setup.tools) if one["name"] in there], run.tools)
    if others:
        raise TrailVersion(
            f"run {run.ctx.run_id!r} has another definition of {', '.join(others)} now than was shown: deny the call, or cancel the run"
        )


def _answered(run: Run, asking: AskHuman, decided: Mapping[str, Decided]) -> Outcome | None:
    waited = max(run.job.clock.time() - run.asked_at, 0.0)
    if asking.expires_in is not None and waited > asking.expires_in:
        return Expired(waited, run.job.now())
    for call_id, one in decided.items():
        if run.trail is not None:
            body = {"call_id": call_id, "digest": one.digest, "decision": to_data(one.decision), "by": one.by}
            run.trail.add("decided", body)
        run.decided[call_id] = one
    if any(call.id not in run.decided for call in asking.calls):
        return None
    decisions = {call.id: run.decided[call.id].decision for call in asking.calls}
    return Answered(decisions=decisions, waited=waited, at=run.job.now())
