"""A table of one's own that is wrong: refused when it is made, with the row named and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import State, table
from fsm_agent.context import Context
from fsm_agent.custom import Said
from fsm_agent.errors import DefinitionError, TableError
from fsm_agent.rows import Row
from fsm_agent.table import Table
from tests.own_table import BAD, CHECK, FINE, SMALL, judged, placed

UNTYPED: Any = "what a caller without types writes"
NAMED = table.guard("it is so", name="so")(lambda ctx: True)


def says_paced(ctx: Context) -> Said:
    """What a state that only waits says."""
    return "paced"


async def paced_later(ctx: Context) -> Any:
    """What no state can be made of."""
    return "paced"


LATER: Any = paced_later
NUMBER: Any = 3

REFUSED = [
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> NOWHERE"),
        "CHECK --bad--> NOWHERE",
        "unknown state",
        id="unknown target",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "NOWHERE --fine--> PLAN"),
        "NOWHERE --fine--> PLAN",
        "unknown state",
        id="unknown source",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --worse--> OBSERVE"),
        "CHECK --worse--> OBSERVE",
        "unknown event",
        id="unknown event",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --replied--> OBSERVE"),
        "CHECK --replied--> OBSERVE",
        "CHECK never returns replied",
        id="an event that the state never returns",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE),
        "",
        "CHECK can return bad, and the table has no row for it",
        id="an event without a row",
    ),
    pytest.param(lambda: table.extend(states=[CHECK], rows=[FINE, BAD]), FINE, "unreachable", id="unreachable"),
    pytest.param(
        lambda: placed(judged("fine"), "CHECK --fine--> CHECK", instead={}).extend(
            instead={"CHECK --cancelled--> ABORT": [], "CHECK --broke--> ABORT": []}
        ),
        "CHECK --fine--> CHECK",
        "trap",
        id="a trap",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --broke--> CHECK"),
        "CHECK --broke--> CHECK",
        "leads to ABORT and has no guard",
        id="a fault that ends nothing",
    ),
    pytest.param(
        lambda: table.extend(instead={"PLAN --cancelled--> ABORT": "PLAN --cancelled--> PLAN"}),
        "PLAN --cancelled--> PLAN",
        "leads to ABORT and has no guard",
        id="a run that cannot be cancelled",
    ),
    pytest.param(
        lambda: table.extend(
            guards=[NAMED],
            before={"PLAN --broke--> ABORT": "PLAN --broke [so]--> ABORT (so)"},
        ),
        "PLAN --broke [so]--> ABORT",
        "leads to ABORT and has no guard",
        id="a guard where the engine failed",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK --bad [steps_spent]--> PLAN"),
        "CHECK --bad [steps_spent]--> PLAN",
        "shadowed",
        id="shadowed",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad [steps_spent]--> PLAN"),
        "CHECK --bad [steps_spent]--> PLAN",
        "must have no guard",
        id="stuck when no guard holds",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad [surely]--> PLAN", BAD),
        "CHECK --bad [surely]--> PLAN",
        "unknown guard 'surely'",
        id="unknown guard",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> ABORT"),
        "CHECK --bad--> ABORT",
        "must say why",
        id="an ABORT without a reason",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, "CHECK --bad--> ABORT (Sanctioned)"),
        "CHECK --bad--> ABORT",
        "small letters",
        id="a reason in capitals",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, "CHECK bad OBSERVE"),
        "CHECK bad OBSERVE",
        "a row is written",
        id="no row at all",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, before={"PLAN --answered--> FINISH": []}),
        "PLAN --answered--> FINISH",
        "no such row",
        id="before a row that there is not",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, Row(CHECK.name, CHECK.events[1], State.PLAN, (UNTYPED,)), BAD),
        "CHECK --bad--> PLAN",
        "unknown guard",
        id="a guard that is none",
    ),
    pytest.param(
        lambda: placed(
            CHECK,
            FINE,
            Row(CHECK.name, CHECK.events[1], State.PLAN, (NAMED,)),
            Row(CHECK.name, CHECK.events[1], State.PLAN, (replace(NAMED),)),
            BAD,
        ),
        "CHECK --bad [so]--> PLAN",
        "two guards are named 'so'",
        id="two guards of one name",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, guards=[replace(NAMED, name="steps_spent")]),
        "",
        "the name of another one",
        id="the name of a guard of the package",
    ),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, guards=[NAMED, replace(NAMED)]),
        "",
        "the name of another one",
        id="the name of a guard beside it",
    ),
    pytest.param(lambda: placed(CHECK, FINE, NUMBER), "3", "a row is written", id="a number as a row"),
    pytest.param(
        lambda: placed(CHECK, FINE, BAD, guards=[UNTYPED]), "", "a guard is made with", id="a guard as a text"
    ),
    pytest.param(
        lambda: placed(judged("fine", name="plan"), "plan --fine--> EXECUTE"),
        "",
        "the state 'plan' must be written in capitals",
        id="a name in small letters",
    ),
    pytest.param(
        lambda: placed(judged("fine", name="PLAN"), "PLAN --fine--> EXECUTE"),
        "",
        "the name of PLAN",
        id="the name of a state of the package",
    ),
    pytest.param(
        lambda: table.extend(states=[CHECK, CHECK], rows=[FINE, BAD]), "", "the name of CHECK", id="a name twice"
    ),
    pytest.param(
        lambda: placed(judged("fine", name="STATE"), "STATE --fine--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="a state called state",
    ),
    pytest.param(
        lambda: placed(judged("trigger"), "CHECK --trigger--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="an event called trigger",
    ),
    pytest.param(
        lambda: placed(judged("is_plan"), "CHECK --is_plan--> EXECUTE"),
        "",
        "what the transitions library moves",
        id="an event like a method",
    ),
    pytest.param(
        lambda: placed(judged("executed"), "CHECK --executed--> EXECUTE"),
        "",
        "an event of this package",
        id="an event of the package",
    ),
    pytest.param(
        lambda: placed(judged("Fine"), "CHECK --Fine--> EXECUTE"), "", "small letters", id="an event in capitals"
    ),
    pytest.param(lambda: placed(judged("all clear")), "", "one word", id="an event of two words"),
    pytest.param(judged, "", "has no events", id="no events"),
    pytest.param(lambda: table.state("PACE", events=["paced"], wait=-1)(says_paced), "", "wait of PACE", id="no time"),
    pytest.param(lambda: table.state("PACE", events=["paced"])(LATER), "", "not async", id="an async function"),
    pytest.param(lambda: table.extend(states=[UNTYPED]), "", "a state is made with", id="a state as a text"),
    pytest.param(lambda: Table(states=(UNTYPED,)), "", "a state is made with", id="a state as a text, in a table"),
]


@pytest.mark.parametrize(("build", "row", "why"), REFUSED)
def test_a_wrong_table_is_refused_at_construction_with_the_row(build: Callable[[], Table], row: str, why: str) -> None:
    """What is wrong with a table of one's own is said when it is built, before any agent: which row, and why."""
    with pytest.raises(TableError) as refused:
        build()
    assert why in str(refused.value)
    assert refused.value.row == row


async def asked_later(ctx: Context) -> Any:
    """What no guard can be made of."""
    return False


def asked_in_turn(ctx: Context) -> Any:
    """The same."""
    yield False


async def asked_in_turn_later(ctx: Context) -> Any:
    """And both at once."""
    yield False


class AskedLater:
    """An object that is asked as the first."""

    async def __call__(self, ctx: Context) -> Any:
        """Say no, later."""
        return False


@pytest.mark.parametrize("test", [asked_later, asked_in_turn, asked_in_turn_later, AskedLater()])
def test_a_guard_that_would_always_hold_is_refused(test: Callable[[Context], Any]) -> None:
    """What an async function or a generator returns is true whatever it would say, so that no guard is made of one."""
    with pytest.raises(DefinitionError, match=r"the guard (asked_|AskedLater).* must be a plain function"):
        table.guard("it is so")(test)


def test_a_sentence_with_other_braces_is_refused() -> None:
    """The sentence of a guard is a template over the limits, and a mistake in it is told where it is made."""
    with pytest.raises(DefinitionError, match="braces around something that is no limit"):
        table.guard("more than {most} tries")
    assert table.guard("after {max_steps} steps", name="late")(lambda ctx: False).describe(SMALL) == "after 2 steps"
