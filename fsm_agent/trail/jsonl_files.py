"""The files of one run in JSON Lines: names, locks, and bytes that are written whole or cut back."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsm_agent.errors import TrailDamaged, TrailError
from fsm_agent.trail.fences import checked_value
from fsm_agent.trail.files import make_folder, place_bytes, sync
from fsm_agent.trail.jsonl_lines import NOTHING, Kept, Noted, noted, scan

try:
    import fcntl
except ImportError:  # Windows: JsonLinesTrail is refused there
    fcntl = None  # type: ignore[assignment]  # as the line above says

__all__ = ["LOCKS", "RunFiles", "file_name"]

LOCKS: Final = fcntl is not None
"""Whether this system can lock files."""

_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_OTHER: Final = re.compile(r"[^a-z0-9_-]+")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_POLL: Final = 0.005
_ADVICE: Final = (
    "nothing was changed. Put back a copy, or cut back to the newest whole entry with `JsonLinesTrail.repair`"
)


def file_name(run_id: str) -> str:
    """The name of a run's files: its id where that is a plain lower-case word, else some of it and a hash that no other has."""
    if _PLAIN.fullmatch(run_id):
        return run_id
    readable = _OTHER.sub("-", run_id.lower())[:40].strip("-")
    return f"{readable}~{hashlib.sha256(run_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of `run_id` in `directory`. `patience` is how many seconds to wait for a lock. Methods raise `OSError` as it comes."""

    directory: Path
    run_id: str
    patience: float

    @property
    def path(self) -> Path:
        """The entries."""
        return self.directory / f"{file_name(self.run_id)}.jsonl"

    @property
    def head(self) -> Path:
        """How far the entries were written."""
        return self.path.with_suffix(".head")

    @property
    def values(self) -> Path:
        """The folder of large values."""
        return self.path.with_suffix(".values")

    # ------------------------------------------------------------ locks

    @contextmanager
    def open(self, *, write: bool) -> Iterator[int | None]:
        """A descriptor of the entries, locked for reading or for writing; None when there is no such file."""
        try:
            descriptor = os.open(self.path, (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            self._lock(descriptor, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, kind: int) -> None:
        end = time.monotonic() + self.patience
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    said = (
                        f"{self.path} has been locked by another process for {self.patience:g} s; nothing was written"
                    )
                    raise TrailError(said) from None
                time.sleep(_POLL)
            else:
                return

    # ------------------------------------------------------------ reading

    def scan(self, descriptor: int | None) -> Kept:
        """What is kept, with a `fault` where it is not as it was written; NOTHING when there is no such run."""
        noted_before = self._noted()
        if descriptor is None:
            if noted_before is None:
                return NOTHING
            return Kept(fault=f"is gone, with the whole file; to begin anew remove {self.head.name} too")
        size = os.fstat(descriptor).st_size
        return self._checked(scan(os.pread(descriptor, size, 0), self.run_id), noted_before)

    def kept(self, descriptor: int | None) -> Kept:
        """What is kept; NOTHING when there is no such run. Raises `TrailDamaged` naming the first entry that is not as it was written."""
        found = self.scan(descriptor)
        if found.fault:
            raise TrailDamaged(f"{found.fault} ({self.path}); {_ADVICE}", run_id=self.run_id, seq=found.seq)
        return found

    def _noted(self) -> bytes | None:
        try:
            return self.head.read_bytes()
        except FileNotFoundError:
            return None

    def _checked(self, kept: Kept, data: bytes | None) -> Kept:
        if kept.fault:
            return kept
        if data is None:
            # The file is made before the note beside it.
            fault = "" if len(kept.ends) == 1 else f"may not be the newest: {self.head.name} is gone"
            return kept.faulty(fault, len(kept.entries) - 1)
        known = noted(data)
        if known is None:
            return kept.faulty(
                f"may not be the newest: {self.head.name} is not as it was written", len(kept.entries) - 1
            )
        # Of another size, but with every append there: an entry was changed, and which one its seal tells.
        if known.check not in [check for _, check in kept.ends]:
            return kept.faulty(
                "was taken out, or what was written about the run after it", min(len(kept.entries), known.entries)
            )
        return kept

    def lost(self, entries: int) -> int:
        """How many entries were acknowledged beyond the first `entries`, as far as the note beside the file tells."""
        known = noted(self._noted() or b"")
        return 0 if known is None else max(0, known.entries - entries)

    def value(self, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when it is gone or its SHA-256 is not `digest`."""
        found = None
        if _DIGEST.fullmatch(digest):
            with suppress(FileNotFoundError):
                found = (self.values / digest).read_bytes()
        return checked_value(found, self.run_id, digest)

    # ------------------------------------------------------------ writing

    def keep_values(self, values: Mapping[str, bytes]) -> None:
        """Keep large values, durably. Raises `TrailError` for a name that is no SHA-256."""
        for digest, value in values.items():
            if not _DIGEST.fullmatch(digest):
                raise TrailError(f"a value of run {self.run_id!r} is named {digest!r}; give the SHA-256 of its bytes")
            make_folder(self.values)
            place_bytes(self.values / digest, value)

    def begin(self, lines: bytes) -> bool:
        """Make the file with its first lines, durably; False when it exists by then."""
        return place_bytes(self.path, lines)

    def add(self, descriptor: int, lines: bytes, size: int) -> None:
        """Write `lines` behind the first `size` bytes, all or, when that fails, none of them. Not durable before `sync`."""
        try:
            if os.write(descriptor, lines) != len(lines):
                raise TrailError(
                    f"{self.path} could be written in part only: look for space on the disk. Nothing was kept"
                )
        except BaseException:
            self.cut(descriptor, size)
            raise

    def cut(self, descriptor: int, size: int) -> None:
        """Cut the file back to `size` bytes."""
        os.ftruncate(descriptor, size)
        sync(descriptor)

    def note(self, known: Noted) -> None:
        """Note how far the file is written and durable. The note is overwritten in place, so that it is never empty."""
        line = known.line()
        try:
            descriptor = os.open(self.head, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            place_bytes(self.head, line)
            return
        try:
            os.pwrite(descriptor, line, 0)
            os.ftruncate(descriptor, len(line))
        finally:
            os.close(descriptor)
