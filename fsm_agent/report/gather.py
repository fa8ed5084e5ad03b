"""From a stored run to all that is shown of it. Secrets are taken out here, before anything else is done with what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AnyMessage

from fsm_agent.context import Setup
from fsm_agent.diagrams.picture import meaning, pictured
from fsm_agent.diagrams.walk import walked
from fsm_agent.errors import PolicyError, TrailDamaged, TrailError
from fsm_agent.limits import Limits
from fsm_agent.machine import Machine
from fsm_agent.policy import ToolPolicy
from fsm_agent.records import Transitioned
from fsm_agent.redact import redact, redact_text
from fsm_agent.report.drawing import overlay
from fsm_agent.report.ending import ending_of
from fsm_agent.report.parts import Ending, Fact, Message, Refused, Report, Sum, Way
from fsm_agent.report.reading import read
from fsm_agent.report.steps import steps_of, turns_of, written_out
from fsm_agent.table import Row
from fsm_agent.trail.audit import Audit, audit
from fsm_agent.trail.changes import newest_limits
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.export import redacted
from fsm_agent.trail.fold import Folded, Turned, fold
from fsm_agent.trail.journal import Journal
from fsm_agent.trail.store import alive
from fsm_agent.trail.story import Story, story_of
from fsm_agent.trail.wording import turn_messages

__all__ = ["gather"]

_FLAGS: Final = ("requires_approval", "idempotent", "repeatable")


def gather(
    journal: Journal, run_id: str, setup: Setup | None, *, machine: Machine, head: str, unredacted: bool
) -> Report:
    """What there is to show. Raises what `report` raises."""
    verdict = audit(journal, run_id, setup, machine=machine, head=head)
    found = read(journal, run_id)
    folded, turned, why = _folded(found.entries, setup, machine)
    shown = found.entries if unredacted else [replace(one, body=redacted(one.body)) for one in found.entries]
    story, limits = story_of(shown), _limits(shown)
    running = _running(journal, run_id)
    records, header = story.transitions, shown[0].body
    last = records[-1] if records else None
    turns = turns_of(
        story,
        records,
        running=running,
        refused=_refused(turned, unredacted=unredacted),
        sound_to=min((one.seq for one in verdict.findings if one.seq >= 0), default=None),
        unredacted=unredacted,
    )
    picture, undrawn = overlay(machine.rows, records, limits)
    ended = folded if folded is not None and len(folded.transitions) == len(records) else None
    return Report(
        run_id=run_id,
        task=str(header.get("task", "")),
        language=str(header.get("language", "")),
        ending=_without_secrets(ending_of(story, last, ended, running=running), unredacted=unredacted),
        began=shown[0].time,
        updated=shown[-1].time,
        facts=tuple(_facts(story, last)),
        limits=_limit_facts(limits),
        tools=tuple(_tool_facts(header)),
        steps=steps_of(turns),
        ways=_ways(machine.rows, records),
        guards=_sums(machine.rows, records, limits),
        messages=() if folded is None else tuple(_message(one, unredacted=unredacted) for one in turn_messages(folded)),
        no_messages=redact_text(why),
        places=_places(machine.rows, limits),
        overlay=picture,
        undrawn=undrawn,
        verdict=_shown_verdict(verdict),
        unread=tuple(redact_text(one) for one in found.unread),
        unredacted=unredacted,
    )


def _folded(entries: Sequence[Entry], setup: Setup | None, machine: Machine) -> tuple[Folded | None, list[Turned], str]:
    """The run driven again as far as its entries allow, and why it was not further; "" when it was."""
    turned: list[Turned] = []
    try:
        return fold(entries, setup, machine=machine, told=turned.append), turned, ""
    except TrailDamaged as damage:
        sound = [one for one in entries if one.seq < damage.seq]
        why = str(damage)
    except TrailError as error:
        return None, [], str(error)
    turned.clear()
    try:
        return fold(sound, setup, machine=machine, told=turned.append), turned, why
    except TrailError:
        return None, [], why


def _refused(turned: Sequence[Turned], *, unredacted: bool) -> dict[int, tuple[Refused, ...]]:
    """The calls that VALIDATE refused, by the number of the transition that followed."""
    found = {}
    for one in turned:
        calls = [call for call in one.fired.ctx.calls if call.refusal] if one.fired.row.source == "VALIDATE" else []
        if calls:
            found[one.fired.ctx.seq] = tuple(
                Refused(
                    call.name,
                    written_out(dict(call.arguments) if unredacted else redact(dict(call.arguments))),
                    call.refusal if unredacted else redact_text(call.refusal),
                )
                for call in calls
            )
    return found


def _running(journal: Journal, run_id: str) -> bool:
    try:
        info = journal.store.info(run_id)
    except TrailError:
        return False
    return info.lease > journal.clock.time() and alive(info.owner)


def _without_secrets(ending: Ending, *, unredacted: bool) -> Ending:
    if unredacted:
        return ending
    answer = None if ending.answer is None else redact_text(ending.answer)
    return replace(ending, detail=redact_text(ending.detail), answer=answer)


def _shown_verdict(verdict: Audit) -> Audit:
    return replace(verdict, findings=tuple(replace(one, what=redact_text(one.what)) for one in verdict.findings))


# ---------------------------------------------------------------- how the run was set up


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _limits(entries: Sequence[Entry]) -> Limits | None:
    try:
        return newest_limits(entries)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _facts(story: Story, last: Transitioned | None) -> list[Fact]:
    header = story.header
    setup, forked = _mapping(header.get("setup")), _mapping(header.get("forked"))
    found = [
        ("model", story.origin.get("model")),
        ("at", story.origin.get("base_url")),
        ("conversation", header.get("thread_id")),
        ("forked from", f"{forked.get('run')} at transition {forked.get('seq')}" if forked else None),
        ("dialect", _named(setup.get("dialect"))),
        ("memory", _named(setup.get("memory"))),
        ("policy", "; ".join(_rules(setup.get("policy")))),
        ("temperature", _named(setup.get("temperature"))),
        ("reflection", _named(setup.get("reflect"))),
        ("ladder", ", ".join(map(str, setup.get("ladder") or ()))),
        ("language", header.get("language")),
        ("versions", ", ".join(f"{name} {version}" for name, version in _mapping(header.get("versions")).items())),
    ]
    counts = [] if last is None else [("model calls", last.model_calls), ("tool calls", last.tool_calls)]
    return [Fact(name, str(value)) for name, value in (*counts, *found) if value not in (None, "")]


def _rules(policy: object) -> list[str]:
    """The rules of a tool policy in words; none where what is kept is no policy, which the audit tells."""
    try:
        return [] if policy is None else str(ToolPolicy.of(policy)).splitlines()
    except PolicyError:
        return []


def _named(described: object) -> str:
    """A part of the definition as its description names it, with what it was made with; a plain value as it is."""
    if isinstance(described, int | float):
        return str(described)
    data = _mapping(described)
    fields = ", ".join(
        f"{name}={_named(value) if isinstance(value, Mapping) else value}"
        for name, value in _mapping(data.get("fields")).items()
    )
    name = str(data.get("class") or data.get("custom") or "")
    return f"{name}({fields})" if name and fields else name


def _limit_facts(limits: Limits | None) -> tuple[Fact, ...]:
    if limits is None:
        return ()
    usual = Limits()
    return tuple(
        Fact(name, "none" if value is None else str(value), usual=value == getattr(usual, name))
        for name, value in ((name, getattr(limits, name)) for name in Limits.model_fields)
    )


def _tool_facts(header: Mapping[str, Any]) -> list[Fact]:
    found = []
    tools = _mapping(header.get("setup")).get("tools")
    for one in tools if isinstance(tools, list) else []:
        tool = _mapping(one)
        marks = [name.replace("_", " ") for name in _FLAGS if tool.get(name)]
        if tool.get("fallback"):
            marks.append(f"fallback: {tool['fallback']}")
        told = str(tool.get("description", ""))
        found.append(Fact(str(tool.get("name", "")), f"{told} ({', '.join(marks)})" if marks else told))
    return found


# ---------------------------------------------------------------- over the whole run


def _ways(rows: Sequence[Row], records: Sequence[Transitioned]) -> tuple[Way, ...]:
    if not records:
        return ()
    walk = walked(rows, records)
    whole = (*rows, *walk.foreign)
    taken = sorted(walk.taken.items(), key=lambda one: one[1].seqs[0])
    return tuple(
        Way(
            str(whole[index].source),
            str(whole[index].event),
            str(whole[index].target),
            tuple(guard.name for guard in whole[index].guards),
            passage.count,
            passage.elapsed_ms,
        )
        for index, passage in taken
    )


def _sums(rows: Sequence[Row], records: Sequence[Transitioned], limits: Limits | None) -> tuple[Sum, ...]:
    sentences = {guard.name: meaning(guard, limits) for row in rows for guard in row.guards}
    asked: dict[str, list[bool]] = {}
    for one in records:
        for guard in one.guards:
            asked.setdefault(guard.guard, []).append(bool(guard.result))
    return tuple(Sum(name, sentences.get(name, ""), len(said), sum(said)) for name, said in asked.items())


def _places(rows: Sequence[Row], limits: Limits | None) -> dict[str, str]:
    return {box.name: "main" if box.main else str(box.place) for box in pictured(rows, limits).boxes}


def _message(message: AnyMessage, *, unredacted: bool) -> Message:
    calls = [(str(one["name"]), dict(one["args"])) for one in getattr(message, "tool_calls", None) or ()]
    text = str(message.text)
    return Message(
        message.type,
        text if unredacted else redact_text(text),
        tuple((name, written_out(args if unredacted else redact(args))) for name, args in calls),
        str(message.name or "") if message.type == "tool" else "",
    )
