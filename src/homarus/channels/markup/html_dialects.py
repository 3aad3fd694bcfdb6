"""The HTML subsets of Telegram and Matrix."""

import re
from html import escape
from typing import Final

from homarus.channels.markup.inline import DialectStyle
from homarus.channels.markup.stream import DialectSyntax, StyleMark
from homarus.core.fast_dataclass import dataclass

_ROOM = re.compile(r"@(?=room)", re.IGNORECASE)


def _escape(text: str) -> str:
    return escape(text, quote=False)


def _spell(text: str, _is_new_line: bool) -> str:  # noqa: FBT001 - the shape of `Look.spell`
    return _spell_code(text)


def _spell_code(text: str) -> str:
    """Escape code so that it mentions no room: Matrix searches code for that, too."""
    return _ROOM.sub("@\u200b", text)


def _spell_link(href: str) -> str:
    return _ROOM.sub("%40", href)


TELEGRAM_STYLE: Final = DialectStyle(
    heading="plain",
    has_links=True,
    has_bare_links=False,
    marks_addresses=True,
    quotes_nest=False,
    code_stands_apart=True,
    names_files=True,
)
TELEGRAM: Final = DialectSyntax(
    marks={
        "bold": ("<b>", "</b>"),
        "italic": ("<i>", "</i>"),
        "strike": ("<s>", "</s>"),
        "spoiler": ("<tg-spoiler>", "</tg-spoiler>"),
        "code": ("<code>", "</code>"),
        "pre": ("<pre><code>", "\n</code></pre>"),
        "link": ('<a href="{}">', "</a>"),
        "quote": ("<blockquote>", "</blockquote>"),
    },
    escape=_escape,
    value=escape,
    unseen=True,
)


@dataclass(frozen=True, slots=True)
class _HtmlSyntax(DialectSyntax):
    def before(self, mark: StyleMark, inner: StyleMark | None) -> str:
        if mark.kind == "ol" and inner and inner.value not in {"", "1"}:
            return f'<ol start="{inner.value}">'
        if mark.kind == "pre" and mark.value:
            return f'<pre><code class="language-{self.value(mark.value)}">'
        return DialectSyntax.before(self, mark, inner)


_TAGS = ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "table")
_CELL_TAGS = ("thead", "tbody", "tr", "th", "td")

MATRIX_STYLE: Final = DialectStyle(
    has_links=True,
    has_bare_links=False,
    schemes=("http://", "https://", "mailto:"),
    spell=_spell,
    spell_link=_spell_link,
    spell_code=_spell_code,
)
MATRIX: Final = _HtmlSyntax(
    marks={tag: (f"<{tag}>", f"</{tag}>") for tag in _TAGS + _CELL_TAGS}
    | {
        "hr": ("<hr>", ""),
        "bold": ("<strong>", "</strong>"),
        "italic": ("<em>", "</em>"),
        "strike": ("<del>", "</del>"),
        "spoiler": ("<span data-mx-spoiler>", "</span>"),
        "code": ("<code>", "</code>"),
        "pre": ("<pre><code>", "</code></pre>"),
        "link": ('<a href="{}">', "</a>"),
    },
    escape=_escape,
    value=lambda value: escape(_spell_link(value)),
)
