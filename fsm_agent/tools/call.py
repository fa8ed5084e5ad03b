"""What a running tool may know about its own call, and how it says that trying again is of no use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from fsm_agent.frozen import fast_init

__all__ = ["CallInfo", "ToolRefusal", "calling", "current_call"]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CallInfo:
    """One execution of one tool call. Every field has a neutral default: outside a run a tool sees `CallInfo()`.

    Attributes:
        run_id: Of the run.
        call_id: Of the call.
        attempt: 1 for the first try, 2 for the first retry.
        idempotency_key: The same for every attempt at one call, also after a resume: what to send to a service that deduplicates.
        config: The `RunnableConfig` of the run, handed to a parameter of that type.
        manager: Makes LangChain's callback manager of this call, async or not, for a parameter `run_manager`.
    """

    run_id: str = ""
    call_id: str = ""
    attempt: int = 1
    idempotency_key: str = ""
    config: Mapping[str, Any] | None = None
    manager: Callable[[bool], Any] | None = None


class ToolRefusal(ValueError):
    """A tool will not do this, however often it is asked: the message is for the model, a retry is of no use."""


_CALL: ContextVar[CallInfo] = ContextVar("fsm_agent_call")
_NO_CALL = CallInfo()


def current_call() -> CallInfo:
    """The call being executed in this thread or task; `CallInfo()` outside a run."""
    return _CALL.get(_NO_CALL)


class calling:  # noqa: N801 - reads as the statement that it is part of
    """Make `info` the current call while the block runs (the performer's side of `current_call`)."""

    __slots__ = ("_info", "_token")

    def __init__(self, info: CallInfo) -> None:
        self._info = info
        self._token: Token[CallInfo] | None = None

    def __enter__(self) -> CallInfo:
        self._token = _CALL.set(self._info)
        return self._info

    def __exit__(self, *raised: object) -> None:
        assert self._token is not None, "the block was entered"
        _CALL.reset(self._token)
