"""Dialects whose markup is characters in the text, and those without markup.

Text that a service would take for a mention is escaped. In code it is unchanged, as no service
searches code; so code must never end where its author did not end it.
"""

import re
from html import escape
from typing import Final

from homarus.channels.markup.inline import DialectStyle
from homarus.channels.markup.stream import DialectSyntax, StyleMark

_NO_WIDTH = "\u200b"
_QUOTE: Final = "> "


# A mention of one person, a link to a channel, an address with its label: Slack's own markup. What
# calls a group (`<!here>`, `<!subteam^S1>`) is text.
_SLACK_TOKEN = re.compile(
    r"<((?:@[UW]|#[CG])[A-Z0-9]{1,20}(?:\|[^<>|`\n]{0,80})?"
    r"|(?:https?://|mailto:|tel:)[^\s<>|`]{1,2048}(?:\|[^<>|`\n]{1,500})?)>"
)


def _escape_slack(text: str) -> str:
    if "<" not in text:
        return escape(text, quote=False)
    pieces = _SLACK_TOKEN.split(text)
    escaped = [escape(piece, quote=False) for piece in pieces]
    escaped[1::2] = [f"<{token}>" for token in escaped[1::2]]
    return "".join(escaped)


_SLACK_CALL = re.compile(r"@(?=everyone|here|channel)", re.IGNORECASE)


def _spell_slack_link(href: str) -> str:
    return _SLACK_CALL.sub("%40", href)


def _part_backticks(text: str) -> str:
    """Return text that opens and ends no fence: zero-width spaces part its backticks."""
    return text.replace("``", "`" + _NO_WIDTH + "`")


def _spell_ticks(text: str, _is_new_line: bool) -> str:  # noqa: FBT001 - the shape of `Look.spell`
    return _part_backticks(text)


def _spell_slack(text: str, _is_new_line: bool) -> str:  # noqa: FBT001 - the shape of `Look.spell`
    return _SLACK_CALL.sub("@" + _NO_WIDTH, _part_backticks(text))


def _spell_fenced(code: str) -> str:
    """Escape code so that it cannot end its fence."""
    return _part_backticks(code) if "```" in code else code


def _mark_ticked(code: str) -> StyleMark | None:
    """Return the mark of inline code; None for code with backticks, shown as text."""
    return None if "`" in code else StyleMark("code")


SLACK_STYLE: Final = DialectStyle(
    has_links=True,
    has_bare_links=False,
    has_tokens=True,
    code_stands_apart=True,
    spell_code=_spell_fenced,
    spell=_spell_slack,
    spell_link=_spell_slack_link,
    code=_mark_ticked,
)
_STARS: Final = {
    "bold": ("*", "*"),
    "italic": ("_", "_"),
    "strike": ("~", "~"),
    "spoiler": ("||", "||"),
    "code": ("`", "`"),
    "pre": ("```\n", "\n```"),
}
SLACK: Final = DialectSyntax(
    marks=_STARS | {"link": ("<{}|", ">")},
    escape=_escape_slack,
    value=lambda href: _escape_slack(_spell_slack_link(href)).replace("|", "%7C"),
    quiet=lambda code: _SLACK_CALL.sub("＠", code),
    quote=_QUOTE,
    every_line=False,
    by_line=True,
)

# As OpenClaw leaves them, headings, rules, autolinks and the language of code are shown as written.
WHATSAPP_STYLE: Final = DialectStyle(
    bullet="-",
    rule="---",
    heading="source",
    has_links=True,
    has_tokens=True,
    stars_are_bold=True,
    code_stands_apart=True,
    spell=_spell_ticks,
    spell_code=_spell_fenced,
    code=_mark_ticked,
)
WHATSAPP: Final = DialectSyntax(
    marks=_STARS | {"star": ("*", "*"), "link": ("[", "]({})"), "pre": ("```{}\n", "\n```")},
    quote=_QUOTE,
    by_line=True,
)

_DISCORD_CALL = re.compile(r"@(?=everyone|here)|(?<=<)@(?=[!&]?\d)", re.IGNORECASE)
_DISCORD_LINE = re.compile(r"-#|#{1,3}\s|>|[-+]\s")
_DISCORD_MARKUP = re.compile(
    r"(https?://[^\s`*|\\<>]+)|[\\`*|~\[\]]|(?<!\w)_|_(?!\w)", re.IGNORECASE
)


def _spell_discord(text: str, is_new_line: bool) -> str:  # noqa: FBT001 - the shape of `Look.spell`
    shown = _DISCORD_MARKUP.sub(_spell_discord_markup, text)
    if is_new_line and _DISCORD_LINE.match(shown):
        shown = "\\" + shown
    return _DISCORD_CALL.sub("@" + _NO_WIDTH, shown)


def _spell_discord_markup(found: re.Match[str]) -> str:
    return _spell_discord_link(found[1]) if found[1] else "\\" + found[0]


def _spell_discord_link(href: str) -> str:
    return _DISCORD_CALL.sub("%40", href)


def _spell_discord_value(href: str) -> str:
    return _spell_discord_link(href).replace("(", "%28").replace(")", "%29")


def _mark_discord_code(code: str) -> StyleMark | None:
    """Return the mark of inline code; two backticks for code that contains one."""
    if "``" in code or code[:1] == "`" or code[-1:] == "`" or _DISCORD_CALL.search(code):
        return None
    return StyleMark("code", "``" if "`" in code else "`")


DISCORD_STYLE: Final = DialectStyle(
    bullet="-",
    heading="hash",
    has_links=True,
    schemes=("http://", "https://"),
    code_stands_apart=True,
    spell_code=_spell_fenced,
    spell=_spell_discord,
    spell_link=_spell_discord_link,
    code=_mark_discord_code,
)
DISCORD: Final = DialectSyntax(
    marks={
        "bold": ("**", "**"),
        "italic": ("*", "*"),
        "strike": ("~~", "~~"),
        "spoiler": ("||", "||"),
        "code": ("{}", "{}"),
        "pre": ("```{}\n", "\n```"),
        "link": ("[", "]({})"),
    },
    value=_spell_discord_value,
    quiet=lambda code: _DISCORD_CALL.sub("＠", code),
    quote=_QUOTE,
    by_line=True,
)

IRC_STYLE: Final = DialectStyle()
IRC: Final = DialectSyntax(
    marks={
        "bold": ("\x02", "\x02"),
        "italic": ("\x1d", "\x1d"),
        "strike": ("~~", "~~"),
        "spoiler": ("||", "||"),
        "code": ("`", "`"),
    },
    escape=lambda text: text.replace("\t", " "),
    quote=_QUOTE,
    by_line=True,
)

PLAIN_STYLE: Final = DialectStyle(heading="plain")
PLAIN: Final = DialectSyntax(
    marks={"strike": ("~~", "~~"), "spoiler": ("||", "||")}, quote=_QUOTE, by_line=True
)

SIGNAL_STYLE: Final = DialectStyle()
SIGNAL: Final = DialectSyntax(marks={}, quote=_QUOTE, every_line=False)
SIGNAL_STYLES: Final = {
    "bold": "BOLD",
    "italic": "ITALIC",
    "strike": "STRIKETHROUGH",
    "spoiler": "SPOILER",
    "code": "MONOSPACE",
    "pre": "MONOSPACE",
}
