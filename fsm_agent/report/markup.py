"""HTML that is built, never pasted together: what is not `Markup` is escaped, wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from fsm_agent.visible import safe

__all__ = ["Child", "Markup", "content", "el", "plain_text", "trusted"]

CONTENT_CHARS: Final = 20_000
"""Of one text that a model or a tool wrote; the trail keeps all of it."""

_LONG_CHARS: Final = 3_000
_LONG_LINES: Final = 24
_VOID: Final = frozenset({"br", "hr", "link", "meta"})


class Markup(str):
    """Text that is HTML. Made by `el`, `plain_text` and `trusted` only."""

    __slots__ = ()


Child = Markup | str | int | None | Iterable["Child"]
"""What stands in an element: markup as it is, anything else as text, None not at all."""


def plain_text(text: str) -> Markup:
    """`text` as text: markup in it is escaped, control and direction characters are written out."""
    return Markup(escape(safe(text.replace("\r\n", "\n"))))


def trusted(html: str) -> Markup:
    """HTML that this package wrote itself, such as its style sheet."""
    return Markup(html)


def el(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """The element `name`. In attribute names `_` is `-`, and one at the end is left out (`class_`); False and None are no attribute."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    # The parser takes a line break at the beginning of these away, so that one is given.
    start = "\n" if name == "pre" else ""
    return Markup(f"<{name}{said}>{start}{''.join(_written(children))}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{plain_text(f"{value}")}"'


def _written(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str | int):
            yield plain_text(str(child))
        else:
            yield from _written(child)


def content(text: str, *, lang: str | None = None, kind: str = "text") -> Markup:
    """A text of somebody else, in a block of its own: its line breaks kept, in the direction of its script, cut where it is huge."""
    left = len(text) - CONTENT_CHARS
    scrolls: dict[str, str | int] = (
        {"tabindex": 0, "role": "group", "aria_label": "Long text"} if _is_long(text) else {}
    )
    kind = f"{kind} long" if scrolls else kind
    shown = el("pre", text[:CONTENT_CHARS], class_=kind, dir="auto", lang=lang, **scrolls)
    if left <= 0:
        return shown
    return Markup(shown + el("p", f"{left:,} more characters are in the trail.", class_="note"))


def _is_long(text: str) -> bool:
    """Whether a text is shown in a box that scrolls, and that the keyboard can therefore reach."""
    return len(text) > _LONG_CHARS or text.count("\n") > _LONG_LINES
