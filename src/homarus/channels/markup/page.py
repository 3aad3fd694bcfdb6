"""Lay out a tree as HTML, for Matrix: with lists, headings and tables."""

from collections.abc import Sequence

from markdown_it.token import Token

from homarus.channels.markup.inline import Inline
from homarus.channels.markup.stream import BLOCK, LINE, Break, Close, Event, Mark, Open, Text
from homarus.channels.markup.tables import read_table
from homarus.channels.markup.tree import parse_line


class Page(Inline):
    """Lay out one text; `source` is what the tokens were parsed from."""

    newline = "<br>"

    def lay_out(self, tokens: Sequence[Token], source: str) -> list[Event]:
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
            self._events.append(Close())
            return
        self._gap(token)
        if token.type == "hr":
            self._events += [Open(Mark("hr")), Text(""), Close()]
        elif token.type in {"fence", "code_block"}:
            self._take_code_lines(token)
        else:
            self._events.append(Open(Mark(token.tag, token.info)))

    def _gap(self, token: Token) -> None:
        self._events.append(Break(LINE if token.level else BLOCK, ""))

    def _take_table(self, token: Token, lines: Sequence[str]) -> None:
        head, *body = read_table(token, lines).rows
        self._gap(token)
        self._events.append(Open(Mark("table")))
        self._take_rows("thead", "th", [head])
        self._take_rows("tbody", "td", body)
        self._events.append(Close())

    def _take_rows(self, group: str, tag: str, rows: Sequence[Sequence[str]]) -> None:
        self._events.append(Open(Mark(group)))
        for row in rows:
            self._events += [Break(LINE, ""), Open(Mark("tr"))]
            for cell in row:
                self._events += [Open(Mark(tag)), Text("")]
                self.lay_out_line(parse_line(cell))
                self._events.append(Close())
            self._events.append(Close())
        self._events.append(Close())
