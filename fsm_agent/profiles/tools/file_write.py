"""`file_write`: a text file below a root, and a temporary file where that keeps failing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fsm_agent.tools.confined import Root
from fsm_agent.tools.file_tools import FileContent, FilePath, new_name, writer
from fsm_agent.tools.spec import Tool, tool

__all__ = ["file_write"]


def file_write(root: str | os.PathLike[str] | None = None) -> Tool:
    """`file_write(path, content)` below `root`, by default the current directory.

    Absolute paths, `..`, and whatever resolves outside the root are refused; links are not followed. A failure that a retry may mend is
    tried once more. Its fallback writes to a new temporary file and says where. Raises `ToolDefinitionError` when there is no such root.
    """
    place = Root(Path.cwd() if root is None else root)

    @tool("write_temporary_file", retry=0)
    def write_temporary(path: FilePath, content: FileContent) -> str:
        """Write text to a new temporary file; path gives the end of its name."""
        folder = Root(tempfile.gettempdir())
        name = new_name("file_write", path)
        folder.write(name, content.encode())
        return f"Wrote {len(content)} characters to the temporary file {folder.path / name} instead of {path}."

    return writer(place, "file_write", retry=1, fallback=write_temporary)
