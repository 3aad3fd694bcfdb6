"""Compare the pictures of the full-screen interface and its page with what it shows."""

import re
from html import unescape
from pathlib import Path

import pytest

from docs import record_tui
from homarus.cli.tui.help_screen import KEYS

DOCS = Path(__file__).parents[2] / "docs"


def words_of(drawn: str) -> list[str]:
    """Return the words of every line of a picture."""
    rows = re.findall(r'xml:space="preserve">(.*)</text>', drawn)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in rows]


@pytest.mark.parametrize("name", record_tui.SIZES)
async def test_picture_matches_the_interface(name: str) -> None:
    lines = await record_tui.draw(name)
    shown = record_tui.to_svg(lines, record_tui.SIZES[name][0])
    stored = (DOCS / f"{name}.svg").read_text(encoding="utf-8")
    assert words_of(shown) == words_of(stored), "draw it again: python docs/record_tui.py"


def test_page_has_every_key_of_the_help() -> None:
    page = (DOCS / "tui.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.+?) \|$", page, re.M))
    assert {keys: rows.get(keys) for keys, _ in KEYS} == dict(KEYS)


def test_pictures_are_on_the_pages() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    page = (DOCS / "tui.md").read_text(encoding="utf-8")
    assert "](docs/tui.svg)" in readme
    for name in record_tui.SIZES:
        assert f"]({name}.svg)" in page
