"""Which tools the model may call: all that are registered, or those that the ladder has left. Pure."""

from __future__ import annotations

from fsm_agent.context import Context
from fsm_agent.ladder import Rung

__all__ = ["narrowed_tools", "offered_tools"]


def narrowed_tools(ctx: Context) -> tuple[str, ...] | None:
    """The names of the tools that are left, in the order of the registry; None while all are.

    Of the simpler tools, once they are all that is left, those that are registered still. A tool that was withheld is left out, unless
    none would remain.
    """
    simplified = Rung.SIMPLER in ctx.rungs
    if not simplified and not ctx.withheld:
        return None
    names = ctx.setup.tools.names()
    if simplified:
        names = tuple(name for name in names if name in ctx.setup.simpler)
    return tuple(name for name in names if name not in ctx.withheld) or names


def offered_tools(ctx: Context) -> tuple[str, ...]:
    """The names of the tools that the model may call."""
    left = narrowed_tools(ctx)
    return ctx.setup.tools.names() if left is None else left
