"""Drive a headless Chromium by its own protocol over one WebSocket."""

import base64
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--window-size=1000,760"),
)
DEADLINE_S = 20.0
# Checks again whenever the page changes, so that no polling is needed.
WAIT = """new Promise((done, fail) => {
  const look = () => { const found = (%s); if (found) { eye.disconnect(); done(found); } };
  const eye = new MutationObserver(look);
  eye.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  setTimeout(() => { look(); fail(new Error('not so in time: ' + document.body.innerText)); }, %d);
  look();
})"""
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9)}


class BrowserError(AssertionError):
    """The browser or the page reported an error."""


class Browser:
    """One Chromium."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        frame: dict[str, Any] = {"id": next(self._ids), "method": method, "params": params}
        if session:
            frame["sessionId"] = session
        self._socket.send(json.dumps(frame))
        while True:
            heard = self._hear(DEADLINE_S + 10)
            if heard.get("id") == frame["id"]:
                break
        if "error" in heard:
            raise BrowserError(f"{method}: {heard['error']['message']}")
        return heard["result"]

    def wait_for(self, event: str, session: str) -> dict[str, Any]:
        """Return the next event of this name that was not consumed yet."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            for heard in self.events:
                if heard["method"] == event and heard.get("sessionId") == session:
                    self.events.remove(heard)
                    found: dict[str, Any] = heard["params"]
                    return found
            self._hear(deadline_s - time.monotonic())

    def open(self, url: str) -> "Page":
        """Open a page that shares no storage and no keys with the others."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.go(url)
        return page

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._socket.recv(timeout=max(0.0, timeout_s)))
        if "method" in heard:
            self.events.append(heard)
        return heard


class Page:
    """One tab: what it shows, and user input."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def copied(self) -> str:
        """Return the text on the clipboard."""
        allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        self._browser.call(
            "Browser.grantPermissions", permissions=allowed, browserContextId=self._context
        )
        found: str = self.run("navigator.clipboard.readText()")
        return found

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)

    def reload(self) -> None:
        self.call("Page.reload")
        self._browser.wait_for("Page.loadEventFired", self._session)

    def run(self, script: str) -> Any:
        """Return the value of an expression; of a promise, when it is settled."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raised = done["exceptionDetails"].get("exception", {})
            raise BrowserError(raised.get("description") or str(done["exceptionDetails"]))
        return done["result"].get("value")

    def wait_until(self, condition: str) -> Any:
        """Return the condition's value, as soon as it is true."""
        return self.run(WAIT % (condition, int(DEADLINE_S * 1000)))

    def wait_for_text(self, selector: str, text: str) -> str:
        """Return the text of the first such element that contains `text`."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        inside = f"one.innerText.includes({json.dumps(text)})"
        shown: str = self.wait_until(f"{found}.find(one => {inside})?.innerText")
        return shown

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        text, code = KEYS[key]
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        named["modifiers"] = 8 if shift else 0
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, selector: str) -> None:
        """Click with the mouse on the element's position."""
        x, y = self.centre(selector)
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def centre(self, selector: str) -> tuple[float, float]:
        """Return the position of an element's middle, scrolled into view."""
        x, y = self.run(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'nearest'}); const r = found.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return x, y

    def choose_files(self, selector: str, *files: Path) -> None:
        """Choose files as in the dialog of a file input."""
        found = self.call(
            "Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})"
        )
        self.call(
            "DOM.setFileInputFiles",
            files=[str(file) for file in files],
            objectId=found["result"]["objectId"],
        )

    def problems(self) -> list[str]:
        """Return what the browser reported: script errors, policy violations."""
        self.run("0")  # earlier events have been handled now
        found = []
        for heard in self._browser.events:
            if heard.get("sessionId") != self._session:
                continue
            params = heard["params"]
            if heard["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if heard["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found

    def sockets(self) -> list[str]:
        """Return the WebSockets the page opened."""
        self.run("0")
        return [
            heard["params"]["url"]
            for heard in self._browser.events
            if heard["method"] == "Network.webSocketCreated"
            and heard.get("sessionId") == self._session
        ]

    def sent(self) -> list[str]:
        """Return the frames the page sent."""
        self.run("0")
        return [
            heard["params"]["response"]["payloadData"]
            for heard in self._browser.events
            if heard["method"] == "Network.webSocketFrameSent"
            and heard.get("sessionId") == self._session
        ]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def chromium(folder: Path, *flags: str) -> Iterator[Browser]:
    """Run Debian's Chromium with an empty profile while the block lasts."""
    command = ["chromium", *FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            url = ""
            for line in process.stderr:
                if "DevTools listening on " in line:
                    url = line.split()[-1]
                    break
            if not url:
                raise BrowserError("chromium did not start")
            # Its further output is drained: a full pipe would block it.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with connect(
                url, max_size=None, max_queue=None, compression=None, proxy=None, close_timeout=1
            ) as socket:
                yield Browser(socket)
        finally:
            process.kill()
