"""What kind of line it is, as bits: what the ranking asks of a line besides its words."""

from collections.abc import Sequence
from typing import Final

from homarus.memory.chunk import Piece

QUESTION: Final = 1
FIRST_PERSON: Final = 2
TIME: Final = 4
HEADING: Final = 8

_FIRST = frozenset("i my me mine we our us ich wir mein je nous mon yo nosotros mi".split())
# As the stemmer leaves them.
_TIMES = frozenset(
    "yesterdai todai tonight tomorrow ago last next recent sinc week weekend month year januari"
    " februari march april june juli august septemb octob novemb decemb mondai tuesdai wednesdai"
    " thursdai fridai saturdai sundai birthdai".split()
)
_YEARS = ("19", "20")


def flags_of(piece: Piece, stems: Sequence[str]) -> int:
    """The bits of a line; `stems` are all of its stems."""
    said = set(stems)
    flags = HEADING if piece.is_heading else 0
    if piece.text.rstrip().endswith(("?", "？")):
        flags |= QUESTION
    if not _FIRST.isdisjoint(said):
        flags |= FIRST_PERSON
    if not _TIMES.isdisjoint(said) or any(map(_is_year, said)):
        flags |= TIME
    return flags


def _is_year(stem: str) -> bool:
    return len(stem) == 4 and stem.startswith(_YEARS) and stem.isdecimal()
