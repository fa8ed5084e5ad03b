"""`Verifiable`: what an agent gets its `verify` from."""

from __future__ import annotations

from typing import Any

from fsm_agent.context import Setup
from fsm_agent.machine import Machine
from fsm_agent.verify import MOST, Certificate, verify

__all__ = ["Verifiable", "parts_of"]


class Verifiable:
    """Something that runs the table with a setup."""

    setup: Setup
    machine: Machine

    def verify(self, *, most: int = MOST) -> Certificate:
        """Explore every behaviour of model, tools, people and clock under these limits: does every run end, and what can it come to?

        The certificate prints what was proved and the worst case, and is true when nothing is wrong. Seconds, not minutes, for ordinary
        limits; raises `fsm_agent.errors.DefinitionError` for those that allow more than `most` configurations.
        """
        return verify(self.setup.limits, rows=self.machine.table, most=most, **parts_of(self.setup))


def parts_of(setup: Setup) -> dict[str, Any]:
    """What `verify` is told of an agent with this setup, beside its limits and table."""
    return {
        "ladder": setup.ladder,
        "tool_retries": max((tool.retry or 0 for tool in setup.tools), default=0),
        "summaries": hasattr(setup.memory, "leaving"),
        "simpler": bool(setup.simpler),
        "defaults": any(tool.default is not None for tool in setup.tools.known()),
        "policy": setup.policy,
        "tools": None if setup.policy is None else [one for one in setup.policy.tools if setup.tools.resolve(one)],
        "reflections": 0 if setup.reflect is None else setup.reflect.most,
    }
