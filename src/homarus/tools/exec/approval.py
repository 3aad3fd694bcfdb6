"""Build the approval request for a command: complete and exact. Pure.

Nothing in the command may hide: invisible characters, letters that only look like ASCII, long runs
of blanks and line breaks that push the end out of sight are escaped or counted. The facts about
the command come first and the command is indented, so it cannot imitate them.
"""

import re
import unicodedata
from collections.abc import Mapping

from homarus.core.text import escape_invisible
from homarus.tools.tool import ApprovalRequest

_LONG_BLANK = re.compile(r"[ \t]{24,}")
_MANY_BREAKS = re.compile(r"\n([ \t]*\n){3,}")
# Invisible characters that Unicode calls letters, marks or symbols.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def approval_request(
    command: str, *, folder: str, env: Mapping[str, str], timeout_s: float
) -> ApprovalRequest:
    """Return the request that shows what would run, where and with what."""
    lines = command.count("\n") + 1
    size = (
        f"{lines} lines, {len(command)} characters" if lines > 1 else f"{len(command)} characters"
    )
    facts = [f"folder: {escape_deceptive_chars(folder)}", f"time: at most {timeout_s:g} s"]
    facts += [
        f"variable: {name}={escape_deceptive_chars(value)}" for name, value in sorted(env.items())
    ]
    shown = "\n".join(f"    {line}" for line in escape_deceptive_chars(command).split("\n"))
    return ApprovalRequest("Run this command?", "\n".join([*facts, f"command ({size}):", shown]))


def escape_deceptive_chars(text: str) -> str:
    r"""Return the text with every deceptive character shown as `\u{…}` or counted."""
    seen = "".join(_seen(ch) for ch in text)
    seen = _LONG_BLANK.sub(lambda run: f"[{len(run[0])} blanks]", seen)
    return _MANY_BREAKS.sub(lambda run: f"\n[{run[0].count(chr(10)) - 1} empty lines]\n", seen)


def _seen(ch: str) -> str:
    if ch.isascii():
        return escape_invisible(ch)
    is_blank = ch in _BLANKS or unicodedata.category(ch) == "Zs"
    is_selector = "\ufe00" <= ch <= "\ufe0f" or "\U000e0100" <= ch <= "\U000e01ef"
    is_double = unicodedata.normalize("NFKC", ch).isascii()  # a second form of an ASCII character
    if is_blank or is_selector or is_double or not ch.isprintable():
        return f"\\u{{{ord(ch):x}}}"
    return ch
