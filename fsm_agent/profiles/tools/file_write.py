"""`file_write`: a text file below a root, and a temporary file where that keeps failing."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from fsm_agent.tools.confined import MAX_PATH_CHARS, Root
from fsm_agent.tools.spec import Tool, tool

__all__ = ["file_write"]

_NAME: Final = 40
_Path = Annotated[
    str,
    Field(description="Relative to the root, with /.", max_length=MAX_PATH_CHARS, examples=["notes/today.txt"]),
]


def file_write(root: str | os.PathLike[str] | None = None) -> Tool:
    """`file_write(path, content)` below `root`, by default the current directory.

    Absolute paths, `..`, and whatever resolves outside the root are refused; links are not followed. A failure that a retry may mend is
    tried once more. Its fallback writes to a new temporary file and says where. Raises `ToolDefinitionError` when there is no such root.
    """
    place = Root(Path.cwd() if root is None else root)

    @tool("write_temporary_file", retry=0)
    def write_temporary(path: _Path, content: str) -> str:
        """Write text to a new temporary file; path gives the end of its name."""
        wanted = re.sub(r"[^\w.-]", "_", path.rpartition("/")[2])[-_NAME:] or "file"
        folder = Root(tempfile.gettempdir())
        name = f"file_write-{secrets.token_hex(8)}-{wanted}"
        folder.write(name, content.encode())
        return f"Wrote {len(content)} characters to the temporary file {folder.path / name} instead of {path}."

    @tool(
        "file_write",
        idempotent=True,
        exclusive=True,
        retry=1,
        fallback=write_temporary,
        not_for="adding to a file; it replaces the whole content",
    )
    def write(path: _Path, content: str) -> str:
        """Write text to a file (UTF-8), replacing what it held. Missing directories are made."""
        place.write(path, content.encode())
        return f"Wrote {len(content)} characters to {path}."

    return write
