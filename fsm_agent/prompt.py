"""From a context to the prompt that its next model call would send, and what that prompt costs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from langchain_core.messages import AnyMessage

from fsm_agent.context import Context
from fsm_agent.dialects.base import Prompt, Purpose
from fsm_agent.effects import CallModel, ModelFailed
from fsm_agent.history import Block, estimate_text, estimate_tokens
from fsm_agent.memory.fit import fit
from fsm_agent.memory.summary import MESSAGE_CHARS, summary_prompt
from fsm_agent.memory.views import is_round
from fsm_agent.offer import narrowed_tools
from fsm_agent.tools.spec import Tool

__all__ = [
    "blocks_to_summarise",
    "estimate_prompt",
    "estimate_request",
    "opening_texts",
    "prompt_of",
    "room_for_summary",
    "schema_texts",
    "smaller_room",
    "summary_call",
    "usable_tokens",
    "visible_blocks",
]

_REQUEST_TOKENS: Final = 4
_MAX_OVERFLOWS: Final = 3
_LEAST_CHARS: Final = 100
_SHARE_TRIED: Final = 0.9
"""Of the room that the server has, by its own numbers; the reply needs some too."""
_SHARE_GUESSED: Final = 0.5
"""Of what was sent, when the server gives no numbers."""


def visible_blocks(ctx: Context) -> tuple[Block, ...]:
    """What the memory shows of the history, cut to the room that the server has, once it has said that it has too little."""
    view = ctx.setup.memory.view(ctx.blocks)
    return view if ctx.room is None else fit(view, ctx.room, ctx.texts.cut_to_fit)


def prompt_of(ctx: Context, purpose: Purpose) -> Prompt:
    """What the dialect writes its messages from: the memory's view of the history, and the tools unless an answer is forced."""
    return Prompt(
        system=ctx.system_text,
        blocks=visible_blocks(ctx),
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
    blocks = visible_blocks(ctx) if view is None else view
    tokens = sum([one.tokens for one in blocks]) + _overhead(ctx, purpose)
    if not ctx.setup.dialect.native_tools:
        tokens += estimate_tokens(ctx.setup.dialect.remind(prompt_of(ctx, purpose)))
    return int(tokens * ctx.prompt_factor) + _REQUEST_TOKENS


def opening_texts(ctx: Context) -> tuple[str, ...]:
    """What the first prompt of a run is made of: system text, tools, and the task."""
    return (ctx.system_text, *schema_texts(_offered(ctx)), ctx.task)


def usable_tokens(ctx: Context) -> int | None:
    """The token budget of the next prompt and all before it: less a reserve for one answer, until that one is asked for."""
    budget = ctx.limits.token_budget
    return budget if budget is None or ctx.forced else budget - ctx.limits.answer_reserve


def blocks_to_summarise(ctx: Context) -> range | None:
    """The blocks that are to be summarised before the next step; None when none are, or when there is no room for the call.

    The memory says what. Not while an answer is forced or a call is tried again, and only within the budget: the summary and the step
    after it must both fit.
    """
    # Not `isinstance`: a protocol's is slow, and this is asked at every step.
    asked: Callable[[Sequence[Block], int], range | None] | None = getattr(ctx.setup.memory, "leaving", None)
    if asked is None or ctx.forced or (ctx.failure is not None and ctx.failure.of == "model"):
        return None
    found = asked(ctx.blocks, ctx.summary_failed_at)
    if found is None or ctx.time_left == 0.0:
        return None
    found = _with_room(ctx, found)
    usable = usable_tokens(ctx)
    if usable is None:
        return found
    # Without the tools, which may change while the call is under way: what comes of it is read by the same question.
    cost = estimate_request(ctx, _summary_messages(ctx, found)) + int(
        sum([one.tokens for one in visible_blocks(ctx)]) * ctx.prompt_factor
    )
    return found if ctx.usage.total + cost <= usable else None


def summary_call(ctx: Context, blocks: range, timeout: float) -> CallModel:
    """The model call that summarises these blocks of the history. It offers no tools, and is no step."""
    messages = _summary_messages(ctx, blocks)
    return CallModel(
        messages=messages,
        purpose="summary",
        timeout=timeout,
        estimate=estimate_request(ctx, messages),
        temperature=ctx.temperature,
    )


def _with_room(ctx: Context, found: range) -> range:
    """As many of these blocks as there is room for, once the server has said that it has too little; one round in any case."""
    least = next((index for index in found if is_round(ctx.blocks[index])), found.start) + 1
    while ctx.room is not None and found.stop > least and _size(ctx, found, MESSAGE_CHARS) > ctx.room:
        found = range(found.start, max(found.start + len(found) // 2, least))
    return found


def _summary_messages(ctx: Context, blocks: range) -> tuple[AnyMessage, ...]:
    """The request for a summary. Where there is too little room even for one round, less of each of its messages is sent."""
    chars = MESSAGE_CHARS
    while ctx.room is not None and chars > _LEAST_CHARS and _size(ctx, blocks, chars) > ctx.room:
        chars //= 2
    return summary_prompt(ctx.blocks, blocks, ctx.task, ctx.texts, chars)


def _size(ctx: Context, blocks: range, chars: int) -> int:
    return estimate_tokens(summary_prompt(ctx.blocks, blocks, ctx.task, ctx.texts, chars))


def estimate_request(ctx: Context, messages: tuple[AnyMessage, ...]) -> int:
    """Tokens of a request of these messages alone, scaled as `estimate_prompt` is."""
    return int(estimate_tokens(messages) * ctx.prompt_factor) + _REQUEST_TOKENS


def smaller_room(ctx: Context, outcome: ModelFailed, purpose: Purpose) -> int | None:
    """The tokens to which the view must be cut after the server has refused it as too large, by its own numbers where it gives them.

    None when a smaller view cannot help, or has been tried often enough.
    """
    if not outcome.overflow or ctx.overflows >= _MAX_OVERFLOWS:
        return None
    view = visible_blocks(ctx)
    now = sum([one.tokens for one in view])
    room = int(now * _SHARE_GUESSED)
    if outcome.context_tokens and outcome.prompt_tokens:
        whole = estimate_prompt(ctx, purpose, view) / ctx.prompt_factor
        share = _SHARE_TRIED * outcome.context_tokens / outcome.prompt_tokens
        room = int(whole * share - (whole - now))
    room = max(room, 1)
    left = fit(view, room, ctx.texts.cut_to_fit)
    return room if sum([one.tokens for one in left]) < now else None


def room_for_summary(ctx: Context, blocks: range, outcome: ModelFailed) -> int | None:
    """The same where the server has refused the request for a summary of these blocks."""
    if not outcome.overflow or ctx.overflows >= _MAX_OVERFLOWS:
        return None
    now, share = estimate_tokens(_summary_messages(ctx, blocks)), _SHARE_GUESSED
    if outcome.context_tokens and outcome.prompt_tokens:
        share = _SHARE_TRIED * outcome.context_tokens / outcome.prompt_tokens
    room = max(int(now * share), 1)
    less = ctx.change(room=room)
    left = blocks_to_summarise(less)
    return room if left is not None and estimate_tokens(_summary_messages(less, left)) < now else None


def _offered(ctx: Context) -> tuple[Tool, ...]:
    registry = ctx.setup.tools
    left = narrowed_tools(ctx)
    key = ("offered", registry.version, left)
    found: tuple[Tool, ...] | None = ctx.setup.memo.get(key)
    if found is None:
        names = registry.names() if left is None else left
        found = tuple(tool for name in names if (tool := registry.get(name)) is not None)
        ctx.setup.memo[key] = found
    return found


def schema_texts(tools: Iterable[Tool]) -> tuple[str, ...]:
    """What a server is told of each tool, as text."""
    return tuple(tool.full_description + json.dumps(tool.parameters()) for tool in tools)


def _overhead(ctx: Context, purpose: Purpose) -> int:
    """Tokens of the system text and, when tools are offered, of their schemas; the same for every step until the tools change."""
    key = ("overhead", ctx.setup.tools.version, narrowed_tools(ctx), ctx.language, purpose)
    found: int | None = ctx.setup.memo.get(key)
    if found is None:
        tools = _offered(ctx) if purpose == "plan" else ()
        prompt = Prompt(
            system=ctx.own_system_text, blocks=(), tools=tools, purpose=purpose, texts=ctx.texts, task=ctx.task
        )
        bound = schema_texts(tools) if ctx.setup.dialect.native_tools else ()
        written = estimate_tokens(ctx.setup.dialect.compose(prompt))
        found = ctx.setup.memo[key] = written + sum(estimate_text(schema) for schema in bound)
    # Not in what is kept: it is another one for each run.
    return found if not ctx.system else found + estimate_text(ctx.system) + 1
