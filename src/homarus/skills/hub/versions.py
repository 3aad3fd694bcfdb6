"""Versions of skills: semantic versioning 2.0, their order, and the next one."""

import re
from functools import total_ordering
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

_NUMBER: Final = r"(0|[1-9]\d{0,8})"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
MAX_VERSION_CHARS: Final = 64


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class SkillVersion:
    """A version; one with a part after a hyphen comes before the same one without."""

    text: str
    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SkillVersion) and self._key() == other._key()

    def __lt__(self, other: "SkillVersion") -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        # Numbers come before words, and by value.
        parts = tuple(
            (not part.isdigit(), int(part) if part.isdigit() else 0, part)
            for part in self.prerelease
        )
        return self.numbers, not parts, parts

    def next_patch(self) -> str:
        """Return the version that follows; the one that a prerelease leads to."""
        major, minor, patch = self.numbers
        return f"{major}.{minor}.{patch if self.prerelease else patch + 1}"


def parse_version(text: str) -> SkillVersion:
    """Return a version. Raises UserError."""
    found = _VERSION.fullmatch(text) if len(text) <= MAX_VERSION_CHARS else None
    if found is None:
        shown = one_line(text, 40)
        raise UserError(
            f"{shown!r} is not a version", fix="a version is like 1.2.3 or 2.0.0-beta.1"
        )
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    return SkillVersion(text, numbers, tuple(found[4].split(".")) if found[4] else ())


def find_version(text: str) -> SkillVersion | None:
    """Return a version, or None for a text that is none."""
    try:
        return parse_version(text)
    except UserError:
        return None
