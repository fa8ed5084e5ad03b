"""The pictures say what the table says, whatever is in it, and the committed one is up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.alphabet import TERMINAL, Event, State
from fsm_agent.diagrams import PAGE, main, markdown, mermaid, page
from fsm_agent.guards import Guard
from fsm_agent.table import TABLE, Row

ROOT = Path(__file__).resolve().parents[1]
ARROW = re.compile(r'    (\w+) (?:-->|-\.->)\|"([^"]*)"\| (\w+)')
ANYWHERE = {Event.CANCELLED, Event.BROKE}


def arrows(diagram: str) -> set[tuple[str, str, str]]:
    """Each line of each arrow's label, as (source, label, target)."""
    found = [ARROW.fullmatch(line) for line in diagram.splitlines()]
    return {(one[1], said, one[3]) for one in found if one is not None for said in one[2].split("<br/>")}


def label(row: Row) -> str:
    """What the diagram says of a row."""
    names = ", ".join(guard.name for guard in row.guards)
    return f"{row.event} [{names}]" if names else row.event


def guard(name: str, sentence: str = "it holds") -> Guard:
    """A guard of that name."""
    return Guard(name, sentence, lambda ctx: (True, {}))


# ---------------------------------------------------------------- the committed page


def test_the_committed_page_is_what_the_table_gives() -> None:
    """`diagrams/machine.md` is never edited, and never older than the table."""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(TABLE)


def test_the_page_is_the_same_in_every_process() -> None:
    """Nothing in it hangs on the order of a set."""
    code = "import sys; from fsm_agent.diagrams import page; sys.stdout.write(page())"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == page().splitlines()


def test_the_command_writes_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes the page, `--check` says whether it is right and how to mend it, and anything else is refused."""
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    PAGE.parent.mkdir()
    assert (main(["--check"]), main(), main(["--check"])) == (1, 0, 0)
    PAGE.write_text(page().replace("EXECUTE", "RUN"), encoding="utf-8")
    assert main(["--check"]) == 1
    assert "python -m fsm_agent.diagrams" in capsys.readouterr().err
    assert main(["--write"]) == 2
    assert PAGE.read_text(encoding="utf-8") != page()


# ---------------------------------------------------------------- every row, and nothing else


def test_every_row_is_an_arrow_and_every_arrow_a_row() -> None:
    """The diagram has each row's source, event, guards and target, those of every state once, and nothing more."""
    own = {(f"s_{row.source}", label(row), f"s_{row.target}") for row in TABLE if row.event not in ANYWHERE}
    shared = {("anywhere", event.value, f"s_{State.ABORT}") for event in ANYWHERE}
    assert arrows(mermaid(TABLE)) == own | shared


def test_without_guards_the_arrows_say_the_events() -> None:
    """The small diagram leaves the guards out and says each event of an arrow once."""
    small = mermaid(TABLE, guards=False)
    assert {said for _, said, _ in arrows(small)} == {row.event.value for row in TABLE}
    for found in filter(None, (ARROW.fullmatch(line) for line in small.splitlines())):
        lines = found[2].split("<br/>")
        assert len(lines) == len(set(lines))


def test_every_state_is_drawn_once_and_the_ends_stand_out() -> None:
    """A box for each state, a round one where a run ends, and an arrow to where it starts."""
    lines = mermaid(TABLE).splitlines()
    for state in State:
        box = f'(["{state}"])' if state in TERMINAL else f'["{state}"]'
        assert lines.count(f"    s_{state}{box}") == 1
    assert "    start(( )) --> s_PLAN" in lines


def test_a_row_that_only_some_states_have_is_drawn_for_each() -> None:
    """What is drawn once for all states is what all states have."""
    rows = [row for row in TABLE if (row.source, row.event) != (State.PLAN, Event.BROKE)]
    drawn = arrows(mermaid(rows))
    assert ("s_RETRY", "broke", "s_ABORT") in drawn
    assert not [one for one in drawn if one[0] == "anywhere" and one[1] == "broke"]
    assert ("anywhere", "cancelled", "s_ABORT") in drawn


def test_the_markdown_has_every_row_in_order_and_every_guard_once() -> None:
    """One line a row, with its reason; then one sentence a guard, the limits by name."""
    table, _, meanings = markdown(TABLE).partition("\n\n")
    own = [row for row in TABLE if row.event not in ANYWHERE]
    lines = table.splitlines()[2:]
    assert len(lines) == len(own) + len(ANYWHERE)
    for line, row in zip(lines, own, strict=False):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        names = [name.strip("`") for name in cells[2].split(", ") if name]
        assert cells[:2] + cells[3:] == [row.source, row.event, row.target, row.reason or ""]
        assert names == [guard.name for guard in row.guards]
    told = [line.split("`")[1] for line in meanings.splitlines()]
    assert sorted(told) == sorted({guard.name for row in TABLE for guard in row.guards})
    assert "at least `max_steps` steps were taken" in meanings


# ---------------------------------------------------------------- whatever a guard is called


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.strip() == text))
def test_no_name_breaks_out_of_its_label(name: str) -> None:
    """A guard of any name is shown by that name, in one line, and cannot end the label or mean anything in it."""
    rows = (Row(State.PLAN, Event.REPLIED, State.VALIDATE, (guard(name),)), Row(State.PLAN, Event.REPLIED, State.ABORT))
    ((said, _),) = [(one[1], one[2]) for one in arrows(mermaid(rows)) if one[2] == "s_VALIDATE"]
    assert re.sub(r"#(\d+);", lambda one: chr(int(one[1])), said) == f"replied [{name}]"
    assert re.fullmatch(r"(?:[\w .,\[\]-]|#\d+;)*", said)


@given(st.text(max_size=30))
def test_no_name_breaks_out_of_its_cell(name: str) -> None:
    """A guard of any name leaves the table its five columns and its one line a row."""
    rows = (Row(State.PLAN, Event.REPLIED, State.VALIDATE, (guard(name),)),)
    lines = re.split(r"\r\n|\r|\n", markdown(rows).partition("\n\n")[0])
    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)\|", lines[2])) == 6
