"""A tab of Chromium with the chat of a gateway in it, and how much work it is for the browser."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, Page, Response, ViewportSize

WAIT_MS = 120_000
_VIEW: ViewportSize = {"width": 1280, "height": 820}
_TASKS, _MARKS = "disabled-by-default-devtools.timeline", "blink.user_timing"
_MARK = "end of the measurement"
# Resolves with the time at which the page can be used: looks again whenever something changes.
_NOTE_READY = """globalThis.readyAtMs = new Promise((done) => {
  const look = () => {
    if (!(%s)) return;
    observer.disconnect();
    done(performance.now());
  };
  const observer = new MutationObserver(look);
  const all = {subtree: true, childList: true, attributes: true, characterData: true};
  observer.observe(document, all);
})"""
# Resolves when the last answer contains a text. Playwright's own way to wait reads the whole page,
# which would be measured too.
_WAIT_FOR = """([selector, text]) => new Promise((done) => {
  const look = () => {
    const last = [...document.querySelectorAll(selector)].at(-1);
    if (last?.textContent.includes(text)) done();
    else setTimeout(look, 100);
  };
  look();
})"""
# Reads everything from the newest message to the oldest and back. Older messages are loaded on the
# way up, where a page does that.
_SCROLL = """async (box) => {
  const frame = () => new Promise(requestAnimationFrame);
  while (box.scrollTop > 0 || box.querySelector('.chat-older')) {
    box.scrollBy(0, -2000);
    await frame();
  }
  while (box.scrollTop + box.clientHeight < box.scrollHeight - 5) {
    box.scrollBy(0, 2000);
    await frame();
  }
}"""


@dataclass(frozen=True, slots=True)
class ChatPage:
    """A page that chats with a gateway: where it is, and how its parts are found."""

    name: str
    url: str  # with `{key}` for the session
    ready: str  # a condition: its field can be written in
    log: str  # what scrolls
    answers: str
    storage: tuple[tuple[str, str], ...] = ()  # what it finds in the browser's storage


@dataclass(frozen=True, slots=True)
class Work:
    """What the main thread did for a while."""

    longest_cpu_ms: float
    longest_ms: float  # by the clock: a busy machine adds to it
    late: int  # tasks of more than 50 ms by the clock
    cpu_s: float


class Tab:
    """A tab without anything of earlier ones: no cache, no storage, no key."""

    def __init__(self, browser: Browser, page: ChatPage) -> None:
        self._browser, self._page = browser, page
        self._context = browser.new_context(viewport=_VIEW)
        self._context.set_default_timeout(WAIT_MS)
        for name, value in page.storage:
            set_item = f"localStorage.setItem({json.dumps(name)}, {json.dumps(value)})"
            self._context.add_init_script(set_item)
        self._context.add_init_script(_NOTE_READY % page.ready)
        self.tab: Page = self._context.new_page()
        self._cdp = self._context.new_cdp_session(self.tab)
        self._scripts: list[Response] = []
        self.tab.on("response", self._note_script)

    def _note_script(self, response: Response) -> None:
        if response.request.resource_type == "script":
            self._scripts.append(response)

    def close(self) -> None:
        self._context.close()

    def open(self, key: str) -> float:
        """Open a session; return after how many milliseconds the page could be used."""
        self.tab.goto(self._page.url.replace("{key}", key))
        return float(self.tab.evaluate("readyAtMs"))

    def script_kb(self) -> float:
        """Return the compressed size of the scripts that were loaded."""
        return sum(len(gzip.compress(one.body())) for one in self._scripts) / 1000

    def wait_for(self, text: str) -> None:
        """Wait until the last answer contains a text."""
        self.tab.evaluate(_WAIT_FOR, [self._page.answers, text])

    def scroll(self) -> None:
        """Scroll to the oldest message and back."""
        self.tab.locator(self._page.log).evaluate(_SCROLL)

    def ask(self, text: str, answer_end: str) -> None:
        """Send a message, and wait until its answer is complete."""
        field = self.tab.locator("textarea").first
        field.fill(text)
        field.press("Enter")
        self.wait_for(answer_end)

    def heap_mb(self) -> float:
        """Return the memory of scripts after everything that is unused was freed."""
        for _ in range(3):
            self._cdp.send("HeapProfiler.collectGarbage")
        self._cdp.send("Performance.enable")
        found = self._cdp.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "JSHeapUsedSize")) / 1e6

    def elements(self) -> int:
        return int(self.tab.evaluate("document.querySelectorAll('*').length"))

    def measure(self, run: Callable[[], object]) -> Work:
        """Return the work of the main thread while a function runs, by the browser's own trace."""
        self._browser.start_tracing(page=self.tab, categories=[_TASKS, _MARKS])
        try:
            run()
            self.tab.wait_for_timeout(500)  # what follows is part of it
            self.tab.evaluate(f"performance.mark('{_MARK}')")
        finally:
            trace = self._browser.stop_tracing()
        return _work(json.loads(trace)["traceEvents"])


def _work(events: list[dict[str, Any]]) -> Work:
    page = next(one["pid"] for one in events if one["name"] == _MARK)  # the browser has pages too
    main = next(
        one["tid"]
        for one in events
        if one["pid"] == page
        and one["name"] == "thread_name"
        and one["args"]["name"] == "CrRendererMain"
    )
    tasks = [
        (one.get("tdur", 0) / 1000, one["dur"] / 1000)
        for one in events
        if one["name"] == "RunTask"
        and one["ph"] == "X"
        and (one["pid"], one["tid"]) == (page, main)
    ]
    if not tasks:
        raise RuntimeError("the browser recorded no tasks")
    return Work(
        max(cpu for cpu, _ in tasks),
        max(wall for _, wall in tasks),
        sum(wall > 50 for _, wall in tasks),
        sum(cpu for cpu, _ in tasks) / 1000,
    )


@contextmanager
def new_tab(browser: Browser, page: ChatPage) -> Iterator[Tab]:
    tab = Tab(browser, page)
    try:
        yield tab
    finally:
        tab.close()
