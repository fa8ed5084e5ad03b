"""The call in which a model reflects: when it is due, what is sent, and what may be said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from fsm_agent.context import Context
from fsm_agent.dialects.repair import Malformed, parse_arguments, split_thinking
from fsm_agent.effects import CallModel, ModelFailed, Replied
from fsm_agent.memory.summary import transcript
from fsm_agent.offer import offered_tools
from fsm_agent.prompt import estimate_request, usable_tokens, visible_blocks

__all__ = ["Reflection", "read_reflection", "reflection_call", "reflection_due"]

_FIELDS: Final = frozenset({"go_on", "next_tool"})


@dataclass(frozen=True, slots=True)
class Reflection:
    """All that a model may say when it reflects."""

    go_on: bool
    next_tool: str | None = None


def reflection_due(ctx: Context) -> bool:
    """True when the model is to reflect before the next step, and the budget has room for that and for the step."""
    rule = ctx.setup.reflect
    if rule is None or ctx.step == 0 or ctx.step % rule.every or ctx.reflected_at == ctx.step:
        return False
    if ctx.reflections >= rule.most or ctx.forced or ctx.time_left == 0.0:
        return False
    if ctx.failure is not None and ctx.failure.of == "model":
        return False
    usable = usable_tokens(ctx)
    if usable is None:
        return True
    # Without the tools, which may change while the call is under way: what comes of it is read by the same question.
    cost = estimate_request(ctx, _messages(ctx, ())) + int(
        sum([one.tokens for one in visible_blocks(ctx)]) * ctx.prompt_factor
    )
    return ctx.usage.total + cost <= usable


def reflection_call(ctx: Context, timeout: float) -> CallModel:
    """The call: the task, what was done, and the two questions, without tools, under a schema where the server has that."""
    messages = _messages(ctx, offered_tools(ctx))
    return CallModel(
        messages=messages,
        response_format=_format(offered_tools(ctx)),
        purpose="reflect",
        timeout=timeout,
        estimate=estimate_request(ctx, messages),
        temperature=ctx.temperature,
    )


def read_reflection(ctx: Context, outcome: Replied | ModelFailed) -> Reflection | str:
    """What the model said, or why it counts for nothing."""
    if isinstance(outcome, ModelFailed):
        return f"{outcome.error}: {outcome.message}"
    if outcome.unreadable or outcome.truncated or outcome.calls:
        return outcome.unreadable or ("it was cut off before its end" if outcome.truncated else "it called a tool")
    text = split_thinking(outcome.text)[1]
    if not text.strip():
        return "it was empty"
    read = parse_arguments(text)
    return read.detail if isinstance(read, Malformed) else _checked(read.value, offered_tools(ctx))


def _checked(said: Mapping[str, Any], tools: tuple[str, ...]) -> Reflection | str:
    if said.keys() != _FIELDS:
        return (
            f"it must have the fields go_on and next_tool and no others, and has {', '.join(map(str, said)) or 'none'}"
        )
    go_on, name = said["go_on"], said["next_tool"]
    if not isinstance(go_on, bool):
        return "go_on must be true or false"
    if name is not None and name not in tools:
        return f"next_tool must be null or one of {', '.join(tools)}"
    return Reflection(go_on, name)


def _messages(ctx: Context, tools: tuple[str, ...]) -> tuple[AnyMessage, ...]:
    texts = ctx.texts
    asked = texts.reflect_steps.format(
        task=ctx.task, steps=transcript(visible_blocks(ctx)), tools=", ".join(tools) or "-"
    )
    return (SystemMessage(texts.reflect), HumanMessage(asked))


def _format(tools: tuple[str, ...]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"go_on": {"type": "boolean"}, "next_tool": {"enum": [*tools, None]}},
        "required": sorted(_FIELDS),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "reflection", "schema": schema}}
