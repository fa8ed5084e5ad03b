"""Tables of one's own: a state, rows and guards are added in a few lines, refused where they are wrong, and go through everything else."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool as langchain_tool

from fsm_agent import Agent, Approve, Deny, Limits, State, Status, StopReason, ToolResult, table, tool
from fsm_agent.context import Context
from fsm_agent.custom import OwnState, Said
from fsm_agent.diagrams import diagram, diff
from fsm_agent.diagrams.value import TextFormat
from fsm_agent.errors import DefinitionError, TableError, TrailVersion
from fsm_agent.examples.compliance import TABLE as COMPLIANT
from fsm_agent.examples.compliance import compliance
from fsm_agent.guards import Compared
from fsm_agent.language import EN
from fsm_agent.machine import Machine
from fsm_agent.observe import event_of, silent_logger
from fsm_agent.rows import Row
from fsm_agent.table import Table
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.tools.results import render_result
from fsm_agent.trail import MemoryTrail, audit, fold, fork, replay
from fsm_agent.trail.retold import spoken
from fsm_agent.verify import Certificate, Fault, verify

SMALL = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=0, abort_after=2, token_budget=None)
RUN: Any = {"configurable": {"run_id": "r"}}
CARD = "4111 1111 1111 1111"
ACCEPTED, APPROVED = "VALIDATE --accepted--> EXECUTE", "REVIEW --approved--> EXECUTE"
TO_COMPLIANCE = {
    ACCEPTED: "VALIDATE --accepted--> COMPLIANCE",
    APPROVED: "REVIEW --approved--> COMPLIANCE",
}
LAST = "DECIDE --decided--> PLAN"


def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent to {to}"


@tool(requires_approval=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def agent_on(store: Any, replies: Sequence[Any], tools: Sequence[Any] = (send, pay), **options: Any) -> Agent:
    """An agent as a process of its own would make it."""
    options.setdefault("table", COMPLIANT)
    return Agent(ScriptedModel(list(replies)), tools, store=store, logger=silent_logger(), **options)


def judged(*events: str, says: Callable[[Context], Said] | None = None, name: str = "CHECK") -> OwnState:
    """A state between VALIDATE and EXECUTE that says its first event, or what `says` does."""
    return table.state(name, events=events)(says or (lambda ctx: events[0]))


def placed(state: OwnState, *rows: Row | str, **more: Any) -> Table:
    """The table with that state in the place where calls are let through."""
    instead = {ACCEPTED: f"VALIDATE --accepted--> {state.name}", **more.pop("instead", {})}
    return table.extend(states=[state], instead=instead, rows=rows, **more)


def names(path: Sequence[State]) -> str:
    """A path in one text."""
    return " ".join(path)


# ---------------------------------------------------------------- the example


def test_a_call_that_compliance_flags_is_never_executed() -> None:
    """COMPLIANCE stands between VALIDATE and EXECUTE: the model reads why a call was refused, and the others of its reply run."""
    log: list[str] = []

    def noted(to: str, text: str) -> str:
        """Send a message."""
        log.append(text)
        return f"sent to {to}"

    both = [call("noted", to="Ana", text=CARD), call("noted", to="Bob", text="hello")]
    model = [call("noted", to="Ana", text=f"my card is {CARD}"), both, "Done."]
    result = agent_on(None, model, [noted]).invoke("tell them")
    assert (result.status, log) == (Status.COMPLETED, ["hello"])
    assert names(result.path()).startswith("PLAN VALIDATE COMPLIANCE OBSERVE DECIDE PLAN VALIDATE COMPLIANCE EXECUTE")
    refused = [str(message.content) for message in result.messages if message.type == "tool"]
    assert refused == ["Not executed: card numbers must not be sent to tools"] * 2 + ["sent to Bob"]


@pytest.mark.parametrize("format", get_args(TextFormat))
def test_compliance_is_drawn_in_every_format_with_a_run_in_it(format: TextFormat) -> None:
    """The picture of an agent is that of its own table, and a run through COMPLIANCE is drawn into it."""
    agent = agent_on(None, [call("send", to="Ana", text="hi"), "Sent."])
    result = agent.invoke("say hi")
    plain, drawn = agent.diagram(format), agent.diagram(format, result)
    assert "COMPLIANCE" in plain
    assert "cleared" in plain
    assert "not in the table" not in drawn
    assert drawn != plain
    assert "COMPLIANCE" in diff(result, result, format, rows=COMPLIANT)


def test_compliance_is_verified() -> None:
    """Every event of COMPLIANCE is explored in every configuration that leads there, and a run still ends; the worst case counts it in."""
    found, plain = verify(SMALL, rows=COMPLIANT), verify(SMALL)
    assert found.ok, str(found)
    assert found.worst is not None and plain.worst is not None  # noqa: PT018 - one thing: both have a worst case
    assert found.worst.transitions > plain.worst.transitions
    assert (found.worst.model_calls, found.worst.retries) == (plain.worst.model_calls, plain.worst.retries)
    assert "every run ends" in found.proved


def test_a_run_through_compliance_is_resumed_replayed_audited_and_forked(tmp_path: Path) -> None:
    """A stored run of a table of one's own goes on in another process that has the table, and folds there to what it was."""
    path = tmp_path / "runs.db"
    first = agent_on(path, [call("pay", to="bob", amount=3)]).invoke("pay bob", RUN)
    assert first.status is Status.SUSPENDED
    again = agent_on(path, ["Bob is paid."])
    result = again.resume("r", decision=Approve())
    assert (result.status, result.answer) == (Status.COMPLETED, "Bob is paid.")
    assert "REVIEW COMPLIANCE EXECUTE" in names(result.path())
    entries = again.journal.entries("r")
    replayed = replay(entries, again.setup, machine=again.machine)
    assert [one.fired.row.target for one in replayed.turns] == list(result.path())[1:]
    checked = audit(again.journal, "r", again.setup)
    assert checked.ok, checked.findings
    forked = fork(again.journal, "r", at=2, new_run_id="f")
    assert agent_on(path, []).resume(forked).status is Status.SUSPENDED


def test_a_trail_says_by_name_which_table_is_missing(tmp_path: Path) -> None:
    """Read without its table, a run of a table of one's own is refused, and the error names the states and guards that are missing."""
    path = tmp_path / "runs.db"
    agent_on(path, [call("pay", to="bob", amount=3)]).invoke("pay bob", RUN)
    plain = agent_on(path, ["Bob is paid."], table=None)
    entries = plain.journal.entries("r")
    named = r"a table of its own, with the states COMPLIANCE, .*table="
    with pytest.raises(TrailVersion, match=named):
        plain.resume("r", decision=Approve())
    with pytest.raises(TrailVersion, match=named):
        fold(entries)
    found = audit(plain.journal, "r", plain.setup)
    assert [one.what for one in found.findings if "the states COMPLIANCE" in one.what]
    other = placed(judged("fine"), "CHECK --fine--> EXECUTE")
    with pytest.raises(TrailVersion, match=named):
        agent_on(path, [], table=other).resume("r", decision=Approve())
    assert agent_on(path, ["Paid."]).resume("r", decision=Approve()).ok


def test_a_trail_of_the_built_in_table_is_not_gone_on_with_under_another() -> None:
    """A run that began under the built-in table is refused by an agent with a state more."""
    store = MemoryTrail()
    agent_on(store, [call("pay", to="bob", amount=3)], table=None).invoke("pay bob", RUN)
    with pytest.raises(TrailVersion, match="read with one that has COMPLIANCE"):
        agent_on(store, []).resume("r", decision=Approve())


def test_runs_pause_before_a_state_of_ones_own() -> None:
    """`pause_at` takes the states of the agent's own table, and no other."""
    agent = agent_on(None, [call("send", to="Ana", text="hi"), "Sent."])
    paused = agent.pause_at("COMPLIANCE").invoke("say hi", RUN)
    assert (paused.status, paused.path()[-1]) == (Status.SUSPENDED, "COMPLIANCE")
    assert agent.resume("r").ok
    with pytest.raises(DefinitionError, match="state 'COMPLIANCE' does not exist"):
        agent_on(None, [], table=None).pause_at("COMPLIANCE")


# ---------------------------------------------------------------- what such a state may do


def test_a_state_of_ones_own_may_stop_the_run_for_a_reason_of_its_own(tmp_path: Path) -> None:
    """A row to ABORT has a reason of one's own, typed, told in the detail, kept in the trail and read back from there."""
    mine = placed(judged("blocked"), "CHECK --blocked--> ABORT (sanctioned)")
    agent = agent_on(tmp_path / "runs.db", [call("send", to="Ana", text="hi")], table=mine)
    result = agent.invoke("say hi", RUN)
    assert (result.status, result.reason) == (Status.FAILED, "sanctioned")
    assert isinstance(result.reason, StopReason)
    assert result.detail.startswith("sanctioned; ")
    folded = fold(agent.journal.entries("r"), agent.setup, machine=agent.machine)
    assert folded.transitions[-1].reason is result.reason
    assert agent.trails is not None
    assert agent.trails.info("r").reason == "sanctioned"


def test_a_state_of_ones_own_may_have_a_person_asked() -> None:
    """`require_approval` with an event that leads to REVIEW: a person is asked once, and an approved call runs."""

    def unsure(ctx: Context) -> Said:
        return ("cleared", ctx) if any(one.approved for one in ctx.calls) else ("unsure", table.require_approval(ctx))

    mine = placed(
        judged("cleared", "unsure", says=unsure),
        "CHECK --cleared--> EXECUTE",
        "CHECK --unsure [approval_required]--> REVIEW",
        "CHECK --unsure--> EXECUTE",
        instead={APPROVED: "REVIEW --approved--> CHECK"},
    )
    assert verify(SMALL, rows=mine).ok
    agent = agent_on(None, [call("send", to="Ana", text="hi"), "Sent."], table=mine)
    assert agent.invoke("say hi", RUN).status is Status.SUSPENDED
    result = agent.resume("r", decision=Approve())
    assert result.ok
    assert "VALIDATE CHECK REVIEW CHECK EXECUTE" in names(result.path())


def asking_about(name: str) -> Table:
    """A table in which a person is asked about each call of that tool which nobody has approved."""

    def unsure(ctx: Context) -> Said:
        held = [one for one in table.open_calls(ctx) if one.tool == name and not one.approved]
        return ("unsure", table.require_approval(ctx, *held)) if held else "cleared"

    return placed(
        judged("cleared", "unsure", says=unsure),
        "CHECK --cleared--> EXECUTE",
        "CHECK --unsure [approval_required]--> REVIEW",
        "CHECK --unsure--> EXECUTE",
        instead={APPROVED: "REVIEW --approved--> CHECK"},
    )


def test_a_call_is_not_let_through_beside_one_that_a_person_decided_about() -> None:
    """What needs a yes by a state of one's own does not run on the yes to its sibling: it is refused, and asked about alone."""
    both = reply("", call("pay", to="Ana", amount=1), call("send", to="Ana", text="hi"))
    agent = agent_on(None, [both, call("send", to="Ana", text="hi"), "Sent."], table=asking_about("send"))
    first = agent.invoke("pay", RUN)
    assert [one.tool for one in first.requests] == ["pay"]
    second = agent.resume("r", decision=Approve())
    assert [one.tool for one in second.requests] == ["send"]
    assert [one.text for one in second.results] == ["paid 1 to Ana"]
    result = agent.resume("r", decision=Approve())
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 2)
    refused = [str(one.content) for one in result.messages if isinstance(one, ToolMessage)][1]
    assert refused == EN.refused.format(reason=EN.approval_late)


def test_a_person_is_asked_where_only_the_engine_refused_a_sibling() -> None:
    """A fallback, and a call beside one that was denied before, are asked about: no person has decided in that round."""

    @tool(fallback="send")
    def post(to: str, text: str) -> str:
        """Post a letter."""
        raise ValueError("no stamps")

    wrong = reply("", call("post", to="Ana", text="hi"), call("nothing"))
    agent = agent_on(None, [wrong, "Sent."], [post, send], table=asking_about("send"), limits=Limits(degrade_after=1))
    assert [one.tool for one in agent.invoke("post", RUN).requests] == ["send"]
    again = reply("", call("pay", to="Ana", amount=1), call("send", to="Ana", text="hi"))
    other = agent_on(None, [call("pay", to="Ana", amount=1), again, "Sent."], table=asking_about("send"))
    other.invoke("pay", RUN)
    assert [one.tool for one in other.resume("r", decision=Deny("no")).requests] == ["send"]


def test_a_state_of_ones_own_may_refuse_an_answer() -> None:
    """Between VALIDATE and FINISH a state judges the answer: refused, the model reads why and answers again."""

    def honest(ctx: Context) -> Said:
        return ("refuted", table.refuse(ctx, "say the number")) if "some" in str(ctx.answer) else "confirmed"

    mine = table.extend(
        states=[judged("confirmed", "refuted", says=honest, name="PROOF")],
        instead={"VALIDATE --answered--> FINISH": "VALIDATE --answered--> PROOF"},
        rows=["PROOF --confirmed--> FINISH", "PROOF --refuted--> OBSERVE"],
    )
    assert verify(SMALL, rows=mine).ok
    result = agent_on(None, ["There are some.", "There are 3."], table=mine).invoke("how many?")
    assert (result.status, result.answer) == (Status.COMPLETED, "There are 3.")
    assert "This answer was not accepted: say the number" in str([message.content for message in result.messages])


def test_an_answer_that_is_stopped_is_kept_nowhere() -> None:
    """A run that a state of one's own aborts has no answer: not in the result, not in its messages, not in those that a trail gives."""
    mine = table.extend(
        states=[judged("blocked", "fine", name="PROOF")],
        instead={"VALIDATE --answered--> FINISH": "VALIDATE --answered--> PROOF"},
        rows=["PROOF --blocked--> ABORT (leaked)", "PROOF --fine--> FINISH"],
    )
    agent = agent_on(MemoryTrail(), ["The secret is 3."], table=mine)
    result = agent.invoke("what is it?", RUN)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, "leaked", None)
    assert "secret is" not in str(result.messages)
    folded = fold(agent.journal.entries("r"), agent.setup, machine=agent.machine)
    assert [message.text for message in spoken(folded)] == ["what is it?"]


def test_a_state_of_ones_own_may_wait_and_keep_facts() -> None:
    """A pause is an effect like that before a retry, and what is kept is read by later states and guards."""
    seen: list[int] = []

    def counted(ctx: Context) -> Said:
        seen.append(ctx.own.get("turns", 0))
        return "paced", table.keep(ctx, turns=ctx.own.get("turns", 0) + 1)

    mine = placed(
        table.state("PACE", events=["paced"], wait=0.001)(counted),
        "PACE --paced [deadline_passed]--> ABORT (deadline)",
        "PACE --paced--> EXECUTE",
    )
    assert verify(SMALL.replace(deadline=9.0), rows=mine).ok
    model = [call("send", to="Ana", text="1"), call("send", to="Ana", text="2"), "Sent."]
    assert agent_on(None, model, table=mine).invoke("say hi").ok
    assert seen == [0, 1]


def rewritten(ctx: Context) -> Said:
    """What a state without types may do to a call that it only reads."""
    for one in ctx.calls:
        arguments: Any = one.arguments
        arguments["text"] = "something else"
    return "fine"


FORBIDDEN = [
    pytest.param(lambda ctx: ("fine", ctx.change(step=0)), "changed step", id="a counter"),
    pytest.param(lambda ctx: ("fine", ctx.change(calls=())), "added or took away calls", id="a call taken away"),
    pytest.param(
        lambda ctx: ("fine", ctx.change(calls=tuple(replace(one, arguments={}) for one in ctx.calls))),
        "changed the call of send",
        id="arguments",
    ),
    pytest.param(rewritten, "changed the call of send", id="arguments in their place"),
    pytest.param(
        lambda ctx: ("fine", ctx.change(calls=tuple(replace(one, approved=True) for one in ctx.calls))),
        "changed the call of send",
        id="an approval given",
    ),
    pytest.param(lambda ctx: ("fine", table.require_approval(ctx)), "no row to REVIEW", id="nobody to ask"),
    pytest.param(lambda ctx: ("fine", ctx.change(answer="I say so")), "an answer where there was none", id="an answer"),
    pytest.param(lambda ctx: ("fine", ctx.change(note="psst")), "wrote a note", id="a note"),
    pytest.param(lambda ctx: "else", "returned 'else', and has the events fine", id="another event"),
    pytest.param(lambda ctx: ("fine", None), "returned NoneType", id="no context"),
    pytest.param(lambda ctx: 1 / 0, "ZeroDivisionError", id="an error"),
]


@pytest.mark.parametrize(("says", "named"), FORBIDDEN)
def test_what_a_state_of_ones_own_may_not_do_ends_the_run_by_name(says: Callable[[Context], Any], named: str) -> None:
    """No count, limit, approval or argument can be changed by such a state: the run ends as internal_error, and says what it did."""
    log: list[str] = []

    @tool(name="send")
    def logged(to: str, text: str) -> str:
        """Send a message."""
        log.append(text)
        return to

    mine = placed(judged("fine", says=says), "CHECK --fine--> EXECUTE")
    result = agent_on(None, [call("send", to="Ana", text="hi")], [logged], table=mine).invoke("say hi")
    assert (result.status, result.reason, log) == (Status.FAILED, StopReason.INTERNAL_ERROR, [])
    assert named in result.detail


def failing(ctx: Context) -> Compared:
    """A guard that raises."""
    raise KeyError("score")


def test_a_guard_that_raises_ends_the_run_by_name() -> None:
    """A bug in a guard of one's own is no exception of the caller: internal_error, with the guard's name."""
    guard = table.guard("never", name="sure")(failing)
    mine = table.extend(before={LAST: "DECIDE --decided [sure]--> ABORT (unsure)"}, guards=[guard])
    result = agent_on(None, [call("send", to="Ana", text="hi")], table=mine).invoke("say hi")
    assert result.reason is StopReason.INTERNAL_ERROR
    assert "the guard sure failed: KeyError" in result.detail


def test_a_guard_that_rewrites_a_call_in_its_place_ends_the_run_by_name() -> None:
    """A guard only asks, as a state of one's own only judges: what was let through is what runs, or nothing does."""
    log: list[str] = []

    @tool(name="send")
    def logged(to: str, text: str) -> str:
        """Send a message."""
        log.append(text)
        return to

    def rewriting(ctx: Context) -> bool:
        rewritten(ctx)
        return False

    guard = table.guard("it is odd", name="odd")(rewriting)
    mine = table.extend(
        before={"VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted [odd]--> OBSERVE"}, guards=[guard]
    )
    result = agent_on(None, [call("send", to="Ana", text="hi"), "Sent."], [logged], table=mine).invoke("say hi")
    assert (result.reason, log) == (StopReason.INTERNAL_ERROR, [])
    assert "the guard odd failed: ValueError: it changed the call of send" in result.detail


def test_a_table_that_goes_in_a_circle_ends_the_run(tmp_path: Path) -> None:
    """A state of one's own that leads back to itself for ever, unverified: internal_error after a thousand rounds, in a sound trail."""
    mine = placed(judged("again", "fine"), "CHECK --again--> CHECK", "CHECK --fine--> EXECUTE")
    agent = agent_on(tmp_path / "runs.db", [call("send", to="Ana", text="hi")], table=mine)
    result = agent.invoke("say hi", RUN)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.INTERNAL_ERROR)
    assert "CHECK: RunError: 1,000 transitions in a row asked for nothing: the table goes in a circle" in result.detail
    assert len(result.transitions) < 1_010
    checked = audit(agent.journal, "r", agent.setup)
    assert checked.ok, checked.findings


def test_a_table_that_leads_a_call_past_its_approval_ends_the_run(tmp_path: Path) -> None:
    """What `verify` shows beforehand is refused by the run too: a call that waits for a person is not executed, whatever the rows say."""
    log: list[int] = []

    @tool("pay", requires_approval=True)
    def paid(to: str, amount: int) -> str:
        """Pay somebody."""
        log.append(amount)
        return to

    review = "VALIDATE --accepted [approval_required]--> REVIEW"
    mine = table.extend(
        states=[judged("fine")], rows=[FINE], instead={review: "VALIDATE --accepted [approval_required]--> CHECK"}
    )
    assert "approval" in [one.kind for one in verify(limits=SMALL, rows=mine).faults]
    agent = agent_on(tmp_path / "runs.db", [call("pay", to="Ana", amount=5)], [paid], table=mine)
    result = agent.invoke("pay", RUN)
    assert (result.status, result.reason, log) == (Status.FAILED, StopReason.INTERNAL_ERROR, [])
    assert "EXECUTE: RunError: the table leads a call past REVIEW" in result.detail
    checked = audit(agent.journal, "r", agent.setup)
    assert checked.ok, checked.findings


def test_a_state_may_come_back_to_itself_while_it_counts(tmp_path: Path) -> None:
    """A circle that ends by facts of one's own is none, however often runs go round it."""

    def counts(ctx: Context) -> Said:
        seen = int(ctx.own.get("seen", 0)) + 1
        return ("again" if seen % 900 else "fine"), table.keep(ctx, seen=seen)

    mine = placed(judged("again", "fine", says=counts), "CHECK --again--> CHECK", "CHECK --fine--> EXECUTE")
    replies = [*(call("send", to=f"a{number}", text="hi") for number in range(2)), "Sent."]
    result = agent_on(None, replies, table=mine).invoke("say hi")
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 2)


# ---------------------------------------------------------------- refused


CHECK = judged("fine", "bad")
FINE, BAD = "CHECK --fine--> EXECUTE", "CHECK --bad--> OBSERVE"
UNTYPED: Any = "what a caller without types writes"
NAMED = table.guard("it is so", name="so")(lambda ctx: True)


def says_paced(ctx: Context) -> Said:
    """What a state that only waits says."""
    return "paced"


async def paced_later(ctx: Context) -> Any:
    """What no state can be made of."""
    return "paced"


LATER: Any = paced_later

REFUSED = [
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> NOWHERE"),
        "CHECK --bad--> NOWHERE",
        "unknown state",
        id="unknown target",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "NOWHERE --fine--> PLAN"),
        "NOWHERE --fine--> PLAN",
        "unknown state",
        id="unknown source",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --worse--> OBSERVE"),
        "CHECK --worse--> OBSERVE",
        "unknown event",
        id="unknown event",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --replied--> OBSERVE"),
        "CHECK --replied--> OBSERVE",
        "CHECK never returns replied",
        id="an event that the state never returns",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE),
        "",
        "CHECK can return bad, and the table has no row for it",
        id="an event without a row",
    ),
    pytest.param(lambda: table.extend(states=[CHECK], rows=[FINE, BAD]), FINE, "unreachable", id="unreachable"),
    pytest.param(
        lambda: placed(judged("fine"), "CHECK --fine--> CHECK", instead={}).extend(
            instead={"CHECK --cancelled--> ABORT": [], "CHECK --broke--> ABORT": []}
        ),
        "CHECK --fine--> CHECK",
        "trap",
        id="a trap",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --broke--> CHECK"),
        "CHECK --broke--> CHECK",
        "leads to ABORT and has no guard",
        id="a fault that ends nothing",
    ),
    pytest.param(
        lambda: table.extend(instead={"PLAN --cancelled--> ABORT": "PLAN --cancelled--> PLAN"}),
        "PLAN --cancelled--> PLAN",
        "leads to ABORT and has no guard",
        id="a run that cannot be cancelled",
    ),
    pytest.param(
        lambda: table.extend(
            guards=[NAMED],
            before={"PLAN --broke--> ABORT": "PLAN --broke [so]--> ABORT (so)"},
        ),
        "PLAN --broke [so]--> ABORT",
        "leads to ABORT and has no guard",
        id="a guard where the engine failed",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --bad [steps_spent]--> PLAN"),
        "CHECK --bad [steps_spent]--> PLAN",
        "shadowed",
        id="shadowed",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad [steps_spent]--> PLAN"),
        "CHECK --bad [steps_spent]--> PLAN",
        "must have no guard",
        id="stuck when no guard holds",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad [surely]--> PLAN", BAD),
        "CHECK --bad [surely]--> PLAN",
        "unknown guard 'surely'",
        id="unknown guard",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> ABORT"),
        "CHECK --bad--> ABORT",
        "must say why",
        id="an ABORT without a reason",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> ABORT (Sanctioned)"),
        "CHECK --bad--> ABORT",
        "small letters",
        id="a reason in capitals",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK bad OBSERVE"),
        "CHECK bad OBSERVE",
        "a row is written",
        id="no row at all",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, before={"PLAN --answered--> FINISH": []}),
        "PLAN --answered--> FINISH",
        "no such row",
        id="before a row that there is not",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, Row(CHECK.name, CHECK.events[1], State.PLAN, (UNTYPED,)), BAD),
        "CHECK --bad--> PLAN",
        "unknown guard",
        id="a guard that is none",
    ),
    pytest.param(
        lambda: placed(
            CHECK,
            FINE,
            Row(CHECK.name, CHECK.events[1], State.PLAN, (NAMED,)),
            Row(CHECK.name, CHECK.events[1], State.PLAN, (replace(NAMED),)),
            BAD,
        ),
        "CHECK --bad [so]--> PLAN",
        "two guards are named 'so'",
        id="two guards of one name",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, guards=[replace(NAMED, name="steps_spent")]),
        "",
        "the name of another one",
        id="the name of a guard of the package",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, guards=[UNTYPED]), "", "a guard is made with", id="a guard as a text"
    ),
    pytest.param(
        lambda: placed(judged("fine", name="plan"), "plan --fine--> EXECUTE"),
        "",
        "the state 'plan' must be written in capitals",
        id="a name in small letters",
    ),
    pytest.param(
        lambda: placed(judged("fine", name="PLAN"), "PLAN --fine--> EXECUTE"),
        "",
        "the name of PLAN",
        id="the name of a state of the package",
    ),
    pytest.param(
        lambda: table.extend(states=[CHECK, CHECK], rows=[FINE, BAD]), "", "the name of CHECK", id="a name twice"
    ),
    pytest.param(
        lambda: placed(judged("fine", name="STATE"), "STATE --fine--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="a state called state",
    ),
    pytest.param(
        lambda: placed(judged("trigger"), "CHECK --trigger--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="an event called trigger",
    ),
    pytest.param(
        lambda: placed(judged("is_plan"), "CHECK --is_plan--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="an event like a method",
    ),
    pytest.param(
        lambda: placed(judged("executed"), "CHECK --executed--> EXECUTE"),
        "",
        "an event of this package",
        id="an event of the package",
    ),
    pytest.param(
        lambda: placed(judged("Fine"), "CHECK --Fine--> EXECUTE"), "", "small letters", id="an event in capitals"
    ),
    pytest.param(lambda: placed(judged("all clear")), "", "one word", id="an event of two words"),
    pytest.param(judged, "", "has no events", id="no events"),
    pytest.param(lambda: table.state("PACE", events=["paced"], wait=-1)(says_paced), "", "wait of PACE", id="no time"),
    pytest.param(lambda: table.state("PACE", events=["paced"])(LATER), "", "not async", id="an async function"),
    pytest.param(lambda: table.extend(states=[UNTYPED]), "", "a state is made with", id="a state as a text"),
    pytest.param(lambda: Table(states=(UNTYPED,)), "", "a state is made with", id="a state as a text, in a table"),
]


@pytest.mark.parametrize(("build", "row", "why"), REFUSED)
def test_a_wrong_table_is_refused_at_construction_with_the_row(build: Callable[[], Table], row: str, why: str) -> None:
    """What is wrong with a table of one's own is said when it is built, before any agent: which row, and why."""
    with pytest.raises(TableError) as refused:
        build()
    assert why in str(refused.value)
    assert refused.value.row == row


async def asked_later(ctx: Context) -> Any:
    """What no guard can be made of."""
    return False


def asked_in_turn(ctx: Context) -> Any:
    """The same."""
    yield False


async def asked_in_turn_later(ctx: Context) -> Any:
    """And both at once."""
    yield False


class AskedLater:
    """An object that is asked as the first."""

    async def __call__(self, ctx: Context) -> Any:
        """Say no, later."""
        return False


@pytest.mark.parametrize("test", [asked_later, asked_in_turn, asked_in_turn_later, AskedLater()])
def test_a_guard_that_would_always_hold_is_refused(test: Callable[[Context], Any]) -> None:
    """What an async function or a generator returns is true whatever it would say, so that no guard is made of one."""
    with pytest.raises(DefinitionError, match=r"the guard (asked_|AskedLater).* must be a plain function"):
        table.guard("it is so")(test)


def test_a_sentence_with_other_braces_is_refused() -> None:
    """The sentence of a guard is a template over the limits, and a mistake in it is told where it is made."""
    with pytest.raises(DefinitionError, match="braces around something that is no limit"):
        table.guard("more than {most} tries")
    assert table.guard("after {max_steps} steps", name="late")(lambda ctx: False).describe(SMALL) == "after 2 steps"


# ---------------------------------------------------------------- verified


def fault(found: Certificate, kind: str) -> Fault:
    """The first fault of a kind."""
    kinds = [one.kind for one in found.faults]
    assert kind in kinds, str(found)
    return found.faults[kinds.index(kind)]


UNSOUND = [
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> VALIDATE"),
        "endless",
        "CHECK --bad--> VALIDATE",
        id="read again and again",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> CHECK"),
        "endless",
        "CHECK --bad--> CHECK",
        id="a state that leads to itself",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> PLAN"),
        "lost",
        "CHECK --bad--> PLAN",
        id="a reply that nobody observes",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> FINISH"),
        "answer",
        "CHECK --bad--> FINISH",
        id="finished without an answer",
    ),
    pytest.param(
        ("CHECK --fine--> EXECUTE", "CHECK --bad--> REVIEW"),
        "unchecked",
        "CHECK --bad--> REVIEW",
        id="nobody asked about nothing",
    ),
]


@pytest.mark.parametrize(("rows", "kind", "blamed"), UNSOUND)
def test_verify_finds_what_the_laws_cannot(rows: tuple[str, ...], kind: str, blamed: str) -> None:
    """A loop through a state of one's own, or a way that loses a reply, is found with the row and the shortest way there."""
    found = fault(verify(SMALL, rows=placed(CHECK, *rows)), kind)
    assert str(found.row) == blamed
    assert [str(row) for row in (*found.path, *found.circle)][:2] == [
        "PLAN --replied--> VALIDATE",
        "VALIDATE --accepted--> CHECK",
    ]
    if kind == "endless":
        assert found.circle[0].source is found.circle[-1].target
        assert len(found.circle) <= 2


def test_both_answers_of_a_guard_of_ones_own_are_explored() -> None:
    """What a guard of one's own would say of the small contexts of `verify` does not matter: it may hold or not."""
    never = table.guard("never", name="never_so")(lambda ctx: False)
    mine = placed(CHECK, FINE, "CHECK --bad [never_so]--> VALIDATE", BAD, guards=[never])
    assert str(fault(verify(SMALL, rows=mine), "endless").row) == "CHECK --bad [never_so]--> VALIDATE"
    limits = SMALL.replace(token_budget=10_000)
    early = table.extend(
        before={"DECIDE --decided [answer_failed]--> ABORT": "DECIDE --decided [never_so]--> PLAN"}, guards=[never]
    )
    assert {one.kind for one in verify(limits, rows=early).faults} >= {"steps", "failures", "tokens", "forced"}


def test_a_table_is_taken_wherever_rows_are() -> None:
    """A `Table` is a sequence of its rows, and a machine of it drives them."""
    assert list(COMPLIANT) == list(Machine(COMPLIANT).rows)
    assert (len(COMPLIANT), COMPLIANT[0]) == (len(COMPLIANT.rows), table.TABLE[0])
    assert diagram("csv", rows=COMPLIANT).count("COMPLIANCE") == 6
    assert table.extend() == Table()
    assert compliance.about.startswith("Refuse each call with a card number")


def test_names_of_ones_own_are_one_object_each() -> None:
    """A `State` of one's own is told by `is`, copied, pickled and looked up like those of the package, and is not among them."""
    own = State.named("COMPLIANCE")
    assert own is compliance.name
    assert State("COMPLIANCE") is own
    assert copy.deepcopy(own) is pickle.loads(pickle.dumps(own)) is own  # noqa: S301 - written here
    assert own not in list(State)
    assert (own.is_own, State.PLAN.is_own, State.named("PLAN") is State.PLAN) == (True, False, True)
    with pytest.raises(ValueError, match="is not a valid State"):
        State("NOBODY_HAS_THIS")


def test_a_copied_table_is_the_same_table() -> None:
    """`copy.deepcopy` gives an equal table that is proved, and extended, like the one that was copied."""
    copied = copy.deepcopy(COMPLIANT)
    assert copied == COMPLIANT
    assert verify(SMALL, rows=copied).ok
    assert copied.extend(before={LAST: "DECIDE --decided [told_to_stop]--> PLAN"})


# ---------------------------------------------------------------- metadata of tools


@table.guard("a result is less sure than 0.5")
def unsure(ctx: Context) -> Compared:
    """Read what the tools said of their results."""
    scores = [one.metadata["confidence_score"] for one in ctx.results if "confidence_score" in one.metadata]
    lowest = min(scores, default=1.0)
    return lowest < 0.5, {"confidence_score": lowest}


UNSURE = table.extend(
    before={
        LAST: [
            "DECIDE --decided [unsure, can_answer_now]--> DEGRADE (low_confidence)",
            "DECIDE --decided [unsure]--> ABORT (low_confidence)",
        ]
    },
    guards=[unsure],
)


def guess(q: str) -> ToolResult:
    """Guess."""
    return ToolResult(f"perhaps {q}", metadata={"confidence_score": 0.2, "retry_count": 1})


def test_a_guard_reads_what_a_tool_says_of_its_result(tmp_path: Path) -> None:
    """Metadata is kept with the result and in the trail, never shown to the model, and a guard of one's own decides by it."""
    assert verify(SMALL, rows=UNSURE).ok
    agent = agent_on(tmp_path / "runs.db", [call("guess", q="3"), "Perhaps 3."], [guess], table=UNSURE)
    result = agent.invoke("how many?", RUN)
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert "low_confidence (unsure: confidence_score=0.2)" in result.detail
    assert result.results[0].metadata == {"confidence_score": 0.2, "retry_count": 1}
    assert "0.2" not in str(result.messages)
    folded = fold(agent.journal.entries("r"), agent.setup, machine=agent.machine)
    assert folded.ctx.done[0].result.metadata == result.results[0].metadata
    assert audit(agent.journal, "r", agent.setup).ok


def test_a_decision_by_metadata_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """Paused between the result and the decision, another process decides by the metadata that the trail holds."""
    path = tmp_path / "runs.db"
    first = agent_on(path, [call("guess", q="3")], [guess], table=UNSURE).pause_at("DECIDE").invoke("how many?", RUN)
    assert first.status is Status.SUSPENDED
    result = agent_on(path, ["Perhaps 3."], [guess], table=UNSURE).resume("r")
    assert (result.status, result.path()[-4:]) == (Status.PARTIAL, ("DEGRADE", "PLAN", "VALIDATE", "FINISH"))


def test_metadata_is_plain_json_data_of_a_bounded_size() -> None:
    """Whatever a tool says of its result is made JSON data, long texts are cut, and what is too large is left out by name."""
    many = {"when": date(2026, 1, 2), "text": "x" * 2_000, "rows": list(range(5_000)), "sure": float("nan"), "last": 1}
    metadata = render_result(ToolResult("ok", metadata=many)).metadata
    assert metadata["when"] == "2026-01-02"
    assert metadata["text"].startswith("x" * 1_000 + "\n[cut")
    assert metadata["left_out"] == ["rows"]
    assert metadata["last"] == 1
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert len(json.dumps(metadata)) < 9_000


def test_the_artifact_of_a_langchain_tool_is_its_metadata() -> None:
    """`response_format="content_and_artifact"`: a mapping beside the content is metadata, anything else stays with the tool."""

    @langchain_tool(response_format="content_and_artifact")
    def weigh(q: str) -> tuple[str, dict[str, Any]]:
        """Weigh something."""
        return f"{q}: 3 kg", {"confidence_score": 0.9, "memory_usage": 12}

    @langchain_tool(response_format="content_and_artifact")
    def photo(q: str) -> tuple[str, list[bytes]]:
        """Take a photo."""
        return "taken", [b"123"]

    model = [[call("weigh", q="a"), call("photo", q="a")], "3 kg."]
    result = agent_on(MemoryTrail(), model, [weigh, photo], table=UNSURE).invoke("weigh it")
    assert result.status is Status.COMPLETED
    assert [one.metadata for one in result.results] == [{"confidence_score": 0.9, "memory_usage": 12}, {}]


def test_what_a_guard_of_ones_own_compares_is_redacted_in_the_log() -> None:
    """Values of such a guard are kept as plain data in the record, and logged without secrets."""

    @table.guard("a key is there")
    def keyed(ctx: Context) -> Compared:
        return False, {"said": ctx.results[0].metadata, "count": 1, "odd": object()}

    def leak() -> ToolResult:
        """Leak."""
        return ToolResult("ok", metadata={"api_key": "sk-proj-abcdefghijklmnopqrstuvwx0123456789"})

    mine = table.extend(before={LAST: "DECIDE --decided [keyed]--> ABORT (leaked)"}, guards=[keyed])
    result = agent_on(None, [call("leak"), "Done."], [leak], table=mine).invoke("go")
    (record,) = [one for one in result.transitions if any(asked.guard == "keyed" for asked in one.guards)]
    assert record.guards[-1].values["count"] == 1
    assert "abcdefghij" not in json.dumps(event_of(record))


# ---------------------------------------------------------------- any extension


@st.composite
def extensions(draw: st.DrawFn) -> tuple[Table, dict[str, list[str]]]:
    """A random well-formed extension: one to three states in a row before EXECUTE, each with events that lead on or out."""
    count = draw(st.integers(1, 3))
    states, rows, says = [], [], {}
    exits = ["OBSERVE", "ABORT (stopped)"]
    for index in range(count):
        name = f"CHECK{index}"
        events = [f"event{index}_{number}" for number in range(draw(st.integers(1, 3)))]
        on = f"CHECK{index + 1}" if index + 1 < count else "EXECUTE"
        rows += [f"{name} --{events[0]}--> {on}"]
        rows += [f"{name} --{event}--> {draw(st.sampled_from([on, *exits]))}" for event in events[1:]]
        says[name] = draw(st.lists(st.sampled_from(events), min_size=1, max_size=4))
        states.append(judged(*events, name=name, says=_saying(says[name])))
    guard = table.guard("drawn", name="drawn")(lambda ctx: ctx.step % 2 == 0)
    instead = {ACCEPTED: "VALIDATE --accepted--> CHECK0", APPROVED: "REVIEW --approved--> CHECK0"}
    more = {LAST: "DECIDE --decided [drawn]--> ABORT (enough)"} if draw(st.booleans()) else {}
    return table.extend(states=states, rows=rows, instead=instead, before=more, guards=[guard]), says


def _saying(events: list[str]) -> Callable[[Context], Said]:
    """A state that says these events, one after the other, by what the context has counted. It refuses what it does not let on."""

    def says(ctx: Context) -> Said:
        event = events[ctx.seq % len(events)]
        return event, (ctx if event.endswith("_0") else table.refuse(ctx, event))

    return says


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(made=extensions(), calls=st.lists(st.booleans(), max_size=4))
def test_any_well_formed_extension_runs_folds_and_audits(made: tuple[Table, Any], calls: list[bool]) -> None:
    """Whatever states a table is given, a run ends typed, folds to what it was, and its trail is in order."""
    mine, _ = made
    store = MemoryTrail()
    replies = [call("send", to=f"a{index}", text="x") if send_it else "" for index, send_it in enumerate(calls)]
    agent = agent_on(store, [*replies, *["Done."] * 8], [send], table=mine)
    result = agent.invoke("go", RUN)
    assert result.status is not Status.SUSPENDED
    assert result.reason is not StopReason.INTERNAL_ERROR, result.detail
    folded = fold(agent.journal.entries("r"), agent.setup, machine=agent.machine)
    assert folded.transitions == list(result.transitions)
    assert folded.ctx.tool_calls == result.tool_calls
    checked = audit(agent.journal, "r", agent.setup)
    assert checked.ok, checked.findings
    assert "CHECK0" in diagram("mermaid", result, rows=mine)
