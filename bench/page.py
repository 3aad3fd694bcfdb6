"""The control UI in Chromium, beside OpenClaw's own page on the same gateway.

How much script the first load needs and when the page can be used; the longest task of the main
thread while a long session is opened and read from end to end, and while an answer streams; and
the memory of scripts over many turns. Tasks are judged by their CPU time, which the browser's own
trace has: on a shared machine, a task by the clock contains the work of others. OpenClaw's page is
that of its npm package, which the first run installs; of a session it shows the newest 200
messages, where ours shows all. The small version measures our page alone.
"""

import asyncio
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench.app import configure
from bench.client import Device, open_client
from bench.figure import Figure
from bench.page_tab import ChatPage, Tab, Work, new_tab
from bench.page_text import KEY, markdown, write_long_session
from bench.process import TOKEN, Gateway, running_gateway
from homarus.testing.model_server import ModelServer, Say
from tests.peers.gateway import model_server
from tests.peers.install import debian, original_client
from tests.peers.ui import CHROMIUM, build_ui, ensure_node

PIECE_CHARS, GAP_S = 12, 0.0095  # with what sending takes, a hundred pieces a second
END = "This is the end."
_TURN = f"Tell me more MOCK:say:{markdown(600)}§"
_OURS = "document.querySelector('[data-testid=connection-state]')?.textContent === 'Connected'"
_SETTINGS = "openclaw.control.settings.v1"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    loads: int
    messages: int
    pieces: int
    turns: int
    has_rival: bool


QUICK = Size(loads=2, messages=200, pieces=400, turns=0, has_rival=False)
FULL = Size(loads=5, messages=5_000, pieces=2_000, turns=1_000, has_rival=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one page."""

    script_kb: float
    interactive_ms: float
    history: Work
    stream: Work
    heaps_mb: tuple[float, ...]  # after a fifth of the turns, and at the end


def measure(*, quick: bool) -> list[Figure]:
    size = QUICK if quick else FULL
    if quick and not shutil.which("chromium"):
        print("bench: page is left out: there is no chromium", file=sys.stderr)
        return []
    debian(chromium="chromium")  # or say what to install
    ensure_node()
    build_ui()
    with ExitStack() as stack:
        served = stack.enter_context(_original_page()) if size.has_rival else ""
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = stack.enter_context(model_server())
        _prepare(home, model, served, size)
        gateway = stack.enter_context(running_gateway(home))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        stack.callback(browser.close)
        ours = _measure_page(browser, _our_page(gateway), gateway, model, size)
        rival = None
        if served:
            rival = _measure_page(browser, _their_page(served, gateway), gateway, model, size)
    return _figures(ours, rival, size)


def _prepare(home: Path, model: ModelServer, served: str, size: Size) -> None:
    """Write the config, and a long session."""
    configure(home, model.url)
    file = home / "state" / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["gateway"] = {"controlUi": {"allowedOrigins": [served] if served else []}}
    file.write_text(json.dumps(config), encoding="utf-8")
    write_long_session(home / "state", size.messages)


def _our_page(gateway: Gateway) -> ChatPage:
    return ChatPage(
        "ours",
        gateway.url.replace("ws:", "http:") + f"chat?session={{key}}#token={TOKEN}",
        f"document.querySelector('textarea') && {_OURS}",
        "[role=log]",
        "[aria-label='The agent answered']",
    )


def _their_page(served: str, gateway: Gateway) -> ChatPage:
    settings = {"gatewayUrl": gateway.url, "token": TOKEN, "theme": "dark"}
    return ChatPage(
        "theirs",
        f"{served}/chat?session={{key}}",
        "document.querySelector('textarea:not([disabled])')",
        ".chat-thread",
        ".chat-group.assistant",
        ((_SETTINGS, json.dumps(settings)),),
    )


def _measure_page(
    browser: Browser, page: ChatPage, gateway: Gateway, model: ModelServer, size: Size
) -> Measured:
    loads = [_measure_load(browser, page) for _ in range(size.loads)]
    with new_tab(browser, page) as tab:
        history = tab.measure(lambda: _read_history(tab, size.messages))
    pieces = _pieces(size.pieces)
    with new_tab(browser, page) as tab:
        tab.open(f"agent:main:stream-{page.name}")
        model.script([Say(pieces, gap_s=GAP_S)])
        stream = tab.measure(lambda: tab.ask("Tell me everything", END))
    heaps = _measure_heap(browser, page, gateway, size.turns) if size.turns else ()
    kb, interactive = min(one[0] for one in loads), min(one[1] for one in loads)
    return Measured(kb, interactive, history, stream, heaps)


def _measure_load(browser: Browser, page: ChatPage) -> tuple[float, float]:
    with new_tab(browser, page) as tab:
        interactive_ms = tab.open("agent:main:empty")
        return tab.script_kb(), interactive_ms


def _read_history(tab: Tab, messages: int) -> None:
    tab.open(KEY)
    tab.wait_for(f"Message {messages - 1}.")
    tab.scroll()


def _pieces(count: int) -> list[str]:
    text = markdown(count * PIECE_CHARS)
    pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
    return [*pieces, f"\n```\n\n{END}"]


def _measure_heap(
    browser: Browser, page: ChatPage, gateway: Gateway, turns: int
) -> tuple[float, ...]:
    key = f"agent:main:heap-{page.name}"
    with new_tab(browser, page) as tab:
        tab.open(key)
        heaps = list[float]()
        for count in (turns // 5, turns - turns // 5):
            _run_turns(gateway.url, key, count)
            tab.tab.wait_for_timeout(2_000)  # the page loads what is new
            heaps.append(tab.heap_mb())
    return tuple(heaps)


def _run_turns(url: str, key: str, count: int) -> None:
    """Hold a conversation that the page follows."""

    async def run() -> None:
        async with open_client(url, Device()) as client:
            for _ in range(count):
                await client.turn(key, _TURN)

    thread = threading.Thread(target=lambda: asyncio.run(run()))  # this one has Playwright's loop
    thread.start()
    thread.join()


def _figures(ours: Measured, rival: Measured | None, size: Size) -> list[Figure]:
    """Return the figures of our page, and what OpenClaw's page takes of the same."""

    def beside(get: str, unit: str) -> str:
        if rival is None:
            return ""
        mine, other = _value(ours, get), _value(rival, get)
        return f"OpenClaw's page: {other:.4g} {unit}, {other / mine:.1f} × as much"

    def tasks(name: str, part: str) -> Figure:
        work: Work = getattr(ours, part)
        clock = (
            f"{work.longest_ms:.0f} ms by the clock, {work.late} over 50, {work.cpu_s:.1f} CPU-s"
        )
        note = f"{clock}; {beside(f'{part}.longest_cpu_ms', 'CPU-ms')}".removesuffix("; ")
        return Figure(name, work.longest_cpu_ms, "CPU-ms", note)

    figures = [
        Figure("page.script_kb", ours.script_kb, "KB", beside("script_kb", "KB")),
        Figure("page.interactive_ms", ours.interactive_ms, "ms", beside("interactive_ms", "ms")),
        tasks("page.history_task_cpu_ms", "history"),
        tasks("page.stream_task_cpu_ms", "stream"),
    ]
    if ours.heaps_mb:
        growth = [one.heaps_mb[-1] / one.heaps_mb[0] for one in (ours, rival) if one]
        note = f"{ours.heaps_mb[-1]:.1f} MB after {size.turns} turns"
        if rival:
            note += f"; OpenClaw's page: {growth[-1]:.2f} ×, {rival.heaps_mb[-1]:.1f} MB"
        figures.append(Figure("page.heap_growth", growth[0], "×", note))
    return figures


def _value(measured: Measured, path: str) -> float:
    found: Any = measured
    for name in path.split("."):
        found = getattr(found, name)
    return float(found)


class _PageFiles(SimpleHTTPRequestHandler):
    folder = Path()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, directory=str(self.folder), **named)

    def translate_path(self, path: str) -> str:
        """Return the file of a path; the page itself for its own addresses."""
        found = super().translate_path(path)
        return found if Path(found).is_file() else str(self.folder / "index.html")

    def log_message(self, *_args: Any) -> None:
        """Write nothing to the terminal."""


@contextmanager
def _original_page() -> Iterator[str]:
    """Serve the page of OpenClaw's package; yield its address."""
    _PageFiles.folder = original_client().entry.parent / "dist" / "control-ui"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _PageFiles)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
