"""Going on with stored runs: suspended, paused, broken off; by other agents on the same store, as after a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    Approve,
    Deny,
    Edit,
    Event,
    Full,
    Limits,
    RunError,
    State,
    Status,
    StopReason,
    Tool,
    Window,
    tool,
)
from fsm_agent.durable import begin
from fsm_agent.effects import ModelFailed, Wait
from fsm_agent.errors import DefinitionError, FsmAgentError, RunHeld, TrailDamaged, TrailVersion, UnknownRun
from fsm_agent.observe import silent_logger
from fsm_agent.records import Transitioned
from fsm_agent.runs import drive
from fsm_agent.testing import FakeClock, ScriptedModel, call, reply
from fsm_agent.trail import Batch, FernetCipher, HmacChain, MemoryTrail, Sha256Chain, SQLiteTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.changes import Change
from fsm_agent.trail.fork import fork
from fsm_agent.trail.replay import replay
from fsm_agent.trail.store import RUNNING
from tests.agent.kit import new_run

RUN: Any = {"configurable": {"run_id": "r"}}


def new_log() -> list[Any]:
    """What was done."""
    return []


def paying(log: list[Any]) -> Tool:
    """A tool that needs approval and says what it did."""

    @tool(requires_approval=True)
    def pay(to: str, amount: int = 1) -> str:
        """Pay somebody."""
        log.append((to, amount))
        return f"paid {amount} to {to}"

    return pay


def adding(log: list[Any]) -> Tool:
    """A tool that needs nobody."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        log.append((a, b))
        return a + b

    return add


def agent_on(store: Any, replies: list[Any], tools: list[Tool], **options: Any) -> Agent:
    """An agent as a process of its own would make it."""
    return Agent(ScriptedModel(replies), tools, store=store, logger=silent_logger(), **options)


def broken_off(whole: MemoryTrail, length: int) -> MemoryTrail:
    """A store with the first `length` entries of the run."""
    store, kept = MemoryTrail(), tuple(whole.read("r")[:length])
    store.append(Batch(run_id="r", owner="gone", lease=0.0, time=0.0, status=RUNNING, entries=kept)).result()
    return store


@pytest.mark.parametrize(("effect", "ran"), [("ask_human", 1), ("call_tools", 0)])
def test_an_effect_whose_outcome_is_known_is_over(effect: str, ran: int) -> None:
    """A trail that ends with an outcome, as `repair` may leave it, goes on behind it: nothing is asked or made again."""
    whole, log = MemoryTrail(), new_log()
    first = agent_on(whole, [call("pay", to="bob"), "done"], [paying(log)], approve=lambda _: Approve())
    assert first.invoke("pay bob", RUN).status is Status.COMPLETED
    kinds = [(one.kind, one.body.get("effect")) for one in first.journal.entries("r")]
    cut = kinds.index(("outcome", None), kinds.index(("started", effect))) + 1
    again = new_log()
    second = agent_on(broken_off(whole, cut), ["done"], [paying(again)])
    result = second.resume("r")
    assert (result.status, len(again)) == (Status.COMPLETED, ran)
    assert [one.event for one in result.transitions].count(Event.APPROVED) == 1
    assert audit(second.journal, "r", second.setup).findings == ()


def test_calls_that_were_never_begun_are_not_in_doubt() -> None:
    """A trail that ends with the reply: its calls run, once, and are written down as begun."""
    whole, log, again = MemoryTrail(), new_log(), new_log()
    first = agent_on(whole, [reply("", call("add", a=1, b=2), call("add", a=3, b=4)), "done"], [adding(log)])
    first.invoke("add", RUN)
    second = agent_on(broken_off(whole, 3), ["done"], [adding(again)])
    result = second.resume("r")
    assert (result.status, sorted(again)) == (Status.COMPLETED, sorted(log))
    assert audit(second.journal, "r", second.setup).findings == ()


def test_a_call_with_a_result_is_not_made_again_by_whoever_goes_on() -> None:
    """Not even one that could be: of two calls the one that a crash left without a result is made."""
    whole, log = MemoryTrail(), new_log()

    @tool(idempotent=True)
    def look(where: str) -> str:
        """Look somewhere."""
        log.append(where)
        return f"seen {where}"

    replies = [reply("", call("look", where="here"), call("look", where="there")), "done"]
    first = agent_on(whole, replies, [look], limits=Limits(max_parallel=1))
    first.invoke("look", RUN)
    cut = [one.kind for one in first.journal.entries("r")].index("result") + 1
    log.clear()
    result = agent_on(broken_off(whole, cut), ["done"], [look], limits=Limits(max_parallel=1)).resume("r")
    assert (result.status, log) == (Status.COMPLETED, ["there"])
    assert [one.text for one in result.results] == ["seen here", "seen there"]


def test_a_run_is_held_for_as_long_as_its_slowest_tool_may_take() -> None:
    """Nobody else may take it for broken off, and make the call again, while that is under way."""
    store, clock, held = MemoryTrail(), FakeClock(), list[float]()

    @tool(timeout=500)
    def slow() -> str:
        """Take your time."""
        held.append(store.info("r").lease - clock.time())
        return "slow"

    agent_on(store, [call("slow"), "done"], [slow], clock=clock).invoke("go", RUN)
    assert held[0] > 500.0


# ---------------------------------------------------------------- people


def test_a_suspended_run_is_approved_by_another_agent_on_the_same_file(tmp_path: Path) -> None:
    """What was suspended before a restart goes on after it, with the counters that it had."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    first = agent_on(path, [call("pay", to="bob"), "unused"], [paying(log)]).invoke("pay bob", RUN)
    assert (first.status, first.requests[0].why, log) == (Status.SUSPENDED, "requires_approval", [])
    again = agent_on(path, ["bob is paid"], [paying(log)])
    result = again.resume("r", decision=Approve(digest=first.requests[0].digest), by="ann")
    assert (result.status, result.answer, log) == (Status.COMPLETED, "bob is paid", [("bob", 1)])
    assert (result.model_calls, result.steps, result.tool_calls) == (2, 2, 1)
    assert [record.seq for record in result.transitions] == list(range(1, len(result.transitions) + 1))


def test_decisions_are_kept_one_by_one_across_processes(tmp_path: Path) -> None:
    """Each call of a batch may be decided by somebody else, in any order, in a process of its own; nothing runs before the last."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    batch = [call("pay", to=name) for name in ("ada", "bob", "eve")]
    waiting = agent_on(path, [batch], [paying(log)]).invoke("pay", RUN)
    ids = [one.call_id for one in waiting.requests]
    after = agent_on(path, [], [paying(log)]).resume("r", decision={ids[2]: Deny("not eve")}, by="ann")
    assert [one.call_id for one in after.requests] == ids[:2]
    after = agent_on(path, [], [paying(log)]).resume("r", decision={ids[0]: Edit({"to": "ada", "amount": 7})}, by="ben")
    assert ([one.call_id for one in after.requests], log) == ([ids[1]], [])
    last = agent_on(path, ["done"], [paying(log)])
    assert last.resume("r", decision=Approve()).status is Status.COMPLETED
    assert sorted(log) == [("ada", 7), ("bob", 1)]
    decided = {one.body["call_id"]: one.body["by"] for one in last.journal.entries("r") if one.kind == "decided"}
    assert decided == {ids[2]: "ann", ids[0]: "ben", ids[1]: ""}


def test_a_run_that_waits_is_shown_by_a_resume_without_a_decision(tmp_path: Path) -> None:
    """Another process lists the runs, and sees what is asked, as often as it likes; one that has ended is none."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    asked = agent_on(path, [call("pay", to="ada")], [paying(log)]).invoke("pay", RUN).requests
    other = agent_on(path, ["done"], [paying(log)])
    assert other.trails is not None
    assert [(one.run_id, one.status) for one in other.trails.runs()] == [("r", "suspended")]
    for _ in range(2):
        shown = other.resume("r")
        assert (shown.status, shown.requests) == (Status.SUSPENDED, asked)
    assert other.resume("r", decision=Approve()).status is Status.COMPLETED
    with pytest.raises(UnknownRun, match="has ended"):
        other.resume("r")
    assert log == [("ada", 1)]


def test_a_decision_is_used_once_and_bound_to_its_digest() -> None:
    """A second decision about one call, and an approval of other arguments, are refused before anything happens."""
    store, log = MemoryTrail(), new_log()
    waiting = agent_on(store, [[call("pay", to="ada"), call("pay", to="bob")]], [paying(log)]).invoke("pay", RUN)
    ada, bob = (one.call_id for one in waiting.requests)
    with pytest.raises(RunError, match="digest"):
        agent_on(store, [], [paying(log)]).resume("r", decision={ada: Approve(digest="0" * 64)})
    agent_on(store, [], [paying(log)]).resume("r", decision={ada: Deny()})
    with pytest.raises(RunError, match=ada):
        agent_on(store, [], [paying(log)]).resume("r", decision={ada: Approve()})
    assert agent_on(store, ["ok"], [paying(log)]).resume("r", decision={bob: Approve()}).status is Status.COMPLETED
    assert log == [("bob", 1)]


def test_a_decision_that_comes_too_late_expires_the_run() -> None:
    """Expiry is a transition, by the clock on the wall, whatever was decided afterwards."""
    store, log, clock = MemoryTrail(), new_log(), FakeClock()
    limits = Limits(approval_timeout=60)
    waiting = agent_on(store, [call("pay", to="bob")], [paying(log)], limits=limits, clock=clock).invoke("pay", RUN)
    assert waiting.requests[0].expires_at == clock.time() + 60
    clock.advance(61)
    result = agent_on(store, [], [paying(log)], limits=limits, clock=clock).resume("r", decision=Approve())
    assert (result.status, result.reason, log) == (Status.FAILED, StopReason.EXPIRED, [])


def test_the_time_that_a_person_takes_does_not_count() -> None:
    """A deadline is for the run's own time: a day's wait for a person, and a day without any process, are not in it."""
    store, log, clock = MemoryTrail(), new_log(), FakeClock()
    limits = Limits(deadline=30)
    agent_on(store, [call("pay", to="bob")], [paying(log)], limits=limits, clock=clock).invoke("pay", RUN)
    clock.advance(86_400)
    result = agent_on(store, ["done"], [paying(log)], limits=limits, clock=clock).resume("r", decision=Approve())
    assert result.status is Status.COMPLETED


def test_a_thousand_suspended_runs_hold_no_thread_and_no_run(tmp_path: Path) -> None:
    """A run that waits is a row in a file: no thread, nothing in memory, and any of them goes on."""
    log: list[Any] = []
    agent = agent_on(tmp_path / "runs.db", [call("pay", to="bob")] * 1_000 + ["done"], [paying(log)])
    before = threading.active_count()
    for number in range(1_000):
        agent.invoke("pay", {"configurable": {"run_id": f"r{number}"}})
    assert threading.active_count() <= before + 3
    assert (agent._runner.slots.active, agent._runner.slots.waiting) == ({}, {})
    assert agent.resume("r500", decision=Approve()).status is Status.COMPLETED


# ---------------------------------------------------------------- who may go on


def test_of_many_that_resume_one_run_exactly_one_goes_on(tmp_path: Path) -> None:
    """Agents of their own race for one stored run; one has it, the others are told by name, and the call ran once."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    agent_on(path, [call("pay", to="bob")], [paying(log)]).invoke("pay", RUN)
    gate, outcomes = threading.Barrier(6), new_log()

    def race() -> None:
        agent = agent_on(path, ["done"], [paying(log)])
        gate.wait(30)
        try:
            outcomes.append(agent.resume("r", decision=Approve()).status)
        except (RunHeld, UnknownRun) as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=race) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert outcomes.count(Status.COMPLETED) == 1
    assert log == [("bob", 1)]


def test_a_run_that_is_under_way_elsewhere_is_refused_by_name() -> None:
    """While a run is driven, no other agent can take it; the error says who has it."""
    store, seen = MemoryTrail(), new_log()

    @tool
    def peek() -> str:
        """Try to take the run from inside of it."""
        with pytest.raises(RunHeld) as raised:
            Agent(ScriptedModel([]), [peek], store=store, logger=silent_logger()).resume("r")
        seen.append(raised.value.owner)
        return "seen"

    assert agent_on(store, [call("peek"), "done"], [peek]).invoke("go", RUN).status is Status.COMPLETED
    assert seen[0].count(":") == 2


def test_a_run_that_has_ended_and_one_that_never_was_are_told_apart_from_errors() -> None:
    """Nothing is left to go on with: `UnknownRun` says whether it ended, and its trail stays as it is."""
    store = MemoryTrail()
    agent = agent_on(store, ["done"], [])
    agent.invoke("go", RUN)
    head = store.info("r").head
    with pytest.raises(UnknownRun, match="ended"):
        agent.resume("r")
    with pytest.raises(UnknownRun, match="never"):
        agent.resume("never")
    assert store.info("r").head == head
    assert store.info("r").owner == ""


def test_a_run_id_is_never_used_twice() -> None:
    """A new run under the id of a stored one is refused, and the stored one is untouched."""
    store = MemoryTrail()
    agent_on(store, ["one"], []).invoke("go", RUN)
    head = store.info("r").head
    with pytest.raises(RunHeld):
        agent_on(store, ["two"], []).invoke("go", RUN)
    assert store.info("r").head == head


def test_another_agent_than_the_one_that_began_is_refused() -> None:
    """Another dialect, a missing tool and a tool with another schema are each named, and nothing happens."""
    store, log = MemoryTrail(), new_log()
    agent_on(store, [call("pay", to="bob")], [paying(log), adding(log)]).invoke("pay", RUN)

    @tool(requires_approval=True)
    def pay(to: str, amount: int = 2) -> str:
        """Pay somebody."""
        return to

    for tools, dialect, named in (
        ([paying(log), adding(log)], "react", "dialect"),
        ([adding(log)], "native", "pay missing"),
        ([pay, adding(log)], "native", "pay"),
    ):
        with pytest.raises(TrailVersion, match=named):
            agent_on(store, [], tools, dialect=dialect).resume("r", decision=Approve())
    assert store.info("r").owner == ""
    same = [paying(log), adding(log)]
    assert agent_on(store, ["done"], same).resume("r", decision=Approve()).status is Status.COMPLETED


def test_a_damaged_trail_is_neither_resumed_nor_written_over() -> None:
    """A trail that is not as it was written is a named error, and stays as it is."""
    store, log = MemoryTrail(), new_log()
    agent_on(store, [call("pay", to="bob")], [paying(log)]).invoke("pay", RUN)
    entries = store._entries["r"]
    entries[2] = type(entries[2])(entries[2].seq, entries[2].text.replace("bob", "eve"), entries[2].seal)
    kept = list(entries)
    with pytest.raises(TrailDamaged) as raised:
        agent_on(store, [], [paying(log)]).resume("r", decision=Approve())
    assert raised.value.seq == 2
    assert (store._entries["r"], log) == (kept, [])


def test_a_suspended_run_is_cancelled_from_anywhere() -> None:
    """Cancelling a stored run ends it durably; nobody can go on with it afterwards."""
    store, log = MemoryTrail(), new_log()
    agent_on(store, [call("pay", to="bob")], [paying(log)]).invoke("pay", RUN)
    other = agent_on(store, [], [paying(log)])
    assert other.cancel("r", "not needed any more")
    assert store.info("r").status == Status.CANCELLED
    assert not other.cancel("r")
    with pytest.raises(UnknownRun):
        other.resume("r", decision=Approve())


def test_a_run_that_a_crash_broke_off_is_cancelled_with_what_is_known_of_it() -> None:
    """Wherever the program died, whoever cancels the run keeps the reply and the results that are in its trail, and the audit agrees."""
    whole, log = MemoryTrail(), new_log()
    replies = [reply("", call("add", a=1, b=2), call("add", a=3, b=4)), "done"]
    first = agent_on(whole, replies, [adding(log)], limits=Limits(max_parallel=1))
    first.invoke("add", RUN)
    kinds = [one.kind for one in first.journal.entries("r")]
    replied = kinds.index("outcome") + 1
    for cut in range(1, kinds.index("started", kinds.index("result"))):
        store = broken_off(whole, cut)
        second = agent_on(store, [], [adding(log)], limits=Limits(max_parallel=1))
        assert second.cancel("r")
        assert store.info("r").status == Status.CANCELLED
        ctx = replay(second.journal.entries("r"), second.setup).folded.ctx
        assert ctx.model_calls == (cut >= replied)
        known = ["3", "7"][: kinds[:cut].count("result")]
        assert (ctx.tool_calls, [done.result.text for done in ctx.done]) == (len(known), known)
        assert audit(second.journal, "r", second.setup).findings == ()


def test_what_was_known_before_a_crash_stays_known_when_the_rest_is_cancelled() -> None:
    """One of two calls had its result; while the other is made again, the run is cancelled: the first is neither lost nor unknown."""
    whole = MemoryTrail()

    def looking(then: Callable[[], object]) -> Tool:
        @tool(idempotent=True)
        def look(where: str) -> str:
            """Look somewhere."""
            then()
            return f"seen {where}"

        return look

    replies = [reply("", call("look", where="here"), call("look", where="there")), "done"]
    first = agent_on(whole, replies, [looking(lambda: None)], limits=Limits(max_parallel=1))
    first.invoke("look", RUN)
    store = broken_off(whole, [one.kind for one in first.journal.entries("r")].index("result") + 1)
    release = threading.Event()
    hangs = looking(lambda: second.cancel("r") and release.wait(60))
    second = agent_on(store, [], [hangs], limits=Limits(max_parallel=1))
    result = second.resume("r")
    release.set()
    assert (result.status, [one.text for one in result.results]) == (Status.CANCELLED, ["seen here"])
    assert audit(second.journal, "r", second.setup).findings == ()


# ---------------------------------------------------------------- pauses and changes


def test_a_run_pauses_before_a_state_and_goes_on_with_other_arguments(tmp_path: Path) -> None:
    """Before EXECUTE a person changes what is called; the change is checked, in the trail, and what a replay sees."""
    log: list[Any] = []
    agent = agent_on(tmp_path / "runs.db", [call("add", a=1, b=2), "done"], [adding(log)]).pause_at("EXECUTE")
    paused = agent.invoke("add", RUN)
    assert (paused.status, paused.path()[-1], log) == (Status.SUSPENDED, State.EXECUTE, [])
    (waiting,) = (one.id for one in paused.upcoming)
    with pytest.raises(RunError, match="do not fit"):
        agent.resume("r", change=Change(arguments={waiting: {"a": "x"}}))
    with pytest.raises(RunError, match="nobody"):
        agent.resume("r", change=Change(arguments={"nobody": {}}))
    result = agent.resume("r", change=Change(arguments={waiting: {"a": 40, "b": 2}}), by="ann")
    assert (result.status, log, result.results[0].text) == (Status.COMPLETED, [(40, 2)], "42")
    assert audit(agent.journal, "r", agent.setup).findings == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: agent.resume("r", change={"limits": {"max_steps": 9}}),
        lambda agent: agent.resume("r", change=Change(limits=9)),  # type: ignore[arg-type]  # wrong on purpose
        lambda agent: agent.resume("r", change=Change(memory="full")),  # type: ignore[arg-type]  # as above
        lambda agent: agent.resume("r", change=Change(memory=Full)),  # type: ignore[arg-type]  # as above
        lambda agent: agent.resume("r", change=Change(arguments={"call_1_0": 9})),  # type: ignore[dict-item]  # as above
        lambda agent: agent.pause_at(after_step="2"),
    ],
)
def test_a_change_of_another_kind_leaves_the_run_paused(wrong: Callable[[Agent], object]) -> None:
    """Without a store, too, it is a named error before anything happens, and a right one goes on with the run."""
    agent = agent_on(None, [call("add", a=1, b=2), "done"], [adding(new_log())]).pause_at("EXECUTE")
    agent.invoke("add", RUN)
    with pytest.raises(FsmAgentError, match=r"give|no memory|counted from 1"):
        wrong(agent)
    assert agent.resume("r", change=Change(memory=Full())).status is Status.COMPLETED


def test_a_run_pauses_after_a_step_and_goes_on_under_other_limits() -> None:
    """After step 1 the limits and the memory are changed for the rest of this run, and of no other."""
    store, log = MemoryTrail(), new_log()
    script = [call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3), "done"]
    agent = agent_on(store, script, [adding(log)], limits=Limits(max_steps=2, on_limit="stop")).pause_at(after_step=1)
    assert agent.invoke("add", RUN).steps == 1
    result = agent.resume("r", change=Change(limits={"max_steps": 9}, memory=Full()))
    assert (result.status, len(log)) == (Status.COMPLETED, 3)
    assert agent.limits.max_steps == 2
    assert replay(agent.journal.entries("r"), agent.setup).folded.ctx.limits.max_steps == 9
    broken = agent_on(store, [call("add", a=1, b=1)], [adding(log)]).pause_at(after_step=1)
    broken.invoke("add", {"configurable": {"run_id": "b"}})
    with pytest.raises(DefinitionError, match="max_stepz"):
        broken.resume("b", change=Change(limits={"max_stepz": 9}))


@pytest.mark.parametrize("changed_by", ["a change", "an agent with other limits"])
def test_the_tools_go_by_the_limits_of_the_run(changed_by: str) -> None:
    """What a result may hold and how long a call may take is the run's own, whatever the agent that goes on with it has."""
    store, clock = MemoryTrail(), FakeClock()

    @tool(exclusive=True)
    def count(seconds: float) -> str:
        """Count for some time."""
        clock.advance(seconds)
        return "1234567890" * 10

    own, other = Limits(max_result_chars=50, tool_timeout=5), Limits()
    begun = other if changed_by == "a change" else own
    script = [[call("count", seconds=1), call("count", seconds=9)], "done"]
    agent_on(store, script, [count], limits=begun, clock=clock).pause_at("EXECUTE").invoke("count", RUN)
    change = Change(limits={"max_result_chars": 50, "tool_timeout": 5}) if changed_by == "a change" else None
    result = agent_on(store, script[1:], [count], limits=other, clock=clock).resume("r", change=change)
    assert (result.status, result.results[0].full) == (Status.COMPLETED, "1234567890" * 10)
    assert [one.type for one in result.messages if "within 5 seconds" in one.content] == ["tool"]


def test_a_run_without_a_store_pauses_too() -> None:
    """Pausing needs no file; the paused time is not the run's."""
    log: list[Any] = []
    clock = FakeClock()
    agent = agent_on(None, [call("add", a=1, b=1), "done"], [adding(log)], clock=clock, limits=Limits(deadline=10))
    agent.pause_at(State.EXECUTE)
    assert agent.invoke("add", RUN).status is Status.SUSPENDED
    clock.advance(3_600)
    assert agent.resume("r").status is Status.COMPLETED
    assert agent.pause_at()._pauses.states == frozenset()


@pytest.mark.parametrize(("states", "step"), [(["NOWHERE"], ()), (["FINISH"], ()), ([], 0), ([], -1)])
def test_where_no_run_can_pause_is_refused(states: list[str], step: Any) -> None:
    """An unknown or terminal state, and a step before the first, are wrong definitions."""
    with pytest.raises(DefinitionError):
        agent_on(None, [], []).pause_at(*states, after_step=step)


# ---------------------------------------------------------------- replay, forks, keys


def test_a_replay_stops_where_it_is_told() -> None:
    """Time travel: up to transition 3 the context is what it was then; a transition that is not there is named."""
    store, log = MemoryTrail(), new_log()
    agent = agent_on(store, [call("add", a=1, b=2), "done"], [adding(log)])
    result = agent.invoke("add", RUN)
    entries = agent.journal.entries("r")
    there = replay(entries, agent.setup, to=3)
    assert (there.folded.state, there.folded.ctx.tool_calls, len(there.turns)) == (State.OBSERVE, 1, 3)
    assert len(replay(entries).turns) == len(result.transitions)
    assert log == [(1, 2)]
    with pytest.raises(RunError, match="99"):
        replay(entries, to=99)


def test_a_fork_goes_its_own_way_and_repeats_nothing_silently() -> None:
    """A fork has the past of its parent; a call that the parent made after that point needs a person's yes."""
    store, log = MemoryTrail(), new_log()
    agent = agent_on(store, [call("add", a=1, b=2), call("add", a=5, b=5), "done"], [adding(log)])
    agent.invoke("add", RUN)
    parent = store.read("r")
    fork(agent.journal, "r", at=5, new_run_id="f")
    other = agent_on(store, [call("add", a=5, b=5), call("add", a=9, b=9), "forked"], [adding(log)])
    waiting = other.resume("f")
    assert (waiting.status, log) == (Status.SUSPENDED, [(1, 2), (5, 5)])
    result = other.resume("f", decision=Approve())
    assert (result.answer, log[2:]) == ("forked", [(5, 5), (9, 9)])
    assert (store.read("r"), result.run_id) == (parent, "f")
    assert audit(other.journal, "f", other.setup).findings == ()
    for odd in ("", "a\nb", "\ud83d", 5):
        with pytest.raises(RunError, match="id of the fork"):
            fork(agent.journal, "r", at=5, new_run_id=odd)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(RunError, match="ended"):
        fork(agent.journal, "r", at=len(replay(agent.journal.entries("r")).turns), new_run_id="g")


def test_a_sealed_and_encrypted_run_needs_its_keys() -> None:
    """With a key nothing of the task is readable in the store; the wrong key, and none, are told apart from damage."""
    pytest.importorskip("cryptography")
    from cryptography.fernet import Fernet  # an extra

    store, log = MemoryTrail(), new_log()
    keys: dict[str, Any] = {
        "chain": HmacChain(b"0123456789abcdef"),
        "cipher": FernetCipher([Fernet.generate_key().decode()]),
    }
    agent_on(store, [call("pay", to="zebra")], [paying(log)], **keys).invoke("pay the zebra", RUN)
    assert not any("zebra" in one.text for one in store.read("r"))
    with pytest.raises(RunError, match="hmac-sha256"):
        agent_on(store, [], [paying(log)], cipher=keys["cipher"], chain=Sha256Chain()).resume("r")
    with pytest.raises(RunError, match="FSM_AGENT_TRAIL_ENCRYPTION_KEY"):
        agent_on(store, [], [paying(log)], chain=keys["chain"]).resume("r")
    assert agent_on(store, ["done"], [paying(log)], **keys).resume("r", decision=Approve()).status is Status.COMPLETED


def test_a_large_result_is_kept_once_and_comes_back() -> None:
    """What is too long for an entry is a value beside it, by its digest; the fold reads it as if it stood there."""
    store = MemoryTrail()

    @tool(max_result_chars=100)
    def dump() -> str:
        """Give much."""
        return "x" * 300_000

    agent = agent_on(store, [call("dump"), "done"], [dump])
    result = agent.invoke("go", RUN)
    assert max(len(one.text) for one in store.read("r")) < 70_000
    again = replay(agent.journal.entries("r"), agent.setup).folded
    assert again.ctx.done[0].result.full == "x" * 300_000 == result.results[0].full


# ---------------------------------------------------------------- after a crash


def test_the_wait_before_a_retry_goes_on_where_it_was() -> None:
    """A backoff that a crash broke off ends when it was to end, not later."""
    store, clock = MemoryTrail(), FakeClock()

    class Crash(BaseException):
        pass

    def crash(seconds: float) -> None:
        raise Crash

    limits = Limits(backoff=20, jitter=0, max_retries=1)
    dying = FakeClock(on_sleep=crash)
    journal_agent = agent_on(store, [RuntimeError("down")], [], limits=limits, clock=dying)
    run = new_run(journal_agent, "go", "r")
    assert run.trail is not None
    with pytest.raises(Crash):
        _drive_until_wait(journal_agent, run)
    clock.advance(dying.time() - clock.time() + 15)
    store._infos["r"] = _free(store)
    result = agent_on(store, ["up"], [], limits=limits, clock=clock).resume("r")
    assert (result.status, result.answer) == (Status.COMPLETED, "up")
    assert clock.slept == [pytest.approx(5.0)]
    assert result.model_calls == 2


def _free(store: MemoryTrail) -> Any:
    return replace(store.info("r"), owner="", lease=0.0)


def _drive_until_wait(agent: Agent, run: Any) -> None:
    """Drive a run by hand, as a process that dies in the middle of a wait leaves it."""
    core = drive(run)
    item = next(core)
    while True:
        if isinstance(item, Transitioned):
            item = next(core)
            continue
        begin(run, item, asks_here=False, tools=agent.tools).result()
        if isinstance(item, Wait):
            run.job.clock.sleep(item.seconds)
        item = core.send(ModelFailed(error="E", message="down", retryable=True, at=run.job.now()))


async def test_a_stored_run_goes_on_on_the_event_loop(tmp_path: Path) -> None:
    """`aresume` is `resume`; sixteen runs on one file from tasks, each its own."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    agents = [agent_on(path, [call("pay", to=f"p{number}"), "done"], [paying(log)]) for number in range(16)]
    configs: list[Any] = [{"configurable": {"run_id": f"r{number}"}} for number in range(16)]
    waiting = await asyncio.gather(*(one.ainvoke("pay", config) for one, config in zip(agents, configs, strict=True)))
    assert {one.status for one in waiting} == {Status.SUSPENDED}
    ended = await asyncio.gather(*(one.aresume(f"r{number}", decision=Approve()) for number, one in enumerate(agents)))
    assert {one.status for one in ended} == {Status.COMPLETED}
    assert sorted(log) == sorted((f"p{number}", 1) for number in range(16))
    store = SQLiteTrail(path)
    assert {one.status for one in store.runs()} == {Status.COMPLETED}


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """A turn that was suspended and resumed elsewhere is part of its thread, like any other."""
    log: list[Any] = []
    path = tmp_path / "runs.db"
    config: Any = {"configurable": {"run_id": "r", "thread_id": "t"}}
    agent_on(path, [call("pay", to="bob")], [paying(log)], memory=Window(rounds=9)).invoke("pay bob", config)
    agent_on(path, ["bob is paid"], [paying(log)], memory=Window(rounds=9)).resume("r", decision=Approve())
    model = ScriptedModel(["yes"])
    later = Agent(model, [paying(log)], store=path, memory=Window(rounds=9), logger=silent_logger())
    later.invoke("is bob paid?", {"configurable": {"thread_id": "t"}})
    assert [str(one.content) for one in model.requests[0].messages][1] == "pay bob"
    assert "bob is paid" in [str(one.content) for one in model.requests[0].messages]
