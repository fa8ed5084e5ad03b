"""Files below one root: whatever path a model writes, nothing outside is read, written or revealed."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import ToolDefinitionError
from fsm_agent.tools import Tool, ToolRefusal, Valid, confined, files
from fsm_agent.tools.confined import Root, parts_of
from fsm_agent.tools.directory import Directory, directory_at, named, opened

needs_openat = pytest.mark.skipif(directory_at is named, reason="this platform has no openat")


@pytest.fixture(params=[pytest.param(opened, marks=needs_openat), named])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Directory]:
    """Both ways to walk a path: by descriptor, and by name for platforms that have no other."""
    monkeypatch.setattr(confined, "directory_at", request.param)
    chosen: Callable[[Path], Directory] = request.param
    return chosen


class Place:
    """A root with a secret beside it, and the three tools."""

    def __init__(self, base: Path, max_bytes: int = 1000) -> None:
        self.root, self.outside = base / "root", base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.secret = self.outside / "secret.txt"
        self.secret.write_text("secret")
        self.reader, self.writer, self.lister = files(self.root, max_bytes=max_bytes)

    def read(self, path: str, **more: Any) -> Any:
        """Call read_file as the engine does."""
        return self._call(self.reader, path=path, **more)

    def write(self, path: str, content: str = "new") -> Any:
        """Call write_file as the engine does."""
        return self._call(self.writer, path=path, content=content)

    def list(self, path: str = "") -> Any:
        """Call list_files as the engine does."""
        return self._call(self.lister, path=path)

    def _call(self, one: Tool, **arguments: Any) -> Any:
        checked = one.validate(arguments)
        if not isinstance(checked, Valid):
            raise ToolRefusal(str(checked.problems))
        assert one.func is not None
        return one.func(**checked.call_with)

    def untouched(self) -> bool:
        """Is everything outside the root as it was?"""
        return self.secret.read_text() == "secret" and [one.name for one in self.outside.iterdir()] == ["secret.txt"]


@pytest.fixture
def place(tmp_path: Path, kind: Callable[[Path], Directory]) -> Place:
    """A fresh root, walked in either way."""
    assert kind in (opened, named)
    return Place(tmp_path)


def test_write_read_list(place: Place) -> None:
    """Text is written with the directories it needs, read back, replaced, and listed."""
    assert place.write("notes/today/a.txt", "héllo\n") == "Wrote 6 characters to notes/today/a.txt."
    assert place.read("notes/today/a.txt") == "héllo\n"
    assert place.read("./notes//today/./a.txt") == "héllo\n"
    place.write("notes/today/a.txt", "")
    assert place.read("notes/today/a.txt") == ""
    place.write("b.txt", "12")
    assert place.list() == "b.txt (2 bytes)\nnotes/"
    assert place.list("notes") == "today/"
    (place.root / "empty").mkdir()
    assert place.list("empty") == "(empty)"


ESCAPES = [
    "/etc/passwd", "//etc/passwd", "../outside/secret.txt", "a/../../outside/secret.txt", "..", "./..", "a/..", "~/x",
    "~root/x",
    "..\\outside\\secret.txt", "a\\b", "C:\\x", "C:x", "c:/x", "\\\\server\\share", "file:///etc/passwd",
    "a\0b", "\0", "../outside/secret.txt\0.txt", "a\nb", "a\x7f", "\u202etxt.exe", "\u2066x",
    "．．/outside/secret.txt", "‥/outside/secret.txt", "a／b", "a／．．／b", "․․/x", "\ud800", "a/\udcff",
    "x" * 256, "é" * 128, "x/" * 40 + "x", "x" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES, ids=ascii)
def test_paths_that_no_model_should_write(place: Place, path: str) -> None:
    """Absolute, climbing, look-alike, device-like, unreadable and endless paths are refused for every operation."""
    (place.root / "a").mkdir()
    before = sorted(place.root.rglob("*"))
    for operation in (place.read, place.write, place.list):
        with pytest.raises(ToolRefusal) as raised:
            operation(path)
        assert str(place.root) not in str(raised.value)
        str(raised.value).encode("ascii")
    assert place.untouched()
    assert sorted(place.root.rglob("*")) == before


@pytest.mark.parametrize(
    "path", ["", ".", "./", "a/", "%2e%2e/outside/secret.txt", "...", "-rf", "$HOME", "a b", "汉字.txt", "e\u0301"]
)
def test_odd_but_harmless_paths_stay_inside(place: Place, path: str) -> None:
    """Names that mean something to a shell or a browser are plain names here; an empty path is no file."""
    try:
        place.write(path)
    except ToolRefusal:
        assert path in ("", ".", "./")
    assert place.untouched()
    assert all(one.resolve().is_relative_to(place.root) for one in place.root.rglob("*"))


def test_links_are_not_followed(place: Place) -> None:
    """A link is refused wherever it stands in a path, leads out or stays inside."""
    (place.root / "dir").symlink_to(place.outside)
    (place.root / "file").symlink_to(place.secret)
    (place.root / "loop").symlink_to("loop")
    (place.root / "inside").symlink_to("real")
    (place.root / "real").write_text("x")
    (place.root / "up").symlink_to("..")
    for path in ("dir/secret.txt", "dir", "file", "loop", "loop/x", "inside", "up/outside/secret.txt", "dir/new.txt"):
        for operation in (place.read, place.write):
            with pytest.raises(ToolRefusal):
                operation(path)
    with pytest.raises(ToolRefusal):
        place.list("dir")
    assert place.list().splitlines()[:2] == ["dir (link, not opened)", "file (link, not opened)"]
    assert place.untouched()


def test_devices_pipes_and_sockets_are_not_opened(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO (that would block), a socket and a directory are no files; nothing waits for them."""
    os.mkfifo(place.root / "pipe")
    (place.root / "dir").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(place.root)  # the path of a socket must be short
        server.bind("sock")
        for path in ("pipe", "sock", "dir"):
            for operation in (place.read, place.write):
                with pytest.raises(ToolRefusal):
                    operation(path)
    with pytest.raises(ToolRefusal, match="'dir' is a directory"):
        place.write("dir")
    assert stat.S_ISFIFO((place.root / "pipe").stat().st_mode)


def test_a_file_is_no_directory(place: Place) -> None:
    """Going on below a file is refused, and the file stays."""
    place.write("a", "x")
    for operation in (place.read, place.write, place.list):
        with pytest.raises(ToolRefusal, match="not a directory"):
            operation("a/b")
    assert place.read("a") == "x"


def test_what_is_missing_is_said_to_be_missing(place: Place) -> None:
    """A missing file or directory is a refusal that names the path as the model wrote it."""
    for operation in (place.read, place.list):
        with pytest.raises(ToolRefusal, match=r"'no/such\.txt' does not exist"):
            operation("no/such.txt")


def test_writing_breaks_a_hard_link(place: Place) -> None:
    """A write replaces the name; a file outside that shared the content keeps it."""
    os.link(place.secret, place.root / "hard")
    place.write("hard")
    assert place.untouched()


def test_a_write_keeps_the_mode_and_leaves_nothing_behind(place: Place) -> None:
    """Permissions survive; a failed write leaves neither a temporary file nor half a content."""
    place.write("a", "old")
    (place.root / "a").chmod(0o640)
    place.write("a", "new")
    assert stat.S_IMODE((place.root / "a").stat().st_mode) == 0o640
    assert [one.name for one in place.root.iterdir()] == ["a"]


def test_a_failed_write_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the old content stays, the temporary file goes, the error names the path below the root only."""
    place.write("a", "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(place.root / "a"))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        place.write("a", "new")
    assert str(place.root) not in str(raised.value)
    assert [one.name for one in place.root.iterdir()] == ["a"]
    assert place.read("a") == "old"


def test_a_root_that_is_gone_is_an_error_without_its_name(place: Place) -> None:
    """When the root disappears, the tool fails and does not tell where it was."""
    place.root.rmdir()
    with pytest.raises(OSError, match="root directory cannot be opened") as raised:
        place.read("a")
    assert str(place.root) not in str(raised.value)


def test_sizes_are_bounded(place: Place) -> None:
    """More than the bound is not written; a longer file is read in parts that say how to go on."""
    with pytest.raises(ToolRefusal, match="at most 1000"):
        place.write("big", "é" * 501)
    (place.root / "big").write_text("".join(f"line {number}\n" for number in range(1, 301)))
    first = place.read("big")
    assert first.startswith("line 1\n")
    body, _, note = first.rpartition("\n[")
    assert len(body) <= 1000
    following = int(note.partition("start_line=")[2].rstrip("]"))
    assert place.read("big", start_line=following).startswith(f"line {following}\n")
    assert place.read("big", start_line=300) == "line 300\n"
    assert place.read("big", start_line=10**6) == ""
    (place.root / "one-line").write_text("x" * 5000)
    assert "5000 bytes" in place.read("one-line")


def test_any_bytes_are_readable(place: Place) -> None:
    """What is no UTF-8 is replaced, a byte-order mark goes, line ends stay."""
    (place.root / "raw").write_bytes(b"\xef\xbb\xbfa\xff\r\nb\0")
    assert place.read("raw") == "a\ufffd\r\nb\0"


def test_the_fallback_writes_a_new_file_in_the_root(place: Place) -> None:
    """The controlled profile's way out: the content goes to a new file below the root, whatever the path was."""
    backup = place.writer.fallback
    assert isinstance(backup, Tool)
    for path in ("../../etc/passwd", "a/b c.txt", "", "\0", "x" * 500):
        said = place._call(backup, path=path, content="kept")
        (name,) = [word for word in said.split() if word.startswith("tmp-")]
        assert (place.root / name).read_text() == "kept"
    assert place.untouched()
    assert len(list(place.root.iterdir())) == 5


def test_long_directories_are_listed_in_part(place: Place) -> None:
    """At most 500 names are shown; the rest is counted."""
    for number in range(503):
        (place.root / f"{number:03}").touch()
    lines = place.list().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (501, "000 (0 bytes)", "[3 more]")


def test_a_name_is_one_line_of_the_list(place: Place) -> None:
    """A line break, or what turns a line round, in the name of a file is written out: no name passes for another file."""
    (place.root / "a\nb.txt").touch()
    (place.root / "c\u202etxt.exe").touch()
    lines = place.list().splitlines()
    assert lines[:2] == ["a\\nb.txt (0 bytes)", "c\\u202etxt.exe (0 bytes)"]


def test_the_root_must_be_a_directory(tmp_path: Path) -> None:
    """A root that does not exist, or is a file, is refused when the tools are made."""
    (tmp_path / "file").touch()
    for root in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ToolDefinitionError, match="create it first"):
            files(root)


@needs_openat
def test_a_directory_swapped_for_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that changes between directory and link while it is used never leads outside, in thousands of tries."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    place = Place(tmp_path)
    (place.outside / "inner.txt").write_text("outside")
    (place.root / "real").mkdir()
    (place.root / "real" / "inner.txt").write_text("inside")
    (place.root / "link").symlink_to(place.outside)
    done = threading.Event()

    def swap() -> None:
        turn = 0
        while not done.is_set():
            for name in ("real", "link"):
                turn += 1
                try:
                    (place.root / name).rename(place.root / "d")
                    (place.root / "d").rename(place.root / name)
                except OSError:  # the writer has made a directory d of its own in between
                    (place.root / "d").rename(place.root / f"made-{turn}")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: dict[str, int] = {}
    try:
        for _ in range(1500):
            for operation, arguments in ((place.read, ["d/inner.txt"]), (place.write, ["d/new.txt", "x"])):
                try:
                    outcome = operation(*arguments)
                except (ToolRefusal, OSError) as error:
                    outcome = type(error).__name__
                seen[outcome] = seen.get(outcome, 0) + 1
    finally:
        done.set()
        thread.join()
    assert "outside" not in seen
    assert sorted(one.name for one in place.outside.iterdir()) == ["inner.txt", "secret.txt"]


@needs_openat
def test_a_link_made_after_the_look_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very race, made to happen: the file turns into a link between the look and the opening."""
    place = Place(tmp_path)
    place.write("a", "x")
    before = confined._mode_of_regular

    def looked_then_swapped(*args: Any, **more: Any) -> int | None:
        mode = before(*args, **more)
        (place.root / "a").unlink()
        (place.root / "a").symlink_to(place.secret)
        return mode

    monkeypatch.setattr(confined, "_mode_of_regular", looked_then_swapped)
    with pytest.raises(ToolRefusal, match="was changed"):
        place.read("a")
    (place.root / "a").unlink()
    (place.root / "a").write_text("x")
    place.write("a", "y")
    assert place.untouched()
    assert not (place.root / "a").is_symlink()


PIECES = st.sampled_from(["..", ".", "/", "\\", "~", "a", "\0", "．", "‥", "／", "%2e", ":", " ", "\u202e", "C:", "é"])


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=20))
def test_accepted_paths_resolve_below_any_root(path: str) -> None:
    """Whatever the text: it is refused, or its parts joined to a root stay strictly textually below it."""
    try:
        parts = parts_of(path)
    except ToolRefusal:
        return
    joined = os.path.normpath("/".join(("/base", *parts)))
    assert joined == "/base" or joined.startswith("/base/")
    assert all(part not in ("", ".", "..") and "/" not in part and "\0" not in part for part in parts)


@given(st.binary(max_size=3000), st.integers(1, 40))
def test_reading_in_parts_gives_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, bound: int
) -> None:
    """Parts of whole lines, one after the other, are the file, as long as each line fits into a part."""
    if any(len(line) > bound for line in data.split(b"\n")):
        data = b"ab\n" * len(data)
        bound = max(bound, 3)
    base = tmp_path_factory.mktemp("parts")
    (base / "f").write_bytes(data)
    root = Root(base, max_bytes=bound + 1)
    whole, following = b"", 1
    while following:
        part, size, following = root.read("f", following)
        assert len(part) <= bound + 1
        assert size == len(data)
        whole += part
    assert whole == data
