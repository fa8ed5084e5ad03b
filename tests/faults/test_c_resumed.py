"""Family C: runs that are resumed more than once, and siblings and repeats of a rejected call."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fsm_agent import Answer, Approve, Deny, Edit, RunError, Status
from fsm_agent.errors import RunBusy, UnknownRun
from fsm_agent.testing import Call, ScriptedModel, call
from tests.faults.approvals import look_of, suspended, transfer_of
from tests.faults.kit import (
    PATIENCE,
    WAYS,
    Ledger,
    answers_in,
    assert_sendable,
    consistent,
    in_thread,
    make,
    run,
)

# ---------------------------------------------------------------- C09 two resumes


def test_c09_two_resumes_race_and_one_proceeds() -> None:
    """Two workers resume the same run at once: exactly one goes on, the other gets a named error, the call ran once."""
    for _ in range(20):
        ledger = Ledger()
        model = ScriptedModel([call("transfer", amount=10), "done"])
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        gate = threading.Barrier(2)

        def resume(agent: Any = agent, gate: threading.Barrier = gate) -> Any:
            gate.wait(PATIENCE)
            try:
                return agent.resume("r", decision=Approve()).status
            except (UnknownRun, RunBusy) as error:
                return str(error)

        joins = [in_thread(resume), in_thread(resume)]
        outcomes = [join() for join in joins]
        assert outcomes.count(Status.COMPLETED) == 1
        assert any("resumed" in outcome for outcome in outcomes if outcome is not Status.COMPLETED)
        assert len(ledger) == 1


def test_c09_a_resumed_run_cannot_be_resumed_again() -> None:
    """A second resume later, and one of a run that never was, are named errors."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        agent.resume("r", decision=Approve())
        for run_id in ("r", "never"):
            with pytest.raises(UnknownRun, match=run_id):
                agent.resume(run_id, decision=Approve())
    assert len(ledger) == 1


def test_c09_a_run_may_wait_more_than_once() -> None:
    """A resumed run that needs a person again waits again, under the same id."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=1), call("transfer", amount=2), "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        again = agent.resume("r", decision=Approve())
        assert (again.status, again.run_id, len(ledger)) == (Status.SUSPENDED, "r", 1)
        result = agent.resume("r", decision=Approve())
    assert [entry["amount"] for entry in ledger.entries] == [1, 2]
    assert (result.status, result.model_calls) == (Status.COMPLETED, 3)
    assert consistent(result.transitions)


@pytest.mark.parametrize(
    "decision",
    [
        *("yes", True, {}, {"other": Approve()}, {5: Approve()}),
        *({"a": Approve(digest="0" * 64)}, {"a": True, "b": False}),
        *(Deny(None), Answer(5), {"a": Deny("no", stop=1)}, {"a": Edit(None)}),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
def test_c09_a_decision_that_does_not_fit_leaves_the_run_waiting(decision: Any) -> None:
    """A missing, foreign or untyped decision is a named error; nothing runs, and a right one still works."""
    ledger = Ledger()
    batch = [Call("transfer", {"amount": 1}, id="a"), Call("transfer", {"amount": 2}, id="b")]
    with ScriptedModel([batch, "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        with pytest.raises(RunError):
            agent.resume("r", decision=decision)
        assert len(ledger) == 0
        assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
    assert len(ledger) == 2


def test_c09_decisions_come_one_by_one_and_each_is_used_once() -> None:
    """Calls of a batch are decided in any order; until the last decision nothing runs, and none can be decided twice."""
    ledger = Ledger()
    batch = [Call("transfer", {"amount": 1}, id="a"), Call("transfer", {"amount": 2}, id="b")]
    with ScriptedModel([batch, "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        assert agent.resume("r").status is Status.SUSPENDED
        waiting = agent.resume("r", decision={"b": Deny("too much")})
        assert waiting.status is Status.SUSPENDED
        assert waiting.pending is not None
        assert [one.id for one in waiting.pending.calls] == ["a"]
        with pytest.raises(RunError, match="b"):
            agent.resume("r", decision={"b": Approve()})
        assert len(ledger) == 0
        assert agent.resume("r", decision=Approve()).status is Status.COMPLETED
    assert [entry["amount"] for entry in ledger.entries] == [1]


# ---------------------------------------------------------------- C11 siblings and repeats of a rejection


@pytest.mark.parametrize("way", [*WAYS, "resume"])
def test_c11_one_rejection_leaves_its_sibling(way: str) -> None:
    """Of two calls one is rejected: exactly the approved one runs, each is answered with its own outcome."""
    ledger = Ledger()
    batch = [
        Call("transfer", {"amount": 1}, id="a"),
        Call("transfer", {"amount": 2}, id="b"),
        Call("look", {"q": "x"}, id="c"),
    ]
    with ScriptedModel([batch, "done"]) as model:
        tools = [transfer_of(ledger), look_of(ledger)]
        if way == "resume":
            agent = make(model, tools)
            waiting = suspended(agent)
            assert waiting.pending is not None
            assert [one.id for one in waiting.pending.calls] == ["a", "b"]
            assert len(ledger) == 0, "nothing of the batch runs before the person has decided"
            result = agent.resume("r", decision={"a": Approve(), "b": Deny("too much")})
        else:
            result = run(make(model, tools, approve=lambda one: one.arguments["amount"] == 1), "pay", way)
    assert sorted(map(str, ledger.entries)) == sorted(map(str, [{"amount": 1, "to": "bob"}, {"q": "x"}]))
    told = answers_in(model.requests[1])
    assert [message.tool_call_id for message in told] == ["a", "b", "c"]
    assert [message.status for message in told] == ["success", "error", "success"]
    assert "refused" in told[1].text
    assert result.tool_calls == 2
    assert_sendable(model.requests)


@pytest.mark.parametrize("way", WAYS)
def test_c11_a_repeated_rejected_call_is_rejected_by_itself(way: str) -> None:
    """The model repeats the rejected call: the person is asked once, and the repeats end the run as no progress."""
    ledger = Ledger()
    asked: list[int] = []

    def approve(one: Any) -> bool:
        asked.append(one.arguments["amount"])
        return False

    model = ScriptedModel(lambda request: call("transfer", amount=10) if request.tools else "I may not")
    result = run(make(model, [transfer_of(ledger)], approve=approve), "pay", way)
    assert (asked, len(ledger)) == ([10], 0)
    assert (result.status, result.answer, model.count) == (Status.PARTIAL, "I may not", 4)
    assert "no_progress" in result.detail
    assert "already refused" in answers_in(model.requests[-1])[-1].text
    assert_sendable(model.requests)


def test_c11_another_spelling_of_a_rejected_call_is_the_same_call() -> None:
    """Key order and defaults do not get a rejected call past the person's no."""
    ledger = Ledger()
    asked: list[str] = []

    def approve(one: Any) -> bool:
        asked.append(one.id)
        return False

    script = [Call("transfer", '{"amount": 10}'), Call("transfer", '{"to": "bob", "amount": 10}'), "ok"]
    with ScriptedModel(script) as model:
        run(make(model, [transfer_of(ledger)], approve=approve), "pay", "stream")
    assert (len(asked), len(ledger)) == (1, 0)


@pytest.mark.parametrize("edited", ["a", "b"])
def test_c11_an_edit_into_its_sibling_does_not_double_it(edited: str) -> None:
    """Of two calls one is approved and the other edited into the same: it is executed once, and the other is told so."""
    ledger = Ledger()
    amounts = {"a": 1, "b": 2}
    batch = [Call("transfer", {"amount": amount}, id=one) for one, amount in amounts.items()]
    with ScriptedModel([batch, "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        kept = next(one for one in amounts if one != edited)
        result = agent.resume("r", decision={kept: Approve(), edited: Edit({"amount": amounts[kept]})})
    assert [entry["amount"] for entry in ledger.entries] == [amounts[kept]]
    assert result.tool_calls == 1
    told = {message.tool_call_id: message for message in answers_in(model.requests[1])}
    assert (told[kept].status, told[edited].status) == ("success", "error")
    assert "executed once" in told[edited].text
    assert_sendable(model.requests)


def test_c11_an_edit_into_a_rejected_call_is_not_a_way_around() -> None:
    """Editing one call into the very call that was rejected before is refused like it."""
    ledger = Ledger()
    decisions: list[Any] = [Deny("no"), Edit({"amount": 10})]
    with ScriptedModel([call("transfer", amount=10), call("transfer", amount=11), "ok"]) as model:
        run(make(model, [transfer_of(ledger)], approve=lambda _: decisions.pop(0)), "pay")
    assert [entry["amount"] for entry in ledger.entries] in ([], [10])
    assert_sendable(model.requests)
