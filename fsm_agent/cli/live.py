"""Watching a run: redrawn in place at a terminal, one plain line a transition elsewhere, or not at all."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from fsm_agent.alphabet import INITIAL, State
from fsm_agent.cli.console import err, interactive
from fsm_agent.cli.picture import Picture, activity, describe, draw
from fsm_agent.cli.summary import tokens_text
from fsm_agent.limits import Limits
from fsm_agent.records import Transitioned
from fsm_agent.visible import safe

__all__ = ["LiveView", "PlainView", "SilentView", "View", "view_for"]


class View(Protocol):
    """Shows a run while it goes on; a context manager around it. Written for one run."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was found."""

    def began(self) -> None:
        """A new run begins: its model is asked."""

    def moved(self, record: Transitioned) -> None:
        """A transition has happened."""

    def said(self, piece: str) -> None:
        """A piece of the reply has come."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Leave the terminal to somebody else for a while."""

    def stopping(self) -> None:
        """The run was asked to stop. Called from another thread."""


class SilentView:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def began(self) -> None:
        """Nothing."""

    def moved(self, record: Transitioned) -> None:
        """Nothing."""

    def said(self, piece: str) -> None:
        """Nothing."""

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing to leave."""
        yield

    def stopping(self) -> None:
        """Nothing."""


class PlainView(SilentView):
    """One line a transition, with step, time and tokens; pieces of the reply as they come when `streaming`.

    With `calls` also one where the model is asked or tools are run, because what follows may take minutes.
    """

    def __init__(self, console: Console, limits: Limits, *, streaming: bool = False, calls: bool = False) -> None:
        self._console = console
        self._limits = limits
        self._streaming = streaming
        self._calls = calls
        self._mid_line = False

    def began(self) -> None:
        """Say that the model is asked."""
        self._say(0.0, INITIAL)

    def moved(self, record: Transitioned) -> None:
        """Write the line."""
        self._end_line()
        took = f"{record.at:6.1f} s"
        at = f"step {record.step}/{self._limits.step_bound}, {tokens_text(record.tokens, record.estimated_tokens)}"
        self._console.print(Text(safe(f"{took} {describe(record)}  ({at})")))
        if record.target is State.PLAN:
            self._say(record.at, record.target)
        elif record.target is State.EXECUTE:
            self._say(record.at, record.target, record.tools)

    def _say(self, at: float, state: State, tools: Sequence[str] = ()) -> None:
        if self._calls:
            self._console.print(Text(safe(f"{at:6.1f} s      {activity(state, tools)}"), style="dim"))

    def said(self, piece: str) -> None:
        """Write the piece, when pieces are wanted."""
        if self._streaming and piece:
            self._console.print(Text(safe(piece)), end="")
            self._mid_line = not piece.endswith("\n")

    def _end_line(self) -> None:
        if self._mid_line:
            self._console.print()
            self._mid_line = False


class LiveView(SilentView):
    """A few lines at the bottom of the terminal, redrawn in place and taken away at the end."""

    def __init__(self, console: Console, limits: Limits) -> None:
        now = time.monotonic()
        self._console = console
        self._limits = limits
        self._picture = Picture(started=now, since=now)
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(console=self._console, get_renderable=self._draw, refresh_per_second=8, transient=True)

    def _start(self) -> None:
        """Begin to draw, with the cursor in sight: a signal that kills the program gives nobody the time to bring it back."""
        self._live.start()
        self._console.show_cursor()

    def _draw(self) -> RenderableType:
        return draw(self._picture, self._limits, time.monotonic(), self._console)

    def __enter__(self) -> Self:
        now = time.monotonic()
        self._picture = Picture(started=now, since=now)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def moved(self, record: Transitioned) -> None:
        """Take the transition into the picture."""
        self._picture = self._picture.after(record, time.monotonic())

    def said(self, piece: str) -> None:
        """Take the piece into the picture."""
        self._picture = self._picture.said(piece)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the lines, and draw them anew afterwards."""
        self._live.stop()
        try:
            yield
        finally:
            self._live = self._new_live()
            self._start()

    def stopping(self) -> None:
        """Clear the lines for good, so that they are gone even when the program is killed now."""
        self._live.stop()


def view_for(limits: Limits, *, quiet: bool, streaming: bool, calls: bool = False) -> View:
    """The view that fits standard error. `calls` as `PlainView` has it."""
    if quiet:
        return SilentView()
    if interactive(sys.stderr):
        return LiveView(err(), limits)
    return PlainView(err(), limits, streaming=streaming, calls=calls)
