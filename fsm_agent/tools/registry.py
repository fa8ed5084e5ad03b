"""The tools of an agent: which exist, which stands in for which, how each has fared. Safe to change while running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.frozen import fast_init
from fsm_agent.tools.plain import plain
from fsm_agent.tools.spec import Tool, as_tool

if TYPE_CHECKING:  # its import takes a second, which a tool made from a function never pays
    from langchain_core.tools import BaseTool

__all__ = ["Registry", "ToolStats"]

_ERROR_CHARS: Final = 500


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStats:
    """How one tool has fared since it was registered. Latencies are seconds."""

    usage_count: int = 0
    failures: int = 0
    last_error: str = ""
    """Of the newest failure; a later success leaves it."""
    last_latency: float = 0.0
    total_latency: float = 0.0


class Registry:
    """Tools by name, in the order of registration.

    Readers never wait: every change builds a new table and puts it in place of the old one, so an iteration sees one
    state of the registry from beginning to end. A `fallback` that is not registered itself is *hidden*: `get` and
    `names` do not know it, so that a model cannot call it; `resolve` does.

    Raises:
        ToolDefinitionError: See `register`.
    """

    def __init__(self, tools: Iterable[Tool | BaseTool | Callable[..., object]] = ()) -> None:
        self._lock = threading.Lock()
        self._shown: Mapping[str, Tool] = MappingProxyType({})
        self._hidden: Mapping[str, Tool] = MappingProxyType({})
        self._removed: frozenset[Tool] = frozenset()
        self._stats: dict[str, ToolStats] = {}
        self._version = 0
        self._frozen: Registry | None = None
        self.register(*tools)

    @property
    def version(self) -> int:
        """Grows with every change of the set of tools."""
        return self._version

    def register(self, *tools: Tool | BaseTool | Callable[..., object]) -> tuple[Tool, ...]:
        """Add tools, all or none; they are returned as the registry holds them.

        Raises:
            ToolDefinitionError: A name is taken, a `fallback` names no registered tool (here or before), or fallbacks
                lead back to where they began.
        """
        added = tuple(as_tool(one) for one in tools)
        with self._lock:
            shown = dict(self._shown)
            for one in added:
                if one.name in shown:
                    raise ToolDefinitionError(
                        f'a tool named "{one.name}" is registered already; unregister it first, or choose another name',
                        tool=one.name,
                    )
                shown[one.name] = one
            removed = self._removed - set(added)
            hidden = _hidden_fallbacks(shown, removed)
            _check_fallbacks(added, shown, hidden)
            for one in added:
                self._stats[one.name] = ToolStats()
            self._removed = removed
            if added:
                self._put(shown, hidden)
        return added

    def unregister(self, name: str) -> Tool:
        """Take a tool away, as a fallback of others too. Calls of it that are running go on.

        Raises:
            ToolDefinitionError: There is no tool of that name.
        """
        with self._lock:
            shown = dict(self._shown)
            if name not in shown:
                raise ToolDefinitionError(f'there is no tool named "{name}"; tools: {", ".join(shown)}', tool=name)
            removed = shown.pop(name)
            self._removed |= {removed}
            self._put(shown, _hidden_fallbacks(shown, self._removed))
        return removed

    def _put(self, shown: dict[str, Tool], hidden: dict[str, Tool]) -> None:
        self._shown, self._hidden = MappingProxyType(shown), MappingProxyType(hidden)
        self._version += 1
        self._frozen = None

    def snapshot(self) -> Registry:
        """The tools as they are now, in a registry of their own that does not change with this one. The same one until they change."""
        with self._lock:
            if self._frozen is None:
                self._frozen = copy = Registry()
                copy._shown, copy._hidden, copy._removed = self._shown, self._hidden, self._removed
                copy._version, copy._frozen = self._version, copy
            return self._frozen

    def get(self, name: str) -> Tool | None:
        """The tool that a model may call by this name."""
        return self._shown.get(name)

    def resolve(self, name: str) -> Tool | None:
        """The tool of this name, also one that is only a fallback."""
        return self._shown.get(name) or self._hidden.get(name)

    def fallback_of(self, name: str) -> Tool | None:
        """What stands in for the tool `name` when it keeps failing."""
        one = self.resolve(name)
        if one is None or one.fallback is None:
            return None
        return self.resolve(one.fallback if isinstance(one.fallback, str) else one.fallback.name)

    def names(self) -> tuple[str, ...]:
        """The names of the tools shown to the model, in the order of registration."""
        return tuple(self._shown)

    def known(self) -> tuple[Tool, ...]:
        """All tools, those that are only fallbacks too."""
        return (*self._shown.values(), *self._hidden.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._shown.values()))

    def __len__(self) -> int:
        return len(self._shown)

    def __contains__(self, name: object) -> bool:
        return name in self._shown

    def stats(self, name: str) -> ToolStats:
        """How the tool has fared; zeros for one that has not run. Kept after `unregister`, until the name is reused."""
        return self._stats.get(name, ToolStats())

    def record(self, name: str, ok: bool, error: str = "", seconds: float = 0.0) -> ToolStats:
        """Count one execution of a tool, hidden ones and ones unregistered meanwhile too."""
        with self._lock:
            before = self._stats.get(name, ToolStats())
            after = ToolStats(
                usage_count=before.usage_count + 1,
                failures=before.failures + (not ok),
                last_error=before.last_error if ok else str(plain(error))[:_ERROR_CHARS],
                last_latency=seconds,
                total_latency=before.total_latency + seconds,
            )
            self._stats[name] = after
        return after


def _hidden_fallbacks(shown: Mapping[str, Tool], removed: frozenset[Tool]) -> dict[str, Tool]:
    """Fallbacks given as tools, at every depth, that are neither registered themselves nor taken away."""
    hidden: dict[str, Tool] = {}
    waiting = list(shown.values())
    while waiting:
        backup = waiting.pop().fallback
        if not isinstance(backup, Tool) or backup in removed or backup in (*shown.values(), *hidden.values()):
            continue
        if backup.name in shown or backup.name in hidden:
            raise ToolDefinitionError(
                f'two different tools are named "{backup.name}", one of them as a fallback; rename one',
                tool=backup.name,
            )
        hidden[backup.name] = backup
        waiting.append(backup)
    return hidden


def _check_fallbacks(added: Iterable[Tool], shown: Mapping[str, Tool], hidden: Mapping[str, Tool]) -> None:
    known = {**shown, **hidden}
    for one in (*added, *hidden.values()):
        if isinstance(one.fallback, str) and one.fallback not in known:
            raise ToolDefinitionError(
                f'the fallback "{one.fallback}" of tool "{one.name}" is not registered; tools: {", ".join(shown)}',
                tool=one.name,
            )
    for start in known:
        path = [start]
        while (backup := known[path[-1]].fallback) is not None:
            name = backup if isinstance(backup, str) else backup.name
            if name not in known:  # its target was unregistered: it has no fallback
                break
            path.append(name)
            if name in path[:-1]:
                raise ToolDefinitionError(f"fallbacks go round in a circle: {' -> '.join(path)}", tool=start)
