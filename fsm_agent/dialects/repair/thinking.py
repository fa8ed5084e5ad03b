"""Takes visible reasoning out of a model's text: what it merely considered is neither a call nor an answer."""

from __future__ import annotations

import re
from typing import Final

from fsm_agent.dialects.repair.scan import Fences, past_object

__all__ = ["split_thinking"]

_NAMES: Final = "think|thinking|thought|reasoning"
_OPEN: Final = rf"<(?:{_NAMES})>|\[THINK\]"
_CLOSE: Final = rf"</(?:{_NAMES})>|\[/THINK\]"

_ANY_TAG: Final = re.compile(f"{_OPEN}|{_CLOSE}", re.IGNORECASE)
_OPEN_TAG: Final = re.compile(_OPEN, re.IGNORECASE)
_CLOSE_ON_ITS_LINE: Final = re.compile(rf"^[ \t]*+(?:{_CLOSE})[ \t\r]*+$", re.IGNORECASE | re.MULTILINE)
_MARK: Final = re.compile(
    rf"^[ \t]*+(?P<fence>`{{3,}}+|~{{3,}}+)|(?P<open>{_OPEN})|(?P<close>{_CLOSE})|\{{", re.IGNORECASE | re.MULTILINE
)
_LOOK_BACK: Final = 64


def split_thinking(text: str) -> tuple[str, str]:
    """`(thinking, rest)` of a reply: blocks such as `<think>...</think>`, without their tags, and what is left.

    A block counts at the start of the text, of a line, or right after another block; never inside an object, a JSON
    string or a fenced block. A block that does not close reaches to the end. A closing tag whose opening one is missing
    (templates write it for the model) ends a block that began with the text. Nothing but tags and outer space is lost;
    a text without such a block comes back as it is.
    """
    if _ANY_TAG.search(text) is None:
        return "", text
    split = _Split(text)
    split.orphan_on_its_line()
    split.walk()
    if not split.thoughts:
        return "", text
    rest = "".join([*split.kept, text[split.copied :]])
    return "\n".join(thought.strip() for thought in split.thoughts), rest.strip()


class _Split:
    """One pass over a text. Everything before `copied` has been given to `thoughts` or `kept`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.copied = 0
        self.thoughts: list[str] = []
        self.kept: list[str] = []
        self.fences = Fences(text, len(text))
        self.talked_about = False

    def orphan_on_its_line(self) -> None:
        """No JSON string spans lines, so a closing tag alone on its line ends reasoning whatever braces are in that."""
        close = _CLOSE_ON_ITS_LINE.search(self.text)
        if close is None or self.text.count("```", 0, close.start()) % 2:
            return
        opened = _OPEN_TAG.search(self.text)
        if opened is None or opened.start() > close.start():
            self.take(0, close.start(), close.end())

    def walk(self) -> None:
        while (mark := _MARK.search(self.text, self.at)) is not None:
            if mark["fence"]:
                self.at = self.fences.behind(mark["fence"], mark.end())
            elif mark["open"]:
                self.opened(mark)
            elif mark["close"]:
                self.closed(mark)
            else:
                behind = past_object(self.text, mark.start())
                if behind is None:
                    return
                self.at = behind

    def opened(self, mark: re.Match[str]) -> None:
        if not self.at_line_start(mark.start()):
            self.talked_about = True
            self.at = mark.end()
            return
        name = mark["open"][1:-1].lower()
        closing = re.escape(f"{mark['open'][0]}/{name}{mark['open'][-1]}")
        close = re.compile(closing, re.IGNORECASE).search(self.text, mark.end())
        if close is None:
            self.take(mark.start(), len(self.text), len(self.text), inner=mark.end())
        else:
            self.take(mark.start(), close.start(), close.end(), inner=mark.end())

    def closed(self, mark: re.Match[str]) -> None:
        """Glued to the words before it, the tag ends reasoning; in quotes or after a space it is being talked about."""
        before = self.text[max(0, mark.start() - 1) : mark.start()]
        glued = before and not before.isspace() and before not in "`'\"“‘"
        if glued and not self.thoughts and not self.talked_about:
            self.take(0, mark.start(), mark.end())
        self.at = mark.end()

    def take(self, start: int, end: int, behind: int, *, inner: int | None = None) -> None:
        """Give `text[inner:end]` to the thoughts, what was before `start` to the rest, and go on at `behind`."""
        self.kept.append(self.text[self.copied : start])
        self.thoughts.append(self.text[start if inner is None else inner : end])
        self.at = self.copied = behind

    def at_line_start(self, at: int) -> bool:
        begin = max(self.copied, at - _LOOK_BACK)
        _, newline, before = self.text[begin:at].rpartition("\n")
        return not before.strip() and (bool(newline) or begin == self.copied)
