"""What is known of a run while it goes on, folded from its records, and how it is drawn. Pure: the time is given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fsm_agent.alphabet import INITIAL, State
from fsm_agent.cli.summary import tokens_text
from fsm_agent.limits import Limits
from fsm_agent.records import Transitioned
from fsm_agent.visible import safe

__all__ = ["Picture", "activity", "as_read", "describe", "draw"]

_KEPT: Final = 6
_TEXT_ROWS: Final = 4
_SPINNER: Final = "-\\|/"
_DOING: Final[Mapping[State, str]] = {
    State.PLAN: "asking the model",
    State.VALIDATE: "checking the reply",
    State.REVIEW: "waiting for your decision",
    State.EXECUTE: "running",
    State.OBSERVE: "reading the results",
    State.DECIDE: "deciding",
    State.RETRY: "waiting before a retry",
    State.DEGRADE: "looking for another way",
    State.FINISH: "done",
    State.ABORT: "stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A run as it stands. Times are seconds; `started` and `since` are readings of one clock."""

    started: float
    since: float
    state: State = INITIAL
    step: int = 1
    tokens: int = 0
    estimated: int = 0
    tools: tuple[str, ...] = ()
    recent: tuple[Transitioned, ...] = ()
    text: str = ""

    def after(self, record: Transitioned, now: float) -> Picture:
        """The picture after a transition."""
        # PLAN counts its step when it has replied, so on the way there the next one is under way.
        step = record.step + (record.target is State.PLAN and record.source is State.DECIDE)
        return replace(
            self,
            since=now,
            state=record.target,
            step=max(step, 1),
            tokens=record.tokens,
            estimated=record.estimated_tokens,
            tools=record.tools if record.target in (State.EXECUTE, State.REVIEW) else (),
            recent=(*self.recent, record)[-_KEPT:],
            text="" if record.target is State.PLAN else self.text,
        )

    def said(self, piece: str) -> Picture:
        """The picture after a piece of the reply."""
        return replace(self, text=self.text + piece)


def describe(record: Transitioned) -> str:
    """A transition as one line, with the guards that fired and what the state it leads to works on."""
    fired = [guard.guard for guard in record.guards if guard.result]
    line = f"{record.seq:>4} {record.source.value} --{record.event.value}--> {record.target.value}"
    if fired:
        line += f" [{', '.join(fired)}]"
    if record.target in (State.EXECUTE, State.REVIEW):
        line += f" {_names(record.tools)}"
    if record.error:
        line += f" ({' '.join(record.error.split())})"
    return line


def activity(state: State, tools: Sequence[str] = ()) -> str:
    """What goes on in a state, in words: `running calculator`."""
    words = _DOING.get(state, "judging")
    return f"{words} {_names(tools)}" if tools else words


def _names(tools: Sequence[str]) -> str:
    return " ".join(", ".join(tools).split())


def draw(picture: Picture, limits: Limits, now: float, console: Console) -> RenderableType:
    """The picture for `console`: a status line, the last transitions, and the reply as it comes."""
    status = Table.grid(padding=(0, 1), expand=True)
    status.add_column(width=1)
    status.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    status.add_column(justify="right", no_wrap=True)
    what = Text.assemble(
        (picture.state.value, "bold cyan"),
        f" {safe(activity(picture.state, picture.tools))} {now - picture.since:.1f} s",
    )
    numbers = (
        f"step {picture.step}/{limits.step_bound}  {now - picture.started:.1f} s  "
        f"{tokens_text(picture.tokens, picture.estimated, limits.token_budget)}"
    )
    status.add_row(Text(_SPINNER[int(now * 8) % len(_SPINNER)], style="cyan"), what, Text(numbers, style="dim"))
    lines = [Text(safe(describe(record)), style="dim", no_wrap=True, overflow="ellipsis") for record in picture.recent]
    return Group(*lines, status, *_reply_lines(picture.text, console))


def _reply_lines(text: str, console: Console) -> list[Text]:
    """The end of the reply so far, cut to a few rows."""
    shown = as_read(text)
    if not shown.strip():
        return []
    width = max(console.width - 2, 10)
    rows = Text(safe(shown[-width * _TEXT_ROWS * 2 :].strip())).wrap(console, width)
    return [Text.assemble(("> ", "cyan"), row) for row in rows[-_TEXT_ROWS:]]


_ACTION: Final = re.compile(r'\s*(?:```\w*\s*)?\{\s*"action"\s*:\s*"(\w*)("?)')
_WORDS: Final = re.compile(r'"(?:answer|thought)"\s*:\s*"((?:[^"\\]|\\.)*)')


def as_read(text: str) -> str:
    """A reply, whole or half, as a person reads it: of a JSON action the answer or the tool, other text as it is."""
    action = _ACTION.match(text)
    if action is None:
        return "" if text.lstrip()[:1] == "{" and len(text) < len('{"action": "') else text
    if words := _WORDS.search(text):
        try:
            return str(json.loads(f'"{words[1]}"', strict=False))
        except ValueError:  # half of an escape stands at the end
            return words[1]
    name = action[1]
    return f"calls {name} ..." if action[2] and name not in ("FINISH", "THINK") else ""
