"""Compare the recorded pictures with what the program prints."""

import os
import re
import shlex
import tempfile
from html import unescape
from pathlib import Path

import pytest

from docs import record
from tests.docs.test_documents import unknown_command
from tests.e2e.gateway import change
from tests.e2e.program import Home

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES = sorted(record.SESSIONS)


def rows_of(name: str) -> list[str]:
    """Return the lines of a picture."""
    return drawn_rows((ROOT / "docs" / f"{name}.svg").read_text(encoding="utf-8"))


def drawn_rows(drawn: str) -> list[str]:
    rows = re.findall(r'xml:space="preserve">(.*)</text>', drawn)
    return [unescape(re.sub(r"<[^>]*>", "", row)) for row in rows]


def test_bot_picture_matches_the_program(tmp_path: Path) -> None:
    home = Home(tmp_path, {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "NO_COLOR": "1"})
    with record.served("homarus.testing.model_server") as url:
        home.use_model(url)
        change(home, logging={"file": str(tmp_path / "log.jsonl")})
        shown = record.wrap(record.record_channels(home))
    drawn, asked = rows_of("channels"), f"{record.BAR}Ada: {record.QUESTION}"
    answer = shown.index(asked) + 1  # what the model answers differs
    assert drawn[:answer] == shown[:answer], "record it anew: python docs/record.py"
    assert shown[answer:] == [f"{record.BAR}Lobster: Hello from the mock model."]
    assert drawn[answer].startswith(f"{record.BAR}Lobster: ")


def test_chat_picture_matches_the_program() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path: it is shown on a line
        home = Home(Path(folder), {"HOME": folder, "PATH": os.environ["PATH"]})
        shown = drawn_rows(record.draw(record.record_chat(home)))
    drawn, now = (re.sub(r" · [\d.]+ s", "", "\n".join(rows)) for rows in (rows_of("chat"), shown))
    assert drawn == now, "record it again: python docs/record.py"


def test_memory_picture_matches_the_program(tmp_path: Path) -> None:
    home = Home(tmp_path, {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "NO_COLOR": "1"})
    shown = record.wrap(record.record_memory(home))
    drawn, now = (re.sub(r"(#L\d+)  \d\.\d\d", r"\1  SCORE", "\n".join(rows))
                  for rows in (rows_of("memory"), shown))  # fmt: skip
    assert drawn == now, "record it anew: python docs/record.py"


def test_onboarding_picture_matches_the_program(tmp_path: Path) -> None:
    home = Home(tmp_path, {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "NO_COLOR": "1"})
    shown = record.wrap([row.replace(str(tmp_path), "~") for row in record.record_onboarding(home)])
    servers = re.compile(r"Ollama|LM Studio")  # one may run on this machine
    drawn, now = ([row for row in rows if not servers.search(row)]
                  for rows in (rows_of("onboarding"), shown))  # fmt: skip
    assert drawn == now, "record it again: python docs/record.py"


@pytest.mark.parametrize("name", PICTURES)
def test_commands_in_pictures_exist(name: str) -> None:
    typed = [row.removeprefix("$ ").removesuffix(" &") for row in rows_of(name) if row[:2] == "$ "]
    assert typed
    for line in typed:
        assert line.startswith("homarus ") and not unknown_command(shlex.split(line)), line


@pytest.mark.parametrize("name", PICTURES)
def test_readme_shows_a_picture_and_how_it_was_made(name: str) -> None:
    assert f"](docs/{name}.svg)" in README
    assert f"python docs/record.py docs/{name}.svg" in " ".join(README.split())


def test_terminal_output_is_drawn_as_text() -> None:
    drawn = record.draw([record.BAR + "\x1b" + '<b>&" ' * 20])
    assert "<b>" not in drawn and "\x1b" not in drawn and "&lt;b&gt;&amp;&quot;" in drawn
    assert len(re.findall(f">{record.BAR}", drawn)) == 2  # the text is wrapped
