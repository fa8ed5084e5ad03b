"""The certificate: what was proved of a table under limits, or how it can go wrong. Frozen, printable, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fsm_agent.records import Transitioned
from fsm_agent.table import Row

__all__ = ["Certificate", "Fault", "PolicyProof", "Unused", "WorstCase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong. `row` is the row to blame, None when it is one that is missing.

    `path` is the shortest way there, as rows from the beginning of a run; `trail` is the same as transitions that a diagram takes
    (`fsm_agent.diagrams.diagram(trail=fault.trail, rows=rows)`), with the guards asked. Both are empty for a table that was refused
    before it could be explored. `circle` is what repeats without end.
    """

    kind: str
    sentence: str
    row: Row | None = None
    path: tuple[Row, ...] = ()
    circle: tuple[Row, ...] = ()
    trail: tuple[Transitioned, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.sentence}"]
        if self.row is not None and str(self.row) not in self.sentence:
            lines.append(f"  row: {self.row}")
        if self.path:
            lines.append(f"  shortest way there, {len(self.path)} transitions:")
            lines += [f"    {number:>3} {row}" for number, row in enumerate(self.path, 1)]
        if self.circle:
            lines.append("  and then without end:")
            lines += [f"      {row}" for row in self.circle]
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """As JSON data, rows as they are printed."""
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "row": None if self.row is None else str(self.row),
            "path": [str(row) for row in self.path],
            "circle": [str(row) for row in self.circle],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The most that a run can come to, each number by itself. `backoff` is in seconds.

    `model_calls` and `transitions` hold prompts that were sent again, smaller or without what was refused (`sent_again` at most). Of
    memories that ask for summaries, each of the `summaries` adds one model call and one transition. `crash` is the transitions that each
    crash in the middle of a batch adds. `within_step` is the longest chain of transitions without a new step.
    """

    steps: int
    model_calls: int
    tool_calls: int
    retries: int
    transitions: int
    backoff: float
    sent_again: int
    summaries: int
    crash: int
    within_step: int


@dataclass(frozen=True, slots=True)
class Unused:
    """A row that never fires under these limits, though it does under others, and why."""

    row: Row
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProof:
    """What was explored of a tool policy: its `positions` and `moves` as they are drawn, and `explored` marks with what had happened.

    `soonest` says for each tool in which step, and as which call, it can come at the earliest; a step is one reply.
    """

    rules: tuple[str, ...]
    positions: int
    moves: int
    explored: int
    soonest: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        size = (
            f"{len(self.rules)} rules, {self.positions} positions, {self.moves} moves, {self.explored} marks explored"
        )
        soonest = [f"{tool} in step {step} at the earliest" for tool, (step, _) in self.soonest.items()]
        return f"{size}\n{', '.join(soonest)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What exploring every behaviour showed. `ok` when nothing is wrong; `worst` is None when something has no bound.

    `proved` are sentences that hold, `assumed` what they rest on. `unused` are rows that these limits switch off. `configurations` and
    `transitions` are the size of what was explored, `seconds` of processor time. `policy` is the tool policy, if there is one.
    """

    limits: Mapping[str, Any]
    rows: int
    worst: WorstCase | None
    proved: tuple[str, ...]
    assumed: tuple[str, ...]
    ranking: tuple[str, ...]
    unused: tuple[Unused, ...]
    faults: tuple[Fault, ...]
    configurations: int
    transitions: int
    seconds: float
    policy: PolicyProof | None = None

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        size = f"{self.configurations:,} configurations, {self.transitions:,} transitions, {self.seconds:.1f} s"
        lines = [f"{'verified' if self.ok else 'NOT VERIFIED'}: {self.rows} rows, {size}"]
        lines += ["", *(str(fault) for fault in self.faults)] if self.faults else []
        if self.worst is not None:
            lines += ["", "worst case of a run:", *(f"  {line}" for line in _worst_lines(self.worst))]
        for title, sentences in (
            ("tool policy:", () if self.policy is None else tuple(str(self.policy).splitlines())),
            ("proved:", self.proved),
            ("every run ends, for in each cycle one of these grows:", self.ranking),
            ("never under these limits:", tuple(f"{one.row} ({one.why})" for one in self.unused)),
            ("assumed:", self.assumed),
        ):
            if sentences:
                lines += ["", title, *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "ok": self.ok,
            "limits": dict(self.limits),
            "rows": self.rows,
            "worst": None if self.worst is None else asdict(self.worst),
            "proved": list(self.proved),
            "assumed": list(self.assumed),
            "ranking": list(self.ranking),
            "unused": [{"row": str(one.row), "why": one.why} for one in self.unused],
            "faults": [fault.to_data() for fault in self.faults],
            "configurations": self.configurations,
            "transitions": self.transitions,
            "seconds": round(self.seconds, 3),
            "policy": None if self.policy is None else asdict(self.policy),
        }

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps(self.to_data(), ensure_ascii=False, indent=2)


def _worst_lines(worst: WorstCase) -> list[str]:
    lines = [
        f"{worst.steps:>9,} steps",
        f"{worst.model_calls:>9,} model calls ({worst.sent_again} of them a prompt sent again, smaller or without what was refused)",
        f"{worst.tool_calls:>9,} tool calls",
        f"{worst.retries:>9,} retries",
        f"{worst.backoff:>9,.1f} seconds of backoff",
        f"{worst.transitions:>9,} transitions, at most {worst.within_step} of them without a new step",
    ]
    if worst.summaries:
        lines.append(f"{worst.summaries:>9,} summaries at most, each one model call and one transition more")
    lines.append(f"{worst.crash:>9,} transitions more for each crash in the middle of a batch")
    return lines
