"""One structlog event for each transition. The only importer of structlog; the host's configuration is used and never touched."""

from __future__ import annotations

import math
import sys
from types import NoneType
from typing import Any, Protocol, TextIO

from fsm_agent.machine import Evaluated
from fsm_agent.records import Transitioned
from fsm_agent.redact import redact_text
from fsm_agent.tools.plain import plain
from fsm_agent.tools.results import cut

__all__ = [
    "EVENT_NAME",
    "Logger",
    "Observer",
    "SilentLogger",
    "StructlogObserver",
    "event_of",
    "json_logger",
    "silent_logger",
]

EVENT_NAME = "fsm.transition"
_AS_THEY_ARE = frozenset({int, bool, NoneType})
_VALUE_CHARS = 200
_READ_CHARS = 20_000


class Observer(Protocol):
    """Whoever is told of each transition."""

    def __call__(self, record: Transitioned, /) -> None:
        """Take `record`. What this raises never reaches the run."""


class Logger(Protocol):
    """The part of a structlog logger that is used."""

    def info(self, event: str, /, **fields: Any) -> Any:
        """Log `event` with `fields`."""


def event_of(record: Transitioned) -> dict[str, Any]:
    """The keys of the log event for `record`: plain JSON-like values, secrets redacted, no prompt and no tool argument among them."""
    fields: dict[str, Any] = {
        "run_id": record.run_id,
        "seq": record.seq,
        "source": record.source._value_,
        "fsm_event": record.event._value_,
        "target": record.target._value_,
        "guards": [_asked(one) for one in record.guards],
        "step": record.step,
        "tokens": record.tokens,
        "estimated_tokens": record.estimated_tokens,
        "model_calls": record.model_calls,
        "tool_calls": record.tool_calls,
        "failures": record.failures,
        "tool": ",".join(record.tools),
        "signature": ",".join(record.signatures),
        "elapsed_ms": round(record.elapsed_ms, 3),
        "reason": None if record.reason is None else record.reason._value_,
    }
    if record.repairs:
        fields["repairs"] = [_repair_name(repair) for repair in record.repairs]
    if record.error:
        fields["error"] = redact_text(record.error)
    return fields


def _asked(guard: Evaluated) -> dict[str, Any]:
    """A guard with the values it compared: numbers as they are, anything else as short redacted text."""
    name, result, values = guard
    asked: dict[str, Any] = {"name": name, "result": result, **values}
    for key, value in values.items():
        if type(value) not in _AS_THEY_ARE and value != "":
            asked[key] = _shown(value)
    if "name" in values or "result" in values:
        asked["name"], asked["result"] = name, result
    return asked


def _repair_name(repair: str) -> str:
    """A repair without the value that it changed: "amount: coerced" for a coercion, whose text names the argument's value."""
    name, read, _ = repair.partition(" read as ")
    return redact_text(cut(f"{name.partition(':')[0]}: coerced" if read else name, _VALUE_CHARS))


def _shown(value: object) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return value
    return cut(redact_text(str(plain(value))[:_READ_CHARS]), _VALUE_CHARS)


def json_logger(stream: TextIO) -> Logger:
    """A structlog logger that writes one JSON object a line to `stream`, apart from the host's configuration."""
    import structlog  # noqa: PLC0415 - it brings rich, a tenth of the import of an agent, and is used when a run begins

    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.JSONRenderer(default=str),
    ]
    logger: Logger = structlog.wrap_logger(structlog.WriteLogger(stream), processors=processors)
    return logger


class SilentLogger:
    """A logger that logs nothing, for whoever shows the transitions in another way."""

    def info(self, event: str, /, **fields: Any) -> None:
        """Do nothing."""


def silent_logger() -> Logger:
    """A `SilentLogger`."""
    return SilentLogger()


def _host_logger() -> Any:
    """The host's structlog. Where it is not configured, standard error, apart from the answer: as structlog prints, or JSON off a terminal.

    What structlog prints by default is coloured by whether standard *output* is a terminal, and made for people to read.
    """
    import structlog  # noqa: PLC0415 - as above

    if structlog.is_configured():
        config = structlog.get_config()
        wrapper = config["wrapper_class"]
        if isinstance(wrapper, type) and issubclass(wrapper, structlog.stdlib.AsyncBoundLogger):
            # Its methods log nothing unless they are awaited, and it is made in a coroutine only: take what it wraps.
            return structlog.wrap_logger(
                config["logger_factory"]("fsm_agent"), wrapper_class=structlog.stdlib.BoundLogger
            )
        return structlog.get_logger("fsm_agent")
    if sys.stderr is None:  # a program without a console
        return silent_logger()
    if getattr(sys.stderr, "isatty", bool)():  # what a host puts in its place may write only
        return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    return json_logger(sys.stderr)


class StructlogObserver:
    """Logs every transition at `info` as `fsm.transition`. A logger that fails is ignored: a run never ends because its log did."""

    def __init__(self, logger: Logger | None = None) -> None:
        self._logger: Any = logger
        self._bound: Any = None

    def __call__(self, record: Transitioned) -> None:
        """Log `record`. The host's configuration is read anew at the start of each run."""
        try:
            if self._bound is None or record.seq == 1:
                logger = _host_logger() if self._logger is None else self._logger
                bind = getattr(logger, "bind", None)
                self._bound = logger if bind is None else bind()
            self._bound.info(EVENT_NAME, **event_of(record))
        except Exception:  # noqa: BLE001 - whatever a logger raises, the run goes on
            return
