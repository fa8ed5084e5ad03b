"""Files that are there whole or not at all, also after the power was cut."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

__all__ = ["make_folder", "place_bytes", "place_new", "sync", "sync_folder"]

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


def place_new(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make the file `path`, whole and durable, with what `fill` writes into another name first; False when it exists by then.

    Raises `OSError`, and what `fill` raises; then there is no `path`.
    """
    draft = path.with_name(f".{path.name[:40]}.{os.getpid()}-{uuid.uuid4().hex[:12]}.new")
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
