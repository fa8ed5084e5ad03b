"""Where the command writes: the answer or a document on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
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
    """Let no character end the program: one that a stream cannot write is escaped, and any byte can be read.

    A stream that is closed (`<&-`, as a daemon may have it) is the null device from here on.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest number that is free, which is that of the stream: no file that is opened later may stand there.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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
