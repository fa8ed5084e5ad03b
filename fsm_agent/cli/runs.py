"""`fsm-agent runs` and `show`: which runs a store has, and what one of them did and waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from langchain_core.messages import AnyMessage, convert_to_openai_messages

from fsm_agent.cli.console import error_line, note, put, put_json
from fsm_agent.cli.stores import Stored, existing, holder_of, stored_run
from fsm_agent.cli.summary import asked_document
from fsm_agent.cli.toolbox import table_of
from fsm_agent.cli.trail_lines import asked_text, call_line, call_text, transition_line
from fsm_agent.errors import TrailError
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.observe import event_of
from fsm_agent.redact import redact, redact_text
from fsm_agent.states import ENDINGS, Ending
from fsm_agent.table import Table
from fsm_agent.trail.codec import record_of
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.fold import Folded, fold
from fsm_agent.trail.store import DAMAGED, RUNNING, RunInfo
from fsm_agent.trail.story import Called
from fsm_agent.trail.wording import human_actions, turn_messages, utc_text

__all__ = ["show_run", "show_runs"]

_HEAD: Final = ("run", "status", "updated", "entries", "held by")


def show_runs(store: str | None, *, status: str | None, as_json: bool) -> int:
    """The runs of a store, newest first. Returns 1 when one is damaged, whose status nobody knows, else 0.

    Raises `RunError` without a store, `TrailError` for one that is damaged as a whole.
    """
    with existing(store) as trails:
        every = trails.runs()
    found = [info for info in every if status in (None, info.status)]
    now, damaged = time.time(), [info for info in every if info.status == DAMAGED]
    for info in damaged:
        error_line(info.reason)
    if as_json:
        put_json([_info_document(info, now) for info in found])
        return 1 if damaged else 0
    rows = [
        (
            info.run_id,
            _status(info, now),
            utc_text(info.updated or None),
            str(info.entries),
            holder_of(info.owner, info.lease, now),
        )
        for info in found
    ]
    for line in _columns((_HEAD, *rows)) if rows else ():
        put(line)
    if not rows:
        note("no runs" if status is None else f"no runs that are {status}")
    return 1 if damaged else 0


def _status(info: RunInfo, now: float) -> str:
    """For a person: a run that should be running and that nobody drives was broken off."""
    if info.status == RUNNING and not holder_of(info.owner, info.lease, now):
        return "broken off"
    if info.status == DAMAGED:
        return info.status  # the reason is a sentence of its own
    return f"{info.status} ({info.reason})" if info.reason else info.status


def _columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _info_document(info: RunInfo, now: float) -> dict[str, Any]:
    return {
        "run_id": info.run_id,
        "status": info.status,
        "reason": info.reason or None,
        "thread_id": info.thread_id,
        "began": info.began,
        "updated": info.updated,
        "entries": info.entries,
        "head": info.head,
        "holder": holder_of(info.owner, info.lease, now) or None,
    }


def show_run(
    store: str | None, run: str, *, table: str | None, as_json: bool, messages: bool, unredacted: bool
) -> None:
    """One run: its task, its transitions and calls, and what it waits for. Raises as `stored_run` and `table_of`.

    `table` is the one that its answer and its messages are made by.
    """
    with stored_run(store, run) as stored:
        info = stored.journal.store.info(stored.run_id)
        folded, why = _folded(stored, table_of(table))
        if messages and folded is None:
            raise TrailError(f"the messages cannot be made again without the agent: {why}")
        said = turn_messages(folded) if messages and folded is not None else ()
        ending = ENDINGS[folded.state](folded.ctx) if folded is not None and folded.ended else None
        if as_json:
            put_json(_document(stored, info, said, ending, messages=messages, unredacted=unredacted))
            return
        _tell(stored, info, said, _came_to(info, ending, why, unredacted=unredacted), unredacted=unredacted)


def _came_to(info: RunInfo, ending: Ending | None, why: str, *, unredacted: bool) -> Sequence[str]:
    """How a run that has ended did so, and its answer."""
    if ending is None:
        return (
            [_hung("detail   ", f"not known without the agent: {_kept(why, unredacted)}")] if info.ended and why else []
        )
    told = [_hung("detail   ", _kept(ending.detail, unredacted))]
    return told if ending.answer is None else [*told, _hung("answer   ", _kept(ending.answer, unredacted))]


def _tell(
    stored: Stored, info: RunInfo, messages: Sequence[AnyMessage], came_to: Sequence[str], *, unredacted: bool
) -> None:
    story, now = stored.story, time.time()
    origin, forked = story.origin, story.header.get("forked")
    holder = holder_of(info.owner, info.lease, now)
    put(f"run      {stored.run_id}")
    put(f"status   {_status(info, now)}{f', held by {holder}' if holder else ''}{', paused' if story.paused else ''}")
    put(_hung("task     ", _kept(str(story.header["task"]), unredacted)))
    for line in came_to:
        put(line)
    put(f"when     {utc_text(info.began)} to {utc_text(info.updated)}")
    if origin.get("model"):
        url = origin.get("base_url")
        put(f"model    {origin['model']}{f' at {url}' if url else ''}")
    if forked:
        put(f"forked   from {forked['run']} at transition {forked['seq']}")
    put(f"trail    {len(story.entries)} entries, sealed with {story.header['chain']}")
    _heading("transitions")
    for line in _happened(story.entries):
        put(line)
    _heading("calls", story.calls)
    for call in story.calls:
        put(f"  {call_line(call, _unknown(call, story.unknown, holder), unredacted=unredacted)}")
    _heading("waits for a person", story.waiting)
    for one in story.waiting:
        put(f"  {asked_text(one, unredacted=unredacted)}")
    if messages:
        _heading("messages")
    for message in messages:
        put(_hung(f"  {message.type}: ", _message_text(message, unredacted=unredacted)))
    if not info.ended and not holder:
        _heading("to go on")
        for line in stored.ways_on():
            put(f"  {line}")


def _heading(text: str, shown: Sequence[object] = ("",)) -> None:
    if shown:
        put(f"\n{text}")


def _hung(label: str, text: str) -> str:
    """A text behind its label; its further lines stand under it, so that none of them can pass for a line of ours."""
    return label + text.replace("\n", f"\n{' ' * len(label)}")


def _happened(entries: Sequence[Entry]) -> Iterable[str]:
    done = human_actions(entries)
    for entry in entries:
        if entry.kind == "transition":
            yield transition_line(record_of(entry.body, entry.run_id), brief=True)
        elif entry.seq in done:
            yield f"     {' '.join(done[entry.seq].split())}, {utc_text(entry.time)}"


def _unknown(call: Called, open_: Sequence[Called], holder: str) -> str:
    if holder and call in open_:
        return "under way"
    return "in doubt: it was begun, and nothing says what came of it"


def _kept(text: str, unredacted: bool) -> str:
    return text if unredacted else redact_text(text)


def _message_text(message: AnyMessage, *, unredacted: bool) -> str:
    calls = [
        call_text(one["name"], one["args"], unredacted=unredacted) for one in getattr(message, "tool_calls", None) or ()
    ]
    said = [text for text in (_kept(str(message.text), unredacted), *calls) if text]
    return "; ".join(said)


def _folded(stored: Stored, table: Table | None) -> tuple[Folded | None, str]:
    """Where the entries of the run lead; or None, and why that cannot be told without its agent."""
    try:
        return fold(stored.story.entries, machine=DEFAULT_MACHINE if table is None else Machine(table)), ""
    except TrailError as error:
        return None, str(error)


def _call_document(call: Called) -> dict[str, Any]:
    result = call.result
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": dict(call.arguments),
        "ok": None if result is None else result["ok"],
        "result": None if result is None else result["text"],
        "error": None if result is None else result["error"] or None,
        "seconds": None if result is None else result["seconds"],
    }


def _document(
    stored: Stored,
    info: RunInfo,
    said: Sequence[AnyMessage],
    ending: Ending | None,
    *,
    messages: bool,
    unredacted: bool,
) -> dict[str, Any]:
    story, now = stored.story, time.time()
    held = holder_of(info.owner, info.lease, now)
    found: dict[str, Any] = {
        **_info_document(info, now),
        "task": story.header["task"],
        "detail": None if ending is None else ending.detail,
        "answer": None if ending is None else ending.answer,
        "chain": story.header["chain"],
        "origin": dict(story.origin),
        "forked": story.header.get("forked"),
        "paused": story.paused,
        "transitions": [event_of(record) for record in story.transitions],
        "calls": [_call_document(call) for call in story.calls],
        "waiting": [asked_document(one) for one in story.waiting],
        "in_doubt": [] if held and info.status == RUNNING else [call.id for call in story.unknown],
    }
    if messages:
        found["messages"] = convert_to_openai_messages(list(said))
    return found if unredacted else _redacted(found)


def _redacted(document: dict[str, Any]) -> dict[str, Any]:
    """Ids, digests and seals are kept as they are: they name things."""
    kept: dict[str, Any] = {name: document[name] for name in ("run_id", "head") if name in document}
    digests = [one["digest"] for one in document["waiting"]]
    found: dict[str, Any] = {**redact(document), **kept}
    for one, digest in zip(found["waiting"], digests, strict=True):
        one["digest"] = digest
    return found
