"""Small truths about text: cutting it, measuring it, showing it safely, guessing a name."""

import difflib
import unicodedata
from collections.abc import Iterable

_KEPT_CONTROLS = "\n\t"


def clip_middle(text: str, max_chars: int) -> str:
    """Keep the head and the tail, and say what was left out between them."""
    if len(text) <= max_chars:
        return text
    head = max_chars * 2 // 3
    tail = max_chars - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n\n[… {left_out} characters left out …]\n\n{text[-tail:]}"


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of several chat services and of JavaScript."""
    return len(text) + sum(ch > "\uffff" for ch in text)


def reveal(text: str) -> str:
    r"""Show characters that hide or reorder text as `\u{…}`: a person sees what is there."""
    return "".join(
        f"\\u{{{ord(ch):x}}}"
        if ch not in _KEPT_CONTROLS
        and unicodedata.category(ch) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
        else ch
        for ch in text
    )


def one_line(text: str, max_chars: int = 80) -> str:
    """The text on one line, cut with an ellipsis."""
    flat = " ".join(reveal(text).split())
    return flat if len(flat) <= max_chars else flat[: max_chars - 1] + "…"


def nearest(name: str, names: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names closest to a mistyped one, best first."""
    return tuple(difflib.get_close_matches(name, list(names), n=limit, cutoff=0.6))
