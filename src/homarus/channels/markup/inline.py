"""Lay out inline tokens: styles, links, code, images; common to all dialects.

`DialectStyle` says how a dialect shows what it has no mark for.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from markdown_it.token import Token

from homarus.channels.markup.stream import (
    LINE,
    SOFT,
    CloseMark,
    Level,
    LineBreak,
    OpenMark,
    StreamItem,
    StyleMark,
    TextRun,
)
from homarus.core.fast_dataclass import dataclass

_STYLES = {
    "strong_open": "bold",
    "em_open": "italic",
    "s_open": "strike",
    "spoiler_open": "spoiler",
}
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
# File suffixes that are also domains: a service would make a link of `README.md`.
# Addresses that a service's own clients would make links of. They do not end with punctuation.
_TAIL = r"[^\s<>`|\\*\[\]]*[^\s<>`|\\*\[\]_~.,;:!?'\")]"
_DOMAINS = "com|org|net|edu|gov|info|biz|name|pro|shop"
_ADDRESS = re.compile(
    rf"(?<![\w@./:-])(?:(?P<url>https?://{_TAIL})"
    r"|(?P<mail>(?:mailto:)?[a-z0-9_.+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-]))"
    rf"|(?:www\.(?:[a-z0-9-]{{1,63}}\.){{1,8}}[a-z]{{2,24}}|(?:[a-z0-9-]{{1,63}}\.){{1,8}}"
    rf"(?:{_DOMAINS}))(?![\w@-])(?!\.\w)(?::\d{{1,5}})?(?:/(?:{_TAIL})?)?)",
    re.IGNORECASE,
)
_MAX_ADDRESS_CHARS = 2_048
_FILE = re.compile(
    r"(?<![\w./:@-])(?:\.{0,2}/)?(?:[\w-]+/)*[\w-][\w.-]*"
    r"\.(?:am|cc|go|md|mov|pl|ps|py|rs|sh|so|zip)(?![\w/@-])(?!\.\w)"
)


def no_escape(text: str, _is_new_line: bool) -> str:  # noqa: FBT001 - the shape of `Look.spell`
    """Return a text that needs no escaping."""
    return text


def _opens_bracket(address: str) -> bool:
    return address.count("(") > address.count(")")


def default_code_mark(_: str) -> StyleMark | None:
    """Return the code mark, for any code."""
    return StyleMark("code")


@dataclass(frozen=True, slots=True)
class DialectStyle:
    """How a dialect shows what it has no mark for.

    `spell` escapes a text, given whether it starts a line; `spell_link` an address shown as it is;
    `spell_code` a line of code; `code` returns the mark for inline code, or None when the service
    cannot show it. `schemes`: of addresses that can be links; any other follows its text, as all do
    without `has_links`. `heading`: `hash` is Discord's markup, `source` markdown's own.
    `has_bare_links`: a bare address is a link; `marks_addresses`: it is
    written as one. `has_tokens`: `<address|label>` is its own markup. `stars_are_bold`: `*x*` is
    bold there already. `code_stands_apart`: a code block ends with its own line end. `names_files`:
    file names are shown as code, as the service would make links of them.
    """

    bullet: str = "•"
    rule: str = "───"
    heading: Literal["plain", "bold", "hash", "source"] = "bold"
    has_links: bool = False
    has_bare_links: bool = True
    marks_addresses: bool = False
    has_tokens: bool = False
    schemes: tuple[str, ...] = ("",)
    stars_are_bold: bool = False
    quotes_nest: bool = True
    code_stands_apart: bool = False
    names_files: bool = False
    spell: Callable[[str, bool], str] = no_escape
    spell_link: Callable[[str], str] = str
    spell_code: Callable[[str], str] = str
    code: Callable[[str], StyleMark | None] = default_code_mark


class InlineLayout:
    """Turn inline tokens into stream items."""

    newline = "\n"

    def __init__(self, style: DialectStyle) -> None:
        self._dialect_style = style
        self._events: list[StreamItem] = []
        self._is_new_line = True
        self._styles: list[str | None] = []  # open styles; None shows nothing
        self._shown: set[str] = set()
        self._href = ""  # of the open link
        self._label: list[str] = []
        self._label_start = 0

    def lay_out_line(self, tokens: Sequence[Token]) -> list[StreamItem]:
        for token in tokens:
            self._take_inline(token)
        return self._events

    def _take_inline(self, token: Token) -> None:
        if take := self._INLINES.get(token.type):
            take(self, token)
        elif token.nesting > 0:
            self._open(self._style(token))
        elif token.nesting < 0:
            self._close()
        elif token.content:
            self._say(token.content)

    def _style(self, token: Token) -> str | None:
        kind = _STYLES.get(token.type)
        is_star = kind == "italic" and token.markup == "*"
        return "star" if is_star and self._dialect_style.stars_are_bold else kind

    def _open(self, kind: str | None, value: str = "") -> None:
        """Open a style; a style within itself shows nothing."""
        kind = None if kind in self._shown else kind
        self._styles.append(kind)
        if kind:
            self._shown.add(kind)
            self._events.append(OpenMark(StyleMark(kind, value)))

    def _close(self) -> None:
        if kind := self._styles.pop():
            self._shown.remove(kind)
            self._events.append(CloseMark())

    def _say(self, text: str) -> None:
        self._label.append(text)
        for index, line in enumerate(text.split("\n")):
            if index:
                self._break(LINE)
            for words, mark in self._find_addresses(line):
                if mark:
                    self._events += [OpenMark(mark), TextRun(words), CloseMark()]
                else:
                    self._events.append(
                        TextRun(self._dialect_style.spell(words, self._is_new_line))
                    )
                self._is_new_line = False

    def _find_addresses(self, line: str) -> Iterator[tuple[str, StyleMark | None]]:
        start = 0
        if self._dialect_style.marks_addresses and not self._href:
            for found in _ADDRESS.finditer(line):
                if len(found[0]) > _MAX_ADDRESS_CHARS:
                    continue
                yield from self._find_files(line[start : found.start()])
                # A bracket that the address opens is its own.
                end = found.end() + (line[found.end() :][:1] == ")" and _opens_bracket(found[0]))
                words = line[found.start() : end]
                scheme = "" if found["url"] else "mailto:" if found["mail"] else "http://"
                has_scheme = words.lower().startswith("mailto:")
                yield words, StyleMark("link", words if has_scheme else scheme + words)
                start = end
        yield from self._find_files(line[start:])

    def _find_files(self, line: str) -> Iterator[tuple[str, StyleMark | None]]:
        start = 0
        if self._dialect_style.names_files and not self._href:
            for found in _FILE.finditer(line):
                if start < found.start():
                    yield line[start : found.start()], None
                yield found[0], StyleMark("code")
                start = found.end()
        if start < len(line):
            yield line[start:], None

    def _break(self, level: Level) -> None:
        self._events.append(LineBreak(level, self.newline))
        self._is_new_line = True

    def _take_softbreak(self, _: Token) -> None:
        self._break(SOFT)

    def _take_hardbreak(self, _: Token) -> None:
        self._break(LINE)

    def _take_code_span(self, token: Token) -> None:
        if mark := self._dialect_style.code(token.content):
            self._label.append(token.content)
            self._events += [
                OpenMark(mark),
                TextRun(self._dialect_style.spell_code(token.content)),
                CloseMark(),
            ]
            self._is_new_line = False
        else:
            self._say(token.content)

    def _take_code_lines(self, token: Token) -> None:
        words = token.info.split()
        language = words[0] if words and _LANGUAGE.fullmatch(words[0]) else ""
        self._events.append(OpenMark(StyleMark("pre", language)))
        for index, line in enumerate(token.content.removesuffix("\n").split("\n")):
            if index:
                self._events.append(LineBreak(LINE, "\n"))
            self._events.append(TextRun(self._dialect_style.spell_code(line)))
        self._events.append(CloseMark())

    def _open_link(self, token: Token) -> None:
        self._href = str(token.attrs["href"])
        style = self._dialect_style
        has_scheme = self._href.lower().startswith(style.schemes)
        is_link = style.has_links and has_scheme and self._href != ""
        self._open("link" if is_link else None, self._href)
        self._label.clear()
        self._label_start = len(self._events)

    def _close_link(self, token: Token) -> None:
        href, label, is_marked = self._href, "".join(self._label), self._styles[-1] is not None
        self._href = ""
        address = href.removeprefix("mailto:")
        if token.info == "auto" and self._dialect_style.has_tokens and "@" not in label[:1]:
            self._close()
            del self._events[self._label_start - is_marked :]
            self._events.append(
                TextRun(f"<{self._dialect_style.spell(label, self._is_new_line)}>", is_whole=True)
            )
            return
        is_auto = token.info == "auto" and self._dialect_style.has_links
        is_bare = is_auto or label in {"", href, address}
        if is_bare and (self._dialect_style.has_bare_links or not is_marked):
            self._close()
            del self._events[self._label_start - is_marked :]
            self._events.append(TextRun(self._dialect_style.spell_link(address)))
            return
        if not label:
            self._events.append(TextRun(self._dialect_style.spell_link(href)))
        self._close()
        if href and not is_marked:
            self._events.append(TextRun(f" ({self._dialect_style.spell_link(href)})"))

    def _take_image(self, token: Token) -> None:
        """Show an image as a link to it."""
        href = str(token.attrs["src"])
        if self._href:
            self._say(token.content or href)
            return
        self._open_link(Token("link_open", "a", 1, attrs={"href": href}))
        if token.content:
            self._say(token.content)
        self._close_link(Token("link_close", "a", -1))

    _INLINES: ClassVar = {
        "softbreak": _take_softbreak,
        "hardbreak": _take_hardbreak,
        "code_inline": _take_code_span,
        "link_open": _open_link,
        "link_close": _close_link,
        "image": _take_image,
    }
