"""A trail read as far as it goes. The engine refuses a damaged trail; a report says what is wrong with it and shows the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsm_agent.errors import TrailDamaged, TrailError
from fsm_agent.trail.cipher import TrailLocked
from fsm_agent.trail.entries import Entry, parse
from fsm_agent.trail.forms import check_form
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.reader import loaded_entry

__all__ = ["Read", "read"]


@dataclass(slots=True)
class Read:
    """The entries that can be read, the header first (an empty one where there is none), and what could not be read of the others."""

    entries: list[Entry] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read(journal: Journal, run_id: str) -> Read:
    """What can be read of a run, whatever its seals say.

    Raises `UnknownRun`, and `TrailLocked` without the key of an encrypted trail.
    """
    found = Read()
    try:
        stored = journal.store.read(run_id)
    except TrailDamaged as damage:
        stored, found.unread = (), [str(damage)]
    for one in stored:
        try:
            entry = loaded_entry(parse(one, run_id), journal.store, journal.cipher)
            check_form(entry)
        except TrailLocked:
            raise
        except TrailError as error:
            found.unread.append(str(error))
        else:
            found.entries.append(entry)
    if not found.entries or found.entries[0].kind != "header":
        time = found.entries[0].time if found.entries else 0.0
        found.entries.insert(0, Entry(run_id=run_id, seq=0, kind="header", time=time, body={}))
    return found
