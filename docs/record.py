"""Record real sessions at a terminal as pictures: `python docs/record.py docs/chat.svg`.

The program runs at a pseudo-terminal in an empty home directory with the demo model; its output is
drawn line by line. The file's name selects the session:

    chat       a chat with a scripted model (homarus.testing.model_server): a command that needs
               approval, a table and code; drawn with the colours of the terminal
    channels   from nothing to a bot that answers: the service is our fake of Telegram
               (homarus.testing.telegram_server), and the chat is shown behind a bar
    onboarding the wizard that a new user sees; the service is our scripted model
               (homarus.testing.model_server)
    memory     notes are written, found and read, and the index's status; without vectors

What differs each time (ports, process ids, pairing codes, dates) is replaced by fixed values.
"""

import asyncio
import json
import os
import queue
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from homarus.config.paths import Paths
from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedAnswer, ScriptedCall
from tests.e2e.program import DEADLINE_S, PAINT, Home, Terminal
from tests.e2e.screen import ScreenTerminal

COLUMNS, LINE_PX, CHAR_PX, MARGIN_PX = 92, 20, 8.4, 16
FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
ASKED = "Which Markdown files are in my workspace, and how would I count them in Python?"
ANSWERED = """You have **eight**. The ones that make me who I am:

| file | what it is for |
|------|----------------|
| `SOUL.md` | how I speak and behave |
| `USER.md` | what I know about you |
| `MEMORY.md` | notes that I keep |

To count them yourself:

```python
from pathlib import Path

print(len(list(Path(".").rglob("*.md"))))  # 8
```
"""
TOKEN = "700000001:AAfake-token_0123456789abcdefghijklm"  # noqa: S105 - the fake's own
GREETING, QUESTION = "Hello!", "Tell me a joke about lobsters."
BAR = "│ "
DRAWN = "\0"  # starts a row that is SVG already
INK = {
    "1": 'font-weight="bold"',
    "2": 'opacity="0.6"',
    "3": 'font-style="italic"',
    "4": 'text-decoration="underline"',
    "7": 'fill="#f0c674" font-weight="bold"',
    "31": 'fill="#e06c75"',
    "32": 'fill="#98c379"',
    "33": 'fill="#e5c07b"',
    "34": 'fill="#61afef"',
    "35": 'fill="#c678dd"',
    "36": 'fill="#56b6c2"',
}
PROMPT = re.compile(r"^(?:> |\$ |(?:Number|Answer|Not shown)\b.*:)")
ANSWER = re.compile(r"Number|Answer|Not shown")
CODE = re.compile(r"(?<=Your code: )\w+")


def record_chat(home: Home) -> list[str]:
    """Return the rows of a chat as a person sees them, already drawn."""
    call = CallTools(ScriptedCall("exec", {"command": "find . -name '*.md'"}))
    with scripted([call], [Say(ANSWERED)]) as url:
        home.use_model(url)
        terminal = ScreenTerminal(home, "chat", columns=COLUMNS, rows=50)
        try:
            terminal.wait_until("/help for", line=">")
            terminal.press(f"{ASKED}\r")
            terminal.wait_until("[y/a/N]")
            terminal.press("y\r")
            terminal.wait_until("# 8", line=">")
            terminal.wait_until_gone("Ctrl-C stops")
            terminal.press("/stat\t")
            terminal.wait_until("# 8", line="> /status")
        finally:
            terminal.close()
    rows = [_draw_row(row, home) for row in terminal.shown.cells]
    while rows[-1] == DRAWN:  # a row that is empty again
        rows.pop()
    return ["$ homarus chat", *rows]


@contextmanager
def scripted(*answers: ScriptedAnswer) -> Iterator[str]:
    """Serve a model that gives these answers; yield its URL."""
    ready: queue.SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = (
        queue.SimpleQueue()
    )

    async def serve() -> None:
        async with ModelServer() as server:
            server.script(*answers)
            done = asyncio.Event()
            ready.put((server.url, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, done = ready.get(timeout=DEADLINE_S)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


def record_channels(home: Home) -> list[str]:
    """Return the lines of a bot's setup: add it, pair a sender, and answer them."""
    with served("homarus.testing.telegram_server") as url:
        telegram = Telegram(url)
        home.env["OPENCLAW_GATEWAY_PORT"] = port = str(_free_port())
        add = ("channels", "add", "telegram", "--token", "-", "--set", f"apiRoot={url}")
        shown = run(home, *add, typed=TOKEN)
        gateway = Terminal(home, "gateway", "run")
        try:
            gateway.wait_for("process ")
            gateway.wait_for("\n")
            shown += ["$ homarus gateway run &", *_lines(gateway.screen)]
            telegram.wait_until_polled()
            shown += run(home, "channels", "status", "--probe")
            shown += telegram.talk(GREETING)
            code = CODE.search("\n".join(shown))
            assert code, shown
            shown += run(home, "pairing", "list")
            shown += run(home, "pairing", "approve", "telegram", code[0])
            shown += telegram.talk(QUESTION)
            gateway.press_ctrl_c()
            gateway.end()
        finally:
            gateway.close()
    steady = {url: "http://127.0.0.1:8081", f":{port}": ":18789", code[0]: "7KQ2XM9P"}
    for changing, same in steady.items():
        shown = [line.replace(changing, same) for line in shown]
    shown = [re.sub(r"#token=\w+", "#token=…", line) for line in shown]
    return [re.sub(r"\(process \d+\)", "(process 4711)", line) for line in shown]


def record_onboarding(home: Home) -> list[str]:
    """Return the lines of the onboarding of a new user."""
    with served("homarus.testing.model_server") as url:
        terminal = Terminal(home, "onboard", "--skip-daemon")
        try:
            for question, prompt, typed in (
                ("Which model should answer?", "Number:", "10"),
                ("The base URL", "/v1):", url),
                ("Which API", "Number [1]:", ""),
                ("A name", "[custom]:", "llama"),
                ("The API key", "Not shown:", ""),
                ("Which model?", "Number [1]:", ""),
                ("called?", "[Homarus]:", "Nyx"),
                ("folder", "workspace]:", ""),
                ("Which chat service", "Number [1]:", ""),
            ):
                terminal.wait_for(question)
                terminal.wait_for(prompt)
                terminal.type(typed)
            assert terminal.end() == 0, terminal.screen
        finally:
            terminal.close()
    # The line editor draws its prompt again when a line is sent: the last one counts.
    lines = _lines(terminal.screen)
    shown = [
        line[line.rfind(asked[0]) :] if (asked := ANSWER.match(line)) else line for line in lines
    ]
    shown = [line.replace(url, "http://127.0.0.1:8080/v1") for line in shown]
    shown = [re.sub(r"#token=\w+", "#token=…", line) for line in shown]
    return ["$ homarus onboard", *shown]


def record_memory(home: Home) -> list[str]:
    """Return the lines of writing and searching notes, without vectors."""
    home.configure({"agents": {"defaults": {"memorySearch": {"provider": "none"}}}})
    assert home.run("setup").status == 0
    moved = "Ada moved to Kiel in March; her flat looks out on the harbour."
    shown = run(home, "memory", "write", moved)
    shown += run(home, "memory", "write", "Ben is allergic to walnuts.", "--to", "MEMORY.md")
    shown += run(home, "memory", "search", "Where does Ada live?", "--limit", "1")
    shown += run(home, "memory", "get", "MEMORY.md")
    shown += run(home, "memory", "status")
    return [re.sub(r"\d{4}-\d\d-\d\d", "2026-11-15", line) for line in shown]


def run(home: Home, *args: str, typed: str = "") -> list[str]:
    """Run a command and return its output; `typed` is the input to its prompt."""
    terminal = Terminal(home, *args)
    try:
        if typed:
            terminal.wait_for(": ")
            terminal.type(typed)
        assert terminal.end() == 0, terminal.screen
    finally:
        terminal.close()
    return [f"$ homarus {shlex.join(args)}", *_lines(terminal.screen)]


class Telegram:
    """The fake service, as a person who writes to the bot uses it."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url).netloc

    def wait_until_polled(self) -> None:
        """Wait until the bot polls for updates."""
        _wait_for(lambda: any(one["method"] == "deleteWebhook" for one in self._books()["calls"]))

    def talk(self, text: str) -> list[str]:
        """Write to the bot; return what the chat shows, with the bot's reply."""
        before = len(self._books()["messages"])
        self._ask("POST", "say", {"text": text})
        _wait_for(lambda: len(self._books()["messages"]) >= before + 2)
        shown = self._books()["messages"][before:]
        said = (f"{one['from']['first_name']}: {one['text']}" for one in shown)
        return [BAR + line for words in said for line in words.splitlines() if line]

    def _books(self) -> Any:
        return self._ask("GET", "books")

    def _ask(self, method: str, what: str, data: object = None) -> Any:
        connection = HTTPConnection(self._place, timeout=DEADLINE_S)
        try:
            connection.request(method, f"/control/{what}", json.dumps(data))
            return json.load(connection.getresponse())
        finally:
            connection.close()


@contextmanager
def served(module: str) -> Iterator[str]:
    """Run one of our test servers as a process; yield its URL."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def wrap(lines: list[str]) -> list[str]:
    """Return the lines wrapped to the width of the picture; drawn rows are not."""
    return [
        part
        for line in lines
        for part in (
            [line]
            if line.startswith(DRAWN)
            else textwrap.wrap(line, COLUMNS, subsequent_indent=BAR if line.startswith(BAR) else "")
        )
    ]


def draw(lines: list[str]) -> str:
    """Return the lines as a terminal in SVG."""
    wrapped = wrap(lines)
    width = COLUMNS * CHAR_PX + 2 * MARGIN_PX
    height = len(wrapped) * LINE_PX + 2 * MARGIN_PX
    rows = [
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + (n + 1) * LINE_PX - 6}"'
        f' fill="{_colour(line)}" xml:space="preserve">{_content(line)}</text>'
        for n, line in enumerate(wrapped)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" {FONT}>',
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#16181d"/>',
            *rows,
            "</svg>\n",
        ]
    )


def _colour(line: str) -> str:
    if line.startswith(BAR):
        return "#9ad0a8"
    return "#8ab4f8" if PROMPT.match(line) else "#d7dae0"


def _content(line: str) -> str:
    return line.removeprefix(DRAWN) if line.startswith(DRAWN) else escape(_plain(line))


def _draw_row(cells: Sequence[tuple[str, str]], home: Home) -> str:
    """Return a row of a terminal as SVG, one element for each style."""
    row = list(cells)
    while row and row[-1] in {(" ", ""), ("", "")}:
        row.pop()
    drawn, start = DRAWN, 0
    for place in range(1, len(row) + 1):
        if place < len(row) and row[place][1] == row[start][1]:
            continue
        text = "".join(ch for ch, _ in row[start:place]).replace(str(home.path), "~")
        style = row[start][1]
        drawn += f'<tspan x="{MARGIN_PX + start * CHAR_PX:g}"{_svg_style(style)}>'
        drawn += f"{escape(_plain(text))}</tspan>"
        start = place
    return drawn


def _svg_style(style: str) -> str:
    codes = style.split(";")
    drawn = [INK[code] for code in codes if code in INK]
    return "".join(f" {each}" for each in drawn)


def _plain(line: str) -> str:
    return "".join(ch for ch in line if unicodedata.category(ch) != "Cc")


def _lines(screen: str) -> list[str]:
    """Return the lines of a screen, without the progress bar that only a slow machine shows."""
    shown = (line.rstrip() for line in PAINT.sub("", screen).splitlines() if line.strip())
    return [line for line in shown if not re.match(r"\[[^]]*\] \d+ of \d+", line)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


SESSIONS = {
    "chat": record_chat,
    "channels": record_channels,
    "memory": record_memory,
    "onboarding": record_onboarding,
}


def main(file: Path) -> None:
    models = Paths.find(os.environ).models_cache
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": os.environ["PATH"]}
        home = Home(Path(folder), env if file.stem == "chat" else {**env, "NO_COLOR": "1"})
        (Path(folder) / ".cache" / "homarus").mkdir(parents=True)
        (Path(folder) / ".cache" / "homarus" / "models").symlink_to(models)
        lines = [line.replace(folder, "~") for line in SESSIONS[file.stem](home)]
    file.write_text(draw(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
