"""Recognise the directives of a reply, and the tags around reasoning.

Directives are `[[reply_to_current]]`, `[[reply_to:ID]]`, `[[audio_as_voice]]`, `[[media:PATH]]`
and `MEDIA:` lines. `reply_cleaner` finds where they count, which is nowhere inside code. Pure.
"""

import re
from typing import Final, NamedTuple

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
_ROOTED = re.compile(r"/|\.{1,2}[/\\]|~|[A-Za-z]:[/\\]|\\\\")
_EXTENSION = re.compile(r"\.[A-Za-z0-9_]{1,10}\Z")
_VOICE = re.compile(r"\[\[[ \t]{0,8}audio_as_voice[ \t]{0,8}\]\]", re.IGNORECASE)
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


class SplitMedia(NamedTuple):
    """A text without its media directives, and what those name."""

    text: str
    media: tuple[str, ...] = ()
    as_voice: bool = False


def split_media(raw: str) -> SplitMedia:
    """Return the text without `MEDIA:` lines and `[[audio_as_voice]]`, and what those name.

    The words of a `MEDIA:` line that are no path and no URL stay, as a caption.
    """
    bare = _VOICE.sub(" ", raw) if "[[" in raw else raw
    if bare == raw:
        text, media = _extract_media(raw)
        return SplitMedia(text.strip(), media)
    lines: list[str] = []
    as_voice = False
    for line, is_code in split_lines(raw):
        without = line if is_code else _VOICE.sub(" ", line)
        as_voice = as_voice or without != line
        if without == line or without.strip():
            lines.append(line if without == line else " ".join(without.split()))
    text, media = _extract_media("\n".join(lines))
    return SplitMedia(text.strip(), media, as_voice)


def _extract_media(raw: str) -> tuple[str, tuple[str, ...]]:
    if "MEDIA:" not in raw:
        return raw, ()
    lines: list[str] = []
    media: list[str] = []
    removed = False
    for line, is_code in split_lines(raw):
        stripped = line.strip()
        is_media = stripped.startswith("MEDIA:") and not is_code
        found, caption = _split_payload(stripped[6:]) if is_media else ((), "")
        media += found
        if found:
            removed = not caption
            lines += [caption] if caption else []
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
    return _split_payload(payload)[0]


def _split_payload(payload: str) -> tuple[tuple[str, ...], str]:
    """Return the paths and URLs that follow `MEDIA:`, and the other words; no paths for a sentence.

    As in OpenClaw, one path with other words is one path with spaces, if it could be; the words
    after a URL, and those between several paths, are a caption.
    """
    payload = payload.strip()
    if len(payload) > 2 and payload[0] + payload[-1] in _QUOTES:
        named = _path(payload[1:-1].strip())
        return ((named,), "") if _is_media(named.replace(" ", "_")) else ((), payload)
    names = [_path(_trim_brackets(part)) for part in payload.split()]
    found = tuple(name for name in names if _is_location(name))
    path = _path(_trim_brackets(payload))
    if len(found) < min(len(names), 2) and not _URL.match(path) and _is_media(path):
        return (path,), ""
    known = set(found)
    rest = [part for part, name in zip(payload.split(), names, strict=True) if name not in known]
    return (found, " ".join(rest)) if found else ((), payload)


def _trim_brackets(candidate: str) -> str:
    return candidate.strip().lstrip("`\"'[{(").rstrip("`\"'\\})],")


def _is_media(candidate: str) -> bool:
    """Whether it is a URL, a path or the name of a file."""
    named = _EXTENSION.search(candidate) and not _SCHEME.match(candidate)
    return _is_location(candidate) or (bool(named) and _is_printable(candidate))


def _is_location(candidate: str) -> bool:
    """Whether it is a URL or a path."""
    if not _is_printable(candidate):
        return False
    if _URL.fullmatch(candidate) or _ROOTED.match(candidate):
        return True
    return ("/" in candidate or "\\" in candidate) and not _SCHEME.match(candidate)


def _is_printable(candidate: str) -> bool:
    return len(candidate) <= _MAX_MEDIA_CHARS and not _UNPRINTABLE.search(candidate)


def _path(candidate: str) -> str:
    return _FILE_URL.sub("", candidate, count=1) if _FILE_URL.match(candidate) else candidate
