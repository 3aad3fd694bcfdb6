"""Lay out a tree as lines of text: bullets, numbers, rules, empty lines between blocks.

For the services that have no block markup.
"""

from collections.abc import Sequence
from typing import ClassVar

from markdown_it.token import Token

from homarus.channels.markup.inline import DialectStyle, InlineLayout
from homarus.channels.markup.stream import (
    BLOCK,
    LINE,
    CloseMark,
    Level,
    LineBreak,
    OpenMark,
    StreamItem,
    StyleMark,
    TextRun,
)


class TextLayout(InlineLayout):
    """Lay out one text."""

    def __init__(self, style: DialectStyle) -> None:
        super().__init__(style)
        self._quotes: list[bool] = []  # whether it is shown
        self._lists: list[bool] = []  # whether it is numbered
        self._bullet = ""
        self._after_bullet = self._after_code = False

    def lay_out(self, tokens: Sequence[Token]) -> list[StreamItem]:
        for token in tokens:
            if take := self._BLOCKS.get(token.type):
                take(self, token)
        return self._events

    def _gap(self, level: Level) -> None:
        level = LINE if self._after_bullet else level
        is_apart = level == BLOCK and not self._after_code
        self._events.append(LineBreak(level, "\n\n" if is_apart else "\n"))
        self._is_new_line = True

    def _start(self, level: Level = BLOCK) -> None:
        """Start a block; the first of a list item follows the bullet."""
        self._gap(level)
        self._after_bullet = self._after_code = False
        if self._bullet:
            self._events.append(TextRun(self._bullet, is_whole=True))
            self._bullet = ""

    def _start_below(self) -> None:
        """Start a block that cannot follow a bullet."""
        if self._bullet:
            self._end_item()
            self._after_bullet = True
        self._gap(LINE if self._lists else BLOCK)

    def _open_paragraph(self, token: Token) -> None:
        self._start(LINE if token.hidden else BLOCK)

    def _open_heading(self, token: Token) -> None:
        self._start()
        level, style = int(token.tag[1:]), self._dialect_style.heading
        if style == "source" or (style == "hash" and level <= 3):
            self._events.append(TextRun("#" * level + " ", is_whole=True))
            self._open(None)
        else:
            self._open(None if style == "plain" else "bold")

    def _close_heading(self, _: Token) -> None:
        self._close()

    def _take_code(self, token: Token) -> None:
        """Add code, which ends the quotes around it: no service nests the two."""
        self._start_below()
        quotes = sum(self._quotes)
        self._events += [CloseMark()] * quotes
        self._take_code_lines(token)
        self._events += [OpenMark(StyleMark("quote"))] * quotes
        self._after_bullet, self._after_code = False, self._dialect_style.code_stands_apart

    def _take_rule(self, _: Token) -> None:
        self._start()
        self._events.append(TextRun(self._dialect_style.rule))

    def _open_list(self, token: Token) -> None:
        if not self._lists:
            self._gap(BLOCK)
        self._lists.append(token.type == "ordered_list_open")

    def _close_list(self, _: Token) -> None:
        self._lists.pop()

    def _open_item(self, token: Token) -> None:
        self._end_item()
        marker = f"{token.info}." if self._lists[-1] else self._dialect_style.bullet
        self._bullet = "  " * (len(self._lists) - 1) + marker + " "

    def _end_item(self, _: Token | None = None) -> None:
        """End an item; one without text still has its bullet."""
        if self._bullet:
            self._bullet = self._bullet.rstrip()
            self._start(LINE)

    def _open_quote(self, _: Token) -> None:
        self._start_below()
        self._quotes.append(self._dialect_style.quotes_nest or not any(self._quotes))
        if self._quotes[-1]:
            self._events.append(OpenMark(StyleMark("quote")))

    def _close_quote(self, _: Token) -> None:
        if self._quotes.pop():
            self._events.append(CloseMark())

    def _take_line(self, token: Token) -> None:
        self.lay_out_line(token.children or [])

    _BLOCKS: ClassVar = {
        "paragraph_open": _open_paragraph,
        "heading_open": _open_heading,
        "heading_close": _close_heading,
        "fence": _take_code,
        "code_block": _take_code,
        "hr": _take_rule,
        "bullet_list_open": _open_list,
        "ordered_list_open": _open_list,
        "bullet_list_close": _close_list,
        "ordered_list_close": _close_list,
        "list_item_open": _open_item,
        "list_item_close": _end_item,
        "blockquote_open": _open_quote,
        "blockquote_close": _close_quote,
        "inline": _take_line,
    }
