"""Match shell-style patterns: `*`, `?`, `[…]`, `{a,b}`, and `**` for any directories. Pure.

A pattern without a slash matches the last name of a path, at any depth; one with a slash matches
the complete path. Matching takes time in proportion to pattern and path, whatever the pattern.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from homarus.core.errors import ToolError

MAX_CHARS = 500
MAX_CHOICES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Return a test for slash-separated relative paths."""
    if not pattern or len(pattern) > MAX_CHARS:
        raise ToolError(f"a pattern has 1 to {MAX_CHARS} characters")
    choices: list[list[str]] = []
    for choice in expand_braces(pattern.removeprefix("./").removeprefix("/")):
        if len(choices) == MAX_CHOICES:
            raise ToolError(f"the pattern has more than {MAX_CHOICES} choices in braces")
        choices.append(_segments(choice))
    return lambda path: any(_match(choice, path.split("/")) for choice in choices)


def expand_braces(pattern: str) -> Iterator[str]:
    """Expand `a{b,c}` to `ab` and `ac`, from the inside out; other braces are literal."""
    found = next((each for each in _BRACES.finditer(pattern) if "," in each[1]), None)
    if not found:
        yield pattern
        return
    for option in found[1].split(","):
        yield from expand_braces(pattern[: found.start()] + option + pattern[found.end() :])


def _segments(choice: str) -> list[str]:
    """Return the pattern of each name on the path; a repeated `**` is dropped."""
    parts = choice.split("/") if "/" in choice else ["**", choice]
    return [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]


def _match(pattern: list[str], names: list[str]) -> bool:
    """Match names against segments, tracking the set of possible positions in the pattern."""
    places = _skip({0}, pattern)
    for name in names:
        step = set[int]()
        for at in places:
            if at < len(pattern):
                if pattern[at] == "**":
                    step.add(at)
                elif fnmatchcase(name, pattern[at]):
                    step.add(at + 1)
        places = _skip(step, pattern)
    return len(pattern) in places


def _skip(places: set[int], pattern: list[str]) -> set[int]:
    """Add the positions after `**`, which may match no directory at all."""
    return places | {at + 1 for at in places if pattern[at : at + 1] == ["**"]}
