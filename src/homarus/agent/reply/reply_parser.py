"""Recognise the directives of a reply, and the tags around reasoning.

Directives are `[[reply_to_current]]`, `[[reply_to:ID]]`, `[[audio_as_voice]]`, `[[media:PATH]]`
and `MEDIA:` lines. `reply_cleaner` finds where they count, which is nowhere inside code. Pure.
"""

import re
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.fences import split_lines

REASONING_WORDS = ("think", "thinking", "thought", "antthinking", "final")

_REASONING = re.compile(
    rf"<\s{{0,4}}(/?)\s{{0,4}}(?:antml:)?({'|'.join(REASONING_WORDS)})\b[^<>]{{0,200}}>",
    re.IGNORECASE | re.ASCII,
)
_URL = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)
_FILE_URL = re.compile(r"file://", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_ROOTED = re.compile(r"(?:/|\.{1,2}[/\\]|~[/\\]|[A-Za-z]:[/\\]|\\\\).")
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}\Z")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_QUOTES = frozenset({'""', "''", "``"})
_MAX_MEDIA_CHARS = 4_096
# Providers whose models write their reasoning into the text, without a field for it.
_FINAL_TAG_PROVIDERS: Final = frozenset({"google-gemini-cli", "google-generative-ai"})
_FINAL_TAG_FAMILIES: Final = ("google-antigravity", "minimax")


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply as its readers get it. `reply_to` is an explicit message id; `silent`: no reply."""

    text: str
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False
    as_voice: bool = False
    silent: bool = False
    reasoning: str = ""


def uses_final_tag(provider: str) -> bool:
    """Return whether models of a provider are asked to answer in `<final>`, which is enforced."""
    name = provider.strip().lower()
    return name in _FINAL_TAG_PROVIDERS or any(part in name for part in _FINAL_TAG_FAMILIES)


def split_media(raw: str) -> tuple[str, tuple[str, ...]]:
    """Return the text without its `MEDIA:` lines, and the paths and URLs of those."""
    text, media = _extract_media(raw)
    return text.strip(), media


def _extract_media(raw: str) -> tuple[str, tuple[str, ...]]:
    if "MEDIA:" not in raw:
        return raw, ()
    lines: list[str] = []
    media: list[str] = []
    removed = False
    for line, is_code in split_lines(raw):
        stripped = line.strip()
        found = _media(stripped[6:]) if stripped.startswith("MEDIA:") and not is_code else ()
        media += found
        if found:
            removed = True
        # The empty lines around a removed line become one.
        elif stripped or not removed or (lines and lines[-1].strip()):
            lines.append(line)
            removed = False
    return "\n".join(lines), tuple(media)


def match_reasoning(text: str, at: int = 0) -> re.Match[str] | None:
    """Match a reasoning tag at a position: group 1 is its slash, group 2 its name."""
    return _REASONING.match(text, at)


@dataclass(slots=True)
class ReplyDirectives:
    """The directives of one reply: the files of its `MEDIA:` lines, those of its tags, and more."""

    media: list[str]
    tag_media: list[str]
    reply_to: str = ""
    reply_to_current: bool = False
    as_voice: bool = False

    def apply_tag(self, tag: str) -> bool:
        """Apply a tag; return False for other text in double brackets."""
        name, colon, value = tag.partition(":")
        value = value.strip()
        match name.strip().lower(), colon:
            case "reply_to_current", "":
                self.reply_to_current = True
            case "reply_to", ":" if value:
                self.reply_to = value
            case "audio_as_voice", "":
                self.as_voice = True
            case "media", ":" if found := _media(value):
                self.tag_media += found
            case _:
                return False
        return True


def _media(payload: str) -> tuple[str, ...]:
    """Return the paths and URLs that follow `MEDIA:`; none when it is a sentence."""
    payload = payload.strip()
    if len(payload) > 2 and payload[0] + payload[-1] in _QUOTES:
        payload = payload[1:-1].strip()
        return (_path(payload),) if _is_media(payload) else ()
    parts = payload.split()
    if len(parts) == 1 and _is_media(payload):
        return (_path(payload),)
    if len(parts) > 1 and all(_is_rooted(part) for part in parts):
        return tuple(_path(part) for part in parts)
    # A path with spaces and no quotes is recognised by its start and its extension.
    is_path = _is_rooted(payload) and _EXTENSION.search(payload) and not _URL.match(payload)
    return (_path(payload),) if is_path else ()


def _is_media(candidate: str) -> bool:
    if _is_rooted(candidate):
        return True
    named = "/" in candidate or _EXTENSION.search(candidate) is not None
    return named and not _SCHEME.match(candidate) and _is_printable(candidate)


def _is_rooted(candidate: str) -> bool:
    """Whether it can only be a URL or a path."""
    match = _URL.fullmatch(candidate) or _ROOTED.match(_path(candidate))
    return match is not None and _is_printable(candidate)


def _is_printable(candidate: str) -> bool:
    return len(candidate) <= _MAX_MEDIA_CHARS and not _UNPRINTABLE.search(candidate)


def _path(candidate: str) -> str:
    return _FILE_URL.sub("", candidate, count=1) if _FILE_URL.match(candidate) else candidate
