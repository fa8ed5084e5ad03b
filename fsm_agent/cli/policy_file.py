"""A tool policy from a file."""

from __future__ import annotations

import json
from pathlib import Path

from fsm_agent.errors import PolicyError
from fsm_agent.policy import ToolPolicy

__all__ = ["policy_from"]


def policy_from(file: Path | None) -> ToolPolicy | None:
    """The policy in `file`; None for no file. Raises `PolicyError`, naming the file, for what cannot be read or is no policy."""
    if file is None:
        return None
    try:
        return ToolPolicy.of(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise PolicyError(f"--policy {str(file)!r} cannot be read: {error.strerror or error}") from error
    except (PolicyError, ValueError, RecursionError) as error:
        raise PolicyError(f"--policy {str(file)!r}: {error}") from error
