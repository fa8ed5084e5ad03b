"""The tools and words of the tests of family M."""

from __future__ import annotations

from typing import Any

from fsm_agent import RunResult, tool
from tests.faults.kit import Ledger

FENCE = "```"


def one_field(ledger: Ledger, name: str = "lookup") -> Any:
    """A tool with one required text field."""

    @tool(name)
    def looked_up(q: str) -> str:
        """Look something up."""
        ledger.note(q=q)
        return f"found {q}"

    return looked_up


def repairs_of(result: RunResult) -> set[str]:
    """Every repair that the records name."""
    return {repair for record in result.transitions for repair in record.repairs}


def purge_of(ledger: Ledger) -> Any:
    """A tool whose defaults do the most harm."""

    def purge(scope: str = "all") -> str:
        """Delete files."""
        ledger.note(scope=scope)
        return f"purged {scope}"

    return purge
