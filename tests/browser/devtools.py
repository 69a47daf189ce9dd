"""Debian's Chromium without a screen, by its DevTools protocol over a pipe: messages are JSON, each with a zero byte behind it.

https://chromedevtools.github.io/devtools-protocol/ has the commands. For one thread.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page", "browser"]

_DEADLINE_S = 60.0
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--mute-audio", "--hide-scrollbars"),
)


class Browser:
    """Args:
    folder: for its profile.
    """

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        assert program is not None, "these tests need Debian's package chromium: apt-get install chromium"
        theirs, self._write = os.pipe()
        self._read, other = os.pipe()
        line = [program, *_OPTIONS, f"--user-data-dir={folder}"]
        with (folder / "stderr").open("wb") as said:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{other}', "chromium", *line],
                pass_fds=(theirs, other),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, "HOME": str(folder)},
            )
        os.close(theirs)
        os.close(other)
        self.pages: dict[str, Page] = {}  # by session
        self._numbers = itertools.count(1)
        self._held = b""

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command, and wait for its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _DEADLINE_S
        while True:
            answer = self._next(until)
            assert answer is not None, f"no answer of chromium to {method}"
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def listen(self, seconds: float) -> None:
        """Take in what pages say."""
        until = time.monotonic() + seconds
        while self._next(until) is not None:
            pass

    def open(self, url: str, width: int, height: int = 900) -> Page:
        """A new tab. Below 500 pixels it is a phone's, with a touch screen."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        phone = width < 500
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        page.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def _next(self, until: float) -> dict[str, Any] | None:
        while b"\0" not in self._held:
            if not select.select([self._read], [], [], max(until - time.monotonic(), 0.0))[0]:
                return None
            more = os.read(self._read, 1 << 16)
            assert more, "chromium has ended"
            self._held += more
        text, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if page := self.pages.get(message.get("sessionId", "")):
            page.heard(message.get("method", ""), message.get("params", {}))
        return message

    def end(self) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(20)
        finally:
            os.close(self._read)
            os.close(self._write)
            if self.process.poll() is None:
                os.killpg(self.process.pid, 9)
                self.process.wait()


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.errors: list[str] = []  # what its console shows in red or yellow
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value", one) for one in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def value(self, expression: str) -> Any:
        """What the expression is in the page; of a promise, what it becomes."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30.0) -> Any:
        """Until the expression is true; what it then is."""
        until = time.monotonic() + seconds
        while not (found := self.value(expression)):
            assert time.monotonic() < until, f"not in time: {expression}\nerrors: {self.errors}"
            self._browser.listen(0.05)
        return found

    def mouse(self, kind: str, x: float, y: float, held: bool = False) -> None:
        """`kind` is Pressed, Moved or Released."""
        button = {"button": "left", "buttons": 1} if held or kind != "Moved" else {}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, clickCount=int(kind != "Moved"), **button)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """`kind` is Start, Move or End."""
        self.call("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=[{"x": x, "y": y} for x, y in points])

    def picture(self, path: Path, whole: bool = True) -> None:
        """A PNG of the whole page, or of what the window shows."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
        del self._browser.pages[self._session]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    one = Browser(folder)
    try:
        yield one
    finally:
        one.end()
