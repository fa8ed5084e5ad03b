"""`fsm-agent trail-to-test`: a stored run as a pytest file."""

from __future__ import annotations

from pathlib import Path

from fsm_agent.cli.console import note, put_raw
from fsm_agent.cli.stores import stored_run
from fsm_agent.errors import RunError
from fsm_agent.testing.regression import as_test

__all__ = ["write_test"]


def write_test(store: str | None, run: str, *, output: Path | None, unredacted: bool) -> None:
    """Write the run as a test, to standard output without a file. Raises `RunError` for what cannot be one, or be written."""
    with stored_run(store, run) as stored:
        text = as_test(stored.story.entries, secrets=unredacted)
    if output is None:
        put_raw(text.rstrip("\n"))
        return
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise RunError(f"cannot write {str(output)!r}: {error.strerror or error}") from error
    note(f"wrote {output}; run it with pytest")
