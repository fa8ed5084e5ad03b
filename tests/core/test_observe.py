"""One log event for each transition: constant name, decided keys, nothing secret, and never in the way of the run."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from fsm_agent import Agent, Limits, tool
from fsm_agent.alphabet import Event, State, StopReason
from fsm_agent.machine import Evaluated
from fsm_agent.observe import EVENT_NAME, event_of, json_logger, silent_logger
from fsm_agent.records import Transitioned
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.testing.script import Call
from tests.core.builders import TOOLS
from tests.core.logged import DECIDED, LONG, Recorder, logged

MORE = {"estimated_tokens", "model_calls", "tool_calls"}
SOMETIMES = {"repairs", "error"}


def record(**changes: Any) -> Transitioned:
    """A record of a transition, with `changes`."""
    given: dict[str, Any] = {
        "run_id": "run-1",
        "seq": 1,
        "source": State.PLAN,
        "event": Event.REPLIED,
        "target": State.VALIDATE,
        "guards": (),
        "step": 1,
        "tokens": 15,
        "estimated_tokens": 0,
        "model_calls": 1,
        "tool_calls": 0,
        "failures": 0,
        "tools": (),
        "signatures": (),
        "repairs": (),
        "elapsed_ms": 1.23456,
        "at": 0.5,
    }
    return Transitioned(**{**given, **changes})


def everything(events: list[tuple[str, dict[str, Any]]]) -> str:
    """All that was logged, as text."""
    return json.dumps(events, default=repr)


# ---------------------------------------------------------------- what is logged


def test_every_transition_is_one_event_of_a_constant_name() -> None:
    """J08: what happened is in the keys; the name is the same for all, so that it can be searched for."""
    result, events = logged(LONG, limits=Limits(backoff=0, no_progress_steps=9, abort_after=9, degrade_after=9))
    assert len(events) == len(result.transitions) > 25
    assert {name for name, _ in events} == {"fsm.transition"} == {EVENT_NAME}
    assert [fields["seq"] for _, fields in events] == list(range(1, len(events) + 1))


def test_the_keys_are_the_decided_ones() -> None:
    """Every event has all of them, plain values only; two more are there when there is something to say."""
    _, events = logged(LONG, limits=Limits(backoff=0, no_progress_steps=9, abort_after=9, degrade_after=9))
    for _, fields in events:
        assert fields.keys() - SOMETIMES == DECIDED | MORE
        assert json.loads(json.dumps(fields, allow_nan=False)) == fields
        assert all(type(value) in (str, int, float, list, type(None)) for value in fields.values())


def test_the_values_are_those_of_the_transition() -> None:
    """What is logged is what is recorded."""
    result, events = logged([call("add", a=1, b=2), "It is 3."])
    for one, (_, fields) in zip(result.transitions, events, strict=True):
        assert (fields["source"], fields["fsm_event"], fields["target"]) == (one.source, one.event, one.target)
        assert (fields["run_id"], fields["step"], fields["tokens"]) == (result.run_id, one.step, one.tokens)
        assert (fields["tool"], fields["signature"]) == (",".join(one.tools), ",".join(one.signatures))
        assert fields["elapsed_ms"] == round(one.elapsed_ms, 3)
    assert events[1][1]["tool"] == "add"
    assert len(events[1][1]["signature"]) == 16


def test_every_guard_that_was_asked_is_logged_with_what_it_compared() -> None:
    """Name, result, and the values, in the order in which they were asked."""
    _, events = logged([call("add", a=1, b=2), "It is 3."], limits=Limits(max_steps=1))
    (decided,) = [fields for _, fields in events if fields["fsm_event"] == "decided"]
    assert [guard["name"] for guard in decided["guards"]][-2:] == ["steps_spent", "can_answer_now"]
    assert decided["guards"][-2] == {"name": "steps_spent", "result": True, "steps": 1, "max_steps": 1}
    assert decided["reason"] == "max_steps"


@pytest.mark.parametrize("key", ["name", "result"])
def test_a_value_cannot_take_the_place_of_the_guards_name_or_result(key: str) -> None:
    """A guard of one's own may compare something that is called "name"."""
    asked = Evaluated("mine", True, {key: "other", "more": 1})
    (guard,) = event_of(record(guards=(asked,)))["guards"]
    assert (guard["name"], guard["result"], guard["more"]) == ("mine", True, 1)


def test_the_reason_is_logged_where_a_run_stops_or_degrades() -> None:
    """Only there; and it is the reason of the result."""
    result, events = logged([call("add", a=1, b=2)] * 3, limits=Limits(on_limit="stop"))
    assert result.reason is StopReason.REPEATED_ACTION
    assert [fields["reason"] for _, fields in events if fields["reason"]] == ["repeated_action"]
    assert events[-1][1]["reason"] == "repeated_action"


def test_a_failure_is_logged_with_its_words() -> None:
    """Whoever reads the log learns what failed, once, where it happened."""
    _, events = logged([RuntimeError("server is down"), "It is 3."], limits=Limits(backoff=0))
    assert [fields["fsm_event"] for _, fields in events if "error" in fields] == ["model_failed"]
    assert "server is down" in events[0][1]["error"]


# ---------------------------------------------------------------- what is not logged

SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8t"


@pytest.mark.parametrize(
    "text",
    [SECRET, f"Authorization: Bearer {SECRET}", f"https://user:{SECRET}@host.example/x", f"api_key={SECRET}"],
    ids=["alone", "a header", "in a URL", "by name"],
)
def test_secrets_are_redacted(text: str) -> None:
    """In the words of an error, and in the values of the guards that looked at it."""
    _, events = logged([ValueError(f"no access with {text}")] * 2, limits=Limits(backoff=0))
    assert "no access" in everything(events)
    assert SECRET not in everything(events)
    asked = Evaluated("mine", True, {"seen": text})
    assert SECRET not in json.dumps(event_of(record(error=text, guards=(asked,))))


WORD = "xylophone"


@tool
def fragile(q: str) -> str:
    """Fail without saying what was asked."""
    raise ValueError("no luck")


@tool
def chatty(q: str) -> str:
    """Return what was asked."""
    return f"about {q}"


@pytest.mark.parametrize(
    "script",
    [
        [WORD],
        [reply(WORD, call("chatty", q="x")), "Done."],
        [call("chatty", q=WORD), "Done."],
        [call("chatty", q=WORD)] * 3 + ["Done."],
        [call("fragile", q=WORD), "Done."],
        [call("chatty", q=[WORD]), "Done."],
        [call("chatty", q="x", more=WORD), "Done."],
        [reply("", Call("chatty", f'{{"q": "{WORD}"')), "Done."],
        [reply("", Call("chatty", f"q is {WORD}")), "Done."],
        [reply(f"{WORD} cut", finish_reason="length"), "Done."],
        [call("pay", to=WORD, amount=1)],
    ],
    ids=[
        *(
            "an answer",
            "text beside a call",
            "an argument and a result",
            "a repeated argument",
            "an argument of a tool",
        ),
        *("a wrong argument", "an unknown argument", "a cut argument", "arguments that are no JSON", "a cut reply"),
        "an argument that waits for a person",
    ],
)
def test_neither_prompts_nor_arguments_nor_results_are_logged(script: list[Any]) -> None:
    """A log may go where the conversation may not: names, counts and signatures only."""
    _, events = logged(
        script,
        task=f"What is a {WORD}?",
        tools=[*TOOLS, fragile, chatty],
        system=f"You know about the {WORD}.",
        limits=Limits(max_retries=0),
    )
    assert len(events) > 1
    assert WORD not in everything(events)


# ---------------------------------------------------------------- awkward values


class Unshowable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Unshowable(), b"\xff", "\ud83d", {"a": {1, 2}}, object(), 10**400],
    ids=["nan", "infinity", "unshowable", "bytes", "half a character", "a set", "an object", "a large number"],
)
def test_j03_any_value_that_a_guard_compares_becomes_plain_data(value: object) -> None:
    """A guard of one's own may compare anything; the row is logged, and is strict JSON in UTF-8."""
    fields = event_of(record(guards=(Evaluated("mine", True, {"value": value}),)))
    written = json.dumps(fields, allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(written)["guards"][0]["name"] == "mine"


# ---------------------------------------------------------------- never in the way


class Failing:
    """A logger that fails in one way or another."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.tried = 0

    def bind(self) -> Failing:
        """Bind, or fail to."""
        if self.how == "bind":
            raise OSError("no disk")
        return self

    def info(self, event: str, /, **fields: Any) -> None:
        """Fail."""
        self.tried += 1
        if self.how == "some" and self.tried % 2:
            return
        raise {"type": TypeError, "recursion": RecursionError}.get(self.how, OSError)("no disk")


@pytest.mark.parametrize("how", ["always", "some", "bind", "type", "recursion"])
def test_a_logger_that_fails_never_reaches_the_run(how: str) -> None:
    """The run is the same as with a logger that works."""
    script = [call("look", q="x"), "3"]
    good, _ = logged(script)
    result = Agent(ScriptedModel(script), TOOLS, logger=Failing(how)).invoke("What is 1 + 2?")
    assert (result.status, result.answer, result.path()) == (good.status, good.answer, good.path())


def test_an_observer_that_fails_reaches_neither_the_run_nor_the_others() -> None:
    """Each observer is told of every transition, whatever the one before did."""
    told: list[Transitioned] = []

    def bad(_: Transitioned) -> None:
        raise RuntimeError("no")

    agent = Agent(
        ScriptedModel([call("look", q="x"), "3"]), TOOLS, observers=[bad, told.append], logger=silent_logger()
    )
    result = agent.invoke("x")
    assert result.ok
    assert tuple(told) == result.transitions


def test_a_json_logger_writes_one_strict_line_for_each_transition() -> None:
    """Any program can read the log, line by line."""
    stream = io.StringIO()
    result = Agent(ScriptedModel([call("look", q="x"), "三"]), TOOLS, logger=json_logger(stream)).invoke("一加二？")
    lines = [json.loads(line, parse_constant=_refuse) for line in stream.getvalue().splitlines()]
    assert [line["fsm_event"] for line in lines] == [one.event for one in result.transitions]
    assert all(line["event"] == EVENT_NAME and line["level"] == "info" and "timestamp" in line for line in lines)


def _refuse(name: str) -> Mapping[str, Any]:
    raise ValueError(f"{name} is not JSON")


def test_runs_at_the_same_time_are_told_apart() -> None:
    """Each event carries its run's id, and each run counts its own transitions."""
    recorder = Recorder()
    agent = Agent(ScriptedModel(by_task={"task A": ["1"], "task B": ["2"]}), logger=recorder)
    results = agent.batch(["task A", "task B"])
    for result in results:
        mine = [fields["seq"] for _, fields in recorder.events if fields["run_id"] == result.run_id]
        assert mine == [1, 2]
