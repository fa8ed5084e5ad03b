"""A table of one's own from the command line: shown, drawn, verified, run, and gone on with after a restart."""

from __future__ import annotations

import re
from pathlib import Path

from fsm_agent.testing import call
from tests.cli.kit import fsm
from tests.cli.room import ANA, Room, error_of

TABLE = ("--table", "fsm_agent.examples.compliance:TABLE")
SMALL = ("--max-steps", "2", "--no-progress-steps", "1", "--max-nudges", "0", "--max-degradations", "0")


def test_a_table_of_ones_own_is_shown_and_drawn() -> None:
    """`table` and `diagram` show the rows of the table that is named, in each form."""
    rows = fsm("table", *TABLE, "--json").document
    assert {(row["source"], row["target"]) for row in rows} >= {("VALIDATE", "COMPLIANCE"), ("COMPLIANCE", "EXECUTE")}
    assert "COMPLIANCE" in fsm("table", *TABLE).out
    assert "| COMPLIANCE | flagged |" in fsm("table", *TABLE, "--markdown").out
    assert "s_COMPLIANCE" in fsm("diagram", *TABLE).out
    assert "COMPLIANCE" not in fsm("table").out


def test_a_table_of_ones_own_is_verified() -> None:
    """`verify --table` explores it, and `--most` says how much is explored before it is refused."""
    done = fsm("verify", *TABLE, *SMALL, "--abort-after", "2", "--token-budget", "none", "--json")
    assert (done.code, done.document["ok"]) == (0, True)
    refused = fsm("verify", *SMALL, "--most", "10")
    assert refused.code == 2
    assert "fsm-agent verify --most" in refused.err


def test_a_run_goes_on_by_the_table_that_it_began_with(room: Room) -> None:
    """The origin of a run keeps `--table`: the commands that go on find it there, those that only read it ask for it by name."""
    assert room.run([ANA], *TABLE).code == 4
    (run_id,) = room.ids()
    named = f"the states COMPLIANCE, .* or {' '.join(TABLE)}, which it says it began with"
    assert re.search(named, error_of(room.on("replay", run_id)))
    assert room.on("approve", run_id, script=["Done."]).code == 0
    assert "REVIEW --approved--> COMPLIANCE" in room.on("show", run_id).out
    again = room.on("replay", run_id, *TABLE)
    assert "COMPLIANCE --cleared--> EXECUTE" in again.out
    assert room.on("audit", run_id, *TABLE).code == 0
    found = room.on("audit", run_id)
    assert found.code == 1
    assert re.search(named, found.out)
    assert "the states COMPLIANCE" in found.out
    assert "COMPLIANCE" in room.on("diagram", "--run", run_id).out
    assert "answer   Done." in room.on("show", run_id, *TABLE).out
    assert re.search(f"detail   not known without the agent: .*{named}", room.on("show", run_id).out)
    assert room.sent() == ["Ana"]


def test_a_run_of_a_table_of_ones_own_is_read_by_it(room: Room) -> None:
    """`report`, `diff` and `show --messages` go by the table that is named, and only so can its messages be made again."""
    assert room.run([ANA], *TABLE).code == 4
    (run_id,) = room.ids()
    page = room.on("report", run_id, *TABLE)
    assert (page.code, "audit: nothing wrong" in page.out) == (0, True)
    assert "audit: 1 finding" in room.on("report", run_id).out
    assert "COMPLIANCE" not in room.on("diff", run_id, run_id).out
    assert "COMPLIANCE" in room.on("diff", run_id, run_id, *TABLE).out
    assert "the states COMPLIANCE" in error_of(room.on("show", run_id, "--messages"))
    assert "human: Write a letter" in room.on("show", run_id, "--messages", *TABLE).out


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    """`--table` names what `extend` returned; anything else is wrong usage, said with the option."""
    done = fsm("table", "--table", "fsm_agent.table:extend")
    assert done.code == 2
    assert "--table 'fsm_agent.table:extend' is a method" in done.err
    assert "there is no module nowhere" in fsm("table", "--table", "nowhere:TABLE").err


def test_a_run_that_compliance_stops_shows_why(room: Room) -> None:
    """A call that the table refuses is told in the run, and never executed."""
    card = call("unsafe", to="4111 1111 1111 1111")
    done = room.run([card, "I may not."], *TABLE, tools="unsafe")
    assert done.code == 0
    assert room.sent() == []
