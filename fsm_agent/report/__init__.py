"""A run as one HTML page that needs nothing else: no network, no script. For whoever has to understand or to show what a run did.

All that a model, a tool or a person wrote is text in it, whatever it says.
"""

from __future__ import annotations

from fsm_agent.context import Setup
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.report.gather import gather
from fsm_agent.report.page import page
from fsm_agent.trail.journal import Journal

__all__ = ["report"]


def report(
    journal: Journal,
    run_id: str,
    setup: Setup | None = None,
    *,
    machine: Machine = DEFAULT_MACHINE,
    head: str = "",
    unredacted: bool = False,
) -> str:
    """The page of a stored run, however it stands: how it ended and why, where time and tokens went, its path drawn into the machine,
    every transition with its guards and what they compared, calls with arguments and results, the messages, and the audit's verdict.

    `journal` is `agent.journal`. `setup` is that of the agent that wrote the run, needed only to judge what its own code decided; `head`
    a seal that was kept elsewhere. Secrets are redacted as in logs, unless `unredacted`. The same trail gives the same page.

    Of a damaged trail it shows what can be read, and says what is wrong. Raises `UnknownRun`, and `TrailLocked` without the key of an
    encrypted trail.
    """  # noqa: D205 - the first sentence is a list
    return page(gather(journal, run_id, setup, machine=machine, head=head, unredacted=unredacted))
