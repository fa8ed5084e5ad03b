"""What is asked of one run at once, in JSON Lines: checked against what its file says, and written with one write and one sync."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from fsm_agent.errors import RunError, TrailError
from fsm_agent.trail.fences import info_after_batch, info_after_claim
from fsm_agent.trail.files import make_folder, sync
from fsm_agent.trail.jsonl_files import RunFiles
from fsm_agent.trail.jsonl_lines import Kept, Noted, batch_lines
from fsm_agent.trail.store import Batch, Claim, RunInfo

__all__ = ["Turn"]


class Turn:
    """One turn of writing to a run: `write`, and once the other runs have written too, `finish`. Both raise `OSError` and `RunError`.

    `answers` has for each that asked None, the claimed run, or the `RunError` that refused it. `before` is the inode of the file and what
    was kept in it when it was last looked at; `after` is the same for the next turn, None when the file is to be read again.
    """

    def __init__(self, files: RunFiles, before: tuple[int, Kept] | None) -> None:
        self.files: Final = files
        self.answers: list[Any] = []
        self.after: tuple[int, Kept] | None = None
        self._before = before
        self._descriptor: int | None = None
        self._size = 0
        self._written: Noted | None = None

    def write(self, asked: Sequence[Batch | Claim], locks: ExitStack) -> None:
        """Write what is not refused. The file is locked until `locks` is closed."""
        self._descriptor = locks.enter_context(self.files.open(write=True))
        kept = self._kept()
        lines, info, check = self._lines(asked, kept)
        if not lines or info is None:
            return
        make_folder(self.files.directory)
        for one, answer in zip(asked, self.answers, strict=True):
            if isinstance(one, Batch) and answer is None:
                self.files.keep_values(one.values)
        self._size = kept.size
        if self._descriptor is not None:
            self.files.add(self._descriptor, lines, self._size)
        elif not self.files.begin(lines):
            self.write(asked, locks)  # another process has begun it in between
            return
        self._written = Noted(kept.size + len(lines), check, info.entries)
        if self._descriptor is not None and info.owner:
            now_kept = Kept(info=info, ends=((self._written.size, check),))
            self.after = (os.fstat(self._descriptor).st_ino, now_kept)

    def finish(self) -> None:
        """Have it on disk."""
        if self._written is None:
            return
        if self._descriptor is not None:
            try:
                sync(self._descriptor)
            except OSError:
                self.files.cut(self._descriptor, self._size)
                raise
        self.files.note(self._written)

    def _kept(self) -> Kept:
        if self._descriptor is not None and self._before is not None:
            found = os.fstat(self._descriptor)
            inode, kept = self._before
            if (found.st_ino, found.st_size) == (inode, kept.size):
                return kept
        return self.files.kept(self._descriptor)

    def _lines(self, asked: Sequence[Batch | Claim], kept: Kept) -> tuple[bytes, RunInfo | None, str]:
        self.answers.clear()
        lines, info, check = [], kept.info, kept.check
        for one in asked:
            try:
                after = info_after_batch(info, one) if isinstance(one, Batch) else info_after_claim(info, one)
                some, check = batch_lines(one.entries if isinstance(one, Batch) else (), after, check)
            except RunError as refusal:
                self.answers.append(refusal)
            except ValueError as error:
                self.answers.append(TrailError(f"a batch for run {one.run_id!r} cannot be written as JSON: {error}"))
            else:
                lines.append(some)
                info = after
                self.answers.append(None if isinstance(one, Batch) else after)
        return b"".join(lines), info, check
