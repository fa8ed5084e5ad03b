"""What the pages take from the code. `python -m tests.readme_parts` writes it into all of them, after a change of table, limits or example.

The README has the picture, the reference has the tables, and of those that were measured the README shows the columns that say most.
The examples are written in the English pages; each Chinese one gets its code, commands and output from there, letter for letter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fsm_agent.diagrams import diagram as drawn
from fsm_agent.limits import Limits
from tests.cli.kit import fsm

ROOT: Final = Path(__file__).resolve().parents[1]
ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
REFERENCE, REFERENCE_ZH = "REFERENCE.md", "REFERENCE.zh-CN.md"
PAIRS: Final = ((ENGLISH, CHINESE), (REFERENCE, REFERENCE_ZH))
MEASURED: Final = {
    "reliability": (0, 1, 2, 3, 4, 6, 7),
    "bfcl": (0, 1, 2, 3, 5, 6, 7),
    "local": (0, 1, 7, 9),
    "speed": (0, 1, 2, 3, 4, 5),
}
"""The columns that a README shows of a measured table of the reference, by the part in which it stands in both."""
FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def diagram() -> str:
    """The picture at the top."""
    return drawn(detail="events")


def table() -> str:
    """What `fsm-agent table` prints in a terminal of 100 columns, without the spaces at the ends of lines."""
    printed = fsm("table", env={"COLUMNS": "100"}).out.strip("\n")
    told = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
    return f"```text\n{told}\n```\n"


def profiles_table() -> str:
    """What `fsm-agent profiles` prints in a terminal of 112 columns, without the spaces at the ends of lines."""
    printed = fsm("profiles", env={"COLUMNS": "112"}).out
    told = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
    return f"```text\n{told}\n```\n"


def limits() -> list[tuple[str, str, str]]:
    """Name, default and meaning of each limit, as cells of a Markdown table."""
    fields = Limits.model_fields.items()
    return [(f"`{name}`", f"`{_written(field.default)}`", field.description or "") for name, field in fields]


def _written(default: object) -> str:
    return "none" if default is None else str(default)


def filled(english: str) -> str:
    """An English page with those of diagram, table, limits and profiles that it shows, as the code has them."""
    rows = "".join(f"| {' | '.join(row)} |\n" for row in limits())
    english = _with_part(english, "limits", f"| limit | default | meaning |\n|---|---|---|\n{rows}")
    english = _with_part(english, "table", table())
    english = _with_part(english, "profiles", profiles_table())
    return re.sub(r"```mermaid\n.*?```", lambda _: f"```mermaid\n{diagram()}```", english, count=1, flags=re.DOTALL)


def measured(readme: str, reference: str) -> str:
    """A README with those columns of the measured tables that the reference in its language has."""
    for name, columns in MEASURED.items():
        rows = [line.split("|")[1:-1] for line in part_of(reference, name).splitlines() if line.startswith("|")]
        readme = _with_part(readme, name, "".join(f"|{'|'.join(row[one] for one in columns)}|\n" for row in rows))
    return readme


def part_of(page: str, name: str) -> str:
    """What stands between `<!-- name -->` and `<!-- /name -->`."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)
    assert found is not None, f"there is no part <!-- {name} -->"
    return found[1]


def _with_part(page: str, name: str, text: str) -> str:
    marks = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(marks, lambda found: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)


def translated(chinese: str, english: str) -> str:
    """The Chinese page with the fenced blocks of the English one. Raises `ValueError` when it has not as many."""
    blocks = [found[0] for found in FENCED.finditer(english)]
    if len(blocks) != len(FENCED.findall(chinese)):
        raise ValueError(
            f"the pages differ in their fenced blocks: give the Chinese one {len(blocks)}, empty ones will do"
        )
    rest = iter(blocks)
    return FENCED.sub(lambda _: next(rest), chinese)


def main() -> None:
    """Write both pages of each pair, then into each README what was measured."""
    for here, there in PAIRS:
        english = filled((ROOT / here).read_text(encoding="utf-8"))
        chinese = translated((ROOT / there).read_text(encoding="utf-8"), english)
        (ROOT / here).write_text(english, encoding="utf-8", newline="\n")
        (ROOT / there).write_text(chinese, encoding="utf-8", newline="\n")
    for readme, reference in zip(*PAIRS, strict=True):
        pages = [(ROOT / name).read_text(encoding="utf-8") for name in (readme, reference)]
        (ROOT / readme).write_text(measured(*pages), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
