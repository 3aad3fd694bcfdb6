"""Shell-style name patterns: `*`, `?`, `[…]`, `{a,b}`, and `**` for any number of folders. Pure.

A pattern without a slash is about the last name of a path, at any depth; one with a slash is about
the whole path. Matching takes time in proportion to pattern and path, whatever the pattern.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from homarus.core.errors import ToolError

MAX_CHARS = 500
MAX_CHOICES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A test for slash-separated relative paths."""
    if not pattern or len(pattern) > MAX_CHARS:
        raise ToolError(f"a pattern has 1 to {MAX_CHARS} characters")
    choices: list[list[str]] = []
    for choice in expand(pattern.removeprefix("./").removeprefix("/")):
        if len(choices) == MAX_CHOICES:
            raise ToolError(f"the pattern has more than {MAX_CHOICES} choices in braces")
        choices.append(_segments(choice))
    return lambda path: any(_match(choice, path.split("/")) for choice in choices)


def expand(pattern: str) -> Iterator[str]:
    """`a{b,c}` is `ab` and `ac`, from the inside out; other braces stand for themselves."""
    found = next((each for each in _BRACES.finditer(pattern) if "," in each[1]), None)
    if not found:
        yield pattern
        return
    for option in found[1].split(","):
        yield from expand(pattern[: found.start()] + option + pattern[found.end() :])


def _segments(choice: str) -> list[str]:
    """What each name on the way must be; two `**` in a row say no more than one."""
    parts = choice.split("/") if "/" in choice else ["**", choice]
    return [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]


def _match(pattern: list[str], names: list[str]) -> bool:
    """Names against segments, keeping the set of places in the pattern that could be next."""
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
    """`**` may stand for no folder at all."""
    return places | {at + 1 for at in places if pattern[at : at + 1] == ["**"]}
