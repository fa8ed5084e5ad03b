"""What a trail says of people, moments and messages, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from langchain_core.messages import AnyMessage

from fsm_agent.alphabet import TERMINAL, State
from fsm_agent.memory.rebuilt import result_messages
from fsm_agent.memory.views import unsummarised
from fsm_agent.redact import redact_text
from fsm_agent.rounds import answer_message, closed_history
from fsm_agent.trail.entries import Entry
from fsm_agent.trail.fold import Folded

__all__ = ["human_actions", "human_entry", "turn_messages", "utc_text"]

_DECIDING: Final = ("resumed", "decided")
_DECISIONS: Final = {"approve": "approved", "edit": "edited", "deny": "denied", "answer": "answered"}


def utc_text(time: float | None) -> str:
    """Seconds since the epoch as a date and time of day, in UTC."""
    return "never" if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def human_entry(entry: Entry, *, unredacted: bool = False) -> str:
    """What a person did, or was asked; "" for the entries that are not about that."""
    body = entry.body
    match entry.kind:
        case "decided":
            decision = body["decision"]
            extra = str(decision.get("reason") or decision.get("text") or "")
            extra = extra if unredacted else redact_text(extra)
            return f"{_DECISIONS.get(decision['kind'], decision['kind'])} {body['call_id']}{_by(body)}{f': {extra}' if extra else ''}"
        case "resumed":
            return f"resumed{_by(body)}"
        case "paused":
            return f"paused before {body['state']}"
        case "changed" if "tools" in body:
            return f"tools: {', '.join(one['name'] for one in body['tools'] if not one['hidden']) or 'none'}"
        case "changed":
            limits = ", ".join(f"{name}={value}" for name, value in body["limits"].items())
            parts = [limits, *(f"arguments of {call_id}" for call_id in body["arguments"])]
            if body["memory"] is not None:
                parts.append(f"memory {body['memory'].get('class', 'another')}")
            return f"changed: {', '.join(part for part in parts if part)}"
        case _:
            return ""


def human_actions(entries: Sequence[Entry], *, unredacted: bool = False) -> dict[int, str]:
    """What people did, by the number of its entry. Whoever took the run up to decide about a call is named with the decision alone."""
    to_decide = {one.seq for one, after in pairwise(entries) if (one.kind, after.kind) == _DECIDING}
    found = {one.seq: human_entry(one, unredacted=unredacted) for one in entries if one.seq not in to_decide}
    return {seq: said for seq, said in found.items() if said}


def _by(body: Mapping[str, Any]) -> str:
    return f" by {body['by']}" if body.get("by") else ""


def turn_messages(folded: Folded) -> tuple[AnyMessage, ...]:
    """The messages of this turn so far, as the result of the run has them: none is left out for a summary."""
    ctx = folded.ctx
    executing = bool(folded.transitions) and folded.transitions[-1].source is State.EXECUTE
    history = closed_history(ctx, executing=executing) if folded.state in TERMINAL else ctx.blocks
    messages = result_messages([one for one in unsummarised(history) if one.turn == ctx.turn], None)
    return (*messages, *([] if folded.answer is None else [answer_message(ctx, folded.answer)]))
