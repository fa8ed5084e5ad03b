"""Fork: a new run that begins with the recorded past of another one."""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.alphabet import TERMINAL, Event, State, Status
from fsm_agent.errors import RunError
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.header import guarded_calls
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.replay import entries_to
from fsm_agent.visible import checked_id

__all__ = ["done_after", "fork"]


def fork(journal: Journal, run_id: str, *, at: int, new_run_id: str) -> str:
    """Write a new run whose trail is that of `run_id` up to transition `at`; it is suspended, and `Agent.resume` goes on with it.

    What the old run did after that point may happen again, but never silently: in the new run, a call with the signature of one that was
    executed there, or begun, needs a person's approval. Where such a call had been let through already, nobody would be asked any more:
    that raises `RunError`, as a transition does that there is none of, or that ended the run, and a new id that is no text of one line.
    Returns the new run's id. Raises `UnknownRun` and `TrailDamaged` too.
    """
    checked_id("the id of the fork", new_run_id)
    entries = journal.entries(run_id)
    kept = entries_to(entries, at)
    if any(one.kind == "transition" and one.body["target"] in TERMINAL for one in kept):
        raise RunError(f"run {run_id!r} has ended at transition {at}: fork it before that")
    if _let_through(entries, len(kept)):
        free = next(seq for seq in range(at - 1, -1, -1) if not _let_through(entries, len(entries_to(entries, seq))))
        raise RunError(
            f"at transition {at} of run {run_id!r} a call had been let through that was made after it: a fork would make it again "
            f"without asking anybody. Fork the run at transition {free}"
        )
    origin = kept[0].body.get("forked") or {}
    # In a fork of a fork, what was guarded before this point stays so from where it was: the recorded past goes by that.
    since = {mark: min(seq, at) for mark, seq in guarded_calls(origin).items()}
    body = {
        **kept[0].body,
        "forked": {
            "run": run_id,
            "seq": at,
            "seed": origin.get("seed", run_id),
            "guarded": sorted({*done_after(entries, len(kept)), *since}),
            "since": {mark: seq for mark, seq in since.items() if seq < at},
        },
    }
    writer = journal.writer(new_run_id, thread_id=None)
    writer.add("header", {**body, "thread_id": None})
    for entry in kept[1:]:
        writer.add(entry.kind, entry.body)  # type: ignore[arg-type] # a kind that was read is one
    writer.flush(lease=0.0, status=Status.SUSPENDED).result()
    return new_run_id


def done_after(entries: Sequence[Entry], index: int) -> tuple[str, ...]:
    """The signatures of the calls that were executed, or begun, in `entries` from `index` on."""
    found = set()
    for entry in entries[index:]:
        if entry.kind == "started" and entry.body["effect"] == "call_tools":
            found |= {call["signature"] for call in entry.body["calls"]}
    return tuple(sorted(found))


def _let_through(entries: Sequence[Entry], index: int) -> bool:
    """True when the state before entry `index` leads on to calls that were made after it, with nothing and nobody looking at them again."""
    last, asked = entries[index - 1].body, set[str]()
    checked = False
    for entry in entries[index:]:
        body = entry.body
        if entry.kind == "transition":
            if body["source"] == State.PLAN:
                return False
            # What a person has edited is let through, and checked only for whether it fits.
            checked = checked or (body["source"] == State.VALIDATE and last.get("event") != Event.EDITED)
            last = body
        elif entry.kind == "started" and body["effect"] == "ask_human":
            asked |= {call["id"] for call in body["calls"]}
        elif entry.kind == "started" and body["effect"] == "call_tools":
            return not checked and not asked.issuperset(call["id"] for call in body["calls"])
    return False
