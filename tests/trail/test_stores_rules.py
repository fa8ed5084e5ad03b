"""The rules that every store keeps, by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fsm_agent.errors import TrailDamaged
from fsm_agent.trail import RunInfo, Stored
from fsm_agent.trail.fences import advanced, check_whole
from tests.trail.stores import batch, entries

INFO = advanced(None, batch(entries=entries(0, 2)))
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
