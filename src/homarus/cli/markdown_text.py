"""Render Markdown for a terminal, while it is still being written.

`MarkdownStream` divides the text into chunks: a paragraph, a heading, a table, an item of a list, a
line of a code block. A chunk that is complete is rendered once, as lines to print; the one under
way is rendered again as it grows. Everything is escaped after it was parsed, because an entity
(`&#x202e;`) is a character only then.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from homarus.cli.code_colours import colour_code
from homarus.cli.text_layout import Line, Span, divide, encode, printable, width, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

BOLD, DIM, ITALIC, UNDERLINE, STRUCK = "1", "2", "3", "4", "9"
_HEADING, _CODE = "1;36", "36"
_MAX_CHUNK_CHARS: Final = 8_000  # longer ones are divided: each piece of text renders its chunk
_MAX_COLOURED_LINES: Final = 200  # of one code block; what follows is coloured line by line
_MIN_CELL: Final = 4
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_INNER_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_HEAD = re.compile(r"#{1,6}(?:\s|$)")


@lru_cache(1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


T_co = TypeVar("T_co", covariant=True)


class ChunkRenderer(Protocol[T_co]):
    """Renders chunks of Markdown as lines of some form."""

    def render(self, text: str) -> Sequence[T_co]:
        """Return the lines of a chunk."""
        ...

    def code(self, lines: Sequence[str], language: str, start: int = 0) -> Sequence[T_co]:
        """Return the lines of a code block from `start` on, coloured with those before."""
        ...

    def blank(self) -> T_co:
        """Return an empty line."""
        ...


class MarkdownLayout:
    """Lays out chunks of Markdown as lines of spans; `get_columns` returns the width of a line.

    Without colours, the marks of emphasis and code are printed instead.
    """

    def __init__(self, get_columns: Callable[[], int], *, colour: bool) -> None:
        self.get_columns, self.colour = get_columns, colour

    def render(self, text: str) -> list[Line]:
        """Return the lines of a chunk."""
        from markdown_it.tree import SyntaxTreeNode

        root = SyntaxTreeNode(_parser().parse(text))
        return self._blocks(root.children, self.get_columns(), text.split("\n"))

    def code(self, lines: Sequence[str], language: str, start: int = 0) -> list[Line]:
        """Return the lines of a code block from `start` on, coloured with those before."""
        return list(self._code(lines, language, self.get_columns(), start))

    def blank(self) -> Line:
        """Return an empty line."""
        return []

    def _style(self, *styles: str) -> str:
        return ";".join(filter(None, styles)) if self.colour else ""

    # Blocks

    def _blocks(
        self, nodes: Sequence["SyntaxTreeNode"], columns: int, source: Sequence[str]
    ) -> list[Line]:
        lines: list[Line] = []
        for node in nodes:
            start = node.map[0] if node.map else 0
            if lines and 0 < start <= len(source) and not source[start - 1].strip("> \t"):
                lines.append([])
            lines += self._block(node, max(columns, 2), source)
        return lines

    def _block(self, node: "SyntaxTreeNode", columns: int, source: Sequence[str]) -> list[Line]:
        match node.type:
            case "heading":
                mark = [] if self.colour else [(f"{node.markup} ", "")]
                return wrap([*mark, *self._inline(node, self._style(_HEADING))], columns)
            case "bullet_list" | "ordered_list":
                return self._list(node, columns, source)
            case "blockquote":
                inner = self._blocks(node.children, columns - 2, source)
                return [[("│ ", self._style(DIM)), *line] for line in inner]
            case "fence" | "code_block":
                code = node.content.removesuffix("\n").split("\n")
                return list(self._code(code, node.info.split(" ")[0].strip(), columns))
            case "hr":
                return [[("─" * min(columns, 40), self._style(DIM))]]
            case "table":
                return self._table(node, columns, source)
            case _:
                return wrap(self._inline(node, ""), columns)

    def _list(self, node: "SyntaxTreeNode", columns: int, source: Sequence[str]) -> list[Line]:
        lines: list[Line] = []
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else 0
        for place, item in enumerate(node.children):
            mark = f"{number + place}. " if node.type == "ordered_list" else "• "
            inner = self._blocks(item.children, columns - len(mark), source) or [[]]
            lines.append([(mark, self._style(_CODE)), *inner[0]])
            lines += [[(" " * len(mark), ""), *line] if line else [] for line in inner[1:]]
        return lines

    def _code(
        self, lines: Sequence[str], language: str, columns: int, start: int = 0
    ) -> Iterator[Line]:
        is_long = len(lines) > _MAX_COLOURED_LINES
        shown = lines[start:] if is_long else lines
        plain = [printable(line.expandtabs(4)) for line in shown]
        spans = colour_code(plain, language) if self.colour else [[(line, "")] for line in plain]
        for line in spans if is_long else spans[start:]:
            for part in divide(line, columns - 2):
                yield [("  ", ""), *part]

    def _table(self, node: "SyntaxTreeNode", columns: int, source: Sequence[str]) -> list[Line]:
        rows = [row for part in node.children for row in part.children]
        cells = [[self._inline(cell, "") for cell in row.children] for row in rows]
        count = len(cells[0])
        wanted = [max(_span_columns(row[n]) for row in cells) for n in range(count)]
        widths = _share(wanted, columns - 3 * (count - 1))
        if not widths:  # too narrow for so many columns: as it was written
            start, end = node.map or (0, 0)
            return wrap([(_shown("\n".join(source[start:end])), "")], columns)
        aligns = [str(cell.attrs.get("style", "")) for cell in rows[0].children]
        lines: list[Line] = []
        for place, row in enumerate(cells):
            wrapped = [wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
            for n in range(max(map(len, wrapped))):
                line: Line = []
                for cell, size, align in zip(wrapped, widths, aligns, strict=True):
                    part = cell[n] if n < len(cell) else []
                    style = self._style(BOLD) if place == 0 else ""
                    part = [(text, own or style) for text, own in part]
                    line += [(" │ ", self._style(DIM))] if line else []
                    line += _padded(part, size, is_right=align.endswith("right"))
                lines.append(line)
            if place == 0:
                rule = "─┼─".join("─" * size for size in widths)
                lines.append([(rule, self._style(DIM))])
        return lines

    # Inside a block

    def _inline(self, node: "SyntaxTreeNode", style: str) -> Line:
        spans: Line = []
        for child in node.children:
            spans += self._span(child, style)
        return spans

    def _span(self, node: "SyntaxTreeNode", style: str) -> Line:
        mark = [] if self.colour else [(node.markup, "")]
        match node.type:
            case "text":
                return [(_shown(node.content), style)]
            case "softbreak" | "hardbreak":
                return [("\n", "")]
            case "code_inline":
                return [*mark, (_shown(node.content), self._style(style, _CODE)), *mark]
            case "strong" | "em" | "s":
                own = {"strong": BOLD, "em": ITALIC, "s": STRUCK}[node.type]
                return [*mark, *self._inline(node, self._style(style, own)), *mark]
            case "link":
                return self._link(node, str(node.attrs.get("href", "")), style)
            case "image":
                alt = [("image: ", style), *self._inline(node, style)]
                return [*alt, (f" ({printable(str(node.attrs.get('src', '')))})", self._style(DIM))]
            case _:
                return self._inline(node, style) or [(_shown(node.content), style)]

    def _link(self, node: "SyntaxTreeNode", address: str, style: str) -> Line:
        """Return a link's text and its address: a text may name another one."""
        text = self._inline(node, self._style(style, UNDERLINE))
        address = printable(address)
        if "".join(part for part, _ in text) in (address, address.removeprefix("mailto:")):
            return text
        return [*text, (f" ({address})", self._style(DIM))]


class MarkdownRenderer:
    """Renders chunks of Markdown as lines to print, their styles as escape sequences."""

    def __init__(self, get_columns: Callable[[], int], *, colour: bool) -> None:
        self._layout = MarkdownLayout(get_columns, colour=colour)

    def render(self, text: str) -> list[str]:
        """Return the lines of a chunk."""
        return [encode(line) for line in self._layout.render(text)]

    def code(self, lines: Sequence[str], language: str, start: int = 0) -> list[str]:
        """Return the lines of a code block from `start` on, coloured with those before."""
        return [encode(line) for line in self._layout.code(lines, language, start)]

    def blank(self) -> str:
        """Return an empty line."""
        return ""


def _shown(text: str) -> str:
    return printable(text.expandtabs(4))


def _span_columns(spans: Line) -> int:
    lines = "".join(text for text, _ in spans).split("\n")
    return max(width(line) for line in lines)


def _share(wanted: Sequence[int], columns: int) -> list[int]:
    """Return column widths that fit; empty when there is no room for all of them."""
    sizes = [max(each, 1) for each in wanted]
    while sum(sizes) > columns:
        widest = max(sizes)
        if widest <= _MIN_CELL:
            return []
        second = max((each for each in sizes if each < widest), default=_MIN_CELL)
        among = sizes.count(widest)
        cut = min(widest - max(second, _MIN_CELL), -(-(sum(sizes) - columns) // among))
        sizes = [each - max(cut, 1) if each == widest else each for each in sizes]
    return sizes


def _padded(cell: Line, columns: int, *, is_right: bool) -> list[Span]:
    blank = [(" " * max(0, columns - width("".join(text for text, _ in cell))), "")]
    return [*blank, *cell] if is_right else [*cell, *blank]


class MarkdownStream(Generic[T_co]):
    """Turns text that arrives in pieces into lines, in the form that the renderer has."""

    def __init__(self, renderer: ChunkRenderer[T_co]) -> None:
        self._renderer = renderer
        self._rest = ""  # after the last newline
        self._chunk: list[str] = []
        self._gap: list[T_co] = []  # a blank line before the chunk, if the text has one
        self._has_blank = False  # a blank line follows the last line
        self._is_first = True
        self._inner_fence = ""  # the marks of a code block inside the chunk
        self._fence = ""  # the marks of the code block that is under way, line by line
        self._language, self._code = "", list[str]()

    def feed(self, text: str) -> list[T_co]:
        """Add text; return the lines that are complete."""
        *complete, self._rest = (self._rest + text.replace("\r\n", "\n")).split("\n")
        printed = [shown for line in complete for shown in self._add(line)]
        while len(self._rest) > _MAX_CHUNK_CHARS:
            cut = self._rest.rfind(" ", 1, _MAX_CHUNK_CHARS)
            cut = cut if cut > 0 else _MAX_CHUNK_CHARS
            line, self._rest = self._rest[:cut], self._rest[cut:]
            printed += self._add(line)
        is_next = self._has_blank and self._is_chunk_end(self._rest)
        if is_next or sum(map(len, self._chunk)) > _MAX_CHUNK_CHARS:
            printed += self._end_chunk()
        return printed

    def pending(self) -> list[T_co]:
        """Return the lines of the chunk under way, which may still change."""
        if self._fence:
            code = [*self._code, self._rest]
            start = len(code) - 1
            return [*self._renderer.code(code, self._language, start)] if self._rest else []
        if self._chunk:
            blank = [""] if self._has_blank else []
            chunk = "\n".join([*self._chunk, *blank, self._rest])
            return [*self._gap, *self._renderer.render(chunk)]
        gap = [self._renderer.blank()] if self._has_blank and not self._is_first else []
        return [*gap, *self._renderer.render(self._rest)] if self._rest.strip() else []

    def end(self) -> list[T_co]:
        """Return the lines that are left, and start a new text."""
        rest, self._rest = self._rest, ""
        printed = self._add(rest) if rest else []
        printed += self._end_chunk()
        self._fence, self._is_first, self._has_blank = "", True, False
        return printed

    def _add(self, line: str) -> list[T_co]:
        """Add a line; return what it completes."""
        if self._fence:
            return self._add_code(line)
        printed = self._end_chunk() if self._is_chunk_end(line) else []
        if not line.strip():
            self._has_blank = True
            return printed
        blank = [""] if self._has_blank else []
        self._has_blank = False
        if not self._chunk:
            is_gap = bool(blank) and not self._is_first
            self._gap, self._is_first = [self._renderer.blank()] if is_gap else [], False
            if fence := _FENCE.match(line):
                self._fence, self._language, self._code = fence[1], fence[2], []
                return [*printed, *self._gap]
        else:
            self._chunk += blank
        if mark := _INNER_FENCE.match(line):
            is_end = self._inner_fence and mark[1].startswith(self._inner_fence)
            self._inner_fence = "" if is_end else self._inner_fence or mark[1]
        self._chunk.append(line)
        return printed

    def _add_code(self, line: str) -> list[T_co]:
        if re.fullmatch(rf" {{0,3}}{re.escape(self._fence)}{self._fence[0]}*\s*", line):
            self._fence = ""
            return []
        self._code.append(line)
        return [*self._renderer.code(self._code, self._language, len(self._code) - 1)]

    def _is_chunk_end(self, line: str) -> bool:
        """Return whether a line starts another chunk."""
        if not self._chunk or self._inner_fence or not line.strip():
            return False
        is_list = _ITEM.match(self._chunk[0]) is not None
        if line[0] in " \t":
            return self._has_blank and not is_list
        starts = _HEAD.match(line) or _FENCE.match(line) or (is_list and _ITEM.match(line))
        return bool(self._has_blank or starts or _HEAD.match(self._chunk[-1]))

    def _end_chunk(self) -> list[T_co]:
        chunk, self._chunk, self._inner_fence = self._chunk, [], ""
        return [*self._gap, *self._renderer.render("\n".join(chunk))] if chunk else []
