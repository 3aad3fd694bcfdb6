"""Render markdown in a dialect, as messages within a limit."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from markdown_it.token import Token

from homarus.channels.chunk import Unit
from homarus.channels.markup import Tables, convert_tables, html, lines
from homarus.channels.markup.flow import Flow
from homarus.channels.markup.inline import Look
from homarus.channels.markup.page import Page
from homarus.channels.markup.split import Part, split
from homarus.channels.markup.stream import BLOCK, SOFT, Event, Spelling
from homarus.channels.markup.tree import MAX_CHARS, clean, parse
from homarus.core.channel_traits import Dialect
from homarus.core.value import dataclass

# What ends a message besides its limit.
Ends: TypeAlias = Literal["limit", "block", "line"]

_LEVELS: Final = {"limit": BLOCK + 1, "block": BLOCK, "line": SOFT}


@dataclass(frozen=True, slots=True)
class MarkupDialect:
    """A markup language: how it lays out a tree and writes marks, and what becomes of tables."""

    style: Look
    syntax: Spelling
    default_tables: Tables = "code"  # unless the channel's `markdown.tables` says otherwise
    is_html_page: bool = False


# By the name that a channel's TRAITS declare.
_DIALECTS: Final[Mapping[Dialect, MarkupDialect]] = {
    "telegram": MarkupDialect(html.TELEGRAM_LOOK, html.TELEGRAM),
    "matrix": MarkupDialect(html.MATRIX_LOOK, html.MATRIX, "off", is_html_page=True),
    "slack": MarkupDialect(lines.SLACK_LOOK, lines.SLACK),
    "whatsapp": MarkupDialect(lines.WHATSAPP_LOOK, lines.WHATSAPP, "bullets"),
    "discord": MarkupDialect(lines.DISCORD_LOOK, lines.DISCORD),
    "signal": MarkupDialect(lines.SIGNAL_LOOK, lines.SIGNAL, "bullets"),
    "irc": MarkupDialect(lines.IRC_LOOK, lines.IRC),
    "plain": MarkupDialect(lines.PLAIN_LOOK, lines.PLAIN),
}
_RANKS: Final = {name: rank for rank, name in enumerate(lines.SIGNAL_STYLES.values())}


def write(
    text: str,
    dialect: Dialect,
    *,
    tables: Tables | None = None,
    limit: int = 0,
    unit: Unit = "utf16",
    ends: Ends = "limit",
) -> list[Part]:
    """Render a markdown text as messages of a dialect; as one message without a limit."""
    chosen = _DIALECTS[dialect]
    text = convert_tables(text, tables or chosen.default_tables)
    return split(_lay_out(text, chosen), chosen.syntax, limit=limit, unit=unit, ends=_LEVELS[ends])


def signal_styles(part: Part) -> list[tuple[int, int, str]]:
    """Return start, length and name of each style that Signal has, outer styles first."""
    names = lines.SIGNAL_STYLES
    styles = [(s.start, s.length, names[s.kind]) for s in part.styles if s.kind in names]
    return sorted(styles, key=lambda style: (style[0], -style[1], _RANKS[style[2]]))


def _lay_out(text: str, dialect: MarkupDialect) -> list[Event]:
    layout = Page(dialect.style) if dialect.is_html_page else Flow(dialect.style)
    if len(text) > MAX_CHARS:  # too long to parse: shown as plain text
        return layout.lay_out_line([Token("text", "", 0, content=clean(text))])
    if isinstance(layout, Page):
        return layout.lay_out(parse(text, tables=True), clean(text))
    return layout.lay_out(parse(text))
