"""Where the command writes: the answer or a document on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from fsm_agent.visible import safe, safe_json

__all__ = [
    "err",
    "error_line",
    "interactive",
    "note",
    "out",
    "put",
    "put_json",
    "put_raw",
    "stdout_reserved",
    "tolerant",
]


def err() -> Console:
    """Standard error as it is now: colours only where it is a terminal, never wrapped for a program that reads it."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def out() -> Console:
    """Standard output as it is now."""
    return Console(highlight=False)


def interactive(stream: TextIO) -> bool:
    """Whether a person sits at `stream`, at a terminal that can redraw a line. FORCE_COLOR has no say in it."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def note(text: str, style: str = "dim") -> None:
    """One line on standard error."""
    err().print(Text(safe(text), style=style))


def error_line(text: str) -> None:
    """One red line on standard error."""
    err().print(Text.assemble(("error: ", "bold red"), (safe(text), "red")))


def put(text: str) -> None:
    """`text` for a person on standard output, made harmless for a terminal: also a pager, or `head`, writes to one."""
    _write(safe(text))


def put_raw(text: str) -> None:
    """`text` for a program on standard output, letter for letter; made harmless where that is a terminal."""
    _write(safe(text) if sys.stdout.isatty() else text)


def put_json(value: Any) -> None:
    """`value` as one JSON document on standard output, harmless for a terminal; what JSON does not know is written as text."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    _write(safe_json(json.dumps(value, ensure_ascii=not unicode, indent=2, default=str)))


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tolerant() -> None:
    """Let no character, stream or size of a terminal end the program, or hide what it says.

    A character that a stream cannot write is escaped, and any byte can be read. A stream that is closed (`<&-`, as a daemon may have it) is
    the null device from here on; one that another program left without waiting waits again; standard error may be full or hung up.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest number that is free, which is that of the stream: no file that is opened later may stand there.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
        _wait_for(getattr(sys, name))
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    _let_stderr_fail()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for size in ("COLUMNS", "LINES"):
        if os.environ.get(size) and not os.environ[size].strip("0 "):
            del os.environ[size]  # nobody knows the size: lines of no width would all be empty


def _wait_for(stream: Any) -> None:
    """Have a stream wait for its other side, also where a program that shares it has set that off: a text would be cut."""
    if os.name == "posix":
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), True)


def _let_stderr_fail() -> None:
    """Lose what standard error does not take (a full disk, a terminal that was hung up): that is no reason to break off a run."""
    stream = sys.stderr
    if isinstance(stream, io.TextIOWrapper) and isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
        sys.stderr = _Lossy(stream)


class _Lossy(io.TextIOWrapper):
    """A stream that may lose what is written; only a reader that has gone is told, as `head` may have enough.

    Nothing is kept back: what was not taken is not tried again, and Ctrl-C in the middle writes nothing twice.
    """

    def __init__(self, owner: io.TextIOWrapper) -> None:
        super().__init__(io.FileIO(owner.fileno(), "w", closefd=False), owner.encoding, write_through=True)
        self._owner = owner  # whose end would close the file

    def write(self, text: str, /) -> int:
        """Write `text`, and say that all is written where it cannot be."""
        try:
            return super().write(text)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            return len(text)


@contextlib.contextmanager
def stdout_reserved() -> Iterator[None]:
    """While a run goes on, what its tools and their child processes print goes to standard error."""
    sys.stdout.flush()
    with contextlib.redirect_stdout(sys.stderr), _descriptor_redirected():
        yield


@contextlib.contextmanager
def _descriptor_redirected() -> Iterator[None]:
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
