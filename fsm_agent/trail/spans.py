"""A trail as OpenTelemetry spans, by the conventions for generative AI. The only importer of OpenTelemetry, which is an extra."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fsm_agent.alphabet import TERMINAL, State
from fsm_agent.errors import DefinitionError
from fsm_agent.redact import redact_text
from fsm_agent.tools.plain import plain
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.story import Act, Called, Story, story_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Link, Tracer

__all__ = ["OtlpLines", "export_spans"]

_NANO: Final = 1_000_000_000
_SCOPE: Final = "fsm_agent.trail"
_CUT: Final = {"doubted": "in_doubt", "cancelled": "cancelled", "broke": "broke"}
"""Why a call has no result, by the outcome of its batch."""


def export_spans(entries: Sequence[Entry], exporter: Any, *, content: bool) -> None:
    """See `fsm_agent.trail.export.to_otel`."""
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - the same
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415 - the same
    except ImportError as error:
        raise DefinitionError(
            "OpenTelemetry spans need the package opentelemetry-sdk, which is missing: pip install 'fsm-agent[otel]'"
        ) from error
    story = story_of(entries)
    provider = TracerProvider(
        resource=Resource({"service.name": "fsm-agent"}),
        id_generator=_ids(story.entries[0].run_id),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    _Writer(provider.get_tracer(_SCOPE), story, content=content).write()
    provider.shutdown()


def _ids(run_id: str) -> Any:
    """Ids that follow from the run's, so that the same run is the same trace wherever and whenever it is exported."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415 - an extra

    class Ids(IdGenerator):
        def __init__(self) -> None:
            self._spans = 0

        def generate_trace_id(self) -> int:
            return _trace_id(run_id)

        def generate_span_id(self) -> int:
            self._spans += 1
            return _span_id(run_id, self._spans)

    return Ids()


def _trace_id(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(f"trace {run_id}".encode()).digest()[:16]) or 1


def _span_id(run_id: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"span {number} {run_id}".encode()).digest()[:8]) or 1


def _ns(time: float) -> int:
    return round(time * _NANO)


@dataclass(frozen=True, slots=True)
class _Timed:
    """What a span says."""

    name: str
    began: float
    ended: float
    attributes: Mapping[str, Any]
    error: str = ""
    client: bool = False


class _Writer:
    """Writes one run: the span of the run, and below it one for each effect, or for each call of a batch.

    What a fork has of another run stands in the trace of that run, and only there: the span of the fork is linked to it.
    """

    def __init__(self, tracer: Tracer, story: Story, *, content: bool) -> None:
        self._tracer = tracer
        self._story = story
        self._forked: Mapping[str, Any] = story.header.get("forked") or {}
        kept = self._forked.get("seq", 0)
        self._acts = [act for act in story.acts if act.transition is None or act.transition.body["seq"] > kept]
        self._content = content
        self._last = max(entry.time for entry in story.entries)  # the clock may have been set back meanwhile
        origin = story.origin
        provider, _, name = str(origin.get("model") or "").partition(":")
        self._provider = provider if name else ("openai" if provider else "_OTHER")
        self._model = name or provider
        self._server = urlsplit(str(origin.get("base_url") or ""))

    def write(self) -> None:
        """Write all spans."""
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        header = self._story.entries[0]
        root = self._tracer.start_span(
            "invoke_agent", start_time=_ns(header.time), attributes=self._of_run(), links=self._links()
        )
        below = trace.set_span_in_context(root)
        for act in self._acts:
            for timed in self._spans(act):
                span = self._tracer.start_span(
                    timed.name,
                    context=below,
                    kind=trace.SpanKind.CLIENT if timed.client else trace.SpanKind.INTERNAL,
                    start_time=_ns(timed.began),
                    attributes=dict(timed.attributes),
                )
                self._fail(span, timed.error)
                span.end(_ns(max(timed.ended, timed.began)))
            if act.transition is not None:
                self._moved(root, act.transition)
        records = self._story.transitions
        if records and records[-1].target is State.ABORT:
            self._fail(root, str(records[-1].reason or "internal_error"))
        root.end(_ns(self._last))

    def _links(self) -> list[Link]:
        """To the span of the run that this one was forked from."""
        from opentelemetry.trace import Link, SpanContext, TraceFlags  # noqa: PLC0415 - an extra

        if not self._forked:
            return []
        run = self._forked["run"]
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return [Link(SpanContext(_trace_id(run), _span_id(run, 1), is_remote=True, trace_flags=sampled))]

    @staticmethod
    def _fail(span: Any, error: str) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))

    @staticmethod
    def _moved(root: Any, entry: Entry) -> None:
        body = entry.body
        attributes = {
            "fsm.seq": body["seq"],
            "fsm.source": body["source"],
            "fsm.event": body["event"],
            "fsm.target": body["target"],
            "fsm.guards": [f"{name}={'yes' if result else 'no'}" for name, result, _ in body["guards"]],
        }
        root.add_event("fsm.transition", attributes, _ns(entry.time))

    def _of_run(self) -> dict[str, Any]:
        story, header = self._story, self._story.header
        records = story.transitions
        replies = [act.outcome.body for act in self._acts if act.outcome is not None]
        usage = [one["usage"] for one in replies if isinstance(one.get("usage"), Mapping)]
        found: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._provider,
            "gen_ai.usage.input_tokens": sum(one["input"] for one in usage),
            "gen_ai.usage.output_tokens": sum(one["output"] for one in usage),
            "fsm.run.id": story.entries[0].run_id,
            "fsm.run.ended": bool(records) and records[-1].target in TERMINAL,
        }
        if self._model:
            found["gen_ai.request.model"] = self._model
        if header["thread_id"] is not None:
            found["gen_ai.conversation.id"] = header["thread_id"]
        if self._forked:
            found["fsm.run.forked_from"], found["fsm.run.forked_at"] = self._forked["run"], self._forked["seq"]
        if records:
            found["fsm.run.state"] = str(records[-1].target)
        if story.reason is not None:
            found["fsm.run.reason"] = str(story.reason)
        return found

    def _spans(self, act: Act) -> list[_Timed]:
        if act.effect == "call_tools":
            return [self._tool(call, act.outcome) for call in act.calls()]
        if not act.started:
            return []
        began, ended = act.started[-1].time, self._last if act.outcome is None else act.outcome.time
        if act.effect == "call_model":
            return [self._chat(act, began, ended)]
        name = {"ask_human": "ask_person", "wait": "wait"}.get(act.effect, act.effect)
        return [_Timed(name, began, ended, {"fsm.effect": act.effect}, self._unfinished(act))]

    def _unfinished(self, act: Act) -> str:
        outcome = act.outcome
        if outcome is None:
            return "unfinished" if act.effect != "ask_human" else ""
        kind = str(outcome.body["kind"])
        return str(outcome.body.get("error") or kind) if kind in ("model_failed", "cancelled", "broke") else ""

    def _chat(self, act: Act, began: float, ended: float) -> _Timed:
        body = act.outcome.body if act.outcome is not None else {}
        started = act.started[-1].body
        found: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "fsm.purpose": started["purpose"],
            "fsm.attempt": started["attempt"],
        }
        if self._model:
            found["gen_ai.request.model"] = self._model
        if self._server.hostname:
            found["server.address"] = self._server.hostname
            if self._server.port:
                found["server.port"] = self._server.port
        usage = body.get("usage")
        if isinstance(usage, Mapping) and usage["total"]:
            found["gen_ai.usage.input_tokens"] = usage["input"]
            found["gen_ai.usage.output_tokens"] = usage["output"]
        if body.get("finish"):
            found["gen_ai.response.finish_reasons"] = [body["finish"]]
        return _Timed(f"chat {self._model}".strip(), began, ended, found, self._unfinished(act), client=True)

    def _tool(self, call: Called, outcome: Entry | None) -> _Timed:
        found: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        if self._content:
            found["gen_ai.tool.call.arguments"] = json.dumps(plain(dict(call.arguments)), ensure_ascii=False)
        result, name = call.result, f"execute_tool {call.tool}"
        if result is None or call.ended is None:
            # What became of it is not known: it is over where that was found out, at the latest.
            if outcome is not None:
                return _Timed(name, call.began, outcome.time, found, _CUT.get(outcome.body["kind"], "unfinished"))
            return _Timed(name, call.began, self._last, found, "unfinished")
        if self._content:
            found["gen_ai.tool.call.result"] = result["text"]
        began = max(call.began, call.ended - float(result["seconds"]))
        error = "" if result["ok"] else redact_text(str(result["error"] or "failed"))
        return _Timed(name, began, call.ended, found, error)


# ---------------------------------------------------------------- OTLP JSON


class OtlpLines:
    """A span exporter that keeps what it is given; `text` is one line of OTLP JSON with all of it."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        """Keep `spans`."""
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - an extra

        self._spans.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to let go of."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """True: nothing is kept back."""
        return True

    @property
    def text(self) -> str:
        """The line, with its end; "" when nothing was exported."""
        if not self._spans:
            return ""
        document = {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(self._spans[0].resource.attributes)},
                    "scopeSpans": [{"scope": {"name": _SCOPE}, "spans": [_otlp(span) for span in self._spans]}],
                }
            ]
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _otlp(span: ReadableSpan) -> dict[str, Any]:
    context = span.context
    assert context is not None, "a finished span has one"
    found: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "events": [
            {"name": one.name, "timeUnixNano": str(one.timestamp), "attributes": _attributes(one.attributes or {})}
            for one in span.events
        ],
        "status": {"code": span.status.status_code.value},
    }
    if span.links:
        found["links"] = [
            {"traceId": f"{one.context.trace_id:032x}", "spanId": f"{one.context.span_id:016x}"} for one in span.links
        ]
    if span.parent is not None:
        found["parentSpanId"] = f"{span.parent.span_id:016x}"
    return found


def _attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in given.items()]


def _value(value: Any) -> dict[str, Any]:
    kinds: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
        (bool, "boolValue", bool),
        (int, "intValue", str),
        (float, "doubleValue", float),
    )
    for kind, name, as_json in kinds:
        if isinstance(value, kind):
            return {name: as_json(value)}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}
