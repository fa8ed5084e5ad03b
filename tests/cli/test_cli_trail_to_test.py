"""`fsm-agent trail-to-test`: a stored run becomes a pytest file that passes, and that fails when the run would go another way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approve, Cooling, Deny, Edit, Limits, Reflect, tool
from fsm_agent.cli.trail_to_test import write_test
from fsm_agent.dialects import JsonAction
from fsm_agent.errors import RunError
from fsm_agent.memory import KeyFacts, Window
from fsm_agent.observe import silent_logger
from fsm_agent.policy import AtMost, Order, ToolPolicy
from fsm_agent.testing import Delay, FakeClock, ScriptedModel, ScriptedTool, as_test, call, forever, model_error, reply
from fsm_agent.tools.call import ToolRefusal

pytest_plugins = ("pytester",)

PYTEST = (
    *("-p", "no:fsm_agent", "-p", "no:cacheprovider"),
    *("-p", "no:asyncio", "-p", "no:cov", "-p", "no:langsmith"),
)


def stored(path: Path, model: Any, tools: Any = (), *, task: str = "Add 1 and 2.", **options: Any) -> tuple[Agent, str]:
    """An agent whose run of a task is stored, and the id of that run."""
    agent = Agent(model, tools, store=path, **{"logger": silent_logger(), **options})
    return agent, agent.invoke(task, {"configurable": {"run_id": "11111111-1111-4111-8111-111111111111"}}).run_id


def written(path: Path, model: Any, tools: Any = (), **options: Any) -> str:
    """The test of a stored run."""
    agent, run_id = stored(path, model, tools, **options)
    return as_test(agent.journal.entries(run_id))


def passes(text: str) -> None:
    """The file is Python, and its test passes."""
    names: dict[str, Any] = {}
    exec(compile(text, "test_generated.py", "exec"), names)  # noqa: S102 - what was just written
    next(value for name, value in names.items() if name.startswith("test_"))()


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_the_test_passes_and_fails_when_a_limit_changes_the_path(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Run by pytest as any test is: green as written, red with the path that was taken once a limit is another."""
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=1, b=3), "3 and 4."])
    text = written(tmp_path / "runs.db", model, [add], limits=Limits(max_steps=5))
    pytester.makepyfile(test_good=text)
    assert "Limits(max_steps=5)" in text
    pytester.makepyfile(test_bad=text.replace("Limits(max_steps=5)", "Limits(max_steps=1, on_limit='stop')"))
    found = pytester.runpytest_inprocess(*PYTEST)
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(
        [
            "*they part at transition 5: expected DECIDE --decided--> PLAN, taken DECIDE --decided--> ABORT",
            "*failed (max_steps)*",
        ]
    )


def flaky(clock: FakeClock) -> list[Any]:
    """Everything that can go wrong with a model, and is got over."""
    return [
        model_error("RateLimitError", "slow down", status=429, retry_after=2.0),
        reply("Let me see.", call("add", a=1, b=2), usage=(50, 7)),
        reply("", finish_reason="length", usage=(9, 9)),
        call("add", a="x"),
        call("nothing"),
        Delay(90.0, "too late"),
        'It is "3".\nDone. \\ {x}',
    ]


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (flaky, {}),
        (lambda clock: ["3"], {"system": "Be brief.", "language": "zh", "memory": KeyFacts(Window(rounds=2))}),
        (lambda clock: forever(call("add", a=1, b=2)), {"ladder": ("fallback",), "limits": Limits(deadline=500.0)}),
        (
            lambda clock: forever(lambda request: call("add", a=1, b=request.number)),
            {"limits": Limits(max_steps=2, on_limit="stop")},
        ),
        (lambda clock: forever(model_error("AuthenticationError", "bad key", status=401)), {}),
        (lambda clock: forever(model_error("APIConnectionError", "no luck")), {"limits": Limits(max_retries=5)}),
        (lambda clock: forever(model_error("ServerError", "out of money", status=500, code="insufficient_quota")), {}),
        (
            lambda clock: [Delay(40.0, call("add", a=1, b=2)), Delay(40.0, "late")],
            {"limits": Limits(deadline=50.0, on_limit="stop")},
        ),
        (
            lambda clock: [
                '{"action": "THINK", "action_input": {"thought": "hm"}}',
                '{"action": "FINISH", "action_input": {"answer": "3"}}',
            ],
            {"dialect": JsonAction(think=True)},
        ),
        (
            lambda clock: [call("add", a=1, b=2), '{"go_on": false, "next_tool": null}', "3"],
            {"reflect": Reflect(every=1, most=2), "temperature": Cooling(0.3, after=2, temperature=0.1)},
        ),
        (
            lambda clock: [model_error("BadRequestError", "Unsupported value: 'temperature'", status=400), "3"],
            {"temperature": 0.2},
        ),
    ],
)
def test_whatever_a_model_did_is_replayed(
    tmp_path: Path, script: Callable[[FakeClock], Any], options: dict[str, Any]
) -> None:
    """Failures, retries, bad replies, time-outs, deadlines, dialects, reflection: the scripts take the path that the run took."""
    clock = FakeClock()
    said = script(clock)
    model = ScriptedModel(said if isinstance(said, list) else [said], clock=clock)
    passes(written(tmp_path / "runs.db", model, [add], clock=clock, **options))


def test_whatever_tools_did_is_replayed(tmp_path: Path) -> None:
    """Results of every kind, exceptions of every kind, time-outs, fallbacks, batches: each call gives what it gave."""

    @tool
    def steady(q: str) -> str:
        """Stand in."""
        return f"steady {q}"

    class NotThere(LookupError):
        """A failure of the user's own."""

    clock = FakeClock()
    shaky = ScriptedTool(
        "shaky",
        [
            {"found": [1, 2]},
            NotThere("gone"),
            OSError,
            ToolRefusal("no"),
            TypeError("a bug"),
            Delay(99.0, "x"),
            "y" * 9_000,
        ],
        args={"q": str},
        fallback=steady,
        clock=clock,
        repeatable=True,
    )
    asks = [call("shaky", q=str(number)) for number in range(6)]
    model = ScriptedModel([*asks, [call("add", a=1, b=2), call("add", a=2, b=2), call("shaky", q="b")], "done"])
    limits = Limits(abort_after=9, degrade_after=3, max_degradations=2, no_progress_steps=9)
    text = written(tmp_path / "runs.db", model, [shaky, add], clock=clock, limits=limits)
    assert "fallback=tool_steady" in text
    assert "max_parallel=1" in text
    passes(text)


def test_what_people_decided_is_replayed(tmp_path: Path) -> None:
    """Approvals, edits and denials come in their order, and a tool whose code asks for approval asks for the same calls."""

    @tool(requires_approval=lambda given: given["amount"] > 2)
    def lend(amount: int) -> str:
        """Lend something."""
        return f"lent {amount}"

    decisions = iter([Approve(), Edit({"amount": 3}), Deny('no "way"')])
    model = ScriptedModel([call("lend", amount=1), *(call("lend", amount=n) for n in (5, 6, 7)), "done"])
    text = written(tmp_path / "runs.db", model, [lend], approve=lambda call: next(decisions))
    assert "Edit(args={'amount': 3})" in text
    passes(text)


def test_a_run_that_was_resumed_is_replayed(tmp_path: Path) -> None:
    """A run that waited in its store, and was decided later, is a run like any other."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent, run_id = stored(tmp_path / "runs.db", ScriptedModel([call("pay", amount=5), "paid"]), [pay])
    with pytest.raises(RunError, match="cannot be made a test: it has not ended"):
        as_test(agent.journal.entries(run_id))
    agent.resume(run_id, decision=Approve())
    passes(as_test(agent.journal.entries(run_id)))


def test_a_run_under_a_tool_policy_is_replayed_under_it(tmp_path: Path) -> None:
    """The policy of the run is part of the test: a call that it refused is refused again, and without it the test fails."""

    @tool(once=True, retry=0)
    def pay(to: str) -> str:
        """Pay somebody."""
        return f"paid {to}"

    model = ScriptedModel([call("pay", to="Ana"), call("add", a=1, b=2), call("pay", to="Ana"), "Paid."])
    policy = ToolPolicy(Order("add", "pay"), AtMost("pay", 1))
    text = written(tmp_path / "runs.db", model, [add, pay], policy=policy)
    passes(text)
    (line,) = [one for one in text.splitlines() if "policy=" in one]
    with pytest.raises(AssertionError):
        passes(text.replace(line, ""))


def test_a_run_that_scripts_cannot_replay_is_refused(tmp_path: Path) -> None:
    """A cancelled run and one whose fallback is mapped by code are told apart, with why."""

    @tool(fallback=add, map_fallback=lambda given: {"a": 1, "b": 2})
    def mapped(q: str) -> str:
        """Find."""
        return q

    with pytest.raises(RunError, match="the arguments of the fallback of mapped come from code"):
        written(tmp_path / "a.db", ScriptedModel(["3"]), [mapped])
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "3"]), [add], store=tmp_path / "c.db", logger=silent_logger())
    paused = agent.pause_at("EXECUTE").invoke("Add.")
    agent.cancel(paused.run_id)
    with pytest.raises(RunError, match="cannot be made a test: it was cancelled"):
        as_test(agent.journal.entries(paused.run_id))


def test_a_secret_is_written_only_when_asked_for(tmp_path: Path) -> None:
    """A test holds what was said and given as it was: what looks like a secret refuses it, wherever it stands."""
    key = "sk-proj-" + "aB3" * 16
    for task, said in ((f"Use {key}.", "3"), ("Add.", f"It is {key}.")):
        agent, run_id = stored(tmp_path / f"{len(task)}.db", ScriptedModel([said]), task=task)
        entries = agent.journal.entries(run_id)
        with pytest.raises(RunError, match=r"looks like a secret.*--unredacted"):
            as_test(entries)
        text = as_test(entries, secrets=True)
        assert key in text
        passes(text)


def test_names_of_any_spelling_are_names_in_the_file(tmp_path: Path) -> None:
    """A tool may begin with a digit or hold a dash, and the test is named after its run alone."""
    looks = [ScriptedTool(name, ["found"], args={"q": str}) for name in ("3d-look", "class")]
    model = ScriptedModel([*(call(one.name, q="x") for one in looks), "done"])
    agent = Agent(model, looks, store=tmp_path / "runs.db", logger=silent_logger())
    run_id = agent.invoke("Look.", {"configurable": {"run_id": "my run"}}).run_id
    text = as_test(agent.journal.entries(run_id))
    assert "def test_run_my_run() -> None:" in text
    passes(text)


@pytest.mark.parametrize("text", ['"""', "\\", '"; import os; "', "\x00\u2028\ud800", "{x!r}", "#" * 300, "'''\n\n"])
def test_nothing_that_was_said_becomes_code(tmp_path: Path, text: str) -> None:
    """Task, replies, arguments and results are data in the file, whatever they hold."""
    look = ScriptedTool("look", [f"found {text}"], args={"q": str})
    model = ScriptedModel([call("look", q=text), f"It is {text}"])
    made = written(tmp_path / "runs.db", model, [look], task=f"Look for {text}")
    passes(made)
    assert made.isprintable() or all(one.isprintable() or one == "\n" for one in made)


def test_the_command_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`fsm-agent trail-to-test RUN --store FILE -o FILE`, and to standard output without a file."""
    store = str(tmp_path / "runs.db")
    agent, run_id = stored(tmp_path / "runs.db", ScriptedModel(["3"]))
    assert agent.trails is not None
    agent.trails.close()
    target = tmp_path / "test_run.py"
    write_test(store, "1111", output=target, unredacted=False)
    text = target.read_text(encoding="utf-8")
    passes(text)
    assert text.startswith(f'"""Run {run_id}, as it went: Add 1 and 2.\n')
    write_test(store, "1111", output=None, unredacted=False)
    assert capsys.readouterr().out == text
    with pytest.raises(RunError, match="cannot write"):
        write_test(store, "1111", output=tmp_path, unredacted=False)
