"""A real Chromium, without a window, driven over a pipe by its own protocol (DevTools), so that nothing else has to be installed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.diagram_readers import missing

__all__ = ["Browser", "Page"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS: Final = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--force-color-profile=srgb", "--hide-scrollbars", "--mute-audio"),
)
_SECONDS: Final = 60


class Browser:
    """One Chromium for many pages. Skips the test, or fails it in CI, where there is none."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            missing("chromium")
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        their_input, self._input = os.pipe()
        self._output, their_output = os.pipe()
        # Chromium reads commands from its descriptor 3 and writes to 4; a sandbox cannot be made by root.
        given = ("bash", "-c", f'exec "$@" 3<&{their_input} 4>&{their_output}', "bash", program)
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        self._program = subprocess.Popen(
            [*given, *_FLAGS, *root, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(their_input, their_output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_input)
        os.close(their_output)
        self._turn, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.ask("Browser.close")
            self._program.wait(timeout=_SECONDS)
        finally:
            self._program.kill()
            self._program.wait(timeout=_SECONDS)
            os.close(self._input)
            os.close(self._output)
            self._folder.cleanup()

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """What the browser answers. What happens meanwhile is kept in `events`. Raises `AssertionError` for an error."""
        self._turn += 1
        asked: dict[str, Any] = {"id": self._turn, "method": method, "params": parameters}
        if session is not None:
            asked["sessionId"] = session
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._input, data) :]
        while (told := self._told()).get("id") != self._turn:
            self.events.append(told)
        assert "error" not in told, (method, told)
        answer: dict[str, Any] = told["result"]
        return answer

    def _told(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._output, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def open(self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        """A new tab with the file at `path`, once it has loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.media(dark=dark)
        page.go(path.as_uri())
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers about this page."""
        return self._browser.ask(method, self._session, **parameters)

    def media(self, *, dark: bool = False, kind: str = "") -> None:
        """Show the page as on a dark or light screen, or as `kind` ("print")."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", media=kind, features=features)

    def go(self, url: str) -> None:
        """Open `url`, and wait until it has loaded."""
        self.ask("Page.navigate", url=url)
        waiting = "document.readyState === 'complete' && location.href !== 'about:blank'"
        done = f"new Promise(done => {{ const look = () => {waiting} ? done(true) : setTimeout(look, 20); look(); }})"
        assert self.value(done) is True

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, or what it promises. It is the browser's, so no policy of the page forbids it."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def said(self) -> list[str]:
        """What the page has written to the console, and what the browser has: errors, warnings, refusals."""
        told = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self._events() if event["method"] in told]

    def requests(self) -> list[str]:
        """Every address that was asked for, in order; the page itself is the first."""
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def refused(self) -> set[str]:
        """The addresses that a policy kept from being asked for."""
        events = self._events()
        stopped = {
            event["params"]["requestId"]
            for event in events
            if event["method"] == "Network.loadingFailed" and event["params"].get("blockedReason") == "csp"
        }
        return {
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent" and event["params"]["requestId"] in stopped
        }

    def _events(self) -> list[dict[str, Any]]:
        self.ask("Runtime.evaluate", expression="0")  # what happened before it has been told then
        return [event for event in self._browser.events if event.get("sessionId") == self._session]

    def picture(self, *, whole: bool = True) -> bytes:
        """A PNG of the page, or of what is in sight."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        more = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", **more)["data"])

    def printed(self) -> bytes:
        """A PDF of the page on A4."""
        asked = self.ask("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        return base64.b64decode(asked["data"])

    def press(self, key: str) -> None:
        """Press a key of the keyboard, by its name ("Tab", "Enter")."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=codes[key], code=key
            )

    def close(self) -> None:
        """Close the tab."""
        self._browser.ask("Target.closeTarget", targetId=self._target)
