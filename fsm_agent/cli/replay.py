"""`fsm-agent replay`, `fork` and `audit`: a stored run driven again, gone on with from an earlier point, or checked. Nothing is called."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence
from typing import Any

from fsm_agent.cli.console import error_line, note, put, put_json, put_raw
from fsm_agent.cli.decide import resume_run
from fsm_agent.cli.going import Given, Going
from fsm_agent.cli.origin import code_of, machine_of, setup_of
from fsm_agent.cli.stores import Stored, existing, find_run, journal_of, stored_run
from fsm_agent.cli.trail_lines import call_text, transition_line
from fsm_agent.context import Setup
from fsm_agent.errors import RunError, TrailDamaged, TrailError, UnknownRun
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.observe import event_of
from fsm_agent.redact import redact, redact_text
from fsm_agent.trail import RunInfo, TrailStore
from fsm_agent.trail.audit import Audit, Finding, audit
from fsm_agent.trail.codec import record_of
from fsm_agent.trail.fold import Folded, Turned
from fsm_agent.trail.fork import fork
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.replay import entries_to, replay
from fsm_agent.trail.story import Called, story_of
from fsm_agent.trail.toolset import needs_code

__all__ = ["audit_runs", "checked_arguments", "fork_run", "given_code", "replay_run"]


# ---------------------------------------------------------------- replay


def replay_run(store: str | None, run: str, *, to: int | None, given: Given, as_json: bool) -> None:
    """Drive a run again by its recorded outcomes, up to transition `to`, and show each transition with its guards.

    Raises `RunError` for a transition that there is none of, `TrailDamaged` where the trail and the table part, and as `stored_run`.
    """
    with stored_run(store, run) as stored:
        entries = stored.story.entries
        try:
            setup, machine = _named(stored, given)
            again = replay(entries, setup, to=to, machine=machine or DEFAULT_MACHINE)
        except TrailDamaged as damage:
            if given.has_code or not needs_code(entries):
                raise
            raise TrailError(
                f"{damage}. Only its code can judge this run: give --agent MODULE:ATTR, or --tools"
            ) from damage
        story = story_of(entries if to is None else entries_to(entries, to))
        effects = {act.transition.seq: _effect_text(act.effect, act.calls()) for act in story.acts if act.transition}
        if as_json:
            put_json(_replayed(stored.run_id, again.turns, again.folded, effects))
            return
        for turned in again.turns:
            did = effects.get(turned.entry.seq, "")
            put(transition_line(record_of(turned.entry.body, stored.run_id)) + (f"  {did}" if did else ""))
        put(_where(again.folded))
        note(f"{len(again.turns)} transitions replayed, each as the table gives it; no model and no tool was called")


def _named(stored: Stored, given: Given) -> tuple[Setup | None, Machine | None]:
    """The agent's own code, and the machine of the table, that were named here. What only the trail names is not imported to read it."""
    if given.agent is not None:
        return code_of(stored, given)
    setup = setup_of(stored, given) if given.has_code else None
    return setup, machine_of(stored, given) if given.table else None


def _effect_text(effect: str, calls: Sequence[Called]) -> str:
    """What was done before a transition."""
    if effect == "call_tools":
        return "; ".join(call_text(call.tool, call.arguments) for call in calls)
    return effect.replace("_", " ")


def _where(folded: Folded) -> str:
    ctx = folded.ctx
    after = f"after {ctx.seq} transitions: {folded.state}, step {ctx.step}, {ctx.usage.total:,} tokens"
    if folded.ended and folded.answer is not None:
        return f"{after}, answer: {' '.join(redact_text(folded.answer).split())}"
    return after


def _replayed(run_id: str, turns: Sequence[Turned], folded: Folded, effects: dict[int, str]) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "state": folded.state.value,
        "ended": folded.ended,
        "step": folded.ctx.step,
        "tokens": folded.ctx.usage.total,
        "answer": redact(folded.answer),
        "transitions": [
            {
                **event_of(record_of(one.entry.body, run_id)),
                "entry": one.entry.seq,
                "effect": effects.get(one.entry.seq, ""),
            }
            for one in turns
        ],
    }


# ---------------------------------------------------------------- fork


def fork_run(store: str | None, run: str, *, at: int, new: str | None, going: Going, resume: bool) -> int:
    """Write a new run with the past of `run` up to transition `at`, and `resume` it. Returns the exit code.

    Raises `RunError` for a transition that there is none of or that ended the run, and for an id that is taken; and as `stored_run`.
    """
    with stored_run(store, run, going.given.agent) as stored:
        _check_free(stored.journal.store, new)
        made = fork(stored.journal, stored.run_id, at=at, new_run_id=new or str(uuid.uuid4()))
        entries = stored.story.entries
        kept = len(entries_to(entries, at))
        later = [call for call in stored.story.calls if call.began >= entries[kept].time] if kept < len(entries) else []
        options = stored.options
    repeated = {call.signature: call for call in later}
    note(f"forked run {stored.run_id} at transition {at}")
    if repeated:
        note("calls that the old run made after that; repeated here, they need a person's approval:", "yellow")
    for call in repeated.values():
        note(f"  {call_text(call.tool, call.arguments)}", "yellow")
    if resume:
        note(f"its id is {made}")
        return resume_run(store, made, (), going)
    if going.as_json:
        shown = [{"tool": call.tool, "arguments": redact(dict(call.arguments))} for call in repeated.values()]
        put_json({"run_id": made, "forked": stored.run_id, "at": at, "need_approval": shown})
    else:
        put_raw(made)
    note(f"go on with it: fsm-agent resume {shlex.quote(made)}{options}")
    return 0


def _check_free(trails: TrailStore, run_id: str | None) -> None:
    try:
        if run_id is not None:
            trails.info(run_id)
            raise RunError(f"there is a run {run_id!r} already; give the fork another --run-id")
    except UnknownRun:
        return


# ---------------------------------------------------------------- audit


def audit_runs(store: str | None, run: str | None, *, head: str, given: Given, as_json: bool) -> int:
    """Check one run, or all of them. Returns 0 when all is right, else 1.

    Raises `RunError` for a store or run that there is none of; whatever else is wrong is a finding.
    """
    with existing(store) as trails:
        try:
            if run is None:
                found = [_listed(trails, info, head, given) for info in trails.runs()]
            else:
                found = [_audited(trails, find_run(trails, run), head, given)]
        except TrailError as error:
            if as_json:
                put_json({"ok": False, "error": str(error), "runs": []})
            error_line(str(error))
            return 1
    right = all(one.ok for one in found)
    if as_json:
        documents = [_verdict(one) for one in found]
        put_json({"ok": right, "runs": documents} if run is None else documents[0])
        return 0 if right else 1
    told_once: set[str] = set()
    for one in found:
        put(_verdict_line(one))
        for finding in one.findings:
            put(f"  {'the trail' if finding.seq < 0 else f'entry {finding.seq}'}: {redact_text(finding.what)}")
        for said in one.notes:
            if said not in told_once:
                put(f"  not shown by this: {said}")
            told_once.add(said)
    if not found:
        note("no runs")
    elif run is None:
        note(f"{len(found)} run{'' if len(found) == 1 else 's'}, {sum(not one.ok for one in found)} not ok")
    return 0 if right else 1


def _listed(trails: TrailStore, info: RunInfo, head: str, given: Given) -> Audit:
    """The audit of a run as a list has it: one that is damaged may be known by its files alone."""
    try:
        return _audited(trails, info.run_id, head, given)
    except UnknownRun:
        wrong = (Finding(-1, info.reason),)
        return Audit(
            run_id=info.run_id, chain="", head="", entries=0, transitions=0, ended=False, findings=wrong, notes=()
        )  # fmt: skip


def _audited(trails: TrailStore, run_id: str, head: str, given: Given) -> Audit:
    journal = journal_of(trails)
    setup, machine = given_code(journal, run_id, given)
    return audit(journal, run_id, setup, machine=machine, head=head)


def given_code(journal: Journal, run_id: str, given: Given) -> tuple[Setup | None, Machine | None]:
    """The agent's own code and its machine, where the command line says where they are, and the trail can be read."""
    if not (given.has_code or given.table):
        return None, None
    try:
        entries = journal.entries(run_id)
    except TrailError:
        return None, None  # the audit says what is wrong
    stored = Stored(journal, run_id, story_of(entries), "")
    return _named(stored, given)


def _verdict_line(one: Audit) -> str:
    if one.ok:
        ended = "" if one.ended else ", not ended"
        checked = "only their seals checked" if one.seals_only else f"{one.transitions} transitions"
        return f"ok       {one.run_id}: {one.entries} entries, {checked}, {one.chain}{ended}, head {one.head}"
    number = len(one.findings)
    return f"NOT OK   {one.run_id}: {number} finding{'' if number == 1 else 's'} in {one.entries} entries, {one.chain}"


def _verdict(one: Audit) -> dict[str, Any]:
    def document(finding: Finding) -> dict[str, Any]:
        return {"entry": None if finding.seq < 0 else finding.seq, "what": redact_text(finding.what)}

    return {
        "run_id": one.run_id,
        "ok": one.ok,
        "seals_only": one.seals_only,
        "chain": one.chain,
        "head": one.head,
        "entries": one.entries,
        "transitions": one.transitions,
        "ended": one.ended,
        "findings": [document(finding) for finding in one.findings],
        "notes": list(one.notes),
    }


def checked_arguments(run: str | None, every: bool, head: str | None) -> None:
    """Raises `RunError` unless exactly one of a run and `--all` is given, and for a seal without the run that it is of."""
    if (run is None) is not every:
        raise RunError("name one run, or check them --all")
    if every and head is not None:
        raise RunError("--head is the seal of one run: name the run, and leave --all out")
