"""`fsm-agent verify`: explore every behaviour of the loop, and print the certificate."""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.cli.console import note, put, put_json
from fsm_agent.limits import Limits
from fsm_agent.policy import ToolPolicy
from fsm_agent.table import Row
from fsm_agent.verify import MOST, verify

__all__ = ["show_certificate"]


def show_certificate(
    limits: Limits,
    rows: Sequence[Row],
    *,
    summaries: bool,
    most: int | None,
    policy: ToolPolicy | None,
    as_json: bool,
) -> bool:
    """Print the certificate for these limits, with the policy; True when nothing is wrong.

    Raises `DefinitionError` for limits that allow too much.
    """
    if not as_json:
        note("exploring every behaviour; this takes some seconds")
    found = verify(limits, rows=rows, summaries=summaries, policy=policy, most=most or MOST)
    if as_json:
        put_json(found.to_data())
    else:
        put(str(found))
    return found.ok
