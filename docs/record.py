"""Records a real chat at a terminal as a picture: `python docs/record.py docs/chat.svg`.

The program runs at a pseudo-terminal in an empty home with the demo model; what it shows is
drawn line by line. Nothing is written by hand.
"""

import os
import re
import sys
import tempfile
import textwrap
import unicodedata
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from homarus.config.paths import Paths
from tests.e2e.program import Home, Terminal

COLUMNS, LINE_PX, CHAR_PX, MARGIN_PX = 92, 20, 8.4, 16
FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
ASKED = ("Hello! What are you?", "/status", "/quit")
PROMPT = re.compile(r"^> ")


def record() -> list[str]:
    """What a person sees, one line after another."""
    models = Paths.find(os.environ).models_cache
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), {"HOME": folder, "PATH": os.environ["PATH"], "NO_COLOR": "1"})
        (Path(folder) / ".cache" / "homarus").mkdir(parents=True)
        (Path(folder) / ".cache" / "homarus" / "models").symlink_to(models)
        terminal = Terminal(home, "chat")
        for line in ASKED:
            terminal.wait_for("> ")
            terminal.type(line)
        terminal.end()
        terminal.close()
        shown = terminal.screen.replace(folder, "~")
    lines = [line.rstrip() for line in shown.splitlines()]
    return ["$ homarus chat", *(line for line in lines if line)]


def draw(lines: list[str]) -> str:
    """The lines as a terminal in SVG."""
    wrapped = [part for line in lines for part in textwrap.wrap(line, COLUMNS) or [""]]
    width = COLUMNS * CHAR_PX + 2 * MARGIN_PX
    height = len(wrapped) * LINE_PX + 2 * MARGIN_PX
    rows = [
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + (n + 1) * LINE_PX - 6}"'
        f' fill="{_colour(line)}" xml:space="preserve">{escape(_plain(line))}</text>'
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
    return "#8ab4f8" if PROMPT.match(line) or line.startswith("$") else "#d7dae0"


def _plain(line: str) -> str:
    return "".join(ch for ch in line if unicodedata.category(ch) != "Cc")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(record()), encoding="utf-8")
