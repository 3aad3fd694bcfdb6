"""Parse and format lines of the IRC protocol.

Their content is untrusted in both directions: `format_message` is the only way to make a line, and
it refuses whatever would end the line early or start another.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Final

from homarus.core.fast_dataclass import dataclass

MAX_BYTES: Final = 512  # of a line without its tags, including the line end
TAGS_BYTES: Final = 8_191  # of the tags before it
ACTION: Final = "\x01ACTION "
_UNSAFE = re.compile(r"[\r\n\0]")
_ESCAPES: Final = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
# Bold, italics, underline, strike, monospace, reverse, reset; colours by number and by hex.
_FORMAT = re.compile(
    r"\x03(?:\d{1,2}(?:,\d{1,2})?)?"
    r"|\x04(?:[0-9a-fA-F]{6}(?:,[0-9a-fA-F]{6})?)?"
    r"|[\x02\x0f\x11\x16\x1d\x1e\x1f]"
)
_ASCII_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FOLDS: Final = {
    "ascii": str.maketrans(_ASCII_UPPER, _ASCII_UPPER.lower()),
    "rfc1459": str.maketrans(_ASCII_UPPER + "[]\\^", _ASCII_UPPER.lower() + "{}|~"),
    "rfc1459-strict": str.maketrans(_ASCII_UPPER + "[]\\", _ASCII_UPPER.lower() + "{}|"),
}
_NICK = re.compile(r"[^\s,:@!*?#&+$\x00-\x1f\x7f][^\s,@!*?\x00-\x1f\x7f]*")
_CHANNEL = re.compile(r"[#&+!][^\s,\x00-\x1f\x7f]*")


class UnsendableLineError(Exception):
    """The text would not stay one line, or one word of it."""


@dataclass(frozen=True, slots=True)
class IrcMessage:
    """One line with its source. `command` is in capitals, or three digits."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def nick(self) -> str:
        """The source: a user's nick, or a server's name."""
        return self.source.partition("!")[0]

    @property
    def is_from_person(self) -> bool:
        return "!" in self.source and "@" in self.source

    def param(self, at: int) -> str:
        """Return one parameter, counted from the end if negative; "" when it is missing."""
        return self.params[at] if -len(self.params) <= at < len(self.params) else ""


def parse_message(raw: bytes) -> IrcMessage | None:
    """Parse a line, with or without its line end; None when it is empty."""
    text = _UNSAFE.sub("", _decode(raw))
    tags: dict[str, str] = {}
    source = ""
    if text.startswith("@"):
        said, _, text = text[1:].partition(" ")
        tags = _parse_tags(said)
        text = text.lstrip(" ")
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    head, colon, last = text.lstrip(" ").partition(" :")
    words = [word for word in head.split(" ") if word]
    if not words:
        return None
    params = (*words[1:], last) if colon else tuple(words[1:])
    return IrcMessage(words[0].upper(), params, source, tags)


def format_message(command: str, *params: str) -> bytes:
    """Format a line. The last parameter may be any text of one line, the others are words."""
    for word in (command, *params[:-1]):
        if not word or word.startswith(":") or " " in word or _UNSAFE.search(word):
            raise UnsendableLineError(f"{command}: {word!r} is not one word")
    if params and _UNSAFE.search(params[-1]):
        raise UnsendableLineError(f"{command}: the text is more than one line")
    words = [command, *params[:-1], *(f":{last}" for last in params[-1:])]
    try:
        return " ".join(words).encode() + b"\r\n"
    except UnicodeEncodeError as exc:
        raise UnsendableLineError(f"{command}: the text has halves of characters") from exc


def fold_name(name: str, mapping: str = "rfc1459") -> str:
    """Return the one form of a nick or channel that all its spellings have on a server."""
    return name.translate(_FOLDS.get(mapping, _FOLDS["ascii"]))


def is_nick(name: str) -> bool:
    """Return whether this may be a user on some server, and is one word of a line."""
    return _NICK.fullmatch(name) is not None


def is_channel(name: str) -> bool:
    """Return whether this may be a channel."""
    return _CHANNEL.fullmatch(name) is not None


def read_text(said: str, nick: str) -> str:
    """Return a user's text without colours; "" for CTCP requests.

    An action ("/me waves") is told with the user's name.
    """
    if said.startswith("\x01"):
        if not said.startswith(ACTION):
            return ""
        said = f"* {nick} {said.removeprefix(ACTION).rstrip(chr(1))}"
    return _FORMAT.sub("", said).replace("\x01", "").strip()


def mentions_nick(text: str, nick: str) -> bool:
    """Return whether a text contains a nick as a word."""
    word = re.escape(nick)
    # Characters of a nick extend it: "bot-2" does not mention "bot".
    around = r"[\w\[\]\\^{}|`-]"
    return re.search(rf"(?<!{around}){word}(?!{around})", text, re.IGNORECASE) is not None


def parse_time_tag(time_tag: str) -> int:
    """Return a server's time tag (`2026-11-15T16:12:38.123Z`) in milliseconds; 0 if invalid."""
    try:
        when = datetime.strptime(time_tag, "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return 0
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, round(since.total_seconds() * 1000))


def _parse_tags(said: str) -> dict[str, str]:
    """Parse `a=1;b` as {"a": "1", "b": ""}; the last of a name wins."""
    pairs = (tag.partition("=") for tag in said.split(";"))
    return {name: _unescape(value) for name, _, value in pairs if name}


def _unescape(value: str) -> str:
    return re.sub(r"\\(.?)", lambda found: _ESCAPES.get(found[1], found[1]), value, flags=re.DOTALL)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
