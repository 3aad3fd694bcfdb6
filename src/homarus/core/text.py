"""Cut, measure, repair and escape text; find the closest of several names."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homarus.core.message import Json

_PLAIN = " \n\t"
_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
# Invisible characters of other categories: fillers, a joiner, variation selectors, tags.
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(chr(code) for code in range(0xFE00, 0xFE10))
)
_TAGS = range(0xE0000, 0xE1000)
JOINERS = "\u200c\u200d"  # used in ordinary words of some scripts, and in emoji
# Controls other than tab and newline, line separators, every bidirectional control, surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)


def clip_middle(text: str, max_chars: int) -> str:
    """Shorten text to its head and tail, noting how many characters were left out."""
    if len(text) <= max_chars:
        return text
    kept = max(max_chars, 0)
    head = kept * 2 // 3
    left_out = len(text) - kept
    return f"{text[:head]}\n\n[… {left_out} characters left out …]\n\n{text[head + left_out :]}"


def repair_surrogates(text: str) -> str:
    """Return text that UTF-8 can encode: halves of one character joined, others as U+FFFD.

    Python's strings may hold half of a surrogate pair, from a JSON escape or a file name; most
    other programs refuse such text.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def repair_json(value: "Json") -> "Json":
    """Return a JSON value whose strings are repaired; the same object when all are valid."""
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, Mapping):
        pairs = [(key, repair_json(key), item, repair_json(item)) for key, item in value.items()]
        is_same = all(key is new_key and item is new for key, new_key, item, new in pairs)
        return value if is_same else {new_key: new for _, new_key, _, new in pairs}
    if isinstance(value, list | tuple):
        items = [repair_json(item) for item in value]
        return value if all(new is item for new, item in zip(items, value, strict=True)) else items
    return value


def utf16_len(text: str) -> int:
    """Return the length in UTF-16 code units, the unit of several chat services."""
    return len(text) + sum(ch > "\uffff" for ch in text)


def escape_invisible(text: str) -> str:
    r"""Escape invisible and reordering characters as `\u{…}`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(ch):x}}}" if ch not in _PLAIN and _is_invisible(ch) else ch for ch in text
    )


def escape_markup(text: str) -> str:
    """Return text for the content of an XML element."""
    # Not xml.sax.saxutils, which imports urllib and email: they would slow the start.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape_markup(text: str) -> str:
    """Return the text that `escape_markup` was given."""
    return text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")


def escape_controls(text: str) -> str:
    r"""Escape control and bidirectional control characters as `\u{…}`; every script stays as it is.

    A terminal does nothing with the result but show it. Other characters that cannot be seen are
    unchanged: what a person decides upon needs `escape_invisible`.
    """
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def _is_invisible(ch: str) -> bool:
    return ch in _BLANKS or ord(ch) in _TAGS or unicodedata.category(ch) in _INVISIBLE_CATEGORIES


def one_line(
    text: str, max_chars: int = 80, escape: Callable[[str], str] = escape_invisible
) -> str:
    """Return the text on one line, escaped and cut with an ellipsis."""
    flat = " ".join(escape(text).split())
    return flat if len(flat) <= max_chars else flat[: max_chars - 1] + "…"


def fold_name(name: str) -> str:
    """Return a file name as the most lenient file system compares it: no case or final dots."""
    plain = "".join(ch for ch in name if ch not in JOINERS)
    return unicodedata.normalize("NFKC", plain).casefold().rstrip(" .")


def closest_names(
    name: str, names: Iterable[str], limit: int = 3, min_ratio: float = 0.6
) -> tuple[str, ...]:
    """Return the known names closest to a mistyped one, best first."""
    import difflib

    return tuple(difflib.get_close_matches(name, list(names), n=limit, cutoff=min_ratio))
