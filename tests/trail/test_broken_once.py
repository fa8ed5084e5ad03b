"""What a hostile reader of the trail has broken once: each stays mended."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from fsm_agent import Agent, Answer, Approve, Deny, Edit, Limits, RunError, State, Status, Tool, Window, runs, tool
from fsm_agent import agent as agent_module
from fsm_agent.errors import RunBusy, RunHeld, TrailError
from fsm_agent.observe import silent_logger
from fsm_agent.records import Transitioned
from fsm_agent.testing import FakeClock, ScriptedModel, call
from fsm_agent.trail import MemoryTrail, Sha256Chain
from fsm_agent.trail.audit import audit
from fsm_agent.trail.chain import GENESIS
from fsm_agent.trail.changes import Change
from fsm_agent.trail.codec import record_data
from fsm_agent.trail.entries import Stored, canonical_json
from fsm_agent.trail.fork import fork
from fsm_agent.trail.store import RUNNING, Batch, RunInfo
from fsm_agent.trail.writer import TrailWriter
from tests.report.runs import resealed

RUN: Any = {"configurable": {"run_id": "r"}}
HALVES = "\ud83d" + "\ude00"
"""One emoji, as a client that cuts text between two chunks leaves it."""


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Remembered(MemoryTrail):
    """A store that can be had as it was after each of its appends."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[MemoryTrail] = []

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append, and keep a copy that nobody holds."""
        done = super().append(batch)
        copy = MemoryTrail()
        copy._entries = {name: list(entries) for name, entries in self._entries.items()}
        copy._infos = {name: dataclasses.replace(info, owner="", lease=0.0) for name, info in self._infos.items()}
        copy._values = dict(self._values)
        self.moments.append(copy)
        return done


class Failing(MemoryTrail):
    """A store whose append number `at` fails, once."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self._left = at
        self._error = error

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append, or fail."""
        self._left -= 1
        if self._left:
            return super().append(batch)
        failed: Future[None] = Future()
        failed.set_exception(self._error)
        return failed


def agent_on(store: MemoryTrail, replies: list[Any], *tools: Tool, **options: Any) -> Agent:
    """An agent that says nothing."""
    return Agent(ScriptedModel(replies), list(tools), store=store, logger=silent_logger(), **options)


def findings(agent: Agent, run_id: str = "r") -> tuple[Any, ...]:
    """What an audit by the agent itself finds."""
    return audit(agent.journal, run_id, agent.setup).findings


def test_a_run_that_pauses_before_review_can_be_approved() -> None:
    """A pause before a state is over once its effect has begun: the decision that comes later is not lost to it."""
    agent = agent_on(MemoryTrail(), [call("pay", to="bob"), "done"], pay).pause_at("REVIEW")
    agent.invoke("pay bob", RUN)
    assert agent.resume("r").requests
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
    assert findings(agent) == ()


def test_arguments_of_a_call_that_was_begun_cannot_be_changed() -> None:
    """After a crash in EXECUTE a person is asked about the call that was begun, not about one that a pause let be changed."""
    store = Remembered()
    agent_on(store, [call("add", a=1, b=2), "done"], add).invoke("add", RUN)
    begun = next(one for one in store.moments if '"effect":"call_tools"' in one.read("r")[-1].text)
    agent = agent_on(begun, ["done"], add).pause_at("EXECUTE")
    with pytest.raises(RunError, match="paused before EXECUTE"):
        agent.resume("r", change=Change(arguments={"call_1_0": {"a": 5, "b": 5}}))
    assert agent.resume("r").requests[0].arguments == {"a": 1, "b": 2}


def test_a_clock_that_was_set_back_makes_no_wait_longer() -> None:
    """The rest of a wait is never more than the whole of it, and what was written down can be read again."""
    failed: list[int] = []

    @tool(idempotent=True)
    def flaky() -> str:
        """Fail once."""
        failed.append(1)
        if len(failed) == 1:
            raise OSError("no")
        return "ok"

    store = Remembered()
    agent_on(store, [call("flaky"), "done"], flaky, clock=FakeClock(), limits=Limits(backoff=5)).invoke("go", RUN)
    waiting = next(one for one in store.moments if '"effect":"wait"' in one.read("r")[-1].text)
    clock = FakeClock(epoch=1_767_225_600.0 - 3600)
    agent = agent_on(waiting, ["done"], flaky, clock=clock)
    assert agent.resume("r").status is Status.COMPLETED
    assert sum(clock.slept) < 6
    assert findings(agent) == ()


def test_a_fork_of_a_fork_keeps_what_the_first_fork_asked_people() -> None:
    """A fork of a fork folds wherever it begins: the recorded approvals stay asked for from where they were."""
    store = MemoryTrail()
    agent = agent_on(store, [call("add", a=1, b=2), call("add", a=2, b=2), "done"], add)
    agent.invoke("add", RUN)
    fork(agent.journal, "r", at=5, new_run_id="first")
    again = agent_on(store, [call("add", a=2, b=2), call("add", a=3, b=2), "done"], add)
    assert again.resume("first").requests
    ended = again.resume("first", decision=Approve())
    forks = [one.seq for one in ended.transitions[:-1] if one.target is not State.EXECUTE]
    for seq in forks:
        fork(again.journal, "first", at=seq, new_run_id=f"second {seq}")
        assert findings(again, f"second {seq}") == ()
    assert len(forks) == 14


@pytest.mark.parametrize("decision", [Approve(), Edit({"to": "ann"}), None], ids=["approved", "edited", "nobody"])
def test_a_fork_makes_no_call_again_that_had_been_let_through(decision: Any) -> None:
    """From no transition of a run does a fork make a call of that run again unasked: where it had been let through, it is refused."""
    store, made = MemoryTrail(), list[str]()

    @tool(idempotent=True)
    def look(at: str) -> str:
        """Look; the first time in vain."""
        made.append(at)
        if len(made) == 1:
            raise OSError("no")
        return at

    @tool(requires_approval=decision is not None)
    def send(to: str) -> str:
        """Send to somebody."""
        made.append(to)
        return f"sent to {to}"

    asked = [call("look", at="sky"), [call("send", to="bob"), call("look", at="sea")], "done"]
    options: Any = {"clock": FakeClock(), "limits": Limits(backoff=0.1)}
    agent = agent_on(store, asked, look, send, **options)
    ended = agent.invoke("go", RUN)
    if decision is not None:
        ended = agent.resume("r", decision=decision)
    assert (ended.status, len(made)) == (Status.COMPLETED, 4)
    refused = []
    for seq in range(len(ended.transitions)):
        try:
            fork(agent.journal, "r", at=seq, new_run_id=f"f{seq}")
        except RunError as error:
            refused.append(seq)
            free = int(str(error).rpartition(" ")[2])
            assert free not in (*refused, seq)
            assert free == max(set(range(seq)) - set(refused))
            continue
        on = agent_on(store, ["done"], look, send, **options)
        if on.resume(f"f{seq}").status is Status.SUSPENDED:
            assert on.resume(f"f{seq}", decision=Deny("not again")).status is Status.COMPLETED
        assert len(made) == 4, seq
    # RETRY makes a call again that nobody looks at: from where it was let through first to where it is made.
    first = [one.seq for one in ended.transitions if one.target is State.EXECUTE][1]
    assert refused[:5] == list(range(2, first + 1))
    assert refused[5:], "the second batch is let through too"


def test_a_fork_where_nothing_followed_goes_on_with_what_was_let_through() -> None:
    """A call that was let through and never made is made in the fork: it repeats nothing."""
    agent = agent_on(MemoryTrail(), [call("add", a=1, b=2), "done"], add).pause_at("EXECUTE")
    agent.invoke("add", RUN)
    fork(agent.journal, "r", at=2, new_run_id="f")
    agent.pause_at()
    assert agent.resume("f").answer == "done"


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_run_that_is_cancelled_before_a_person_is_asked_is_cancelled_in_its_trail(how: str) -> None:
    """What the caller is told has ended does not wait in the store for a yes."""

    def on_review(record: Transitioned) -> None:
        if record.target is State.REVIEW:
            agent.cancel("r", "enough")

    model = ScriptedModel([call("pay", to="bob")])
    agent = Agent(model, [pay], store=MemoryTrail(), logger=silent_logger(), observers=[on_review])
    result = agent.invoke("pay", RUN) if how == "invoke" else asyncio.run(agent.ainvoke("pay", RUN))
    assert result.status is Status.CANCELLED
    assert agent.journal.store.info("r").status == "cancelled"
    assert findings(agent) == ()


class Written(MemoryTrail):
    """A store in which something happens before or after a run is written down as suspended, while its writer waits for that."""

    def __init__(self, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self._acts = [before, after]

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append, with what happens meanwhile on another thread."""
        before, after = self._acts if batch.status == Status.SUSPENDED else (None, None)
        if before is not None or after is not None:
            self._acts = [None, None]
        self._act(before)
        done = super().append(batch)
        self._act(after)
        return done

    def _act(self, act: Any) -> None:
        if act is not None:
            acting = threading.Thread(target=act)
            acting.start()
            acting.join()


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_cancelled_while_it_is_given_back_is_cancelled_in_its_trail(how: str, when: str) -> None:
    """A cancel from another thread, while it is written down that the run waits, is in the trail as in the result."""
    store = Written(**{when: lambda: agent.cancel("r", "enough")})
    agent: Agent = agent_on(store, [call("pay", to="bob")], pay)
    result = agent.invoke("pay", RUN) if how == "invoke" else asyncio.run(agent.ainvoke("pay", RUN))
    assert (result.status, store.info("r").status, store.info("r").owner) == (Status.CANCELLED, "cancelled", "")
    assert findings(agent) == ()
    assert not agent.cancel("r")


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_cancelled_run_that_others_went_on_with_is_left_to_them(how: str) -> None:
    """Somebody elsewhere decides as soon as the run waits, and then it is cancelled here: the result says that it waited."""

    def elsewhere() -> None:
        agent_on(store, ["paid"], pay).resume("r", decision=Approve())
        agent.cancel("r", "enough")

    store = Written(after=elsewhere)
    agent = agent_on(store, [call("pay", to="bob")], pay)
    result = agent.invoke("pay", RUN) if how == "invoke" else asyncio.run(agent.ainvoke("pay", RUN))
    assert (result.status, store.info("r").status, store.info("r").owner) == (Status.SUSPENDED, "completed", "")
    assert findings(agent) == ()


def test_an_event_loop_goes_on_while_a_store_hangs() -> None:
    """A run whose task is cancelled waits for its end to be written down, and nothing else on the event loop waits with it."""
    hanging: list[Future[None]] = []

    class Hanging(MemoryTrail):
        def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
            if batch.status != Status.CANCELLED:
                return super().append(batch)
            hanging.append(Future())
            return hanging[0]

    async def main() -> None:
        begun = asyncio.Event()

        async def never(request: Any) -> str:
            begun.set()
            await asyncio.Event().wait()
            return "never"

        running = asyncio.ensure_future(agent_on(Hanging(), [never]).ainvoke("go", RUN))
        await begun.wait()
        running.cancel()
        async with asyncio.timeout(10):
            while not hanging:
                await asyncio.sleep(0)
        assert not running.done()
        hanging[0].set_result(None)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


@pytest.mark.parametrize("decision", [Answer(f"so {HALVES}"), Deny(f"no {HALVES}")], ids=["answer", "deny"])
def test_halves_of_a_character_are_joined(decision: Any) -> None:
    """A task and the words of a person may hold a character in two halves; the trail is read as it was written."""
    agent = agent_on(MemoryTrail(), [call("pay", to="bob"), f"done {HALVES}"], pay)
    agent.invoke(f"pay {HALVES}", RUN)
    assert agent.resume("r", decision=decision, by=HALVES).status is Status.COMPLETED
    assert findings(agent) == ()


def test_a_run_id_that_no_file_can_name_is_refused() -> None:
    """Half of a character in a run id is refused before anything happens, with every store alike."""
    with pytest.raises(RunError, match="half of a character"):
        agent_on(MemoryTrail(), ["done"]).invoke("go", {"configurable": {"run_id": "\ud83d"}})


@pytest.mark.parametrize("error", [TrailError("the disk is full"), KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("at", [2, 3, 4])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
def test_a_run_is_not_held_after_its_store_failed(at: int, error: BaseException, mode: str) -> None:
    """When a write fails the caller is told, and nobody holds the run: it goes on from what is there, with no call made twice."""
    log: list[int] = []

    @tool
    def once(a: int) -> str:
        """Do it."""
        log.append(a)
        return "done"

    store = Failing(at, error)
    agent = agent_on(store, [call("once", a=1), "done", "done"], once)
    with pytest.raises(type(error)):
        agent.invoke("go", RUN) if mode == "invoke" else asyncio.run(agent.ainvoke("go", RUN))
    assert store.info("r").owner == ""
    assert agent.resume("r").status in (Status.COMPLETED, Status.SUSPENDED)
    assert len(log) <= 1


def test_a_decision_that_could_not_be_kept_leaves_the_run_free() -> None:
    """A person whose decision about one of two calls met a failing store can decide again."""
    store = Failing(4, TrailError("the disk is full"))
    agent = agent_on(store, [[call("pay", to="a"), call("pay", to="b")], "done"], pay)
    first = agent.invoke("pay both", RUN).requests[0].call_id
    assert store.info("r").owner == ""
    store._left = 1
    with pytest.raises(TrailError, match="full"):
        agent.resume("r", decision={first: Approve()})
    assert store.info("r").owner == ""
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED


def test_a_result_that_comes_after_the_run_was_stopped_is_not_written_down() -> None:
    """A call of a cancelled batch may end at any time, while an observer still looks; the trail stays one that folds."""
    begun, go, kept = threading.Event(), threading.Event(), threading.Event()

    @tool
    def slow(i: int) -> str:
        """Take long."""
        begun.set()
        go.wait(10)
        return f"{i}"

    def observer(record: Transitioned) -> None:
        if record.target == "ABORT":
            go.set()
            kept.wait(10)

    agent = agent_on(MemoryTrail(), [[call("slow", i=0), call("slow", i=1)], "done"], slow, observers=[observer])
    stopping = threading.Thread(target=lambda: (begun.wait(10), agent.cancel("r")))
    stopping.start()
    add = TrailWriter.add

    def adds(self: TrailWriter, kind: Any, body: Any) -> bool:
        added = add(self, kind, body)
        if kind == "result":
            kept.set()
        return added

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrailWriter, "add", adds)
        assert agent.invoke("go", RUN).status is Status.CANCELLED
    stopping.join()
    assert findings(agent) == ()


def test_a_resume_that_is_cancelled_while_it_takes_the_run_leaves_it_as_it_was() -> None:
    """Whoever cancels `aresume` while the store answers leaves the run suspended, for anybody to resume."""
    claimed, go, back = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryTrail):
        def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
            info = super().claim(run_id, owner, lease, time)
            claimed.set()
            go.wait(10)
            return info

        def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
            done = super().append(batch)
            if claimed.is_set() and not batch.entries:
                back.set()
            return done

    store = Slow()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)

    async def cancelled() -> None:
        resuming = asyncio.ensure_future(agent.aresume("r", decision=Approve()))
        await asyncio.to_thread(claimed.wait, 10)
        resuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        go.set()
        await asyncio.to_thread(back.wait, 10)

    asyncio.run(cancelled())
    assert (store.info("r").owner, store.info("r").status) == ("", Status.SUSPENDED)
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED


def test_a_memory_that_the_trail_cannot_give_back_is_refused() -> None:
    """A change to a memory of somebody's own is refused before it is written, because no later process could read on."""

    class Own(Window):
        pass

    store = MemoryTrail()
    agent = agent_on(store, [call("add", a=1, b=2), "done"], add).pause_at("EXECUTE")
    agent.invoke("add", RUN)
    with pytest.raises(RunError, match="cannot keep the memory Own"):
        agent.resume("r", change=Change(memory=Own(rounds=2)))
    assert store.info("r").owner == ""
    assert agent.resume("r", change=Change(memory=Window(rounds=2))).status is Status.COMPLETED


def test_a_run_goes_on_beside_tools_that_were_registered_since() -> None:
    """New tools, and another order of the old ones, keep no stored run from going on: it knows those that it began with."""

    @tool
    def newer(text: str) -> str:
        """Do something new."""
        return text

    store = MemoryTrail()
    agent_on(store, [call("pay", to="bob"), "done"], pay, add).invoke("pay", RUN)
    agent = agent_on(store, ["done"], newer, add, pay)
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
    assert findings(agent) == ()


@pytest.mark.parametrize(
    "given",
    [
        [HumanMessage(f"go {HALVES}")],
        [SystemMessage(f"be {HALVES}"), HumanMessage([{"type": "text", "text": f"go {HALVES}"}])],
    ],
    ids=["text", "parts"],
)
def test_messages_with_halves_of_a_character_are_read_back(given: Any) -> None:
    """Messages given as input may hold a character in two halves, whatever their form."""
    agent = agent_on(MemoryTrail(), ["done"])
    assert agent.invoke(given, RUN).status is Status.COMPLETED
    assert findings(agent) == ()


@pytest.mark.parametrize("mode", ["resume", "aresume"])
def test_somebody_who_decides_in_place_is_asked_again_after_a_crash(mode: str) -> None:
    """An agent with `approve=` goes on with a run that was killed while its approver was asked, and need not be given the decision."""
    store = Remembered()
    agent_on(store, [call("pay", to="bob"), "done"], pay, approve=lambda _: True).invoke("pay", RUN)
    asked = next(one for one in store.moments if '"effect":"ask_human"' in one.read("r")[-1].text)
    agent = agent_on(asked, ["done"], pay, approve=lambda _: True)
    result = agent.resume("r") if mode == "resume" else asyncio.run(agent.aresume("r"))
    assert result.status is Status.COMPLETED
    assert findings(agent) == ()


@pytest.mark.parametrize("field", [{"status": "completed"}, {"thread_id": "another"}], ids=["status", "thread"])
def test_an_audit_compares_what_the_store_notes_beside_the_trail(field: dict[str, Any]) -> None:
    """A run that is noted as ended, or under another conversation, is found, although no seal covers the note."""
    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    assert findings(agent) == ()
    store._infos["r"] = dataclasses.replace(store._infos["r"], **field)
    assert ["the store notes" in one.what for one in findings(agent)] == [True]


def test_an_audit_of_a_run_that_goes_on_meanwhile_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store notes is compared with the trail only when no entry has come since that was read."""
    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    read = store.read("r")
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
    monkeypatch.setattr(store, "read", lambda _: read)
    assert findings(agent) == ()


@pytest.mark.parametrize("field", [{"status": "completed"}, {"reason": "deadline"}], ids=["status", "reason"])
def test_an_audit_finds_a_failure_that_the_store_notes_as_another_ending(field: dict[str, Any]) -> None:
    """How a run has ended is what its trail gives: a note of another status or reason, which lists show, is found."""
    store = MemoryTrail()
    agent = agent_on(store, [call("add", a=1, b=1)], add, limits=Limits(max_steps=1, on_limit="stop"))
    assert agent.invoke("add", RUN).status is Status.FAILED
    assert findings(agent) == ()
    store._infos["r"] = dataclasses.replace(store._infos["r"], **field)
    assert ["by its trail it is failed (max_steps)" in one.what for one in findings(agent)] == [True]


@pytest.mark.parametrize(
    ("seq", "field", "value"),
    [
        (0, "fingerprint", None),
        (0, "setup", 3),
        (1, "value", ["x"]),
        (-1, "guards", None),
        (-1, "guards", [1]),
        (-1, "target", ["FINISH"]),
    ],
)
def test_an_audit_names_the_entry_of_a_rewritten_trail_whatever_it_holds(seq: int, field: str, value: Any) -> None:
    """A trail sealed anew by somebody else may hold any JSON: what is wrong with it is a finding, never an exception."""
    store = MemoryTrail()
    agent = agent_on(store, ["done"])
    agent.invoke("go", RUN)
    seal, chain, rewritten = GENESIS, Sha256Chain(), []
    entries = agent.journal.entries("r")
    for entry in entries:
        body = dict(entry.body)
        if entry is entries[seq]:
            body = {"bytes": 1, field: value} if field == "value" else {**body, field: value}
        line = {"run": "r", "seq": entry.seq, "kind": entry.kind, "time": entry.time, "body": body}
        seal = chain.seal(seal, canonical_json(line))
        rewritten.append(Stored(entry.seq, canonical_json(line), seal))
    store._entries["r"], store._infos["r"] = rewritten, dataclasses.replace(store._infos["r"], head=seal)
    assert {one.seq for one in findings(agent)} == {entries[seq].seq}


@pytest.mark.parametrize("kept", [{"tools": [{}]}, {"tools": 3}, {"tools": [3]}, b"\xff", b"{}"])
def test_an_audit_without_code_names_a_rewritten_entry(kept: dict[str, Any] | bytes) -> None:
    """Tools that are none, and a value that is no text, are findings too where no agent is given: one run ends no audit of a store."""
    store = MemoryTrail()
    agent = agent_on(store, ["done"])
    agent.invoke("go", RUN)
    bodies = {one.seq: one.body for one in agent.journal.entries("r")}
    if isinstance(kept, bytes):
        digest = hashlib.sha256(kept).hexdigest()
        store._values[digest] = kept
        bodies[1] = {"value": digest, "bytes": len(kept)}
    else:
        bodies[0] = {**bodies[0], "setup": {**bodies[0]["setup"], **kept}}
    texts = [
        canonical_json({"run": "r", "seq": one.seq, "kind": one.kind, "time": one.time, "body": bodies[one.seq]})
        for one in agent.journal.entries("r")
    ]
    store._entries["r"] = resealed(texts)
    store._infos["r"] = dataclasses.replace(store._infos["r"], head=store._entries["r"][-1].seal)
    assert {one.seq for one in audit(agent.journal, "r").findings} == {1 if isinstance(kept, bytes) else 0}


def test_a_change_does_not_stand_in_for_a_decision() -> None:
    """Arguments of a call that waits before REVIEW are not changed: the person who is asked there decides about what was asked for."""
    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay).pause_at("REVIEW")
    waiting = agent.invoke("pay", RUN).upcoming[0].id
    with pytest.raises(RunError, match="paused before EXECUTE"):
        agent.resume("r", change=Change(arguments={waiting: {"to": "eve"}}))
    assert [one.arguments for one in agent.resume("r").requests] == [{"to": "bob"}]


def test_an_id_that_is_stored_already_is_told_as_what_it_is() -> None:
    """Beginning a run under the id of a stored one says so and what to do, and leaves the stored one as it was."""
    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    with pytest.raises(
        RunHeld, match=r"stored here already \(suspended\): give each run an id of its own, or .*resume\('r'\)"
    ):
        agent.invoke("something else", RUN)
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED


def test_a_wrong_decision_does_not_free_the_thread() -> None:
    """A run that goes on waiting after a decision that does not fit keeps its conversation, so that nobody answers in between."""
    agent = agent_on(MemoryTrail(), [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", {"configurable": {"run_id": "r", "thread_id": "t"}})
    with pytest.raises(RunError, match="nobody asked about other"):
        agent.resume("r", decision={"other": Approve()})
    with pytest.raises(RunBusy, match="in use by run r"):
        agent.invoke("something else", {"configurable": {"thread_id": "t"}})
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED


def test_an_interrupt_while_a_run_is_claimed_leaves_it_free() -> None:
    """Ctrl-C may come when the store has the claim and the caller does not know of it yet: nobody holds the run then."""

    class Interrupted(MemoryTrail):
        def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
            super().claim(run_id, owner, lease, time)
            raise KeyboardInterrupt

    store = Interrupted()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    with pytest.raises(KeyboardInterrupt):
        agent.resume("r", decision=Approve())
    assert (store.info("r").owner, store.info("r").status) == ("", Status.SUSPENDED)


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("where", ["record_data", "seal"])
def test_an_interrupt_in_the_middle_of_a_move_tears_no_trail(
    number: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the move and its entry, or while that is sealed, leaves the trail as a crash there would: whole, free, resumable."""
    left = [number]

    def interrupted(call_it: Any) -> Any:
        def once(*args: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return call_it(*args)

        return once

    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    if where == "seal":
        monkeypatch.setattr(Sha256Chain, "seal", interrupted(Sha256Chain.seal))
    else:
        monkeypatch.setattr(runs, "record_data", interrupted(record_data))
    with pytest.raises(KeyboardInterrupt):
        agent.resume("r", decision=Approve())
    assert store.info("r").owner == ""
    assert findings(agent) == ()
    monkeypatch.undo()
    again = agent_on(store, ["done", "done"], pay)
    while store.info("r").status in (RUNNING, Status.SUSPENDED):
        again.resume("r", decision=Approve() if store.info("r").status == Status.SUSPENDED else None)
    assert (store.info("r").status, findings(again)) == (Status.COMPLETED, ())


def test_an_interrupt_before_a_resumed_run_goes_on_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between taking a run and going on with it, where nothing of the run can let go, leaves it free and waiting."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    store = MemoryTrail()
    agent = agent_on(store, [call("pay", to="bob"), "done"], pay)
    agent.invoke("pay", RUN)
    monkeypatch.setattr(agent_module, "driven_to_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.resume("r", decision=Approve())
    monkeypatch.undo()
    assert store.info("r").owner == ""
    assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
