"""`fsm-agent report`: a stored run as one HTML page."""

from __future__ import annotations

from pathlib import Path

from fsm_agent.cli.export import put_or_write
from fsm_agent.cli.going import Given
from fsm_agent.cli.replay import given_code
from fsm_agent.cli.stores import existing, find_run, journal_of
from fsm_agent.machine import DEFAULT_MACHINE
from fsm_agent.report import report

__all__ = ["report_run"]


def report_run(store: str | None, run: str, *, output: Path | None, head: str, given: Given, unredacted: bool) -> None:
    """Write the page, to standard output without a file.

    Raises `RunError` without a store or for a file that cannot be written, `UnknownRun`, and `TrailLocked` without the key it needs.
    """
    with existing(store) as trails:
        run_id = find_run(trails, run)
        journal = journal_of(trails)
        setup, machine = given_code(journal, run_id, given)
        page = report(journal, run_id, setup, machine=machine or DEFAULT_MACHINE, head=head, unredacted=unredacted)
    put_or_write(page, output)
