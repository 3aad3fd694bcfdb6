"""Decode Slack's markup of received messages to plain text.

Slack writes people, channels and links as `<…>` and escapes `&`, `<` and `>` of the text.
"""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Final

from homarus.core.fast_dataclass import dataclass

_TOKEN: Final = re.compile(r"<([@#!]?)([^<>|]{1,3000})(?:\|([^<>]{0,3000}))?>")
_ESCAPED: Final = re.compile(r"&(?:amp|lt|gt);")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of a message, and the ids of the people that it mentions."""

    text: str
    people: tuple[str, ...] = ()
    mentions_group: bool = False  # a user group, which may not have us


def mentioned_people(markup: str) -> tuple[str, ...]:
    """Return the ids of the people that a message mentions, each once."""
    return tuple(dict.fromkeys(_people(markup)))


def _people(markup: str) -> Iterator[str]:
    return (found[2] for found in _TOKEN.finditer(markup) if found[1] == "@")


def decode_text(markup: str, names: Mapping[str, str]) -> DecodedText:
    """Return a message as people read it; `names` are those of the people in it, by id."""
    has_groups = False

    def replace(found: re.Match[str]) -> str:
        nonlocal has_groups
        sign, inner, label = found[1], found[2], found[3] or ""
        if sign == "@":
            return f"@{names.get(inner) or label.removeprefix('@') or inner}"
        if sign == "#":
            return f"#{label or inner}"
        if sign == "!":
            has_groups = has_groups or inner.startswith("subteam^")
            return _decode_special(inner, label)
        if ":" not in inner:
            return found[0]  # no address
        href = inner.removeprefix("mailto:") if label == inner.removeprefix("mailto:") else inner
        return href if not label or label == href or href.endswith(f"://{label}") else (
            f"{label} ({href})"
        )  # fmt: skip

    text = _TOKEN.sub(replace, markup)
    text = _ESCAPED.sub(lambda found: unescape(found[0]), text)
    return DecodedText(text, mentioned_people(markup), has_groups)


def _decode_special(inner: str, label: str) -> str:
    """Return `@here` and the like, the name of a user group, or a date as Slack shows it."""
    kind, _, rest = inner.partition("^")
    if kind in {"here", "channel", "everyone"}:
        return f"@{kind}"
    if kind == "subteam":
        return f"@{label.removeprefix('@') or rest}"
    return label or kind


def escape_text(text: str) -> str:
    """Return a plain text as Slack's markup: nothing in it is a mention or a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
