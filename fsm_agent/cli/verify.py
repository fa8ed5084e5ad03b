"""`fsm-agent verify`: explore every behaviour of the loop, and print the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.cli.console import note, put, put_json
from fsm_agent.context import Setup
from fsm_agent.definition import rungs_of
from fsm_agent.dialects import dialect_for
from fsm_agent.limits import Limits
from fsm_agent.policy import ToolPolicy
from fsm_agent.profiles import profile as profile_named
from fsm_agent.table import Row
from fsm_agent.tools.registry import Registry
from fsm_agent.verify import MOST, verify
from fsm_agent.verify.verifiable import parts_of

__all__ = ["show_certificate", "told_parts"]


def told_parts(limits: Limits, profile: str | None, policy: ToolPolicy | None, *, summaries: bool) -> dict[str, Any]:
    """What `verify` is told of an agent beside its limits and table: of that of the profile, where one is named.

    Raises `DefinitionError` for a profile that there is not.
    """
    if profile is None:
        return {"policy": policy, "summaries": summaries}
    chosen = profile_named(profile)
    setup = Setup(
        limits=limits,
        tools=Registry(chosen.tools(None)),
        dialect=dialect_for(chosen.dialect, ""),
        memory=chosen.memory,
        ladder=rungs_of(chosen.ladder, ()),
        policy=policy,
        reflect=chosen.reflect,
    )
    parts = parts_of(setup)
    return {**parts, "summaries": summaries or parts["summaries"]}


def show_certificate(
    limits: Limits, rows: Sequence[Row], parts: Mapping[str, Any], *, most: int | None, as_json: bool
) -> bool:
    """Print the certificate for these limits, with the `parts` of an agent; True when nothing is wrong.

    Raises `DefinitionError` for limits that allow too much.
    """
    if not as_json:
        note("exploring every behaviour; this takes some seconds")
    found = verify(limits, rows=rows, most=most or MOST, **parts)
    if as_json:
        put_json(found.to_data())
    else:
        put(str(found))
    return found.ok
