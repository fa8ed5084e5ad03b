"""The two figures of the page: time and tokens by state, and the path through the machine. Each stands there as a table too."""

from __future__ import annotations

from fsm_agent.diagrams.walk import counted, duration
from fsm_agent.report.markup import Markup, el, trusted
from fsm_agent.report.parts import Report
from fsm_agent.report.sections import scrolled, section, state
from fsm_agent.report.timeline import HEIGHT, LENGTH, Stay, timeline

__all__ = ["path_section", "time_section"]

_BAR: float = 16.0


def time_section(shown: Report) -> Markup:
    """A table of the states; beside each, when the run was in it."""
    drawn = timeline(shown.turns)
    if not drawn.stays:
        return section("time", "Time and tokens", el("p", "Nothing has happened yet.", class_="note"))
    head = el(
        "tr",
        el("th", "State", scope="col"),
        *(el("th", name, scope="col", class_="number") for name in ("Visits", "Time", "Share", "Tokens")),
        el(
            "th",
            el("span", "When", class_="unseen"),
            el("span", *(el("span", duration(tick)) for tick in drawn.ticks), class_="ticks", aria_hidden="true"),
            scope="col",
            class_="when",
        ),
    )
    rows = [_row(stay, shown.places.get(stay.state, "state"), drawn.elapsed_ms) for stay in drawn.stays]
    total = el(
        "tr",
        el("th", "All", scope="row"),
        el("td", f"{sum(stay.visits for stay in drawn.stays):,}", class_="number"),
        el("td", duration(drawn.elapsed_ms), class_="number"),
        el("td", "100 %" if drawn.elapsed_ms else "", class_="number"),
        el("td", f"{drawn.tokens:,}", class_="number"),
        el("td", _area(drawn.rising) if drawn.tokens else None, class_="when"),
    )
    told = el("caption", "Where time and tokens went. The bars show when; the curve below them the tokens so far")
    short = "Waiting for a person took longer than it is drawn." if drawn.shortened else ""
    return section(
        "time",
        "Time and tokens",
        scrolled(
            el("table", told, el("thead", head), el("tbody", *rows), el("tfoot", total), class_="timeline"),
            "Time and tokens by state",
        ),
        el("p", short, class_="note") if short else None,
    )


def _row(stay: Stay, place: str, whole: float) -> Markup:
    share = f"{stay.elapsed_ms / whole:.0%}".replace("%", " %") if whole else ""
    d = "".join(f"M{begin:.1f} 0h{length:.1f}v{_BAR:g}h{-length:.1f}z" for begin, length in stay.bars)
    return el(
        "tr",
        el("th", el("span", stay.state, class_=f"state {place}"), scope="row"),
        el("td", f"{stay.visits:,}", class_="number"),
        el("td", duration(stay.elapsed_ms), class_="number"),
        el("td", share, class_="number"),
        el("td", f"{stay.tokens:,}" if stay.tokens else "", class_="number"),
        el("td", _svg(el("path", d=d, class_=f"bar {place}"), _BAR), class_="when"),
    )


def _svg(shape: Markup, height: float) -> Markup:
    return el(
        "svg",
        shape,
        viewBox=f"0 0 {LENGTH:g} {height:g}",
        preserveAspectRatio="none",
        aria_hidden="true",
        focusable="false",
    )


def _area(rising: tuple[tuple[float, float], ...]) -> Markup:
    line = "".join(f"L{x:.1f} {y:.1f}" for x, y in rising)
    return _svg(el("path", d=f"M0 {HEIGHT:g}{line}L{LENGTH:g} {HEIGHT:g}z", class_="area"), HEIGHT)


def path_section(shown: Report) -> Markup:
    """The machine with the run in it, and the same as a table."""
    drawn = el("p", shown.undrawn, class_="note") if shown.overlay is None else _figure(shown.overlay)
    return section("path", "Path through the machine", drawn, _ways(shown) if shown.ways else None)


def _figure(image: str) -> Markup:
    name = "The path of the run through its state machine; the table below says the same"
    told = "The whole machine; coloured is what the run took, with how often, when and for how long."
    return el(
        "figure",
        scrolled(el("div", trusted(image), class_="picture", role="img", aria_label=name), "Picture of the path"),
        el("figcaption", told),
    )


def _ways(shown: Report) -> Markup:
    head = el(
        "tr",
        *(el("th", name, scope="col") for name in ("From", "Event", "Guards that held", "To")),
        *(el("th", name, scope="col", class_="number") for name in ("Times", "Time before it")),
    )
    rows = [
        el(
            "tr",
            el("td", state(way.source, shown.places)),
            el("td", way.event),
            el("td", ", ".join(way.guards)),
            el("td", state(way.target, shown.places)),
            el("td", f"{way.count:,}", class_="number"),
            el("td", duration(way.elapsed_ms), class_="number"),
        )
        for way in shown.ways
    ]
    told = el("caption", "What the run took, in the order of the first time")
    table = el("table", told, el("thead", head), el("tbody", *rows))
    summary = f"The same as a table: {counted(len(rows), 'row')} of the table of the machine"
    return el("details", el("summary", summary), scrolled(table, "Rows taken"))
