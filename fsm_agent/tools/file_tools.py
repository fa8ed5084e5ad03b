"""`files(root)`: tools that read, write and list files below one directory."""

from __future__ import annotations

import os
import re
import secrets
from typing import Annotated, Final

from pydantic import Field

from fsm_agent.tools.confined import MAX_PATH_CHARS, Entry, Root
from fsm_agent.tools.spec import Tool, tool
from fsm_agent.visible import safe

__all__ = ["FileContent", "FilePath", "files", "new_name", "writer"]

_MAX_LISTED: Final = 500
_NAME: Final = 40

FilePath = Annotated[
    str,
    Field(description="Relative to the root, with /.", max_length=MAX_PATH_CHARS, examples=["notes/today.txt"]),
]
FileContent = Annotated[str, Field(description="The whole text of the file.")]
_Line = Annotated[int, Field(ge=1, description="First line to return.")]


def files(root: str | os.PathLike[str], *, max_bytes: int = 1_000_000) -> list[Tool]:
    """`[read_file, write_file, list_files]`, confined to `root`: no path leads out of it, and no link is followed.

    `max_bytes` bounds what one call reads or writes. `write_file` replaces a file in one step; when it keeps failing,
    its fallback writes the content to a new file `tmp-...` directly below the root and says where.

    Raises:
        ToolDefinitionError: `root` is not a directory.
    """
    place = Root(root, max_bytes=max_bytes)
    return [_reader(place), _writer(place), _lister(place)]


def _reader(place: Root) -> Tool:
    @tool(idempotent=True, not_for="directories; use list_files")
    def read_file(path: FilePath, start_line: _Line = 1) -> str:
        """Read a text file (UTF-8). Long files come in parts: the end of a part says where to go on."""
        data, size, next_line = place.read(path, start_line)
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if next_line:
            text += f"\n[not the end: the file has {size} bytes; go on with start_line={next_line}]"
        return text

    return read_file


def _writer(place: Root) -> Tool:
    @tool
    def write_temp_file(path: FilePath, content: FileContent) -> str:
        """Write text to a new file with a name of its own, directly below the root; path gives the end of that name."""
        name = new_name("tmp", path)
        place.write(name, content.encode())
        return f"Wrote {len(content)} characters to the new file {name} instead of {path}."

    return writer(place, "write_file", fallback=write_temp_file)


def new_name(beginning: str, path: str) -> str:
    """A name that no file has yet, without directories, which ends as `path` does."""
    wanted = re.sub(r"[^\w.-]", "_", path.rpartition("/")[2])[-_NAME:] or "file"
    return f"{beginning}-{secrets.token_hex(8)}-{wanted}"


def writer(place: Root, name: str, *, fallback: Tool, retry: int | None = None) -> Tool:
    """The tool `name(path, content)`, which writes below `place`."""

    @tool(
        name,
        idempotent=True,
        exclusive=True,
        retry=retry,
        fallback=fallback,
        not_for="adding to a file; it replaces the whole content",
    )
    def write(path: FilePath, content: FileContent) -> str:
        """Write text to a file (UTF-8), replacing what it held. Missing directories are made."""
        place.write(path, content.encode())
        return f"Wrote {len(content)} characters to {path}."

    return write


def _lister(place: Root) -> Tool:
    @tool(idempotent=True, not_for="reading a file; use read_file")
    def list_files(path: FilePath = "") -> str:
        """List one directory: names, a / after directories, sizes in bytes. An empty path is the root."""
        entries = place.entries(path)
        lines = [_line(one) for one in entries[:_MAX_LISTED]]
        if len(entries) > _MAX_LISTED:
            lines.append(f"[{len(entries) - _MAX_LISTED} more]")
        return "\n".join(lines) or "(empty)"

    return list_files


def _line(one: Entry) -> str:
    name = safe(one.name).replace("\n", "\\n")  # a name may hold line breaks, and pass for several
    if one.kind == "directory":
        return f"{name}/"
    return f"{name} ({one.size} bytes)" if one.kind == "file" else f"{name} ({one.kind}, not opened)"
