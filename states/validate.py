"""VALIDATE: read the reply strictly, and check every call before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fsm_agent.alphabet import Event
from fsm_agent.context import Context, Pending
from fsm_agent.dialects.base import Answer, Calls, Empty, Purpose, Requested, Thought, Unreadable, misplaced
from fsm_agent.dialects.repair import Malformed, parse_arguments, resolve_name, sanitise_name
from fsm_agent.effects import Call, Outcome, Replied
from fsm_agent.history import minted_id
from fsm_agent.offer import offered_tools
from fsm_agent.policy_state import within_policy
from fsm_agent.repeats import is_repeated, times_seen
from fsm_agent.rounds import runnable
from fsm_agent.states.base import Step
from fsm_agent.tools.problems import render, unknown_tool
from fsm_agent.tools.signature import signature
from fsm_agent.tools.spec import Invalid, Tool

EVENTS: Final = frozenset({Event.ANSWERED, Event.ACCEPTED, Event.THOUGHT, Event.REJECTED})
_CALL_LABELS: Final = frozenset({"tool_calls", "function_call", "tool_use"})
"""What a server says of a reply that stopped in order to call."""


def enter(ctx: Context) -> None:
    """Nothing to ask for."""


def resolve(ctx: Context, outcome: Outcome | None) -> Step:
    """Calls that a person edited or the ladder chose are checked like the model's own; otherwise the reply is read."""
    if ctx.pending:
        return _from_pending(ctx)
    assert ctx.reply is not None, "VALIDATE is entered with a reply or with pending calls"
    purpose: Purpose = "answer" if ctx.forced else "plan"
    reading = ctx.setup.dialect.read(ctx.reply, ctx.setup.tools.names(), purpose)
    texts = ctx.texts
    match reading:
        case Answer() if _call_was_lost(ctx, ctx.reply):
            return Step(Event.REJECTED, ctx.change(note=texts.lost_call, note_kind="lost_call"))
        case Answer(text=text, repairs=repairs):
            return Step(Event.ANSWERED, ctx.change(answer=text, repairs=(*ctx.repairs, *repairs)))
        case Thought(repairs=repairs):
            noted = ctx.change(note=texts.thought, note_kind="thought", repairs=(*ctx.repairs, *repairs))
            return Step(Event.THOUGHT, noted)
        case Empty():
            return Step(Event.REJECTED, ctx.change(note=texts.empty_reply, note_kind="empty"))
        case Unreadable(kind="truncated") if ctx.reply.filtered:
            return Step(Event.REJECTED, ctx.change(note=texts.filtered, note_kind="content_filter"))
        case Unreadable(kind="truncated"):
            return Step(Event.REJECTED, ctx.change(note=texts.truncated, note_kind="truncated"))
        case Unreadable(detail=detail, json=json):
            note = texts.malformed.format(detail=detail, fix=texts.not_a_tool_call if json else texts.one_call)
            return Step(Event.REJECTED, ctx.change(note=note, note_kind="malformed"))
        case Calls(calls=requested, repairs=repairs):
            return _from_reply(ctx.change(repairs=(*ctx.repairs, *repairs)) if repairs else ctx, requested)


def _call_was_lost(ctx: Context, reply: Replied) -> bool:
    """True for words that came in the place of a call, by the server's own label.

    A model that has been told, and answers again under that label, has answered: its server labels everything so.
    """
    labelled = ctx.setup.dialect.native_tools and not ctx.forced and reply.finish.lower() in _CALL_LABELS
    if not labelled or reply.calls:
        return False
    told = ctx.history[-1].messages[-1].content if ctx.history and ctx.history[-1].messages else ""
    return told != ctx.texts.lost_call


def _from_reply(ctx: Context, requested: Sequence[Requested]) -> Step:
    if ctx.forced:
        return Step(Event.REJECTED, ctx.change(note=ctx.texts.call_when_forced, note_kind="call_when_forced"))
    ids = _fresh_ids(ctx, requested)
    calls: list[Call] = []
    for call_id, one in zip(ids, requested, strict=True):
        call = within_policy(ctx, _checked(ctx, call_id, one), calls)
        calls.append(_within_batch(ctx, call, calls) if calls else call)
    batch = tuple(calls)
    repairs = [repair for call in batch for repair in call.repairs]
    after = ctx.change(asked=batch, calls=batch, call_ids=ctx.call_ids.union(ids), repairs=(*ctx.repairs, *repairs))
    return Step(_verdict(batch), after)


def _from_pending(ctx: Context) -> Step:
    """Edited calls take the place of the originals; fallback calls are the only ones of this turn through EXECUTE."""
    checked: dict[str, Call] = {}
    answered = {pending.answers for pending in ctx.pending}
    for pending in ctx.pending:
        call = _check_pending(ctx, pending)
        others = ctx.calls if not pending.instead_of else ()
        beside = (*(one for one in others if one.id not in answered and not one.refusal), *checked.values())
        checked[pending.answers] = _within_batch(ctx, within_policy(ctx, call, beside), beside)
    if ctx.pending[0].instead_of:
        calls = tuple(checked.values())
        refused = "; ".join([f"{one.tool} could not stand in: {one.refusal}" for one in calls if one.refusal])
        return Step(_verdict(calls), ctx.change(calls=calls, pending=(), setback=refused))
    calls = tuple(checked.get(call.id, call) for call in ctx.calls)
    after = ctx.change(calls=calls, pending=())
    if ctx.results and not runnable(after):
        # A crash or a person left results of this round, and nothing of it may run now: they are still to be observed.
        return Step(Event.REJECTED, after)
    return Step(_verdict(calls), after)


def _verdict(calls: Sequence[Call]) -> Event:
    usable = any(call.repeated or not call.refusal for call in calls)
    return Event.ACCEPTED if usable else Event.REJECTED


def _check_pending(ctx: Context, pending: Pending) -> Call:
    arguments = parse_arguments(pending.call.arguments)
    requested = Requested(
        pending.answers, pending.call.name, arguments if isinstance(arguments, Malformed) else arguments.value
    )
    # What a person edited may be a fallback, which has no name that a model could call.
    call = _checked(ctx, pending.answers, requested, hidden=bool(pending.instead_of) or pending.approved)
    if not pending.approved:
        return call
    doubt = any(one.doubt for one in ctx.calls if one.id == pending.answers)
    return replace(call, approved=True, doubt=doubt, needs_approval=call.needs_approval or doubt)


def _checked(ctx: Context, call_id: str, requested: Requested, *, hidden: bool = False) -> Call:
    """One call with everything known about it: refused with a reason that the model can act on, or ready to run."""
    tools = ctx.setup.tools
    names = tools.names()
    left = offered_tools(ctx)
    name = requested.name if hidden else resolve_name(requested.name, names)
    tool = None if name is None else tools.resolve(name)
    fault = requested.arguments if isinstance(requested.arguments, Malformed) else None
    if tool is None and (fault is None or fault.kind != "truncated"):
        shown = sanitise_name(requested.name)
        text = unknown_tool(requested.name, left, ctx.language)
        given = {} if isinstance(requested.arguments, Malformed) else dict(requested.arguments)
        return Call(id=call_id, name=shown, tool=shown, arguments=given, refusal=text, refusal_kind="unknown_tool")
    if tool is None or isinstance(requested.arguments, Malformed):
        shown = sanitise_name(requested.name) if tool is None else tool.name
        kind, text = _unreadable(ctx, fault)
        return Call(id=call_id, name=shown, tool=shown, refusal=text, refusal_kind=kind, repairs=requested.repairs)
    known = tool.parameters().get("properties", {})
    lost = [key for key in requested.beside if key in known and key not in requested.arguments]
    if lost:
        kind, text = _unreadable(ctx, misplaced(lost))
        return Call(id=call_id, name=tool.name, tool=tool.name, refusal=text, refusal_kind=kind)
    if not hidden and tool.name not in left:
        text = ctx.texts.withheld.format(tool=tool.name, tools=", ".join(left))
        given = dict(requested.arguments)
        return Call(id=call_id, name=tool.name, tool=tool.name, arguments=given, refusal=text, refusal_kind="withheld")
    repairs = (*requested.repairs, *(() if tool.name == requested.name else ("name_prefix",)))
    valid = tool.validate(requested.arguments)
    if isinstance(valid, Invalid):
        text = render(valid.problems, tool, ctx.language)
        return Call(
            id=call_id,
            name=tool.name,
            tool=tool.name,
            arguments=dict(requested.arguments),
            refusal=text,
            refusal_kind="invalid",
            repairs=repairs,
        )
    return _judged(ctx, tool, call_id, valid.arguments, (*repairs, *valid.coercions))


def _unreadable(ctx: Context, fault: Malformed | None) -> tuple[str, str]:
    """The kind and the text of the refusal of arguments that cannot be read."""
    if fault is None or fault.kind == "truncated":
        filtered = ctx.reply is not None and ctx.reply.filtered
        return "truncated", ctx.texts.filtered_call if filtered else ctx.texts.truncated_call
    return "malformed", ctx.texts.malformed.format(detail=fault.detail, fix=ctx.texts.not_a_tool_call)


def _judged(ctx: Context, tool: Tool, call_id: str, arguments: dict[str, object], repairs: tuple[str, ...]) -> Call:
    """A valid call: did a person refuse it, has it taken effect, is it repeated beyond its threshold, does it need approval?"""
    mark = signature(tool.name, arguments, tool.volatile)
    refusal = kind = ""
    repeated = False
    before = _before(ctx, tool, mark) if tool.once else ""
    if mark in ctx.denied:
        refusal, kind = ctx.texts.denied_before, "denied"
    elif before:
        refusal, kind = before, "duplicate"
    elif not tool.repeatable and is_repeated(ctx, mark):
        repeated, kind = True, "repeated"
        refusal = ctx.texts.repeated.format(tool=tool.name, count=times_seen(ctx, mark))
    return Call(
        id=call_id,
        name=tool.name,
        tool=tool.name,
        arguments=arguments,
        signature=mark,
        refusal=refusal,
        refusal_kind=kind,
        needs_approval=(mark in ctx.guarded and ctx.seq >= ctx.guarded[mark]) or tool.needs_approval(arguments),
        repeated=repeated,
        repairs=repairs,
    )


def _before(ctx: Context, tool: Tool, mark: str) -> str:
    """What the model is told of an earlier call with this signature that took effect in this run, or may have; "" without one."""
    earlier = next((one.result for one in ctx.done if one.call.signature == mark), None)
    if earlier is not None:
        return ctx.texts.done_before.format(tool=tool.name, text=earlier.text)
    told = "" if tool.idempotent else ctx.reported.get(mark, "")
    return ctx.texts.reported_before.format(tool=tool.name, text=told) if told else ""


def _within_batch(ctx: Context, call: Call, earlier: Sequence[Call]) -> Call:
    """The same call twice in one reply is executed once, unless the tool may be repeated."""
    tool = ctx.setup.tools.resolve(call.tool)
    if call.refusal or tool is None or tool.repeatable:
        return call
    if not any(other.signature == call.signature and not other.refusal for other in earlier):
        return call
    return replace(
        call, refusal=ctx.texts.twice_in_reply.format(tool=call.tool), refusal_kind="duplicate", needs_approval=False
    )


def _fresh_ids(ctx: Context, requested: Sequence[Requested]) -> list[str]:
    """The calls' own ids, except that one is replaced that is missing, was used before in this run, or is not one plain word.

    A person reads it in lines of its own, and copies it into a command.
    """
    used: set[str] = set()
    ids = []
    for index, one in enumerate(requested):
        call_id = one.id
        attempt = 0
        while not _is_word(call_id) or call_id in used or call_id in ctx.call_ids:
            call_id = minted_id(f"{ctx.origin}:{ctx.model_calls}:{index}:{attempt}")
            attempt += 1
        used.add(call_id)
        ids.append(call_id)
    return ids


def _is_word(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text and not text.startswith("-")
