"""Text of a task, a model, a tool and a person as a command shows it: nothing in it steers a terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest

from fsm_agent.testing import call
from fsm_agent.visible import safe_json
from tests.cli.kit import fsm
from tests.cli.room import Room

EVIL = "a\u202egpj.exe\u202c \x1b[2Jb \x9b31mc \u2066d\u2069 \x07\x7f\U000e0041e"
"""Direction, escape sequences, invisible characters, in one line."""


def steering(text: str) -> set[str]:
    """The characters of `text` that a terminal does not just show."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in "\n\t"}


def hostile_runs(room: Room) -> tuple[str, str]:
    """A run that ended and one that was denied, in which everybody says EVIL."""
    done = room.run([call("send", to=EVIL), call(EVIL, x=1), f"It is {EVIL}."], "--approve", "yes", task=EVIL)
    assert done.code == 0
    assert steering(done.err) == set()
    room.run([call("send", to=EVIL)], task=EVIL)
    waiting, ended = room.ids()
    assert steering(room.on("show", waiting).out) == set()
    denied = room.on("deny", waiting, "--reason", EVIL, script=[f"No: {EVIL}."])
    assert steering(denied.err) == set()
    return ended, waiting


def test_no_command_prints_what_steers_a_terminal(room: Room) -> None:
    """Control and direction characters are written out in a pipe too: behind it is `head`, or a pager, at a terminal."""
    ended, denied = hostile_runs(room)
    for words in (
        *(("show", one, "--messages", "--unredacted") for one in (ended, denied)),
        *(("replay", one) for one in (ended, denied)),
        ("runs",),
        ("audit", "--all"),
        ("fork", ended, "--at", "2", "--run-id", EVIL, "--json"),
        ("show", EVIL),
        ("diff", ended, denied),
        ("diagram", "--run", ended),
        ("report", ended),
    ):
        done = fsm("--debug", *words, "--store", room.store)
        assert done.code == 0, done.err
        assert steering(done.out + done.err) == set(), words
    assert r"a\u202egpj.exe\u202c \x1b[2Jb \x9b31mc \u2066d\u2069" in room.on("show", ended).out


def test_a_document_of_hostile_text_is_json_and_harmless(room: Room) -> None:
    """--json escapes the same characters as JSON does: a program reads them as they were, a terminal shows them written out."""
    ended, _ = hostile_runs(room)
    shown = room.on("show", ended, "--json", "--messages", "--unredacted")
    assert steering(shown.out) == set()
    assert shown.document["task"] == EVIL
    assert shown.document["messages"][-1]["content"] == f"It is {EVIL}."


def test_an_error_is_told_without_what_steers_a_terminal(room: Room) -> None:
    """What a module of tools raises is shown written out, with its traceback too."""
    (room.folder / "broken.py").write_text(f"raise ValueError({EVIL!a})", encoding="utf-8")
    done = fsm("--debug", "tools", "--tools", "broken:x")
    assert done.code == 2
    assert "Traceback" in done.err
    assert steering(done.err) == set()


@pytest.mark.parametrize(
    "code", [*range(0x20), 0x7F, 0x85, 0x9B, 0xAD, 0x200E, 0x202E, 0x2028, 0x2066, 0xFEFF, 0xE0041]
)
def test_json_is_the_same_value_when_it_is_made_harmless(code: int) -> None:
    """Each control is a JSON escape, a character beyond 16 bits two of them."""
    text = json.dumps({"a": chr(code)}, ensure_ascii=False)
    assert json.loads(safe_json(text)) == {"a": chr(code)}
    assert steering(safe_json(text)) == set()
