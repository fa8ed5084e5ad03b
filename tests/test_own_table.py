"""A table of one's own: what its states and guards may do, and that its runs are drawn, kept and gone on with like any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage

from fsm_agent import Approve, Deny, Limits, Status, StopReason, table, tool
from fsm_agent.context import Context
from fsm_agent.custom import Said
from fsm_agent.diagrams import diagram, diff
from fsm_agent.diagrams.value import TextFormat
from fsm_agent.errors import DefinitionError, TrailVersion
from fsm_agent.examples.compliance import TABLE as COMPLIANT
from fsm_agent.guards import Compared
from fsm_agent.language import EN
from fsm_agent.table import Table
from fsm_agent.testing import call, reply
from fsm_agent.trail import MemoryTrail, audit, fold, fork, replay
from fsm_agent.trail.wording import turn_messages
from fsm_agent.verify import verify
from tests.own_table import ACCEPTED, APPROVED, CARD, FINE, LAST, RUN, SMALL, agent_on, judged, names, placed, send

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
    assert [message.text for message in turn_messages(folded)] == ["what is it?"]


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


@pytest.mark.parametrize("said", [None, [], "no", {"score": 1}, 1, 3, (None, {"score": 1})], ids=repr)
def test_a_guard_that_does_not_say_whether_it_holds_ends_the_run_by_name(said: Any) -> None:
    """A `return` that was forgotten is no answer: such a guard would never hold, and whoever relies on it would not learn so."""
    guard = table.guard("it is sure", name="sure")(lambda _: said)
    mine = table.extend(before={LAST: "DECIDE --decided [sure]--> ABORT (unsure)"}, guards=[guard])
    result = agent_on(None, [call("send", to="Ana", text="hi")], table=mine).invoke("say hi")
    assert result.reason is StopReason.INTERNAL_ERROR
    assert "the guard sure failed: TypeError: it returned" in result.detail


def test_a_guard_without_values_is_named_in_the_detail_alone() -> None:
    """Where a guard of one's own compared nothing that it tells, the detail has its name and no more."""
    guard = table.guard("it is sure", name="sure")(lambda _: True)
    mine = table.extend(before={LAST: "DECIDE --decided [sure]--> ABORT (unsure)"}, guards=[guard])
    result = agent_on(None, [call("send", to="Ana", text="hi")], table=mine).invoke("say hi")
    assert result.detail.startswith("unsure (sure); 1 step ran")


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
