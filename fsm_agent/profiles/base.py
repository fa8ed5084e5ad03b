"""What a profile is, and how what somebody gives goes on top of it. Only data and pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fsm_agent.errors import DefinitionError
from fsm_agent.language import Language
from fsm_agent.limits import Limits
from fsm_agent.memory.views import Memory, Window
from fsm_agent.reflection import Reflect
from fsm_agent.temperature import Temperature
from fsm_agent.tools.spec import Tool

if TYPE_CHECKING:
    from fsm_agent.dialects.base import Dialect
    from fsm_agent.memory.conversations import Conversations

__all__ = ["Example", "Profile", "frozen_mapping"]

Tools = Callable[[Path | None], Sequence[Tool]]
"""Makes the tools of a profile, for the directory that they may work in; None for the one that they have without it."""


def frozen_mapping(**values: Any) -> Mapping[str, Any]:
    """A mapping that nobody changes."""
    return MappingProxyType(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A task for a profile, and what is right: what the answer must hold, and what must stand in files below the directory.

    Numbers are compared as numbers, words without regard to case. `tools` are those of the profile unless others are named.
    """

    tasks: Mapping[Language, str]
    answer: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    tools: Tools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An agent by name: what it is made of where nobody says otherwise.

    `limits` are those that the profile sets. `dialect` None is the one that fits the model, `ladder` None the usual one. `temperature` is
    what the model is asked with, None its own; `max_tokens` the most that a reply may have, where the model does not say. `reflect` has it
    asked now and then whether to go on. `conversations` makes the store of threads, None for this process's memory. `tools` makes the
    profile's own tools; `folder` says what they do with a directory, "" for nothing, and `works_here` that they work in the current one
    when none is given. `cut_marker` stands behind a result that was cut, None for its original size.
    """

    name: str
    about: str
    tools: Tools
    example: Example
    limits: Mapping[str, Any] = field(default_factory=dict)
    dialect: str | Dialect | None = None
    memory: Memory = field(default_factory=Window)
    ladder: tuple[str, ...] | None = None
    system: str | None = None
    temperature: Temperature = None
    max_tokens: int | None = None
    reflect: Reflect | None = None
    conversations: Callable[[], Conversations] | None = None
    folder: str = ""
    works_here: bool = False
    cut_marker: str | None = None

    def limits_with(self, given: Limits | Mapping[str, Any] | None = None) -> Limits:
        """The limits: `given` (of a `Limits` what was set in it), else the environment, else the profile's, else the defaults.

        Raises `DefinitionError` for a limit that does not exist or is out of range.
        """
        if given is not None and not isinstance(given, Limits | Mapping):
            raise DefinitionError(f"limits={given!r} are none: write Limits(max_steps=5), or {{'max_steps': 5}}")
        said = given.model_dump(exclude_unset=True) if isinstance(given, Limits) else dict(given or {})
        return Limits.from_env(None, self.limits, **said)

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of `Agent` but model and tools: the profile's, with those of `given` that are not None in their place."""
        own: dict[str, Any] = {
            "dialect": self.dialect,
            "memory": self.memory,
            "ladder": self.ladder,
            "system": self.system,
            "temperature": self.temperature,
            "reflect": self.reflect,
            "name": self.name,
            "cut_marker": self.cut_marker,
        }
        if self.conversations is not None and given.get("conversations") is None and not _keeps_threads(given):
            own["conversations"] = self.conversations()
        said = {name: value for name, value in given.items() if value is not None}
        return {**own, **said, "limits": self.limits_with(given.get("limits"))}


def _keeps_threads(given: Mapping[str, Any]) -> bool:
    """Whether `store` is one of conversations itself (a store of trails has no `open`)."""
    store = given.get("store")
    return callable(getattr(store, "open", None)) and callable(getattr(store, "close", None))
