"""The fold: what a trail holds leads to the very context that the run had, at every prefix; and what does not follow is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, tool
from fsm_agent.context import Setup
from fsm_agent.durable import begin, conclude
from fsm_agent.effects import Broke, Cancelled, Doubted, Effect, Outcome, RawCall, Returned
from fsm_agent.errors import TrailDamaged, TrailVersion
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import Entry, MemoryTrail, Sha256Chain
from fsm_agent.trail.audit import audit, wrong_rows
from fsm_agent.trail.entries import Kind, canonical_json
from fsm_agent.trail.fold import fold
from fsm_agent.trail.journal import Journal
from tests.core.adversary import Play, drive_with, new_play, setups
from tests.core.builders import frozen

SLOW = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def perform(play: Play, effect: Effect, outcome: Outcome) -> None:
    """Write down what a runner writes down around an effect."""
    begin(play.run, effect, asks_here=True, tools=play.run.ctx.setup.tools).result()
    keep = play.run.job.keep
    if isinstance(outcome, Returned | Doubted | Cancelled) and keep is not None:
        for result in outcome.results:
            keep(result)


def played(draw: Callable[[st.SearchStrategy[Any]], Any], setup: Setup) -> tuple[Play, Journal, list[Entry]]:
    """A run driven to its end with outcomes that `draw` chooses, where its trail was written, and the entries as they are read.

    The contexts begin with that of the run before its first transition.
    """
    play = new_play(setup)
    journal = Journal(store=MemoryTrail(), clock=play.clock, chain=Sha256Chain())
    play.run.trail = journal.begin(play.run.ctx)
    play.contexts.append(play.run.ctx)
    drive_with(draw, play, perform)
    conclude(play.run).result()
    return play, journal, list(journal.entries(play.run.ctx.run_id))


@SLOW
@given(st.data(), setups)
def test_the_fold_gives_the_context_of_the_run_at_every_prefix(data: st.DataObject, setup: Setup) -> None:
    """For any limits, tools, dialect, memory and behaviour, and wherever the trail ends, the context is the run's own."""
    play, _, entries = played(data.draw, setup)
    whole = fold(entries, replace(setup, memo={}))
    assert (whole.state, whole.ctx) == (play.run.state, play.run.ctx)
    assert frozen(whole.ctx) == frozen(play.run.ctx)
    assert [one.seq for one in whole.transitions] == [one.seq for one in play.run.transitions]
    assert whole.transitions == play.run.transitions
    cut = data.draw(st.integers(1, len(entries)))
    part = fold(entries[:cut], replace(setup, memo={}))
    assert part.ctx == play.contexts[len(part.transitions)]


@SLOW
@given(st.data(), setups)
def test_an_honest_trail_passes_its_audit(data: st.DataObject, setup: Setup) -> None:
    """Whatever a run does, its own trail is found to be right, with and without a kept seal."""
    play, journal, _ = played(data.draw, setup)
    assert play.run.trail is not None
    found = audit(journal, play.run.ctx.run_id, replace(setup, memo={}), head=play.run.trail.head)
    assert found.findings == ()
    assert found.transitions == len(play.run.transitions)
    assert found.ended


@SLOW
@given(st.data(), setups)
def test_an_entry_that_does_not_follow_is_found_though_it_is_sealed(data: st.DataObject, setup: Setup) -> None:
    """A trail rewritten as a whole has right seals; what its transitions say is still what the table gives, or it is found."""
    _, _, entries = played(data.draw, setup)
    places = [index for index, one in enumerate(entries) if one.kind == "transition"]
    index = data.draw(st.sampled_from(places))
    field, value = data.draw(
        st.sampled_from(
            [("target", "FINISH"), ("event", "answered"), ("source", "REVIEW"), ("step", 77), ("tokens", 987_654)]
        )
    )
    if entries[index].body[field] == value:
        return
    entries[index] = replace(entries[index], body={**entries[index].body, field: value})
    with pytest.raises(TrailDamaged) as raised:
        fold(entries, replace(setup, memo={}))
    assert raised.value.seq == entries[index].seq


@SLOW
@given(st.data(), setups)
def test_a_guard_that_is_said_to_have_held_is_found(data: st.DataObject, setup: Setup) -> None:
    """Flipping what a recorded guard said is found by the table alone, or by what the states give."""
    _, _, entries = played(data.draw, setup)
    places = [index for index, one in enumerate(entries) if one.kind == "transition" and one.body["guards"]]
    if not places:
        return
    index = data.draw(st.sampled_from(places))
    guards = json.loads(json.dumps(entries[index].body["guards"]))
    which = data.draw(st.integers(0, len(guards) - 1))
    guards[which][1] = not guards[which][1]
    entries[index] = replace(entries[index], body={**entries[index].body, "guards": guards})
    with pytest.raises(TrailDamaged):
        fold(entries, replace(setup, memo={}))
    assert [one.seq for one in wrong_rows(entries)] == [entries[index].seq]


@SLOW
@given(st.data(), setups)
def test_another_reason_is_found(data: st.DataObject, setup: Setup) -> None:
    """The reason of a transition is that of its row: one that was changed afterwards is found by the table alone."""
    _, _, entries = played(data.draw, setup)
    reasons = sorted({row.reason for row in DEFAULT_MACHINE.rows if row.reason is not None})
    given = [i for i, one in enumerate(entries) if one.kind == "transition" and one.body["target"] != "ABORT"]
    if not given:
        return
    index = data.draw(st.sampled_from(given))
    told = data.draw(st.sampled_from([one for one in (None, *reasons) if one != entries[index].body["reason"]]))
    entries[index] = replace(entries[index], body={**entries[index].body, "reason": told})
    assert [one.seq for one in wrong_rows(entries)] == [entries[index].seq]


@SLOW
@given(st.data(), setups)
def test_an_entry_left_out_or_doubled_is_found(data: st.DataObject, setup: Setup) -> None:
    """No entry that says what happened can be taken out, or put in twice, without the next ones not following."""
    play, _, entries = played(data.draw, setup)
    places = [index for index, one in enumerate(entries[:-1]) if one.kind in ("outcome", "transition")]
    index = data.draw(st.sampled_from(places))
    doubled = data.draw(st.booleans())
    if doubled and play.asked and isinstance(play.asked[-1][1], Cancelled | Broke):
        return
    changed = entries[:index] + [entries[index]] * (2 if doubled else 0) + entries[index + 1 :]
    with pytest.raises(TrailDamaged):
        fold(changed, replace(setup, memo={}))


def two_calls() -> tuple[Setup, dict[str, list[Entry]]]:
    """A run of two calls at once: who ran it, and the entries of it by their kind; the second that was begun is the calls."""

    @tool
    def look(where: str) -> str:
        """Look."""
        return f"seen {where}"

    model = ScriptedModel([reply("", call("look", where="here"), call("look", where="there")), "done"])
    agent = Agent(model, [look], store=MemoryTrail(), logger=silent_logger())
    entries = agent.journal.entries(agent.invoke("look").run_id)
    return agent.setup, {kind: [one for one in entries if one.kind == kind] for kind in get_args(Kind)}


def the_whole(of: dict[str, list[Entry]]) -> list[Entry]:
    """The entries in their order."""
    return sorted([one for each in of.values() for one in each], key=lambda one: one.seq)


def before(of: dict[str, list[Entry]], place: Entry, one: Entry) -> list[Entry]:
    """The entries with `one` before `place`."""
    entries = the_whole(of)
    index = entries.index(place)
    return [*entries[:index], one, *entries[index:]]


def with_body(of: dict[str, list[Entry]], place: Entry, **body: Any) -> list[Entry]:
    """The entries with something else in the body of one."""
    return [replace(one, body={**one.body, **body}) if one is place else one for one in the_whole(of)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda of: before(of, of["transition"][0], of["header"][0]), "a second header"),
        (lambda of: before(of, of["transition"][0], of["started"][0]), "an effect before the transition"),
        (lambda of: before(of, of["transition"][0], of["result"][0]), "while no calls are under way"),
        (lambda of: before(of, of["outcome"][0], of["result"][0]), "while no calls are under way"),
        (lambda of: with_body(of, of["result"][0], call_id="other"), "a call that was not started: other"),
        (lambda of: with_body(of, of["started"][1], calls=of["started"][1].body["calls"][:1]), "calls differ"),
        (lambda of: before(of, of["transition"][1], of["outcome"][0]), "an outcome of nothing"),
        (lambda of: before(of, of["started"][0], of["transition"][1]), "waits for an outcome"),
    ],
    ids=["header", "effect", "result", "result of the model", "call", "fewer calls", "outcome", "transition"],
)
def test_what_was_never_asked_for_is_found_though_it_is_sealed(
    changed: Callable[[dict[str, list[Entry]]], list[Entry]], said: str
) -> None:
    """Whoever writes a trail anew cannot tell of an effect, a result or an outcome that the run did not wait for."""
    setup, of = two_calls()
    assert fold(the_whole(of), setup).ended
    with pytest.raises(TrailDamaged, match=said):
        fold(changed(of), setup)


def test_another_schema_is_refused_by_name() -> None:
    """A trail of a future version is not half-read."""
    header = Entry(run_id="r", seq=0, kind="header", time=0.0, body={"schema": 99})
    with pytest.raises(TrailVersion, match="99"):
        fold([header])


def test_arguments_in_any_order_are_told_and_folded_in_one() -> None:
    """A model may name arguments in any order, at any depth: what it reads of its call afterwards is what the trail gives."""
    asked = {"b": {"y": 1, "x": [{"n": 2, "m": 3}]}, "a": 1}
    given = RawCall("c", "add", asked).arguments
    assert canonical_json(given) == canonical_json(asked)
    assert str(given) == "{'a': 1, 'b': {'x': [{'m': 3, 'n': 2}], 'y': 1}}"


def test_the_time_of_a_clock_near_zero_is_read_again() -> None:
    """An entry's time is written as the rest of the entry is, so that a very small one does not count as damage."""
    journal = Journal(store=MemoryTrail(), clock=FakeClock(epoch=1e-05), chain=Sha256Chain())
    writer = journal.writer("r", thread_id=None)
    writer.add("header", {})
    writer.flush(lease=0.0).result()
    assert [one.time for one in journal.entries("r")] == [1e-05]
