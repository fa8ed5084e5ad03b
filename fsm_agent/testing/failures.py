"""Exceptions as a model's client or a tool would raise them, made from what was seen of them."""

from __future__ import annotations

import builtins
from types import SimpleNamespace
from typing import Any

from fsm_agent.tools.call import ToolRefusal

__all__ = ["model_error", "tool_error"]


def model_error(
    name: str,
    message: str = "",
    *,
    status: int | None = None,
    retry_after: float | None = None,
    code: str | None = None,
) -> Exception:
    """An exception as a client of a model raises it: `model_error("RateLimitError", "slow down", status=429, retry_after=2.0)`.

    `status` is the HTTP status of the response, None when there was none (the connection broke); `retry_after` the seconds that its
    header asks to wait; `code` the code in its body, such as "insufficient_quota" or "context_length_exceeded".
    """
    added: dict[str, Any] = {} if code is None else {"code": code}
    if status is not None:
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        added |= {"status_code": status, "response": SimpleNamespace(status_code=status, headers=headers)}
    kind: type[Exception] = type(name, (Exception,), added)
    return kind(message)


def tool_error(name: str, message: str = "", *, retryable: bool = True) -> Exception:
    """An exception as a tool raises it, by the name of its class: `tool_error("ConnectionError", "down")`.

    A name that Python or this package does not know is made a class; with `retryable=False` one that is taken for a bug of the tool, which
    trying again does not mend.
    """
    known = ToolRefusal if name == "ToolRefusal" else getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        return known(message)
    kind: type[Exception] = type(name, (Exception if retryable else AssertionError,), {})
    return kind(message)
