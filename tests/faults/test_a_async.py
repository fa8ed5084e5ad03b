"""Family A: event loops, threads, context variables, and events from elsewhere."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI

from fsm_agent import Approve, Event, RunError, State, Status, StopReason, Token, tool
from fsm_agent.errors import RunBusy, UnknownRun
from fsm_agent.testing import ScriptedModel, call, server
from tests.faults.kit import PATIENCE, WAYS, Ledger, Seen, answers_in, client, consistent, in_thread, make, run

RUN: RunnableConfig = {"configurable": {"run_id": "r", "thread_id": "t"}}


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


async def aadd(a: int, b: int) -> str:
    """Add, without blocking."""
    await asyncio.sleep(0)
    return str(a + b)


# ---------------------------------------------------------------- A02 stopping from another task


async def test_a02_stop_during_execute_is_a_typed_ending_of_the_first_caller() -> None:
    """Cancelled from another task, the tool really stops, and the caller gets a cancelled result, not a bare False."""
    started, cleaned = asyncio.Event(), []

    async def slow() -> str:
        """Take long."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return "never"

    seen = Seen()
    with ScriptedModel([call("slow")]) as model:
        agent = make(model, [slow], observers=[seen])
        task = asyncio.ensure_future(agent.ainvoke("go", RUN))
        await started.wait()
        assert agent.cancel("r", "not needed any more") is True
        result = await task
    assert (result.status, result.reason, result.answer) == (Status.CANCELLED, StopReason.CANCELLED, None)
    assert cleaned == [True]
    assert (seen.records[-1].source, seen.records[-1].event, seen.records[-1].target) == (
        State.EXECUTE,
        Event.CANCELLED,
        State.ABORT,
    )
    assert consistent(seen.records)
    assert agent.cancel("r") is False


async def test_a02_a_second_run_never_cancels_the_first() -> None:
    """Five runs started at once on one agent: each has its own ending."""
    by_task: dict[str, Any] = {f"task-{number}": [call("aadd", a=number, b=1), f"done-{number}"] for number in range(5)}
    with ScriptedModel(by_task=by_task) as model:
        agent = make(model, [aadd])
        results = await asyncio.gather(*(agent.ainvoke(f"task-{number}") for number in range(5)))
    assert [result.answer for result in results] == [f"done-{number}" for number in range(5)]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a02_stop_reaches_a_sync_run_in_any_tool(batch: int, kind: str, watched: bool) -> None:
    """The same for `invoke`, cancelled from a plain thread, with sync and async tools, alone and in a batch."""
    started, release = threading.Semaphore(0), threading.Event()

    @tool("slow")
    def slow(n: int) -> str:
        """Take long."""
        started.release()
        release.wait(PATIENCE)
        return "late"

    @tool("slow")
    async def aslow(n: int) -> str:
        """Take long."""
        started.release()
        while not release.is_set():
            await asyncio.sleep(0.005)
        return "late"

    with ScriptedModel([[call("slow", n=number) for number in range(batch)]]) as model:
        agent = make(model, [slow if kind == "sync" else aslow], observers=[Seen()] if watched else [])
        join = in_thread(lambda: agent.invoke("go", RUN))
        for _ in range(batch):
            assert started.acquire(timeout=PATIENCE)
        assert agent.cancel("r") is True
        result = join()
    release.set()
    assert (result.status, result.reason) == (Status.CANCELLED, StopReason.CANCELLED)
    assert consistent(result.transitions)
    assert [one.text.count("unknown") for one in result.messages if one.type == "tool"] == [1] * batch


# ---------------------------------------------------------------- A03 event loops that come and go


@pytest.mark.parametrize("given", [add, aadd], ids=["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_a03_one_agent_runs_again_and_again(way: str, given: Any) -> None:
    """Two runs in one process, each async one on a loop of its own."""
    script = [[call(given.__name__, a=1, b=2), call(given.__name__, a=3, b=4)], "done"] * 2
    with ScriptedModel(script) as model:
        agent = make(model, [given])
        assert [run(agent, "go", way).answer for _ in range(2)] == ["done", "done"]


@pytest.mark.parametrize("way", WAYS)
def test_a03_the_real_client_outlives_its_first_loop(way: str) -> None:
    """A real client whose first event loop was closed serves the next run, also after runs of another kind."""
    with server([call("aadd", a=1, b=2), "one", call("aadd", a=3, b=4), "two", "three"]) as s:
        agent = make(ChatOpenAI(base_url=s.base_url, api_key="none", model="fake"), [aadd])
        assert run(agent, "go", way).answer == "one"
        assert run(agent, "go", way).answer == "two"
        assert run(agent, "go", "invoke").answer == "three"


async def test_a03_a_sync_run_inside_a_running_loop_works() -> None:
    """In a notebook, where a loop is running, `invoke` and `stream` work too: tools and model never touch that loop."""
    script = [[call("add", a=1, b=2), call("aadd", a=3, b=4)], call("aadd", a=5, b=6), "done"]
    with ScriptedModel([*script, *script]) as model:
        agent = make(model, [add, aadd])
        assert agent.invoke("go").answer == "done"
        assert list(agent.stream("go"))[-1].answer == "done"
    assert [message.text for message in answers_in(model.requests[2])] == ["3", "7", "11"]


def test_a03_runs_in_threads_with_and_without_loops() -> None:
    """Runs in plain threads, one with a loop of its own, one without."""
    with ScriptedModel(lambda request: call("aadd", a=1, b=2) if len(request.messages) < 3 else "done") as model:
        agent = make(model, [aadd])
        joins = [in_thread(lambda way=way: run(agent, "go", way)) for way in WAYS * 2]  # type: ignore[misc]  # a default binds it
        assert {join().answer for join in joins} == {"done"}


# ---------------------------------------------------------------- A04 context variables


tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@pytest.mark.parametrize("way", WAYS)
def test_a04_context_variables_reach_every_tool_and_leak_from_none(way: str) -> None:
    """A value set before the run is seen in every kind of tool and attempt; what a tool sets stays its own."""
    ledger = Ledger()

    def reads(name: str) -> str:
        ledger.note(name=name, tenant=tenant.get())
        tenant.set(f"of {name}")
        return f"{name} {len(ledger)}"

    @tool("plain")
    def plain(n: int) -> str:
        """Read it."""
        return reads("plain")

    @tool("coroutine")
    async def coroutine(n: int) -> str:
        """Read it."""
        await asyncio.sleep(0)
        return reads("coroutine")

    @tool("timed", timeout=5)
    def timed(n: int) -> str:
        """Read it."""
        return reads("timed")

    @tool("flaky")
    def flaky(n: int) -> str:
        """Read it, then fail once."""
        text = reads("flaky")
        if sum(entry["name"] == "flaky" for entry in ledger.entries) == 1:
            raise ConnectionError("down")
        return text

    names = ["plain", "coroutine", "timed", "flaky"]
    script = [*(call(name, n=1) for name in names), [call(name, n=2) for name in names], "done"]
    token = tenant.set("acme")
    try:
        with ScriptedModel(script) as model:
            result = run(make(model, [plain, coroutine, timed, flaky]), "go", way)
        assert tenant.get() == "acme"
    finally:
        tenant.reset(token)
    assert result.answer == "done"
    assert len(ledger) == 9
    assert {entry["tenant"] for entry in ledger.entries} == {"acme"}


async def test_a04_concurrent_runs_keep_their_own_values() -> None:
    """Twenty runs at once, each with its own value."""
    ledger = Ledger()

    def reads(task: str) -> str:
        """Read it."""
        ledger.note(task=task, tenant=tenant.get())
        return tenant.get()

    by_task: dict[str, Any] = {f"<{n}>": [call("reads", task=str(n)), "done"] for n in range(20)}
    with ScriptedModel(by_task=by_task) as model:
        agent = make(model, [reads])

        async def one(number: int) -> None:
            tenant.set(str(number))
            assert (await agent.ainvoke(f"<{number}>")).answer == "done"

        await asyncio.gather(*(one(number) for number in range(20)))
    assert all(entry["task"] == entry["tenant"] for entry in ledger.entries)


@pytest.mark.parametrize("way", WAYS)
def test_a04_the_model_sees_the_callers_context(way: str) -> None:
    """A model (its client, its tracing) runs in the caller's context too."""
    token = tenant.set("acme")
    try:
        with ScriptedModel([lambda _: tenant.get()]) as model:
            assert run(make(model), "who?", way).answer == "acme"
    finally:
        tenant.reset(token)


# ---------------------------------------------------------------- A05 what an observer binds


@pytest.mark.parametrize("way", WAYS)
def test_a05_what_an_observer_binds_it_can_unbind(way: str) -> None:
    """Observers run in the run's own context: what they bind first they see later, and can reset at the last."""
    bound: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="")
    seen: list[str] = []
    tokens: list[contextvars.Token[str]] = []

    def observer(record: Any) -> None:
        if record.seq == 1:
            tokens.append(bound.set(record.run_id))
        seen.append(bound.get())
        if record.target is State.FINISH:
            bound.reset(tokens[0])
            seen.append("reset")

    with ScriptedModel([call("add", a=1, b=2), "done"]) as model:
        result = run(make(model, [add], observers=[observer]), "go", way)
    assert seen == [result.run_id] * len(result.transitions) + ["reset"]


# ---------------------------------------------------------------- A07 events from elsewhere


def test_a07_two_resumes_from_two_threads_are_one() -> None:
    """Of many threads that resume one run exactly one goes on; only the others get the error; the call ran once."""
    ledger = Ledger()

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        ledger.note()
        return "paid"

    with ScriptedModel([call("pay"), "done"]) as model:
        agent = make(model, [pay])
        run(agent, "go", config=RUN)
        gate = threading.Barrier(8)

        def resume() -> Any:
            gate.wait(PATIENCE)
            try:
                return agent.resume("r", decision=Approve()).answer
            except RunError as error:
                return type(error)

        results = [join() for join in [in_thread(resume) for _ in range(8)]]
    assert results.count("done") == 1
    assert results.count(UnknownRun) + results.count(RunBusy) == 7
    assert len(ledger) == 1


def test_a07_a_cancellation_from_a_thread_without_a_loop_reaches_an_async_run() -> None:
    """`cancel` may come from any thread; the run ends in its own loop, and only there."""
    started = threading.Event()
    home: list[int] = []

    async def hangs() -> str:
        """Hang."""
        home.append(threading.get_ident())
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            home.append(threading.get_ident())
        return "never"

    with ScriptedModel([call("hangs")]) as model:
        agent = make(model, [hangs])
        join = in_thread(lambda: asyncio.run(agent.ainvoke("go", RUN)))
        assert started.wait(PATIENCE)
        assert agent.cancel("r") is True
        assert join().status is Status.CANCELLED
    assert home[0] == home[1]


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_a07_cancelled_between_two_tokens(way: str) -> None:
    """A cancellation that comes while the caller holds a token stops the run at the next step, with one ending."""
    seen = Seen()
    with ScriptedModel(["one two three four five six"]) as model:
        agent = make(model, observers=[seen])
        items: list[Any] = []

        def take(item: Any) -> None:
            items.append(item)
            if isinstance(item, Token):
                agent.cancel("r")

        if way == "stream":
            for item in agent.stream("go", RUN):
                take(item)
        else:

            async def all_of() -> None:
                async for item in agent.astream("go", RUN):
                    take(item)

            asyncio.run(all_of())
    assert items[-1].status is Status.CANCELLED
    assert len([item for item in items if isinstance(item, Token)]) < 6
    assert consistent(seen.records)


def test_a07_many_cancellations_and_endings_at_once() -> None:
    """A hundred short runs, each cancelled at some moment: every one has exactly one ending, none hangs."""
    seen = Seen()
    model = ScriptedModel(lambda request: call("aadd", a=1, b=2) if len(request.messages) < 3 else "done")
    agent = make(model, [aadd], observers=[seen])

    async def one(number: int) -> Status:
        return (await agent.ainvoke("go", {"configurable": {"run_id": str(number)}})).status

    async def all_of() -> list[Status]:
        tasks = [asyncio.ensure_future(one(number)) for number in range(100)]
        for number in range(100):
            if number % 3 == 0:
                await asyncio.sleep(0)
            agent.cancel(str(number))
        return await asyncio.gather(*tasks)

    statuses = asyncio.run(all_of())
    assert set(statuses) <= {Status.COMPLETED, Status.CANCELLED}
    for number in range(100):
        records = seen.of(str(number))
        assert consistent(records), number


async def test_a07_a_client_without_its_own_loop_is_usable_from_two_tasks() -> None:
    """Two runs at once through one real client."""
    with server(lambda request: f"echo {request.messages[-1]['content']}") as s:
        agent = make(client(s))
        results = await asyncio.gather(*(agent.ainvoke(f"t{number}") for number in range(6)))
    assert [result.answer for result in results] == [f"echo t{number}" for number in range(6)]


# ---------------------------------------------------------------- calls of one reply together


class Crowd:
    """Counts how many are inside at once, and lets nobody out before `least` were."""

    def __init__(self, least: int) -> None:
        self.inside = self.most = 0
        self._full = threading.Event()
        self._least = least
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Come in; returns when the crowd was large enough once."""
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside >= self._least:
                self._full.set()
        assert self._full.wait(PATIENCE), "the calls did not run together"

    def leave(self) -> None:
        """Go out."""
        with self._lock:
            self.inside -= 1


def crowding(crowd: Crowd, **options: Any) -> Any:
    """A sync tool that is inside for as long as the crowd asks."""

    @tool("inside", **options)
    def inside(n: int) -> str:
        """Be inside."""
        crowd.enter()
        crowd.leave()
        return f"was {n}"

    return inside


@pytest.mark.parametrize("way", WAYS)
def test_a_the_calls_of_one_reply_run_together(way: str) -> None:
    """Four sync calls of one reply are under way at the same time, and their results come in the order of the calls."""
    crowd = Crowd(4)
    with ScriptedModel([[call("inside", n=n) for n in range(4)], "done"]) as model:
        run(make(model, [crowding(crowd)]), "go", way)
    assert crowd.most == 4
    assert [message.text for message in answers_in(model.requests[1])] == [f"was {n}" for n in range(4)]


@pytest.mark.parametrize("way", WAYS)
def test_a_no_more_run_together_than_allowed(way: str) -> None:
    """With max_parallel=2 never more than two are under way, and all six run."""
    crowd = Crowd(2)
    with ScriptedModel([[call("inside", n=n) for n in range(6)], "done"]) as model:
        result = run(make(model, [crowding(crowd)], limits={"max_parallel": 2}), "go", way)
    assert (crowd.most, result.tool_calls) == (2, 6)


@pytest.mark.parametrize("way", WAYS)
def test_a_an_exclusive_tool_waits_for_those_before_it_and_they_run_once(way: str) -> None:
    """Calls before, between and after it are made, each once, and the results come in the order of the calls."""
    done: list[int] = []

    def noting(n: int) -> str:
        """Note it."""
        done.append(n)
        return f"noted {n}"

    tools = [tool("free")(noting), tool("alone", exclusive=True)(noting)]
    names = ["free", "alone", "free", "alone", "free"]
    with ScriptedModel([[call(name, n=n) for n, name in enumerate(names)], "done"]) as model:
        run(make(model, tools), "go", way)
    assert done == [0, 1, 2, 3, 4]
    assert [message.text for message in answers_in(model.requests[1])] == [f"noted {n}" for n in range(5)]


@pytest.mark.parametrize("way", WAYS)
def test_a_an_exclusive_tool_runs_alone(way: str) -> None:
    """A tool that must not run beside another never does, even beside itself."""
    crowd = Crowd(1)
    with ScriptedModel([[call("inside", n=n) for n in range(4)], "done"]) as model:
        result = run(make(model, [crowding(crowd, exclusive=True)]), "go", way)
    assert (crowd.most, result.tool_calls) == (1, 4)
