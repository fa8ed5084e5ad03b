"""The page: its frame, what stands at the top of it, and its sections in order. No script, so that nothing in it can run."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Final

from fsm_agent.diagrams.palette import DARK, INK, PAPER
from fsm_agent.diagrams.walk import counted, duration
from fsm_agent.report.figures import path_section, time_section
from fsm_agent.report.markup import Child, Markup, content, el, trusted
from fsm_agent.report.parts import Fact, Report
from fsm_agent.report.sections import scrolled, section
from fsm_agent.report.step_page import steps_section
from fsm_agent.report.timeline import timeline
from fsm_agent.trail.wording import utc_text

__all__ = ["page"]

_TITLE_CHARS: Final = 160
_PARTS: Final = ("fill", "stroke")
_ROLES: Final = {"human": "User", "ai": "Model", "tool": "Tool", "system": "System"}


def page(shown: Report) -> str:
    """The whole document, the same for the same report."""
    style = _style()
    sections = [
        ("outcome", "Outcome", _outcome(shown)),
        ("time", "Time and tokens", time_section(shown)),
        ("path", "Path", path_section(shown)),
        ("steps", "Steps", steps_section(shown)),
        ("messages", "Messages", _messages(shown)),
        ("guards", "Guards", _guards(shown)),
        ("setup", "Set-up", _setup(shown)),
        ("audit", "Audit", _audit(shown)),
    ]
    body = el(
        "body",
        el("a", "Skip to the outcome", href="#outcome", class_="skip"),
        _top(shown),
        el(
            "nav",
            el("ul", *(el("li", el("a", name, href=f"#{anchor}")) for anchor, name, _ in sections)),
            aria_label="Sections",
        ),
        el("main", *(section for _, _, section in sections)),
        _foot(shown),
    )
    return f"<!doctype html>\n{el('html', _head(shown, style), body, lang='en')}\n"


def _head(shown: Report, style: str) -> Markup:
    """Nothing may be fetched, and nothing run; the one style that counts is the one whose digest stands here."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{shown.ending.status}: {_first_line(shown.task) or shown.run_id}"),
        el("link", rel="icon", href="data:,"),
        el("style", trusted(style)),
    )


@cache
def _style() -> str:
    """The style sheet, and in it the colours of the picture for dark screens."""
    sheet = files("fsm_agent.report").joinpath("report.css").read_text(encoding="utf-8")
    dark = {**DARK, "white": DARK[PAPER], "black": DARK[INK]}
    rules = [f'.picture [{part}="{light}"] {{ {part}: {shown}; }}' for light, shown in dark.items() for part in _PARTS]
    return "\n".join([sheet, "@media screen and (prefers-color-scheme: dark) {", *rules, "}", ""])


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_CHARS else f"{line[:_TITLE_CHARS]}…"


def _top(shown: Report) -> Markup:
    drawn = timeline(shown.turns)
    began = datetime.fromtimestamp(shown.began, UTC)
    numbers: list[tuple[str, Child]] = [
        ("steps", f"{max((turn.step for turn in shown.turns), default=0):,}"),
        ("transitions", f"{sum(bool(turn.target) for turn in shown.turns):,}"),
        ("time", duration(drawn.elapsed_ms)),
        ("tokens", f"{drawn.tokens:,}"),
        *((fact.name, fact.value) for fact in shown.facts if fact.name in ("model calls", "tool calls")),
        ("began", el("time", f"{began:%Y-%m-%d %H:%M} UTC", datetime=began.isoformat(timespec="seconds"))),
    ]
    return el(
        "header",
        el("p", "Report of run ", el("code", shown.run_id), class_="kicker"),
        el("h1", _first_line(shown.task) or "A run without a task", dir="auto", lang=shown.lang),
        el("p", *_pills(shown), class_="pills"),
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in numbers), class_="numbers"),
        class_="top",
    )


def _pills(shown: Report) -> list[Markup]:
    ending, verdict = shown.ending, shown.verdict
    kind = ending.status.replace(" ", "-")
    found = [el("span", ending.status, class_=f"pill {kind}")]
    if ending.reason and ending.reason != ending.status:
        found += [el("span", ending.reason.replace("_", " "), class_="pill")]
    said = "audit: nothing wrong" if verdict.ok else f"audit: {counted(len(verdict.findings), 'finding')}"
    return [*found, el("a", said, href="#audit", class_=f"pill {'good' if verdict.ok else 'bad'}")]


# ---------------------------------------------------------------- sections


def _outcome(shown: Report) -> Markup:
    ending = shown.ending
    damaged = el(
        "p",
        el("strong", "The audit found fault with this trail. "),
        "What follows is what can be read of it; the ",
        el("a", "audit", href="#audit"),
        " says what is wrong.",
        class_="warning",
        role="note",
    )
    long_task = shown.task.strip() != _first_line(shown.task).strip()
    return section(
        "outcome",
        "Outcome",
        None if shown.verdict.ok else damaged,
        el("p", ending.sentence, class_=f"sentence {ending.status.replace(' ', '-')}"),
        el("p", ending.detail, class_="detail", dir="auto") if ending.detail else None,
        [el("h3", "Answer"), content(ending.answer, lang=shown.lang, kind="text answer")]
        if ending.answer is not None
        else None,
        [el("h3", "Task"), content(shown.task, lang=shown.lang)] if long_task else None,
    )


def _messages(shown: Report) -> Markup:
    said = [
        el(
            "li",
            el("p", f"{_ROLES.get(one.role, one.role)}{f' {one.tool}' if one.tool else ''}", class_="role"),
            content(one.text, lang=shown.lang) if one.text else None,
            *(
                el("div", el("p", "calls ", el("code", tool)), content(arguments, kind="code"), class_="asked")
                for tool, arguments in one.calls
            ),
            class_=f"message {one.role}",
        )
        for one in shown.messages
    ]
    whole = el(
        "details",
        el("summary", f"{counted(len(said), 'message')} of this turn, as the history of the run has them"),
        el("ol", *said, class_="conversation"),
    )
    missing = f"The messages are not whole, because the run could not be driven again: {shown.no_messages}"
    return section(
        "messages", "Messages", el("p", missing, class_="note") if shown.no_messages else None, whole if said else None
    )


def _guards(shown: Report) -> Markup:
    rows = [
        el(
            "tr",
            el("th", el("code", one.name), scope="row"),
            el("td", one.sentence),
            el("td", f"{one.asked:,}", class_="number"),
            el("td", f"{one.held:,}", class_="number"),
            class_="held" if one.held else None,
        )
        for one in sorted(shown.guards, key=lambda one: not one.held)
    ]
    head = el(
        "tr",
        *(el("th", name, scope="col") for name in ("Guard", "Holds when")),
        *(el("th", name, scope="col", class_="number") for name in ("Asked", "Held")),
    )
    told = el("caption", "Every guard that was asked, with its meaning under the limits of this run")
    table = scrolled(el("table", told, el("thead", head), el("tbody", *rows)), "Table of guards")
    return section("guards", "Guards", table if rows else el("p", "No guard was asked.", class_="note"))


def _setup(shown: Report) -> Markup:
    return section(
        "setup",
        "Set-up",
        _list(shown.facts),
        [el("h3", "Limits"), _list(shown.limits, class_="facts few")] if shown.limits else None,
        [el("h3", "Tools"), _list(shown.tools)] if shown.tools else None,
    )


def _list(facts: tuple[Fact, ...], class_: str = "facts") -> Markup:
    return el(
        "dl",
        *(
            el("div", el("dt", one.name), el("dd", one.value, dir="auto"), class_=None if one.usual else "unusual")
            for one in facts
        ),
        class_=class_,
    )


def _audit(shown: Report) -> Markup:
    verdict = shown.verdict
    said = (
        f"Nothing is wrong: {counted(verdict.entries, 'entry', 'entries')} are as they were written, "
        f"and each of {counted(verdict.transitions, 'transition')} is the one that the table gives."
        if verdict.ok
        else f"{counted(len(verdict.findings), 'finding')}. What is written here cannot be relied on."
    )
    findings = [
        el("li", el("b", "The trail: " if one.seq < 0 else f"Entry {one.seq}: "), one.what) for one in verdict.findings
    ]
    unread = [el("li", one) for one in shown.unread]
    seal = f"Sealed with {verdict.chain}" + (", head " if verdict.head else "")
    return section(
        "audit",
        "Audit",
        el("p", said, class_=f"sentence {'completed' if verdict.ok else 'failed'}"),
        el("ul", *findings, class_="findings") if findings else None,
        [el("h3", "Not shown here, because it cannot be read"), el("ul", *unread)] if unread else None,
        [el("h3", "What the audit cannot show"), el("ul", *(el("li", one) for one in verdict.notes))]
        if verdict.notes
        else None,
        el("p", seal, el("code", verdict.head) if verdict.head else None, class_="seal"),
    )


def _foot(shown: Report) -> Markup:
    try:
        made = f"fsm-agent {version('fsm-agent')}"
    except PackageNotFoundError:
        made = "fsm-agent"
    secrets = "Secrets are shown." if shown.unredacted else "What looks like a secret is redacted."
    return el("footer", el("p", f"{made}, from a trail that was last written {utc_text(shown.updated)}. {secrets}"))
