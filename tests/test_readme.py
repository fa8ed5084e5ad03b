"""The pages tell the truth: their code runs, commands parse, tables are the code's own, in both languages."""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
import typer.main
from structlog.testing import capture_logs

from fsm_agent import Agent, Limits, RunResult, State, Status, StopReason
from fsm_agent.cli import app
from fsm_agent.cli.endings import EXIT_CODES, USAGE
from fsm_agent.dialects import DIALECTS
from fsm_agent.observe import silent_logger
from fsm_agent.table import TABLE
from fsm_agent.testing import Call, ScriptedModel, call, forever, reply, server
from fsm_agent.tools.spec import ToolOptions
from tests.cli.kit import fsm
from tests.readme_parts import (
    CHINESE,
    ENGLISH,
    FENCED,
    MEASURED,
    PAIRS,
    REFERENCE,
    REFERENCE_ZH,
    ROOT,
    diagram,
    limits,
    measured,
    part_of,
    profiles_table,
    table,
)

READMES = (ENGLISH, CHINESE)
REFERENCES = (REFERENCE, REFERENCE_ZH)
PAGES = (*READMES, *REFERENCES, "CONTRIBUTING.md", "CHANGELOG.md", "diagrams/README.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page on which it begins."""

    language: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [Block(one[1], one[2], text.count("\n", 0, one.start()) + 1) for one in FENCED.finditer(text)]


def rows_of(text: str, first: str) -> list[list[str]]:
    """The cells of the Markdown table whose heading begins with the cell `first`, without heading and ruler."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def names_in(cells: Sequence[str]) -> list[str]:
    """The names in backticks, in order."""
    return [name for cell in cells for name in re.findall(r"`([\w()]+)`", cell)]


# ---------------------------------------------------------------- code

CODED = (ENGLISH, REFERENCE, "CONTRIBUTING.md")
PYTHON = [(name, b) for name in CODED for b in blocks_of(TEXTS[name]) if b.language == "python"]
# What the server says to the blocks that ask a model by its name, by a line that only that block has.
SAID: dict[str, list[object]] = {
    'agent.invoke("How warm is it in Oslo?")\nprint(result.status, result.reason)': [
        call("weather", city="Oslo"),
        "It is 21 °C and sunny in Oslo.",
    ],
    "asyncio.run(main())": ["It is 5."],
}


@pytest.fixture(name="quiet")
def _quiet() -> Iterator[None]:
    """Structlog as a host might have set it: no transition is printed between what the code prints."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(("name", "block"), PYTHON, ids=[f"{name}-{block.line}" for name, block in PYTHON])
@pytest.mark.usefixtures("quiet")
def test_the_code_runs_and_prints_what_the_page_says(
    name: str, block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each block is a program of its own; a print with a comment prints that comment."""
    monkeypatch.chdir(tmp_path)
    script = next((said for line, said in SAID.items() if line in block.text), [])
    with server(script) as model:
        monkeypatch.setenv("OPENAI_API_KEY", "made-up")
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        exec(compile(block.text, f"{name}, line {block.line}", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    for expected in re.findall(r"^ *print\(.*\)  # (.+)$", block.text, re.MULTILINE):
        assert expected in printed.splitlines()
    end = block.line + block.text.count("\n") + 2
    output = next((one for one in blocks_of(TEXTS[name]) if one.line == end + 1), None)
    assert output is None or printed == output.text


def test_no_block_is_left_without_a_claim() -> None:
    """What stands in the page as code either prints something that is compared, asserts, or defines an agent."""
    silent = [b.line for _, b in PYTHON if not re.search(r"print\(|assert |base_url=", b.text)]
    assert not silent
    assert all(any(line in block.text for _, block in PYTHON) for line in SAID)


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same_code(pair: tuple[str, str]) -> None:
    """Code, commands, output and diagram are letter for letter the same; only the words around them differ."""
    here, there = (blocks_of(TEXTS[name]) for name in pair)
    assert [(b.language, b.text) for b in there] == [(b.language, b.text) for b in here]


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same_structure(pair: tuple[str, str]) -> None:
    """Line by line the same: headings of one depth, tables of one size, lists, code, and the places that are filled."""

    def shape(text: str) -> list[str]:
        lines = re.sub(r"^```.*?^```$", "```", text, flags=re.MULTILINE | re.DOTALL).splitlines()
        found = [re.match(r"#+ |\||- |```|<[^>]*>|$", line) for line in lines]
        return [one[0] if one is not None else "text" for one in found]

    assert shape(TEXTS[pair[1]]) == shape(TEXTS[pair[0]])


def anchors_of(name: str) -> set[str]:
    """What a link to a heading of a page may name."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", TEXTS[name]), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """A link to a file of the repository names one, and a link to a heading of any page names a heading of it."""
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", TEXTS[name]):
        assert (ROOT / name).parent.joinpath(path).exists(), path
        assert not anchor or anchor in anchors_of(path or name), anchor


@pytest.mark.parametrize("name", [*READMES, *REFERENCES, "CONTRIBUTING.md"])
def test_the_contents_name_every_section(name: str) -> None:
    """The line of links at the top of a page has each of its sections, in order."""
    contents = next(line for line in TEXTS[name].splitlines() if line.count("](#") > 5)
    sections = re.findall(r"^## (.+)$", FENCED.sub("", TEXTS[name]), re.MULTILINE)
    assert re.findall(r"\[([^]]+)\]\(#", contents) == sections


@pytest.mark.parametrize("pair", [(ENGLISH, REFERENCE), (CHINESE, REFERENCE_ZH)])
def test_the_readme_leads_to_every_section_of_the_reference(pair: tuple[str, str]) -> None:
    """The last table of the README has a row for each section of the reference, in order."""
    readme, reference = pair
    rows = re.findall(rf"^\| \[([^]]+)\]\({re.escape(reference)}#", TEXTS[readme], re.MULTILINE)
    assert rows == re.findall(r"^## (.+)$", FENCED.sub("", TEXTS[reference]), re.MULTILINE)


@pytest.mark.parametrize("name", READMES)
def test_the_readme_takes_two_minutes(name: str) -> None:
    """It says what, why and the two commands before anything else, and leaves what is looked up to the reference."""
    opening = FENCED.sub(lambda found: found[2], TEXTS[name]).split("\n## ")[0]
    assert "make demo\nmake test" in opening
    assert len(opening.splitlines()) < 16
    assert len(TEXTS[name].splitlines()) < 300


def test_modules_that_the_guide_names_exist() -> None:
    """A path in backticks in CONTRIBUTING is a path of the repository."""
    paths = re.findall(r"`((?:fsm_agent|states|tests|diagrams|\.ci)/[\w./-]*)`", TEXTS["CONTRIBUTING.md"])
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


# ---------------------------------------------------------------- commands


def commands_of(name: str) -> list[list[str]]:
    """The words of every command line in a page's console blocks, without comments and redirections."""
    blocks = [block.text for block in blocks_of(TEXTS[name]) if block.language == "console"]
    lines = [line.split(" < ")[0].split(" | ")[0] for text in blocks for line in text.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def inline_commands(name: str) -> list[list[str]]:
    """Command lines that stand in the text itself, in backticks."""
    return [shlex.split(one) for one in re.findall(r"`((?:fsm-agent|make) [^`]+)`", TEXTS[name])]


EVERY_COMMAND = [words for name in PAGES for words in (*commands_of(name), *inline_commands(name))]


@pytest.mark.parametrize("words", [c for c in EVERY_COMMAND if c[0] == "fsm-agent"], ids=" ".join)
def test_every_command_shown_parses(words: list[str]) -> None:
    """No page shows a command or an option that does not exist."""
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert not hasattr(command, "commands"), "no such command"
    if "--help" not in rest:
        command.make_context(command.name, list(rest))


def test_every_target_shown_exists() -> None:
    """Each `make` target that a page names is in the Makefile, and described there."""
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {words[1] for words in EVERY_COMMAND if words[0] == "make" and len(words) > 1}
    assert {"demo", "test"} <= shown <= targets


@pytest.mark.parametrize("name", READMES)
def test_the_two_commands_stand_alone(name: str) -> None:
    """The first commands of the page are the two that a stranger needs."""
    assert commands_of(name)[:2] == [["make", "demo"], ["make", "test"]]


# ---------------------------------------------------------------- what is made from the code


@pytest.mark.parametrize("name", READMES)
def test_the_diagram_is_the_table(name: str) -> None:
    """The picture at the top is drawn from the rows (mend it: `python -m tests.readme_parts`)."""
    (drawn,) = (block.text for block in blocks_of(TEXTS[name]) if block.language == "mermaid")
    assert drawn == diagram()


@pytest.mark.parametrize("name", REFERENCES)
def test_the_table_is_what_the_command_prints(name: str) -> None:
    """The table of the page is the output of `fsm-agent table` in a terminal of 100 columns."""
    assert part_of(TEXTS[name], "table") == table()


@pytest.mark.parametrize("name", REFERENCES)
def test_the_profiles_are_what_the_command_prints(name: str) -> None:
    """The profiles of the page are the output of `fsm-agent profiles` in a terminal of 112 columns."""
    assert part_of(TEXTS[name], "profiles") == profiles_table()


def test_the_limits_are_those_of_the_code() -> None:
    """Name, default and meaning of each limit, in the order of the class."""
    rows = [list(row) for row in limits()]
    assert rows_of(part_of(TEXTS[REFERENCE], "limits"), "limit") == rows
    translated = rows_of(part_of(TEXTS[REFERENCE_ZH], "limits"), "限制")
    assert [row[:2] for row in translated] == [row[:2] for row in rows]
    assert all(row[2] for row in translated)


@pytest.mark.parametrize(
    ("name", "first"), [(REFERENCE, "option of `@tool(...)`"), (REFERENCE_ZH, "`@tool(...)` 的选项")]
)
def test_the_options_of_a_tool_are_all_there(name: str, first: str) -> None:
    """Each keyword of `tool` is in the table, and nothing else."""
    assert set(names_in([row[0] for row in rows_of(TEXTS[name], first)])) == set(ToolOptions.__annotations__)


@pytest.mark.parametrize(("name", "first"), [(REFERENCE, "field"), (REFERENCE_ZH, "字段")])
def test_the_fields_of_a_result_are_all_there(name: str, first: str) -> None:
    """Each field, property and method of `RunResult` is in the table, and nothing else."""
    told = names_in([row[0] for row in rows_of(TEXTS[name], first)])
    assert sorted(told) == sorted([*RunResult.model_fields, "ok", "path()", "guards_fired()"])
    for word in (*Status, *StopReason):
        assert f"`{word}`" in TEXTS[name]
    given = {row.reason for row in TABLE if row.reason is not None} | {StopReason.ANSWERED, StopReason.FORCED_ANSWER}
    assert set(StopReason) - given == {StopReason.IN_DOUBT}, "the page says of this one that a suspended run has it"


@pytest.mark.parametrize("name", REFERENCES)
def test_every_dialect_is_told(name: str) -> None:
    """Each name that `dialect=` takes stands in the page."""
    for dialect in DIALECTS:
        assert f'"{dialect}"`' in TEXTS[name]


@pytest.mark.parametrize(("name", "first"), [(REFERENCE, "exit code"), (REFERENCE_ZH, "退出码")])
def test_the_exit_codes_are_those_of_the_command(name: str, first: str) -> None:
    """The table gives each status its code, and wrong usage its own."""
    told = [int(row[0]) for row in rows_of(TEXTS[name], first)]
    assert sorted(told) == sorted([*EXIT_CODES.values(), USAGE])


def test_the_log_line_has_the_keys_of_a_log_line() -> None:
    """What the page shows as a line of the log has exactly the keys of a real one, with values of the same kinds."""
    (line,) = (block.text for block in blocks_of(TEXTS[REFERENCE]) if block.language == "json")
    shown = json.loads(line)
    model = ScriptedModel([call("weather", city="Oslo"), "21 °C."])
    with capture_logs() as events:
        Agent(model, tools=[weather], limits=Limits(max_steps=5)).invoke("How warm is it in Oslo?")
    real = cast(dict[str, Any], events[1])
    assert list(shown) == [*(key for key in real if key not in ("event", "log_level")), "event", "level", "timestamp"]
    assert (shown["source"], shown["fsm_event"], shown["event"]) == ("VALIDATE", "accepted", "fsm.transition")
    assert [guard["name"] for guard in shown["guards"]] == [guard["name"] for guard in real["guards"]]
    assert [list(guard) for guard in shown["guards"]] == [list(guard) for guard in real["guards"]]


@pytest.mark.parametrize("name", READMES)
def test_the_demo_prints_what_the_page_shows(name: str) -> None:
    """The lines shown for `make demo` are lines of the demo, when the model does what it should."""
    shown = next(block.text for block in blocks_of(TEXTS[name]) if block.language == "text")
    script = [
        call("query_order", order_id="SO-2024-001"),
        call("query_order", order_id="SO-2024-002"),
        call("calculator", expression="129.90 + 45.00", precision=2),
        call("write_file", path="total.txt", content="174.9"),
        "174.9",
    ]
    with server(script) as model:
        done = fsm("demo", "--base-url", model.base_url)
    assert set(shown.splitlines()) <= set(done.err.splitlines())


def test_the_certificate_begins_as_the_page_shows() -> None:
    """The lines shown for `fsm-agent verify --max-steps 5` are its first, whatever time it took."""
    shown = next(one.text for one in blocks_of(TEXTS[REFERENCE]) if one.text.startswith("verified: "))
    printed = str(Agent(ScriptedModel([]), limits=Limits(max_steps=5)).verify())
    untimed = [re.sub(r", [\d.]+ s$", "", text, flags=re.MULTILINE) for text in (printed, shown)]
    assert untimed[0].startswith(untimed[1])


# ---------------------------------------------------------------- what is claimed


def weather(city: str) -> str:
    """Current weather in a city."""
    return f"{city}: 21 °C, sunny"


def broken(city: str) -> str:
    """A tool that raises."""
    raise RuntimeError(city)


CUT = Call("weather", '{"city": "Os')


@pytest.mark.parametrize(
    ("script", "tool", "reason", "model_calls", "ran"),
    [
        pytest.param(
            [forever(call("weather", city="Oslo"))], weather, StopReason.REPEATED_ACTION, 4, 2, id="same call"
        ),
        pytest.param(
            [call("broken", city="Oslo"), "No."], broken, StopReason.ANSWERED, 2, 2, id="exception, tried twice"
        ),
        pytest.param([Call("weather", '{"city": "Oslo",}'), "21"], weather, StopReason.ANSWERED, 2, 1, id="comma"),
        pytest.param(
            [Call("weather", '```json\n{"city": "Oslo"}\n```'), "21"], weather, StopReason.ANSWERED, 2, 1, id="fence"
        ),
        pytest.param([reply("", CUT, finish_reason="length"), "21"], weather, StopReason.ANSWERED, 2, 0, id="cut off"),
        pytest.param([Call("weather", '["Oslo"]'), "21"], weather, StopReason.ANSWERED, 2, 0, id="array"),
        pytest.param([forever("")], weather, StopReason.EMPTY_REPLY, 3, 0, id="empty"),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_what_the_first_table_says_of_this_engine(
    script: list[object], tool: Any, reason: StopReason, model_calls: int, ran: int
) -> None:
    """Each line under "What goes wrong without" is a run: how it ends, how often the model is asked, how often the tool runs."""
    with server(script) as model:
        agent = Agent("openai:fake", [tool], base_url=model.base_url, limits=Limits(backoff=0), logger=silent_logger())
        *_, result = agent.stream("How warm is it in Oslo?")
    assert (result.reason, result.model_calls, result.tool_calls) == (reason, model_calls, ran)


@pytest.mark.parametrize(("name", "heading"), [(REFERENCE, "word"), (REFERENCE_ZH, "词")])
def test_the_words_name_every_state_that_is_terminal(name: str, heading: str) -> None:
    """The glossary counts the states and names the ends."""
    assert len(State) == 10
    ends = {state.value for state in State} - {row.source.value for row in TABLE}
    assert set(re.findall(r"[A-Z]{2,}", rows_of(TEXTS[name], heading)[0][1])) == ends


@pytest.mark.parametrize(("readme", "reference"), [(ENGLISH, REFERENCE), (CHINESE, REFERENCE_ZH)])
def test_the_readme_shows_what_the_reference_measured(readme: str, reference: str) -> None:
    """The tables of the README are columns of those of the reference (mend them: `python -m tests.readme_parts`)."""
    assert TEXTS[readme] == measured(TEXTS[readme], TEXTS[reference])
    for name in MEASURED:
        assert len(part_of(TEXTS[readme], name).splitlines()) > 2


def test_both_languages_measured_the_same() -> None:
    """Each measured table of the reference has the same figures in both languages."""
    for name in ("reliability", "bfcl", "memory", "local", "speed"):
        pages = [re.findall(r"^\|.*", part_of(TEXTS[page], name), re.MULTILINE)[2:] for page in REFERENCES]
        here, there = ([re.findall(r"\d[\d,.]*", row) for row in rows] for rows in pages)
        assert here == there != []
