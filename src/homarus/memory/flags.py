"""The kind of a line, as bits: what the ranking needs to know besides its words."""

from collections.abc import Sequence
from typing import Final

from homarus.memory.chunking import LinePiece

QUESTION: Final = 1
FIRST_PERSON: Final = 2
TIME: Final = 4
HEADING: Final = 8

_FIRST = frozenset(
    ["i", "my", "me", "mine", "we", "our", "us", "ich", "wir", "mein", "je", "nous", "yo", "mi"]
)
# In stemmed form.
_TIMES = frozenset(
    [
        *("yesterdai", "todai", "tonight", "tomorrow", "ago", "last", "next", "recent", "sinc"),
        *("week", "weekend", "month", "year", "birthdai", "januari", "februari", "march", "april"),
        *("june", "juli", "august", "septemb", "octob", "novemb", "decemb", "mondai", "tuesdai"),
        *("wednesdai", "thursdai", "fridai", "saturdai", "sundai"),
    ]
) | {str(year) for year in range(1900, 2100)}


def flags_of(piece: LinePiece, stems: Sequence[str]) -> int:
    """Return the flags of a line; `stems` are all of its stems."""
    flags = HEADING if piece.is_heading else 0
    if piece.text.rstrip().endswith(("?", "？")):
        flags |= QUESTION
    if not _FIRST.isdisjoint(stems):
        flags |= FIRST_PERSON
    if not _TIMES.isdisjoint(stems):
        flags |= TIME
    return flags
