"""One directory, and what is done in it by name: by descriptor where the platform has `openat`, else by path."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from fsm_agent.tools.plain import well_formed

__all__ = ["Directory", "Entry", "directory_at", "named", "opened"]

_MAX_SCANNED: Final = 10_000
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_CLOSE: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_HAS_OPENAT: Final = {os.open, os.stat, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd and bool(_NO_FOLLOW)


@dataclass(frozen=True)
class Entry:
    """A name in a directory. `kind` is file, directory, link or other; `size` is bytes of a file, else 0."""

    name: str
    kind: str
    size: int


class Directory(Protocol):
    """One directory on the way, and what is done in it by name."""

    def enter(self, name: str) -> Directory:
        """The directory `name` in this one; a link is not followed (OSError)."""

    def make(self, name: str) -> None:
        """Make the directory `name`."""

    def stat(self, name: str) -> os.stat_result:
        """What `name` is itself, links not followed."""

    def open(self, name: str, flags: int) -> int:
        """A descriptor for the file `name`; where the platform can, a link is refused."""

    def replace(self, source: str, target: str) -> None:
        """Put the file `source` in the place of `target`."""

    def discard(self, name: str) -> None:
        """Remove the file `name`, if it is there."""

    def entries(self) -> list[Entry]:
        """What is in it, at most 10,000 names, in no order."""

    def close(self) -> None:
        """Give back what it holds open."""


class _Opened:
    """A directory by its descriptor: it stays the same one, whatever becomes of its path."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def enter(self, name: str) -> _Opened:
        return _Opened(os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW | _CLOSE, dir_fd=self._fd))

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._fd)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | _NO_FOLLOW | _CLOSE, 0o666, dir_fd=self._fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def discard(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._fd)
        except OSError:  # it was never made, or has been put in place
            pass

    def entries(self) -> list[Entry]:
        with os.scandir(self._fd) as found:
            return [_entry(one) for one in islice(found, _MAX_SCANNED)]

    def close(self) -> None:
        os.close(self._fd)


class _Named:
    """A directory by its path, for systems without `openat`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self, name: str) -> _Named:
        if not stat.S_ISDIR(self.stat(name).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return _Named(self._path / name)

    def make(self, name: str) -> None:
        (self._path / name).mkdir()

    def stat(self, name: str) -> os.stat_result:
        return (self._path / name).lstat()

    def open(self, name: str, flags: int) -> int:
        return os.open(self._path / name, flags | _NO_FOLLOW | _CLOSE, 0o666)

    def replace(self, source: str, target: str) -> None:
        (self._path / source).replace(self._path / target)

    def discard(self, name: str) -> None:
        try:
            (self._path / name).unlink()
        except OSError:  # it was never made, or has been put in place
            pass

    def entries(self) -> list[Entry]:
        with os.scandir(self._path) as found:
            return [_entry(one) for one in islice(found, _MAX_SCANNED)]

    def close(self) -> None:
        """A path holds nothing open."""


def _entry(found: os.DirEntry[str]) -> Entry:
    name = well_formed(found.name)
    try:
        mode = found.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return Entry(name, "other", 0)
    for test, kind in ((stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"), (stat.S_ISREG, "file")):
        if test(mode.st_mode):
            return Entry(name, kind, mode.st_size if kind == "file" else 0)
    return Entry(name, "other", 0)


def opened(path: Path) -> Directory:
    """The directory at `path` by its descriptor: links below it are never followed, even ones made meanwhile."""
    return _Opened(os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOSE))


def named(path: Path) -> Directory:
    """The directory at `path` by its path: links are looked for before each use."""
    if not path.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return _Named(path)


directory_at: Final = opened if _HAS_OPENAT else named
"""The safer one of the two on this platform."""
