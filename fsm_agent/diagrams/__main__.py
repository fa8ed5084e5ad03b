"""`python -m fsm_agent.diagrams [--check]`: write `diagrams/` anew, or only compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from fsm_agent.diagrams.reference import FOLDER, files
from fsm_agent.errors import DefinitionError

__all__ = ["main"]

_USAGE: Final = "usage: python -m fsm_agent.diagrams [--check], in the root of the repository\n"


def main(arguments: Sequence[str] = ()) -> int:
    """Write the files; with `--check` only compare them. 0: done, or all alike; 1: some differ; 2: wrong use."""
    if list(arguments) not in ([], ["--check"]) or not FOLDER.is_dir():
        sys.stderr.write(_USAGE)
        return 2
    try:
        contents = files()
    except DefinitionError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    stale = [name for name, text in contents.items() if not _same(name, text)]
    if not arguments:
        for name in stale:
            (FOLDER / name).write_text(contents[name], encoding="utf-8", newline="\n")
        return 0
    for name in stale:
        sys.stderr.write(f"{FOLDER / name} is not what the table gives: run python -m fsm_agent.diagrams\n")
    return 1 if stale else 0


def _same(name: str, text: str) -> bool:
    path = FOLDER / name
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
