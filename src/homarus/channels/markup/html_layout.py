"""Lay out a tree as HTML, for Matrix: with lists, headings and tables."""

from collections.abc import Sequence

from markdown_it.token import Token

from homarus.channels.markup.inline import InlineLayout
from homarus.channels.markup.stream import (
    BLOCK,
    LINE,
    CloseMark,
    LineBreak,
    OpenMark,
    StreamItem,
    StyleMark,
    TextRun,
)
from homarus.channels.markup.tables import read_table
from homarus.channels.markup.tree import parse_line


class HtmlLayout(InlineLayout):
    """Lay out one text; `source` is what the tokens were parsed from."""

    newline = "<br>"

    def lay_out(self, tokens: Sequence[Token], source: str) -> list[StreamItem]:
        lines = source.split("\n")
        # A single paragraph needs no tags; clients show it with less space.
        lone = len(tokens) == 3 and tokens[0].type == "paragraph_open"
        for token in tokens:
            if token.type == "table":
                self._take_table(token, lines)
            elif token.type == "inline":
                self.lay_out_line(token.children or [])
            elif not lone and not token.hidden:
                self._take_block(token)
        return self._events

    def _take_block(self, token: Token) -> None:
        if token.nesting < 0:
            self._events.append(CloseMark())
            return
        self._gap(token)
        if token.type == "hr":
            self._events += [OpenMark(StyleMark("hr")), TextRun(""), CloseMark()]
        elif token.type in {"fence", "code_block"}:
            self._take_code_lines(token)
        else:
            self._events.append(OpenMark(StyleMark(token.tag, token.info)))

    def _gap(self, token: Token) -> None:
        self._events.append(LineBreak(LINE if token.level else BLOCK, ""))

    def _take_table(self, token: Token, lines: Sequence[str]) -> None:
        head, *body = read_table(token, lines).rows
        self._gap(token)
        self._events.append(OpenMark(StyleMark("table")))
        self._take_rows("thead", "th", [head])
        self._take_rows("tbody", "td", body)
        self._events.append(CloseMark())

    def _take_rows(self, group: str, tag: str, rows: Sequence[Sequence[str]]) -> None:
        self._events.append(OpenMark(StyleMark(group)))
        for row in rows:
            self._events += [LineBreak(LINE, ""), OpenMark(StyleMark("tr"))]
            for cell in row:
                self._events += [OpenMark(StyleMark(tag)), TextRun("")]
                self.lay_out_line(parse_line(cell))
                self._events.append(CloseMark())
            self._events.append(CloseMark())
        self._events.append(CloseMark())
