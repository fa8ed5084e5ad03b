"""Files that are there whole or not at all, also after the power was cut."""

from __future__ import annotations

import os
import stat
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

__all__ = ["make_folder", "place_bytes", "place_new", "replace_bytes", "sync", "sync_folder"]

if sys.platform == "darwin":
    import fcntl

    def sync(descriptor: int) -> None:
        """Have what was written to `descriptor` on disk; `fsync` leaves it in the disk's cache there."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync(descriptor: int) -> None:
        """Have what was written to `descriptor` on disk."""
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk. Where folders cannot be opened (Windows) the system sees to that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it that are missing, durably."""
    missing = []
    while not folder.is_dir() and folder.parent != folder:
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def _draft(path: Path) -> Path:
    """A name beside `path` that nothing else has."""
    return path.with_name(f".{path.name[:40]}.{os.getpid()}-{uuid.uuid4().hex[:12]}.new")


def place_new(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make the file `path`, whole and durable, with what `fill` writes into another name first; False when it exists by then.

    Raises `OSError`, and what `fill` raises; then there is no `path`.
    """
    draft = _draft(path)
    try:
        fill(draft)
        descriptor = os.open(draft, os.O_RDWR)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if path.exists():
                return False
            draft.rename(path)
        sync_folder(path.parent)
        return True
    finally:
        draft.unlink(missing_ok=True)


def place_bytes(path: Path, data: bytes) -> bool:
    """As `place_new`, with these bytes."""

    def fill(draft: Path) -> None:
        draft.write_bytes(data)

    return place_new(path, fill)


def replace_bytes(path: Path, data: bytes) -> None:
    """Have `data` in the file `path`. A file that is there stays as it was until the new one is whole, and keeps its mode.

    In place is written what a new file cannot stand for: a device, a pipe, a link, a file of somebody else or with more
    names, and one in a folder that takes no new file.
    Raises `OSError`.
    """
    old = path.lstat() if os.path.lexists(path) else None
    if old is None or (stat.S_ISREG(old.st_mode) and old.st_nlink == 1 and os.access(path, os.W_OK)):
        draft = _draft(path)
        try:
            if _replaced(path, old, draft, data):
                return
        finally:
            draft.unlink(missing_ok=True)
    path.write_bytes(data)


def _replaced(path: Path, old: os.stat_result | None, draft: Path, data: bytes) -> bool:
    try:
        file = draft.open("xb")
    except PermissionError:
        return False
    with file:
        if old is not None:
            made = os.fstat(file.fileno())
            if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
                return False
            if made.st_mode != old.st_mode:
                draft.chmod(stat.S_IMODE(old.st_mode))
        file.write(data)
        file.flush()
        sync(file.fileno())
    draft.replace(path)
    return True
