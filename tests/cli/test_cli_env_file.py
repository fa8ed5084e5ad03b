"""The env file: what is read, what is refused, and what is never overridden."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.cli.env_file import load_env_file, parse_env
from fsm_agent.errors import DefinitionError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
LINES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1", {"A": "1"}),
        ("  export  A = 1  ", {"A": "1"}),
        ("A=1 # why\nB=2#3\nC=#4\nD= # 5", {"A": "1", "B": "2#3", "C": "", "D": ""}),
        ("# A=1\n\n  # B=2\r\nC=3\r\n", {"C": "3"}),
        ("A='x # y' # z\nB=\"x # y\"", {"A": "x # y", "B": "x # y"}),
        (r'A="a\tb\"c\\n\n"', {"A": 'a\tb"c\\n\n'}),
        (r"A='\n$B'", {"A": r"\n$B"}),
        ("A=b=c", {"A": "b=c"}),
        ("A=", {"A": ""}),
        ("A=1\nA=2", {"A": "2"}),
        ("\ufeffA=键", {"A": "键"}),
        ("A=it's", {"A": "it's"}),
        ("exported=1", {"exported": "1"}),
    ],
)
def test_the_forms_of_a_line(text: str, found: dict[str, str]) -> None:
    """Names, quotes, escapes, comments and `export` mean what shells and dotenv tools make of them."""
    assert parse_env(text) == found


@pytest.mark.parametrize(
    "line", ["A", "1A=2", "A B=3", "=4", "export A", "A='x", 'A="x', 'A="x\\"', "A='x' y", "A-B=1", "é=1"]
)
def test_a_bad_line_is_named_and_its_value_is_not(line: str) -> None:
    """The error says which line, and never shows what may be a key."""
    with pytest.raises(DefinitionError, match="my file, line 2: ") as caught:
        parse_env(f"OK=1\n{line}sk-secret-value", source="my file")
    assert "sk-secret" not in str(caught.value)


@given(st.dictionaries(NAMES, LINES, max_size=5))
def test_single_quotes_keep_everything(values: dict[str, str]) -> None:
    """What stands between single quotes is the value, letter for letter."""
    values = {name: text.replace("'", "") for name, text in values.items()}
    assert parse_env("\n".join(f"{name}='{text}'" for name, text in values.items())) == values


@given(NAMES, LINES)
def test_double_quotes_keep_what_is_escaped(name: str, text: str) -> None:
    """Backslash and quote, escaped, come back as they were."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_env(f'export {name}="{escaped}" # comment') == {name: text}


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Any text gives variables or a `DefinitionError`, nothing else."""
    try:
        found = parse_env(text)
    except DefinitionError:
        return
    assert all("=" not in name and name == name.strip() for name in found)


def test_what_is_set_stays(tmp_path: Path) -> None:
    """The environment wins over the file, but for what is empty there, which nobody set; the new names are returned."""
    file = tmp_path / "a.env"
    file.write_text("A=file\nB=file\nC=file\n", encoding="utf-8")
    environ = {"A": "set", "B": ""}
    assert load_env_file(file, environ) == ("B", "C")
    assert environ == {"A": "set", "B": "file", "C": "file"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a directory, or no text: the error says so and names the file."""
    binary = tmp_path / "b.env"
    binary.write_bytes(b"A=\xff\xfe")
    for path, why in ((tmp_path / "no.env", "No such file"), (tmp_path, "directory"), (binary, "not UTF-8")):
        with pytest.raises(DefinitionError, match=why) as caught:
            load_env_file(path, {})
        assert str(path) in str(caught.value)
