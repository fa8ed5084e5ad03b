"""What a trail says, in lines for a person. Secrets are redacted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fsm_agent.observe import event_of
from fsm_agent.records import Request, Transitioned
from fsm_agent.redact import redact, redact_text
from fsm_agent.trail.story import Called
from fsm_agent.trail.wording import utc_text

__all__ = ["asked_text", "call_line", "call_text", "result_text", "transition_line"]

_LINE: Final = 200


def transition_line(record: Transitioned, *, brief: bool = False) -> str:
    """`  7 DECIDE --decided--> DEGRADE [steps_spent=yes (steps=5, max_steps=5), ...]`, every guard that was asked.

    `brief` gives the values only of those that held.
    """
    guards = []
    for asked in event_of(record)["guards"]:
        values = ", ".join(f"{name}={value}" for name, value in asked.items() if name not in ("name", "result"))
        values = values if asked["result"] or not brief else ""
        guards.append(f"{asked['name']}={'yes' if asked['result'] else 'no'}{f' ({values})' if values else ''}")
    said = f" [{', '.join(guards)}]" if guards else ""
    wrong = f"  {' '.join(redact_text(record.error).split())}" if record.error else ""
    return f"{record.seq:>4} {record.source} --{record.event}--> {record.target}{said}{wrong}"


def call_text(tool: str, arguments: Mapping[str, Any], *, unredacted: bool = False) -> str:
    """`send(to='Ana')`."""
    shown = arguments if unredacted else redact(dict(arguments))
    return _cut(f"{tool}({', '.join(f'{name}={value!r}' for name, value in shown.items())})")


def result_text(call: Called, *, unredacted: bool = False) -> str:
    """What a call gave, on one line; "" when nothing is known."""
    if call.result is None:
        return ""
    text = str(call.result["text"])
    return _cut(" ".join((text if unredacted else redact_text(text)).split()))


def call_line(call: Called, unknown: str, *, unredacted: bool = False) -> str:
    """A call with what it gave; `unknown` says what is to be said without a result."""
    shown = call_text(call.tool, call.arguments, unredacted=unredacted)
    if call.result is None:
        return f"{shown}  {unknown}"
    gave, failed = result_text(call, unredacted=unredacted), f"{call.tool} failed: "
    return f"{shown} -> {gave if call.result['ok'] else f'failed: {gave.removeprefix(failed)}'}"


def asked_text(one: Request, *, unredacted: bool = False) -> str:
    """A call that waits for a person: id, tool and arguments, why, what a decision is bound to, and until when."""
    arguments = dict(one.arguments)
    shown = json.dumps(arguments if unredacted else redact(arguments), ensure_ascii=False, default=str)
    why = "a crash left open whether it ran" if one.why == "in_doubt" else "it needs approval"
    return (
        f"{one.call_id}  {one.tool} {shown}\n    why: {why} ({one.why}); digest {one.digest[:16]}; "
        f"expires: {utc_text(one.expires_at)}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]} ..."
