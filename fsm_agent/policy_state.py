"""Where a run stands in its tool policy, folded from what its calls came to; and what the policy makes of a new call. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fsm_agent.context import Context
from fsm_agent.effects import Call
from fsm_agent.errors import PolicyError
from fsm_agent.offer import offered_tools
from fsm_agent.policy import Position, ToolPolicy
from fsm_agent.tools.registry import Registry

__all__ = ["checked_policy", "next_position", "within_policy"]


def checked_policy(policy: Any, tools: Registry) -> ToolPolicy | None:
    """`policy`, when `tools` has every tool that it names, fallbacks too; else `PolicyError`. Asked at each run: a registry may change."""
    if policy is None:
        return None
    if not isinstance(policy, ToolPolicy):
        raise PolicyError(f"policy={policy!r:.200} is no ToolPolicy: write ToolPolicy(rule, ...)")
    behind = [name for name in policy.tools if name not in tools and tools.resolve(name) is not None]
    policy.check_names([*tools.names(), *behind])
    return policy


def within_policy(ctx: Context, call: Call, beside: Sequence[Call]) -> Call:
    """`call` as it is, or refused by the policy: never executed, nobody is asked about it.

    `beside` are the calls that may run at the same time. A call that a crash left in doubt was let through before it began, and is the same
    call when a person has it run again.
    """
    policy = ctx.setup.policy
    if policy is None or call.doubt or (call.refusal and not call.repeated):
        return call
    running = [one.tool for one in beside if not one.refusal]
    text = policy.refusal(
        ctx.position or policy.start, call.tool, running, names=offered_tools(ctx), language=ctx.language
    )
    if not text:
        return call
    return replace(call, refusal=text, refusal_kind="policy", repeated=False, needs_approval=False)


def next_position(ctx: Context) -> Position:
    """The position after the results that are new in this round.

    A call begins once, however often the engine tries it again. What a person answered in its place counts as a call that succeeded: it
    may have been done by hand. A call in doubt that the person then denied has begun.
    """
    policy = ctx.setup.policy
    if policy is None:
        return ctx.position
    position = ctx.position or policy.start
    asked = {call.id: call.tool for call in ctx.asked}
    came = [(one.call_id, one.tool, one.ok) for one in ctx.fresh if one.executed or one.ok]
    given = {(call_id, tool) for call_id, tool, _ in came}
    came += [(call.id, call.tool, False) for call in ctx.calls if call.doubt and (call.id, call.tool) not in given]
    for call_id, tool, ok in came:
        if ctx.attempt == 1:
            position = policy.began(position, tool)
        if ok:
            position = policy.succeeded(position, tool, asked.get(call_id, tool))
    return position
