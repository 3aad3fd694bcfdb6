r"""Search untrusted regular expressions in linear time.

    is_named = compile_search(r"\b@?molty\b")
    is_named("hey Molty, are you there?")   # True

Python's `re` backtracks, and `(a+)+$` can take exponential time. RE2 runs in linear time, and
refuses backreferences and look-arounds. Patterns are case-insensitive.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from homarus.core.errors import UserError
from homarus.core.text import repair_surrogates

MAX_PATTERN_CHARS: Final = 500
MAX_LINE_PATTERN_CHARS: Final = 1_000
MAX_TEXT_CHARS: Final = 2_000
MAX_BYTES: Final = 1_000_000  # memory that one pattern may use

_DELIMITED: Final = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)

Search: TypeAlias = Callable[[str], bool]


def compile_search(pattern: str) -> Search:
    """Return a function that searches the first MAX_TEXT_CHARS of a text for the pattern.

    Raises UserError for an invalid pattern.
    """
    compiled = _compile(pattern, case_sensitive=False)
    return lambda text: compiled.search(repair_surrogates(text[:MAX_TEXT_CHARS])) is not None


def compile_line_search(pattern: str, *, ignore_case: bool) -> Search:
    """Return a function that searches a line of any length; UserError for an invalid pattern."""
    compiled = _compile(pattern, case_sensitive=not ignore_case, max_chars=MAX_LINE_PATTERN_CHARS)
    return lambda line: compiled.search(repair_surrogates(line)) is not None


@lru_cache(64)
def compile_fullmatch(pattern: str) -> Search:
    """Return a function that matches a complete text, case-sensitively, without cutting it.

    Raises UserError for an invalid pattern.
    """
    compiled = _compile(pattern, case_sensitive=True)
    return lambda text: compiled.fullmatch(repair_surrogates(text)) is not None


def compile_redactions(patterns: Sequence[str]) -> Callable[[str], str]:
    """Return a function that replaces every match of any of the patterns by `***`.

    All patterns are searched in the original text, and matches that touch are replaced together:
    no pattern finds another's replacement, so that the text cannot grow with their number. A
    pattern may be written `/…/flags`; without flags it is case-insensitive. Raises UserError for
    an invalid pattern.
    """
    compiled = [_compile_delimited(each) for each in patterns]

    def replace_matches(text: str) -> str:
        text = repair_surrogates(text)
        found = (match.span() for each in compiled for match in each.finditer(text))
        parts, end = list[str](), 0
        for start, stop in sorted(span for span in found if span[0] < span[1]):
            if start > end or not parts:
                parts += (text[end:start], "***")
            end = max(end, stop)
        return "".join((*parts, text[end:]))

    return replace_matches


def check_redaction(pattern: str) -> None:
    """Raise UserError for a pattern that `compile_redactions` does not accept."""
    _compile_delimited(pattern)


def _compile_delimited(pattern: str) -> Any:
    written = _DELIMITED.fullmatch(pattern)
    body, flags = (written[1], written[2]) if written else (pattern, "i")
    return _compile(body, case_sensitive="i" not in flags)


def _compile(pattern: str, *, case_sensitive: bool, max_chars: int = MAX_PATTERN_CHARS) -> Any:
    if len(pattern) > max_chars:
        raise UserError(f"the pattern is longer than {max_chars} characters")
    import re2  # 3 MB: only imported for configs with patterns

    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.max_mem = MAX_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as exc:
        detail = exc.args[0] if exc.args else exc
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise UserError(
            f"the pattern cannot be searched: {text}",
            fix="look-arounds and backreferences are not supported",
        ) from exc
