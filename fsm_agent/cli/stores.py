"""The store that a command reads or writes, and the run in it that somebody means."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from fsm_agent.clock import SystemClock
from fsm_agent.errors import DefinitionError, RunError, TrailDamaged, UnknownRun
from fsm_agent.trail import JsonLinesTrail, SQLiteTrail, TrailStore, chain_from_env
from fsm_agent.trail.cipher import cipher_from_env
from fsm_agent.trail.forms import check_form
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.store import alive
from fsm_agent.trail.story import Story, story_of

__all__ = [
    "MADE_BY",
    "STORE_VARIABLE",
    "Stored",
    "existing",
    "find_run",
    "holder_of",
    "journal_of",
    "new_or_existing",
    "option_of",
    "read_run",
    "short_id",
    "stored_run",
    "writing",
]

STORE_VARIABLE: Final = "FSM_AGENT_STORE"
MADE_BY: Final = "fsm-agent run"
_SHORT: Final = 8
_LISTED: Final = 5
_POSTGRES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored run: where it is, its whole id, and what its entries tell."""

    journal: Journal
    run_id: str
    story: Story
    option: str
    """What to add to a command that is about this run, a blank in front; "" when the environment says it."""
    agent: str = ""
    """The agent that was named for it, as MODULE:ATTR; "" when none was."""

    @property
    def made_here(self) -> bool:
        """True for a run that `fsm-agent run` began; for any other a command has to be told the agent."""
        return self.story.origin.get("made_by") == MADE_BY

    def command(self, words: str, rest: str = "") -> str:
        """A command about this run, for a person to copy."""
        return f"fsm-agent {words} {short_id(self.run_id)}{rest}{self.options}"

    @property
    def options(self) -> str:
        """What such a command has to be told: the agent, where none of `fsm-agent run` began the run, and the store."""
        if self.agent:
            return f" --agent {shlex.quote(self.agent)}{self.option}"
        return self.option if self.made_here else f" --agent MODULE:ATTR{self.option}"

    def ways_on(self) -> tuple[str, ...]:
        """The commands that go on with the run, which has not ended."""
        waiting = self.story.waiting
        if not waiting:
            return (self.command("resume"), self.command("cancel"))
        which = "" if len(waiting) == 1 else f" {shlex.quote(waiting[0].call_id)}"
        return (
            self.command("approve", which),
            self.command("deny", f"{which} --reason TEXT"),
            self.command("edit", f"{which} --args JSON"),
            self.command("answer", f"{which} TEXT"),
        )


def _named(store: str | None) -> str:
    """What names the store; "" when nothing does. Raises `DefinitionError` for an empty option and for a server of another kind."""
    if store is not None and not store.strip():
        raise DefinitionError("--store names nothing: give a file, a directory or postgresql://..., or leave it out")
    name = store or os.environ.get(STORE_VARIABLE, "").strip()
    if "://" in name and not name.startswith(_POSTGRES):
        raise DefinitionError(
            f"{name.partition('://')[0]}:// is no store: give a file, a directory or postgresql://..."
        )
    return name


def new_or_existing(store: str | None) -> TrailStore | None:
    """The store to write runs to: what the option says, else FSM_AGENT_STORE; None when neither does.

    `postgresql://...` is a server, a directory (or a name that ends in a slash) is JSON Lines, anything else an SQLite file.
    Raises `DefinitionError` for what cannot be one.
    """
    name = _named(store)
    if not name:
        return None
    if name.startswith(_POSTGRES):
        from fsm_agent.trail.postgres_store import PostgresTrail  # noqa: PLC0415 - an extra

        return PostgresTrail(name)
    path = Path(name)
    if path.is_dir() or name.endswith(("/", os.sep)):
        return JsonLinesTrail(path)
    if path.suffix == ".jsonl":
        raise DefinitionError(f"--store {name!r}: JSON Lines are kept in a directory, a file for each run; name that")
    return SQLiteTrail(path)


@contextlib.contextmanager
def writing(store: str | None) -> Iterator[TrailStore | None]:
    """`new_or_existing`, closed afterwards."""
    trails = new_or_existing(store)
    try:
        yield trails
    finally:
        if trails is not None:
            trails.close()


@contextlib.contextmanager
def existing(store: str | None) -> Iterator[TrailStore]:
    """The store to read, closed afterwards. Raises `RunError` when none is named, or when there is none of that name."""
    name = _named(store)
    if not name:
        raise RunError(f"no store is given; name what the runs were written to: --store FILE, or {STORE_VARIABLE}")
    if not name.startswith(_POSTGRES) and not Path(name).exists():
        raise RunError(f"there is no store {name!r}; name what the runs were written to: --store FILE")
    trails = new_or_existing(name)
    assert trails is not None, "it has a name"
    try:
        yield trails
    finally:
        trails.close()


def option_of(store: str | None) -> str:
    """` --store NAME` for a command to copy, without a password; "" when the environment names the store."""
    if not store or store == os.environ.get(STORE_VARIABLE, "").strip():
        return ""
    if store.startswith(_POSTGRES):
        parts = urlsplit(store)
        user, at, host = parts.netloc.rpartition("@")
        kept = [pair for pair in parts.query.split("&") if "password" not in pair.partition("=")[0].lower()]
        store = urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query="&".join(kept)))
    return f" --store {shlex.quote(store)}"


def short_id(run_id: str) -> str:
    """The beginning of a run id that is random: enough to name it in a command. Another is given whole, quoted for a shell."""
    head, dash, _ = run_id.partition("-")
    return shlex.quote(head if dash and len(head) == _SHORT and len(run_id) == 36 else run_id)  # noqa: PLR2004 - a UUID as text


def find_run(trails: TrailStore, given: str) -> str:
    """The id of the run that `given` names, whole or by its beginning.

    Raises `UnknownRun` for none, `RunError` for several.
    """
    try:
        return trails.info(given).run_id
    except TrailDamaged:
        return given  # it is there; whoever reads it is told what is wrong
    except UnknownRun:
        found = [one.run_id for one in trails.runs() if one.run_id.startswith(given)] if given else []
    if not found:
        raise UnknownRun(f"there is no run {given!r} in the store; fsm-agent runs lists them")
    if len(found) > 1:
        some = ", ".join(found[:_LISTED]) + (", ..." if len(found) > _LISTED else "")
        raise RunError(f"{len(found)} runs begin with {given!r}: {some}; give more of the id")
    return found[0]


def journal_of(trails: TrailStore) -> Journal:
    """The store with the keys of the environment. Raises `DefinitionError` for what is no key."""
    return Journal(store=trails, clock=SystemClock(), chain=chain_from_env(), cipher=cipher_from_env())


@contextlib.contextmanager
def stored_run(store: str | None, given: str, agent: str | None = None) -> Iterator[Stored]:
    """The run that `given` names in the store, read and checked; the store is closed afterwards. `agent` is the one named for it.

    Raises `RunError` without a store, `UnknownRun`, and `TrailError` for a trail that is damaged or locked.
    """
    with existing(store) as trails:
        yield replace(read_run(trails, store, find_run(trails, given)), agent=agent or "")


def read_run(trails: TrailStore, store: str | None, run_id: str) -> Stored:
    """The run of that id in `trails`, which `store` named, read and checked. Raises `UnknownRun` and `TrailError`."""
    journal = journal_of(trails)
    entries = journal.entries(run_id)
    for entry in entries:
        check_form(entry)
    return Stored(journal, run_id, story_of(entries), option_of(store))


def holder_of(owner: str, lease: float, now: float) -> str:
    """Who holds a run, as host:process; "" when nobody does."""
    if not owner or lease <= now or not alive(owner):
        return ""
    return owner.rpartition(":")[0]
