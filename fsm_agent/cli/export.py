"""`fsm-agent export`: a stored run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from fsm_agent.cli.console import note, put_raw
from fsm_agent.cli.stores import stored_run
from fsm_agent.errors import RunError
from fsm_agent.trail.export import to_csv, to_jsonl, to_otlp
from fsm_agent.trail.files import replace_bytes

__all__ = ["ExportFormat", "export_run", "put_or_write"]

ExportFormat = Literal["jsonl", "csv", "otel"]
_WRITERS: Final = {"jsonl": to_jsonl, "csv": to_csv, "otel": to_otlp}


def export_run(store: str | None, run: str, *, format: ExportFormat, output: Path | None, unredacted: bool) -> None:
    """Write a run as `format`, to standard output without a file. Raises `RunError` for a file that cannot be written; as `stored_run`."""
    with stored_run(store, run) as stored:
        text = _WRITERS[format](stored.story.entries, unredacted=unredacted)
    put_or_write(text, output)


def put_or_write(text: str, output: Path | None) -> None:
    """`text` on standard output, or in a file. Raises `RunError` for one that cannot be written."""
    if output is None:
        put_raw(text.rstrip("\n"))
        return
    try:
        replace_bytes(output, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise RunError(f"cannot write {str(output)!r}: {error.strerror or error}") from error
    note(f"wrote {output}")
