"""Small truths about text: cutting it, measuring it, showing it safely, guessing a name."""

import unicodedata
from collections.abc import Iterable

_PLAIN = " \n\t"
_HIDING = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
# What draws nothing and is not in those classes: fillers, a joiner, variation selectors, tags.
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(chr(code) for code in range(0xFE00, 0xFE10))
)
_TAGS = range(0xE0000, 0xE1000)


def clip_middle(text: str, max_chars: int) -> str:
    """Keep the head and the tail, and say what was left out between them."""
    if len(text) <= max_chars:
        return text
    kept = max(max_chars, 0)
    head = kept * 2 // 3
    left_out = len(text) - kept
    return f"{text[:head]}\n\n[… {left_out} characters left out …]\n\n{text[head + left_out :]}"


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of several chat services and of JavaScript."""
    return len(text) + sum(ch > "\uffff" for ch in text)


def reveal(text: str) -> str:
    r"""Show characters that hide or reorder text as `\u{…}`: a person sees what is there."""
    return "".join(f"\\u{{{ord(ch):x}}}" if ch not in _PLAIN and _hides(ch) else ch for ch in text)


def _hides(ch: str) -> bool:
    return ch in _BLANKS or ord(ch) in _TAGS or unicodedata.category(ch) in _HIDING


def one_line(text: str, max_chars: int = 80) -> str:
    """The text on one line, cut with an ellipsis."""
    flat = " ".join(reveal(text).split())
    return flat if len(flat) <= max_chars else flat[: max_chars - 1] + "…"


def nearest(name: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names closest to a mistyped one, best first."""
    import difflib

    return tuple(difflib.get_close_matches(name, list(names), n=limit, cutoff=0.6))
