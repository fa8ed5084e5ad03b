"""Exports of a trail: every entry, every transition, and spans that say what was done, when, and nothing secret."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any, cast

import pytest

from fsm_agent import Agent, Answer, Limits, tool
from fsm_agent.errors import DefinitionError
from fsm_agent.observe import silent_logger
from fsm_agent.testing import FakeClock, ScriptedModel, call, forever, reply
from fsm_agent.trail import Batch, Entry, MemoryTrail, fork
from fsm_agent.trail.export import COLUMNS, to_csv, to_jsonl, to_otel, to_otlp
from fsm_agent.trail.store import RUNNING


@tool
def look(place: str, api_key: str = "") -> str:
    """Look at a place."""
    if place == "nowhere":
        raise ValueError("=HYPERLINK there is no such place")
    return f"{place} has the password: hunter2"


def written(*script: object, thread: str | None = None, **limits: Any) -> tuple[Entry, ...]:
    """The entries of a run with this script."""
    clock = FakeClock()
    origin = {"model": "openai:small", "base_url": "http://127.0.0.1:8080/v1"}
    agent = Agent(
        ScriptedModel(list(script), clock=clock),
        [look],
        store=MemoryTrail(),
        limits=Limits(**limits),
        clock=clock,
        logger=silent_logger(),
        origin=origin,
    )
    agent.invoke("Look around", {"configurable": {"run_id": "r", "thread_id": thread}})
    return agent.journal.entries("r")


OSLO = reply("", call("look", place="Oslo", api_key="k-12345678"), usage=(12, 3))


def spans_of(text: str) -> list[dict[str, Any]]:
    """The spans of a line of OTLP JSON, in the order of their start."""
    (line,) = text.splitlines()
    (resource,) = json.loads(line)["resourceSpans"]
    found: list[dict[str, Any]] = resource["scopeSpans"][0]["spans"]
    return sorted(found, key=lambda span: (int(span["startTimeUnixNano"]), span["name"] != "invoke_agent"))


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span by name."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_json_lines_have_every_entry_and_no_secret() -> None:
    """One entry a line in order, secrets redacted; unredacted they are the entries, word for word."""
    entries = written(OSLO, "Seen.")
    shown = to_jsonl(entries)
    assert [json.loads(line)["kind"] for line in shown.splitlines()] == [one.kind for one in entries]
    assert "hunter2" not in shown
    assert "k-12345678" not in shown
    kept = [json.loads(line) for line in to_jsonl(entries, unredacted=True).splitlines()]
    assert [one["body"] for one in kept] == [one.body for one in entries]
    signatures = [one.body["signatures"] for one in entries if one.kind == "transition"]
    redacted = [json.loads(line)["body"] for line in shown.splitlines()]
    assert [one["signatures"] for one in redacted if "signatures" in one] == signatures


def test_csv_has_a_row_for_each_transition_and_no_formula() -> None:
    """The columns are fixed; guards stand with what they compared; a spreadsheet executes nothing of it."""
    entries = written(reply("", call("look", place="nowhere")), "There is none.", max_retries=0)
    rows = list(csv.DictReader(io.StringIO(to_csv(entries))))
    assert tuple(rows[0]) == COLUMNS
    assert [int(row["seq"]) for row in rows] == list(range(1, len(rows) + 1))
    decided = next(row for row in rows if row["event"] == "decided")
    assert 'steps_spent=no {"max_steps": 10, "steps": 1}' in decided["guards"]
    assert rows[0]["time"].endswith("+00:00")
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@"))]


def test_no_span_ends_before_it_begins() -> None:
    """The clock of the machine may be set back in the middle of a run: what reads spans refuses a negative duration."""
    pytest.importorskip("opentelemetry.sdk")

    class SetClock(FakeClock):
        behind = 0.0

        def time(self) -> float:
            return super().time() - self.behind

    clock = SetClock()

    def look() -> str:
        """Look around."""
        clock.behind += 3600.0
        return "Oslo"

    agent = Agent(
        ScriptedModel([call("look"), "Seen."]), [look], store=MemoryTrail(), clock=clock, logger=silent_logger()
    )
    run_id = agent.invoke("Look around").run_id
    spans = spans_of(to_otlp(agent.journal.entries(run_id)))
    assert len(spans) == 4
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)


def test_spans_follow_the_conventions_for_generative_ai() -> None:
    """invoke_agent over chat and execute_tool, with their names, tokens and recorded times."""
    pytest.importorskip("opentelemetry.sdk")
    entries = written(OSLO, reply("Seen.", usage=(20, 4)), thread="t")
    root, *below = spans_of(to_otlp(entries))
    assert [span["name"] for span in below] == ["chat small", "execute_tool look", "chat small"]
    assert {span["parentSpanId"] for span in below} == {root["spanId"]}
    assert len({span["traceId"] for span in (root, *below)}) == 1
    asked = attributes_of(below[0])
    assert asked["gen_ai.operation.name"] == "chat"
    assert (asked["gen_ai.provider.name"], asked["gen_ai.request.model"]) == ("openai", "small")
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.usage.output_tokens"]) == ("12", "3")
    assert (asked["server.address"], asked["server.port"]) == ("127.0.0.1", "8080")
    assert below[0]["kind"] == 3
    called = attributes_of(below[1])
    assert (called["gen_ai.operation.name"], called["gen_ai.tool.name"]) == ("execute_tool", "look")
    assert not [name for name in called if "arguments" in name or "result" in name]
    whole = attributes_of(root)
    assert (whole["gen_ai.operation.name"], whole["gen_ai.conversation.id"]) == ("invoke_agent", "t")
    assert (whole["gen_ai.usage.input_tokens"], whole["gen_ai.usage.output_tokens"]) == ("32", "7")
    assert [one["name"] for one in root["events"]] == ["fsm.transition"] * 7
    times = [one.time for one in entries]
    assert int(root["startTimeUnixNano"]) == round(times[0] * 1e9)
    assert int(root["endTimeUnixNano"]) == round(times[-1] * 1e9)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in (root, *below))


@pytest.mark.parametrize(
    ("script", "limits", "reason"),
    [
        (["Seen."], {}, "answered"),
        ([OSLO, "Seen."], {"max_steps": 1}, "forced_answer"),
        ([OSLO], {"max_steps": 1, "on_limit": "stop"}, "max_steps"),
    ],
)
def test_the_span_of_a_run_says_why_it_ended(script: list[object], limits: dict[str, Any], reason: str) -> None:
    """An answer that was forced at a limit is told from one that the model gave, as the result tells them apart."""
    pytest.importorskip("opentelemetry.sdk")
    root = spans_of(to_otlp(written(*script, **limits)))[0]
    assert attributes_of(root)["fsm.run.reason"] == reason


def test_a_fork_is_linked_to_the_run_whose_past_it_has_and_repeats_none_of_it() -> None:
    """What the other run did and cost stands in its trace alone; the fork's names that run and the transition, and has what came after."""
    pytest.importorskip("opentelemetry.sdk")
    store = MemoryTrail()
    agent = Agent(ScriptedModel([OSLO, "Seen."]), [look], store=store, logger=silent_logger())
    agent.invoke("Look around", {"configurable": {"run_id": "r"}})
    whole = spans_of(to_otlp(agent.journal.entries("r")))
    made = fork(agent.journal, "r", at=4, new_run_id="again")
    (forked,) = spans_of(to_otlp(agent.journal.entries(made)))
    told = attributes_of(forked)
    assert (told["fsm.run.forked_from"], told["fsm.run.forked_at"]) == ("r", "4")
    assert (told["gen_ai.usage.input_tokens"], forked["events"]) == ("0", [])
    assert forked["links"] == [{"traceId": whole[0]["traceId"], "spanId": whole[0]["spanId"]}]
    assert "fsm.run.forked_from" not in attributes_of(whole[0])
    assert "links" not in whole[0]
    Agent(ScriptedModel([reply("It is there.", usage=(7, 2))]), [look], store=store, logger=silent_logger()).resume(
        made
    )
    root, *below = spans_of(to_otlp(agent.journal.entries(made)))
    assert [span["name"] for span in below] == ["chat scripted"]
    assert attributes_of(root)["gen_ai.usage.input_tokens"] == "7"
    assert root["spanId"] == forked["spanId"]


class Nameless(ScriptedModel):
    """A model whose class does not say what it is called."""

    def _get_ls_params(self, *_: object, **__: object) -> Any:
        raise AttributeError("no name")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ScriptedModel(["Hello."], model_name="tiny"), "scriptedmodel:tiny"),
        (ScriptedModel(["Hello."], model_name="tiny").bind(model="other"), "scriptedmodel:other"),
        (cast(Any, Nameless)(["Hello."]), ""),
    ],
)
def test_a_trail_names_the_model_of_an_agent_in_code(model: Any, name: str) -> None:
    """What a model says of itself is in the header, and so in the spans; one that says nothing, or cannot, costs no run."""
    pytest.importorskip("opentelemetry.sdk")
    agent = Agent(model, store=MemoryTrail(), origin={"made": "here"}, logger=silent_logger())
    entries = agent.journal.entries(agent.invoke("Hello").run_id)
    assert entries[0].body["origin"] == {"model": name, "made": "here"}
    asked = attributes_of(spans_of(to_otlp(entries))[1])
    provider, _, called = name.partition(":")
    assert asked["gen_ai.provider.name"] == (provider or "_OTHER")
    assert asked.get("gen_ai.request.model", "") == called


def test_spans_hold_arguments_and_results_only_when_asked() -> None:
    """As the conventions ask, content is left out by default."""
    pytest.importorskip("opentelemetry.sdk")
    entries = written(OSLO, "Seen.")
    assert "hunter2" not in to_otlp(entries)
    assert "Oslo" not in to_otlp(entries)
    called = attributes_of(spans_of(to_otlp(entries, unredacted=True))[2])
    assert json.loads(called["gen_ai.tool.call.arguments"])["place"] == "Oslo"
    assert called["gen_ai.tool.call.result"] == "Oslo has the password: hunter2"


def test_a_run_is_the_same_trace_whenever_it_is_exported() -> None:
    """Ids follow from the run's, so that a second export gives the same spans."""
    pytest.importorskip("opentelemetry.sdk")
    entries = written("Hello.")
    assert to_otlp(entries) == to_otlp(entries)


def test_what_went_wrong_and_what_never_ended_is_said() -> None:
    """A failed call has its error; of a trail that a crash cut off, the open effect is unfinished and ends with the trail."""
    pytest.importorskip("opentelemetry.sdk")
    entries = written(reply("", call("look", place="nowhere")), "There is none.", max_retries=0)
    failed = next(span for span in spans_of(to_otlp(entries)) if span["name"] == "execute_tool look")
    assert failed["status"]["code"] == 2
    assert attributes_of(failed)["error.type"]
    begun = next(index for index, one in enumerate(entries) if one.body.get("effect") == "call_tools")
    cut = next(span for span in spans_of(to_otlp(entries[: begun + 1])) if span["name"] == "execute_tool look")
    assert attributes_of(cut)["error.type"] == "unfinished"
    root, *asked = spans_of(to_otlp(written(forever(ValueError("no such model")))))
    assert attributes_of(root)["error.type"] == "model_failed"
    assert {span["status"]["code"] for span in asked if span["name"] == "chat small"} == {2}


def test_a_call_in_doubt_ends_where_that_was_found() -> None:
    """The span of a call that a crash cut off does not go on to the end of the run, past the person who settled it."""
    pytest.importorskip("opentelemetry.sdk")
    whole, trails, clock = MemoryTrail(), MemoryTrail(), FakeClock()
    first = Agent(ScriptedModel([OSLO, "Seen."]), [look], store=whole, clock=clock, logger=silent_logger())
    first.invoke("Look", {"configurable": {"run_id": "r"}})
    kept = tuple(whole.read("r")[: [one.kind for one in first.journal.entries("r")].index("result")])
    trails.append(Batch(run_id="r", owner="gone", lease=0.0, time=0.0, status=RUNNING, entries=kept)).result()
    agent = Agent(ScriptedModel(["Seen."]), [look], store=trails, clock=clock, logger=silent_logger())
    agent.resume("r")
    clock.sleep(1000)
    agent.resume("r", decision=Answer("seen"))
    spans = spans_of(to_otlp(agent.journal.entries("r")))
    cut, asked = (
        next(span for span in spans if span["name"].startswith(name)) for name in ("execute_tool", "ask_person")
    )
    assert attributes_of(cut)["error.type"] == "in_doubt"
    assert int(cut["endTimeUnixNano"]) <= int(asked["startTimeUnixNano"])


def test_spans_go_to_any_exporter() -> None:
    """An exporter of OpenTelemetry is given finished spans, and shut down."""
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    to_otel(written("Hello."), exporter)
    spans: Sequence[Any] = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["chat small", "invoke_agent"]
    assert spans[1].context.trace_id == spans[0].parent.trace_id


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans need OpenTelemetry, and nothing else does."""
    entries = written("Hello.")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(DefinitionError, match=r"fsm-agent\[otel\]"):
        to_otlp(entries)
