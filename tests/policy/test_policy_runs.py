"""A policy in real runs: what is executed, what the model and people see, and what a trail makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Answer, Approve, Edit, Limits, Registry, RunResult, State, Status, StopReason, Tool, tool
from fsm_agent.effects import Call, CallTools, Result, Returned
from fsm_agent.errors import PolicyError, TrailVersion
from fsm_agent.observe import silent_logger
from fsm_agent.policy import AtMost, NeverAfter, OneOf, Order, Stages, ToolPolicy
from fsm_agent.policy_state import within_policy
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.fork import fork
from fsm_agent.trail.replay import replay
from tests.core.builders import (
    ANSWERS,
    APPROVES,
    DENIES,
    asks,
    crashes,
    edits,
    gives,
    make_setup,
    mixed,
    play,
    start,
    waits,
)
from tests.core.builders import raw as asked

RUN: Any = {"configurable": {"run_id": "r"}}
SHOP = ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay"))


class Shop:
    """Three tools, and what they did; the names in `failing` fail."""

    def __init__(self, *failing: str, approve: bool = False, backup: bool = False) -> None:
        self.did: list[str] = []
        self.failing = failing
        self.tools: list[Tool] = [
            tool(fallback=tool()(self._made("archive")) if backup else None)(self._made("query_order")),
            tool()(self._made("discount")),
            tool(requires_approval=approve)(self._made("pay")),
        ]

    def _made(self, name: str) -> Callable[[str], str]:
        def run(order: str) -> str:
            self.did.append(name)
            if name in self.failing:
                raise TypeError(f"{name} is broken")
            return f"{name} of {order}"

        run.__name__, run.__doc__ = name, f"Do {name}."
        return run

    def agent(self, *replies: Any, policy: ToolPolicy | None = SHOP, **options: Any) -> Agent:
        """An agent of this shop."""
        return Agent(ScriptedModel(list(replies)), self.tools, policy=policy, logger=silent_logger(), **options)


def said(result: RunResult) -> list[str]:
    """What the model read of its calls."""
    return [str(message.content) for message in result.messages if message.type == "tool"]


def order(name: str, number: str = "1") -> Any:
    """A call of a tool of the shop."""
    return call(name, order=number)


def test_a_call_out_of_turn_is_told_counted_and_not_executed() -> None:
    """The model reads what is missing and goes on; the violation is a failure of its reply, not the end of the run."""
    shop = Shop()
    agent = shop.agent(order("pay"), order("query_order"), order("discount"), order("pay"), order("pay", "2"), "Paid.")
    result = agent.invoke("Pay order 1.")
    assert (result.status, result.answer) == (Status.COMPLETED, "Paid.")
    assert shop.did == ["query_order", "discount", "pay"]
    assert (
        "missing, in this order: query_order, discount. Tools that may be called now: query_order." in said(result)[0]
    )
    assert "at most once" in said(result)[4]
    assert (result.tool_calls, [one.failures for one in result.transitions if one.source is State.OBSERVE]) == (
        3,
        [1, 0, 0, 0, 1],
    )


def test_a_model_that_insists_is_stopped_by_the_circuit() -> None:
    """Violations in a row end the run as other failures do."""
    shop = Shop()
    result = shop.agent(*[order("pay", str(number)) for number in range(5)], limits=Limits(max_degradations=0)).invoke(
        "Pay."
    )
    assert (result.reason, shop.did) == (StopReason.CONSECUTIVE_FAILURES, [])
    assert "Refused by the tool policy" in result.detail


def test_a_batch_is_judged_in_order_as_what_runs_at_the_same_time() -> None:
    """Of two calls where one waits for the other, or of two that are one too many, the later is refused and the rest runs."""
    shop = Shop()
    agent = shop.agent(
        reply("", order("query_order"), order("discount")),
        order("discount"),
        reply("", order("pay", "1"), order("pay", "1"), order("pay", "2"), order("query_order", "3")),
        "Done.",
    )
    result = agent.invoke("Pay order 1.")
    assert shop.did[:2] == ["query_order", "discount"]
    assert sorted(shop.did[2:]) == ["pay", "query_order"]
    assert "which this reply calls too; call discount in a later reply" in said(result)[1]
    assert [text.startswith("Refused by the tool policy") for text in said(result)] == [
        *(False, True, False),
        *(False, True, True, False),
    ]


def test_a_call_that_failed_is_used_up_and_opens_nothing() -> None:
    """For "at most" what began counts, for "after" only what succeeded."""
    shop = Shop("discount")
    policy = ToolPolicy(Order("discount", "pay"), AtMost("discount", 2))
    agent = shop.agent(
        *[order("discount", "1"), order("pay"), order("discount", "2"), order("discount", "3"), "Sorry."],
        policy=policy,
        limits=Limits(abort_after=9, degrade_after=9, no_progress_steps=9),
    )
    result = agent.invoke("Pay.")
    assert shop.did == ["discount", "discount"]
    assert "after discount has succeeded" in said(result)[1]
    assert "discount may be called at most 2 times" in said(result)[3]


def test_the_engines_own_retry_is_the_same_call() -> None:
    """A call that is tried again after a failure that had no effect is counted once."""
    tries: list[str] = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        tries.append(order)
        if len(tries) == 1:
            raise ConnectionRefusedError("nobody there")
        return "paid"

    agent = Agent(
        ScriptedModel([order("pay"), order("pay", "2"), "Paid."]),
        [pay],
        policy=ToolPolicy(AtMost("pay")),
        limits=Limits(backoff=0),
        logger=silent_logger(),
    )
    result = agent.invoke("Pay.")
    assert tries == ["1", "1"]
    assert "at most once" in said(result)[1]


def test_a_refused_call_asks_nobody() -> None:
    """A violation is no question to a person, though the tool needs approval."""
    shop = Shop(approve=True)
    agent = shop.agent(order("pay"), "No.", approve=lambda request: pytest.fail("nobody is to be asked"))
    assert agent.invoke("Pay.").status is Status.COMPLETED
    assert shop.did == []


def test_an_approved_and_an_edited_call_go_through_the_policy() -> None:
    """What a person let through, or wrote anew, counts like the model's own; the next one is refused."""
    for decision in (Approve(), Edit({"order": "7"})):
        shop = Shop(approve=True)
        policy = ToolPolicy(AtMost("pay"))
        agent = shop.agent(order("pay"), order("pay", "2"), "Done.", policy=policy, approve=lambda _, one=decision: one)
        assert "at most once" in said(agent.invoke("Pay."))[1]
        assert shop.did == ["pay"]


def test_what_a_person_answered_counts_as_done() -> None:
    """An answer in place of a call opens what waits for it, and uses it up."""
    shop = Shop(approve=True)
    agent = shop.agent(
        *[order("pay"), order("pay", "2"), order("discount"), "Done."],
        policy=ToolPolicy(AtMost("pay"), Order("pay", "discount")),
        approve=lambda _: Answer("paid by hand"),
    )
    result = agent.invoke("Pay.")
    assert said(result)[0] == "paid by hand"
    assert "at most once" in said(result)[1]
    assert shop.did == ["discount"]


def test_a_fallback_goes_through_the_policy() -> None:
    """A fallback that a rule forbids is not executed; the model reads the failure."""
    shop = Shop("query_order", backup=True)
    agent = shop.agent(
        *[order("query_order"), order("query_order", "2"), "Sorry."],
        policy=ToolPolicy(OneOf("archive", "query_order")),
        limits=Limits(degrade_after=1, abort_after=5, max_degradations=1),
    )
    assert "query_order is broken" in said(agent.invoke("Look."))[0]
    assert "archive" not in shop.did


def test_a_fallback_stands_for_the_tool_that_was_asked_for() -> None:
    """When a fallback succeeds, what waits for the tool that it stood in for is open."""
    shop = Shop("query_order", backup=True)
    agent = shop.agent(order("query_order"), order("discount"), "Done.", limits=Limits(degrade_after=1))
    assert agent.invoke("Look.").status is Status.COMPLETED
    assert shop.did == ["query_order", "archive", "discount"]


def test_the_model_is_told_the_rules_in_its_language() -> None:
    """The system text has them, before anything is broken."""
    shop = Shop()
    agent = shop.agent("Done.", "好。")
    model: Any = agent.model
    agent.invoke("Pay order 1.")
    agent.invoke("请支付订单。")
    texts = [str(request.messages[0].content) for request in model.requests]
    assert "pay only after discount has succeeded; pay at most once" in texts[0]
    assert "pay 最多 1 次" in texts[1]


def test_a_refusal_names_only_tools_that_the_ladder_has_left() -> None:
    """A tool that was withheld from the run is not among those that may be called now."""
    ctx = start(make_setup(policy=ToolPolicy(Order("look", "add"))), withheld=frozenset({"poll"}))
    refused = within_policy(ctx, Call(id="1", name="add", tool="add", needs_approval=True), ())
    assert refused.refusal.endswith("Tools that may be called now: look, pay, shaky.")
    assert (refused.refusal_kind, refused.needs_approval) == ("policy", False)


def test_stages_lead_through_a_run() -> None:
    """A machine written row by row is followed, and its stage is told."""
    shop = Shop()
    rows = Stages(("new", "query_order", "known"), ("known", "query_order", "known"), ("known", "pay", "paid"))
    agent = shop.agent(
        order("pay"), order("query_order"), order("pay"), order("query_order", "2"), "Done.", policy=ToolPolicy(rows)
    )
    result = agent.invoke("Pay.")
    assert shop.did == ["query_order", "pay"]
    assert 'in the stage "new"; there it is query_order' in said(result)[0]
    assert 'in the stage "paid"; there it is none of them' in said(result)[3]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_text_of_a_refusal_is_in_the_language_of_the_run(language: Any) -> None:
    """A run that is held in Chinese reads its refusals in Chinese."""
    result = Shop().agent(order("pay"), "Done.", language=language).invoke("Pay.")
    assert said(result)[0].startswith("Refused by" if language == "en" else "工具规则拒绝")


# ---------------------------------------------------------------- trails


def test_another_process_goes_on_where_the_policy_stood(tmp_path: Path) -> None:
    """After a restart the position is folded from the trail: what was open is open, what was used up stays so."""
    shop, path = Shop(), tmp_path / "runs.db"
    first = shop.agent(order("query_order"), order("discount"), order("pay"), store=path).pause_at(after_step=3)
    assert first.invoke("Pay.", RUN).status is Status.SUSPENDED
    again = shop.agent(order("pay", "2"), order("discount", "2"), "Done.", store=path)
    result = again.resume("r")
    assert (result.status, shop.did) == (Status.COMPLETED, ["query_order", "discount", "pay", "discount"])
    assert audit(again.journal, "r", again.setup).findings == ()
    folded = replay(again.journal.entries("r")).folded
    assert folded.ctx.position == (2, 1)
    assert folded.ctx.setup.policy == SHOP


def test_an_agent_with_another_policy_does_not_go_on(tmp_path: Path) -> None:
    """Resuming under other rules, or none, is refused by name; under equal ones it goes on."""
    shop, path = Shop(), tmp_path / "runs.db"
    shop.agent(order("query_order"), store=path).pause_at(after_step=1).invoke("Pay.", RUN)
    for policy in (None, ToolPolicy(AtMost("pay"))):
        with pytest.raises(TrailVersion, match="another policy"):
            shop.agent(store=path, policy=policy).resume("r")
    same = ToolPolicy(Order("query_order", "discount", "pay"), AtMost("pay"))
    assert shop.agent("Done.", store=path, policy=same).resume("r").status is Status.COMPLETED


def test_a_fork_stands_where_its_past_left_it() -> None:
    """In a fork the policy has seen the kept past only, and a call of the other one still needs a person's yes."""
    shop, store = Shop(), MemoryTrail()
    agent = shop.agent(order("query_order"), order("discount"), order("pay"), "Paid.", store=store)
    result = agent.invoke("Pay.", RUN)
    after_one = next(one.seq for one in result.transitions if one.source is State.DECIDE)
    fork(agent.journal, "r", at=after_one, new_run_id="f")
    other = shop.agent(order("pay"), order("discount"), "Forked.", store=store)
    waiting = other.resume("f")
    assert (waiting.status, waiting.requests[0].tool) == (Status.SUSPENDED, "discount")
    done = other.resume("f", decision=Approve())
    assert "missing, in this order: discount" in said(done)[1]
    assert shop.did == ["query_order", "discount", "pay", "discount"]
    assert audit(other.journal, "f", other.setup).findings == ()


def test_a_policy_is_of_one_run_not_of_a_conversation() -> None:
    """The next turn of a thread begins at the start again."""
    shop = Shop()
    agent = shop.agent(order("query_order"), "Known.", order("discount"), "Not yet.")
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke("Look.", config)
    assert "missing, in this order: query_order" in said(agent.invoke("And the discount?", config))[-1]
    assert shop.did == ["query_order"]


ONCE = make_setup(
    policy=ToolPolicy(AtMost("look"), Order("look", "add")), limits={"abort_after": 9, "degrade_after": 9}
)
LOOK, AGAIN, ADD = asks(asked("look", q="x")), asks(asked("look", q="y")), asks(asked("add", a=1, b=2))
DOUBTS = {
    "approved": ((APPROVES, gives("seen")), True),
    "edited": ((edits(q="z"), gives("seen")), True),
    "denied": ((DENIES,), False),
    "answered": ((ANSWERS,), True),
}


@pytest.mark.parametrize(("lines", "opens"), DOUBTS.values(), ids=DOUBTS)
def test_a_call_in_doubt_counts_once_whatever_a_person_says(lines: Any, opens: bool) -> None:
    """After a crash a person may have the same call run; another one is too many, denied or not, as it may have had its effect."""
    moments = play(LOOK, crashes("?"), *lines, AGAIN, ADD, *([gives("3")] if opens else []), setup=ONCE)
    checked = [call for moment in moments if moment.state is State.VALIDATE for call in moment.fired.ctx.calls]
    refused = [call.tool for call in checked if call.refusal_kind == "policy"]
    assert refused == (["look"] if opens else ["look", "add"])


def test_a_call_in_doubt_that_the_model_is_told_of_counts() -> None:
    """Without a person its outcome is unknown: it has begun, and has not succeeded."""
    setup = make_setup(policy=ToolPolicy(AtMost("look")), limits={"in_doubt": "tell"})
    last = play(LOOK, crashes("?"), AGAIN, setup=setup)[-1].fired.ctx
    assert last.position == (1,)
    assert last.calls[0].refusal_kind == "policy"


def test_a_retry_in_doubt_that_a_person_edits_is_the_same_call() -> None:
    """It was let through before it began, so that it is not one too many now."""
    crashed = (mixed(False, retryable=True), waits, crashes("?"))
    moments = play(LOOK, *crashed, edits(q="z"), gives("seen"), setup=ONCE)
    assert [call.refusal for moment in moments for call in moment.fired.ctx.calls if call.refusal] == []
    assert moments[-1].fired.ctx.position == (1, 1)


def test_a_call_whose_tool_was_taken_away_has_not_begun() -> None:
    """A result of what was never executed uses nothing up."""

    def gone(effect: CallTools) -> Returned:
        result = Result(
            call_id=effect.calls[0].id, tool="look", ok=False, text="gone", error="unregistered", executed=False
        )
        return Returned(results=(result,))

    last = play(LOOK, gone, AGAIN, setup=ONCE)[-1].fired.ctx
    assert [call.refusal for call in last.calls] == [""]


def test_a_call_that_is_refused_already_keeps_its_reason() -> None:
    """What a person has denied is not told as a breach of the policy, which would count as a failure."""
    ctx = start(make_setup(policy=ToolPolicy(Order("look", "add"))))
    denied = Call(id="1", name="add", tool="add", refusal="No.", refusal_kind="denied")
    assert within_policy(ctx, denied, ()) is denied


def test_a_retry_beside_a_success_is_no_second_call() -> None:
    """In a batch of which one call is tried again, neither is counted twice."""
    setup = make_setup(policy=ToolPolicy(AtMost("look", 3), AtMost("add", 3)))
    batch = asks(asked("look", q="x"), asked("add", a=1, b=2))
    moments = play(batch, mixed(False, True, retryable=True), waits, gives("x"), AGAIN, setup=setup)
    assert [moment.fired.ctx.position for moment in moments][-1] == (1, 1)


# ---------------------------------------------------------------- definitions


def test_a_policy_and_tools_that_do_not_fit_are_refused() -> None:
    """An agent with a policy of a tool that it lacks, or with what is no policy, is not made; a hidden fallback is known."""
    shop = Shop(backup=True)
    with pytest.raises(
        PolicyError, match=r"'refund' that the agent does not have; it has query_order.*refund at most once"
    ):
        shop.agent(policy=ToolPolicy(AtMost("refund")))
    rules: Any = [AtMost("pay")]
    with pytest.raises(PolicyError, match="is no ToolPolicy"):
        shop.agent(policy=rules)
    assert shop.agent(policy=ToolPolicy(NeverAfter("archive", after="pay"))).policy is not None


def test_a_run_begins_only_with_the_tools_that_the_policy_names() -> None:
    """When a tool was unregistered since, the next run says so; nothing has happened."""
    shop = Shop()
    registry = Registry(shop.tools)
    agent = Agent(ScriptedModel(["Hello."]), registry, policy=SHOP, logger=silent_logger())
    registry.unregister("discount")
    with pytest.raises(PolicyError, match="'discount'"):
        agent.invoke("Pay.", RUN)
    assert not agent.cancel("r")
    registry.register(shop.tools[1])
    assert agent.invoke("Hello?", RUN).answer == "Hello."


def test_a_policy_costs_the_same_however_long_a_run_is() -> None:
    """The position does not grow with the calls that were made."""
    policy = ToolPolicy(AtMost("pay"), Order("query_order", "discount"))
    shop, store = Shop(), MemoryTrail()
    replies = [order("query_order", str(number)) for number in range(30)]
    agent = shop.agent(*replies, "Done.", policy=policy, store=store, limits=Limits(max_steps=40))
    agent.invoke("Look.", RUN)
    positions = [turned.fired.ctx.position for turned in replay(agent.journal.entries("r"), agent.setup).turns]
    assert [one for one, _ in itertools.groupby(positions)] == [(), (0, 1)]
