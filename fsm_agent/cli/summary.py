"""What a run came to: for a person at the end of the view, for a program as one document."""

from __future__ import annotations

from typing import Any, Final

from langchain_core.messages import convert_to_openai_messages
from rich.text import Text

from fsm_agent.alphabet import Status
from fsm_agent.effects import Usage
from fsm_agent.observe import event_of
from fsm_agent.records import RESUME, Request, RunResult
from fsm_agent.redact import redact, redact_text
from fsm_agent.visible import safe

__all__ = ["asked_document", "document", "footer", "headline", "newest_results", "tokens_text"]

_STYLES: Final = {
    Status.COMPLETED: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.SUSPENDED: "yellow",
    Status.CANCELLED: "yellow",
}
_RETOLD: Final = 20
_LINE: Final = 200


def tokens_text(total: int, estimated: int, budget: int | None = None) -> str:
    """`1,234 of 100,000 tokens`; with a ~ when some were estimated because the server did not say."""
    of = f" of {budget:,}" if budget is not None else ""
    return f"{'~' if estimated else ''}{total:,}{of} tokens"


def headline(result: RunResult) -> Text:
    """How the run ended and why: `completed (answered): answered after 2 steps`. Of one that waits not how code goes on with it."""
    reason = f" ({result.reason.value})" if result.reason is not None else ""
    detail = result.detail.partition(RESUME)[0]
    return Text.assemble((f"{result.status.value}{reason}", f"bold {_STYLES[result.status]}"), f": {safe(detail)}")


def footer(result: RunResult) -> Text:
    """What the run took, and its id."""
    usage: Usage = result.usage
    parts = [
        _count(result.steps, "step"),
        _count(result.model_calls, "model call"),
        _count(result.tool_calls, "tool call"),
        tokens_text(usage.total, usage.estimated),
        f"{result.elapsed:.1f} s",
    ]
    return Text(safe(f"{', '.join(parts)}\nrun {result.run_id}"), style="dim")


def newest_results(result: RunResult) -> list[Text]:
    """The newest calls that succeeded, each with what it gave, secrets redacted: `calculator(expression='2+3*4') -> 14`."""
    lines = []
    for call, one in zip(result.calls, result.results, strict=False):
        arguments = ", ".join(f"{name}={value!r}" for name, value in redact(dict(call.arguments)).items())
        line = safe(f"{call.tool}({arguments}) -> {' '.join(redact_text(one.text).split())}")
        lines.append(Text(line if len(line) <= _LINE else f"{line[:_LINE]} ..."))
    hidden = len(lines) - _RETOLD
    return [Text(f"... {hidden} earlier calls", style="dim"), *lines[hidden:]] if hidden > 0 else lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def asked_document(one: Request) -> dict[str, Any]:
    """A call that waits for a person."""
    return {
        "id": one.call_id,
        "tool": one.tool,
        "arguments": dict(one.arguments),
        "why": one.why,
        "digest": one.digest,
        "expires_at": one.expires_at,
    }


def document(result: RunResult, *, model: str, exit_code: int) -> dict[str, Any]:
    """The result as plain JSON values. Transitions have the keys of the log event; messages are OpenAI's."""
    return {
        "run_id": result.run_id,
        "status": result.status.value,
        "reason": result.reason.value if result.reason is not None else None,
        "detail": result.detail,
        "answer": result.answer,
        "exit_code": exit_code,
        "model": model,
        "steps": result.steps,
        "model_calls": result.model_calls,
        "tool_calls": result.tool_calls,
        "usage": {name: getattr(result.usage, name) for name in ("input", "output", "total", "estimated")},
        "elapsed": round(result.elapsed, 3),
        "calls": [
            {"tool": call.tool, "arguments": dict(call.arguments), "result": one.text}
            for call, one in zip(result.calls, result.results, strict=False)
        ],
        "pending": [asked_document(one) for one in result.requests],
        "transitions": [event_of(record) for record in result.transitions],
        "messages": convert_to_openai_messages(result.messages),
        "trail_head": result.trail_head,
    }
