"""The steps of a run on the page: closed but for what matters, so that a long run opens as fast as a short one."""

from __future__ import annotations

from typing import Final

from fsm_agent.diagrams.walk import counted, duration
from fsm_agent.report.markup import Markup, content, el
from fsm_agent.report.parts import Called, Checked, Question, Refused, Report, Said, Step, Turn
from fsm_agent.report.sections import section, state

__all__ = ["steps_section"]

_OPEN: Final = 6
"""A run with no more steps than this is shown open; of a longer one only the last step is."""
_LINKS: Final = 60
_PURPOSES: Final = {
    "plan": "Asked the model",
    "answer": "Asked the model for an answer without tools",
    "summary": "Asked the model for a summary",
    "reflect": "Asked the model whether to go on",
}


def steps_section(shown: Report) -> Markup:
    """Every step, with its transitions in it."""
    if not shown.steps:
        return section("steps", "Steps", el("p", "No step was begun.", class_="note"))
    every = len(shown.steps) <= _OPEN
    items = [
        el("li", _step(step, shown.places, shown.lang, is_open=every or step is shown.steps[-1]))
        for step in shown.steps
    ]
    return section("steps", "Steps", None if every else _troubles(shown.steps), el("ol", *items, class_="steps"))


def _troubles(steps: tuple[Step, ...]) -> Markup | None:
    """Links to the steps of a long run in which something was out of the ordinary."""
    marked = [step for step in steps if step.marks]
    if not marked:
        return None
    links = [el("li", _link(step)) for step in marked[:_LINKS]]
    if len(marked) > _LINKS:
        links.append(el("li", f"and {len(marked) - _LINKS} more"))
    told = el("p", "Out of the ordinary:", id="marked")
    return el("div", told, el("ul", *links, aria_labelledby="marked"), class_="troubles")


def _link(step: Step) -> Markup:
    name = f"{step.name}: {', '.join(step.marks)}"
    return el("a", step.name.removeprefix("Step "), href=f"#{_anchor(step)}", aria_label=name, title=name)


def _step(step: Step, places: dict[str, str], lang: str | None, *, is_open: bool) -> Markup:
    tokens = f"{step.tokens:,} tokens" if step.tokens else ""
    head = el(
        "summary",
        el("span", step.name, class_="label"),
        el("span", step.title, class_="title", dir="auto"),
        *(el("span", mark, class_="mark") for mark in step.marks),
        el("span", duration(step.elapsed_ms), class_="number"),
        el("span", tokens, class_="number tokens"),
    )
    anchor = el("div", *(_turn(turn, places, lang) for turn in step.turns), id=_anchor(step))
    return el("details", head, anchor, class_="step", open=is_open)


def _anchor(step: Step) -> str:
    """Inside of what opens, so that a link to it opens it."""
    return f"step-{step.number}"


def _turn(turn: Turn, places: dict[str, str], lang: str | None) -> Markup:
    return el(
        "div",
        *(el("p", note, class_="happened") for note in turn.notes),
        _said(turn.said, lang) if turn.said is not None else None,
        *(_called(one, lang) for one in turn.calls),
        *(_question(one) for one in turn.questions),
        el("p", f"Waited {duration(turn.waited * 1000)} before trying again.", class_="happened")
        if turn.waited is not None
        else None,
        _move(turn, places) if turn.target else el("p", state(turn.source, places), " is under way.", class_="move"),
        *(_refused(one) for one in turn.refused),
        el("ul", *(_guard(one) for one in turn.guards), class_="guards", aria_label="Guards that were asked")
        if turn.guards
        else None,
        el("p", turn.error, class_="error", dir="auto") if turn.error else None,
        el("p", f"Repaired: {'; '.join(turn.repairs)}", class_="note") if turn.repairs else None,
        class_="turn" if turn.vouched else "turn doubtful",
    )


def _move(turn: Turn, places: dict[str, str]) -> Markup:
    tokens = f", {turn.tokens:,} tokens" if turn.tokens else ""
    return el(
        "p",
        el("span", f"{turn.seq}", class_="seq"),
        state(turn.source, places),
        el("span", turn.event, class_="event"),
        el("span", "→", class_="arrow"),
        state(turn.target, places),
        el("span", turn.reason.replace("_", " "), class_="mark") if turn.reason else None,
        el("span", f"{duration(turn.elapsed_ms)}{tokens}", class_="number"),
        class_="move",
    )


def _guard(one: Checked) -> Markup:
    values = ", ".join(f"{name} = {value}" for name, value in one.values)
    said = "yes" if one.held else "no"
    return el("li", el("b", one.name), f" {said}{f': {values}' if values else ''}", class_="held" if one.held else None)


def _said(said: Said, lang: str | None) -> Markup:
    what = _PURPOSES.get(said.purpose, said.purpose)
    again = f", attempt {said.attempt}" if said.attempt > 1 else ""
    used = f" {said.input:,} tokens in, {said.output:,} out." if said.input or said.output else ""
    return el(
        "div",
        el("p", f"{what}{again}.{used}", class_="happened"),
        content(said.text, lang=lang) if said.text else None,
        el("p", "It asked for ", el("code", ", ".join(said.asked)), ".", class_="happened") if said.asked else None,
        el("p", f"No usable reply: {said.problem}", class_="error", dir="auto") if said.problem else None,
        class_="effect",
    )


def _called(one: Called, lang: str | None) -> Markup:
    time = "" if one.seconds is None else f", {duration(one.seconds * 1000)}"
    came = el("span", one.came, class_=f"came {one.came.replace(' ', '-')}")
    cut = f"The whole result has {counted(one.whole, 'character')}; the model was given this part."
    return el(
        "div",
        el("p", "Called ", el("code", one.tool), ": ", came, time, class_="happened"),
        _pair("Arguments", content(one.arguments, kind="code")),
        _pair("Result", content(one.result, lang=lang)) if one.result else None,
        el("p", cut, class_="note") if one.whole else None,
        el("p", one.error, class_="error", dir="auto") if one.error else None,
        class_="effect call",
    )


def _pair(name: str, shown: Markup) -> Markup:
    return el("div", el("p", name, class_="name"), shown, class_="pair")


def _refused(one: Refused) -> Markup:
    return el(
        "div",
        el("p", "Refused ", el("code", one.tool), ", so it did not run.", class_="happened"),
        _pair("Arguments", content(one.arguments, kind="code")),
        _pair("Why", content(one.why)),
        class_="effect call",
    )


def _question(one: Question) -> Markup:
    return el(
        "div",
        el("p", "Asked a person about ", el("code", one.tool), f": {one.why}.", class_="happened"),
        _pair("Arguments", content(one.arguments, kind="code")),
        el("p", f"Decided: {one.decided}" if one.decided else "Nobody has decided yet.", class_="happened", dir="auto"),
        class_="effect call",
    )
