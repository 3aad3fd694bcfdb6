"""Render markdown in the dialect of each chat service, split into messages.

The model writes markdown. A text is parsed to a tree (tree.py), laid out as a stream of text and
marks (text_layout.py, html_layout.py), and split into messages of the dialect (split.py;
html_dialects.py, text_dialects.py). Each message is well-formed; what is no markup of ours is shown
as text and mentions no one. The parser is imported with the first text.
"""

from typing import Literal, TypeAlias

from homarus.channels.base import Capabilities
from homarus.channels.chunk import ChunkMode, chunk_markdown_with_mode
from homarus.core.channel_traits import Dialect
from homarus.core.fast_dataclass import dataclass

Tables: TypeAlias = Literal["off", "bullets", "code"]


@dataclass(frozen=True, slots=True)
class SignalStyle:
    """A style and its range in UTF-16 units; its name as Signal spells it."""

    start: int
    length: int
    style: str


@dataclass(frozen=True, slots=True)
class SignalText:
    """A text for Signal, which has no markup, and its styles."""

    text: str
    styles: tuple[SignalStyle, ...]


def render(text: str, dialect: Dialect, tables: Tables | None = None) -> str:
    """Return the complete text in a dialect; for Signal without its styles (see `signal`)."""
    if dialect == "markdown":
        return convert_tables(text, tables or "off")
    from homarus.channels.markup import dialects

    return "".join(part.text for part in dialects.render_messages(text, dialect, tables=tables))


def parts(
    text: str,
    capabilities: Capabilities,
    *,
    tables: Tables | None = None,
    limit: int | None = None,
    mode: ChunkMode = "length",
) -> list[str]:
    """Return the text as messages of a channel, each within `limit` in the channel's unit."""
    dialect, unit = capabilities.dialect, capabilities.unit
    limit = capabilities.text_limit if limit is None else limit
    if dialect == "markdown":
        return chunk_markdown_with_mode(render(text, dialect, tables), limit, mode, unit)
    from homarus.channels.markup import dialects

    ends: dialects.Ends = "line" if capabilities.by_line else "block"
    if ends == "block" and mode == "length":
        ends = "limit"
    messages = dialects.render_messages(
        text, dialect, tables=tables, limit=limit, unit=unit, ends=ends
    )
    return [message.text for message in messages]


def plain(rendered: str, dialect: Dialect) -> str:
    """Return the plain text of a text that is already in a dialect."""
    from homarus.channels.markup import plain_text

    return plain_text.READERS.get(dialect, str)(rendered)


def signal(text: str, tables: Tables | None = None) -> SignalText:
    """Return a text for Signal, with its styles."""
    from homarus.channels.markup import dialects

    messages = dialects.render_messages(text, "signal", tables=tables)
    if not messages:
        return SignalText("", ())
    styles = dialects.signal_styles(messages[0])
    return SignalText(messages[0].text, tuple(SignalStyle(*style) for style in styles))


def convert_tables(text: str, tables: Tables = "off") -> str:
    """Replace the tables of a markdown text by code blocks or bullets."""
    if tables == "off" or "|" not in text:
        return text
    from homarus.channels.markup.tables import convert_table

    return convert_table(text, as_code=tables == "code")
