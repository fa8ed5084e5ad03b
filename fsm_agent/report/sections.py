"""What several sections of the page are made with."""

from __future__ import annotations

from collections.abc import Mapping

from fsm_agent.report.markup import Child, Markup, el

__all__ = ["scrolled", "section", "state"]


def section(anchor: str, heading: str, *children: Child) -> Markup:
    """A section that its heading names."""
    name = f"{anchor}-heading"
    return el("section", el("h2", heading, id=name), *children, id=anchor, aria_labelledby=name)


def scrolled(shown: Markup, name: str) -> Markup:
    """A table or picture in a box of its own, that the keyboard can scroll where the page is too narrow."""
    return el("div", shown, class_="scrolled", tabindex="0", role="region", aria_label=name)


def state(name: str, places: Mapping[str, str]) -> Markup:
    """The name of a state, in the look of its place."""
    return el("span", name, class_=f"state {places.get(name, 'state')}")
