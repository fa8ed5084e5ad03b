"""Runs that wait for a person."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from fsm_agent import Agent, Approve, Deny, Edit, RunError, RunResult, Status, tool
from fsm_agent.errors import UnknownRun
from fsm_agent.testing import ScriptedModel, call
from fsm_agent.trail import MemoryTrail, audit
from tests.agent.kit import ASKING, RUN, THREAD, WAYS, add, make, run


def resumed(agent: Agent, decision: Any, way: str) -> RunResult:
    """The run "r", resumed."""
    return (
        asyncio.run(agent.aresume("r", decision=decision))
        if way.startswith("a")
        else agent.resume("r", decision=decision)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("decision", "text"),
    [(Approve(), "transferred 10"), (Edit({"amount": 5}), "transferred 5"), (Deny("too much"), "too much")],
    ids=["approve", "edit", "deny"],
)
def test_a_suspended_run_goes_on_as_decided(decision: Any, text: str, way: str) -> None:
    """A run that needs a person is suspended with what is asked, and goes on with the decision to its own end."""
    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [ASKING])
        waiting = run(agent, "pay", way, RUN)
        assert (waiting.status, waiting.reason, waiting.answer) == (Status.SUSPENDED, None, None)
        assert waiting.pending is not None
        assert [(one.tool, dict(one.arguments)) for one in waiting.pending.calls] == [("transfer", {"amount": 10})]
        assert "agent.resume('r'" in waiting.detail
        result = resumed(agent, decision, way)
    assert (result.status, result.answer, result.run_id) == (Status.COMPLETED, "done", "r")
    assert text in model.requests[1].messages[-1].text
    assert result.transitions[: len(waiting.transitions)] == waiting.transitions
    assert result.usage.total == 30


@pytest.mark.parametrize("memo", ["short", "long " * 1_000], ids=["short", "long"])
def test_what_was_approved_is_what_runs_or_nothing(memo: str) -> None:
    """A validator that changes a value each time never makes other arguments of those that a person has let through."""
    paid = []

    @tool(requires_approval=True)
    def pay(amount: Annotated[int, AfterValidator(lambda given: given * 2)], memo: str) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    agent = make(ScriptedModel([call("pay", amount=10, memo=memo), "done"]), [pay])
    (asked,) = run(agent, "pay", "invoke", RUN).requests
    result = agent.resume("r", decision=Approve(digest=asked.digest))
    assert asked.arguments["amount"] == 20
    assert paid in ([20], [])
    assert paid or "makes other arguments" in result.messages[2].text


@pytest.mark.parametrize("way", WAYS)
def test_what_is_shown_of_a_call_may_be_changed_by_whoever_shows_it(way: str) -> None:
    """Code that asks a person, or says whether one is asked, gets arguments of its own: the call and its record stay as they are."""

    def hidden(given: dict[str, Any]) -> bool:
        given["to"]["account"] = "***"
        return True

    def ask(shown: Any) -> Approve:
        seen.append(shown.arguments["to"]["account"])
        shown.arguments["to"]["account"] = "***"
        return Approve()

    @tool(requires_approval=hidden)
    def pay(to: dict[str, str]) -> str:
        """Pay."""
        return f"paid {to['account']}"

    seen: list[str] = []
    agent = make(ScriptedModel([call("pay", to={"account": "X1"}), "done"]), [pay], approve=ask, store=MemoryTrail())
    result = run(agent, "pay", way, RUN)
    assert (seen, result.results[0].text, dict(result.calls[0].arguments)) == (
        ["X1"],
        "paid X1",
        {"to": {"account": "X1"}},
    )
    assert audit(agent.journal, "r", agent.setup).ok

    waiting = make(ScriptedModel([call("pay", to={"account": "X1"}), "done"]), [pay])
    run(waiting, "pay", way, RUN).requests[0].arguments["to"]["account"] = "***"
    assert dict(resumed(waiting, Approve(), way).calls[0].arguments) == {"to": {"account": "X1"}}


@pytest.mark.parametrize("here", [True, False], ids=["in place", "later"])
def test_a_person_edits_in_the_values_of_python(here: bool) -> None:
    """A date in `Edit` is what a date of the model is, in the run as in its trail, and the tool gets it as its own type."""

    @tool(requires_approval=True)
    def book(on: date, seats: set[int]) -> str:
        """Book seats."""
        return f"{on:%d.%m.%Y}: {sorted(seats)}"

    edit = Edit({"on": date(2026, 12, 1), "seats": {3, 2}})
    asked = call("book", on="2026-11-30", seats=[1])
    options: dict[str, Any] = {"approve": lambda _: edit} if here else {}
    agent = make(ScriptedModel([asked, "done"]), [book], store=MemoryTrail(), **options)
    result = run(agent, "book", "invoke", RUN)
    if not here:
        result = agent.resume("r", decision=edit)
    assert [one.text for one in result.results] == ["01.12.2026: [2, 3]"]
    assert audit(agent.journal, "r", agent.setup).ok


def test_each_call_can_have_its_own_decision() -> None:
    """A mapping decides call by call."""
    batch = [call("transfer", amount=1), call("transfer", amount=2), call("transfer", amount=3)]
    with ScriptedModel([batch, "done"]) as model:
        agent = make(model, [ASKING])
        waiting = run(agent, "pay", "invoke", RUN)
        assert waiting.pending is not None
        one, two, three = (each.id for each in waiting.pending.calls)
        agent.resume("r", decision={one: Approve(), two: Deny("no"), three: Edit({"amount": 30})})
    texts = [message.text for message in model.requests[1].messages if message.type == "tool"]
    assert texts[0] == "transferred 1"
    assert "no" in texts[1]
    assert texts[2] == "transferred 30"


def test_a_run_tells_only_of_calls_that_still_wait() -> None:
    """Once a person has decided about one call of a reply, neither the detail nor what is pending names it."""
    other = tool("notify", requires_approval=True)(lambda: "told")
    agent = make(ScriptedModel([[call("transfer", amount=1), call("notify")]]), [ASKING, other])
    waiting = run(agent, "pay", "invoke", RUN)
    assert "decide about transfer, notify:" in waiting.detail
    left = agent.resume("r", decision={waiting.requests[0].call_id: Approve()})
    assert [one.tool for one in left.requests] == ["notify"]
    assert left.pending is not None
    assert [one.tool for one in left.pending.calls] == ["notify"]
    assert "decide about notify:" in left.detail


@pytest.mark.parametrize(
    ("way", "asynchronous"), [*((way, False) for way in WAYS), ("ainvoke", True), ("astream", True)]
)
@pytest.mark.parametrize("said", [True, False, Approve(), Deny("no"), Edit({"amount": 5})])
def test_approve_answers_in_place(said: Any, way: str, asynchronous: bool) -> None:
    """A callable decides at once: a truth value or a decision; an async callable where the run is async."""
    asked: list[Any] = []

    async def aapprove(one: Any) -> Any:
        await asyncio.sleep(0)
        asked.append(one)
        return said

    def approve(one: Any) -> Any:
        asked.append(one)
        return said

    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        result = run(make(model, [ASKING], approve=aapprove if asynchronous else approve), "pay", way)
    assert (result.status, len(asked), asked[0].tool) == (Status.COMPLETED, 1, "transfer")
    told = model.requests[1].messages[-1].text
    if said is True or isinstance(said, Approve):
        assert told == "transferred 10"
    elif isinstance(said, Edit):
        assert told == "transferred 5"
    else:
        assert "refused" in told
        assert result.tool_calls == 0


def test_an_async_approver_in_a_sync_run_is_wrong_use() -> None:
    """It executes nothing, says what to do, and leaves no coroutine unawaited."""

    async def approve(_: Any) -> bool:
        return True

    model = ScriptedModel([call("transfer", amount=10), "done"])
    with pytest.raises(RunError, match="ainvoke"):
        run(make(model, [ASKING], approve=approve), "pay")


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_person_is_asked_on_the_thread_of_the_caller(way: str) -> None:
    """A terminal or a window belongs to one thread: `approve`, observers and the store are called on the caller's."""
    threads: dict[str, set[int]] = {"approve": set(), "observer": set(), "store": set()}

    def noting(what: str) -> None:
        threads[what].add(threading.get_ident())

    class Store:
        """Keeps nothing."""

        def open(self, thread_id: str, run_id: str) -> Any:
            """Open."""
            noting("store")
            return ()

        def close(self, thread_id: str, run_id: str, history: Any) -> None:
            """Close."""
            noting("store")

    def approve(_: Any) -> bool:
        noting("approve")
        return True

    for observers in ([], [lambda _: noting("observer")]):
        with ScriptedModel([call("add", a=1, b=2), call("transfer", amount=10), "done"]) as model:
            agent = make(model, [add, ASKING], approve=approve, store=Store(), observers=observers)
            assert run(agent, "pay", way, THREAD).answer == "done"
    assert threads == {what: {threading.get_ident()} for what in threads}


def test_only_some_calls_may_need_a_person() -> None:
    """`requires_approval` may be a function of the arguments."""
    asked: list[Any] = []

    def approve(one: Any) -> bool:
        asked.append(one.arguments["amount"])
        return False

    @tool(requires_approval=lambda arguments: arguments["amount"] > 100)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    with ScriptedModel([[call("pay", amount=1), call("pay", amount=1000)], "done"]) as model:
        run(make(model, [pay], approve=approve), "go")
    assert asked == [1000]


def test_resuming_what_does_not_wait_is_an_error() -> None:
    """An unknown run, and a completed one, cannot be resumed."""
    with ScriptedModel(["hello"]) as model:
        agent = make(model)
        run(agent, "go", "invoke", RUN)
        with pytest.raises(UnknownRun):
            agent.resume("r", decision=Approve())


@pytest.mark.parametrize(("task", "said"), [("go", "ask the user in your answer"), ("开始", "在你的答案里询问用户")])
@pytest.mark.parametrize("within", [True, False], ids=["in a graph", "outside of one"])
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_that_interrupts_a_graph_is_not_called_again(way: str, within: bool, task: str, said: str) -> None:
    """`interrupt()` of LangGraph asks nobody from within a run: the model reads that, and what the tool did before is not done twice."""
    interrupt = type("GraphInterrupt", (Exception,), {})
    begun = []

    def ask(question: str) -> str:
        """Ask a person."""
        begun.append(question)
        # Outside of a graph it looks for what the graph would have put into the config.
        raise interrupt((f"Interrupt(value={question!r})",)) if within else KeyError("__pregel_scratchpad")

    with ScriptedModel([call("ask", question="sure?"), "Are you sure?"]) as model:
        result = run(make(model, [ask]), task, way)
    assert (begun, result.answer) == (["sure?"], "Are you sure?")
    told = str(result.messages[2].content)
    assert said in told
    assert "Interrupt" not in told
    assert "pregel" not in told
