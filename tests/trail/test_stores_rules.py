"""The rules that every store keeps, by themselves."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.errors import RunHeld, TrailDamaged
from fsm_agent.trail import RunInfo, Stored
from fsm_agent.trail.fences import check_whole, info_after_batch
from fsm_agent.trail.store import alive, new_owner
from tests.trail.stores import batch, entries

INFO = info_after_batch(None, batch(entries=entries(0, 2)))
MOVED = (*entries(0, 0), *entries(2, 2), *entries(1, 1))


@pytest.mark.parametrize(
    ("info", "found", "seq"),
    [
        (replace(INFO, entries=4), entries(0, 2), 3),
        (replace(INFO, entries=2), entries(0, 2), 2),
        (replace(INFO, head="another"), entries(0, 2), 2),
        (INFO, entries(0, 1), 2),
        (INFO, (), 0),
        (INFO, entries(1, 3), 0),
        (INFO, MOVED, 1),
        (INFO, (*entries(0, 1), Stored(2, b"bytes", "seal x 2")), 2),  # type: ignore[arg-type]  # that is the damage
        (INFO, (*entries(0, 1), Stored(2, "text", None)), 2),  # type: ignore[arg-type]  # as above
    ],
)
def test_what_is_not_whole_is_damaged(info: RunInfo, found: tuple[Stored, ...], seq: Any) -> None:
    """Too few or too many entries, another head, another order, what is no text: the first bad entry is named."""
    check_whole(INFO, entries(0, 2))
    with pytest.raises(TrailDamaged) as caught:
        check_whole(info, found)
    assert (caught.value.run_id, caught.value.seq) == ("r", seq)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="other systems do not tell")
def test_a_child_that_nobody_has_waited_for_yet_is_gone() -> None:
    """A run is free when its process has ended, also while the system still keeps the number of that."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        owner = new_owner().replace(f":{os.getpid()}:", f":{child.pid}:")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(owner)
    assert not alive(owner)


def test_no_process_is_asked_where_asking_would_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows signal 0 is Ctrl-C: there the lease alone says whether a run is held."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail(f"signal {number} for process {pid}"))
    assert alive(new_owner())


@pytest.mark.parametrize("until", [1e300, math.inf, math.nan, -1e300])
def test_a_lease_that_is_no_time_is_told_without_one(until: float) -> None:
    """What a damaged store has in the place of a time breaks no error that tells of it."""
    assert str(RunHeld("r", owner="a:1:t", until=until)).endswith("for its lease to run out")
