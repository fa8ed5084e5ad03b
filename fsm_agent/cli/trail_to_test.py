"""`fsm-agent trail-to-test`: a stored run as a pytest file."""

from __future__ import annotations

from pathlib import Path

from fsm_agent.cli.console import note
from fsm_agent.cli.export import put_or_write
from fsm_agent.cli.stores import stored_run
from fsm_agent.testing.regression import as_test

__all__ = ["write_test"]


def write_test(store: str | None, run: str, *, output: Path | None, unredacted: bool) -> None:
    """Write the run as a test, to standard output without a file. Raises `RunError` for what cannot be one, or be written."""
    with stored_run(store, run) as stored:
        text = as_test(stored.story.entries, secrets=unredacted)
    put_or_write(text, output)
    if output is not None:
        note("run it with pytest")
