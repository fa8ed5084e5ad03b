"""`ScriptedTool`: a tool that gives what its script says, and remembers how it was called."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from fsm_agent.clock import Clock, SystemClock
from fsm_agent.errors import ScriptError
from fsm_agent.testing.script import UNSET, Delay, Forever, Script, is_error
from fsm_agent.tools.function import function_arguments
from fsm_agent.tools.json_model import json_arguments
from fsm_agent.tools.spec import Tool, as_tool

__all__ = ["ScriptedTool"]

_ANYTHING = {"type": "object", "properties": {}, "additionalProperties": True}


class _Play:
    """The script of a tool, and the calls so far. Shared by every copy of the tool."""

    def __init__(self, results: Sequence[Any] | Forever | Callable[..., Any], clock: Clock) -> None:
        self.script = Script([results] if isinstance(results, Forever) else results, words=("call", "result"))
        self.calls: list[dict[str, Any]] = []
        self._clock = clock
        self._lock = threading.Lock()

    def give(self, **arguments: Any) -> Any:
        """The next result, after the delays it asks for. Raises what it says, and `ScriptError` beyond the end of the script."""
        with self._lock:
            self.calls.append(arguments)
        _, entry, fault = self.script.take(lambda: "")
        if entry is UNSET:
            raise ScriptError(fault)
        while isinstance(entry, Delay) or inspect.isroutine(entry):
            if isinstance(entry, Delay):
                self._clock.sleep(entry.seconds)
                entry = entry.item
            else:
                entry = entry(**arguments)
        if is_error(entry):
            raise entry
        return entry


class ScriptedTool(Tool):
    """A tool whose n-th call gives entry n of `results`, whatever it is called with.

    An entry is the value to return, an exception (instance or class; raised), `Delay(seconds, entry)`, `forever(entry)` as the last one,
    or a function of the arguments (by keyword) whose value is the entry. Instead of a sequence `results` may be one such function, or
    `forever(entry)`.

    The first argument is a name, or the tool or typed function to stand in for: its name, description, arguments and options are taken
    over. For a name, `args` says what the tool takes: annotations by name (`{"city": str}`), a JSON schema of an object, or a pydantic
    model; without it anything is taken. `options` are those of `fsm_agent.tool`. `clock` is what `Delay` sleeps on.

    `calls` are the arguments of each call, in order. Used as a context manager, it raises `ScriptError` at the end when the script is not
    used up, or when the tool was called more often than it says; `assert_used_up` does so at once.
    """

    def __init__(
        self,
        stands_for: str | Tool | Callable[..., Any] | None = None,
        /,
        results: Sequence[Any] | Forever | Callable[..., Any] = (),
        *,
        args: Mapping[str, Any] | type[BaseModel] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        # `dataclasses.replace` makes a copy from the fields alone; it goes on in the same script.
        copied = getattr(options.get("func"), "__self__", None)
        play = copied if isinstance(copied, _Play) else _Play(results, clock or SystemClock())
        if isinstance(stands_for, str):
            options.setdefault("name", stands_for)
            options.setdefault("description", f"{stands_for.replace('_', ' ')}, as a test has it")
            options.setdefault("args_model", _arguments(stands_for, args))
        elif stands_for is not None:
            like = as_tool(stands_for)
            options = {**{field: getattr(like, field) for field in _TAKEN_OVER}, **options}
        super().__init__(**{**options, "func": play.give, "afunc": None})
        object.__setattr__(self, "_play", play)

    _play: _Play

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        """The arguments of each call so far, in order of arrival."""
        return list(self._play.calls)

    @property
    def count(self) -> int:
        """How often it was called."""
        return len(self._play.calls)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` when a result was never asked for, or the tool was called more often than its script says."""
        try:
            self._play.script.assert_exhausted()
        except ScriptError as error:
            raise ScriptError(f"tool {self.name!r}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_used_up()


_TAKEN_OVER = tuple(one.name for one in fields(Tool) if one.name not in ("func", "afunc", "source"))


def _arguments(name: str, args: Mapping[str, Any] | type[BaseModel] | None) -> type[BaseModel]:
    if args is None:
        return json_arguments(_ANYTHING, name)
    if isinstance(args, type):
        return args
    if args.get("type") == "object" and isinstance(args.get("properties", {}), Mapping):
        return json_arguments(args, name)

    def stand_in() -> None:
        """Never called; only its signature is read."""

    kinds = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for one, kind in args.items()]
    stand_in.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined] # read by inspect.signature
    stand_in.__annotations__ = dict(args)
    return function_arguments(stand_in, name, {})[0]
