"""Markdown as each chat service shows it: one tree, pure renderers, messages that fit.

The model writes markdown. A text becomes a tree (tree.py), the tree a stream of words and marks
(flow.py, page.py), and the stream messages in the service's dialect (split.py; html.py, lines.py).
Each message is well-formed by itself; what is no markup of ours is shown as words, and calls
nobody. The parser is loaded with the first text.
"""

from typing import Final, Literal, TypeAlias

from homarus.channels.base import Capabilities, Dialect
from homarus.channels.chunk import ChunkMode, chunk_markdown_with_mode
from homarus.core.value import dataclass

Tables: TypeAlias = Literal["off", "bullets", "code"]

# What `markdown.tables` is when a channel's configuration does not say. "off" leaves a table to a
# service that shows tables itself, else to the reader.
DEFAULT_TABLES: Final[dict[Dialect, Tables]] = {
    "markdown": "off",
    "matrix": "off",
    "telegram": "code",
    "discord": "code",
    "slack": "code",
    "irc": "code",
    "plain": "code",
    "signal": "bullets",
    "whatsapp": "bullets",
}


@dataclass(frozen=True, slots=True)
class SignalStyle:
    """Where a style holds, in UTF-16 units; its name as Signal spells it."""

    start: int
    length: int
    style: str


@dataclass(frozen=True, slots=True)
class SignalText:
    """Signal has no markup: a text, and beside it what is bold."""

    text: str
    styles: tuple[SignalStyle, ...]


def render(text: str, dialect: Dialect, tables: Tables | None = None) -> str:
    """A text in a dialect, whole. For Signal the words alone; see `signal`."""
    text = convert_tables(text, tables or DEFAULT_TABLES[dialect])
    if dialect == "markdown":
        return text
    from homarus.channels.markup import dialects

    return "".join(part.text for part in dialects.write(text, dialect))


def parts(
    text: str,
    capabilities: Capabilities,
    *,
    tables: Tables | None = None,
    limit: int | None = None,
    mode: ChunkMode = "length",
) -> list[str]:
    """A text as messages of a service, each within `limit` as the service counts."""
    dialect, unit = capabilities.dialect, capabilities.unit
    text = convert_tables(text, tables or DEFAULT_TABLES[dialect])
    limit = capabilities.text_limit if limit is None else limit
    if dialect == "markdown":
        return chunk_markdown_with_mode(text, limit, mode, unit)
    from homarus.channels.markup import dialects

    ends: dialects.Ends = "line" if capabilities.by_line else "block"
    if ends == "block" and mode == "length":
        ends = "limit"
    found = dialects.write(text, dialect, limit=limit, unit=unit, ends=ends)
    return [part.text for part in found]


def plain(rendered: str, dialect: Dialect) -> str:
    """The words alone of a text that is already in a dialect."""
    from homarus.channels.markup import words

    return words.READERS.get(dialect, str)(rendered)


def signal(text: str, tables: Tables | None = None) -> SignalText:
    """A text for Signal, with its styles."""
    from homarus.channels.markup import dialects

    found = dialects.write(convert_tables(text, tables or DEFAULT_TABLES["signal"]), "signal")
    if not found:
        return SignalText("", ())
    styles = dialects.signal_styles(found[0])
    return SignalText(found[0].text, tuple(SignalStyle(*style) for style in styles))


def convert_tables(text: str, tables: Tables) -> str:
    """Markdown with other markdown in place of its tables: code, or bullets."""
    if tables == "off" or "|" not in text:
        return text
    from homarus.channels.markup.tables import convert

    return convert(text, as_code=tables == "code")
