"""Is this trail what was written, and is what it says what the table gives? Every finding names its entry.

What is checked: the seals (no entry changed, moved, left out or put in), the numbers, that each transition starts where the one before
ended and is the one that the table gives for the recorded guards, that the recorded outcomes lead there by the states themselves, and the
fingerprint. What a bare SHA-256 chain cannot show: a trail rewritten as a whole, and entries cut off at the end of a run that had not
ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsm_agent.alphabet import INITIAL, TERMINAL, State
from fsm_agent.context import Setup
from fsm_agent.errors import TrailDamaged, TrailError
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.states import ENDINGS
from fsm_agent.trail.cipher import TrailLocked
from fsm_agent.trail.entries import Entry, Stored
from fsm_agent.trail.fold import Folded, fold
from fsm_agent.trail.header import check_schema, check_table, fingerprint, recorded_setup
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.reader import checked_entries, loaded_entry
from fsm_agent.trail.store import RunInfo
from fsm_agent.trail.toolset import needs_code, newest_tools, other_tools

__all__ = ["Audit", "Finding", "audit", "wrong_rows"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at entry `seq` (-1: the trail as a whole)."""

    seq: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        run_id: The run.
        chain: The name of the chain that it was checked by; for a keyed one with a fingerprint of the key.
        head: The seal of the newest entry, "" when none could be read.
        entries: How many entries the store has.
        transitions: How many of those that could be read are transitions.
        ended: True when the run has ended, as far as its entries could be read.
        findings: What is wrong.
        notes: What could not be shown, in sentences for a person.
        seals_only: True when the trail is encrypted and no key was given, so that nothing but the seals was checked.
    """

    run_id: str
    chain: str
    head: str
    entries: int
    transitions: int
    ended: bool
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    seals_only: bool = False

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.findings


def audit(
    journal: Journal, run_id: str, setup: Setup | None = None, *, machine: Machine | None = None, head: str = ""
) -> Audit:
    """Check a stored run. `setup` is that of the agent that wrote it; `head` a seal that was kept elsewhere.

    `machine` is by default the one of the journal.

    Raises `UnknownRun`. Everything else that is wrong is a finding.
    """
    machine = machine or journal.machine
    stored: Sequence[Stored] = ()
    entries: tuple[Entry, ...] = ()
    findings: list[Finding] = []
    notes: list[str] = []
    seals_only = False
    try:
        stored = journal.store.read(run_id)
        entries = checked_entries(stored, run_id, journal.chain)
        check_schema(entries[0])
        entries = tuple(loaded_entry(entry, journal.store, journal.cipher) for entry in entries)
        check_table(entries[0], machine)
        findings += wrong_rows(entries, machine)
        if not findings:
            findings += _fingerprint(entries, setup, machine)
            folded = _refold(entries, setup, machine, findings, notes)
            findings += _noted(journal.store.info(run_id), stored, entries, folded)
    except TrailDamaged as damage:
        findings.append(Finding(damage.seq, str(damage)))
    except TrailLocked as locked:
        said = f"The seals hold, but what they cover could not be read, so the transitions were not checked: {locked}"
        if journal.cipher is None:  # the seals may be checked by whoever may not read
            notes.append(said)
            seals_only = True
        else:
            findings.append(Finding(-1, said))
    except TrailError as error:
        findings.append(Finding(-1, str(error)))
    newest = stored[-1].seal if stored else ""
    if head and head not in {one.seal for one in stored}:
        findings.append(
            Finding(-1, "the seal that was kept elsewhere is not among those of the trail: it was cut off or rewritten")
        )
    ended = bool(entries) and _ended(entries)
    notes += _not_shown(journal.chain.name, ended=ended, head=head)
    return Audit(
        run_id=run_id,
        chain=journal.chain.name,
        head=newest,
        entries=len(stored),
        transitions=sum(one.kind == "transition" for one in entries),
        ended=ended,
        findings=tuple(findings),
        notes=tuple(notes),
        seals_only=seals_only,
    )


def _not_shown(chain: str, *, ended: bool, head: str) -> list[str]:
    notes = []
    if chain == "sha256":
        notes.append(
            "The chain has no key: it shows accidents and partial edits, not that somebody rewrote the whole trail. "
            "Set FSM_AGENT_TRAIL_HMAC_KEY or FSM_AGENT_TRAIL_ED25519_KEY before the runs that need more."
        )
    if not ended and not head:
        notes.append(
            "The run has not ended here: that its newest entries were cut off shows only against a seal kept elsewhere (--head)."
        )
    return notes


def wrong_rows(entries: Sequence[Entry], machine: Machine = DEFAULT_MACHINE) -> list[Finding]:
    """The transitions that the table does not give for the guards recorded with them, and those that do not follow on the one before."""
    found: list[Finding] = []
    state, number = str(INITIAL), 0
    for entry in entries:
        if entry.kind != "transition":
            continue
        body = entry.body
        number += 1
        if body.get("seq") != number or body.get("source") != state:
            said = (
                f"transition {body.get('seq')} out of {body.get('source')} follows transition {number - 1} into {state}"
            )
            return [*found, Finding(entry.seq, said)]
        try:
            wrong = _wrong_row(body, machine)
        except (KeyError, TypeError, ValueError) as error:
            wrong = f"is no transition: {type(error).__name__}: {error}"
        if wrong:
            found.append(Finding(entry.seq, wrong))
        state = str(body.get("target"))
    return found


def _wrong_row(body: Mapping[str, Any], machine: Machine) -> str:
    """Why the table does not give this transition for the recorded guards; "" when it does."""
    recorded = {name: result for name, result, _ in body["guards"]}
    asked: list[str] = []
    for row in machine.rows:
        if (row.source, row.event) != (body["source"], body["event"]):
            continue
        held = True
        for guard in row.guards:
            if guard.name not in asked:
                asked.append(guard.name)
            if guard.name not in recorded:
                return f"the guard {guard.name} of {row} was not asked"
            if not recorded[guard.name]:
                held = False
                break
        if held:
            if row.target != body["target"]:
                return f"with these guards the table gives {row}, the trail says {body['target']}"
            # Where a row to ABORT has no reason of its own, the run ends for one that an earlier row gave.
            inherited = row.reason is None and row.target is State.ABORT
            if not inherited and body["reason"] != row.reason:
                return f"with these guards the table gives the reason {row.reason}, the trail says {body['reason']}"
            return "" if asked == list(recorded) else "guards are recorded that the table does not ask here"
    return f"the table has no row for {body['event']} in {body['source']} with these guards"


def _ended(entries: Sequence[Entry]) -> bool:
    return entries[-1].kind == "transition" and str(entries[-1].body.get("target")) in TERMINAL


def _noted(info: RunInfo, stored: Sequence[Stored], entries: Sequence[Entry], folded: Folded | None) -> list[Finding]:
    """What the store notes beside the trail, and no seal covers: how the run has ended, if it has, and its conversation."""
    if (info.entries, info.head) != (len(stored), stored[-1].seal):  # it has gone on since it was read
        return []
    ended = _ended(entries)
    thread = entries[0].body.get("thread_id")
    found = []
    if info.ended != ended:
        said = "has ended" if ended else "has not ended"
        found.append(Finding(-1, f"the store notes the run as {info.status}, and by its trail it {said}"))
    elif folded is not None and folded.ended:
        ending = ENDINGS[folded.state](folded.ctx)
        if (info.status, info.reason) != (ending.status, ending.reason):
            said = f"{info.status} ({info.reason}), and by its trail it is {ending.status} ({ending.reason})"
            found.append(Finding(-1, f"the store notes the run as {said}"))
    if info.thread_id != thread:
        found.append(Finding(-1, f"the store notes the conversation {info.thread_id!r}, and the trail says {thread!r}"))
    return found


def _fingerprint(entries: Sequence[Entry], setup: Setup | None, machine: Machine) -> list[Finding]:
    header = entries[0]
    try:
        recorded = header.body["fingerprint"]
        now = fingerprint(recorded_setup(header, setup), machine)
        differing = [part for part in ("table", "dialect", "limits", "memory") if recorded[part] != now[part]]
        others = [] if setup is None else other_tools(newest_tools(entries), setup.tools)
        began = str(header.body.get("versions", {}).get("fsm-agent", "unknown"))
        if others or (setup is not None and recorded["tools"] != now["tools"]):
            differing.append("tools")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [
            Finding(header.seq, f"the header lacks something, or holds what it cannot: {type(error).__name__}: {error}")
        ]
    several = {"limits": "limits here are others than those", "tools": "tools here are others than those"}
    which = {"table": f", which began with fsm-agent {began}", "tools": f": {', '.join(others)}" if others else ""}
    return [
        Finding(
            header.seq, f"the {several.get(part, f'{part} here is another than that')} of the run{which.get(part, '')}"
        )
        for part in differing
    ]


def _refold(
    entries: Sequence[Entry], setup: Setup | None, machine: Machine, findings: list[Finding], notes: list[str]
) -> Folded | None:
    """The run driven again; None when it cannot be, and `findings` or `notes` say why."""
    try:
        return fold(entries, setup, machine=machine)
    except TrailDamaged as damage:
        if setup is None and needs_code(entries):
            notes.append(
                f"Entry {damage.seq} does not follow from those before without the agent's own code (a check of arguments, an approval "
                "by predicate, another dialect): give the agent to check it."
            )
        else:
            findings.append(Finding(damage.seq, str(damage)))
    except TrailError as error:
        notes.append(f"The states could not be driven again: {error}")
    return None
