"""Find the matching lines of a text, in time that grows only with its length.

Plain text is searched as it is, a regular expression with RE2, whatever the model wrote.
"""

import threading
from collections.abc import Callable
from typing import Final

from homarus.core.errors import ToolError, UserError
from homarus.core.regex import compile_line_search

MAX_PATTERN_CHARS: Final = 1000
_SPECIAL: Final = frozenset(r"\.^$*+?{}[]|()")
_LINES_PER_CHECK: Final = 1000  # between looks at `stop`


class Matcher:
    """Finds matching lines; setting `stop` ends a search early."""

    def __init__(
        self, is_match: Callable[[str], bool], may_match: Callable[[str], bool],
        stop: threading.Event,
    ) -> None:  # fmt: skip
        self._is_match, self._may_match, self._stop = is_match, may_match, stop

    def find_lines(self, text: str, limit: int) -> list[int]:
        """Return the first matching line numbers, from 1."""
        if not self._may_match(text):
            return []
        numbers: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            if len(numbers) == limit or (number % _LINES_PER_CHECK == 0 and self._stop.is_set()):
                break
            if self._is_match(line):
                numbers.append(number)
        return numbers


def make_matcher(
    pattern: str, *, literal: bool, ignore_case: bool, stop: threading.Event
) -> Matcher:
    """Return the matcher of a pattern. Raises ToolError for a pattern that RE2 does not have."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
    if literal or not _SPECIAL & set(pattern):
        contains = _contains(pattern, ignore_case=ignore_case)
        return Matcher(contains, contains, stop)
    try:
        search = compile_line_search(pattern, ignore_case=ignore_case)
    except UserError as exc:
        fix = f"{exc.fix}; is it literal text?"
        raise ToolError(f"not a regular expression: {exc.message}", fix=fix) from exc
    return Matcher(lambda line: search(line.removesuffix("\r")), lambda _text: True, stop)


def _contains(pattern: str, *, ignore_case: bool) -> Callable[[str], bool]:
    if not ignore_case:
        return lambda text: pattern in text
    folded = pattern.casefold()
    return lambda text: folded in text.casefold()
