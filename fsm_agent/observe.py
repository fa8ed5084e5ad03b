"""One structlog event for each transition. The only importer of structlog; the host's configuration is used and never touched."""

from __future__ import annotations

from typing import Any, Protocol

import structlog

from fsm_agent.records import Transitioned
from fsm_agent.redact import redact, redact_text

__all__ = ["EVENT_NAME", "Logger", "Observer", "StructlogObserver", "event_of"]

EVENT_NAME = "fsm.transition"


class Observer(Protocol):
    """Whoever is told of each transition."""

    def __call__(self, record: Transitioned) -> None:
        """Take `record`. What this raises never reaches the run."""


class Logger(Protocol):
    """The part of a structlog logger that is used."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log `event` with `fields`."""


def event_of(record: Transitioned) -> dict[str, Any]:
    """The keys of the log event for `record`: plain JSON-like values, secrets redacted, no prompt and no tool argument among them."""
    guards = [{"name": one.guard, "result": one.result, **_values(one.values)} for one in record.guards]
    fields: dict[str, Any] = {
        "run_id": record.run_id,
        "seq": record.seq,
        "source": record.source.value,
        "fsm_event": record.event.value,
        "target": record.target.value,
        "guards": guards,
        "step": record.step,
        "tokens": record.tokens,
        "estimated_tokens": record.estimated_tokens,
        "model_calls": record.model_calls,
        "tool_calls": record.tool_calls,
        "failures": record.failures,
        "tool": ",".join(record.tools),
        "signature": ",".join(record.signatures),
        "elapsed_ms": round(record.elapsed_ms, 3),
        "reason": record.reason.value if record.reason is not None else None,
    }
    if record.repairs:
        fields["repairs"] = list(record.repairs)
    if record.error:
        fields["error"] = redact_text(record.error)
    return fields


def _values(values: Any) -> dict[str, Any]:
    plain = {key: value for key, value in values.items() if key not in ("name", "result")}
    return {key: value if isinstance(value, int | float | bool) or value is None else redact(str(value)) for key, value in plain.items()}


class StructlogObserver:
    """Logs every transition at `info` as `fsm.transition`. A logger that fails is ignored: a run never ends because its log did."""

    def __init__(self, logger: Logger | None = None) -> None:
        self._logger: Logger = structlog.get_logger("fsm_agent") if logger is None else logger

    def __call__(self, record: Transitioned) -> None:
        """Log `record`."""
        try:
            self._logger.info(EVENT_NAME, **event_of(record))
        except Exception:
            return
