"""Tools called by themselves, without a run."""

from __future__ import annotations

import asyncio
from typing import Any

from fsm_agent.tools import Tool, Valid

__all__ = ["call"]


def call(one: Tool, **arguments: Any) -> Any:
    """Validate and execute, as the engine does."""
    checked = one.validate(arguments)
    assert isinstance(checked, Valid), checked
    if one.func is not None:
        return one.func(**checked.call_with)
    assert one.afunc is not None

    async def run() -> Any:
        return await one.afunc(**checked.call_with)  # type: ignore[misc]  # checked above

    return asyncio.run(run())
