"""What stands behind a `ScriptedModel`: the script, the clock, and the record of what was asked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from fsm_agent.clock import Clock
from fsm_agent.errors import ScriptError
from fsm_agent.testing.ready import Ready, from_message, from_reply
from fsm_agent.testing.script import Delay, Forever, Script, as_reply, is_error, is_script

__all__ = ["ModelRequest", "Stage"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request as the model saw it.

    Its number (from 1), the messages, the bound tools in OpenAI's format, everything else that was bound or passed, and
    whether it was asked to stream.
    """

    number: int
    messages: tuple[BaseMessage, ...]
    tools: tuple[Mapping[str, Any], ...]
    kwargs: Mapping[str, Any]
    stream: bool

    @property
    def text(self) -> str:
        """The text of all messages, one a line."""
        return "\n".join(message.text for message in self.messages)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the bound tools, in order."""
        return tuple(tool["function"]["name"] for tool in self.tools)


class Stage:
    """Turns requests into scripted replies. One stage serves every copy of a model, from any thread or task."""

    def __init__(
        self,
        script: Sequence[Any] | Callable[[ModelRequest], Any] | None,
        *,
        by_task: Mapping[str, Sequence[Any]] | None,
        usage: Mapping[str, Any] | tuple[int, int] | None,
        clock: Clock,
        record: bool,
        model_name: str,
    ) -> None:
        self._usage = usage
        self._clock = clock
        self._record = record
        self._model_name = model_name
        self._asked: list[ModelRequest] = []
        if script is not None and not callable(script) and is_script(script):
            script = [self._prepared(entry) for entry in script]
        if by_task is not None:
            by_task = {key: [self._prepared(entry) for entry in entries] for key, entries in by_task.items()}
        self.script = Script(script, by_task=by_task)

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far, in order of its number."""
        return sorted(self._asked, key=lambda request: request.number)

    def answer(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[int, Ready]:
        """The number of this request and its reply, after the delays it asks for."""
        number, request, entry = self._take(messages, stop, kwargs, stream=stream)
        while not isinstance(entry, Ready):
            entry = self._settled(request, entry)
            if isinstance(entry, Delay):
                self._clock.sleep(entry.seconds)
                entry = entry.item
            elif inspect.isawaitable(entry):
                if inspect.iscoroutine(entry):
                    entry.close()
                raise ScriptError("a coroutine function in a script needs ainvoke or astream")
        return number, entry

    async def aanswer(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[int, Ready]:
        """The number of this request and its reply, after the delays and coroutines it asks for."""
        number, request, entry = self._take(messages, stop, kwargs, stream=stream)
        while not isinstance(entry, Ready):
            entry = self._settled(request, entry)
            if isinstance(entry, Delay):
                await self._clock.asleep(entry.seconds)
                entry = entry.item
            elif inspect.isawaitable(entry):
                entry = await entry
        return number, entry

    def _take(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[int, Callable[[], ModelRequest], Any]:
        number = 0

        def request() -> ModelRequest:
            rest = {key: value for key, value in kwargs.items() if key != "tools"}
            if stop is not None:
                rest["stop"] = stop
            tools = tuple(kwargs.get("tools") or ())
            return ModelRequest(number, tuple(messages), tools, MappingProxyType(rest), stream)

        number, entry, fault = self.script.take(lambda: request().text)
        if self._record:
            self._asked.append(request())
        if fault:
            raise ScriptError(f"{fault}. The request ends with: {request().text[-200:]!r}")
        return number, request, entry

    def _settled(self, request: Callable[[], ModelRequest], entry: Any) -> Ready | Delay | Awaitable[Any]:
        """The entry as a reply, or as what has to be waited for first. Raises what the script says to raise."""
        while not isinstance(entry, Ready | Delay) and not inspect.isawaitable(entry):
            if is_error(entry):
                raise entry
            # LangChain's text of a message is a str that can be called too.
            told = callable(entry) and not isinstance(entry, str)
            entry = entry(request()) if told else self._prepared(entry)
        return entry

    def _prepared(self, entry: Any) -> Any:
        """Build what does not depend on the request. Raises `ScriptError` for what cannot be an entry."""
        match entry:
            case Delay(seconds, item):
                return Delay(seconds, self._prepared(item))
            case Forever(item):
                return Forever(self._prepared(item))
            case AIMessage():
                return from_message(entry, self._model_name)
        reply = as_reply(entry)
        if reply is not None:
            return from_reply(reply, self._usage, self._model_name)
        if callable(entry) or isinstance(entry, BaseException | Ready):
            return entry
        raise ScriptError(
            f"{entry!r} cannot be an entry of a script: give a str, call(...), [calls], reply(...), AIMessage, "
            "exception, Delay, forever(...) or a function of the request"
        )
