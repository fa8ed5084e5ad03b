"""From a context to the prompt that its next model call would send, and what that prompt costs. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fsm_agent.context import Context
from fsm_agent.dialects.base import Prompt, Purpose
from fsm_agent.history import Block, estimate_text, estimate_tokens
from fsm_agent.tools.spec import Tool

__all__ = ["estimate_prompt", "prompt_of", "usable_tokens"]

_REQUEST_TOKENS = 8


def prompt_of(ctx: Context, purpose: Purpose) -> Prompt:
    """What the dialect writes its messages from: the memory's view of the history, and the tools unless an answer is forced."""
    return Prompt(
        system=ctx.system_text,
        blocks=ctx.setup.memory.view(ctx.blocks),
        tools=_offered(ctx) if purpose == "plan" else (),
        purpose=purpose,
        texts=ctx.texts,
        task=ctx.task,
        done=ctx.done,
    )


def estimate_prompt(ctx: Context, purpose: Purpose, view: Sequence[Block] | None = None) -> int:
    """Tokens of that prompt: blocks, system text and tool schemas, scaled by what the server has reported against our estimates.

    `view` is what the memory shows, for a caller that has asked it already.
    """
    shown = ctx.setup.memory.view(ctx.blocks) if view is None else view
    tokens = sum([one.tokens for one in shown]) + _overhead(ctx, purpose)
    if not ctx.setup.dialect.native_tools:
        tokens += estimate_tokens(ctx.setup.dialect.remind(prompt_of(ctx, purpose)))
    return int(tokens * ctx.prompt_factor) + _REQUEST_TOKENS


def usable_tokens(ctx: Context) -> int | None:
    """The token budget of the next prompt and all before it: less a reserve for one answer, until that one is asked for."""
    budget = ctx.limits.token_budget
    return budget if budget is None or ctx.forced else budget - ctx.limits.answer_reserve


def _offered(ctx: Context) -> tuple[Tool, ...]:
    registry = ctx.setup.tools
    key = ("offered", registry.version)
    found: tuple[Tool, ...] | None = ctx.setup.memo.get(key)
    if found is None:
        found = tuple(tool for name in registry.names() if (tool := registry.get(name)) is not None)
        ctx.setup.memo[key] = found
    return found


def _overhead(ctx: Context, purpose: Purpose) -> int:
    """Tokens of the system text and, when tools are offered, of their schemas; the same for every step until the tools change."""
    key = ("overhead", ctx.setup.tools.version, ctx.language, ctx.system, purpose)
    found: int | None = ctx.setup.memo.get(key)
    if found is None:
        tools = _offered(ctx) if purpose == "plan" else ()
        prompt = Prompt(system=ctx.system_text, blocks=(), tools=tools, purpose=purpose, texts=ctx.texts, task=ctx.task)
        written = sum(estimate_text(str(message.content)) for message in ctx.setup.dialect.compose(prompt))
        bound = (
            sum(estimate_text(tool.full_description + json.dumps(tool.parameters())) for tool in tools)
            if ctx.setup.dialect.native_tools
            else 0
        )
        found = ctx.setup.memo[key] = written + bound
    return found
