"""Batches that a crash left in doubt: scripts that bring them about, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage

from fsm_agent.alphabet import Event, State
from fsm_agent.context import Context
from fsm_agent.effects import AskHuman, CallTools, Cancelled, RawCall
from fsm_agent.history import flatten
from fsm_agent.jobs import Job
from fsm_agent.language import EN
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.runs import Run
from fsm_agent.testing import FakeClock
from tests.core.builders import Line, Moment, asks, effects, make_setup, play, raw
from tests.core.validity import wrong_history

TELL = {"in_doubt": "tell"}
LOOK = asks(raw("look", q="x"))
THREE = asks(RawCall("a", "look", {"q": "x"}), RawCall("b", "look", {"q": "y"}), RawCall("c", "look", {"q": "z"}))
SHAKY = asks(RawCall("a", "shaky", {"q": "x"}))
UNKNOWN = EN.in_doubt.format(tool="look")
FALLS_BACK = make_setup(limits={"degrade_after": 1})


def after(*script: Line, **kwargs: Any) -> Context:
    """The context at the end of a script."""
    return play(*script, **kwargs)[-1].fired.ctx


def asked(moments: Sequence[Moment]) -> list[list[str]]:
    """The ids of the calls of each question to a person."""
    return [[call.id for call in one.calls] for one in effects(moments, AskHuman)]


def ran(moments: Sequence[Moment]) -> list[list[str]]:
    """The ids of the calls of each batch that was executed."""
    return [[call.id for call in one.calls] for one in effects(moments, CallTools)]


def events(moments: Sequence[Moment]) -> list[Event]:
    """The events from the crash on."""
    found = [moment.fired.row.event for moment in moments]
    return found[found.index(Event.DOUBTED) :]


def read(ctx: Context) -> dict[str, tuple[str, str]]:
    """What the model reads of each call of the open round, by call id: the status and the text. The round is valid."""
    assert ctx.round is not None
    answers = [message for message in ctx.round.messages if isinstance(message, ToolMessage)]
    assert [one.tool_call_id for one in answers] == [call.id for call in ctx.asked]
    assert wrong_history(flatten(ctx.blocks)) == []
    return {one.tool_call_id: (one.status, str(one.content)) for one in answers}


def stopped(state: State, ctx: Context) -> dict[str, tuple[str, str]]:
    """What a next run reads of the round of a run that is cancelled where it is."""
    run = run_in(state, ctx)
    run.stop(Cancelled("enough"))
    return ended(run)


def run_in(state: State, ctx: Context) -> Run:
    """A run that has come to `state` with `ctx`."""
    job = Job(run_id="run-1", clock=FakeClock(), started=0.0)
    return Run(ctx=ctx, job=job, machine=DEFAULT_MACHINE, state=state)


def ended(run: Run) -> dict[str, tuple[str, str]]:
    """What a next run reads of the round that a run has left."""
    messages = flatten(run.closed_history())
    assert wrong_history([*messages, HumanMessage("And now?")][:-1]) == []
    return {one.tool_call_id: (one.status, str(one.content)) for one in messages if isinstance(one, ToolMessage)}


def asking(ctx: Context) -> AskHuman:
    """The question of REVIEW."""
    effect = DEFAULT_MACHINE.behaviours[State.REVIEW].enter(ctx)
    assert isinstance(effect, AskHuman)
    return effect


def observed(moments: Sequence[Moment], number: int = 0) -> Context:
    """The context after one OBSERVE, the first unless another is asked for."""
    return [moment.fired.ctx for moment in moments if moment.state is State.OBSERVE][number]
