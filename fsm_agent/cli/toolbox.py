"""The tools of a command: from Python, from a directory, or the default."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeGuard

from fsm_agent.errors import DefinitionError, ToolDefinitionError
from fsm_agent.profiles import profile as profile_named
from fsm_agent.table import TABLE, Row, Table
from fsm_agent.tools.builtin import calculator, files
from fsm_agent.tools.registry import Registry
from fsm_agent.tools.spec import Tool

__all__ = ["error_line", "load", "rows_of", "table_of", "toolbox"]


_WRITERS: Final = frozenset({"write_file", "file_write"})


def toolbox(specs: Sequence[str] | None, directory: Path | None, profile: str | None = None) -> Registry:
    """The tools that `--tools` and `--files` ask for; when no `--tools` do, those of the profile, else the calculator.

    A profile whose tools work in a directory gets `directory`; beside any others it adds the file tools. What writes files asks a person.
    Raises `ToolDefinitionError` for what cannot be imported, found, or used as a tool.
    """
    loaded = [load(spec) for spec in specs or ()]
    if len(loaded) == 1 and isinstance(loaded[0], Registry) and directory is None:
        return loaded[0]
    tools: list[Any] = [one for source in loaded for one in _several(source)]
    chosen = None if profile is None or specs else profile_named(profile)
    if chosen is not None:
        tools.extend(chosen.tools(directory if chosen.folder else None))
    elif not specs:
        tools.append(calculator)
    if directory is not None and not (chosen is not None and chosen.folder):
        tools.extend(files(directory))
    return Registry(_asking(one) if _writes(one) else one for one in tools)


def _writes(one: Any) -> TypeGuard[Tool]:
    return isinstance(one, Tool) and one.name in _WRITERS and one.requires_approval is False


def _asking(one: Tool) -> Tool:
    """`one` and its fallback, each needing a person's approval."""
    backup = replace(one.fallback, requires_approval=True) if isinstance(one.fallback, Tool) else one.fallback
    return replace(one, requires_approval=True, fallback=backup)


def _several(source: Any) -> Iterable[Any]:
    return source if isinstance(source, Registry | list | tuple) else (source,)


def load(spec: str, option: str = "--tools") -> Any:
    """What `module:attribute` names, or what it returns for `module:attribute()`. The current directory comes first.

    `option` is where the spec stands on the command line.

    Raises `ToolDefinitionError` that says which part is wrong.
    """
    module_name, colon, attribute = spec.partition(":")
    name = attribute.removesuffix("()")
    if not colon or not module_name or not name:
        raise ToolDefinitionError(f"{option} {spec!r}: write MODULE:ATTR, as in my_tools:search", tool=spec)
    found: Any = _module(module_name, spec, option)
    for part in name.split("."):
        if not hasattr(found, part):
            names = [one for one in vars(found) if not one.startswith("_")] if hasattr(found, "__dict__") else []
            raise ToolDefinitionError(
                f"{option} {spec!r}: {module_name} has no {name}; it has {', '.join(names)}", tool=spec
            )
        found = getattr(found, part)
    if attribute.endswith("()"):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise ToolDefinitionError(
                f"{option} {spec!r}: calling it failed: {error_line(error)}", tool=spec
            ) from error
    return found


def table_of(spec: str | None) -> Table | None:
    """The table that `--table` names, None without one. Raises `DefinitionError` for what cannot be imported or is no table."""
    if spec is None:
        return None
    found = load(spec, "--table")
    if not isinstance(found, Table):
        raise DefinitionError(
            f"--table {spec!r} is a {type(found).__name__}: name what fsm_agent.table.extend returned"
        )
    return found


def rows_of(spec: str | None) -> Sequence[Row]:
    """The rows that `--table` names, by default the built-in ones. Raises as `table_of`."""
    found = table_of(spec)
    return TABLE if found is None else found


def _module(name: str, spec: str, option: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    file = Path(os.path.normpath(Path(here, name.removesuffix(".py"))))
    dotted = ".".join(file.relative_to(here).parts) if file.is_relative_to(here) else ""
    hint = f", neither installed nor in {here}" if dotted in ("", name) else f"; write {dotted}:..."
    missing = ToolDefinitionError(f"{option} {spec!r}: there is no module {name}{hint}", tool=spec)
    if name.startswith("."):
        raise missing
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ToolDefinitionError(
                f"{option} {spec!r}: importing it failed: {error_line(error)}", tool=spec
            ) from error
        raise missing from error
    except (Exception, SystemExit) as error:  # a script ends the program, with an exit code that would pass for a run's
        raise ToolDefinitionError(f"{option} {spec!r}: importing it failed: {error_line(error)}", tool=spec) from error


def error_line(error: BaseException) -> str:
    """An exception of a user's own code, on one line of ours."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
