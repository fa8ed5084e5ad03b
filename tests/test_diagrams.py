"""The pictures say what the table says, whatever is in it, and the committed ones are up to date."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, DefinitionError, Limits, RunError, RunResult
from fsm_agent.alphabet import TERMINAL, Event, State
from fsm_agent.diagrams import TextFormat, diagram, diff
from fsm_agent.diagrams.__main__ import main
from fsm_agent.diagrams.dot import as_dot
from fsm_agent.diagrams.graphviz import available, rendered
from fsm_agent.diagrams.image import tidied
from fsm_agent.diagrams.mermaid import as_mermaid
from fsm_agent.diagrams.palette import ARROWS, BOXES, DARK, INK, MARKED, PALE, PAPER, START
from fsm_agent.diagrams.parts import Picture
from fsm_agent.diagrams.picture import pictured, row_numbers
from fsm_agent.diagrams.reference import FOLDER, files
from fsm_agent.diagrams.text import xml_text
from fsm_agent.diagrams.walk import duration, walked
from fsm_agent.guards import GUARDS, Guard
from fsm_agent.machine import Evaluated
from fsm_agent.profiles import NAMES as PROFILES
from fsm_agent.records import Token
from fsm_agent.table import TABLE, Row
from fsm_agent.testing import ScriptedModel
from tests import diagram_examples
from tests.diagram_readers import MermaidReader, Seen, missing, read_dot, read_svg

ROOT = Path(__file__).resolve().parents[1]
ANYWHERE = {Event.CANCELLED, Event.BROKE}
LIMITS = Limits(max_steps=77, token_budget=None, backoff_max=2.5)
FORMATS: Final[tuple[TextFormat, ...]] = ("mermaid", "dot", "svg", "markdown", "csv")
UNSET = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def mermaid() -> Iterator[MermaidReader]:
    """The real Mermaid, started once."""
    with MermaidReader() as reader:
        yield reader


@pytest.fixture(scope="session")
def graphviz() -> str:
    """The real Graphviz."""
    found = shutil.which("dot")
    return found if found is not None else missing("Graphviz (dot)")


def guard(name: str, sentence: str = "it holds") -> Guard:
    """A guard of that name."""
    return Guard(name, sentence, lambda ctx: (True, {}))


def said_of(picture: Picture) -> Seen:
    """What has to be seen in a picture: the text of each box, and that of each arrow, without the arrow to the start."""
    boxes = {box.id: "\n".join((box.name, *box.told)) for box in picture.boxes}
    arrows = [(one.source, "\n".join(line.text for line in one.lines), one.target) for one in picture.arrows]
    return Seen(
        {name: xml_text(text) for name, text in boxes.items()},
        [(source, xml_text(text), target) for source, text, target in arrows],
    )


def without_start(seen: Seen) -> Seen:
    """The boxes and arrows that are of the table: neither the dot where a run starts nor the box of what is told."""
    drawn = ("start", "told")
    return Seen(
        {name: text for name, text in seen.boxes.items() if name not in drawn},
        [one for one in seen.arrows if one[0] not in drawn and one[2] not in drawn],
    )


def squeezed(seen: Seen) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Without any space: Graphviz draws some as no-break ones, breaks long lines before a guard, and indents the rest."""
    boxes = {name: "".join(text.split()) for name, text in seen.boxes.items()}
    arrows = [(source, "".join(text.split()), target) for source, text, target in seen.arrows]
    return boxes, sorted(arrows)


# ---------------------------------------------------------------- what is committed


def test_the_committed_files_are_what_the_table_gives() -> None:
    """Nothing in `diagrams/` is edited or older than the table: `make diagrams` writes it."""
    expected = {**files(), **diagram_examples.files()}
    stale = [name for name, text in expected.items() if (ROOT / FOLDER / name).read_text(encoding="utf-8") != str(text)]
    assert not stale
    there = {path.name for path in (ROOT / FOLDER).iterdir()}
    assert there == {*expected, diagram_examples.CERTIFICATES, "README.md"}


def test_the_committed_certificates_are_what_is_proved_now() -> None:
    """Each profile is verified anew, and what the page says of it is that: `make diagrams` writes it."""
    page = (ROOT / FOLDER / diagram_examples.CERTIFICATES).read_text(encoding="utf-8")
    assert page == diagram_examples.certificates()
    assert page.count("\nverified: ") == len(PROFILES)


def test_the_files_are_the_same_in_every_process() -> None:
    """Nothing in them hangs on the order of a set."""
    code = "import sys; from fsm_agent.diagrams.reference import files; sys.stdout.write(''.join(files().values()))"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == "".join(files().values()).splitlines()


def test_the_command_writes_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes the files, `--check` says which is wrong and how to mend it, and anything else is refused."""
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    FOLDER.mkdir()
    assert (main(["--check"]), main(), main(["--check"])) == (1, 0, 0)
    page = FOLDER / "machine.md"
    page.write_text(page.read_text(encoding="utf-8").replace("EXECUTE", "RUN"), encoding="utf-8")
    capsys.readouterr()
    assert main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "machine.md is not what the table gives: run python -m fsm_agent.diagrams" in told
    assert "machine.svg" not in told
    assert main(["--write"]) == 2


def test_the_reference_names_everything_once() -> None:
    """States with what they do, events, guards with their sentences, limits with their defaults: a line each."""
    page = files()["machine.md"]
    parts = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    names = {
        part: [line.split("`")[1] for line in text.splitlines()[2:] if "`" in line] for part, text in parts.items()
    }
    assert names["States"] == list(State)
    assert names["Events"] == list(Event)
    assert sorted(names["Guards"]) == sorted({one.name for row in TABLE for one in row.guards})
    assert names["Limits"] == list(Limits.model_fields)
    assert "| `EXECUTE` | Run the calls that" in parts["States"]
    assert re.search(r"\| `max_steps` \| 10 \| .* \| `steps_spent` \|", parts["Limits"])


# ---------------------------------------------------------------- every row, and nothing else


def expected_lines(limits: Limits | None) -> set[tuple[str, str, str]]:
    """Each row as (source, what is said, target); those of every state once."""
    turns = row_numbers(TABLE)
    lines = set()
    for row, turn in zip(TABLE, turns, strict=True):
        source = "anywhere" if row.event in ANYWHERE else f"s_{row.source}"
        head = f"({turn}) {row.event}" if turn else row.event.value
        conditions = ", ".join(compared(one, limits) for one in row.guards)
        lines.add((source, f"{head} [{conditions}]" if conditions else head, f"s_{row.target}"))
    return lines


def compared(one: Guard, limits: Limits | None) -> str:
    """A guard with the limits of its sentence in brackets, read from the sentence here by other means."""
    names = dict.fromkeys(re.findall(r"\{(\w+)\}", one.sentence))
    values = [name if limits is None else getattr(limits, name) for name in names]
    written = ["off" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in values]
    return f"{one.name}({', '.join(written)})" if written else one.name


@pytest.mark.parametrize("limits", [LIMITS, None], ids=["values", "names"])
def test_every_row_is_a_line_of_an_arrow_and_nothing_else_is(limits: Limits | None) -> None:
    """The picture has each row's source, event, turn, guards with their limits as configured, and target."""
    picture = pictured(TABLE, limits)
    lines = [(arrow.source, line.text, arrow.target) for arrow in picture.arrows for line in arrow.lines]
    assert len(lines) == len(set(lines))
    assert set(lines) == expected_lines(limits)
    if limits is not None:
        told = {text for _, text, _ in lines}
        assert {"(14) decided [steps_spent(77)]", "(7) decided [token_budget_spent(off)]"} <= told


def test_words_tell_the_limits_too() -> None:
    """With `detail="sentences"` a guard says what it means under the limits; without guards an arrow says its events."""
    words = diagram("mermaid", limits=LIMITS, detail="sentences")
    assert "at least 77 steps were taken" in words
    assert GUARDS["no_progress"].describe(LIMITS) in words
    events = {line.text for arrow in pictured(TABLE, detail="events").arrows for line in arrow.lines}
    assert events == {row.event.value for row in TABLE}


def test_mermaid_sees_the_machine(mermaid: MermaidReader) -> None:
    """The real Mermaid draws every box and arrow of the picture, and reads what is on them."""
    picture = pictured(TABLE, LIMITS)
    seen = mermaid.read(as_mermaid(picture))
    assert without_start(seen) == said_of(picture)
    assert seen.arrows[0] == ("start", "", "s_PLAN")


def test_graphviz_sees_the_machine(graphviz: str) -> None:
    """The real Graphviz, and the program of the extra, draw every box and arrow of the picture, and what is on them."""
    picture = pictured(TABLE, LIMITS)
    expected = squeezed(said_of(picture))
    assert squeezed(without_start(read_dot(as_dot(picture), graphviz))) == expected
    for image in (diagram("svg", limits=LIMITS, engine="dot"), diagram("svg", limits=LIMITS, engine="graphviz-pure")):
        assert squeezed(without_start(read_svg(image))) == expected


def test_words_are_broken_and_none_is_lost(graphviz: str) -> None:
    """Long sentences take several rows of a label, and all their words are read back."""
    picture = pictured(TABLE, LIMITS, detail="sentences")
    seen = without_start(read_dot(as_dot(picture), graphviz))
    assert squeezed(seen) == squeezed(said_of(picture))
    assert max(len(row) for _, text, _ in seen.arrows for row in text.split("\n")) < 80


def test_who_points_at_an_arrow_is_told_its_rows() -> None:
    """The image says in words what each row of an arrow means and why it stops, beside the names that are printed."""
    image = diagram("svg", limits=LIMITS)
    assert "decided: at least 77 steps were taken (max_steps)" in image
    assert 'xlink:title="answered: always"' in image
    assert re.search(r'<svg role="img" aria-label="[^"]+"', image)


def test_ends_stand_out_and_the_main_path_is_straight(graphviz: str) -> None:
    """Ends have a double border; the states of the path that nothing gets in the way of stand below each other."""
    text = as_dot(pictured(TABLE, LIMITS))
    for state in State:
        (line,) = [one for one in text.splitlines() if one.startswith(f"    s_{state} [")]
        assert ('peripheries="2"' in line) == (state in TERMINAL)
    for program in (graphviz, available("graphviz-pure")):
        assert program is not None
        done = subprocess.run([program, "-Tplain"], input=text.encode(), capture_output=True, check=True)
        columns = dict(re.findall(r"^node s_(\w+) +([\d.]+)", done.stdout.decode(), re.MULTILINE))
        path = ("PLAN", "VALIDATE", "EXECUTE", "OBSERVE", "DECIDE")
        assert len({columns[state] for state in path}) == 1


def test_no_label_is_drawn_over_another() -> None:
    """In the committed picture texts keep clear of each other, and it fits on a page of A4 at a size that can be read."""
    image = files()["machine.svg"]
    size = re.search(r'width="(\d+)pt" height="(\d+)pt"\s+viewBox="0.00 0.00 ([\d.]+) ', image)
    assert size is not None
    assert (int(size[1]) <= 785, int(size[2]) <= 538) == (True, True)
    assert 10 * int(size[1]) / float(size[3]) >= 6, "points of a label on a page of A4"
    texts = re.findall(
        r'<text [^>]*text-anchor="(\w+)" x="([-\d.]+)" y="([-\d.]+)"[^>]*textLength="([\d.]+)"[^>]*>([^<]+)<', image
    )
    assert len(texts) == len(re.findall("<text ", image))
    areas = []
    for anchor, x, y, length, _ in texts:
        left = float(x) - (float(length) / 2 if anchor == "middle" else 0)
        areas.append((left, float(y) - 7, left + float(length), float(y) + 2))
    clashes = [
        (texts[i][4], texts[j][4])
        for i, a in enumerate(areas)
        for j, b in enumerate(areas[:i])
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]
    assert not clashes


@pytest.mark.parametrize(("bold", "near"), [(False, 0.005), (True, 0.06)])
def test_a_text_keeps_to_its_room_in_every_font(bold: bool, near: float) -> None:
    """The image says how long each text is, which is what Graphviz measured with the letters of the extra, bold ones about."""
    letters = "".join(chr(code) for code in range(32, 127))
    rows = [Row(cast(State, letters[at : at + 8]), Event.REPLIED, State.ABORT) for at in range(0, len(letters), 8)]
    picture = pictured([*TABLE, *rows], LIMITS, walks=[walked(TABLE, diagram_examples.failed())] * bold)
    text = as_dot(replace(picture, told=()))
    program = available("graphviz-pure")
    assert program is not None
    done = subprocess.run([program, "-Tjson"], input=text.encode(), capture_output=True, check=True)
    drawn = json.loads(done.stdout)
    steps = [step for one in (*drawn["objects"], *drawn["edges"]) for step in one.get("_ldraw_", ())]
    measured = sorted(step["width"] for step in steps if step["op"] == "T")
    image = tidied(rendered(text, "svg", engine="graphviz-pure"))
    said = sorted(float(found) for found in re.findall(r'textLength="([\d.]+)"', image))
    assert len(said) == len(measured) > 60
    assert said == pytest.approx(measured, rel=near, abs=0.1)


def test_a_row_that_only_some_states_have_is_drawn_for_each() -> None:
    """What is drawn once for all states is what all states have."""
    rows = [row for row in TABLE if (row.source, row.event) != (State.PLAN, Event.BROKE)]
    drawn = {(one.source, line.text, one.target) for one in pictured(rows).arrows for line in one.lines}
    assert ("s_RETRY", "broke", "s_ABORT") in drawn
    assert ("anywhere", "broke", "s_ABORT") not in drawn
    assert ("anywhere", "cancelled", "s_ABORT") in drawn


def test_the_csv_has_every_row_as_it_is() -> None:
    """One line a row, guards and their sentences under the limits below each other in their cells."""
    read = list(csv.DictReader(io.StringIO(diagram("csv", limits=LIMITS))))
    assert len(read) == len(TABLE)
    for line, row, turn in zip(read, TABLE, row_numbers(TABLE), strict=True):
        assert (line["source"], line["event"], line["target"]) == (row.source, row.event, row.target)
        assert (line["turn"], line["reason"]) == (str(turn or ""), row.reason or "")
        assert [name for name in line["guards"].split("\n") if name] == [one.name for one in row.guards]
        assert [text for text in line["meaning"].split("\n") if text] == [g.describe(LIMITS) for g in row.guards]


def test_the_markdown_has_every_row_in_order_and_every_guard_once() -> None:
    """One line a row, with its turn and reason; then one sentence a guard under the limits."""
    table, _, meanings = diagram("markdown", limits=LIMITS).partition("\n\n")
    turns = dict(zip(TABLE, row_numbers(TABLE), strict=True))
    own = [row for row in TABLE if row.event not in ANYWHERE]
    lines = table.splitlines()[2:]
    assert len(lines) == len(own) + len(ANYWHERE)
    for line, row in zip(lines, own, strict=False):
        cells = [re.sub(r"&#(\d+);", lambda one: chr(int(one[1])), cell.strip()) for cell in line.split("|")[1:-1]]
        assert cells[:3] == [row.source, row.event, str(turns[row] or "")]
        assert [name for name in cells[3].replace("`", "").split(", ") if name] == [one.name for one in row.guards]
        assert cells[4:] == [row.target, row.reason or ""]
    told = [line.split("`")[1] for line in meanings.splitlines()]
    assert sorted(told) == sorted({one.name for row in TABLE for one in row.guards})
    assert "at least 77 steps were taken" in meanings


# ---------------------------------------------------------------- whatever anything is called

NASTY = (
    *(
        "end",
        "graph",
        "subgraph",
        "class",
        "style",
        "click",
        "default",
        "direction",
        "node",
        "edge",
        "start",
        "anywhere",
    ),
    *(
        "a b",
        "a_b",
        "a-b",
        " lead",
        "trail ",
        "two  spaces",
        "a\nb",
        "a\n\nb",
        "\n",
        "中文状态",
        "😀",
        "a\u0301",
        "\u202eabc",
    ),
    *('say "hi"', "it's", "<b>bold</b>", "<script>", "<br/>", "a|b", "a&b", "&lt;", "&#60;", "#35;", "#quot;", "x;y"),
    *(
        "1. one",
        "1) one",
        "- item",
        "+ x",
        "> x",
        "# head",
        "*x*",
        "_x_",
        "__x__",
        "`code`",
        "~~x~~",
        "$$x$$",
        "![x](y)",
    ),
    *("[a](b)", "a](b", "www.example.com", "http://example.com/x", "a@b.example", "fa:fa-car", "{x}", "}{", "{", "%%c"),
    *(
        "%%{init}%%",
        "--> x",
        "\\N",
        "\\n",
        "a\\",
        "[b,\\\\]",
        "\\E",
        "]",
        '"]',
        '["',
        ">",
        "\t",
        "\x00",
        "\x7f",
        "\x85",
        "\ud800",
        "\ufffe",
    ),
    *("ﬂ°35¶ß", "style x:#a;", "classDef:y#a;", "\u00a0", "\u2028x", "=", "PLAN", "plan", "x" * 200),
)
NAMES = st.sampled_from(NASTY) | st.text(min_size=1, max_size=12) | st.text("ab_- .", min_size=1, max_size=4)


def small_table(names: Sequence[str]) -> list[Row]:
    """Rows with these as states, events and guards: a turn of two, a way back, and one that stays."""
    a, b, c = (cast(State, name) for name in names[:3])
    e, f = (cast(Event, name) for name in names[3:5])
    g, h = guard(names[5], names[6]), guard(names[6], names[5])
    return [Row(a, e, b, (g, h)), Row(a, e, c), Row(b, f, a), Row(b, e, b)]


TABLES = st.lists(NAMES, min_size=7, max_size=7).filter(lambda names: len(set(names[:3])) == 3).map(small_table)
EVERY_NASTY = [
    Row(cast(State, name), cast(Event, name), cast(State, "the same"), (guard(name, name), guard(f"q{name}")))
    for name in NASTY
]


def test_every_nasty_name_survives_mermaid(mermaid: MermaidReader) -> None:
    """Reserved words, punctuation, markup, entities, line breaks, any script: Mermaid shows each as it is, in its own place."""
    for start in range(0, len(NASTY), 30):
        picture = pictured(EVERY_NASTY[start : start + 30])
        assert joined(without_start(mermaid.read(as_mermaid(picture)))) == joined(said_of(picture))


def joined(seen: Seen) -> Seen:
    """Without the joiner of no width that keeps what Mermaid writes for itself apart."""
    boxes = {name: text.replace("\u200c", "") for name, text in seen.boxes.items()}
    return Seen(boxes, [(source, text.replace("\u200c", ""), target) for source, text, target in seen.arrows])


@given(TABLES)
@settings(UNSET, max_examples=15)
def test_any_name_survives_mermaid(mermaid: MermaidReader, rows: list[Row]) -> None:
    """Mermaid shows whatever a state, an event or a guard is called."""
    picture = pictured(rows)
    assert joined(without_start(mermaid.read(as_mermaid(picture)))) == joined(said_of(picture))


def test_every_nasty_name_survives_graphviz(graphviz: str) -> None:
    """The same for Graphviz."""
    picture = pictured(EVERY_NASTY)
    assert squeezed(without_start(read_dot(as_dot(picture), graphviz))) == squeezed(said_of(picture))


@given(TABLES)
@UNSET
def test_any_name_survives_graphviz(graphviz: str, rows: list[Row]) -> None:
    """Graphviz, and the program of the extra, draw whatever a state, an event or a guard is called."""
    picture = pictured(rows)
    text, expected = as_dot(picture), squeezed(said_of(picture))
    assert squeezed(without_start(read_dot(text, graphviz))) == expected
    assert squeezed(without_start(read_svg(tidied(rendered(text, "svg", engine="graphviz-pure"))))) == expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_ids_are_plain_and_different(one: str, other: str) -> None:
    """Two names never get the same id, and an id is a plain word that no language has a use for."""
    rows = [Row(cast(State, one), Event.REPLIED, cast(State, other))]
    ids = [box.id for box in pictured(rows).boxes]
    assert len(set(ids)) == len({one, other})
    assert all(re.fullmatch(r"s_[A-Za-z0-9_]*", name) for name in ids)


@given(TABLES)
def test_any_name_survives_csv(rows: list[Row]) -> None:
    """CSV holds every name letter for letter."""
    read = list(csv.reader(io.StringIO(diagram("csv", rows=rows), newline="")))[1:]
    assert [(line[0], line[1], line[3], line[5]) for line in read] == [
        (row.source, row.event, "\n".join(one.name for one in row.guards), row.target) for row in rows
    ]


@given(TABLES)
@example(small_table(["|", "<br>", "`", "a\nb", "*", "\\|", "_"]))
def test_no_name_breaks_out_of_its_cell(rows: list[Row]) -> None:
    """The Markdown table keeps its columns and its one line a row, and no name means anything in it."""
    lines = re.split(r"\r\n|\r|\n", diagram("markdown", rows=rows).partition("\n\n")[0])[2:]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        assert len(cells) == 6
        assert line.count("|") == 7
        source = re.sub(r"&#(\d+);", lambda one: chr(int(one[1])), cells[0].replace("<br>", "\n"))
        assert source == xml_text(row.source)


def test_wide_letters_have_room() -> None:
    """Chinese is not drawn wider than its box, although the fonts of the extra have none; a PNG without letters is refused."""
    rows = [Row(cast(State, "验证阶段状态"), Event.REPLIED, cast(State, "b"))]
    image = diagram("svg", rows=rows, engine="graphviz-pure")
    x = [float(found) for found in re.findall(r"<path fill=\"#eef3fb\"[^>]* d=\"M([-\d.]+),", image)]
    assert x
    edges = [float(one) for one in re.findall(r"[MC ]([-\d.]+),", re.findall(r' d="([^"]+)"', image)[0])]
    assert max(edges) - min(edges) >= 6 * 12
    with pytest.raises(DefinitionError, match="take svg"):
        diagram("png", rows=rows, engine="graphviz-pure")


def test_a_picture_that_takes_too_long_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of hundreds of states is no picture in a minute, and Mermaid and DOT need none to be laid out."""
    monkeypatch.setattr("fsm_agent.diagrams.graphviz._SECONDS", 0.001)
    with pytest.raises(DefinitionError, match="too large for it; take mermaid, dot, markdown or csv"):
        diagram("svg", engine="graphviz-pure")


def test_a_missing_program_fails_where_everything_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a real program its tests are left out on a laptop, and fail in CI."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        missing("it")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="it is missing"):
        missing("it")


# ---------------------------------------------------------------- what a caller gets


def test_an_agent_draws_itself_with_its_own_limits() -> None:
    """`agent.diagram()` is the machine under the agent's limits, in every format."""
    agent = Agent(ScriptedModel(["fine"]), limits=LIMITS)
    for format in FORMATS:
        assert agent.diagram(format) == diagram(format, limits=LIMITS)
    assert agent.diagram() == agent.diagram("mermaid")
    assert agent.diagram("png").startswith(b"\x89PNG\r\n")
    assert "steps_spent(77)" in agent.diagram()


def test_a_notebook_shows_a_diagram_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each format has its media type; SVG, and DOT where it can be drawn, are pictures; the value stays plain text."""
    mermaid_text, image, dot = diagram("mermaid"), diagram("svg"), diagram("dot")
    assert mermaid_text._repr_mimebundle_()["text/vnd.mermaid"] == mermaid_text
    assert mermaid_text._repr_svg_() is None
    assert image._repr_svg_() == image._repr_mimebundle_()["image/svg+xml"] == image
    assert (dot._repr_svg_() or "").startswith("<?xml")
    assert diagram("markdown")._repr_mimebundle_()["text/markdown"].startswith("| source |")
    assert diagram("png")._repr_png_() == diagram("png")
    assert len(repr(diagram("png"))) < 80
    assert type(diagram("csv")._repr_mimebundle_()["text/plain"]) is str
    monkeypatch.setattr("fsm_agent.diagrams.value.available", lambda: None)
    assert dot._repr_svg_() is None


def test_a_diagram_is_saved_and_survives_a_copy(tmp_path: Path) -> None:
    """`save` writes the text or the bytes; pickle gives back the diagram with its format."""
    text = diagram("svg")
    assert text.save(tmp_path / "a.svg").read_text(encoding="utf-8") == text
    assert diagram("png").save(str(tmp_path / "a.png")).read_bytes().startswith(b"\x89PNG")
    again = pickle.loads(pickle.dumps(text))  # noqa: S301 - just made here
    assert (again, again.kind, type(again)) == (text, "svg", type(text))


def test_a_diagram_is_not_saved_as_a_picture_that_it_is_not(tmp_path: Path) -> None:
    """Mermaid in a file named `.svg` opens nowhere: the error says which format to draw, and nothing is written."""
    with pytest.raises(
        DefinitionError, match=r"'a\.svg' is the name of a picture, .* mermaid: draw it with the format 'svg'"
    ):
        diagram().save(tmp_path / "a.svg")
    with pytest.raises(DefinitionError, match="draw it with the format 'svg'"):
        diagram("png").save(tmp_path / "a.SVG")
    assert list(tmp_path.iterdir()) == []
    assert diagram().save(tmp_path / "a.txt").read_text(encoding="utf-8").startswith("flowchart")


def test_what_cannot_be_drawn_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unknown format or detail, no program, and a program that fails: each is told, with the way out."""
    with pytest.raises(DefinitionError, match="the formats are mermaid, dot, svg, png, markdown, csv"):
        diagram(cast(Any, "pdf"))
    with pytest.raises(DefinitionError, match="the details are"):
        diagram(detail=cast(Any, "all"))
    with pytest.raises(DefinitionError, match=r"cannot draw the diagram: .*syntax error"):
        rendered("digraph {", "svg", engine="graphviz-pure")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("fsm_agent.diagrams.graphviz._beside", lambda: str(tmp_path))
    with pytest.raises(DefinitionError, match=r"pip install 'fsm-agent\[diagrams\]', or install Graphviz"):
        diagram("png")
    assert diagram("dot")


def test_the_dot_of_the_system_is_taken_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`dot` comes first, the program of the extra when there is none, also when its folder is not on PATH."""
    assert Path(available() or "").name == "dot" or shutil.which("dot") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(available() or "").stem == "graphviz-pure"
    assert diagram("svg") == diagram("svg", engine="graphviz-pure")


# ---------------------------------------------------------------- runs


def test_a_run_is_drawn_with_counts_times_and_values() -> None:
    """Rows that were taken say how often, when, how long, and the values of the guards that held; states too."""
    result = diagram_examples.failed()
    picture = pictured(TABLE, diagram_examples.LIMITS, walks=[walked(TABLE, result)])
    told = {arrow.lines[0].text: [line.text for line in arrow.lines[1:]] for arrow in picture.arrows}
    assert told["executed"] == ["4x at 3, 8, 12, 18; 1.0 s"]
    assert told["(4) decided [circuit_open(3)]"] == ["1x at 20\nfailures = 3\nabort_after = 3"]
    assert told["(2) waited"] == ["1x at 11; 1.0 s"]
    boxes = {box.name: (box.told, box.ends) for box in picture.boxes}
    assert boxes["EXECUTE"] == (("4x, 1.0 s",), False)
    assert boxes["ABORT"] == (("1x",), True)
    assert boxes["FINISH"] == ((), False)


def test_a_run_covers_exactly_the_rows_it_took() -> None:
    """Every transition is counted once on the row that fired, and what is counted adds up to the run."""
    for result in (diagram_examples.answered(), diagram_examples.failed()):
        walk = walked(TABLE, result)
        assert sum(one.count for one in walk.taken.values()) == len(result.transitions)
        assert sorted(seq for one in walk.taken.values() for seq in one.seqs) == [one.seq for one in result.transitions]
        for record in result.transitions:
            (index,) = [index for index, one in walk.taken.items() if record.seq in one.seqs]
            row = TABLE[index]
            assert (row.source, row.event, row.target) == (record.source, record.event, record.target)
            assert {one.name for one in row.guards} <= {one.guard for one in record.guards if one.result}
        visits = [State.PLAN, *(one.target for one in result.transitions)]
        assert {state: stay.count for state, stay in walk.visits.items()} == {s: visits.count(s) for s in set(visits)}


def test_a_run_says_where_it_stopped_and_why() -> None:
    """The picture tells the run, the state, status, reason and detail, and what it cost."""
    result = diagram_examples.failed()
    for format in FORMATS[:4]:
        text = diagram(format, result, limits=diagram_examples.LIMITS)
        assert re.search(r"example.{0,5}2 stopped in ABORT", text)
        assert re.search(
            r"20 transitions, 3 steps, 3 model calls, 4 tool calls, 45 tokens, 2(\.|&#46;|#46;)?0? s", text
        )
    assert (
        walked(TABLE, result.transitions[:1]).told[-1]
        == "1 transition, 1 step, 1 model call, 0 tool calls, 15 tokens, 0 ms"
    )
    assert result.detail in walked(TABLE, result).told
    stored = walked(TABLE, result.transitions).told
    assert stored[0] == "run example-2 stopped in ABORT (consecutive_failures)"
    assert stored[1] == "circuit_open: failures = 3, abort_after = 3"
    part = walked(TABLE, result.transitions[:3]).told[0]
    assert part == "run example-2 has not ended; it is in OBSERVE"


def test_a_stream_is_a_trail_too() -> None:
    """Tokens among the transitions are passed over, and a result among them is read; an empty trail is refused."""
    result = diagram_examples.answered()
    items: list[object] = [Token(result.run_id, "x"), *result.transitions, result]
    assert diagram("csv", items) == diagram("csv", result)
    assert walked(TABLE, items).told == walked(TABLE, result).told
    with pytest.raises(RunError, match="no transition to draw"):
        diagram("mermaid", [])


def test_a_run_of_every_state_row_is_drawn_at_its_state() -> None:
    """A run that was cancelled shows from where, while the row that all states have goes on standing for the others."""
    first = diagram_examples.failed().transitions[0]
    cancelled = type(first)(**{**first.__dict__, "event": Event.CANCELLED, "target": State.ABORT, "guards": ()})
    picture = pictured(TABLE, walks=[walked(TABLE, [cancelled])])
    taken = [(one.source, one.target) for one in picture.arrows if one.mark == "taken"]
    assert taken == [("s_PLAN", "s_ABORT")]
    assert [one.mark for one in picture.arrows if one.source == "anywhere"] == ["untaken"]


def test_a_transition_that_the_table_does_not_have_is_shown_as_such() -> None:
    """A run of another table is drawn as it was, and the rows that this one lacks are named."""
    record = diagram_examples.failed().transitions[0]
    strange = type(record)(**{**record.__dict__, "target": State.EXECUTE})
    drawn = pictured(TABLE, walks=[walked(TABLE, [strange])])
    (arrow,) = [one for one in drawn.arrows if one.mark == "taken"]
    assert (arrow.source, arrow.target) == ("s_PLAN", "s_EXECUTE")
    assert arrow.lines[0].text == "replied (no row of this table)"


def test_values_are_short_and_without_secrets() -> None:
    """What a guard compared is shown on one line, cut, with secrets taken out."""
    record = diagram_examples.failed().transitions[-1]
    secret = "sk-proj-" + "a1B2" * 12
    values = {"signature": f"pay(\nkey={secret})" + "x" * 400}
    changed = type(record)(**{**record.__dict__, "guards": (Evaluated("circuit_open", True, values),)})
    (passage,) = walked(TABLE, [changed]).taken.values()
    assert "sk-proj" not in str(passage)
    assert all(len(line) < 80 for line in str(passage).splitlines())


def test_two_runs_stand_on_one_picture() -> None:
    """What only one of them did is marked as its own, what both did has both counts, and where they part is told."""
    text = diff(diagram_examples.answered(), diagram_examples.failed(), "csv")
    read = {(one["source"], one["event"], one["turn"]): one for one in csv.DictReader(io.StringIO(text))}
    assert (read["PLAN", "replied", ""]["times_a"], read["PLAN", "replied", ""]["times_b"]) == ("3", "3")
    assert (read["VALIDATE", "answered", ""]["times_a"], read["VALIDATE", "answered", ""]["times_b"]) == ("1", "0")
    drawn = diff(diagram_examples.answered(), diagram_examples.failed(), "mermaid")
    assert "A#58; 2x at 5, 10" in drawn
    markdown = diff(diagram_examples.answered(), diagram_examples.failed(), "markdown")
    assert (
        "They part at transition 10&#58; A DECIDE decided &#45;&#62; PLAN, B DECIDE decided &#45;&#62; RETRY"
        in markdown
    )


def test_runs_that_do_not_part_say_so() -> None:
    """The same path is told as such, and a run that goes on longer says what it did next."""
    result = diagram_examples.failed()
    assert "They took the same path" in diff(result, result, "markdown")
    shorter = diff(result.transitions[:4], result, "markdown")
    assert "They took the same path for 4 transitions; only B goes on&#58; DECIDE decided" in shorter


def test_runs_are_seen_by_the_real_programs(mermaid: MermaidReader, graphviz: str) -> None:
    """Overlays are read by Mermaid and Graphviz like the machine itself, counts, values and all."""
    result = diagram_examples.failed()
    for walks in (
        [walked(TABLE, result)],
        [walked(TABLE, diagram_examples.answered(), letter="A"), walked(TABLE, result)],
    ):
        picture = pictured(TABLE, LIMITS, walks=walks)
        assert without_start(mermaid.read(as_mermaid(picture))) == said_of(picture)
        assert squeezed(without_start(read_dot(as_dot(picture), graphviz))) == squeezed(said_of(picture))


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0 ms"), (0.4, "<1 ms"), (12.4, "12 ms"), (3400, "3.4 s"), (125_000, "2 min 5 s")]
)
def test_durations_are_said_in_their_unit(ms: float, said: str) -> None:
    """Milliseconds, seconds, minutes."""
    assert duration(ms) == said


@pytest.mark.parametrize("trail", [lambda: None, diagram_examples.failed], ids=["machine", "run"])
def test_the_label_of_a_loop_is_kept_free(trail: Callable[[], RunResult | None]) -> None:
    """No arrow but the straight one comes to, or leaves, PLAN on the side of its own loop's label."""
    text = diagram("dot", trail())
    others = [line for line in text.splitlines() if "s_PLAN" in line and "->" in line and 'label="' not in line]
    sides = {
        "straight": [line for line in others if line.strip().startswith(("start ->", "s_PLAN -> s_VALIDATE"))],
        "loop": [line for line in others if "s_PLAN -> s_PLAN" in line],
    }
    assert all('tailport="w"' in line for line in sides["loop"])
    rest = [line for line in others if line not in [*sides["straight"], *sides["loop"]]]
    assert rest
    assert all('port="e"' in line for line in rest)


def test_every_colour_has_one_for_dark_screens() -> None:
    """The page that shows a picture in the dark knows each colour that any picture has."""
    drawn = (*BOXES.values(), *ARROWS.values(), *MARKED.values())
    assert {PAPER, INK, PALE, START, *(colour for pair in drawn for colour in pair)} == set(DARK)
