"""Files below one directory, and nothing else, for paths that a model wrote.

Where the platform has `openat`, every component is opened relative to the directory before it and symbolic links are
never followed, so that no rename or link made meanwhile leads outside. Elsewhere each component is looked at before it
is used, which leaves a race to whoever can make links below the root.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools.call import ToolRefusal
from fsm_agent.tools.directory import Directory, Entry, directory_at
from fsm_agent.tools.plain import well_formed

__all__ = ["Entry", "Root", "parts_of"]

MAX_PATH_CHARS: Final = 1_024
_MAX_NAME_BYTES: Final = 255
_MAX_PARTS: Final = 32
_DIRECTIONS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
_WINDOWS: Final = os.name == "nt"
_DEVICES: Final = frozenset(
    {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(10))}
)


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a relative path; empty for the root itself.

    Raises:
        ToolRefusal: It is absolute, climbs (`..`, also in look-alike characters), or holds what no name may: NUL and
            other control characters, a backslash, text-direction marks, half characters; or it is too long.
    """
    if len(path) > MAX_PATH_CHARS:
        raise ToolRefusal(f"the path has {len(path)} characters, at most {MAX_PATH_CHARS} are accepted")
    if path.startswith(("/", "~")) or path[1:2] == ":" or "://" in path:
        raise ToolRefusal(f"{_shown(path)} is not relative; give a path below the root, such as notes/today.txt")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if len(parts) > _MAX_PARTS:
        raise ToolRefusal(f"the path has {len(parts)} parts, at most {_MAX_PARTS} are accepted")
    for part in parts:
        _check_name(part, path)
    return parts


def _check_name(name: str, path: str) -> None:
    folded = unicodedata.normalize("NFKC", name)
    if folded in (".", "..") or "/" in folded:
        raise ToolRefusal(f'{_shown(path)} leaves the root; ".." is not allowed')
    forbidden = "\\:" if _WINDOWS else "\\"
    if any(char in forbidden or char in _DIRECTIONS or unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise ToolRefusal(f"{_shown(path)} holds a character that no file name may have here")
    device = name.partition(".")[0].rstrip().upper()
    if "\\" in folded or (_WINDOWS and (name != name.rstrip(". ") or device in _DEVICES)):
        raise ToolRefusal(f"{_shown(path)} is not a portable file name")
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise ToolRefusal(f"a name in the path is longer than {_MAX_NAME_BYTES} bytes")


def _shown(path: str) -> str:
    return ascii(well_formed(path[:80]))


class Root:
    """A directory that paths cannot leave. `max_bytes` bounds what is read or written at once.

    Raises:
        ToolDefinitionError: There is no such directory.
    """

    def __init__(self, root: str | os.PathLike[str], *, max_bytes: int = 1_000_000) -> None:
        self.path = Path(root).resolve()
        self.max_bytes = max_bytes
        if not self.path.is_dir():
            raise ToolDefinitionError(f"the root {os.fspath(root)!r} is not a directory; create it first")

    def read(self, path: str, first_line: int = 1) -> tuple[bytes, int, int]:
        """(bytes from a line on, at most `max_bytes`; size of the whole file; number of the next line, 0 at the end).

        Raises:
            ToolRefusal: See `parts_of`; or there is no regular file at `path`.
            OSError: The system could not.
        """
        with self._parent(path) as (directory, name), _open_regular(directory, name, path) as file:
            size = os.fstat(file.fileno()).st_size
            for _ in range(first_line - 1):
                if not _skip_line(file):
                    return b"", size, 0
            data = file.read(self.max_bytes)
            if not file.read(1):
                return data, size, 0
            whole = data[: data.rfind(b"\n") + 1]
            return (whole, size, first_line + whole.count(b"\n")) if whole else (data, size, first_line + 1)

    def write(self, path: str, data: bytes) -> None:
        """Replace the file at `path` in one step, making directories on the way; readers see the old or the new one.

        Raises:
            ToolRefusal: See `parts_of`; or `path` is something else than a regular file, or `data` is too large.
            OSError: The system could not.
        """
        if len(data) > self.max_bytes:
            raise ToolRefusal(f"{len(data)} bytes are too many, at most {self.max_bytes} are written")
        with self._parent(path, create=True) as (directory, name):
            mode = _mode_of_regular(directory, name, path, missing=True)
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                with os.fdopen(directory.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                    if mode is not None and hasattr(os, "fchmod"):
                        os.fchmod(file.fileno(), stat.S_IMODE(mode))
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                directory.replace(temporary, name)
            except BaseException:
                directory.discard(temporary)
                raise

    def entries(self, path: str = "") -> list[Entry]:
        """What is in a directory, sorted by name; of more than 10,000 names an arbitrary 10,000.

        Raises:
            ToolRefusal: See `parts_of`; or there is no directory at `path`.
            OSError: The system could not.
        """
        with self._directory(parts_of(path), path) as directory:
            return sorted(directory.entries(), key=lambda entry: entry.name)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[Directory, str]]:
        parts = parts_of(path)
        if not parts:
            raise ToolRefusal("the path is empty; give the path of a file below the root")
        with self._directory(parts[:-1], path, create=create) as directory:
            yield directory, parts[-1]

    @contextmanager
    def _directory(self, parts: tuple[str, ...], path: str, *, create: bool = False) -> Iterator[Directory]:
        try:
            directory: Directory = directory_at(self.path)
        except OSError as error:
            raise OSError(error.errno, "the root directory cannot be opened") from None
        try:
            for part in parts:
                inner = _entered(directory, part, path, create=create)
                directory.close()
                directory = inner
            yield directory
        except OSError as error:  # its own file name may tell where the root is
            raise type(error)(error.errno, error.strerror, path[:80]) from None
        finally:
            directory.close()


def _entered(directory: Directory, name: str, path: str, *, create: bool) -> Directory:
    if create:
        try:
            directory.make(name)
        except FileExistsError:
            pass  # a directory is what is wanted; anything else is refused on entering
    try:
        return directory.enter(name)
    except FileNotFoundError:
        raise ToolRefusal(f"{_shown(path)} does not exist") from None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise ToolRefusal(f"{name!a} in {_shown(path)} is not a directory (links are not followed)") from None


def _mode_of_regular(directory: Directory, name: str, path: str, *, missing: bool = False) -> int | None:
    try:
        mode = directory.stat(name).st_mode
    except FileNotFoundError:
        if missing:
            return None
        raise ToolRefusal(f"{_shown(path)} does not exist") from None
    if stat.S_ISDIR(mode):
        raise ToolRefusal(f"{_shown(path)} is a directory, not a file")
    if not stat.S_ISREG(mode):
        raise ToolRefusal(f"{_shown(path)} is not a regular file (links, devices and pipes are not opened)")
    return mode


@contextmanager
def _open_regular(directory: Directory, name: str, path: str) -> Iterator[BinaryIO]:
    """Open for reading what is a regular file before and after the opening (to open a device is to use it)."""
    _mode_of_regular(directory, name, path)
    try:
        descriptor = directory.open(name, os.O_RDONLY | _NO_WAIT)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.ENOENT):
            raise
        raise ToolRefusal(f"{_shown(path)} was changed while it was opened") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolRefusal(f"{_shown(path)} was changed while it was opened")
        yield file


def _skip_line(file: BinaryIO) -> bool:
    """Read to the end of a line in bounded pieces; False at the end of the file."""
    while piece := file.readline(65_536):
        if piece.endswith(b"\n"):
            return True
    return False
