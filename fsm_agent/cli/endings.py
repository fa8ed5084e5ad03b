"""How a command ends: exit codes, and errors as one line."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import typer
from typer.core import TyperGroup

from fsm_agent.alphabet import Status
from fsm_agent.cli.console import err, error_line
from fsm_agent.errors import FsmAgentError, RunError
from fsm_agent.redact import redact_text
from fsm_agent.visible import safe

__all__ = ["EXIT_CODES", "USAGE", "BrokenOff", "Commands", "debugging"]

EXIT_CODES: Final[Mapping[Status, int]] = MappingProxyType(
    {
        Status.COMPLETED: 0,
        Status.FAILED: 1,
        Status.PARTIAL: 3,
        Status.SUSPENDED: 4,
        Status.CANCELLED: 130,
    }
)
USAGE: Final = 2
"""For a wrong option, tool, limit or model: nothing ran."""


class BrokenOff(RunError):
    """An error, such as a store that cannot be written, ended a run that had begun: what `run_id` did until then is done."""

    def __init__(self, run_id: str, error: Exception) -> None:
        super().__init__(f"the run had begun, and was broken off: {error}")
        self.run_id = run_id


def debugging(ctx: Any, value: bool) -> bool:
    """Remember `--debug`, wherever on the command line it stands."""
    if value:
        ctx.find_root().meta[__name__] = True
    return value


class Commands(TyperGroup):
    """A group whose commands end with one line for an error of ours and for Ctrl-C; `--debug` shows the traceback."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the command line; `--help` and `--version` are answered here."""
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            error_line(_said(error))
            raise typer.Exit(EXIT_CODES[Status.FAILED]) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FsmAgentError as error:
            if ctx.find_root().meta.get(__name__):
                sys.stderr.write(safe(traceback.format_exc()))
            error_line(redact_text(str(error)))
            raise typer.Exit(EXIT_CODES[Status.FAILED] if isinstance(error, BrokenOff) else USAGE) from error
        except OSError as error:
            # Whoever read the output may have enough of it, as `head` has: that is no error.
            if error.errno == errno.EPIPE or ctx.find_root().meta.get(__name__):
                raise
            error_line(_said(error))
            raise typer.Exit(EXIT_CODES[Status.FAILED]) from error
        except KeyboardInterrupt as interrupt:
            err().print("cancelled", style="yellow")
            raise typer.Exit(EXIT_CODES[Status.CANCELLED]) from interrupt


def _said(error: OSError) -> str:
    """What the system says, and about which file."""
    if isinstance(error, FileNotFoundError) and error.filename is None:  # as `Path.cwd` raises it, and nothing else
        return "the current directory was removed: go to one that is there"
    where = "" if error.filename is None else f": {error.filename}"
    return redact_text(f"{error.strerror or error}{where}")
