"""Outcomes in the words of a test: what a model says, what tools give, what a person decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from fsm_agent.alphabet import State
from fsm_agent.context import Context
from fsm_agent.effects import (
    Answered,
    Approve,
    AskHuman,
    CallTools,
    Decision,
    Deny,
    Effect,
    ModelFailed,
    Outcome,
    Replied,
    Result,
    Returned,
    Wait,
    Waited,
)
from fsm_agent.effects import Call as CheckedCall
from fsm_agent.errors import DefinitionError
from fsm_agent.failures import model_failure
from fsm_agent.perform_tools import failed_result, returned_result
from fsm_agent.replies import read_message
from fsm_agent.testing.model import DEFAULT_USAGE
from fsm_agent.testing.ready import from_reply
from fsm_agent.testing.script import as_reply

__all__ = ["outcome_from", "replied", "returned"]


def outcome_from(state: State, ctx: Context, effect: Effect | None, given: Any) -> Outcome | None:
    """The outcome of `effect` that `given` says in short. Raises `DefinitionError` when it cannot be one."""
    if isinstance(given, Outcome):
        return given
    if state is State.PLAN and given is None:
        if effect is not None:
            raise DefinitionError("PLAN asks the model: give what it says, as resolve('a text') or resolve(call(...))")
        return None
    if state is State.PLAN:
        return replied(given, at=ctx.at)
    if isinstance(effect, CallTools):
        return returned(ctx, effect, given)
    if isinstance(effect, AskHuman):
        return _answered(ctx, effect, given)
    if state is State.VALIDATE and ctx.reply is None and not ctx.pending:
        raise DefinitionError("VALIDATE reads a reply: give it to at(State.VALIDATE, reply=...)")
    if given is not None:
        raise DefinitionError(f"{state} asks for nothing that could come to {given!r}: resolve() takes no outcome here")
    return Waited(ctx.at) if isinstance(effect, Wait) else None


def replied(given: Any, *, at: float = 0.0) -> Replied | ModelFailed:
    """What comes of a model call that says `given`: a text, a call, calls, a reply, a message, an exception, or an outcome."""
    if isinstance(given, Replied | ModelFailed):
        return given
    if isinstance(given, Exception) or (isinstance(given, type) and issubclass(given, Exception)):
        error = given() if isinstance(given, type) else given
        return model_failure(error, at=at, wall=0.0, estimate=0)
    if isinstance(given, AIMessage):
        return read_message(given, estimate=0, cap=None, at=at)
    reply = as_reply(given)
    if reply is None:
        raise DefinitionError(
            f"a model cannot say {given!r}: give a text, call(...), a list of calls, reply(...), an AIMessage or an exception"
        )
    message = from_reply(reply, DEFAULT_USAGE, "scripted").deal(1)
    return read_message(message, estimate=0, cap=None, at=at)


def returned(ctx: Context, effect: Any, given: Any) -> Returned:
    """What comes of a batch whose calls give `given`, in order; one value alone is that of every call, None is "ok"."""
    assert isinstance(effect, CallTools), "EXECUTE asks for nothing else"
    values = list(given) if isinstance(given, list | tuple) else [given] * len(effect.calls)
    if len(values) != len(effect.calls):
        names = ", ".join(call.tool for call in effect.calls) or "none"
        raise DefinitionError(
            f"{len(values)} results for {len(effect.calls)} calls to execute ({names}): give one for each"
        )
    results = tuple(_result(ctx, call, effect, value) for call, value in zip(effect.calls, values, strict=True))
    return Returned(results=results, at=ctx.at)


def _result(ctx: Context, call: CheckedCall, effect: CallTools, value: Any) -> Result:
    if isinstance(value, Result):
        return value
    tool = ctx.setup.tools.resolve(call.tool)
    assert tool is not None, "VALIDATE refuses calls of unknown tools"
    if isinstance(value, type) and issubclass(value, Exception):
        value = value()
    if isinstance(value, Exception):
        return failed_result(tool, call, value, language=ctx.language)
    return returned_result(tool, call, "ok" if value is None else value, effect.max_chars, language=ctx.language)


def _answered(ctx: Context, effect: AskHuman, given: Any) -> Answered:
    if isinstance(given, bool):
        given = Approve() if given else Deny()
    if isinstance(given, Mapping):
        return Answered(decisions=dict(given), at=ctx.at)
    if not isinstance(given, Decision):
        raise DefinitionError(
            f"a person cannot decide {given!r}: give Approve(), Edit(args), Deny(reason), Answer(text), True or False"
        )
    return Answered(decisions={call.id: given for call in effect.calls}, at=ctx.at)
