"""The tools and runs of the tests of family C that wait for a person."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from fsm_agent import RunResult, Status, tool
from tests.faults.kit import Ledger, run

RUN: RunnableConfig = {"configurable": {"run_id": "r", "thread_id": "t"}}


def transfer_of(ledger: Ledger, **options: Any) -> Any:
    """A tool that moves money, and therefore asks."""

    @tool("transfer", requires_approval=True, **options)
    def transfer(amount: int, to: str = "bob") -> str:
        """Transfer money."""
        ledger.note(amount=amount, to=to)
        if options.get("retry") is not None:
            raise ConnectionError("bank down")
        return f"transferred {amount} to {to}"

    return transfer


def look_of(ledger: Ledger) -> Any:
    """A tool that needs nobody."""

    def look(q: str) -> str:
        """Look something up."""
        ledger.note(q=q)
        return f"saw {q}"

    return look


def suspended(agent: Any, task: str = "go", config: Any = None) -> RunResult:
    """A run that waits for a person."""
    result = run(agent, task, "invoke", config or RUN)
    assert result.status is Status.SUSPENDED
    assert result.pending is not None
    return result
