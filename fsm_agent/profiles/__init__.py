"""Profiles: agents by name. Each is data (limits, dialect, memory, ladder, tools of its own), never another loop.

A profile is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Final

from fsm_agent.errors import DefinitionError
from fsm_agent.profiles.base import Example, Profile

__all__ = ["NAMES", "Example", "Profile", "profile", "profiles"]

NAMES: Final = ("session", "lightweight", "controlled", "breaker", "native")


def profile(name: str) -> Profile:
    """The profile of that name. Raises `DefinitionError` for any other, listing those that there are."""
    if name not in NAMES:
        raise DefinitionError(f"profile {name!r} does not exist; there are {', '.join(NAMES)}")
    found = importlib.import_module(f"fsm_agent.profiles.{name}").PROFILE
    assert isinstance(found, Profile), "each module has one"
    return found


def profiles() -> tuple[Profile, ...]:
    """All of them, in the order of `NAMES`."""
    return tuple(profile(name) for name in NAMES)
