r"""What a terminal sends and receives: output without control sequences, names of keys. Pure.

Keys are named as in tmux: `Enter`, `C-c`, `M-x`, `S-Tab`, `Up`, `F5`; any other text of one
character is itself.
"""

import re
from collections.abc import Iterable
from typing import Final

from homarus.core.errors import ToolError
from homarus.core.text import one_line

MAX_SEQUENCE_CHARS = 4_096
_CURSOR_QUERIES: Final = {"\x1b[6n": "\x1b[1;1R", "\x1b[5n": "\x1b[0n", "\x1b[c": "\x1b[?1;2c"}
# A complete sequence: CSI, a string (OSC, DCS, SOS, PM, APC) to its terminator, or two characters.
_SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ`-~]"
)
_INCOMPLETE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)?\Z")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class TerminalFilter:
    """Removes control sequences from output that arrives in parts, and answers queries."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str, *, final: bool = False) -> tuple[str, str]:
        """Return the plain text, and what the terminal replies to the program."""
        text, self._rest = self._rest + text, ""
        if not final:
            found = _INCOMPLETE.search(text, max(0, len(text) - MAX_SEQUENCE_CHARS))
            cut = found.start() if found else len(text) - text.endswith("\r")
            text, self._rest = text[:cut], text[cut:]
        replies = "".join(_CURSOR_QUERIES.get(match[0], "") for match in _SEQUENCE.finditer(text))
        return strip_sequences(text), replies


def strip_sequences(text: str) -> str:
    """Return text without control sequences and control characters, with plain line breaks."""
    if "\x1b" in text:
        text = _SEQUENCE.sub("", text)
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


_NAMED: Final = {
    "enter": "\r",
    "return": "\r",
    "cr": "\r",
    "tab": "\t",
    "btab": "\x1b[Z",
    "space": " ",
    "escape": "\x1b",
    "esc": "\x1b",
    "bspace": "\x7f",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pgup": "\x1b[5~",
    "ppage": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "pgdn": "\x1b[6~",
    "npage": "\x1b[6~",
    "insert": "\x1b[2~",
    "ic": "\x1b[2~",
    "delete": "\x1b[3~",
    "del": "\x1b[3~",
    "dc": "\x1b[3~",
}
_FUNCTION: Final = {
    f"f{number}": code
    for number, code in enumerate(
        ["\x1bOP", "\x1bOQ", "\x1bOR", "\x1bOS"]
        + [f"\x1b[{code}~" for code in (15, 17, 18, 19, 20, 21, 23, 24)],
        start=1,
    )
}
_KEYS: Final = _NAMED | _FUNCTION
_MODIFIED: Final = re.compile(r"((?:[CcMmSs]-)+)(.+)", re.DOTALL)
_CARET: Final = re.compile(r"\^(.)", re.DOTALL)
_ARROW: Final = re.compile(r"\x1b\[([A-DFH])")
_HEX: Final = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,2})")


def encode_keys(keys: Iterable[str]) -> bytes:
    """Return what a terminal sends for the keys. Raises ToolError for a name that is no key."""
    return "".join(_encode_key(key) for key in keys).encode("utf-8", "surrogateescape")


def encode_hex(values: Iterable[str]) -> bytes:
    """Return the bytes of values like `1b` or `0x0d`. Raises ToolError."""
    found = [_HEX.fullmatch(value.strip()) for value in values]
    if not all(found):
        raise ToolError("hex: each value is one byte, as 1b or 0x0d")
    return bytes(int(each[1], 16) for each in found if each)


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """Return pasted text; bracketed, a program sees that it was not typed."""
    # An end mark in the text would turn the rest of it into typed keys.
    data = text.replace("\x1b[200~", "").replace("\x1b[201~", "") if bracketed else text
    marked = f"\x1b[200~{data}\x1b[201~" if bracketed else data
    return marked.encode("utf-8", "surrogateescape")


def _encode_key(key: str) -> str:
    if (named := _KEYS.get(key.lower())) is not None:
        return named
    if caret := _CARET.fullmatch(key):
        return _control(caret[1], key)
    if modified := _MODIFIED.fullmatch(key):
        return _modify(modified[1].upper(), modified[2], key)
    if len(key) == 1:
        return key
    raise ToolError(
        f"keys: {one_line(key, 40)!r} is not the name of a key",
        fix="Enter, Tab, Escape, Up, C-c, M-x, F1 …; use literal for text",
    )


def _modify(modifiers: str, base: str, key: str) -> str:
    code = _KEYS.get(base.lower(), base)
    has_shift, has_meta, has_control = (f"{each}-" in modifiers for each in "SMC")
    if arrow := _ARROW.fullmatch(code):
        number = 1 + has_shift + 2 * has_meta + 4 * has_control
        return f"\x1b[1;{number}{arrow[1]}"
    if has_shift and code == "\t":
        code = _KEYS["btab"]
    elif has_shift and len(code) == 1:
        code = code.upper()
    if has_control:
        code = _control(code, key)
    if len(code) != 1 and base.lower() not in _KEYS:
        raise ToolError(f"keys: {one_line(key, 40)!r} is not the name of a key")
    return f"\x1b{code}" if has_meta else code


def _control(ch: str, key: str) -> str:
    if ch == "?":
        return "\x7f"
    if ch == " ":
        ch = "@"
    code = ord(ch.upper()) if len(ch) == 1 else 0
    if not 0x40 <= code <= 0x5F:
        raise ToolError(f"keys: {one_line(key, 40)!r} is not the name of a key")
    return chr(code & 0x1F)
