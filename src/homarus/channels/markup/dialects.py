"""Every dialect: how it lays out a tree, and how it spells marks."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from markdown_it.token import Token

from homarus.channels.base import Dialect
from homarus.channels.chunk import Unit
from homarus.channels.markup import html, lines
from homarus.channels.markup.flow import Flow
from homarus.channels.markup.inline import Look
from homarus.channels.markup.page import Page
from homarus.channels.markup.split import Part, split
from homarus.channels.markup.stream import BLOCK, SOFT, Event, Spelling
from homarus.channels.markup.tree import MAX_CHARS, clean, parse

# What always ends a message, besides its limit.
Ends: TypeAlias = Literal["limit", "block", "line"]

_LEVELS: Final = {"limit": BLOCK + 1, "block": BLOCK, "line": SOFT}
_DIALECTS: Final[Mapping[Dialect, tuple[Look, Spelling]]] = {
    "telegram": (html.TELEGRAM_LOOK, html.TELEGRAM),
    "matrix": (html.MATRIX_LOOK, html.MATRIX),
    "slack": (lines.SLACK_LOOK, lines.SLACK),
    "whatsapp": (lines.WHATSAPP_LOOK, lines.WHATSAPP),
    "discord": (lines.DISCORD_LOOK, lines.DISCORD),
    "signal": (lines.SIGNAL_LOOK, lines.SIGNAL),
    "irc": (lines.IRC_LOOK, lines.IRC),
    "plain": (lines.PLAIN_LOOK, lines.PLAIN),
}
_RANKS: Final = {name: rank for rank, name in enumerate(lines.SIGNAL_STYLES.values())}


def write(
    text: str, dialect: Dialect, *, limit: int = 0, unit: Unit = "utf16", ends: Ends = "limit"
) -> list[Part]:
    """The messages of a text; one without a limit."""
    look, spelling = _DIALECTS[dialect]
    events = _lay_out(text, dialect, look)
    return split(events, spelling, limit=limit, unit=unit, ends=_LEVELS[ends])


def signal_styles(part: Part) -> list[tuple[int, int, str]]:
    """Start, length and name of every style that Signal knows; the outer before the inner."""
    known = lines.SIGNAL_STYLES
    found = [(s.start, s.length, known[s.kind]) for s in part.styles if s.kind in known]
    return sorted(found, key=lambda style: (style[0], -style[1], _RANKS[style[2]]))


def _lay_out(text: str, dialect: Dialect, look: Look) -> list[Event]:
    page = Page(look) if dialect == "matrix" else Flow(look)
    if len(text) > MAX_CHARS:
        return page.lay_out_line([Token("text", "", 0, content=clean(text))])
    if isinstance(page, Page):
        return page.lay_out(parse(text, tables=True), clean(text))
    return page.lay_out(parse(text))
