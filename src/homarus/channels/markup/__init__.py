"""Render markdown in the dialect of each chat service, split into messages.

The model writes markdown. A text is parsed to a tree (tree.py), laid out as a stream of text and
marks (text_layout.py, html_layout.py), and split into messages of the dialect (split.py;
html_dialects.py, text_dialects.py). Each message is well-formed; what is no markup of ours is shown
as text and mentions no one. The parser is imported with the first text.
"""

from typing import TYPE_CHECKING, Literal, TypeAlias

from homarus.channels.base import Capabilities
from homarus.channels.chunk import ChunkMode, chunk_markdown_with_mode
from homarus.core.channel_traits import Dialect
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import TextStyle

if TYPE_CHECKING:  # with the parser
    from homarus.channels.markup.split import MessagePart

Tables: TypeAlias = Literal["off", "bullets", "code"]


@dataclass(frozen=True, slots=True)
class RenderedPart:
    """A text in a dialect, and its styles where the service has no markup (Signal)."""

    text: str
    styles: tuple[TextStyle, ...] = ()


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
) -> list[RenderedPart]:
    """Return the text as messages of a channel, each within `limit` in the channel's unit."""
    dialect, unit = capabilities.dialect, capabilities.unit
    limit = capabilities.text_limit if limit is None else limit
    if dialect == "markdown":
        chunks = chunk_markdown_with_mode(render(text, dialect, tables), limit, mode, unit)
        return [RenderedPart(chunk) for chunk in chunks]
    from homarus.channels.markup import dialects

    ends: dialects.Ends = "line" if capabilities.by_line else "block"
    if ends == "block" and mode == "length":
        ends = "limit"
    messages = dialects.render_messages(
        text, dialect, tables=tables, limit=limit, unit=unit, ends=ends
    )
    if capabilities.max_lines:
        from homarus.channels.markup.line_limit import limit_lines

        return [
            RenderedPart(text)
            for message in messages
            for text in limit_lines(message.text, capabilities.max_lines, limit, unit)
        ]
    if dialect != "signal":
        return [RenderedPart(message.text) for message in messages]
    return [_with_styles(message) for message in messages]


def plain(rendered: str, dialect: Dialect) -> str:
    """Return the plain text of a text that is already in a dialect."""
    from homarus.channels.markup import plain_text

    return plain_text.READERS.get(dialect, str)(rendered)


def signal(text: str, tables: Tables | None = None) -> RenderedPart:
    """Return a text for Signal, with its styles."""
    from homarus.channels.markup import dialects

    messages = dialects.render_messages(text, "signal", tables=tables)
    return _with_styles(messages[0]) if messages else RenderedPart("")


def _with_styles(message: "MessagePart") -> RenderedPart:
    from homarus.channels.markup import dialects

    styles = dialects.signal_styles(message)
    return RenderedPart(message.text, tuple(TextStyle(*style) for style in styles))


def convert_tables(text: str, tables: Tables = "off") -> str:
    """Replace the tables of a markdown text by code blocks or bullets."""
    if tables == "off" or "|" not in text:
        return text
    from homarus.channels.markup.tables import convert_table

    return convert_table(text, as_code=tables == "code")
