"""The readable part of a web page, by trafilatura. Runs in the worker process alone."""

import codecs
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import trafilatura
from lxml.etree import LxmlError  # type: ignore[import-untyped] # it has no stubs

MAX_TITLE_CHARS = 300
# A page that is larger is rendered as plain text: trafilatura is quadratic in some places.
MAX_READABLE_CHARS = 4_000_000
# The share of a page's plain text below which trafilatura has taken the wrong part for it.
MIN_SHARE, MIN_CHARS = 0.02, 200
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.I)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
    "nav", "ol", "p", "pre", "section", "table", "tbody", "td", "th", "thead", "tr", "ul",
})  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}


def extract_html(
    content: bytes, *, url: str, charset: str, mode: str, max_chars: int
) -> dict[str, Any]:
    """Return the title and the readable part, as Markdown or as plain text."""
    page = decode_page(content, charset)
    plain = _PlainPage(url, max_chars, is_markdown=mode == "markdown")
    plain.feed(page)
    plain.close()
    text, fallback = _readable(page, url, mode), plain.text
    if not text or (len(text) < MIN_CHARS and len(text) < MIN_SHARE * len(fallback)):
        text = fallback
    return {
        "title": plain.title[:MAX_TITLE_CHARS],
        "text": text[:max_chars],
        "is_truncated": len(text) > max_chars,
    }


def decode_page(content: bytes, charset: str) -> str:
    """Decode a page by its byte order mark, the header of the response, or its own declaration."""
    for mark, name in _BOMS:
        if content.startswith(mark):
            return content.decode(name, "replace").removeprefix("\ufeff")
    declared = _META.search(content[:4096])
    for name in (charset, declared.group(1).decode("ascii") if declared else ""):
        if decoded := _decode(content, name):
            return decoded
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _decode(content: bytes, name: str) -> str:
    """Return the decoded page; "" for a name that is no encoding of text."""
    # Browsers read these as the larger set, and pages are written for browsers.
    known = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030"}
    try:
        return content.decode(known.get(name.lower(), name), "replace") if name else ""
    except (LookupError, ValueError):
        return ""


def _readable(page: str, url: str, mode: str) -> str:
    if len(page) > MAX_READABLE_CHARS:
        return ""
    is_markdown = mode == "markdown"
    try:
        text = trafilatura.extract(
            page,
            url=url or None,
            output_format="markdown" if is_markdown else "txt",
            include_links=is_markdown,
            include_formatting=is_markdown,
            include_tables=True,
            include_comments=False,
            favor_recall=True,
        )
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, LxmlError):
        return ""  # the plain rendering is there for pages that it cannot handle
    return (text or "").strip()


class _PlainPage(HTMLParser):
    """The text of a page in its order, with headings, list items and links where it is Markdown.

    It is a loop over tokens: however deep the elements are nested, it does not recurse.
    """

    def __init__(self, url: str, max_chars: int, *, is_markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._url, self._max_chars, self._is_markdown = url, max_chars + 1, is_markdown
        self._parts: list[str] = []
        self._chars = self._skipped = 0
        self._skipping = self._link = ""
        self._in_title = False
        self._titles: list[str] = []

    @property
    def title(self) -> str:
        return " ".join("".join(self._titles).split())

    @property
    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._titles and not self._skipping:
            self._in_title = True
        if self._skipping:
            self._skipped += tag == self._skipping
        elif tag in _SKIPPED:
            self._skipping, self._skipped = tag, 1
        elif tag in _BLOCKS:
            self._add("\n\n" if tag in _HEADINGS or tag == "p" else "\n")
            if tag == "li":
                self._add("- ")
            elif tag in _HEADINGS and self._is_markdown:
                self._add(_HEADINGS[tag] + " ")
        elif tag == "a" and self._is_markdown:
            self._link = self._resolve(dict(attrs).get("href") or "")
            self._add("[" if self._link else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipping:
            self._skipped -= tag == self._skipping
            if self._skipped <= 0:
                self._skipping = ""
        elif tag == "a" and self._link:
            self._add(f"]({self._link})")
            self._link = ""
        elif tag in _BLOCKS:
            self._add("\n\n" if tag in _HEADINGS or tag == "p" else "\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._titles.append(data[:MAX_TITLE_CHARS])
        elif not self._skipping:
            self._add(data)

    def _add(self, text: str) -> None:
        # Twice what is asked for, because white space is removed afterwards.
        if text and self._chars < 2 * self._max_chars:
            self._parts.append(text)
            self._chars += len(text)

    def _resolve(self, target: str) -> str:
        try:
            resolved = urljoin(self._url, target.strip())
            is_web = urlsplit(resolved).scheme in {"http", "https"}
        except ValueError:
            return ""
        return resolved if is_web and not re.search(r"[\s()]", resolved) else ""
