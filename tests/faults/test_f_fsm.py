"""Family F: what goes wrong when an agent is built on a state machine library, and does not here."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig

from fsm_agent import Agent, Event, RunResult, State, Status, StopReason, tool
from fsm_agent.context import Context
from fsm_agent.dialects import Native
from fsm_agent.effects import Broke, Cancelled, Replied
from fsm_agent.errors import IllegalTransition
from fsm_agent.history import Block
from fsm_agent.jobs import Job
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.memory import InMemoryConversations, Window
from fsm_agent.runs import Run, drive
from fsm_agent.states import BEHAVIOURS
from fsm_agent.testing import FakeClock, ScriptedModel, call, forever
from tests.agent.kit import new_run
from tests.core.recorded import read, recorded
from tests.faults.kit import PATIENCE, WAYS, Ledger, Seen, answers_in, consistent, in_thread, make, run

RUN: RunnableConfig = {"configurable": {"run_id": "r", "thread_id": "t"}}
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def context_of(agent: Agent, **changes: Any) -> Context:
    """A fresh context of a run of `agent`."""
    return new_run(agent).ctx.change(**changes)


# ---------------------------------------------------------------- F01 what a trigger returns


def test_f01_a_refused_guard_is_recorded_and_never_taken_for_a_move() -> None:
    """Guards that said no are in the record with their values; the state is that of the row whose guards said yes."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add]), "1+2")
    accepted = next(record for record in result.transitions if record.event is Event.ACCEPTED)
    assert accepted.target is State.EXECUTE
    assert [(guard.guard, guard.result) for guard in accepted.guards] == [
        ("deadline_passed", False),
        ("repeated_action", False),
        ("tool_calls_spent", False),
        ("approval_required", False),
    ]
    assert all(guard.values for guard in accepted.guards)


def test_f01_an_event_without_a_row_is_an_error_not_false() -> None:
    """Firing what the table does not have raises, names what could happen there, and moves nothing."""
    ctx = context_of(make(ScriptedModel([])))
    with pytest.raises(IllegalTransition, match=r"executed cannot happen in PLAN.*replied"):
        DEFAULT_MACHINE.fire(State.PLAN, Event.EXECUTED, ctx)
    with pytest.raises(IllegalTransition, match="terminal"):
        DEFAULT_MACHINE.fire(State.FINISH, Event.REPLIED, ctx)
    assert ctx.seq == 0


def test_f01_the_machine_holds_no_state_between_events() -> None:
    """The same event in the same state and context gives the same transition, however often, in whatever order."""
    ctx = context_of(make(ScriptedModel([])))
    first = DEFAULT_MACHINE.fire(State.PLAN, Event.REPLIED, ctx)
    DEFAULT_MACHINE.fire(State.DECIDE, Event.DECIDED, ctx)
    again = DEFAULT_MACHINE.fire(State.PLAN, Event.REPLIED, ctx)
    assert (first.row, first.guards, first.ctx.seq) == (again.row, again.guards, again.ctx.seq)


# ---------------------------------------------------------------- F02 F03 errors inside the engine


class Faulty(Native):
    """A dialect that raises in one of its methods."""

    at: str = ""

    def compose(self, prompt: Any) -> tuple[AnyMessage, ...]:
        """Compose, or raise."""
        if self.at == "compose":
            raise ZeroDivisionError("in compose")
        return Native.compose(self, prompt)

    def read(self, reply: Replied, tools: Any, purpose: Any) -> Any:
        """Read, or raise."""
        if self.at == "read":
            raise ZeroDivisionError("in read")
        return Native.read(self, reply, tools, purpose)

    def keep_round(self, reply: Replied, calls: Any, results: Any, texts: Any) -> tuple[AnyMessage, ...]:
        """Keep, or raise."""
        if self.at == "keep_round":
            raise ZeroDivisionError("in keep_round")
        return Native.keep_round(self, reply, calls, results, texts)

    def keep_answer(self, text: str) -> tuple[AnyMessage, ...]:
        """Keep, or raise."""
        if self.at == "keep_answer":
            raise ZeroDivisionError("in keep_answer")
        return Native.keep_answer(self, text)


def faulty(at: str) -> Faulty:
    """A dialect that raises in `at`."""
    return type("Faulty", (Faulty,), {"at": at})()  # type: ignore[no-any-return]  # a class made here


BROKEN_AT = {"compose": State.PLAN, "read": State.VALIDATE, "keep_round": State.OBSERVE}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", BROKEN_AT)
def test_f02_an_error_in_a_state_ends_the_run_with_its_cause(at: str, way: str) -> None:
    """An exception in a state is a transition to ABORT with its cause, never a run left half-way."""
    seen = Seen()
    model = ScriptedModel([call("add", a=1, b=2), "3"])
    store = InMemoryConversations()
    agent = make(model, [add], dialect=faulty(at), observers=[seen], store=store)
    result = run(agent, "go", way, RUN)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.INTERNAL_ERROR, None)
    last = result.transitions[-1]
    assert (last.source, last.event, last.target) == (BROKEN_AT[at], Event.BROKE, State.ABORT)
    assert f"ZeroDivisionError: in {at}" in last.error
    assert consistent(seen.records)
    fresh = make(ScriptedModel(["fine"]), store=store)
    assert run(fresh, "again", config=THREAD).answer == "fine", "the thread is free"


@pytest.mark.parametrize("way", WAYS)
def test_f02_an_error_after_the_answer_does_not_lose_it(way: str) -> None:
    """A dialect that cannot write the answer into the history does not take the answer away."""
    model = ScriptedModel(["the answer"])
    result = run(make(model, dialect=faulty("keep_answer")), "go", way, RUN)
    assert (result.status, result.answer) == (Status.COMPLETED, "the answer")


class Forgetful:
    """A memory that raises from its nth view on."""

    def __init__(self, at: int) -> None:
        self.at, self.views = at, 0

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """Everything, or an error."""
        self.views += 1
        if self.views >= self.at:
            raise MemoryError("forgot")
        return tuple(history)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_f02_an_error_in_a_guard_ends_the_run_too(at: int, way: str) -> None:
    """A memory that fails inside an estimate, a guard or a prompt: typed ending, cause, nothing raised."""
    model = ScriptedModel([call("add", a=number, b=2) for number in range(at)])
    result = run(make(model, [add], memory=Forgetful(at)), "go", way, RUN)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.INTERNAL_ERROR)
    assert "MemoryError: forgot" in result.detail
    assert consistent(result.transitions)


@pytest.mark.parametrize(
    "error", [ValueError("v"), KeyError("k"), OSError(5, "io"), RecursionError("deep"), StopIteration("s")]
)
def test_f03_no_class_of_error_is_lost(error: Exception) -> None:
    """Whatever class a state raises, the record and the result name it."""

    class Bad(Window):
        """Raises it."""

        def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
            """Raise."""
            raise error

    result = run(make(ScriptedModel([]), memory=Bad()), "go")
    assert result.reason is StopReason.INTERNAL_ERROR
    assert type(error).__name__ in result.detail
    assert type(error).__name__ in result.transitions[-1].error


def test_f03_an_observer_that_raises_hides_nothing() -> None:
    """An observer's error reaches neither the run nor the observers after it."""
    seen = Seen()

    def angry(_: Any) -> None:
        raise LookupError("angry")

    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add], observers=[angry, seen, angry]), "go")
    assert (result.answer, seen.records) == ("3", list(result.transitions))


# ---------------------------------------------------------------- F04 F06 what happens once


def counted(counts: dict[tuple[str, str], int]) -> Machine:
    """The default machine, counting each entry and each fold."""

    def wrapped(state: State, behaviour: Any) -> Any:
        def enter(ctx: Context) -> Any:
            counts["enter", state] = counts.get(("enter", state), 0) + 1
            return behaviour.enter(ctx)

        def resolve(ctx: Context, outcome: Any) -> Any:
            counts["resolve", state] = counts.get(("resolve", state), 0) + 1
            return behaviour.resolve(ctx, outcome)

        return replace(behaviour, enter=enter, resolve=resolve)

    return Machine(behaviours={state: wrapped(state, behaviour) for state, behaviour in BEHAVIOURS.items()})


def test_f06_each_state_is_entered_and_folded_once_for_each_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs twice: entries, folds, records, executions and model calls are equal in number."""
    ledger = Ledger()

    def noted() -> str:
        """Work."""
        ledger.note()
        return "worked"

    counts: dict[tuple[str, str], int] = {}
    monkeypatch.setattr("fsm_agent.agent.DEFAULT_MACHINE", counted(counts))
    with ScriptedModel([call("noted"), "done"]) as model:
        result = run(make(model, [noted]), "task")
    sources = [record.source for record in result.transitions]
    for state in State:
        assert counts.get(("enter", state), 0) == counts.get(("resolve", state), 0) == sources.count(state)
    assert (len(ledger), model.count) == (1, 2)


def test_f04_what_comes_next_is_not_lost_with_an_error() -> None:
    """After a fold that raised, the loop itself decides from the state: one BROKE, one ending, and it stops."""
    agent = make(ScriptedModel([]), [add])
    opened = new_run(agent)
    core = drive(opened)
    next(core)
    records: list[Any] = [core.throw(ZeroDivisionError("elsewhere")), *core]
    assert [record.event for record in records] == [Event.BROKE]
    assert opened.state is State.ABORT


def test_f06_a_wrong_outcome_is_a_bug_that_is_named() -> None:
    """An outcome that does not belong to the effect ends the run as an internal error that says so."""
    opened = new_run(make(ScriptedModel([]), [add]))
    core = drive(opened)
    next(core)
    from fsm_agent.effects import Returned

    record: Any = core.send(Returned(results=()))
    assert (record.event, record.target) == (Event.BROKE, State.ABORT)
    assert "PLAN cannot fold Returned" in record.error


def test_f01_stopping_twice_is_one_ending() -> None:
    """A run that has ended ignores further stops."""
    opened = new_run(make(ScriptedModel([])))
    assert opened.stop(Cancelled("x")) is not None
    assert opened.stop(Cancelled("y")) is None
    assert opened.stop(Broke(error="E", message="m")) is None
    assert len(opened.transitions) == 1


# ---------------------------------------------------------------- F07 F09 one machine, many runs


@pytest.mark.parametrize("way", WAYS)
def test_f07_eight_runs_at_once_share_the_machine(way: str) -> None:
    """Eight concurrent runs on the one machine: each has its own complete chain of states."""
    by_task: dict[str, Any] = {
        f"<{number}>": [call("add", a=number, b=1), call("add", a=number, b=2), f"done {number}"] for number in range(8)
    }
    with ScriptedModel(by_task=by_task) as model:
        agent = make(model, [add])
        joins = [in_thread(lambda number=number: run(agent, f"<{number}>", way)) for number in range(8)]  # type: ignore[misc]  # a default binds it
        results = [join() for join in joins]
    assert [result.answer for result in results] == [f"done {number}" for number in range(8)]
    assert all(consistent(result.transitions) for result in results)
    assert len({tuple(str(one) for one in result.transitions) for result in results}) == 1


def test_f09_two_agents_never_share_more_than_the_table() -> None:
    """Agents with other limits, one running inside a tool of the other, keep their own states and counters."""
    inner = make(ScriptedModel([forever(call("add", a=1, b=1))]), [add], limits={"max_steps": 1, "on_limit": "stop"})
    seen = Seen()

    def delegate() -> str:
        """Run the other one."""
        return str(inner.invoke("inner", {"configurable": {"run_id": "inner"}}).reason)

    with ScriptedModel([call("delegate"), "done"]) as model:
        result = run(make(model, [delegate], observers=[seen]), "outer")
    assert (result.status, result.answer) == (Status.COMPLETED, "done")
    assert answers_in(model.requests[1])[0].text == "max_steps"
    assert consistent(seen.records)


# ---------------------------------------------------------------- F08 pickles


def test_f08_a_result_can_be_pickled_and_holds_no_code() -> None:
    """What a run leaves is data: it goes through pickle (as to another process) and comes back equal."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add], memory=Window(2), approve=lambda _: True), "1+2")
    again = pickle.loads(pickle.dumps(result))  # noqa: S301 - our own bytes
    assert again == result
    assert again.transitions == result.transitions
    assert isinstance(again.transitions[0].source, State)


def test_f08_a_result_can_be_written_as_json() -> None:
    """A result dumps to JSON, records included."""
    with ScriptedModel([call("add", a=1, b=2), "3"]) as model:
        result = run(make(model, [add]), "1+2")
    text = result.model_dump_json()
    assert '"answer":"3"' in text
    assert '"fsm' not in text
    assert RunResult.model_validate_json(text).answer == "3"


def test_f08_effects_and_outcomes_are_data() -> None:
    """What a state asks for is written as JSON, and what comes of it comes back from JSON equal."""
    opened = new_run(make(ScriptedModel([]), [add]))
    effect: Any = next(drive(opened))
    assert json.loads(recorded(effect))["effect"] == effect.kind
    outcome = opened.cancelled("enough")
    assert read(recorded(outcome)) == outcome


# ---------------------------------------------------------------- F10 nothing is kept alive


def alive(kind: type) -> int:
    """How many objects of a class exist."""
    return sum(type(one) is kind for one in gc.get_objects())  # isinstance would wake every lazy proxy there is


def test_f10_a_thousand_finished_runs_are_collected() -> None:
    """A thousand runs leave nothing behind: no run, no context, no result, nothing in the agent's own tables."""
    agent = make(ScriptedModel(lambda _: "done", record=False))
    gc.collect()
    before = alive(Run), alive(Context), alive(Job)
    refs: list[weakref.ref[RunResult]] = []

    async def thousand() -> None:
        refs.extend([weakref.ref(await agent.ainvoke("go")) for _ in range(1000)])

    asyncio.run(thousand())
    gc.collect()
    assert [ref for ref in refs if ref() is not None] == []
    assert (alive(Run), alive(Context), alive(Job)) == before


@pytest.mark.parametrize("way", WAYS)
def test_f10_runs_that_went_wrong_are_collected_too(way: str) -> None:
    """Failures, cancellations and broken-off streams leave nothing behind either."""

    def boom() -> str:
        """Fail."""
        raise ValueError("no")

    def acts(request: Any) -> Any:
        if request.number % 7 == 0:
            raise ConnectionError("down")
        return [call("add", a=1, b=2), call("boom")] if len(request.messages) < 3 else "done"

    agent = make(ScriptedModel(acts, record=False), [add, boom], limits={"max_retries": 0})
    gc.collect()
    before = alive(Run), alive(Context), alive(Job)
    for _ in range(10):
        run(agent, "go", way, THREAD)
        next(iter(agent.stream("go")))
    gc.collect()
    assert (alive(Run), alive(Context), alive(Job)) == before


def test_f10_an_agent_is_collected_with_its_last_reference() -> None:
    """Machine, registry and observers do not keep an agent alive."""
    model = ScriptedModel(["done"])
    agent = make(model)
    run(agent, "go")
    ref = weakref.ref(agent)
    del agent
    gc.collect()
    assert ref() is None


# ---------------------------------------------------------------- F11 a deadline and a result at once


class Ticking:
    """A tool whose call takes a given time on the fake clock."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self.clock, self.seconds, self.calls = clock, seconds, 0

    def tool(self, **options: Any) -> Any:
        """The tool."""

        @tool("tick", **options)
        def tick() -> str:
            """Take time."""
            self.calls += 1
            self.clock.advance(self.seconds)
            return "ticked"

        return tick


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("seconds", "in_time"), [(29.999, True), (30.0, True), (30.001, False)])
def test_f11_a_result_in_the_same_tick_as_its_time_out_counts_once(seconds: float, in_time: bool, way: str) -> None:
    """Exactly at the time-out the result counts, later it does not; either way there is one outcome for the call."""
    clock = FakeClock()
    ticking = Ticking(clock, seconds)
    with ScriptedModel([call("tick"), "done"]) as model:
        result = run(make(model, [ticking.tool()], clock=clock), "go", way)
    (told,) = answers_in(model.requests[1])
    assert (told.text == "ticked") is in_time
    assert (ticking.calls, result.status, consistent(result.transitions)) == (1, Status.COMPLETED, True)
    assert [record.event for record in result.transitions].count(Event.EXECUTED) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("seconds", "stops"), [(59.0, False), (60.0, True), (61.0, True)])
def test_f11_the_deadline_of_a_run_is_decided_once(seconds: float, stops: bool, way: str) -> None:
    """A result that arrives with the deadline is kept; the run then stops for it, with no further model call."""
    clock = FakeClock()
    ticking = Ticking(clock, seconds)
    model = ScriptedModel([call("tick"), "done"])
    agent = make(model, [ticking.tool(timeout=100)], clock=clock, limits={"deadline": 60})
    result = run(agent, "go", way)
    assert consistent(result.transitions)
    if not stops:
        assert (result.status, model.count) == (Status.COMPLETED, 2)
        return
    assert (result.status, result.reason, model.count) == (Status.FAILED, StopReason.DEADLINE, 1)
    assert "deadline=60" in result.detail
    assert [one.type for one in result.messages] == ["human", "ai", "tool"]


@pytest.mark.parametrize("way", WAYS)
def test_f11_a_model_call_that_meets_the_deadline_ends_for_the_deadline(way: str) -> None:
    """A model that is still writing when the deadline comes is given up on, and the reason is the deadline."""
    clock = FakeClock()

    def late(_: Any) -> str:
        clock.advance(11)
        return "too late"

    with ScriptedModel([late]) as model:
        result = run(make(model, clock=clock, limits={"deadline": 10}), "go", way)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.DEADLINE, None)
    assert model.count == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_f11_a_call_is_cut_by_the_deadline_of_its_run(kind: str, way: str) -> None:
    """A tool that would take for ever is given up on when the run's own time is over, long before the tool's time-out."""
    release = threading.Event()

    @tool("slow")
    def slow() -> str:
        """Take long."""
        release.wait(PATIENCE)
        return "late"

    @tool("slow")
    async def aslow() -> str:
        """Take long."""
        await asyncio.sleep(PATIENCE)
        return "late"

    with ScriptedModel([call("slow")]) as model:
        agent = make(model, [slow if kind == "sync" else aslow], clock=None, limits={"deadline": 0.05})
        result = run(agent, "go", way)
    release.set()
    assert (result.status, result.reason) == (Status.FAILED, StopReason.DEADLINE)
    assert 0.05 <= result.elapsed < PATIENCE / 2


def test_f11_a_time_out_really_stops_the_work() -> None:
    """An async tool that is timed out is cancelled, its clean-up runs, and nothing of it goes on afterwards."""
    log: list[str] = []

    @tool(timeout=0.02)
    async def slow() -> str:
        """Take long."""
        try:
            await asyncio.sleep(PATIENCE)
            log.append("finished")
        finally:
            log.append("cleaned")
        return "late"

    with ScriptedModel([call("slow"), "done"]) as model:
        result = asyncio.run(make(model, [slow]).ainvoke("go"))
    assert (log, result.answer) == (["cleaned"], "done")
    assert "within 0.02 seconds" in answers_in(model.requests[1])[0].text


@pytest.mark.parametrize("way", WAYS)
def test_f11_a_model_that_misses_the_time_out_is_one_failed_call(way: str) -> None:
    """A reply after the model's time-out is not used: one failed attempt, then the retry's reply."""
    clock = FakeClock()

    def late(_: Any) -> str:
        clock.advance(60.001)
        return "too late"

    with ScriptedModel([late, "in time"]) as model:
        result = run(make(model, clock=clock), "go", way)
    assert (result.answer, result.model_calls) == ("in time", 2)
    assert [record.event for record in result.transitions].count(Event.MODEL_FAILED) == 1


# ---------------------------------------------------------------- F12 nothing is locked while a tool runs


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_f12_questions_are_answered_while_a_tool_runs(way: str) -> None:
    """From another thread, during a tool: statistics, names, cancellation of others and whole runs work at once."""
    started, release = threading.Event(), threading.Event()

    def slow() -> str:
        """Take long."""
        started.set()
        release.wait(PATIENCE)
        return "slow"

    model = ScriptedModel(
        by_task={"slow one": [call("slow"), "slow done"], "quick one": [call("add", a=1, b=2), "quick done"]}
    )
    agent = make(model, [slow, add])
    join = in_thread(lambda: run(agent, "slow one", way, RUN))
    assert started.wait(PATIENCE)
    begun = time.perf_counter()
    assert agent.tools.stats("slow").usage_count == 0
    assert agent.tools.names() == ("slow", "add")
    assert agent.cancel("somebody else") is False
    assert len(DEFAULT_MACHINE.rows) > 40
    assert time.perf_counter() - begun < 0.01
    assert run(agent, "quick one").answer == "quick done"
    agent.tools.unregister("add")
    release.set()
    assert join().answer == "slow done"
