"""The room of the commands about stored runs."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.room import TOOLS, Room


@pytest.fixture(name="room")
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """An empty current directory with a module of tools, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "letters.py").write_text(textwrap.dedent(TOOLS), encoding="utf-8")
    yield Room(tmp_path)
    sys.modules.pop("letters", None)
