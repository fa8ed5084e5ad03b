"""Decisions of people, checked before they count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fsm_agent.effects import Answer, Approve, AskHuman, Call, Decision, Deny, Edit
from fsm_agent.errors import RunError
from fsm_agent.tools.problems import render
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Invalid

__all__ = ["decision_error", "decisions_for"]

_KINDS: Final = "Approve(), Edit(args), Deny(reason) or Answer(text)"
_PARTS: Final[Mapping[type, tuple[tuple[str, type, str], ...]]] = {
    Deny: (("reason", str, "a text, or nothing"), ("stop", bool, "True or False")),
    Answer: (("text", str, "the result as the model is to read it"),),
    Edit: (("args", Mapping, "a mapping of field to value"),),
}


def decisions_for(
    request: AskHuman, decision: Decision | Mapping[str, Decision], tools: Registry
) -> dict[str, Decision]:
    """One decision for each call that is decided about: a single one is for all that `request` asks about, a mapping is by call id.

    Calls left out of a mapping are decided about later. Raises `fsm_agent.errors.RunError` for a call that is not asked about, for a
    mapping without any, for an approval of other arguments, for a decision with a part of another kind, and for edited arguments that do
    not fit the tool.
    """
    calls = {call.id: call for call in request.calls}
    if isinstance(decision, Decision):
        if isinstance(decision, Edit) and len(calls) > 1:
            raise RunError(
                f"{len(calls)} calls wait; say which one is edited: decision={{call_id: {_KINDS}}}, ids: {', '.join(calls)}"
            )
        given: Mapping[str, Decision] = dict.fromkeys(calls, decision)
    elif isinstance(decision, Mapping):
        given = decision
    else:
        raise RunError(
            f"decision is a {type(decision).__name__}; give {_KINDS}, or a mapping of call id to one of them"
        )
    unknown = given.keys() - calls.keys()
    if unknown or (calls and not given):
        wrong = (
            f"nobody asked about {', '.join(sorted(map(str, unknown)))}"
            if unknown
            else f"no decision about {', '.join(sorted(calls))}"
        )
        raise RunError(
            f"{wrong}; the calls that wait are {', '.join(f'{call.id} ({call.tool})' for call in calls.values())}"
        )
    for call_id, one in given.items():
        if not isinstance(one, Decision):
            raise RunError(f"the decision about {call_id} is a {type(one).__name__}; give {_KINDS}")
        wrong = decision_error(one, calls[call_id])
        if wrong:
            raise RunError(wrong)
        if isinstance(one, Edit):
            _check_edit(calls[call_id], one, tools)
    return dict(given)


def decision_error(decision: Decision, call: Call) -> str:
    """What is wrong with a decision about `call`, in a sentence: a part of another kind, or a yes to other arguments. "" for nothing."""
    if isinstance(decision, Approve) and decision.digest not in ("", call.digest):
        return (
            f"the approval is for another call than {call.id} as it waits now (digest {call.digest}); look at it again"
        )
    for name, kind, wanted in _PARTS.get(type(decision), ()):
        part = getattr(decision, name)
        if not isinstance(part, kind):
            return f"{name} of {type(decision).__name__} is a {type(part).__name__}; give {wanted}"
    return ""


def _check_edit(call: Call, edit: Edit, tools: Registry) -> None:
    tool = tools.resolve(call.tool)
    if tool is None:
        raise RunError(f"the tool {call.tool} is not registered any more")
    checked = tool.validate(edit.args)
    if isinstance(checked, Invalid):
        raise RunError(f"the edited arguments do not fit: {render(checked.problems, tool, 'en')}")
