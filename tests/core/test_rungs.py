"""The rungs of the ladder, as runs take them: defaults, simpler tools, tools that are withheld, an answer, a stop, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import Agent, DefinitionError, Limits, RunResult, Status, StopReason, Tool, tool
from fsm_agent.alphabet import Event, State
from fsm_agent.errors import ToolDefinitionError
from fsm_agent.language import EN, ZH
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call
from fsm_agent.trail import MemoryTrail
from fsm_agent.trail.audit import audit
from fsm_agent.trail.fold import fold
from fsm_agent.verify import verify

RUN: Any = {"configurable": {"run_id": "r"}}
LIMITS = Limits(degrade_after=1, abort_after=9, max_degradations=9, max_steps=9, no_progress_steps=9)


@tool(retry=0)
def deep(q: str) -> str:
    """Search everything."""
    raise ConnectionError("the index is down")


@tool(retry=0, default="about 20 °C")
def weather(city: str) -> str:
    """Current weather."""
    raise ConnectionError("the station is down")


@tool(retry=0)
def broken(city: str) -> str:
    """Stand in for `guarded`, and fail too."""
    raise ConnectionError("so is the archive")


@tool(retry=0, fallback=broken, default="about 10 °C")
def guarded(city: str) -> str:
    """Current weather, with a fallback and a default."""
    raise ConnectionError("the station is down")


@tool
def basic(q: str) -> str:
    """Search a little."""
    return f"a little about {q}"


TOOLS: tuple[Tool, ...] = (deep, weather, guarded, basic)
DEEP = [call("deep", q=f"x{n}") for n in range(9)]


def agent_of(model: ScriptedModel, **options: Any) -> Agent:
    """An agent that degrades at the first failure."""
    given = {"limits": LIMITS, "tools": TOOLS, **options}
    return Agent(model, given.pop("tools"), logger=silent_logger(), clock=FakeClock(), **given)


def rungs(result: RunResult) -> list[Event]:
    """What DEGRADE chose, in order."""
    return [record.event for record in result.transitions if record.source is State.DEGRADE]


# ---------------------------------------------------------------- default


def test_a_default_stands_in_for_a_result_and_is_told_as_one() -> None:
    """The model reads what failed and that the text is a default; the run goes on, and nothing claims that the tool gave it."""
    model = ScriptedModel([call("weather", city="Oslo"), "About 20 °C, by default."])
    result = agent_of(model).invoke("How warm is it in Oslo?")
    assert (result.status, rungs(result)) == (Status.COMPLETED, [Event.DEFAULTED])
    seen = model.requests[1].messages[-1]
    told = EN.default.format(
        error="weather failed: ConnectionError: the station is down", tool="weather", text="about 20 °C"
    )
    assert seen.content == told
    assert (result.results, result.tool_calls) == ((), 1)
    assert result.transitions[-1].failures == 1


def test_a_fallback_comes_before_the_default_of_its_tool() -> None:
    """A tool with both is replaced first; only when that fails too its default stands in."""
    model = ScriptedModel([call("guarded", city="Oslo"), "About 10 °C."])
    result = agent_of(model).invoke("How warm is it in Oslo?")
    assert rungs(result) == [Event.FALLBACK_CHOSEN, Event.DEFAULTED]
    assert "about 10 °C" in model.requests[1].text


def test_in_a_batch_only_what_failed_gets_its_default() -> None:
    """Every call of the reply has one result, in order: its own, its default, or its failure."""
    batch = [call("weather", city="Oslo"), call("deep", q="x")]
    model = ScriptedModel([batch, "done"])
    result = agent_of(model).invoke("go")
    texts = [str(message.content) for message in model.requests[1].messages if message.type == "tool"]
    assert rungs(result) == [Event.DEFAULTED]
    assert ["default" in text for text in texts] == [True, False]


def test_a_default_is_text() -> None:
    """What a tool stands in with is what the model reads."""
    with pytest.raises(ToolDefinitionError, match="default is the text"):
        replace(deep, default=3)  # type: ignore[arg-type] # what is tested is that this is refused


def test_a_fallback_that_is_no_tool_is_refused() -> None:
    """A plain function as a fallback says that a tool is to be made of it."""
    with pytest.raises(ToolDefinitionError, match="fallback is a Tool or the name of one"):
        replace(deep, fallback=len)  # type: ignore[arg-type] # what is tested is that this is refused


# ---------------------------------------------------------------- simpler


def test_only_simpler_tools_are_left_shown_and_callable() -> None:
    """From the rung on the model is offered, and may call, nothing but the simpler tools, and is told so."""
    model = ScriptedModel([DEEP[0], DEEP[1], DEEP[2], call("basic", q="x"), "a little"])
    result = agent_of(model, simpler=["basic"], ladder=["strategy", "simpler"]).invoke("find x")
    assert rungs(result) == [Event.STRATEGY_CHANGED, Event.SIMPLIFIED, Event.STRATEGY_CHANGED]
    assert [request.tool_names for request in model.requests[1:]] == [tuple(one.name for one in TOOLS)] + [
        ("basic",)
    ] * 3
    assert "From now on these are the only tools: basic." in model.requests[2].text
    assert "deep was taken away" in model.requests[3].text
    assert (result.status, result.tool_calls) == (Status.COMPLETED, 3)


def test_a_text_dialect_writes_only_what_is_left() -> None:
    """Where tools stand in the prompt, those that are gone stand there no more."""
    replies = ['Action: deep\nAction Input: {"q": "x"}', "Final Answer: nothing"]
    model = ScriptedModel(replies)
    agent_of(model, simpler=["basic"], ladder=["simpler"], dialect="react").invoke("find x")
    system = [str(request.messages[0].content) for request in model.requests]
    assert ["Search everything." in text for text in system] == [True, False]
    assert ["Search a little." in text for text in system] == [True, True]


def test_a_simpler_tool_that_is_unregistered_is_gone() -> None:
    """The registry may change while runs go on; the rung is there while one of its tools is."""
    agent = agent_of(ScriptedModel([DEEP[0], DEEP[1], "nothing"]), simpler=["basic"], ladder=["simpler"])
    agent.tools.unregister("basic")
    assert rungs(agent.invoke("find x")) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"simpler": ["bsic"]}, "simpler tool 'bsic' does not exist; there are deep, weather"),
        ({"ladder": ["simpler"]}, "no tools for it"),
        ({"ladder": ["rope"]}, "rung of the ladder 'rope' does not exist"),
    ],
)
def test_a_ladder_that_cannot_be_is_refused_when_the_agent_is_made(options: dict[str, Any], said: str) -> None:
    """A misspelt rung or tool is seen where it is written."""
    with pytest.raises(DefinitionError, match=said):
        agent_of(ScriptedModel([]), **options)


# ---------------------------------------------------------------- withhold


def test_a_tool_that_keeps_failing_may_be_withheld() -> None:
    """With `withhold` a change of strategy takes the failing tool away; what remains is offered and named."""
    model = ScriptedModel([DEEP[0], DEEP[1], call("basic", q="x"), "a little"])
    result = agent_of(model, withhold=True).invoke("find x")
    assert model.requests[1].tool_names == ("weather", "guarded", "basic")
    assert "Tools you have: weather, guarded, basic." in model.requests[1].text
    assert "deep was taken away" in model.requests[2].text
    assert result.tool_calls == 2


def test_without_it_the_tool_stays() -> None:
    """Two failures may be the fault of the arguments: by default the model may try again."""
    model = ScriptedModel([DEEP[0], "nothing"])
    agent_of(model).invoke("find x")
    assert "deep" in model.requests[1].tool_names


def test_the_last_tool_is_never_withheld() -> None:
    """A run is not left without tools by this."""
    model = ScriptedModel([DEEP[0], DEEP[1], "nothing"])
    agent_of(model, tools=[deep], withhold=True).invoke("find x")
    assert [request.tool_names for request in model.requests] == [("deep",)] * 3


# ---------------------------------------------------------------- answer, stop, order


def test_where_no_rung_is_left_an_answer_is_asked_for() -> None:
    """A ladder without a change of strategy ends with an answer from what is known, which is partial."""
    model = ScriptedModel([call("basic", q="x"), DEEP[0], "a little about x"])
    result = agent_of(model, ladder=["fallback", "answer"]).invoke("find x")
    assert (result.status, result.reason) == (Status.PARTIAL, StopReason.FORCED_ANSWER)
    assert rungs(result) == [Event.ANSWER_FORCED]
    assert model.requests[2].tool_names == ()


def test_a_stop_ends_the_run_before_the_circuit_opens() -> None:
    """A simpler tool, or stop: with "stop" at its end the ladder ends the run where nothing is left."""
    model = ScriptedModel(DEEP)
    result = agent_of(model, simpler=["deep"], ladder=["simpler", "stop"]).invoke("find x")
    assert (result.status, result.reason) == (Status.FAILED, StopReason.CONSECUTIVE_FAILURES)
    assert rungs(result) == [Event.SIMPLIFIED, Event.EXHAUSTED]
    assert result.steps == 2


def test_without_a_stop_the_run_goes_on_to_the_circuit() -> None:
    """The default: where nothing is left, the model may try until `abort_after`."""
    limits = LIMITS.replace(abort_after=4)
    result = agent_of(ScriptedModel(DEEP), simpler=["deep"], ladder=["simpler"], limits=limits).invoke("find x")
    assert (result.reason, result.steps, rungs(result)) == (StopReason.CONSECUTIVE_FAILURES, 4, [Event.SIMPLIFIED])


@pytest.mark.parametrize(
    ("ladder", "taken"),
    [
        (None, [Event.DEFAULTED, Event.DEFAULTED, Event.DEFAULTED]),
        (["strategy", "default", "simpler"], [Event.STRATEGY_CHANGED, Event.DEFAULTED, Event.DEFAULTED]),
        (["simpler", "strategy"], [Event.SIMPLIFIED, Event.STRATEGY_CHANGED, Event.STRATEGY_CHANGED]),
        (["strategy", "simpler"], [Event.STRATEGY_CHANGED, Event.SIMPLIFIED, Event.STRATEGY_CHANGED]),
        (["strategy"], [Event.STRATEGY_CHANGED] * 3),
    ],
)
def test_the_rungs_are_taken_in_the_order_that_is_given(ladder: list[str] | None, taken: list[Event]) -> None:
    """The first that is left is taken; what changes the run once, and a strategy again where nothing below is left."""
    model = ScriptedModel([*(call("weather", city=f"c{n}") for n in range(3)), "no idea"])
    simpler = ["weather"] if ladder is None or "simpler" in ladder else []
    result = agent_of(model, simpler=simpler, ladder=ladder).invoke("How warm is it?")
    assert rungs(result) == taken


def test_max_degradations_bounds_them_all() -> None:
    """However many rungs there are, no more are taken; a stop is not counted."""
    model = ScriptedModel(DEEP)
    limits = LIMITS.replace(max_degradations=1)
    result = agent_of(model, limits=limits, ladder=["strategy", "stop"]).invoke("find x")
    assert rungs(result) == [Event.STRATEGY_CHANGED, Event.EXHAUSTED]


# ---------------------------------------------------------------- trail, certificate, language


def test_a_resumed_run_stays_as_low_as_it_was() -> None:
    """What was taken away stays away after a restart, and the audit finds the trail right without the agent."""
    store = MemoryTrail()
    options: dict[str, Any] = {
        "simpler": ["basic"],
        "ladder": ["strategy", "simpler"],
        "withhold": True,
        "store": store,
    }
    first = agent_of(ScriptedModel([DEEP[0], call("weather", city="Oslo")]), **options)
    assert first.pause_at(after_step=2).invoke("find x", RUN).status is Status.SUSPENDED
    model = ScriptedModel(["a little"])
    again = agent_of(model, ladder=["answer"], store=store)
    assert again.resume("r").status is Status.COMPLETED
    assert model.requests[0].tool_names == ("basic",)
    assert audit(again.journal, "r").findings == ()
    told = fold(list(again.journal.entries("r"))).ctx
    assert (told.rungs, told.withheld) == (frozenset({"strategy", "simpler"}), frozenset({"deep"}))
    assert told.setup.ladder == ("strategy", "simpler")


def test_a_trail_keeps_the_default_of_a_tool() -> None:
    """Without the agent the fold still knows what stood in."""
    store = MemoryTrail()
    agent = agent_of(ScriptedModel([call("weather", city="Oslo"), "done"]), store=store)
    agent.invoke("How warm is it?", RUN)
    assert fold(list(agent.journal.entries("r"))).state is State.FINISH


def test_a_ladder_with_everything_is_proved() -> None:
    """`verify` explores defaults, simpler tools and the rungs in any order, and every run still ends."""
    small = Limits(max_steps=6, no_progress_steps=1, max_nudges=0, max_degradations=3, degrade_after=1, abort_after=2)
    for ladder in (
        ("fallback", "default", "strategy", "simpler", "answer"),
        ("simpler", "strategy", "default", "stop"),
    ):
        found = verify(small, ladder=ladder, simpler=True, defaults=True)
        assert found, str(found)
        unused = {one.row.event for one in found.unused}
        assert not unused & {Event.DEFAULTED, Event.SIMPLIFIED, Event.STRATEGY_CHANGED}


def test_an_agent_verifies_the_ladder_that_it_has() -> None:
    """`agent.verify()` knows whether there are simpler tools and defaults."""
    small = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=2, degrade_after=1, abort_after=2)
    plain = agent_of(ScriptedModel([]), limits=small, tools=[deep, basic]).verify()
    rich = agent_of(ScriptedModel([]), limits=small, simpler=["basic"], ladder=["default", "simpler"]).verify()
    rare = {Event.DEFAULTED, Event.SIMPLIFIED}
    assert rare <= {one.row.event for one in plain.unused}
    assert not rare & {one.row.event for one in rich.unused}


def test_chinese_models_are_told_in_chinese() -> None:
    """What the model reads of the new rungs exists in both languages."""
    model = ScriptedModel([call("weather", city="奥斯陆"), call("deep", q="x"), "大约二十度"])
    agent_of(model, simpler=["basic"], ladder=["default", "simpler"]).invoke("奥斯陆现在多少度？")
    assert (
        ZH.default.format(
            error="weather 失败：ConnectionError: the station is down", tool="weather", text="about 20 °C"
        )
        in model.requests[1].text
    )
    assert "从现在起只有这些工具：basic。" in model.requests[2].text


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"simpler": ["basic"], "ladder": ["strategy"]}, "simpler"),
        ({"withhold": True, "ladder": ["fallback", "answer"]}, "strategy"),
        ({"ladder": ["simpler"]}, "no tools for it"),
    ],
)
def test_a_setting_without_its_rung_is_refused(setting: dict[str, Any], said: str) -> None:
    """What would never be used is an error when the agent is made, not a surprise later."""
    with pytest.raises(DefinitionError, match=said):
        agent_of(ScriptedModel([]), **setting)
