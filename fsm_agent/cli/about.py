"""Which versions are at work."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

from fsm_agent.cli.console import put

__all__ = ["show_versions"]

_PACKAGES: Final = ("fsm-agent", "langchain-core", "langchain-openai", "transitions")


def show_versions() -> None:
    """One line a package, and Python's own."""
    put("\n".join([*(f"{name} {_version_of(name)}" for name in _PACKAGES), f"Python {platform.python_version()}"]))


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(from its source, not installed)"
