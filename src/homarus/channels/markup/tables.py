"""Convert tables for services without them: to code with aligned columns, or to bullets.

Tables are found by CommonMark's extension; rows are parsed from the lines, so that a row with more
cells than the header loses none.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from markdown_it.token import Token

from homarus.channels.markup.inline import DialectStyle
from homarus.channels.markup.split import split_stream
from homarus.channels.markup.stream import DialectSyntax
from homarus.channels.markup.text_layout import TextLayout
from homarus.channels.markup.tree import MAX_CHARS, parse_line, parse_markdown, strip_unsafe_chars
from homarus.core.fast_dataclass import dataclass

_HAS_TABLE = re.compile(r"^[ \t>]*:?-+:?[ \t]*\||^[ \t>]*\|[ \t]*:?-", re.MULTILINE)
_CONTAINERS = re.compile(r"[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+[ \t>]*)*")
_CELLS = re.compile(r"(?:[^\\|]|\\.|\\$)+|\|", re.DOTALL)
_NEW_LINE = re.compile(r"<br ?/?>", re.IGNORECASE)
_NEEDS_READING = re.compile(r"[*_`~\[\]<&\\|]")
_MAX_COLUMN_CHARS = 48
_MAX_PADDED_CELLS = 2_000
_PLAIN = DialectSyntax({})


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells in markdown, the header first; `prefix` starts all lines but one.

    A table may be in quotes and lists, whose marks start each of its lines.
    """

    rows: tuple[tuple[str, ...], ...]
    first_prefix: str
    prefix: str


def convert_table(text: str, *, as_code: bool) -> str:
    """Replace the tables of a markdown text by code or bullets."""
    if len(text) > MAX_CHARS or not _HAS_TABLE.search(text):
        return text
    text = strip_unsafe_chars(text)
    lines = text.split("\n")
    done: list[str] = []
    at = 0
    for token in parse_markdown(text, tables=True):
        if token.type == "table" and token.map:
            table = read_table(token, lines)
            shown = _as_code(table.rows) if as_code else _as_bullets(table.rows)
            done += lines[at : token.map[0]]
            done += _prefixed(shown, table)
            at = token.map[1]
    return "\n".join([*done, *lines[at:]])


def read_table(token: Token, lines: Sequence[str]) -> Table:
    """Return the table of a token."""
    start, end = token.map or (0, 0)
    head, ruler, *body = lines[start:end]
    first = _CONTAINERS.match(head) if token.level else re.match(r"[ \t]*", head)
    rest = re.match(r"[ \t>]*" if token.level else r"[ \t]*", ruler)
    first_prefix, prefix = first[0] if first else "", rest[0] if rest else ""
    rows = [head[len(first_prefix) :]]
    rows += [line.lstrip(" \t>" if token.level else " \t") for line in body]
    return Table(tuple(map(_split_row, rows)), first_prefix, prefix)


def _split_row(line: str) -> tuple[str, ...]:
    cells = [""]
    for found in _CELLS.finditer(_NEW_LINE.sub(" ", line).strip()):
        if found[0] == "|":
            cells.append("")
        else:
            cells[-1] = found[0].replace("\\|", "|").strip()
    inner = cells[1 if cells[0] == "" else 0 :]
    return tuple(inner[:-1] if inner and inner[-1] == "" else inner)


def _prefixed(shown: Sequence[str], table: Table) -> list[str]:
    first, *rest = shown
    return [table.first_prefix + first, *((table.prefix + line).rstrip() for line in rest)]


def _as_code(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ([_words(cell) for cell in row] for row in rows)
    columns = max(map(len, (head, *body)))
    widths = [3] * columns
    # A few bytes may stand for a great many empty cells; then rows stay as short as they are.
    if columns * len(rows) <= _MAX_PADDED_CELLS:
        for row in (head, *body):
            row.extend([""] * (columns - len(row)))
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], min(_width(cell), _MAX_COLUMN_CHARS))
    ruler = ["-" * width for width in widths]
    lines = [_join_row(map(_pad, row, widths)) for row in (head, ruler, *body)]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *lines, fence]


def _join_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _as_bullets(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a paragraph for each row, under its first cell; other cells after their headers."""
    head, *body = rows
    lines: list[str] = []
    for row in body or [head]:
        if lines:
            lines.append("")
        names, cells = (head, row) if body else ((), row)
        if len(names) > 1 and cells:
            lines += [_bold(cells[0])] if cells[0] else []
            names, cells = names[1:], cells[1:]
        for name, cell in zip_longest(names, cells, fillvalue=""):
            if cell:
                lines.append(f"• {name}: {cell}" if name else f"• {cell}")
    return lines or [""]


def _bold(label: str) -> str:
    inner = label.strip("*_ ")
    return f"**{inner}**" if inner and not _NEEDS_READING.search(inner) else label


def _words(cell: str) -> str:
    """Return a cell as plain text, for a place without markup."""
    if not _NEEDS_READING.search(cell):
        return cell
    events = TextLayout(DialectStyle()).lay_out_line(parse_line(cell))
    return " ".join(part.text for part in split_stream(events, _PLAIN)).replace("\n", " ")


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Return the width in columns of a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(ch) for ch in text)


def _columns(ch: str) -> int:
    return 0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in "WF" else 1
