"""Tools, agents and tables for the tests of tables of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fsm_agent import Agent, Limits, State, table, tool
from fsm_agent.context import Context
from fsm_agent.custom import OwnState, Said
from fsm_agent.examples.compliance import TABLE as COMPLIANT
from fsm_agent.observe import silent_logger
from fsm_agent.rows import Row
from fsm_agent.table import Table
from fsm_agent.testing import ScriptedModel

SMALL = Limits(max_steps=2, no_progress_steps=1, max_nudges=0, max_degradations=0, abort_after=2, token_budget=None)
RUN: Any = {"configurable": {"run_id": "r"}}
CARD = "4111 1111 1111 1111"
ACCEPTED, APPROVED = "VALIDATE --accepted--> EXECUTE", "REVIEW --approved--> EXECUTE"
TO_COMPLIANCE = {
    ACCEPTED: "VALIDATE --accepted--> COMPLIANCE",
    APPROVED: "REVIEW --approved--> COMPLIANCE",
}
LAST = "DECIDE --decided--> PLAN"


def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent to {to}"


@tool(requires_approval=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def agent_on(store: Any, replies: Sequence[Any], tools: Sequence[Any] = (send, pay), **options: Any) -> Agent:
    """An agent as a process of its own would make it."""
    options.setdefault("table", COMPLIANT)
    return Agent(ScriptedModel(list(replies)), tools, store=store, logger=silent_logger(), **options)


def judged(*events: str, says: Callable[[Context], Said] | None = None, name: str = "CHECK") -> OwnState:
    """A state between VALIDATE and EXECUTE that says its first event, or what `says` does."""
    return table.state(name, events=events)(says or (lambda ctx: events[0]))


def placed(state: OwnState, *rows: Row | str, **more: Any) -> Table:
    """The table with that state in the place where calls are let through."""
    instead = {ACCEPTED: f"VALIDATE --accepted--> {state.name}", **more.pop("instead", {})}
    return table.extend(states=[state], instead=instead, rows=rows, **more)


def names(path: Sequence[State]) -> str:
    """A path in one text."""
    return " ".join(path)


CHECK = judged("fine", "bad")
FINE, BAD = "CHECK --fine--> EXECUTE", "CHECK --bad--> OBSERVE"
