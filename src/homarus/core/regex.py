r"""Regular expressions that somebody else wrote, searched in time that grows with the text alone.

    is_named = searcher(r"\b@?molty\b")
    is_named("hey Molty, are you there?")   # True

Python's `re` tries one way after the other, and for `(a+)+$` there are more ways than anybody can
wait for. These go through RE2, which follows all ways at once; what needs a memory of the text, or
a look around, it refuses. Case makes no difference.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from homarus.core.errors import UserError

MAX_PATTERN_CHARS: Final = 500
MAX_TEXT_CHARS: Final = 2_000
MAX_BYTES: Final = 1_000_000  # of memory that one pattern may use

Search: TypeAlias = Callable[[str], bool]


def searcher(pattern: str) -> Search:
    """Whether a pattern is in a text, of which the beginning is looked at."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UserError(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    import re2  # 3 MB: for who has patterns

    options = re2.Options()
    options.case_sensitive = False
    options.max_mem = MAX_BYTES
    options.log_errors = False
    try:
        found = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as exc:
        told = exc.args[0] if exc.args else exc
        shown = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise UserError(
            f"the pattern cannot be searched: {shown}",
            fix="look-arounds and backreferences are not supported",
        ) from exc
    return lambda text: found.search(_storable(text[:MAX_TEXT_CHARS])) is not None


def _storable(text: str) -> str:
    """RE2 reads UTF-8, which half a surrogate pair is not."""
    return text.encode("utf-8", "replace").decode("utf-8")
