"""`fsm-agent run --profile NAME --example`: the task that a profile brings along, and the check of what came out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from fsm_agent.cli.console import err
from fsm_agent.demo import Check, numbers_in
from fsm_agent.errors import DefinitionError
from fsm_agent.language import Language
from fsm_agent.profiles import Example, profile
from fsm_agent.records import RunResult
from fsm_agent.tools.registry import Registry
from fsm_agent.visible import safe

__all__ = ["example_of", "example_task", "example_tools", "say_checks", "say_whether_right", "workplace"]

_SHOWN = 200


def example_of(name: str | None) -> Example:
    """The example of a profile. Raises `DefinitionError` without one."""
    if name is None:
        raise DefinitionError("--example runs the task that a profile brings along; name one with --profile NAME")
    return profile(name).example


def example_task(name: str | None, task: str | None, language: Language | None) -> str:
    """Its task. Raises `DefinitionError` for a task beside it, and without a profile."""
    if task is not None:
        raise DefinitionError("--example has a task of its own; leave TASK out, or --example")
    return example_of(name).tasks[language or "en"]


@contextmanager
def workplace(files: Path | None) -> Iterator[Path]:
    """The directory that the example works in: what `--files` says, else a temporary one."""
    if files is not None:
        yield files
        return
    with TemporaryDirectory() as place:
        yield Path(place)


def example_tools(name: str, folder: Path) -> Registry:
    """The tools of the example. Nobody is asked: they work in its own directory only."""
    chosen = profile(name)
    if chosen.example.tools is not None:
        return Registry(chosen.example.tools(None))
    return Registry(chosen.tools(folder if chosen.example.files else None))


def say_whether_right(example: Example, result: RunResult, folder: Path) -> bool:
    """Say of each thing that the example must come to whether it did."""
    answer = result.answer or ""
    checks = [
        Check(f"the answer says {wanted}", _says(answer, wanted), answer or "no answer") for wanted in example.answer
    ]
    for name, wanted in example.files.items():
        written = _content(folder / name)
        right = written is not None and written.strip() == wanted
        checks.append(Check(f"{name} holds {wanted!r}", right, written or "no such file"))
    return say_checks(checks)


def say_checks(checks: Sequence[Check]) -> bool:
    """Say of each whether it holds, and what was found where it does not. True when all do."""
    for one in checks:
        mark = ("right: ", "bold green") if one.holds else ("wrong: ", "bold red")
        err().print(Text.assemble(mark, one.what if one.holds else f"{one.what}; found: {safe(one.found)[:_SHOWN]}"))
    return all(one.holds for one in checks)


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _says(answer: str, wanted: str) -> bool:
    """Whether `answer` holds the words, or the number however it is written."""
    if re.fullmatch(r"\d+(?:\.\d+)?", wanted):
        return Decimal(wanted) in numbers_in(answer)
    return wanted.casefold() in answer.casefold()
