"""`fsm-agent verify`: explore every behaviour of the loop, and print the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.cli.console import note, put, put_json
from fsm_agent.limits import Limits
from fsm_agent.policy import ToolPolicy
from fsm_agent.profiles import profile as profile_named
from fsm_agent.table import Row
from fsm_agent.tools.registry import Registry
from fsm_agent.verify import MOST, verify

__all__ = ["parts_of", "show_certificate"]


def parts_of(profile: str | None, policy: ToolPolicy | None, *, summaries: bool) -> dict[str, Any]:
    """What `verify` is told of an agent beside its limits and table: what the profile makes of it, where one is named.

    Raises `DefinitionError` for a profile that there is not.
    """
    if profile is None:
        return {"policy": policy, "summaries": summaries}
    chosen = profile_named(profile)
    tools = Registry(chosen.tools(None))
    return {
        "policy": policy,
        "tools": None if policy is None else [name for name in policy.tools if tools.resolve(name)],
        "ladder": chosen.ladder,
        "tool_retries": max((tool.retry or 0 for tool in tools), default=0),
        "defaults": any(tool.default is not None for tool in tools.known()),
        "summaries": summaries or hasattr(chosen.memory, "leaving"),
        "reflections": 0 if chosen.reflect is None else chosen.reflect.most,
    }


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
