"""Exports of a trail for other programs: JSON Lines, CSV, and OpenTelemetry spans. Secrets are redacted unless asked otherwise.

What is exported is what `Journal.entries` gives: checked, decrypted, whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fsm_agent.redact import redact, redact_text
from fsm_agent.trail.entries import Entry, canonical_json
from fsm_agent.trail.spans import OtlpLines, export_spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["COLUMNS", "redacted", "to_csv", "to_jsonl", "to_otel", "to_otlp"]

COLUMNS: Final = (
    *("run_id", "entry", "time", "seq", "source", "event", "target", "guards", "reason", "step", "tokens"),
    *("estimated_tokens", "model_calls", "tool_calls", "failures", "tools", "signatures", "elapsed_ms", "at", "error"),
)
"""The columns of the CSV, in order."""
_NAMING: Final = ("digest", "signature", "signatures", "fingerprint", "call_id")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def to_jsonl(entries: Sequence[Entry], *, unredacted: bool = False) -> str:
    """One entry a line: `run`, `seq`, `kind`, `time` (seconds since the epoch) and `body`."""
    lines = []
    for entry in entries:
        body = dict(entry.body) if unredacted else redacted(entry.body)
        line = {"run": entry.run_id, "seq": entry.seq, "kind": entry.kind, "time": entry.time, "body": body}
        lines.append(canonical_json(line) + "\n")
    return "".join(lines)


def redacted(value: Any) -> Any:
    """JSON data (the body of an entry) without secrets; what only names things (digests, signatures) stays, at every depth."""
    return _restored(value, redact(value))


def _restored(value: Any, shown: Any) -> Any:
    if isinstance(value, dict) and isinstance(shown, dict) and value.keys() == shown.keys():
        return {
            name: value[name] if name in _NAMING and _is_name(value[name]) else _restored(value[name], shown[name])
            for name in value
        }
    if isinstance(value, list) and isinstance(shown, list) and len(value) == len(shown):
        return [_restored(one, other) for one, other in zip(value, shown, strict=True)]
    return shown


def _is_name(value: Any) -> bool:
    """True for hexadecimal digits, and for what holds nothing else."""
    if isinstance(value, str):
        return not set(value) - set("0123456789abcdef")
    if isinstance(value, dict):
        return all(_is_name(one) for one in value.values())
    return isinstance(value, list) and all(_is_name(one) for one in value)


def to_csv(entries: Sequence[Entry], *, unredacted: bool = False) -> str:
    """One transition a row, under a row of names (`COLUMNS`); times are UTC. What a spreadsheet takes for a formula is quoted."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for entry in entries:
        if entry.kind == "transition":
            rows.writerow([_cell(_column(entry, name, unredacted=unredacted)) for name in COLUMNS])
    return text.getvalue()


def _column(entry: Entry, name: str, *, unredacted: bool) -> Any:
    body = entry.body
    match name:
        case "run_id":
            return entry.run_id
        case "entry":
            return entry.seq
        case "time":
            return datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="milliseconds")
        case "guards":
            asked = body["guards"] if unredacted else redact(body["guards"])
            return "; ".join(_guard(*one) for one in asked)
        case "tools" | "signatures":
            return " ".join(body[name])
        case "error":
            return body[name] if unredacted else redact_text(body[name])
        case _:
            return body.get(name)


def _guard(name: str, result: bool, values: Any) -> str:
    compared = json.dumps(values, ensure_ascii=False, sort_keys=True) if values else ""
    return f"{name}={'yes' if result else 'no'}{f' {compared}' if compared else ''}"


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def to_otel(entries: Sequence[Entry], exporter: SpanExporter, *, unredacted: bool = False) -> None:
    """Give the run as spans, with their recorded times, to an exporter of OpenTelemetry (console, OTLP, any other), and shut it down.

    The names are those of its conventions for generative AI: `invoke_agent` over `chat` and `execute_tool`. Prompts are in no
    trail; arguments and results of tools are left out, as the conventions ask, unless `unredacted`. The ids follow from that of the
    run, so a second export gives the same ones. A fork is linked to the run whose past it has, which is told there.

    Raises `DefinitionError` without the extra `otel`.
    """
    export_spans(entries, exporter, content=unredacted)


def to_otlp(entries: Sequence[Entry], *, unredacted: bool = False) -> str:
    """The spans of `to_otel` as one line of OTLP JSON, as the file exporter of OpenTelemetry writes and collectors read."""
    lines = OtlpLines()
    export_spans(entries, lines, content=unredacted)
    return lines.text
