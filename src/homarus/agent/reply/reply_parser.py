"""Parse what a model wrote as a reply: its text, its directives, its reasoning.

Tags (`[[reply_to_current]]`, `[[reply_to:ID]]`, `[[audio_as_voice]]`, `[[media:PATH]]`), `MEDIA:`
lines, the silent word, and reasoning in tags. None of them counts inside code. Pure, and linear
in the text.
"""

import re
from typing import NamedTuple

from homarus.core.fast_dataclass import dataclass
from homarus.core.fences import closes_fence, match_marker, opens_fence, split_lines
from homarus.core.silent_reply import DECORATION, SILENT_WORD

REASONING_WORDS = ("think", "thinking", "thought", "antthinking", "final")

_TAG = re.compile(r"`+|\[\[([^\[\]\n]{1,4200})\]\]")
_REASONING = re.compile(
    rf"`+|<\s{{0,4}}(/?)\s{{0,4}}(?:antml:)?({'|'.join(REASONING_WORDS)})\b[^<>]{{0,200}}>",
    re.IGNORECASE,
)
_BACKTICKS = re.compile(r"`+")
_URL = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)
_FILE_URL = re.compile(r"file://", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_ROOTED = re.compile(r"/|\.{1,2}[/\\]|~|[A-Za-z]:[/\\]|\\\\")
_EXTENSION = re.compile(r"\.[A-Za-z0-9_]{1,10}\Z")
_VOICE = re.compile(r"\[\[[ \t]{0,8}audio_as_voice[ \t]{0,8}\]\]", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_QUOTES = frozenset({'""', "''", "``"})
_MAX_MEDIA_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply. `reply_to` is an explicit message id; `silent`: nothing is sent."""

    text: str
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False
    as_voice: bool = False
    silent: bool = False


def parse_reply(raw: str, silent_word: str = SILENT_WORD) -> ParsedReply:
    """Parse a reply. It is silent when the silent word is its only text."""
    text, media = _extract_media(raw)
    directives = ReplyDirectives(list(media))
    stripped = _read_tags(text, directives).strip()  # not earlier: indented markers are no fences
    text = _drop_silence(stripped, silent_word)
    return ParsedReply(
        text=text,
        media=tuple(directives.media),
        reply_to=directives.reply_to,
        reply_to_current=directives.reply_to_current,
        as_voice=directives.as_voice,
        silent=bool(stripped and not text and not directives.media),
    )


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


def read_line(line: str, directives: "ReplyDirectives") -> str | None:
    """Apply the directives of a line outside code; return the rest, None if it is dropped."""
    stripped = line.strip()
    if stripped.startswith("MEDIA:"):
        found, caption = _split_payload(stripped[6:])
        directives.media += found
        if found:
            return caption or None
    pieces = _split_at_tags(line, directives) if "[[" in line else [line]
    left = line if len(pieces) == 1 else _join(pieces) or None
    return None if left and left.strip() == SILENT_WORD else left


def match_reasoning(text: str, at: int = 0) -> re.Match[str] | None:
    """Match a reasoning tag at a position: group 1 is its slash, group 2 its name."""
    found = _REASONING.match(text, at)
    return found if found and found[2] else None


def strip_reasoning_tags(text: str) -> str:
    """Return the text without `<think>` and similar content; the content of `<final>` stays.

    Reasoning that is never closed extends to the end. Code does not count inside reasoning: a fence
    left open there must not hide the answer.
    """
    if "<" not in text or not any(found[2] for found in _REASONING.finditer(text)):
        return text
    lines: list[str] = []
    line: list[str] = []
    opener, thinking = "", False
    for raw in text.split("\n"):
        marker = None if thinking else match_marker(raw)
        if opener or (marker and opens_fence(*marker)):
            line = [raw]
        else:
            thinking = _strip_line(raw, line, thinking=thinking)
        if not thinking:
            lines.append("".join(line))
            opener = _next_opener(opener, lines[-1])
            line = []
    return "\n".join([*lines, "".join(line)]).strip()


def _next_opener(opener: str, line: str) -> str:
    """Return the marker of the fence that is open after a line; "" outside."""
    marker = match_marker(line)
    if opener:
        return "" if marker and closes_fence(opener, *marker) else opener
    return marker[0] if marker and opens_fence(*marker) else ""


def _strip_line(raw: str, shown: list[str], *, thinking: bool) -> bool:
    """Append the text outside reasoning to `shown`; return whether reasoning continues."""
    ends = _code_ends(raw)
    at = scan = 0
    while found := _REASONING.search(raw, scan):
        scan = found.end()
        name = (found[2] or "").lower()
        if thinking:
            # `<final>` ends reasoning that was never closed.
            if name and (found[1] or name == "final"):
                at, thinking = scan, False
        elif not name:
            scan = ends.get(found.start(), scan)
        else:
            shown.append(raw[at : found.start()])
            at, thinking = scan, not found[1] and name != "final"
    if not thinking:
        shown.append(raw[at:])
    return thinking


def _code_ends(line: str) -> dict[int, int]:
    """Return where the code that starts at each run of backticks ends."""
    ends: dict[int, int] = {}
    seen: dict[int, int] = {}
    for run in reversed(list(_BACKTICKS.finditer(line))):
        width = len(run[0])
        if width in seen:
            ends[run.start()] = seen[width]
        seen[width] = run.end()
    return ends


@dataclass(slots=True)
class ReplyDirectives:
    """The directives of one reply."""

    media: list[str]
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
                self.media += found
            case _:
                return False
        return True


def _read_tags(text: str, directives: ReplyDirectives) -> str:
    """Return the text without its tags."""
    if "[[" not in text:
        return text
    lines: list[str] = []
    for line, is_code in split_lines(text):
        pieces = [line] if is_code or "[[" not in line else _split_at_tags(line, directives)
        if len(pieces) == 1:
            lines.append(line)
        elif joined := _join(pieces):
            lines.append(joined)
    return "\n".join(lines)


def _split_at_tags(line: str, directives: ReplyDirectives) -> list[str]:
    ends = _code_ends(line)
    pieces: list[str] = []
    at = scan = 0
    while found := _TAG.search(line, scan):
        scan = ends.get(found.start(), found.end())
        if found[1] and directives.apply_tag(found[1]):
            pieces.append(line[at : found.start()])
            at = scan
    return [*pieces, line[at:]]


def _join(pieces: list[str]) -> str:
    first, *rest = pieces
    words = [first.rstrip(), *(piece.strip() for piece in rest)]
    return " ".join(word for word in words if word)


def _drop_silence(text: str, word: str) -> str:
    """Return the text without the silent word where it is alone in a line or in the text."""
    if not word or word not in text:
        return text
    if text.strip(DECORATION) == word:
        return ""
    lines = [line for line, is_code in split_lines(text) if is_code or line.strip() != word]
    return "\n".join(lines).strip()


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
