"""The report in a real Chromium: silent, alone, harmless, quick, and usable by keyboard, by screen reader, on a phone and on paper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fsm_agent.testing import call, reply
from tests.browser import Browser, Page
from tests.diagram_readers import npm_folder
from tests.report.runs import ENDINGS, HOSTILE, long_run, page

_AXE: Final = "axe-core@4.14.1"
_STEPS: Final = 400
_ELEMENTS: Final = 120
"""Of a step, at most: what a browser has to make of it while the page opens."""
_TEXTS: Final = {
    "hostile": lambda: page(
        [*(reply(text, call("say", text=text)) for text in HOSTILE), "".join(HOSTILE)],
        task="".join(HOSTILE),
        max_steps=30,
    ),
    "long": lambda: long_run(_STEPS),
    **ENDINGS,
}


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Browser]:
    """One browser for all of these tests."""
    with Browser() as browser:
        yield browser


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pages are written, each once."""
    return tmp_path_factory.mktemp("pages")


def opened(browser: Browser, folder: Path, name: str, *, width: int = 1280, dark: bool = False) -> Page:
    """The report of that name in a new tab."""
    file = folder / f"{name.replace(' ', '-')}.html"
    if not file.exists():
        file.write_text(_TEXTS[name](), encoding="utf-8")
    return browser.open(file, width=width, dark=dark)


@pytest.mark.parametrize("name", _TEXTS)
def test_a_page_says_nothing_to_the_console_and_asks_for_nothing(browser: Browser, folder: Path, name: str) -> None:
    """No error, no warning, no refusal; the one request is for the page itself; no script has run or is there."""
    shown = opened(browser, folder, name)
    assert shown.said() == []
    assert shown.requests() == [(folder / f"{name.replace(' ', '-')}.html").as_uri()]
    assert shown.value("window.hacked === undefined && document.scripts.length === 0")
    assert shown.value("document.querySelector('main').getBoundingClientRect().height > 100")
    shown.close()


def test_the_policy_refuses_what_a_page_would_fetch_or_run(browser: Browser, folder: Path) -> None:
    """Were there markup of somebody else in it, it could neither run, nor ask for anything, nor restyle the page."""
    shown = opened(browser, folder, "completed")
    before = shown.requests()
    shown.value(
        """(() => {
        const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/leak'; document.body.append(image);
        const script = document.createElement('script'); script.textContent = 'window.hacked = 1'; document.body.append(script);
        const style = document.createElement('style'); style.textContent = 'main { display: none }'; document.body.append(style);
        document.body.insertAdjacentHTML('beforeend', '<p id="hot" style="display: none" onclick="window.hacked = 1">x</p>');
        document.getElementById('hot').click();
        return fetch('http://127.0.0.1:9/leak').then(() => 'fetched', () => 'refused');
        })()"""
    )
    assert shown.value("window.hacked === undefined")
    assert shown.value("getComputedStyle(document.querySelector('main')).display") == "block"
    assert shown.value("getComputedStyle(document.getElementById('hot')).display") == "block"
    assert set(shown.requests()) - set(before) == shown.refused()
    assert len(shown.said()) >= 4
    shown.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["completed", "failed", "suspended", "hostile"])
def test_axe_finds_nothing(browser: Browser, folder: Path, name: str, dark: bool) -> None:
    """No violation of accessibility rules that axe knows, contrast in light and dark included, with everything opened."""
    source = (npm_folder(_AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    shown = opened(browser, folder, name, dark=dark)
    shown.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    shown.value(f"(() => {{ {source}; return 1; }})()")
    found = shown.value("axe.run().then(found => JSON.stringify(found.violations))")
    told = [(one["id"], [at["html"][:200] for at in one["nodes"][:3]]) for one in json.loads(found)]
    assert told == []
    shown.close()


def test_the_keyboard_is_enough(browser: Browser, folder: Path) -> None:
    """The first stop skips to the content, every stop can be seen, and a step opens and closes without a mouse."""
    shown = opened(browser, folder, "completed")
    shown.press("Tab")
    assert shown.value("document.activeElement.textContent") == "Skip to the outcome"
    assert shown.value("document.activeElement.getBoundingClientRect().top >= 0")
    assert shown.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    shown.press("Enter")
    assert shown.value("location.hash") == "#outcome"
    shown.value("document.querySelector('.step > summary').focus()")
    for is_open in (False, True):
        shown.press("Enter")
        assert shown.value("document.querySelector('.step').open") is is_open
    shown.close()


def test_a_link_to_a_step_opens_it(browser: Browser, folder: Path) -> None:
    """Of a long run only what is out of the ordinary is linked; following the link shows the step."""
    shown = opened(browser, folder, "long")
    assert shown.value("document.querySelectorAll('.step[open]').length") == 1
    shown.value("document.querySelector('.troubles a').click()")
    step = "document.querySelector(location.hash)"
    assert shown.value(f"{step}.closest('details').open")
    assert shown.value(f"{step}.getBoundingClientRect().height > 50")
    shown.close()


@pytest.mark.parametrize("width", [320, 390, 1280, 1920])
@pytest.mark.parametrize("name", ["failed", "hostile"])
def test_a_page_fits_every_screen(browser: Browser, folder: Path, name: str, width: int) -> None:
    """Nothing sticks out, however narrow: what is wide scrolls in a box of its own."""
    shown = opened(browser, folder, name, width=width)
    assert shown.value("document.documentElement.scrollWidth") <= width
    shown.close()


@pytest.mark.parametrize("name", ["failed", "hostile"])
def test_everything_is_printed(browser: Browser, folder: Path, name: str) -> None:
    """On paper what is closed is shown, in the light colours, nothing scrolls, and the way around the page is left out."""
    shown = opened(browser, folder, name, dark=True)
    shown.value("document.querySelectorAll('details').forEach(one => one.open = false)")
    shown.media(dark=True, kind="print")
    hidden = "[...document.querySelectorAll('.turn, .message, #path td')].filter(one => one.getBoundingClientRect().height === 0)"
    assert shown.value("document.querySelectorAll('.turn').length") > 10
    assert shown.value(f"{hidden}.length") == 0
    assert shown.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert shown.value("getComputedStyle(document.documentElement).color") == "rgb(23, 32, 44)"
    assert shown.value("[...document.querySelectorAll('pre')].every(one => one.scrollHeight <= one.clientHeight + 1)")
    assert shown.printed().startswith(b"%PDF")
    shown.close()


def test_a_long_run_opens_as_its_steps_are_closed(browser: Browser, folder: Path) -> None:
    """400 steps: few elements each, and of those hardly any is laid out before somebody opens it."""
    shown = opened(browser, folder, "long")
    steps = "document.querySelectorAll('.step').length"
    assert shown.value(steps) == _STEPS
    assert shown.value("document.querySelectorAll('.step *').length") < _STEPS * _ELEMENTS
    drawn = "[...document.querySelectorAll('.step *')].filter(one => one.checkVisibility()).length"
    assert shown.value(drawn) < _STEPS * 10
    shown.close()
