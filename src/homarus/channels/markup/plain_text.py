"""Extract the plain text of a text that is already in a dialect."""

import re
from collections.abc import Callable, Mapping
from html import unescape
from html.parser import HTMLParser
from typing import Final

from homarus.core.channel_traits import Dialect

_TAG = re.compile(r"<[^<>]*>")
_IRC_FORMAT = re.compile(r"\x03\d{0,2}(?:,\d{1,2})?|[\x00-\x1f]")
_SLACK_LINK = re.compile(r"<[^<>|]*\|([^<>]*)>|<(https?://[^<>|]*)>")
_BLOCKS: Final = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "pre", "table"})
_LINES: Final = frozenset({"li", "tr", "br", "hr", "blockquote"})


def _telegram_words(html: str) -> str:
    """Return the text that Telegram counts; without addresses, so it still fits."""
    return unescape(_TAG.sub("", html))


def _slack_words(text: str) -> str:
    return unescape(_SLACK_LINK.sub(r"\1\2", text))


def _irc_words(text: str) -> str:
    return _IRC_FORMAT.sub("", text)


def _matrix_words(html: str) -> str:
    """Return the text for clients without HTML, with bullets, numbers and addresses."""
    reader = _HtmlTextExtractor()
    reader.feed(html)
    reader.close()
    return reader.words()


class _HtmlTextExtractor(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._gap = ""
        self._lists: list[int | None] = []  # the next number
        self._quotes = 0
        self._links: list[tuple[str, int]] = []
        self._after_bullet = False

    def words(self) -> str:
        return "".join(self._pieces).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._part(tag)
        given = dict(attrs)
        if tag == "blockquote":
            self._quotes += 1
        elif tag in {"ul", "ol"}:
            self._lists.append(int(given.get("start") or 1) if tag == "ol" else None)
        elif tag == "li":
            self._begin_item()
        elif tag == "hr":
            self._say("───")
        elif tag == "a":
            self._links.append((given.get("href") or "", len(self._pieces)))
        elif tag in {"td", "th"} and not self._gap:
            self._say(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "blockquote":
            self._quotes -= 1
        elif tag in {"ul", "ol"}:
            self._lists.pop()
        elif tag == "a":
            href, start = self._links.pop()
            label = "".join(self._pieces[start:])
            if href.removeprefix("mailto:") not in label:
                self._say(f" ({href})")
        self._part(tag)

    def handle_data(self, data: str) -> None:
        for index, line in enumerate(data.split("\n")):
            if index:
                self._part("br")
                self._flush()
            if line:
                self._say(line)

    def _begin_item(self) -> None:
        number = self._lists[-1]
        if number is not None:
            self._lists[-1] = number + 1
        depth = len(self._lists) - 1
        self._say("  " * depth + ("• " if number is None else f"{number}. "))
        self._after_bullet = True

    def _part(self, tag: str) -> None:
        if self._after_bullet and tag == "p":
            return
        if tag in _BLOCKS and not self._lists:
            self._gap = "\n\n"
        elif tag in _LINES or tag in _BLOCKS:
            self._gap = self._gap or "\n"

    def _say(self, text: str) -> None:
        self._flush()
        self._pieces.append(text)
        self._after_bullet = False

    def _flush(self) -> None:
        if self._gap and self._pieces:
            self._pieces.append(self._gap)
        if (self._gap or not self._pieces) and self._quotes:
            self._pieces.append("> " * self._quotes)
        self._gap = ""


READERS: Final[Mapping[Dialect, Callable[[str], str]]] = {
    "telegram": _telegram_words,
    "matrix": _matrix_words,
    "slack": _slack_words,
    "irc": _irc_words,
}
