"""Trails as JSON Lines, one file a run: for reading with any tool, and for copying a run by its files.

What an `append` has acknowledged is on disk: one write and one sync of the run's file. What was not acknowledged is there whole or not at
all; when the power was cut in the middle of it, its torn lines are found, refused by name, and set aside by `repair`. Slower than SQLite
where many runs write at once, and every read reads the whole file.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from fsm_agent.errors import DefinitionError, RunError, TrailDamaged, TrailError
from fsm_agent.trail.entries import Stored
from fsm_agent.trail.fences import read_for_list, unknown_run_error
from fsm_agent.trail.files import place_bytes
from fsm_agent.trail.group_commit import GroupCommit, watch
from fsm_agent.trail.jsonl_files import LOCKS, RunFiles, file_name
from fsm_agent.trail.jsonl_lines import Kept, Noted
from fsm_agent.trail.jsonl_turn import Turn
from fsm_agent.trail.store import Batch, Claim, RunInfo

__all__ = ["JsonLinesTrail", "Repaired"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair` did: `entries` are left, `lost` acknowledged ones are not, the torn bytes are in `aside` (None: there were none)."""

    entries: int
    lost: int
    aside: Path | None


class JsonLinesTrail:
    """A `TrailStore` in the folder `directory`, which the first `append` makes. Safe from any thread and process of this machine.

    A run is `<name>.jsonl`, `<name>.head` beside it (how far it was written, so that a file that was cut at the end of a line is found
    out), and its large values in `<name>.values/`. Its file is locked (`flock`) while it is written or read; who holds the run, and until
    when, stands in it, with its status. `patience` is how many seconds to wait for a lock. Raises `DefinitionError` without `flock`
    (Windows).
    """

    def __init__(self, directory: str | Path, *, patience: float = 30.0) -> None:
        if not LOCKS:
            raise DefinitionError("JsonLinesTrail needs flock(), which this system does not have; take SQLiteTrail")
        self.directory: Final = Path(directory).absolute()
        self._patience = patience
        self._closed = False
        self._rest()
        watch(self)

    def _rest(self) -> None:
        self._commits: GroupCommit[Batch | Claim] = GroupCommit(
            f"trails {self.directory.name}", self._perform, lambda: None
        )
        # Held while any file is open, so that a child of `fork` inherits no lock.
        self._files = threading.Lock()
        self._kept: dict[str, tuple[int, Kept]] = {}

    # ------------------------------------------------------------ writing

    def append(self, batch: Batch, *, here: bool = False) -> Future[None]:
        """Append; the future is done once the batch is on disk. As `TrailStore.append`.

        With `here` the calling thread writes by itself when no other is writing: quicker for a caller that would wait for the future.
        """
        return self._commits.put(batch, here=here)

    def claim(self, run_id: str, owner: str, lease: float, time: float) -> RunInfo:
        """Hold the run for `owner`. As `TrailStore.claim`; `TrailDamaged` for a file that is not as it was written."""
        answer: RunInfo = self._commits.put(Claim(run_id, owner, lease, time), here=True).result()
        return answer

    def _perform(self, asked: Sequence[Batch | Claim]) -> Sequence[Any]:
        """All writes, then all syncs. Files are locked in the order of their names, so that two processes never wait for each other."""
        places: dict[str, list[int]] = {}
        for place, one in enumerate(asked):
            places.setdefault(one.run_id, []).append(place)
        answers: list[Any] = [None] * len(asked)
        with self._files, ExitStack() as locks:
            turns = []
            for run_id in sorted(places, key=file_name):
                turn = Turn(self._run(run_id), self._kept.pop(run_id, None))
                mine = [asked[place] for place in places[run_id]]
                error = self._error(partial(turn.write, mine, locks), run_id)
                turns.append((run_id, turn, error))
            for run_id, turn, failed in turns:
                error = failed or self._error(turn.finish, run_id)
                for number, place in enumerate(places[run_id]):
                    answers[place] = error or turn.answers[number]
                if error is None and turn.after is not None:
                    self._kept[run_id] = turn.after
        return answers

    def _error(self, act: Callable[[], None], run_id: str) -> RunError | None:
        """What `act` failed with, as an error of this package."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it was is told to those who asked
            return self._named(error, run_id)
        return None

    # ------------------------------------------------------------ reading

    def read(self, run_id: str) -> Sequence[Stored]:
        """All entries of a run. Raises `UnknownRun`; `TrailDamaged` naming the first entry that is cut off or was changed."""
        return self._whole(run_id)[1]

    def info(self, run_id: str) -> RunInfo:
        """One run. Raises as `read`."""
        return self._whole(run_id)[0]

    def value(self, run_id: str, digest: str) -> bytes:
        """A large value. Raises `TrailDamaged` when it is gone or its SHA-256 is not `digest`."""
        with self._open(run_id) as files:
            return files.value(digest)

    def runs(self) -> Sequence[RunInfo]:
        """All runs, newest first; reads every file. A run that is not as it was written is listed as damaged."""
        names = {path.stem for end in ("jsonl", "head") for path in self.directory.glob(f"*.{end}")}
        found = [read_for_list(partial(self._info_of, name)) for name in sorted(names)]
        return tuple(sorted(found, key=lambda info: info.began, reverse=True))

    def _info_of(self, name: str) -> RunInfo:
        return self.info(self._run_id(name))

    def _run_id(self, name: str) -> str:
        """The id of the run whose files have this name; the name itself where no line tells."""
        path = self.directory / f"{name}.jsonl"
        with self._open(name):
            data = path.read_bytes() if path.exists() else b""
        for line in data.split(b"\n"):
            if line.startswith(b'{"run":'):
                try:
                    run_id = json.loads(line)["run"]["run_id"]
                    if file_name(run_id) == name:
                        return str(run_id)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
        if file_name(name) == name:
            return name
        raise TrailDamaged(f"{path} is gone, or holds no whole entry; put back a copy", run_id=name, seq=0)

    def _whole(self, run_id: str) -> tuple[RunInfo, tuple[Stored, ...]]:
        with self._open(run_id) as files, files.open(write=False) as descriptor:
            kept = files.kept(descriptor)
        if kept.info is None:
            raise unknown_run_error(run_id)
        return kept.info, kept.entries

    @contextmanager
    def _open(self, run_id: str) -> Iterator[RunFiles]:
        if self._closed:
            raise TrailError(f"{self.directory} is closed; open it again with a new JsonLinesTrail")
        with self._files:
            try:
                yield self._run(run_id)
            except OSError as error:
                raise self._named(error, run_id) from error

    def _run(self, run_id: str) -> RunFiles:
        return RunFiles(self.directory, run_id, self._patience)

    def _named(self, error: Exception, run_id: str) -> RunError:
        if isinstance(error, RunError):
            return error
        return TrailError(
            f"{self.directory}, run {run_id!r}: {error}; look at the disk and the permissions. Nothing was written"
        )

    # ------------------------------------------------------------ mending

    def repair(self, run_id: str) -> Repaired:
        """Cut a run's file back to its newest whole append, and keep the bytes behind that in a file aside. For a person to call.

        Raises `UnknownRun`, and `TrailDamaged` when whole entries follow the damage, or none stand before it: then only a copy helps.
        """
        with self._open(run_id) as files, files.open(write=True) as descriptor:
            self._kept.pop(run_id, None)
            found = files.scan(descriptor)
            if not found.fault and found.info is None:
                raise unknown_run_error(run_id)
            if not found.fault:
                return Repaired(len(found.entries), 0, None)
            if descriptor is None or not found.ends or found.later:
                said = f"{found.fault} ({files.path}); more than the end is damaged: put back a copy"
                raise TrailDamaged(said, run_id=run_id, seq=found.seq)
            torn = os.pread(descriptor, os.fstat(descriptor).st_size - found.size, found.size)
            aside = _set_aside(files.path, torn) if torn else None
            lost = files.lost(len(found.entries))
            files.cut(descriptor, found.size)
            files.note(Noted(found.size, found.check, len(found.entries)))
            return Repaired(len(found.entries), lost, aside)

    # ------------------------------------------------------------ the end, and fork()

    def close(self) -> None:
        """Write what was appended; whatever is asked afterwards fails with `TrailError`."""
        self._closed = True
        self._commits.close()

    def before_fork(self) -> None:
        """Have no file open."""
        self._files.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on; the child with nothing that the parent has yet to write."""
        if child:
            self._rest()
        else:
            self._files.release()


def _set_aside(path: Path, torn: bytes) -> Path:
    number = 1
    while not place_bytes(aside := path.with_suffix(f".torn-{number}"), torn):
        number += 1
    return aside
