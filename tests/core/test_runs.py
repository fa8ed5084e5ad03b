"""One run: driven to a typed end whatever breaks in it, suspended and gone on with, stopped from outside, and told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent.alphabet import TERMINAL, Event, State, Status, StopReason
from fsm_agent.context import Context, Setup
from fsm_agent.dialects import Native
from fsm_agent.effects import Broke, Cancelled, Effect, Outcome
from fsm_agent.guards import Guard
from fsm_agent.history import Block, flatten
from fsm_agent.jobs import Job
from fsm_agent.language import EN
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.memory import Full
from fsm_agent.records import RunResult, Transitioned
from fsm_agent.runs import Run, drive
from fsm_agent.states import BEHAVIOURS
from fsm_agent.table import TABLE, Row
from fsm_agent.testing import FakeClock
from tests.core.builders import (
    ADD,
    APPROVES,
    Line,
    asks,
    at,
    down,
    gives,
    make_setup,
    mixed,
    raw,
    says,
    start,
    waits,
)
from tests.core.validity import wrong_history

PAY = asks(raw("pay", to="Ada", amount=5))
SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8t"


def new_run(setup: Setup | None = None, *, machine: Machine = DEFAULT_MACHINE, **fields: Any) -> Run:
    """A run that has not begun."""
    clock = FakeClock()
    job = Job(run_id="run-1", clock=clock, started=clock.monotonic())
    return Run(ctx=start(setup, **fields), job=job, machine=machine)


def driven(run: Run, *script: Line | None) -> RunResult:
    """The result after the outcomes of `script`, which must be as many as are asked for."""
    core, lines = drive(run), list(script)
    item: Transitioned | Effect | None = next(core, None)
    while item is not None:
        outcome: Outcome | None = None
        if not isinstance(item, Transitioned):
            line = lines.pop(0)
            outcome = line(item) if callable(line) else line
        try:
            item = core.send(outcome)
        except StopIteration:
            item = None
    assert lines == []
    return run.result()


# ---------------------------------------------------------------- what breaks


def broken(state: State, method: str, error: Exception) -> Machine:
    """A machine one of whose states raises."""

    def fail(*_: Any) -> Any:
        raise error

    changes: dict[str, Any] = {method: fail}
    return Machine(TABLE, {**BEHAVIOURS, state: replace(BEHAVIOURS[state], **changes)})


# An outcome for every state on the way, so that each of them is entered.
LEADS_TO: Mapping[State, Sequence[Line]] = {
    State.PLAN: [],
    State.VALIDATE: [ADD],
    State.REVIEW: [PAY],
    State.EXECUTE: [ADD],
    State.OBSERVE: [ADD, gives("3")],
    State.DECIDE: [ADD, gives("3")],
    State.RETRY: [down()],
    State.DEGRADE: [ADD],
}
ANSWER: Mapping[State, Line] = {
    State.PLAN: ADD,
    State.REVIEW: APPROVES,
    State.EXECUTE: gives("3"),
    State.RETRY: waits,
}


@pytest.mark.parametrize("method", ["enter", "resolve"])
@pytest.mark.parametrize("state", BEHAVIOURS)
def test_f02_an_error_in_a_state_ends_the_run_with_its_cause(state: State, method: str) -> None:
    """Wherever a state fails, the run is terminal, says which error it was, and its history can be sent."""
    run = new_run(
        make_setup(limits={"max_tool_calls": 0} if state is State.DEGRADE else {}),
        machine=broken(state, method, KeyError("a bug")),
    )
    script = [*LEADS_TO[state], *([ANSWER[state]] if method == "resolve" and state in ANSWER else [])]
    result = driven(run, *script)
    assert (run.state, result.status, result.reason) == (State.ABORT, Status.FAILED, StopReason.INTERNAL_ERROR)
    assert "KeyError" in result.detail
    assert "a bug" in result.detail
    assert (result.transitions[-1].source, result.transitions[-1].event) == (state, Event.BROKE)
    assert wrong_history(result.messages) == []


def test_f02_an_error_that_cannot_be_told_ends_the_run_too() -> None:
    """An exception whose text fails is named by its class, like any other."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    result = driven(new_run(machine=broken(State.PLAN, "enter", Mute())))
    assert (result.reason, "Mute" in result.detail) == (StopReason.INTERNAL_ERROR, True)


def test_f03_an_error_in_a_guard_ends_the_run_where_it_was() -> None:
    """A guard of one's own that fails is a bug of the table: nothing fires but the row for bugs."""

    def fail(ctx: Context) -> tuple[bool, Mapping[str, Any]]:
        raise ZeroDivisionError("in a guard")

    row = Row(State.DECIDE, Event.DECIDED, State.ABORT, (Guard("bad", "it fails", fail),), StopReason.DEADLINE)
    result = driven(new_run(machine=Machine([row, *TABLE])), ADD, gives("3"))
    assert result.reason is StopReason.INTERNAL_ERROR
    assert (result.transitions[-1].source, result.transitions[-1].event) == (State.DECIDE, Event.BROKE)


@dataclass(frozen=True)
class BadMemory:
    """A memory that fails."""

    def view(self, history: Sequence[Block]) -> tuple[Block, ...]:
        """Fail."""
        raise MemoryError("forgot")


@dataclass(frozen=True)
class BadDialect(Native):
    """A dialect that fails in one of its methods."""

    fails_in: str = ""

    def __getattribute__(self, name: str) -> Any:
        """Fail where it should."""
        if name == object.__getattribute__(self, "fails_in"):
            raise RuntimeError(f"{name} failed")
        return super().__getattribute__(name)


def test_an_error_in_a_memory_ends_the_run() -> None:
    """Somebody else's memory may fail; the caller gets a result, not its exception."""
    result = driven(new_run(make_setup(memory=BadMemory())))
    assert (result.reason, result.model_calls) == (StopReason.INTERNAL_ERROR, 0)
    assert "forgot" in result.detail


@pytest.mark.parametrize(
    ("method", "script"),
    [
        ("compose", []),
        ("response_format", []),
        ("read", [ADD]),
        ("keep_round", [ADD, gives("3")]),
        ("keep_rejected", [says("")]),
    ],
)
def test_an_error_in_a_dialect_ends_the_run(method: str, script: list[Line]) -> None:
    """Somebody else's dialect may fail in any of its methods, also while the run is ended because of it."""
    result = driven(new_run(make_setup(dialect=BadDialect(fails_in=method))), *script)
    assert result.reason is StopReason.INTERNAL_ERROR
    assert f"{method} failed" in result.detail


def test_an_answer_is_not_lost_over_how_it_is_kept() -> None:
    """A dialect that cannot write the answer into the history does not cost the answer."""
    result = driven(new_run(make_setup(dialect=BadDialect(fails_in="keep_answer"))), says("3"))
    assert (result.status, result.answer) == (Status.COMPLETED, "3")


def test_the_words_of_an_error_are_redacted_and_short() -> None:
    """A bug's message may hold anything."""
    error = KeyError(f"api_key={SECRET} " + "x" * 5_000)
    result = driven(new_run(machine=broken(State.DECIDE, "resolve", error)), ADD, gives("3"))
    assert SECRET not in result.detail + result.transitions[-1].error
    assert len(result.transitions[-1].error) < 1_000
    assert len(result.detail) < 2_000


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=lambda one: type(one).__name__
)
def test_an_interrupt_is_not_an_error_of_the_run(error: BaseException) -> None:
    """What means "stop" goes to whoever drives the run; the run itself does not swallow it."""
    run = new_run()
    core = drive(run)
    next(core)
    with pytest.raises(type(error)):
        core.throw(error)
    assert run.state is State.PLAN


# ---------------------------------------------------------------- suspended


def test_a_run_that_needs_a_person_is_suspended_and_says_how_to_go_on() -> None:
    """No reason, no answer, what it waits for, and the way to decide."""
    run = new_run()
    result = driven(run, PAY, None)
    assert (result.status, result.reason, result.answer) == (Status.SUSPENDED, None, None)
    assert result.pending is run.asking
    assert result.pending is not None
    assert [call.tool for call in result.pending.calls] == ["pay"]
    for part in ("pay", "agent.resume('run-1'", "Approve()", "Edit(args)", "Deny(reason)"):
        assert part in result.detail
    assert [message.type for message in result.messages] == ["human"]


def test_a_suspended_run_shows_what_was_said_so_far() -> None:
    """Who decides reads the task and the rounds before the reply that waits, which is no valid history yet."""
    result = driven(new_run(), ADD, gives("3"), PAY, None)
    assert result.status is Status.SUSPENDED
    assert [message.type for message in result.messages] == ["human", "ai", "tool"]
    assert wrong_history(result.messages) == []


def test_a_suspended_run_asks_the_same_again_and_goes_on() -> None:
    """Suspending loses nothing: the decision that comes later is folded like one that came at once."""
    run = new_run()
    driven(run, PAY, None)
    asked = run.asking
    assert next(drive(run)) is asked
    result = driven(run, APPROVES, gives("paid"), says("Done."))
    assert (result.status, result.answer, result.pending) == (Status.COMPLETED, "Done.", None)
    assert [one.seq for one in result.transitions] == list(range(1, len(result.transitions) + 1))


def test_a_suspended_run_can_be_cancelled() -> None:
    """It is then like any other cancelled run, and every call is answered."""
    run = new_run()
    driven(run, PAY, None)
    run.stop(Cancelled("nobody came", 3.0))
    result = run.result()
    assert (result.status, result.pending) == (Status.CANCELLED, None)
    assert wrong_history(result.messages) == []
    assert result.messages[-1].content == EN.interrupted


# ---------------------------------------------------------------- stopped


def test_a_cancelled_run_says_why() -> None:
    """The reason of whoever cancelled it is in the detail."""
    assert "user closed the tab" in driven(new_run(), Cancelled("user closed the tab")).detail


@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
def test_h04_wherever_a_run_is_stopped_its_history_can_be_sent(state: State) -> None:
    """Every call has a result, and the one in flight is said to be of unknown outcome."""
    for outcome in (Cancelled("enough"), Broke(error="KeyError", message="x")):
        run = new_run()
        run.state, run.ctx = state, at(state)
        run.stop(outcome)
        messages = run.result().messages
        assert wrong_history(messages) == []
        if state is State.EXECUTE:
            assert messages[-1].content == EN.cancelled_result
        elif state is State.REVIEW:
            assert messages[-1].content == EN.interrupted


def test_a_call_that_had_returned_before_the_stop_keeps_its_result() -> None:
    """Only what is not known is unknown: a retry that was cancelled leaves what the first attempt gave."""
    batch = asks(raw("look", q="x"), raw("look", q="y"))
    run = new_run()
    driven(run, batch, mixed(True, False, retryable=True), waits, Cancelled("enough"))
    told = [str(message.content) for message in run.result().messages if message.type == "tool"]
    assert told[0] == "result 0"
    assert wrong_history(run.result().messages) == []


# ---------------------------------------------------------------- told


def test_a_result_tells_what_the_run_did() -> None:
    """Counts, tokens, states, guards, messages and results; frozen."""
    result = driven(new_run(), ADD, gives("3"), says("It is 3.", tokens=7))
    assert (result.status, result.ok, result.answer) == (Status.COMPLETED, True, "It is 3.")
    assert (result.steps, result.model_calls, result.tool_calls, result.usage.total) == (2, 2, 1, 22)
    assert result.path() == ("PLAN", "VALIDATE", "EXECUTE", "OBSERVE", "DECIDE", "PLAN", "VALIDATE", "FINISH")
    assert result.guards_fired() == {}
    assert [one.text for one in result.results] == ["3"]
    assert [message.type for message in result.messages] == ["human", "ai", "tool", "ai"]
    with pytest.raises(ValueError, match="frozen"):
        result.answer = "4"  # type: ignore[misc] # what is tested is that this is refused


def test_a_result_counts_the_guards_that_held() -> None:
    """By name, for whoever wants to know which limits a run came up against."""
    result = driven(new_run(make_setup(limits={"max_steps": 1})), ADD, gives("3"), says("It is 3."))
    assert result.guards_fired() == {"steps_spent": 1, "can_answer_now": 1}
    assert (result.status, result.ok) == (Status.PARTIAL, False)


def test_a_result_holds_the_messages_of_its_own_turn_only() -> None:
    """Earlier turns are the conversation's."""
    earlier = driven(new_run(), says("One."))
    history = (*flatten_to_blocks(earlier), *start(task="And two?").change(turn=1).history)
    ctx_history = tuple(replace(one, turn=1) if one is history[-1] else one for one in history)
    result = driven(new_run(turn=1, history=ctx_history), says("Two."))
    assert [str(message.content) for message in result.messages] == ["And two?", "Two."]


def flatten_to_blocks(result: RunResult) -> tuple[Block, ...]:
    """The messages of a result as blocks of the first turn."""
    return tuple(Block("task" if message.type == "human" else "answer", (message,)) for message in result.messages)


def test_a_result_without_a_transition_has_no_path() -> None:
    """Nothing has happened yet."""
    assert new_run().result().path() == ()


def test_the_time_of_a_transition_is_that_since_the_one_before() -> None:
    """`elapsed_ms` is what this transition took, `at` where it is in the run."""
    run = new_run()
    clock = run.job.clock
    assert isinstance(clock, FakeClock)
    core = drive(run)
    next(core)
    clock.advance(1.5)
    first = core.send(ADD)
    clock.advance(0.25)
    second = next(core)
    assert isinstance(first, Transitioned)
    assert isinstance(second, Transitioned)
    assert (first.elapsed_ms, first.at) == (1_500.0, 1.5)
    assert (second.elapsed_ms, second.at) == (250.0, 1.75)


def test_a_transition_reads_as_a_line() -> None:
    """For a person: where from, what happened, where to, and which guards were asked."""
    result = driven(new_run(make_setup(limits={"max_steps": 1})), ADD, gives("3"), says("It is 3."))
    lines = [str(one) for one in result.transitions]
    assert lines[0] == "   1 PLAN --replied--> VALIDATE"
    assert "DECIDE --decided--> DEGRADE [answer_failed=no" in lines[4]
    assert lines[4].endswith("steps_spent=yes, can_answer_now=yes]")


def test_the_reason_is_on_the_record_that_stops_the_run_also_when_it_is_inherited() -> None:
    """A forced answer that did not come ends with the limit that asked for it."""
    run = new_run(make_setup(limits={"max_tool_calls": 0}))
    result = driven(run, ADD, says(""))
    assert [one.reason for one in result.transitions if one.reason] == ["max_tool_calls", "max_tool_calls"]
    assert result.reason is StopReason.MAX_TOOL_CALLS


def test_observers_are_told_in_order_before_the_run_goes_on() -> None:
    """What a record says has happened; nothing that follows from it has."""
    told: list[tuple[int, State]] = []

    def watch(record: Transitioned) -> None:
        told.append((record.seq, run.state))

    run = new_run()
    run.observers = (watch,)
    result = driven(run, ADD, gives("3"), says("It is 3."))
    assert told == [(one.seq, one.target) for one in result.transitions]


def test_the_history_of_a_run_that_goes_on_is_its_own() -> None:
    """Looking at the history changes nothing."""
    run = new_run(make_setup(memory=Full()))
    core = drive(run)
    next(core)
    core.send(ADD)
    before = run.ctx
    assert flatten(run.closed_history()) == flatten(run.closed_history())
    assert run.ctx is before
