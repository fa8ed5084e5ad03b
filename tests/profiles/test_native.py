"""`native`: each sentence of what it promises."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from structlog.testing import capture_logs

from fsm_agent import Agent, Change, Event, MessageWindow, State, Status, StopReason, Transitioned, tool
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ModelRequest, ScriptedModel, call, reply, server
from tests.cli.kit import SECONDS, environment
from tests.faults.kit import answers_in, assert_sendable, client
from tests.profiles.kit import by_name

SUM = call("calculator", expression="1 + 2")


def counting(request: ModelRequest) -> Any:
    """A model that always computes something new."""
    return call("calculator", expression=f"{request.number} + 1")


# ---------------------------------------------------------------- the model


def test_tools_are_bound_and_the_temperature_is_zero() -> None:
    """The server is sent the tools in its own form, and temperature 0."""
    with server([SUM, "It is 3."]) as s:
        agent = Agent.from_profile("native", client(s), clock=FakeClock(), logger=silent_logger())
        assert agent.invoke("What is 1 + 2?").answer == "It is 3."
        assert [request.body["temperature"] for request in s.requests] == [0.0, 0.0]
        assert s.requests[0].tool_names == ("query_order", "calculator", "search_documents")


def test_at_most_five_iterations() -> None:
    """The sixth round is not begun: what is known is asked for, without tools."""
    agent, model = by_name("native", ScriptedModel(lambda request: counting(request) if request.tools else "so far"))
    result = agent.invoke("Compute.")
    assert (result.tool_calls, result.status, result.reason) == (5, Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert "max_steps=5" in result.detail
    assert model.count == 6


def test_text_without_calls_is_the_answer() -> None:
    """Nothing else is needed to end."""
    result = by_name("native", ["It is 3."])[0].invoke("What is 1 + 2?")
    assert (result.status, result.answer, result.steps) == (Status.COMPLETED, "It is 3.", 1)


def test_text_beside_a_call_is_not_the_answer() -> None:
    """A remark beside a call does not end the run: the call is made."""
    result = by_name("native", [reply("Let me compute.", SUM), "It is 3."])[0].invoke("What is 1 + 2?")
    assert (result.answer, result.tool_calls) == ("It is 3.", 1)


# ---------------------------------------------------------------- errors


def test_an_error_goes_back_as_the_message_of_its_call() -> None:
    """The result with the call's own id says what went wrong, and the loop goes on."""
    agent, model = by_name("native", [call("calculator", expression="1 / 0"), SUM, "3"])
    result = agent.invoke("What is 1 + 2?")
    (told,) = answers_in(model.requests[1])
    assert (told.status, told.tool_call_id) == ("error", asked_in(model.requests[1])[0])
    assert "calculator" in told.text
    assert (result.status, result.answer) == (Status.COMPLETED, "3")


def asked_in(request: ModelRequest) -> list[str]:
    """The ids of the calls in a prompt."""
    return [
        str(one["id"]) for message in request.messages if isinstance(message, AIMessage) for one in message.tool_calls
    ]


# ---------------------------------------------------------------- history


def long_run(**limits: Any) -> ScriptedModel:
    """A run of nine rounds."""
    agent, model = by_name(
        "native",
        ScriptedModel(lambda request: counting(request) if request.number < 10 else "done"),
        limits={"max_steps": 12, **limits},
    )
    assert agent.invoke("Compute a lot.").ok
    return model


def test_a_history_above_ten_messages_is_trimmed_with_the_first_task_kept() -> None:
    """No prompt has more than ten messages beside the system's, and each begins with the user's first."""
    model = long_run()
    for request in model.requests:
        shown = request.messages[1:]
        assert len(shown) <= 10
        assert isinstance(shown[0], HumanMessage)
        assert shown[0].text == "Compute a lot."
    assert len(model.requests[-1].messages) < 1 + 1 + 9 * 2


def test_no_orphans_are_left() -> None:
    """Every result stands behind the call that it answers, and every call is answered, in every prompt."""
    model = long_run()
    assert_sendable(model.requests)
    for request in model.requests:
        assert [message.tool_call_id for message in request.messages if isinstance(message, ToolMessage)] == asked_in(
            request
        )


def test_at_least_the_last_two_rounds_stay() -> None:
    """Rounds of many calls stay whole, though two of them alone are more than ten messages."""
    many = [[call("calculator", expression=f"{n} + {m}") for m in range(8)] for n in range(3)]
    agent, model = by_name("native", [*many, "done"])
    agent.invoke("Compute a lot.")
    assert len(answers_in(model.requests[-1])) == 16
    assert_sendable(model.requests)


# ---------------------------------------------------------------- empty replies


def test_an_empty_reply_is_told_what_to_do_and_counts() -> None:
    """The model is asked to call a tool or to answer; the reply was an iteration."""
    agent, model = by_name("native", ["", "It is 3."])
    result = agent.invoke("What is 1 + 2?")
    assert "empty" in model.requests[1].messages[-1].text
    assert (result.answer, result.steps) == ("It is 3.", 2)


# ---------------------------------------------------------------- descriptions


def test_descriptions_say_when_not_to_use_a_tool() -> None:
    """Each of its tools has such a sentence, and the model is sent it."""
    agent, model = by_name("native", ["ok"])
    agent.invoke("Hello")
    assert all("Do not use it for:" in one["function"]["description"] for one in model.requests[0].tools)
    assert len(model.requests[0].tools) == 3


# ---------------------------------------------------------------- log, resume, pause


def test_every_loop_is_logged() -> None:
    """An observer is told each transition, and so is the log; every step is among them."""
    seen: list[Transitioned] = []
    script = [SUM, call("calculator", expression="2 + 2"), "4"]
    agent, _ = by_name("native", script, observers=(seen.append,), logger=None)
    with capture_logs() as lines:
        result = agent.invoke("Compute.")
    assert tuple(seen) == result.transitions
    assert {one.step for one in seen} == {1, 2, 3}
    logged = [(one["source"], one["fsm_event"], one["target"]) for one in lines if one["event"] == "fsm.transition"]
    assert logged == [(one.source, one.event, one.target) for one in seen]


_DIES: Final = """
    import os, signal, sys
    from fsm_agent import tool
    from fsm_agent.testing import call
    from tests.profiles.kit import by_name

    @tool
    def note(text: str) -> str:
        "Write a note."
        with open("notes.txt", "a") as file:
            file.write(text + "\\n")
        if text == "two" and sys.argv[1] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"noted {text}"

    script = [call("note", text="one"), call("note", text="two"), "both noted"]
    given = {"store": "runs.db", "limits": {"in_doubt": "tell"}}
    if sys.argv[1] == "dies":
        by_name("native", script, [note], **given)[0].invoke("Note.", {"configurable": {"run_id": "r1"}})
    agent, model = by_name("native", script[2:], [note], **given)
    print(agent.resume("r1").answer, model.count)
"""


def test_a_run_goes_on_after_an_interruption(tmp_path: Path) -> None:
    """A process that is killed in the middle of the second round is followed by another, which does nothing twice."""
    (tmp_path / "program.py").write_text(textwrap.dedent(_DIES), encoding="utf-8")

    def program(how: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "program.py", how],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert program("dies").returncode == -signal.SIGKILL
    after = program("goes on")
    assert (after.returncode, after.stdout) == (0, "both noted 1\n"), after.stderr
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8").split() == ["one", "two"]


def test_a_person_pauses_at_iteration_three_and_changes_arguments() -> None:
    """After step two the run waits; in step three the call is shown before it is made, and made with other arguments."""
    script = [*(call("calculator", expression=f"{n} + 1") for n in (1, 2, 3)), "done"]
    agent, model = by_name("native", script)
    agent.pause_at(after_step=2)
    paused = agent.invoke("Compute.")
    assert (paused.status, paused.steps, model.count) == (Status.SUSPENDED, 2, 2)
    agent.pause_at(State.EXECUTE)
    shown = agent.resume(paused.run_id)
    (waiting,) = shown.upcoming
    assert (waiting.tool, dict(waiting.arguments)["expression"]) == ("calculator", "3 + 1")
    agent.pause_at()
    changed = Change(arguments={waiting.id: {"expression": "30 + 10"}})
    result = agent.resume(paused.run_id, change=changed)
    assert (result.status, result.results[-1].text) == (Status.COMPLETED, "40")


# ---------------------------------------------------------------- asked for next


def test_a_tool_that_failed_twice_gives_way_to_its_backup() -> None:
    """Tried, tried again, then the tool that stands in for it answers."""
    tried: list[str] = []

    @tool
    def stored(city: str) -> str:
        """Yesterday's weather."""
        return f"{city}: 20 °C yesterday"

    @tool(fallback=stored)
    def weather(city: str) -> str:
        """The weather now."""
        tried.append(city)
        raise RuntimeError("station down")

    agent, model = by_name("native", [call("weather", city="Oslo"), "20 °C"], [weather])
    result = agent.invoke("How warm is Oslo?")
    assert tried == ["Oslo", "Oslo"]
    assert "20 °C yesterday" in model.requests[1].messages[-1].text
    assert result.ok


def test_or_to_a_default_answer() -> None:
    """A tool without a backup that failed twice gives its default, and the model is told that it is one."""

    @tool(default="about 20 °C at this time of the year")
    def weather(city: str) -> str:
        """The weather now."""
        raise RuntimeError("station down")

    agent, model = by_name("native", [call("weather", city="Oslo"), "about 20 °C"], [weather])
    result = agent.invoke("How warm is Oslo?")
    assert Event.DEFAULTED in [one.event for one in result.transitions]
    assert "about 20 °C at this time of the year" in model.requests[1].text
    assert agent.tools.stats("weather").usage_count == 2
    assert result.ok


def test_the_cap_on_iterations_may_adapt_to_the_use_of_tools() -> None:
    """Five to begin with, and one more for each that a tool taught something: eight useful rounds end in an answer."""
    agent, model = by_name(
        "native",
        ScriptedModel(lambda request: counting(request) if request.number < 9 else "done"),
        limits={"max_steps": "adaptive"},
    )
    result = agent.invoke("Compute a lot.")
    assert (result.status, result.steps, model.count) == (Status.COMPLETED, 9, 9)
    idle, model = by_name(
        "native", ScriptedModel(lambda request: SUM if request.tools else "3"), limits={"max_steps": "adaptive"}
    )
    assert idle.invoke("Compute.").status is Status.PARTIAL
    assert model.count <= 6


def test_the_values_are_those_of_the_profile() -> None:
    """Five steps, ten messages, temperature 0."""
    agent, _ = by_name("native", [])
    assert (agent.limits.max_steps, agent.setup.memory) == (5, MessageWindow(messages=10))
    assert agent.setup.temperature == 0.0
