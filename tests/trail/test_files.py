"""Files that are there whole or not at all: what `-o FILE` and `save` write over."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fsm_agent.diagrams.value import TextDiagram
from fsm_agent.trail.files import replace_bytes

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes, modes and limits of POSIX")


@posix
def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    """A disk that fills up in the middle costs the new picture, not the one that was there, and leaves nothing beside it."""
    import resource

    file = tmp_path / "machine.svg"
    file.write_text("good", encoding="utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            TextDiagram("x" * 5000, "svg").save(file)
        with pytest.raises(OSError, match="too large"):
            replace_bytes(tmp_path / "none.html", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text(encoding="utf-8") == "good"
    assert [one.name for one in tmp_path.iterdir()] == ["machine.svg"]


@posix
def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_usual_one(tmp_path: Path) -> None:
    """A report that only its owner may read stays so when it is written anew."""
    file, fresh, usual = tmp_path / "run.html", tmp_path / "fresh.html", tmp_path / "usual"
    file.write_bytes(b"old and longer than what comes")
    file.chmod(0o600)
    usual.touch()
    for one in (file, fresh):
        replace_bytes(one, b"new")
        assert one.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert fresh.stat().st_mode == usual.stat().st_mode


@posix
def test_what_a_new_file_cannot_stand_for_is_written_in_place(tmp_path: Path) -> None:
    """A link goes on leading to its file, two names of one file stay one, and a pipe is written to."""
    file, link, second, pipe = (tmp_path / name for name in ("file", "link", "second", "pipe"))
    file.write_bytes(b"old")
    link.symlink_to(file)
    replace_bytes(link, b"through the link")
    assert link.is_symlink()
    assert file.read_bytes() == b"through the link"
    second.hardlink_to(file)
    replace_bytes(second, b"one file")
    assert file.read_bytes() == b"one file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_bytes(pipe, b"through the pipe")
    assert os.read(reader, 100) == b"through the pipe"
    os.close(reader)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "link", "pipe", "second"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_modes_that_forbid_are_kept(tmp_path: Path) -> None:
    """A file that may not be written is refused, and one in a folder that takes no new file is written."""
    shut, file = tmp_path / "shut", tmp_path / "folder" / "file"
    shut.write_bytes(b"old")
    shut.chmod(0o400)
    with pytest.raises(PermissionError):
        replace_bytes(shut, b"new")
    file.parent.mkdir()
    file.write_bytes(b"old")
    file.parent.chmod(0o500)
    replace_bytes(file, b"new")
    file.parent.chmod(0o700)
    assert file.read_bytes() == b"new"
