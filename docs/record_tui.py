"""Draw the full-screen interface as pictures: `python docs/record_tui.py docs/tui.svg`.

The program runs without a terminal, on a gateway inside of this process in an empty home directory,
with a scripted model (homarus.testing.model_server). The file's name selects the scene:

    tui          a conversation with tool calls, and a command that waits for an answer
    tui-narrow   the commands, in 40 columns

Times, which differ each time, are replaced by fixed ones.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.segment import Segment

from homarus.cli.chat_history import ChatHistoryFile
from homarus.cli.gateway_options import GatewayOptions
from homarus.cli.tui.app import TuiApp
from homarus.cli.tui.command import TuiOptions
from homarus.cli.tui.palette import BACKGROUND, FOREGROUND
from homarus.core.tasks import task_group
from homarus.gateway.client import GatewayClient
from homarus.gateway.in_process import open_in_process_gateway
from homarus.policy.approvals import APPROVER_CAPABILITY
from homarus.process import open_app
from homarus.testing.model_server import (
    CallTools,
    ModelServer,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    Think,
)
from tests.waiting import until

if TYPE_CHECKING:
    from textual.pilot import Pilot

CHAR_PX, LINE_PX, MARGIN_PX = 8.4, 18, 12
FONT: Final = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
SIZES: Final = {"tui": (96, 34), "tui-narrow": (40, 16)}
ASKED: Final = "Which Markdown files are in my workspace? Then count their lines."
THOUGHT: Final = "A listing first; then a command, which the person has to allow."
FOUND: Final = """There are **eight**. These make me who I am:

| file | what it is for |
|------|----------------|
| `SOUL.md` | how I speak and behave |
| `USER.md` | what I know about you |

Now I count their lines:
"""
COMMAND: Final = "find . -name '*.md' -size +0"
DEADLINE_S: Final = 30.0
# What differs from run to run, and what is shown instead.
_STEADY: Final = (
    (re.compile(r"(?<=answer )\d+ s"), "1 s"),
    (re.compile(r" \d+\.\d s $"), ""),  # a call that takes less has no duration
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "⠋"),
    (re.compile(r"expires in \w+ \w+"), "expires in 23 h"),
    (re.compile(r"sha256 [0-9a-f]{16}"), "sha256 5bd2a6c40c3f5a5e"),
)


async def draw(name: str) -> list[list[Segment]]:
    """Return the lines of a scene."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path: it is shown
        async with ModelServer() as server:
            answers: list[ScriptedAnswer] = [
                [Think(THOUGHT), CallTools(ScriptedCall("ls", {"path": "."}))],
                [Say(FOUND), CallTools(ScriptedCall("exec", {"command": COMMAND}))],
            ]
            server.script(*answers)
            _configure(Path(folder), server.url)
            columns, rows = SIZES[name]
            async with _shown(Path(folder), columns, rows) as (app, pilot):
                await (_ask if name == "tui" else _list_commands)(app, pilot)
                lines = _lines(app)
                await app.view.abort()
    return [_steady(line, folder, columns) for line in lines]


async def _ask(app: TuiApp, pilot: "Pilot[None]") -> None:
    app.composer.set_text(ASKED)
    await pilot.press("enter")
    await _wait_for(app, "n  deny")
    await _wait_until_drawn(app, pilot)


async def _list_commands(app: TuiApp, pilot: "Pilot[None]") -> None:
    await pilot.press("slash", "s")
    await _wait_for(app, "/status")
    await _wait_until_drawn(app, pilot)


async def _wait_until_drawn(app: TuiApp, pilot: "Pilot[None]") -> None:
    """Wait until the screen stays as it is, apart from times."""
    before, same = "", 0
    async with asyncio.timeout(DEADLINE_S):
        while same < 5:
            await pilot.pause(0.05)
            now = "\n".join(
                "".join(each.text for each in _steady(line, "", 0)) for line in _lines(app)
            )
            before, same = now, same + 1 if now == before else 0


def _configure(folder: Path, url: str) -> None:
    state = folder / ".openclaw"
    state.mkdir()
    model = {"id": "gpt-5.2", "name": "GPT", "contextWindow": 200_000, "maxTokens": 4_000}
    provider = {"baseUrl": url, "apiKey": "none", "models": [{**model, "reasoning": True}]}
    config = {
        "models": {"providers": {"example": provider}},
        "agents": {"defaults": {"model": {"primary": "example/gpt-5.2"}}},
        # The others depend on the programs of the machine.
        "skills": {"allowBundled": ["homarus", "skill-creator"]},
        "logging": {"file": str(folder / "log.jsonl")},
    }
    (state / "openclaw.json").write_text(json.dumps(config), encoding="utf-8")


@asynccontextmanager
async def _shown(
    folder: Path, columns: int, rows: int
) -> AsyncIterator[tuple[TuiApp, "Pilot[None]"]]:
    """Show the interface on a gateway of its own."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[GatewayClient]:
        caps = ("tool-events", "tool-results", APPROVER_CAPABILITY)
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
        async with (
            open_app(env) as app,
            open_in_process_gateway(app.gateway_services(), caps) as client,
        ):
            yield client

    options = TuiOptions(GatewayOptions(), is_local=True)
    async with task_group() as group:
        app = TuiApp(options, connect, ChatHistoryFile(folder / ".openclaw"), group, [])
        async with app.run_test(size=(columns, rows)) as pilot:
            await _wait_for(app, "Nothing was said")
            await _wait_for(app, "gpt-5.2")
            yield app, pilot
        app.disconnect()


def _lines(app: TuiApp) -> list[list[Segment]]:
    strips = app.screen._compositor.render_strips()  # noqa: SLF001 - it has no public function
    return [list(strip) for strip in strips]


async def _wait_for(app: TuiApp, text: str) -> None:
    def is_shown() -> bool:
        return any(text in "".join(each.text for each in line) for line in _lines(app))

    async with asyncio.timeout(DEADLINE_S):
        await until(is_shown, 0.05)


def _steady(line: list[Segment], folder: str, columns: int) -> list[Segment]:
    """Return a line with fixed times and paths, of the same width."""
    found = list[Segment]()
    for text, style, _ in line:
        shown = text.replace(folder, "~") if folder else text
        for pattern, same in _STEADY:
            shown = pattern.sub(same, shown)
        found.append(Segment(shown, style))
    width = sum(each.cell_length for each in found)
    if width < columns and found:
        blank = max(
            (n for n, each in enumerate(found) if not each.text.strip()),
            key=lambda n: len(found[n].text),
            default=len(found) - 1,
        )
        wider = found[blank]
        found[blank] = Segment(wider.text + " " * (columns - width), wider.style)
    return found


def to_svg(lines: Sequence[Sequence[Segment]], columns: int) -> str:
    """Return the lines as a terminal in SVG."""
    width = columns * CHAR_PX + 2 * MARGIN_PX
    height = len(lines) * LINE_PX + 2 * MARGIN_PX
    rows = [part for n, line in enumerate(lines) for part in _draw_line(line, n)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" {FONT}>'
    back = f'<rect width="{width:.0f}" height="{height}" rx="8" fill="{BACKGROUND}"/>'
    return "\n".join([head, back, *rows, "</svg>\n"])


def _draw_line(line: Sequence[Segment], number: int) -> Iterator[str]:
    """Yield the backgrounds of a line, then its text, one element for each style."""
    top = MARGIN_PX + number * LINE_PX
    at, texts = 0, list[str]()
    for segment in line:
        text, style, _ = segment
        left = MARGIN_PX + at * CHAR_PX
        back = (
            style.bgcolor.triplet.hex if style and style.bgcolor and style.bgcolor.triplet else ""
        )
        if back and back.lower() != BACKGROUND:
            size = f'width="{segment.cell_length * CHAR_PX:g}" height="{LINE_PX}"'
            yield f'<rect x="{left:g}" y="{top}" {size} fill="{back}"/>'
        if text.strip():
            ink = style.color.triplet.hex if style and style.color and style.color.triplet else ""
            marks = ' font-weight="bold"' if style and style.bold else ""
            marks += ' font-style="italic"' if style and style.italic else ""
            start = len(text) - len(text.lstrip(" "))
            place = f'x="{left + start * CHAR_PX:g}" fill="{ink or FOREGROUND}"'
            texts.append(f"<tspan {place}{marks}>{escape(text.strip(' '))}</tspan>")
        at += segment.cell_length
    body = "".join(texts)
    yield f'<text y="{top + LINE_PX - 5}" xml:space="preserve">{body}</text>'


def main(file: Path) -> None:
    lines = asyncio.run(draw(file.stem))
    file.write_text(to_svg(lines, SIZES[file.stem][0]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
