"""What a scripted model or server says: replies and calls as values, and the cursor that deals them out.

The same words serve `ScriptedModel` (no network) and `server` (real HTTP): `reply`, `call`, `forever`, `Delay`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, Final, TypeGuard

from fsm_agent.errors import ScriptError

__all__ = [
    "UNSET",
    "Call",
    "Delay",
    "Forever",
    "Reply",
    "Script",
    "Unset",
    "as_reply",
    "call",
    "forever",
    "is_error",
    "is_script",
    "reply",
]


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""Leave it to the default; `None` always means "absent from what the client sees"."""


@dataclass(frozen=True)
class Call:
    """One tool call. `args` as a dict is good JSON; as a str it is sent letter for letter, however broken.

    `id` left alone is fresh every time the call is dealt; a str is kept (also when it repeats); None is no id at all.
    """

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | Unset | None = UNSET

    def __repr__(self) -> str:
        return _as_given(self)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One assistant message. `reply(...)` builds it with less typing.

    `usage`: left alone is the default of the model or server; None is absent; `(input, output)` counts tokens; a
    mapping is passed on unchecked, in LangChain's field names for `ScriptedModel` and in OpenAI's for `server`.
    `finish_reason`: left alone is "tool_calls" with calls and "stop" without; None is absent.
    """

    text: str | Sequence[str | Mapping[str, Any]] | None = ""
    calls: tuple[Call, ...] = ()
    usage: Mapping[str, Any] | tuple[int, int] | Unset | None = UNSET
    finish_reason: str | Unset | None = UNSET
    refusal: str | None = None
    id: str | Unset | None = UNSET

    def __repr__(self) -> str:
        return _as_given(self)

    @property
    def stop_label(self) -> str | None:
        """The finish reason as the client sees it."""
        if self.finish_reason is not UNSET:
            return self.finish_reason
        return "tool_calls" if self.calls else "stop"


def _as_given(entry: Call | Reply) -> str:
    """The entry as an expression, without what was left alone: a failure shows it."""
    said = [
        f"{one.name}={value!r}"
        for one in fields(entry)
        if (value := getattr(entry, one.name))
        != (one.default if one.default_factory is MISSING else one.default_factory())
    ]
    return f"{type(entry).__name__}({', '.join(said)})"


@dataclass(frozen=True)
class Delay:
    """Deal `item` after `seconds` on the clock of the model or server."""

    seconds: float
    item: Any


@dataclass(frozen=True)
class Forever:
    """Deal `item` however often it is asked for, never included; the last entry of a script."""

    item: Any


def call(name: str, /, **args: Any) -> Call:
    """A call of the tool `name` with good arguments: `call("add", a=1, b=2)`. See `Call` for raw text and ids."""
    return Call(name, args)


def reply(
    text: str | Sequence[str | Mapping[str, Any]] | None = "",
    *calls: Call,
    usage: Mapping[str, Any] | tuple[int, int] | Unset | None = UNSET,
    finish_reason: str | Unset | None = UNSET,
    refusal: str | None = None,
    id: str | Unset | None = UNSET,
) -> Reply:
    """A reply with text, calls, or both: `reply("Let me look.", call("find", q="x"), usage=(12, 3))`. See `Reply`."""
    return Reply(text=text, calls=calls, usage=usage, finish_reason=finish_reason, refusal=refusal, id=id)


def forever(item: Any) -> Forever:
    """`item` for this request and every later one."""
    return Forever(item)


def as_reply(item: object) -> Reply | None:
    """The reply that a text, a call or a list of calls stands for; None for what is no reply."""
    match item:
        case Reply():
            return item
        case str():
            return Reply(text=item)
        case Call():
            return Reply(calls=(item,))
        case list() | tuple() if item and all(isinstance(one, Call) for one in item):
            return Reply(calls=tuple(item))
    return None


def is_error(item: object) -> TypeGuard[BaseException | type[BaseException]]:
    """True for what a script raises: an exception, or a class of them."""
    return isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException))


def is_script(source: object) -> bool:
    """True for a sequence of entries; a text, a mapping or a message is one entry, though Python can go through it."""
    return isinstance(source, Sequence | Iterator) and not isinstance(source, str)


class _Cursor:
    """A position in one sequence of entries. Not locked: `Script` is."""

    def __init__(self, items: Sequence[Any]) -> None:
        for index, item in enumerate(items[:-1]):
            if isinstance(item, Forever):
                raise ScriptError(f"entry {index + 1} of {len(items)} is forever(...), so the rest can never be dealt")
        self.items = tuple(items)
        self.position = 0

    def take(self) -> Any:
        """The next entry, or `UNSET` beyond the end."""
        if self.position < len(self.items):
            item = self.items[self.position]
            self.position += 1
            return item.item if isinstance(item, Forever) else item
        last = self.items[-1] if self.items else None
        return last.item if isinstance(last, Forever) else UNSET


class Script:
    """Deals entries to requests, safely from any thread.

    The source is one of:

    - a sequence: entry n answers request n, in order of arrival;
    - a function of the request: its value answers that request, for ever;
    - `by_task`, a mapping from a piece of text to a sequence: a request belongs to the longest key that its text
      holds, and each key's entries are dealt in order. For runs that go on at the same time.

    `words` are what is asked and what is dealt, for messages. Raises `ScriptError` for a source that cannot work.
    """

    def __init__(
        self,
        source: Sequence[Any] | Callable[[Any], Any] | None = None,
        *,
        by_task: Mapping[str, Sequence[Any]] | None = None,
        words: tuple[str, str] = ("request", "reply"),
    ) -> None:
        self._words = words
        if (source is None) == (by_task is None):
            raise ScriptError("give a script or by_task, one of the two")
        if callable(source):
            source = [Forever(source)]
        if source is not None and not is_script(source):
            shown = repr(source) if isinstance(source, str) else f"{type(source).__name__}(...)"
            raise ScriptError(
                f"a script is a sequence of entries; for one entry write a list of it, as in [{shown:.80}]"
            )
        sources: Mapping[str, Sequence[Any]] = by_task if by_task is not None else {"": source or ()}
        self._cursors = {key: _Cursor(tuple(items)) for key, items in sources.items()}
        self._keyed = by_task is not None
        self._lock = threading.Lock()
        self._overrun: list[str] = []
        self.taken = 0

    def take(self, text: Callable[[], str]) -> tuple[int, Any, str]:
        """The number of this request, from 1, its entry, and "" or why there is none. `text` gives what it says."""
        key = self._key(text()) if self._keyed else ""
        with self._lock:
            self.taken += 1
            number = self.taken
            item = self._cursors[key].take() if key is not None else UNSET
            if item is not UNSET:
                return number, item, ""
            if key is None:
                fault = f"{self._words[0]} {number} holds none of the texts that by_task knows: {sorted(self._cursors)}"
            else:
                size = len(self._cursors[key].items)
                whose = f" for {key!r}" if self._keyed else ""
                fault = (
                    f"{self._words[0]} {number} has no {self._words[1]}: the script{whose} has {size}, and all are used"
                )
            self._overrun.append(fault)
            return number, item, fault

    def assert_exhausted(self) -> None:
        """Raise `ScriptError` when an entry was never dealt, or more was asked for than there is."""
        with self._lock:
            faults = list(self._overrun)
            for key, cursor in self._cursors.items():
                left = [item for item in cursor.items[cursor.position :] if not isinstance(item, Forever)]
                if left:
                    whose = f" for {key!r}" if self._keyed else ""
                    faults.append(
                        f"{len(left)} of {len(cursor.items)} entries{whose} were never asked for, "
                        f"the first of them {left[0]!r:.200}"
                    )
        if faults:
            raise ScriptError(f"the script and the {self._words[0]}s differ: " + "; ".join(faults))

    def _key(self, text: str) -> str | None:
        matches = [key for key in self._cursors if key in text]
        return max(matches, key=len, default=None)
