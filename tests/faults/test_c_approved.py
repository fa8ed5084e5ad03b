"""Family C: what a person's yes and no are for: one call, as it was shown, in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fsm_agent import Answer, Approve, Change, Deny, Edit, Event, RunError, RunResult, State, Status, StopReason, tool
from fsm_agent.errors import TrailVersion
from fsm_agent.testing import Call, FakeClock, ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from tests.faults.approvals import suspended, transfer_of
from tests.faults.kit import (
    WAYS,
    Ledger,
    answers_in,
    assert_sendable,
    consistent,
    make,
    run,
)

# ---------------------------------------------------------------- C07 a rejected call


@pytest.mark.parametrize("way", WAYS)
def test_c07_a_rejected_call_is_never_executed_in_place(way: str) -> None:
    """Denied by `approve`: zero executions; the model reads the reason, the record has decision and signature."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "I did not"]) as model:
        result = run(make(model, [transfer_of(ledger)], approve=lambda _: Deny("over the limit")), "pay", way)
    assert (result.status, result.answer, len(ledger), result.tool_calls) == (Status.COMPLETED, "I did not", 0, 0)
    (told,) = answers_in(model.requests[1])
    assert "over the limit" in told.text
    assert told.status == "error"
    denied = next(record for record in result.transitions if record.event is Event.DENIED)
    assert (denied.source, denied.target, denied.tools) == (State.REVIEW, State.OBSERVE, ("transfer",))
    assert len(denied.signatures[0]) == 16
    assert denied.at >= 0
    assert State.EXECUTE not in result.path()
    assert denied.failures == 0
    assert_sendable(model.requests)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_c07_a_rejected_call_is_never_executed_after_a_pause(asynchronous: bool) -> None:
    """The same for a run that was suspended and resumed with a denial."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "I did not"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        result = _resume(agent, Deny("not today"), asynchronous)
    assert (result.status, result.answer, len(ledger)) == (Status.COMPLETED, "I did not", 0)
    assert "not today" in answers_in(model.requests[1])[0].text
    assert consistent(result.transitions)


def _resume(agent: Any, decision: Any, asynchronous: bool = False) -> RunResult:
    import asyncio

    result = (
        asyncio.run(agent.aresume("r", decision=decision)) if asynchronous else agent.resume("r", decision=decision)
    )
    assert isinstance(result, RunResult)
    return result


def test_c07_a_denial_can_stop_the_run() -> None:
    """`Deny(stop=True)` ends the run as denied: no further model call."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10)]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        result = agent.resume("r", decision=Deny("stop it", stop=True))
    assert (result.status, result.reason, len(ledger), model.count) == (Status.FAILED, StopReason.DENIED, 0, 1)
    told = [message for message in result.messages if message.type == "tool"]
    assert "stop it" in told[0].text


@pytest.mark.parametrize("answer", [None, "yes", 1, [], object()])
def test_c07_what_is_no_decision_is_no_yes(answer: Any) -> None:
    """An `approve` that returns something else executes nothing, and says what it may return."""
    ledger = Ledger()
    model = ScriptedModel([call("transfer", amount=10), "hm"])
    result = run(make(model, [transfer_of(ledger)], approve=lambda _: answer), "pay")
    assert len(ledger) == 0
    assert result.status is Status.FAILED
    assert "approve returned" in result.detail
    assert "Deny(reason) or Answer(text)" in result.detail


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Approve(digest="0" * 64), "for another call"),
        (Deny(None), "reason of Deny is a NoneType"),  # type: ignore[arg-type]  # what a form without a text gives
        (Deny("no", stop="no"), "stop of Deny is a str"),  # type: ignore[arg-type]  # wrong on purpose
        (Answer(5), "text of Answer is a int"),  # type: ignore[arg-type]  # wrong on purpose
        (Edit(None), "args of Edit is a NoneType"),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_c08_a_decision_in_place_for_another_call_or_of_another_kind_executes_nothing(
    decision: Any, said: str, way: str
) -> None:
    """A yes to other arguments is no yes in place either; a decision with a part of another kind says which."""
    ledger = Ledger()
    model = ScriptedModel([call("transfer", amount=10), "hm"])
    result = run(make(model, [transfer_of(ledger)], approve=lambda _: decision), "pay", way)
    assert (len(ledger), result.status, result.reason) == (0, Status.FAILED, StopReason.INTERNAL_ERROR)
    assert said in result.detail


def test_c07_an_approver_that_raises_is_no_yes() -> None:
    """When asking fails, nothing is executed and the run ends typed."""
    ledger = Ledger()

    def broken(_: Any) -> bool:
        raise EOFError("no terminal")

    model = ScriptedModel([call("transfer", amount=10), "hm"])
    result = run(make(model, [transfer_of(ledger)], approve=broken), "pay")
    assert (len(ledger), result.status) == (0, Status.FAILED)
    assert "EOFError" in result.detail


def test_c07_a_check_that_cannot_decide_asks() -> None:
    """A `requires_approval` that raises does not let the call pass."""
    ledger = Ledger()

    @tool(requires_approval=lambda arguments: arguments["nothing"] > 5)
    def transfer(amount: int) -> str:
        """Transfer."""
        ledger.note(amount=amount)
        return "ok"

    with ScriptedModel([call("transfer", amount=10)]) as model:
        result = run(make(model, [transfer]), "pay")
    assert (result.status, len(ledger)) == (Status.SUSPENDED, 0)


@pytest.mark.parametrize(
    ("said", "asks"), [(None, True), ([], True), ("", True), (1, True), (False, False), (0, False)]
)
def test_c07_a_check_that_says_nothing_asks(said: Any, asks: bool) -> None:
    """Only a plain no lets a call pass: None is what a check returns whose `return` was forgotten."""

    @tool(requires_approval=lambda _: said)
    def transfer(amount: int) -> str:
        """Transfer."""
        return "ok"

    with ScriptedModel([call("transfer", amount=10), *([] if asks else ["Done."])]) as model:
        assert run(make(model, [transfer]), "pay").status is (Status.SUSPENDED if asks else Status.COMPLETED)


# ---------------------------------------------------------------- C08 a yes is for one call


def test_c08_approved_is_exactly_what_was_shown() -> None:
    """Approved, the call runs once with the arguments that the person saw."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        waiting = suspended(agent)
        assert waiting.pending is not None
        (shown,) = waiting.pending.calls
        assert (shown.tool, dict(shown.arguments)) == ("transfer", {"amount": 10, "to": "bob"})
        assert len(ledger) == 0
        result = agent.resume("r", decision=Approve())
    assert ledger.entries == [{"amount": 10, "to": "bob"}]
    assert (result.status, result.answer, result.tool_calls) == (Status.COMPLETED, "done", 1)


@pytest.mark.parametrize("store", [None, "trail"])
@pytest.mark.parametrize("approved", [True, False])
def test_c08_a_change_before_execute_is_no_approval(approved: bool, store: str | None) -> None:
    """Paused before EXECUTE, neither an approved call nor one that needed no approval is changed into one that nobody has approved."""
    ledger = Ledger()

    def transfer(amount: int) -> str:
        """Send money."""
        ledger.note(amount=amount)
        return "sent"

    guarded = tool(requires_approval=lambda given: given["amount"] > 5)(transfer)
    amount = 10 if approved else 1
    with ScriptedModel([Call("transfer", {"amount": amount}, id="a"), "done"]) as model:
        agent = make(model, [guarded], store=MemoryTrail() if store else None).pause_at("EXECUTE")
        waiting = agent.invoke("pay", {"configurable": {"run_id": "r"}})
        if approved:
            waiting = agent.resume("r", decision=Approve(), by="Ann")
        assert [dict(one.arguments) for one in waiting.upcoming] == [{"amount": amount}]
        with pytest.raises(RunError, match="a change is no approval"):
            agent.resume("r", change=Change(arguments={"a": {"amount": 1000}}), by="Zoe")
        assert agent.resume("r").status is Status.COMPLETED
    assert ledger.entries == [{"amount": amount}]


def test_c11_a_change_into_a_rejected_call_is_not_a_way_around() -> None:
    """What a person refused is not executed by changing another call into it."""
    ledger = Ledger()

    def transfer(amount: int) -> str:
        """Send money."""
        ledger.note(amount=amount)
        return "sent"

    guarded = tool(requires_approval=lambda given: given["amount"] > 5)(transfer)
    script = [Call("transfer", {"amount": 10}, id="a"), Call("transfer", {"amount": 1}, id="b"), "done"]
    with ScriptedModel(script) as model:
        agent = make(model, [guarded]).pause_at("EXECUTE")
        agent.invoke("pay", {"configurable": {"run_id": "r"}})
        assert agent.resume("r", decision=Deny("no")).upcoming[0].id == "b"
        with pytest.raises(RunError, match="has refused"):
            agent.resume("r", change=Change(arguments={"b": {"amount": 10}}))
        agent.resume("r", change=Change(arguments={"b": {"amount": 2}}))
    assert ledger.entries == [{"amount": 2}]


def test_c08_another_amount_needs_another_yes() -> None:
    """A yes for 10 is none for 1000: the model's next call is asked about by itself, the same call too."""
    ledger = Ledger()
    asked: list[int] = []

    def approve(one: Any) -> bool:
        asked.append(one.arguments["amount"])
        return bool(one.arguments["amount"] == 10)

    script = [call("transfer", amount=10), call("transfer", amount=1000), call("transfer", amount=10), "done"]
    with ScriptedModel(script) as model:
        run(make(model, [transfer_of(ledger)], approve=approve), "pay")
    assert asked == [10, 1000, 10]
    assert [entry["amount"] for entry in ledger.entries] == [10, 10]


@pytest.mark.parametrize("way", ["approve", "resume"])
def test_c08_edited_arguments_are_checked_and_run_as_edited(way: str) -> None:
    """An edit runs once with its own arguments, and the history shows what really ran."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=1000), "done"]) as model:
        if way == "approve":
            result = run(make(model, [transfer_of(ledger)], approve=lambda _: Edit({"amount": 10})), "pay")
        else:
            agent = make(model, [transfer_of(ledger)])
            suspended(agent)
            result = agent.resume("r", decision=Edit({"amount": 10}))
    assert ledger.entries == [{"amount": 10, "to": "bob"}]
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 1)
    asked: Any = model.requests[1].messages[2]
    assert asked.tool_calls[0]["args"] == {"amount": 10, "to": "bob"}
    assert answers_in(model.requests[1])[0].text == "transferred 10 to bob"


@pytest.mark.parametrize("args", [{"amount": "much"}, {}, {"amount": 1, "dry_run": True}, {"amount": None}])
def test_c08_an_edit_that_does_not_fit_is_refused_and_the_run_still_waits(args: dict[str, Any]) -> None:
    """Resuming with wrong arguments raises, executes nothing, and the run can be resumed with right ones."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=1000), "done"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        with pytest.raises(RunError, match="do not fit"):
            agent.resume("r", decision=Edit(args))
        assert len(ledger) == 0
        assert agent.resume("r", decision=Edit({"amount": 1})).status is Status.COMPLETED
    assert ledger.entries == [{"amount": 1, "to": "bob"}]


def test_c08_an_edit_in_place_that_does_not_fit_executes_nothing() -> None:
    """The same through `approve`: nothing runs, the model is told, the run goes on."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=1000), "gave up"]) as model:
        result = run(make(model, [transfer_of(ledger)], approve=lambda _: Edit({"amount": "much"})), "pay")
    assert (len(ledger), result.tool_calls) == (0, 0)
    assert result.status in (Status.COMPLETED, Status.FAILED)


def test_c08_a_failed_call_is_not_retried_under_the_old_yes() -> None:
    """An approved call that fails in a way that could be retried is executed once: a second time needs a second yes."""
    ledger = Ledger()
    asked: list[str] = []

    def approve(one: Any) -> bool:
        asked.append(one.id)
        return True

    with ScriptedModel([call("transfer", amount=10), call("transfer", amount=10), "gave up"]) as model:
        result = run(
            make(model, [transfer_of(ledger, retry=3)], approve=approve, limits={"degrade_after": 9, "abort_after": 9}),
            "pay",
        )
    assert (len(ledger), len(asked), len(set(asked))) == (2, 2, 2)
    assert State.RETRY not in result.path()
    assert result.answer == "gave up"


@pytest.mark.parametrize(("waits", "expired"), [(59.0, False), (60.0, False), (61.0, True)])
def test_c08_an_expired_approval_is_no_approval(waits: float, expired: bool) -> None:
    """After `approval_timeout` a yes executes nothing: the run has expired, typed."""
    ledger, clock = Ledger(), FakeClock()
    model = ScriptedModel([call("transfer", amount=10), "done"])
    agent = make(model, [transfer_of(ledger)], clock=clock, limits={"approval_timeout": 60})
    waiting = suspended(agent)
    assert waiting.pending is not None
    assert waiting.pending.expires_in == 60
    clock.advance(waits)
    result = agent.resume("r", decision=Approve())
    if expired:
        assert (result.status, result.reason, len(ledger), model.count) == (Status.FAILED, StopReason.EXPIRED, 0, 1)
    else:
        assert (result.status, len(ledger)) == (Status.COMPLETED, 1)
    assert consistent(result.transitions)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("thinks", "expired"), [(59.0, False), (61.0, True)])
def test_c08_a_yes_in_place_that_comes_too_late_is_none(thinks: float, expired: bool, way: str) -> None:
    """`approve` is held to `approval_timeout` too: a yes after it executes nothing."""
    ledger, clock = Ledger(), FakeClock()

    def approve(_: Any) -> bool:
        clock.advance(thinks)
        return True

    model = ScriptedModel([call("transfer", amount=10), "done"])
    agent = make(model, [transfer_of(ledger)], clock=clock, limits={"approval_timeout": 60}, approve=approve)
    result = run(agent, "pay", way)
    assert len(ledger) == (0 if expired else 1)
    assert result.reason is (StopReason.EXPIRED if expired else StopReason.ANSWERED)


async def test_c08_a_person_who_never_answers_is_not_waited_for_for_ever() -> None:
    """An async `approve` that does not come back is given up on after `approval_timeout`: the run has expired."""
    ledger = Ledger()

    async def approve(_: Any) -> bool:
        await asyncio.Event().wait()
        return True

    model = ScriptedModel([call("transfer", amount=10)])
    agent = make(model, [transfer_of(ledger)], clock=None, limits={"approval_timeout": 0.03}, approve=approve)
    result = await asyncio.wait_for(agent.ainvoke("pay"), 2)
    assert (result.status, result.reason, len(ledger)) == (Status.FAILED, StopReason.EXPIRED, 0)


@pytest.mark.parametrize("way", WAYS)
def test_c08_a_person_who_takes_long_in_place_does_not_cost_the_deadline(way: str) -> None:
    """The time that `approve` takes does not count for the run's deadline."""
    ledger, clock = Ledger(), FakeClock()

    def approve(_: Any) -> bool:
        clock.advance(1000)
        return True

    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [transfer_of(ledger)], clock=clock, limits={"deadline": 10}, approve=approve)
        result = run(agent, "pay", way)
    assert (result.status, len(ledger)) == (Status.COMPLETED, 1)


def test_c08_waiting_for_a_person_does_not_count_for_the_deadline() -> None:
    """A day at the desk is not a day of the run."""
    ledger, clock = Ledger(), FakeClock()
    with ScriptedModel([call("transfer", amount=10), "done"]) as model:
        agent = make(model, [transfer_of(ledger)], clock=clock, limits={"deadline": 10})
        suspended(agent)
        clock.advance(86_400)
        result = agent.resume("r", decision=Approve())
    assert (result.status, len(ledger)) == (Status.COMPLETED, 1)


def test_c08_a_tool_that_changed_meanwhile_is_not_what_was_approved() -> None:
    """Approved while the tool was replaced by another one: nothing runs, and the run waits until somebody denies the call."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "hm"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        agent.tools.unregister("transfer")

        @tool("transfer", requires_approval=True)
        def other(amount: str) -> str:
            """Transfer in words."""
            ledger.note(amount=amount)
            return "ok"

        agent.tools.register(other)
        with pytest.raises(TrailVersion, match="another definition of transfer"):
            agent.resume("r", decision=Approve())
        result = agent.resume("r", decision=Deny("not that one"))
    assert len(ledger) == 0
    assert result.status is Status.COMPLETED
    assert answers_in(model.requests[1])[0].status == "error"


def test_c08_a_tool_that_is_gone_is_not_run() -> None:
    """Approved after the tool was unregistered: told as an error, nothing runs."""
    ledger = Ledger()
    with ScriptedModel([call("transfer", amount=10), "hm"]) as model:
        agent = make(model, [transfer_of(ledger)])
        suspended(agent)
        agent.tools.unregister("transfer")
        result = agent.resume("r", decision=Approve())
    assert (len(ledger), result.tool_calls, result.answer) == (0, 0, "hm")
