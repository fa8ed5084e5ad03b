"""Family L: loops are stopped exactly where the limits say, and what only looks like a loop is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Event, RunResult, State, Status, StopReason, tool
from fsm_agent.testing import FakeClock, ScriptedModel, call, forever
from fsm_agent.tools.signature import signature
from tests.faults.kit import BOTH, WAYS, Ledger, answers_in, assert_sendable, make, run


def always(**args: Any) -> Callable[[Any], Any]:
    """A model that asks for the same call as long as it has tools, and answers when it has none."""
    return lambda request: call("grep", **args) if request.tools else "forced answer"


def grep_of(ledger: Ledger, **options: Any) -> Any:
    """A tool that finds the same thing every time."""

    @tool(**options)
    def grep(p: str) -> str:
        """Search."""
        ledger.note(p=p)
        return f"3 lines with {p}"

    return grep


def targets(result: RunResult) -> list[State]:
    """The targets of the transitions, in order."""
    return [record.target for record in result.transitions]


# ---------------------------------------------------------------- L01 the same call again and again


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_l01_the_same_call_trips_exactly_at_the_threshold(threshold: int, way: str) -> None:
    """Executed `threshold` times, warned once, refused the next time, then one forced answer: threshold + 2 replies."""
    ledger = Ledger()
    model = ScriptedModel(always(p="x"))
    limits = {"repeat_threshold": threshold, "max_steps": 50, "no_progress_steps": 40}
    result = run(make(model, [grep_of(ledger)], limits=limits), "search", way)
    assert (len(ledger), result.tool_calls, model.count) == (threshold, threshold, threshold + 2)
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert result.answer == "forced answer"
    assert targets(result).count(State.DEGRADE) == 1
    warnings = sum("will be refused" in message.text for message in answers_in(model.requests[-1]))
    assert warnings == (1 if threshold > 1 else 0)
    mark = signature("grep", {"p": "x"})
    tripped = next(record for record in result.transitions if record.target is State.DEGRADE)
    assert (tripped.reason, tripped.signatures) == (StopReason.REPEATED_ACTION, (mark,))
    assert mark in result.detail
    assert f"repeat_threshold={threshold}" in result.detail
    assert_sendable(model.requests)


def test_l01_with_on_limit_stop_there_is_no_further_model_call() -> None:
    """Told to stop at limits, the run aborts at the refused call."""
    ledger = Ledger()
    model = ScriptedModel(always(p="x"))
    result = run(
        make(model, [grep_of(ledger)], limits={"repeat_threshold": 3, "on_limit": "stop", "no_progress_steps": 9}), "go"
    )
    assert (len(ledger), model.count) == (3, 4)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.REPEATED_ACTION, None)


def test_l01_a_model_that_ignores_everything_is_still_bounded() -> None:
    """A model that asks for the call even when an answer is forced ends the run: five model calls for threshold 3."""
    ledger = Ledger()
    with ScriptedModel([forever(call("grep", p="x"))]) as model:
        result = run(make(model, [grep_of(ledger)], limits={"repeat_threshold": 3, "no_progress_steps": 9}), "go")
    assert (len(ledger), model.count) == (3, 5)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.REPEATED_ACTION, None)


def test_l01_eighteen_identical_calls_with_the_defaults() -> None:
    """The classic, 18 identical test runs, is two executions with the default limits."""
    ledger = Ledger()
    model = ScriptedModel(always(p="x"))
    result = run(make(model, [grep_of(ledger)]), "run the tests")
    assert (len(ledger), model.count, result.status) == (2, 4, Status.PARTIAL)


def test_l01_two_calls_in_turns_are_a_cycle() -> None:
    """A, B, A, B, ... is caught as a cycle although each call alone may be repeated more often."""
    ledger = Ledger()

    def turns(request: Any) -> Any:
        return call("grep", p="ab"[request.number % 2]) if request.tools else "enough"

    model = ScriptedModel(turns)
    limits = {"repeat_threshold": 3, "max_steps": 50, "no_progress_steps": 40}
    result = run(make(model, [grep_of(ledger)], limits=limits), "go")
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert len(ledger) == 6
    assert "repeated_action" in result.detail


def test_l01_a_repeat_beside_a_new_call_is_refused_alone() -> None:
    """In a batch the new call runs, and the repeated one is answered with its refusal."""
    ledger = Ledger()
    script = [call("grep", p="x"), call("grep", p="x"), [call("grep", p="x"), call("grep", p="y")], "done"]
    with ScriptedModel(script) as model:
        result = run(make(model, [grep_of(ledger)]), "go")
    assert [entry["p"] for entry in ledger.entries] == ["x", "x", "y"]
    assert [message.status for message in answers_in(model.requests[3])[-2:]] == ["error", "success"]
    assert (result.status, result.answer) == (Status.COMPLETED, "done")


# ---------------------------------------------------------------- L03 polling


PROGRESS = ["10%", "20%", "50%", "80%", "90%", "done"]


def status_of(answers: list[str], ledger: Ledger, **options: Any) -> Any:
    """A tool that tells how far a job is."""

    @tool(**options)
    def status(job: int) -> str:
        """How far is the job?"""
        ledger.note(job=job)
        return answers[len(ledger) - 1]

    return status


@pytest.mark.parametrize("way", WAYS)
def test_l03_polling_with_changing_result_is_progress(way: str) -> None:
    """The same call six times with six different results is no repeat: all run, nobody is warned, the run completes."""
    ledger = Ledger()
    with ScriptedModel([*[call("status", job=7)] * 6, "it is done"]) as model:
        result = run(make(model, [status_of(PROGRESS, ledger)]), "wait for job 7", way)
    assert (result.status, result.answer, len(ledger), model.count) == (Status.COMPLETED, "it is done", 6, 7)
    assert State.DEGRADE not in targets(result)
    assert "will be refused" not in model.requests[-1].text


@pytest.mark.parametrize("way", BOTH)
def test_l03_a_pollable_tool_may_return_the_same(way: str) -> None:
    """Six identical answers of a tool declared repeatable do not trip, neither as repeats nor as no progress."""
    ledger = Ledger()
    with ScriptedModel([*[call("status", job=7)] * 6, "still pending"]) as model:
        result = run(make(model, [status_of(["pending"] * 6, ledger, repeatable=True)]), "wait", way)
    assert (result.status, len(ledger), model.count) == (Status.COMPLETED, 6, 7)
    assert "will be refused" not in model.requests[-1].text


def test_l03_control_identical_answers_of_an_ordinary_tool_trip() -> None:
    """The same six identical answers of a tool that is not pollable are two executions."""
    ledger = Ledger()
    model = ScriptedModel(lambda request: call("status", job=7) if request.tools else "pending, as it seems")
    result = run(make(model, [status_of(["pending"] * 6, ledger)]), "wait")
    assert (len(ledger), result.status) == (2, Status.PARTIAL)


def test_l03_a_pollable_tool_is_still_bounded() -> None:
    """A poll that never ends is ended by the steps."""
    ledger = Ledger()
    model = ScriptedModel(lambda request: call("status", job=7) if request.tools else "it never came")
    result = run(make(model, [status_of(["pending"] * 99, ledger, repeatable=True)], limits={"max_steps": 8}), "wait")
    assert (len(ledger), model.count, result.status) == (8, 9, Status.PARTIAL)
    assert "max_steps" in result.detail


def test_l03_a_result_that_changes_back_counts_from_one() -> None:
    """a, a, b, a: only the same result in a row is a repeat."""
    ledger = Ledger()
    with ScriptedModel([*[call("status", job=7)] * 3, "ok"]) as model:
        result = run(make(model, [status_of(["a", "b", "a"], ledger)]), "wait")
    assert (result.status, len(ledger)) == (Status.COMPLETED, 3)


# ---------------------------------------------------------------- L04 what is the same call


def options_tool(ledger: Ledger) -> Any:
    """A tool with an object, a list, a float and a default."""

    def find(a: int = 1, o: dict[str, int] | None = None, xs: list[int] | None = None, f: float = 1.0) -> str:
        """Find."""
        ledger.note(a=a, o=o, xs=xs, f=f)
        return f"xs {xs}"

    return find


SAME = [
    ({"a": 1, "o": {"x": 1, "y": 2}}, {"o": {"y": 2, "x": 1}, "a": 1}),
    ({"f": 1}, {"f": 1.0}),
    ({"f": -0.0}, {"f": 0.0}),
    ({"a": 1}, {}),
    ({"a": 1, "o": None}, {"a": 1}),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=["key-order", "int-float", "zero", "default", "null-default"])
@pytest.mark.parametrize("way", BOTH)
def test_l04_another_spelling_is_the_same_call(one: dict[str, Any], other: dict[str, Any], way: str) -> None:
    """Key order at any depth, 1 and 1.0 for a float, and a default given or left out do not hide a repeat."""
    ledger = Ledger()
    spelled = [one, other]

    def acts(request: Any) -> Any:
        return call("find", **spelled[request.number % 2]) if request.tools else "enough"

    result = run(make(ScriptedModel(acts), [options_tool(ledger)], limits={"no_progress_steps": 9}), "go", way)
    assert (len(ledger), result.status) == (2, Status.PARTIAL)
    assert "repeated_action" in result.detail


DIFFERENT = [
    ({"xs": [1, 2]}, {"xs": [2, 1]}),
    ({"a": 1}, {"a": 2}),
    ({"f": 1.0}, {"f": 1.5}),
    ({"o": {"x": 1}}, {"o": {"x": 1, "y": 0}}),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=["list-order", "value", "fraction", "key"])
def test_l04_a_different_call_is_not_a_repeat(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The order of a list, and any value, make a call a different one: both run as often as allowed."""
    ledger = Ledger()
    with ScriptedModel(
        [call("find", **one), call("find", **other), call("find", **one), call("find", **other), "ok"]
    ) as model:
        result = run(make(model, [options_tool(ledger)], limits={"no_progress_steps": 9}), "go")
    assert (len(ledger), result.status) == (4, Status.COMPLETED)
    marks = [record.signatures[0] for record in result.transitions if record.event is Event.ACCEPTED]
    assert len(set(marks)) == 2


def test_l04_two_calculations_are_two_calls() -> None:
    """1+2 and 3+4 are never taken for a repeat, whatever their results."""
    ledger = Ledger()

    def add(a: int, b: int) -> str:
        """Add."""
        ledger.note(a=a, b=b)
        return "a number"

    with ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4), call("add", a=5, b=6), "ok"]) as model:
        result = run(make(model, [add]), "go")
    assert (len(ledger), result.status) == (3, Status.COMPLETED)


# ---------------------------------------------------------------- L05 other arguments, same outcome


@pytest.mark.parametrize("way", BOTH)
def test_l05_the_same_refusal_of_every_variant_is_no_progress(way: str) -> None:
    """Eight variants with one permission-denied result: stopped after the first plus `no_progress_steps`."""
    ledger = Ledger()

    def shell(flags: str) -> str:
        """Run a command."""
        ledger.note(flags=flags)
        return "permission denied"

    model = ScriptedModel(
        lambda request: call("shell", flags=f"-{request.number}") if request.tools else "no permission"
    )
    result = run(make(model, [shell]), "go", way)
    assert (len(ledger), model.count) == (4, 5)
    assert (result.status, result.answer) == (Status.PARTIAL, "no permission")
    assert "no_progress (no_progress: idle_steps=3, no_progress_steps=3)" in result.detail


@pytest.mark.parametrize("way", BOTH)
def test_l05_the_same_exception_of_every_variant_opens_the_circuit(way: str) -> None:
    """The same as an exception: consecutive failures degrade, then abort, long before eight calls."""
    ledger = Ledger()

    def shell(flags: str) -> str:
        """Run a command."""
        ledger.note(flags=flags)
        raise PermissionError("permission denied")

    model = ScriptedModel(lambda request: call("shell", flags=f"-{request.number}"))
    result = run(make(model, [shell], limits={"max_retries": 0}), "go", way)
    assert (len(ledger), model.count) == (3, 3)
    assert (result.status, result.reason) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES)


def test_l05_control_new_results_are_progress() -> None:
    """Eight variants with different results are eight executions."""
    ledger = Ledger()

    def shell(flags: str) -> str:
        """Run a command."""
        ledger.note(flags=flags)
        return f"did {flags}"

    with ScriptedModel([*(call("shell", flags=f"-{number}") for number in range(8)), "done"]) as model:
        result = run(make(model, [shell]), "go")
    assert (len(ledger), result.status) == (8, Status.COMPLETED)


@pytest.mark.parametrize("field", ["request_id", "nonce", "mark"])
def test_l05_volatile_fields_do_not_hide_a_repeat(field: str) -> None:
    """A new request id, or a field that the tool declares volatile, makes the call no new one."""
    ledger = Ledger()

    @tool(volatile=frozenset({"mark"}))
    def fetch(q: str, request_id: str = "", nonce: int = 0, mark: str = "") -> str:
        """Fetch."""
        ledger.note(q=q)
        return "the page"

    def acts(request: Any) -> Any:
        given: dict[str, Any] = {field: request.number if field == "nonce" else f"id-{request.number}"}
        return call("fetch", q="x", **given) if request.tools else "enough"

    result = run(make(ScriptedModel(acts), [fetch]), "go")
    assert (len(ledger), result.status) == (2, Status.PARTIAL)
    assert "repeated_action" in result.detail


def test_l05_control_an_ordinary_field_is_not_volatile() -> None:
    """Two orders with different ids are two orders."""
    ledger = Ledger()

    def order(order_id: str) -> str:
        """Look up an order."""
        ledger.note(order_id=order_id)
        return f"order {order_id}"

    with ScriptedModel([*(call("order", order_id=f"SO-{number}") for number in range(6)), "done"]) as model:
        result = run(make(model, [order]), "go")
    assert (len(ledger), result.status) == (6, Status.COMPLETED)


# ---------------------------------------------------------------- L06 the step limit


def stepping(finish_at: int) -> Callable[[Any], Any]:
    """A model that answers in step `finish_at`, and whenever it has no tools."""
    return lambda request: (
        call("grep", p=str(request.number)) if request.tools and request.number < finish_at else "answer"
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_l06_finishing_in_the_last_step_is_a_completed_run(steps: int, way: str) -> None:
    """N steps are allowed: an answer in step N is complete, with N model calls and N - 1 executions."""
    ledger = Ledger()
    model = ScriptedModel(stepping(steps))
    result = run(make(model, [grep_of(ledger)], limits={"max_steps": steps}), "go", way)
    assert (result.status, result.reason, result.answer) == (Status.COMPLETED, StopReason.ANSWERED, "answer")
    assert (result.steps, model.count, len(ledger)) == (steps, steps, steps - 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_l06_one_step_more_is_not(steps: int, way: str) -> None:
    """Step N + 1 is not taken: N executions, then a stop with the reason, the limit, the history and no answer."""
    ledger = Ledger()
    model = ScriptedModel(stepping(steps + 1))
    result = run(make(model, [grep_of(ledger)], limits={"max_steps": steps, "on_limit": "stop"}), "go", way)
    assert (result.status, result.reason, result.answer) == (Status.FAILED, StopReason.MAX_STEPS, None)
    assert (result.steps, model.count, len(ledger), result.tool_calls) == (steps, steps, steps, steps)
    assert f"steps={steps}, max_steps={steps}" in result.detail
    assert f"3 lines with {steps}" in result.detail, "the last useful result is said"
    assert len([message for message in result.messages if message.type == "tool"]) == steps


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_l06_at_the_limit_one_answer_is_asked_for_without_tools(steps: int, way: str) -> None:
    """With on_limit="answer" one more model call, without tools, gives a partial answer; it is no step."""
    ledger = Ledger()
    model = ScriptedModel(stepping(99))
    result = run(make(model, [grep_of(ledger)], limits={"max_steps": steps}), "go", way)
    assert (result.status, result.reason, result.answer) == (Status.PARTIAL, StopReason.FORCED_ANSWER, "answer")
    assert (result.steps, model.count, len(ledger)) == (steps, steps + 1, steps)
    assert [bool(request.tools) for request in model.requests] == [True] * steps + [False]


def test_l06_a_nested_run_has_its_own_counters() -> None:
    """An agent inside a tool of another one counts its own steps, tokens and failures."""
    inner_ledger, outer_ledger = Ledger(), Ledger()
    inner = make(ScriptedModel(stepping(99)), [grep_of(inner_ledger)], limits={"max_steps": 4, "on_limit": "stop"})

    def delegate(task: str) -> str:
        """Let somebody else do it."""
        outer_ledger.note(task=task)
        return f"{inner.invoke(task).reason}"

    with ScriptedModel([call("delegate", task="a"), call("delegate", task="b"), "done"]) as model:
        result = run(make(model, [delegate], limits={"max_steps": 3, "no_progress_steps": 9}), "go")
    assert (result.status, result.steps, len(outer_ledger), len(inner_ledger)) == (Status.COMPLETED, 3, 2, 8)
    assert (result.usage.total, result.tool_calls) == (45, 2)


def test_l06_retries_are_no_steps() -> None:
    """A retried model call costs no further step; it is counted as a model call."""
    with ScriptedModel([RuntimeError("down"), call("grep", p="1"), RuntimeError("down"), "done"]) as model:
        result = run(make(model, [grep_of(Ledger())], limits={"max_steps": 2}), "go")
    assert (result.status, result.steps, result.model_calls) == (Status.COMPLETED, 2, 4)


# ---------------------------------------------------------------- L07 several final answers


FINISH = '{{"action": "FINISH", "action_input": {{"answer": "{0}"}}}}'
ACT = '{"action": "grep", "action_input": {"p": "x"}}'


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("order", ["final-first", "call-first"])
def test_l07_a_call_beside_a_final_answer_runs_first(order: str, way: str) -> None:
    """FINISH and a call in one reply: the call runs, and the answer that could not know its result does not count."""
    ledger = Ledger()
    said = [FINISH.format("early"), ACT] if order == "final-first" else [ACT, FINISH.format("early")]
    with ScriptedModel(["\n".join(said), forever(FINISH.format("late"))]) as model:
        result = run(make(model, [grep_of(ledger)], dialect="json_action"), "go", way)
    assert (len(ledger), result.answer) == (1, "late")


@pytest.mark.parametrize("way", BOTH)
def test_l07_two_different_final_answers_are_not_one(way: str) -> None:
    """FINISH(x) and FINISH(y) in one reply: sent back or merged, but y is not silently lost."""
    said = f"{FINISH.format('x')}\n{FINISH.format('y')}"
    with ScriptedModel([said, forever(FINISH.format("x and y"))]) as model:
        result = run(make(model, [grep_of(Ledger())], dialect="json_action"), "go", way)
    assert result.answer is not None
    assert "x" in result.answer
    assert "y" in result.answer


def test_l07_the_same_final_answer_twice_is_one() -> None:
    """A repeated FINISH is one answer."""
    with ScriptedModel([f"{FINISH.format('x')}\n{FINISH.format('x')}"]) as model:
        result = run(make(model, [grep_of(Ledger())], dialect="json_action"), "go")
    assert (result.status, result.answer) == (Status.COMPLETED, "x")


def test_l07_a_limit_never_gives_the_log_as_the_answer() -> None:
    """Where no answer came, the answer is None; the log stays where it belongs."""
    with ScriptedModel([forever(call("grep", p="x"))]) as model:
        result = run(make(model, [grep_of(Ledger())]), "go")
    assert (result.status, result.answer) == (Status.FAILED, None)


def test_l_reflection_alone_is_bounded() -> None:
    """A model that only thinks is stopped by no progress, and its thoughts are not the answer."""
    think = '{"action": "THINK", "action_input": {"thought": "Hm."}}'
    with ScriptedModel([forever(think)]) as model:
        result = run(make(model, [grep_of(Ledger())], dialect="json_action", clock=FakeClock()), "go")
    assert result.status is Status.FAILED
    assert result.reason is StopReason.NO_PROGRESS
    assert model.count == 4
