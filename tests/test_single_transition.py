"""`fsm_agent.testing.at`: one transition, fired without a model, a store or a loop."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent, Approve, Deny, Edit, Limits, State
from fsm_agent.alphabet import Event, StopReason
from fsm_agent.context import Context, Failure
from fsm_agent.effects import AskHuman, CallModel, CallTools, Cancelled, Expired, Returned, Wait
from fsm_agent.errors import DefinitionError, IllegalTransition
from fsm_agent.guards import GUARDS, Guard
from fsm_agent.machine import Machine
from fsm_agent.table import TABLE, Row, extend, state
from fsm_agent.testing import ScriptedModel, at, call, reply, run_until
from tests.core.builders import TOOLS, add, pay


def test_one_line_fires_one_transition() -> None:
    """The promise of the kit: state, limits and counts in; target, row, reason, guards with their values out."""
    fired = at(State.DECIDE, steps=10, limits=Limits(max_steps=10, on_limit="stop")).fire()
    assert (fired.source, fired.event, fired.target) == (State.DECIDE, Event.DECIDED, State.ABORT)
    assert fired.reason is StopReason.MAX_STEPS
    assert fired.guards["steps_spent"].result is True
    assert fired.guards["steps_spent"].values == {"steps": 10, "max_steps": 10}
    assert fired.row in TABLE
    assert fired.context.cause is not None
    assert fired.context.cause.describe() == "max_steps (steps_spent: steps=10, max_steps=10)"


def test_a_transition_tells_itself() -> None:
    """What a failed assertion shows: the row, why, and every guard that was asked with what it compared."""
    said = str(at(State.RETRY, failure="model").fire())
    assert said == "RETRY --waited--> PLAN\n    retrying_model: yes (failure=model)"
    ended = str(at(State.DECIDE, failures=3, on_limit="stop").fire())
    assert ended.startswith("DECIDE --decided--> ABORT (consecutive_failures)\n    answer_failed: no")
    assert "circuit_open: yes (failures=3, abort_after=3)" in ended


@pytest.mark.parametrize(
    ("known", "target"),
    [
        ({"steps": 9}, State.PLAN),
        ({"steps": 10}, State.DEGRADE),
        ({"step": 10, "max_steps": 11}, State.PLAN),
        ({"tokens": 100_000, "on_limit": "stop"}, State.ABORT),
        ({"elapsed": 9.0, "deadline": 9.0}, State.ABORT),
        ({"elapsed": 8.5, "waited": 90.0, "deadline": 9.0}, State.PLAN),
        ({"failure": "model"}, State.RETRY),
        ({"failure": "model", "retries": 1}, State.ABORT),
        ({"failure": Failure("model", "model", "401"), "max_retries": 5}, State.ABORT),
        ({"failures": 2, "failure": "reply"}, State.DEGRADE),
        ({"empty_replies": 3}, State.ABORT),
        ({"idle_steps": 3, "on_limit": "stop"}, State.ABORT),
        ({"forced": True, "failure": "reply"}, State.ABORT),
    ],
    ids=str,
)
def test_what_a_run_knows_is_said_in_the_words_of_a_test(known: dict[str, Any], target: State) -> None:
    """Fields, limits and plain words all name what a guard compares, on both sides of the boundary."""
    if known.get("forced"):
        known = {**known, "reason": "max_steps"}
    assert at(State.DECIDE, **known).fire().target is target


@pytest.mark.parametrize(
    ("name", "near"), [("setps", "steps"), ("failurs", "failures"), ("max_step", "max_steps"), ("tokns", "tokens")]
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    """A test that says nothing by accident would pass for ever."""
    misspelt: dict[str, Any] = {name: 3}
    with pytest.raises(DefinitionError, match=f"{name!r}; did you mean .*{near}"):
        at(State.DECIDE, **misspelt)


def test_a_name_like_no_other_is_refused_with_all_that_there_are() -> None:
    """Whoever guesses far off is told the names."""
    with pytest.raises(DefinitionError, match=r"'xyzzy'; there are .*abort_after.*steps.*tokens"):
        at(State.DECIDE, xyzzy=3)
    with pytest.raises(DefinitionError, match="steps and step say the same"):
        at(State.DECIDE, steps=3, step=4)
    with pytest.raises(DefinitionError, match=r'"model", "tool", "reply" or a Failure'):
        at(State.DECIDE, failure="modle")


def test_a_state_and_an_event_may_be_named_by_text() -> None:
    """`at("decide")` is the same as `at(State.DECIDE)`, and a name that there is not is told apart."""
    assert at("decide").fire("DECIDED").target is State.PLAN
    with pytest.raises(DefinitionError, match="there is no state 'DECIDED'; there are PLAN, "):
        at("DECIDED")
    with pytest.raises(DefinitionError, match="there is no event 'done'; there are "):
        at(State.DECIDE).fire("done")


def test_a_state_with_several_events_is_asked_which() -> None:
    """Only a state with one event of its own can leave it out."""
    with pytest.raises(
        DefinitionError,
        match=r"EXECUTE can return executed, doubted: say which, as fire\('executed'\), or .* say it: resolve\(\)",
    ):
        at(State.EXECUTE).fire()
    assert at(State.EXECUTE).fire(Event.EXECUTED).target is State.OBSERVE
    with pytest.raises(IllegalTransition, match="decided cannot happen in EXECUTE; events of EXECUTE"):
        at(State.EXECUTE).fire(Event.DECIDED)


@pytest.mark.parametrize("state", [State.FINISH, State.ABORT])
def test_nothing_happens_after_the_end(state: State) -> None:
    """A terminal state asks for nothing and cannot be left."""
    ended = at(state)
    assert ended.enter() is None
    for leave in (ended.fire, ended.resolve):
        with pytest.raises(IllegalTransition, match=f"{state} is terminal"):
            leave()


# ---------------------------------------------------------------- with what the model said


def test_calls_go_through_the_real_checks() -> None:
    """What is given as a reply is validated as in a run: a wrong call is refused, one that needs approval waits."""
    tools = [add, pay]
    assert at(State.VALIDATE, tools=tools, reply=call("add", a=1, b=2)).resolve().target is State.EXECUTE
    assert at(State.VALIDATE, tools=tools, reply=call("add", a="x")).resolve().target is State.OBSERVE
    assert at(State.VALIDATE, tools=tools, reply=call("pay", to="Ada", amount=5)).resolve().target is State.REVIEW
    assert at(State.VALIDATE, tools=tools, reply="It is 3.").resolve().target is State.FINISH
    assert at(State.VALIDATE, tools=tools, reply="").resolve().event is Event.REJECTED


def test_the_effect_of_a_state_can_be_looked_at() -> None:
    """What a state would ask for is data: the prompt, the calls with their checked arguments, the wait, the question."""
    asked = at(State.PLAN, task="Add.", tools=[add], system="Be brief.").enter()
    assert isinstance(asked, CallModel)
    assert [message.text for message in asked.messages] == ["Be brief.", "Add."]
    assert asked.tools == ("add",)
    run = at(State.EXECUTE, tools=[add], reply=[call("add", a=1, b=2), call("add", a=3, b=4)]).enter()
    assert isinstance(run, CallTools)
    assert [dict(one.arguments) for one in run.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    wait = at(State.RETRY, failure="model", jitter=0.0, backoff=2.0).enter()
    assert wait == Wait(2.0)
    person = at(State.REVIEW, tools=[pay], reply=call("pay", to="Ada", amount=5)).enter()
    assert isinstance(person, AskHuman)
    assert [one.tool for one in person.calls] == ["pay"]
    assert at(State.DECIDE).enter() is None


def test_what_tools_give_is_counted_on_the_way() -> None:
    """Results go through EXECUTE and OBSERVE: a success ends a row of failures, an exception is one more."""
    good = at(State.DECIDE, tools=[add], reply=call("add", a=1, b=2), results=3)
    assert (good.context.tool_calls, good.context.failures, len(good.context.done)) == (1, 0, 1)
    bad = at(State.DECIDE, tools=[add], reply=call("add", a=1, b=2), results=[OSError("boom")])
    assert (bad.context.tool_calls, bad.context.failures) == (1, 1)
    assert bad.context.failure is not None
    assert "OSError: boom" in bad.context.failure.error
    assert bad.fire().target is State.RETRY
    bug = at(State.DECIDE, tools=[add], reply=call("add", a=1, b=2), results=TypeError)
    assert bug.fire().target is State.PLAN
    assert at(State.DECIDE, tools=[add], reply="").context.nudges == 1
    assert at(State.DECIDE, reply=ConnectionError("down")).fire().target is State.RETRY


def test_a_transition_goes_on_from_where_it_led() -> None:
    """`then` is the run in the target, so a few transitions in a row need no loop either."""
    planned = at(State.PLAN, tools=TOOLS, language="en").resolve(call("pay", to="Ada", amount=5))
    reviewed = planned.then.resolve()
    assert reviewed.target is State.REVIEW
    assert reviewed.guards["approval_required"].values == {"calls_waiting": 1}
    assert reviewed.then.resolve(True).target is State.EXECUTE
    assert reviewed.then.resolve(Edit({"to": "Ada", "amount": 1})).target is State.VALIDATE
    assert reviewed.then.resolve(Deny("no")).target is State.OBSERVE
    assert reviewed.then.resolve(Deny(stop=True)).reason is StopReason.DENIED
    asked = reviewed.then.enter()
    assert isinstance(asked, AskHuman)
    executing = reviewed.then.resolve({asked.calls[0].id: Approve()}).then
    assert executing.resolve("paid").then.resolve().then.fire().target is State.PLAN


def test_a_result_that_is_cut_says_so_in_the_language_of_the_context() -> None:
    """As in a run, the mark behind it is not English for a Chinese context."""
    moment = at(State.EXECUTE, tools=[add], reply=call("add", a=1, b=2), max_result_chars=2, language="zh")
    after = moment.resolve("三三三").context
    assert after.results[0].text == "三三\n[已截断：共 3 个字符，这里是前 2 个]"


@pytest.mark.parametrize(
    ("said", "event"),
    [
        ("Hello.", Event.REPLIED),
        (reply("Hm.", call("add", a=1, b=2), usage=(7, 3)), Event.REPLIED),
        ([call("add", a=1, b=2)], Event.REPLIED),
        (ConnectionError("down"), Event.MODEL_FAILED),
        (TimeoutError, Event.MODEL_FAILED),
    ],
    ids=str,
)
def test_a_model_is_answered_for_in_short(said: object, event: Event) -> None:
    """PLAN takes what `ScriptedModel` takes: texts, calls, replies, exceptions."""
    fired = at(State.PLAN, tools=[add]).resolve(said)
    assert fired.event is event
    if event is Event.REPLIED:
        assert fired.context.usage.total in (10, 15)


def test_an_outcome_of_the_engine_is_taken_as_it_is() -> None:
    """Whatever the short forms do not say is said with the outcome itself; a cancellation leads out of any state."""
    assert at(State.DECIDE).resolve(Cancelled("enough")).reason is StopReason.CANCELLED
    assert at(State.REVIEW, tools=[pay], reply=call("pay", to="A", amount=1)).resolve(Expired()).target is State.ABORT
    assert at(State.EXECUTE).resolve(Returned(results=())).target is State.OBSERVE


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: at(State.PLAN).resolve(), "PLAN asks the model: give what it says"),
        (lambda: at(State.PLAN).resolve(3), "a model cannot say 3"),
        (lambda: at(State.DECIDE).resolve("x"), "DECIDE asks for nothing that could come to 'x'"),
        (lambda: at(State.PLAN, reply="x"), r"give its reply to at\(PLAN\).resolve"),
        (lambda: at(State.DECIDE, results=[3]), "results are those of calls"),
        (
            lambda: at(State.EXECUTE, tools=[add], reply=call("add", a=1, b=2)).resolve([3, 4]),
            r"2 results for 1 calls to execute \(add\)",
        ),
        (
            lambda: at(State.REVIEW, tools=[pay], reply=call("pay", to="A", amount=1)).resolve("yes"),
            "a person cannot decide 'yes'",
        ),
        (lambda: at(State.VALIDATE).resolve(), "VALIDATE reads a reply"),
        (lambda: at(State.VALIDATE, reply=OSError()), "never comes to VALIDATE after OSError"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(make: Any, said: str) -> None:
    """A slip in a test is told as one, not as a failure of the engine."""
    with pytest.raises(DefinitionError, match=said):
        make()


@pytest.mark.parametrize(
    "said",
    [
        *({name: "x"} for name in ("steps", "elapsed", "tokens", "forced", "calls", "usage")),
        *(
            {name: 3}
            for name in ("agent", "table", "limits", "tools", "memory", "system", "ladder", "language", "task")
        ),
        *({"retries": None}, {"history": 3}, {"table": "x"}, {"ladder": ["steps"]}, {"reason": "tired"}),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_by_name(said: dict[str, Any]) -> None:
    """What a test says of a run is of the kind that it has there: the error names what is not."""
    (name,) = said
    with pytest.raises(DefinitionError, match=name):
        at(State.DECIDE, **said)


# ---------------------------------------------------------------- agents and tables of one's own


def test_an_agent_lends_its_definition() -> None:
    """Limits, tools and ladder are the agent's own, and what else is given takes their place; the agent is not touched."""
    agent = Agent(ScriptedModel(["x"]), tools=[add, pay], limits=Limits(max_steps=2), ladder=())
    assert at(State.DECIDE, agent=agent, steps=2).fire().guards["can_answer_now"].result is False
    assert at(State.DECIDE, agent=agent, steps=2, max_steps=3).fire().target is State.PLAN
    assert at(State.VALIDATE, agent=agent, reply=call("pay", to="A", amount=1)).resolve().target is State.REVIEW
    assert agent.limits.max_steps == 2


@pytest.mark.parametrize("as_machine", [True, False])
def test_a_table_of_ones_own_is_fired_like_any_other(as_machine: bool) -> None:
    """Rows or a machine: the transition is that of the table that was given."""
    rich = Guard("rich", "there is plenty", lambda ctx: (ctx.usage.total > 5, {"tokens": ctx.usage.total}))
    rows = (Row(State.DECIDE, Event.DECIDED, State.ABORT, (rich,), StopReason.DENIED), *TABLE)
    table = Machine(rows) if as_machine else rows
    fired = at(State.DECIDE, table=table, tokens=6).fire()
    assert (fired.target, fired.guards["rich"].values) == (State.ABORT, {"tokens": 6})
    assert at(State.DECIDE, table=table, tokens=5).fire().then.machine.rows == rows


def test_firing_changes_nothing() -> None:
    """One `at` can be fired as often as a test likes; guards are those of the engine, with no copy of them in the kit."""
    here = at(State.DECIDE, steps=10)
    assert here.fire() == here.fire()
    assert {*here.fire().guards} <= {*GUARDS}


def test_a_state_of_ones_own_is_one_like_any_other() -> None:
    """With a table that was extended, its states and events are named, fired and resolved as those of the package are."""

    @state("COMPLIANCE", events=("cleared", "flagged"))
    def seen(ctx: Context) -> str:
        """Look at the calls."""
        return "cleared" if ctx.calls else "flagged"

    table = extend(
        states=[seen],
        instead={"VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted--> COMPLIANCE"},
        rows=["COMPLIANCE --cleared--> EXECUTE", "COMPLIANCE --flagged--> OBSERVE"],
    )
    assert at("COMPLIANCE", table=table).fire("flagged").target is State.OBSERVE
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "3"]), tools=[add], table=table)
    cleared = at(State.VALIDATE, agent=agent, reply=call("add", a=1, b=2)).resolve()
    assert str(cleared.target) == "COMPLIANCE"
    assert cleared.then.resolve().target is State.EXECUTE
    assert at("compliance", agent=agent, reply=call("add", a=1, b=2)).resolve().target is State.EXECUTE
    stopped = run_until(agent, "COMPLIANCE", "Add.")
    assert (str(stopped.state), stopped.go_on().answer) == ("COMPLIANCE", "3")
    with pytest.raises(DefinitionError, match="there is no state 'COMPLIANCE'; there are PLAN"):
        at("COMPLIANCE")
