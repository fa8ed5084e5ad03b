"""The lines of a trail in JSON Lines: how they are written, and what a file holds. Pure.

An entry is `{"entry":{...},"seal":"..."}`, its text as it was sealed (`{"seal":"...","text":"..."}` when the text is no JSON object). Each
append ends with `{"run":{...}}`: what is known of the run from there on, with a digest over it and the digest before. What follows the
newest such line was never acknowledged.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from fsm_agent.trail.entries import Stored
from fsm_agent.trail.store import RunInfo

__all__ = ["NOTHING", "Kept", "Noted", "batch_lines", "noted", "scan"]

_ENTRY, _SEAL, _TEXT, _RUN = b'{"entry":', b',"seal":', b'{"seal":', b'{"run":'
_NOTED_BYTES: Final = 128
# Not `entries.canonical_json`: that takes NaN for null, and the lines about a run must come back as they were.
_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Noted:
    """How far a file was known to be written: `size` in bytes, the newest digest, and the number of entries. Kept beside the file."""

    size: int
    check: str
    entries: int

    def line(self) -> bytes:
        """As it is stored: 128 bytes, so that it is overwritten in one go."""
        return _json(asdict(self)).encode().ljust(_NOTED_BYTES - 1) + b"\n"


def noted(data: bytes) -> Noted | None:
    """What `Noted.line` wrote; None for anything else."""
    try:
        found = Noted(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    return found if found.line() == data else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a file holds up to its newest whole append, and what is wrong with the rest.

    `ends` gives for each whole append the size of the file after it and its digest. `fault` is "" when nothing else follows; then `later`
    tells whether a whole append stands behind the fault.
    """

    info: RunInfo | None = None
    entries: tuple[Stored, ...] = ()
    ends: tuple[tuple[int, str], ...] = ()
    fault: str = ""
    later: bool = False
    # The entry that the fault is in.
    seq: int = 0

    @property
    def size(self) -> int:
        """Bytes up to the end of the newest whole append."""
        return self.ends[-1][0] if self.ends else 0

    @property
    def check(self) -> str:
        """The newest digest."""
        return self.ends[-1][1] if self.ends else ""

    def faulty(self, fault: str, seq: int) -> Kept:
        """The same with a fault, unless that is ""."""
        return replace(self, fault=fault, seq=max(0, seq)) if fault else self


NOTHING: Final = Kept()


def batch_lines(entries: Sequence[Stored], info: RunInfo, before: str) -> tuple[bytes, str]:
    """The lines of an append after which `info` is known, and their digest; `before` is that of the append before. Raises `ValueError`."""
    fields = {**asdict(info), "before": before}
    if info.lease == math.inf:
        fields["lease"] = None  # JSON has no infinity
    check = _digest(fields)
    lines = [_entry_line(entry) for entry in entries]
    lines.append(_json({"run": {**fields, "check": check}}))
    return "".join(f"{line}\n" for line in lines).encode(), check


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(_json(fields).encode()).hexdigest()[:32]


def _entry_line(entry: Stored) -> str:
    if entry.text.startswith("{") and "\n" not in entry.text:
        try:
            json.loads(entry.text)
        except (ValueError, RecursionError):
            pass  # kept as a text, below
        else:
            return f'{{"entry":{entry.text},"seal":{_json(entry.seal)}}}'
    return _json({"seal": entry.seal, "text": entry.text})


# ---------------------------------------------------------------- reading


@dataclass(slots=True)
class _Reading:
    run_id: str
    entries: list[Stored] = field(default_factory=list)
    whole: int = 0
    info: RunInfo | None = None
    ends: list[tuple[int, str]] = field(default_factory=list)

    def take(self, line: bytes, end: int) -> str:
        """Take one line that ends at `end`; what is wrong with it, or ""."""
        try:
            if line.startswith(_RUN):
                return self._known(line, end)
            self.entries.append(_stored(line, len(self.entries)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return f"is not as it was written ({type(error).__name__}: {error})"
        return ""

    def _known(self, line: bytes, end: int) -> str:
        fields = json.loads(line)["run"]
        if _json({"run": fields}).encode() != line:
            return "is followed by a line that is not as it was written"
        check, before = fields.pop("check"), fields["before"]
        if check != _digest(fields) or before != (self.ends[-1][1] if self.ends else ""):
            return "is followed by a line about the run that was changed, or does not follow from the one before"
        del fields["before"]
        info = RunInfo(**{**fields, "lease": math.inf if fields["lease"] is None else fields["lease"]})
        head = self.entries[-1].seal if self.entries else ""
        if (info.run_id, info.entries, info.head) != (self.run_id, len(self.entries), head):
            return f"is followed by a line about run {info.run_id!r} with {info.entries} entries, which are not these"
        self.info, self.whole = info, len(self.entries)
        self.ends.append((end, check))
        return ""


def _stored(line: bytes, seq: int) -> Stored:
    if line.startswith(_ENTRY):
        place = line.rindex(_SEAL)
        seal = json.loads(line[place + len(_SEAL) : -1])
        stored = Stored(seq, line[len(_ENTRY) : place].decode(), seal)
    elif line.startswith(_TEXT):
        fields = json.loads(line)
        stored = Stored(seq, fields["text"], fields["seal"])
    else:
        raise ValueError("no line of a trail")
    if type(stored.seal) is not str or type(stored.text) is not str or _entry_line(stored).encode() != line:
        raise ValueError("written in another way than by this package")
    return stored


def scan(data: bytes, run_id: str) -> Kept:
    """What `data`, the bytes of the file of `run_id`, holds. Never raises."""
    reading, start, fault, seq = _Reading(run_id), 0, "", 0
    while start < len(data) and not fault:
        end = data.find(b"\n", start)
        seq = len(reading.entries)
        fault = "was cut off" if end < 0 else reading.take(data[start:end], end + 1)
        start = end + 1
    if not fault and (not reading.ends or reading.ends[-1][0] < len(data)):
        fault, seq = "was cut off", len(reading.entries)
    return Kept(
        info=reading.info,
        entries=tuple(reading.entries[: reading.whole]),
        ends=tuple(reading.ends),
        fault=fault,
        later=bool(fault) and start > 0 and _sound_later(data[start:]),
        seq=seq,
    )


def _sound_later(rest: bytes) -> bool:
    """Whether a line about the run, as it was written, stands in `rest`."""
    for line in rest.split(b"\n")[:-1]:
        if line.startswith(_RUN):
            try:
                fields = json.loads(line)["run"]
                if fields.pop("check") == _digest(fields):
                    return True
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
    return False
