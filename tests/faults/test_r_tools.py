"""Family R: tools that block, return too much, fail and have fallbacks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fsm_agent import Event, State, Status, Tool, tool
from fsm_agent.policy import AtMost, ToolPolicy
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call
from fsm_agent.tools import CallInfo
from fsm_agent.trail import MemoryTrail, audit
from tests.faults.kit import (
    PATIENCE,
    WAYS,
    Ledger,
    Seen,
    answers_in,
    assert_sendable,
    consistent,
    make,
    run,
)

# ---------------------------------------------------------------- R06 the event loop stays free


async def heartbeat(beats: int, go: threading.Event) -> int:
    """Let the loop turn `beats` times, then let the blocked one go."""
    for _ in range(beats):
        await asyncio.sleep(0)
    go.set()
    return beats


@pytest.mark.parametrize("batch", [1, 3])
async def test_r06_a_blocking_tool_leaves_the_event_loop_free(batch: int) -> None:
    """A sync tool blocks until another task of the same loop has run: were it on the loop, neither would end."""
    go = threading.Event()

    def blocks(n: int) -> str:
        """Block."""
        return "freed" if go.wait(PATIENCE) else f"never freed {n}"

    script = [[call("blocks", n=number) for number in range(batch)], "done"]
    with ScriptedModel(script) as model:
        agent = make(model, [blocks])
        result, _ = await asyncio.gather(agent.ainvoke("go"), heartbeat(20, go))
    assert [message.text for message in answers_in(model.requests[1])] == ["freed"] * batch
    assert result.answer == "done"


async def test_r06_a_blocking_approval_leaves_the_event_loop_free() -> None:
    """A plain function that asks a person does not stop the loop."""
    go = threading.Event()

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    with ScriptedModel([call("pay"), "done"]) as model:
        agent = make(model, [pay], approve=lambda _: go.wait(PATIENCE))
        result, _ = await asyncio.gather(agent.ainvoke("go"), heartbeat(20, go))
    assert (result.answer, result.tool_calls) == ("done", 1)


class Patient(FakeClock):
    """A clock whose async sleep really waits, for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep_now, self.wake = asyncio.Event(), asyncio.Event()

    async def asleep(self, seconds: float) -> None:
        """Wait until woken."""
        self.slept.append(seconds)
        self.asleep_now.set()
        await self.wake.wait()

    def sleep(self, seconds: float) -> None:
        """Never used by an async run."""
        raise AssertionError("an async run slept on the thread")


async def test_r06_backoff_sleeps_on_the_loop_and_can_be_cancelled() -> None:
    """A retry's wait is an async sleep: a cancellation ends it at once, with no further model call."""
    clock, seen = Patient(), Seen()
    with ScriptedModel([RuntimeError("down")]) as model:
        agent = make(model, clock=clock, observers=[seen])
        task = asyncio.ensure_future(agent.ainvoke("go"))
        await clock.asleep_now.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert model.count == 1
    assert consistent(seen.records)
    assert (seen.records[-1].source, seen.records[-1].event) == (State.RETRY, Event.CANCELLED)


async def test_r06_control_the_same_backoff_ends_in_a_retry() -> None:
    """Woken, the same run goes on and completes."""
    clock = Patient()
    with ScriptedModel([RuntimeError("down"), "up"]) as model:
        task = asyncio.ensure_future(make(model, clock=clock).ainvoke("go"))
        await clock.asleep_now.wait()
        clock.wake.set()
        result = await task
    assert (result.answer, len(clock.slept)) == ("up", 1)


# ---------------------------------------------------------------- R07 one giant result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "unit", ["é", "汉", "👨‍👩‍👧‍👦", "e\u0301", "x"], ids=["latin", "chinese", "family", "combining", "ascii"]
)
def test_r07_a_giant_result_is_cut_on_a_character(unit: str, way: str) -> None:
    """Two megabytes are cut at the cap, on a character, with the original size; the whole text stays in the result."""
    whole = unit * (2_000_000 // len(unit.encode()))

    def big() -> str:
        """Return a lot."""
        return whole

    with ScriptedModel([call("big"), "seen"]) as model:
        result = run(make(model, [big]), "go", way)
    told = answers_in(model.requests[1])[0].text
    body, marker = told.rsplit("\n", 1)
    assert len(told) < 8_200
    assert len(body) > 7_900
    assert not body.replace(unit, ""), "no character is cut in half"
    assert str(len(whole)) in marker
    assert result.results[0].full == whole
    assert result.answer == "seen"
    assert_sendable(model.requests)


def test_r07_a_tools_own_cap_counts_and_a_small_result_is_whole() -> None:
    """A tool may have its own cap, however small: behind it stands how much there was; what fits is neither cut nor marked."""

    @tool(max_result_chars=200)
    def search(n: int) -> str:
        """Search."""
        return "r" * n

    with ScriptedModel([[call("search", n=200), call("search", n=201)], "ok"]) as model:
        result = run(make(model, [search]), "go")
    fits, cut = answers_in(model.requests[1])
    assert fits.text == "r" * 200
    assert cut.text == "r" * 200 + "\n[cut: the first 200 of 201 characters]"
    assert [one.full for one in result.results] == [None, "r" * 201]


def test_r07_what_was_cut_is_told_in_the_language_of_the_task() -> None:
    """The mark behind a result that was cut is one of the things that the model reads in Chinese too."""

    @tool(max_result_chars=2)
    def search() -> str:
        """Search."""
        return "北京上海"

    with ScriptedModel([call("search"), "好"]) as model:
        run(make(model, [search]), "查一下城市")
    assert answers_in(model.requests[1])[0].text == "北京\n[已截断：共 4 个字符，这里是前 2 个]"


def test_r07_an_error_of_two_megabytes_is_cut_too() -> None:
    """A tool that raises a giant message does not fill the prompt with it."""

    def boom() -> str:
        """Fail at length."""
        raise ValueError("y" * 2_000_000)

    with ScriptedModel([call("boom"), "ok"]) as model:
        result = run(make(model, [boom], limits={"max_retries": 0}), "go")
    assert len(model.requests[1].text) < 3_000
    assert len(result.detail) < 3_000


# ---------------------------------------------------------------- R08 fallbacks


def chain(ledger: Ledger, **options: Any) -> list[Tool]:
    """Search -> search_basic -> delete_cache (which a person must approve)."""

    @tool(requires_approval=True)
    def delete_cache() -> str:
        """Delete the cache."""
        ledger.note(tool="delete_cache")
        return "deleted"

    @tool(fallback=delete_cache)
    def search_basic(query: str) -> str:
        """Search simply."""
        ledger.note(tool="search_basic", query=query)
        if options.get("basic_fails"):
            raise ConnectionError("basic down")
        return f"basic result for {query}"

    @tool(fallback=search_basic, map_fallback=options.get("mapper"))
    def search(q: str, lang: str = "en") -> str:
        """Search."""
        ledger.note(tool="search", q=q, lang=lang)
        raise ConnectionError("search down")

    return [search]


def by_query(arguments: dict[str, Any]) -> dict[str, Any]:
    """The mapping from search to search_basic."""
    return {"query": arguments["q"]}


@pytest.mark.parametrize("way", WAYS)
def test_r08_a_fallback_gets_mapped_and_checked_arguments(way: str) -> None:
    """After its retry the call is made by the fallback, once, with its own arguments; the model reads which ran."""
    ledger = Ledger()
    with ScriptedModel([Call("search", {"q": "x", "lang": "no"}, id="c1"), "found"]) as model:
        result = run(make(model, chain(ledger, mapper=by_query)), "go", way)
    assert [entry["tool"] for entry in ledger.entries] == ["search", "search", "search_basic"]
    assert ledger.entries[2] == {"tool": "search_basic", "query": "x"}
    (told,) = answers_in(model.requests[1])
    assert told.tool_call_id == "c1"
    assert "search_basic was executed instead" in told.text
    assert "basic result for x" in told.text
    assert (result.status, result.answer, result.tool_calls) == (Status.COMPLETED, "found", 3)
    assert model.count == 2, "choosing the fallback takes no model call"
    events = [record.event for record in result.transitions]
    assert events.count(Event.FALLBACK_CHOSEN) == 1
    assert result.path()[result.path().index(State.DEGRADE) + 1] is State.VALIDATE
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_r08_a_fallback_is_a_first_attempt_with_a_retry_of_its_own(way: str) -> None:
    """What the failed tool has used up is not taken from its fallback, and a policy counts that as begun, once."""
    attempts: list[int] = []

    @tool
    def spare(q: str, info: CallInfo) -> str:
        """Search elsewhere."""
        attempts.append(info.attempt)
        if len(attempts) == 1:
            raise ConnectionError("spare down")
        return "found"

    @tool(fallback=spare)
    def search(q: str) -> str:
        """Search."""
        raise ConnectionError("search down")

    with ScriptedModel([call("search", q="x"), call("spare", q="y"), "done"]) as model:
        agent = make(model, [search, spare], policy=ToolPolicy(AtMost("spare", 1)), limits={"abort_after": 9})
        result = run(agent, "go", way)
    assert (result.status, attempts) == (Status.COMPLETED, [1, 2])
    assert answers_in(model.requests[2])[-1].text.startswith("Refused by the tool policy")


@pytest.mark.parametrize("mapper", [None, lambda given: {"query": 5}, lambda given: given["nothing"], dict])
def test_r08_arguments_that_do_not_fit_the_fallback_run_nothing(mapper: Any) -> None:
    """Another signature without a mapping, or a mapping that gives the wrong thing or raises, executes no fallback."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x"), "sorry"]) as model:
        result = run(make(model, chain(ledger, mapper=mapper), limits={"abort_after": 5}), "go")
    assert {entry["tool"] for entry in ledger.entries} == {"search"}
    assert (result.status, result.answer) == (Status.COMPLETED, "sorry")
    assert "search down" in model.requests[1].text
    assert "could not be used" not in model.requests[1].text, "the model's own reply was right"
    assert_sendable(model.requests)


@pytest.mark.parametrize(
    ("mapper", "told"),
    [
        (None, 'search_basic could not stand in: search_basic: field "query" is missing'),
        (lambda given: {"query": 5}, 'field "query" must be string'),
        (lambda given: given["nothing"], "map_fallback of search raised KeyError: 'nothing'"),
        (lambda given: 5, "map_fallback of search raised TypeError"),
    ],
)
def test_r08_why_a_fallback_did_not_stand_in_is_told(mapper: Any, told: str) -> None:
    """A mapping that fails is somebody's bug: one record of the run names it, and the model is told only of the tool that it called."""
    with ScriptedModel([call("search", q="x"), call("search", q=1), "sorry"]) as model:
        agent = make(model, chain(Ledger(), mapper=mapper), limits={"abort_after": 9}, store=MemoryTrail())
        result = run(agent, "go")
    errors = [record.error for record in result.transitions]
    assert [told in error for error in errors].count(True) == 1, errors
    assert "stand in" not in model.requests[2].text
    assert audit(agent.journal, result.run_id, agent.setup).ok


def test_r08_a_fallback_that_needs_approval_asks() -> None:
    """The second fallback deletes: nothing of it happens before a person has said yes to exactly that call."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x")]) as model:
        agent = make(
            model, chain(ledger, mapper=by_query, basic_fails=True), limits={"degrade_after": 1, "abort_after": 9}
        )
        result = run(agent, "go")
    assert result.status is Status.SUSPENDED
    assert result.pending is not None
    assert [one.tool for one in result.pending.calls] == ["delete_cache"]
    assert "delete_cache" not in {entry["tool"] for entry in ledger.entries}


def test_r08_a_refused_fallback_is_not_run_and_the_model_goes_on() -> None:
    """Denied, the fallback is not executed; the model reads what happened and decides."""
    ledger = Ledger()
    with ScriptedModel([call("search", q="x"), "I could not search"]) as model:
        agent = make(
            model,
            chain(ledger, mapper=by_query, basic_fails=True),
            limits={"degrade_after": 1, "abort_after": 9},
            approve=lambda _: False,
        )
        result = run(agent, "go")
    assert result.answer == "I could not search"
    assert "delete_cache" not in {entry["tool"] for entry in ledger.entries}
    assert_sendable(model.requests)


def test_r08_malformed_arguments_never_reach_a_fallback() -> None:
    """Arguments that were refused were never executed, so there is nothing to fall back from."""
    ledger = Ledger()
    with ScriptedModel([call("search", q=5), call("search", q=6), "sorry"]) as model:
        result = run(make(model, chain(ledger, mapper=by_query)), "go")
    assert (len(ledger), result.tool_calls, result.answer) == (0, 0, "sorry")
    assert Event.FALLBACK_CHOSEN not in [record.event for record in result.transitions]


def test_r08_a_hidden_fallback_cannot_be_called_by_the_model() -> None:
    """A fallback that is no registered tool is not offered, and a call of it is unknown."""
    ledger = Ledger()
    with ScriptedModel([call("search_basic", query="x"), "sorry"]) as model:
        run(make(model, chain(ledger)), "go")
    assert model.requests[0].tool_names == ("search",)
    assert len(ledger) == 0
    assert "There is no tool" in model.requests[1].text
