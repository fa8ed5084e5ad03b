"""How a command goes on with a stored run, as its options say. Only data, so that `--help` is quick."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Given", "Going", "Policy", "os_user"]

Policy = Literal["ask", "yes", "no", "defer"]
"""Who decides: a person at the terminal, always the same, or whoever comes later (the run is suspended)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a command line says about the agent that goes on; what it leaves out is as the run began."""

    model: str | None = None
    base_url: str | None = None
    tools: tuple[str, ...] = ()
    files: Path | None = None
    approve: Policy | None = None
    agent: str | None = None
    table: str | None = None

    @property
    def has_code(self) -> bool:
        """True when it says where the agent's own code is."""
        return self.agent is not None or bool(self.tools) or self.files is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """The agent that goes on, who asks for it, and what is shown."""

    given: Given
    by: str
    quiet: bool = False
    as_json: bool = False


def os_user() -> str:
    """Who is logged in; "" where the system does not say."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
