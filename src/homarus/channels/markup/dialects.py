"""Render markdown in a dialect, as messages within a limit."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from markdown_it.token import Token

from homarus.channels.chunk import Unit
from homarus.channels.markup import Tables, convert_tables, html_dialects, text_dialects
from homarus.channels.markup.html_layout import HtmlLayout
from homarus.channels.markup.inline import DialectStyle
from homarus.channels.markup.split import MessagePart, split_stream
from homarus.channels.markup.stream import BLOCK, SOFT, DialectSyntax, StreamItem
from homarus.channels.markup.text_layout import TextLayout
from homarus.channels.markup.tree import MAX_CHARS, parse_markdown, strip_unsafe_chars
from homarus.core.channel_traits import Dialect
from homarus.core.fast_dataclass import dataclass

# What ends a message besides its limit.
Ends: TypeAlias = Literal["limit", "block", "line"]

_LEVELS: Final = {"limit": BLOCK + 1, "block": BLOCK, "line": SOFT}


@dataclass(frozen=True, slots=True)
class MarkupDialect:
    """A markup language: how it lays out a tree and writes marks, and what becomes of tables."""

    style: DialectStyle
    syntax: DialectSyntax
    default_tables: Tables = "code"  # unless the channel's `markdown.tables` says otherwise
    is_html_page: bool = False


# By the name that a channel's TRAITS declare.
_DIALECTS: Final[Mapping[Dialect, MarkupDialect]] = {
    "telegram": MarkupDialect(html_dialects.TELEGRAM_STYLE, html_dialects.TELEGRAM),
    "matrix": MarkupDialect(
        html_dialects.MATRIX_STYLE, html_dialects.MATRIX, "off", is_html_page=True
    ),
    "slack": MarkupDialect(text_dialects.SLACK_STYLE, text_dialects.SLACK),
    "whatsapp": MarkupDialect(text_dialects.WHATSAPP_STYLE, text_dialects.WHATSAPP, "bullets"),
    "discord": MarkupDialect(text_dialects.DISCORD_STYLE, text_dialects.DISCORD),
    "signal": MarkupDialect(text_dialects.SIGNAL_STYLE, text_dialects.SIGNAL, "bullets"),
    "irc": MarkupDialect(text_dialects.IRC_STYLE, text_dialects.IRC),
    "plain": MarkupDialect(text_dialects.PLAIN_STYLE, text_dialects.PLAIN),
}
_RANKS: Final = {name: rank for rank, name in enumerate(text_dialects.SIGNAL_STYLES.values())}


def render_messages(
    text: str,
    dialect: Dialect,
    *,
    tables: Tables | None = None,
    limit: int = 0,
    unit: Unit = "utf16",
    ends: Ends = "limit",
) -> list[MessagePart]:
    """Render a markdown text as messages of a dialect; as one message without a limit."""
    chosen = _DIALECTS[dialect]
    text = convert_tables(text, tables or chosen.default_tables)
    return split_stream(
        _lay_out(text, chosen), chosen.syntax, limit=limit, unit=unit, ends=_LEVELS[ends]
    )


def signal_styles(part: MessagePart) -> list[tuple[int, int, str]]:
    """Return start, length and name of each style that Signal has, outer styles first."""
    names = text_dialects.SIGNAL_STYLES
    styles = [(s.start, s.length, names[s.kind]) for s in part.styles if s.kind in names]
    return sorted(styles, key=lambda style: (style[0], -style[1], _RANKS[style[2]]))


def _lay_out(text: str, dialect: MarkupDialect) -> list[StreamItem]:
    layout = HtmlLayout(dialect.style) if dialect.is_html_page else TextLayout(dialect.style)
    if len(text) > MAX_CHARS:  # too long to parse: shown as plain text
        return layout.lay_out_line([Token("text", "", 0, content=strip_unsafe_chars(text))])
    if isinstance(layout, HtmlLayout):
        return layout.lay_out(parse_markdown(text, tables=True), strip_unsafe_chars(text))
    return layout.lay_out(parse_markdown(text))
