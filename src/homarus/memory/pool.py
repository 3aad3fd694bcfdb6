"""Candidates for a question, out of the index: what shares its words, its days, its meaning.

FTS5 gives the lines that have a word; which of them are worth a closer look is decided here by
how rare their words are, and how many of them are near each other.
"""

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import apsw

from homarus.core.value import dataclass
from homarus.memory.embed.base import Model
from homarus.memory.question import Question, speakers_by_word
from homarus.memory.search import REACH, Found, Line, Pool, Term
from homarus.memory.vectors import Vectors
from homarus.memory.view import EVERYTHING, View
from homarus.store.query import select

MOST_LINES: Final = 600
MOST_BESIDE_VECTORS: Final = 350
WHOLE_UP_TO: Final = 1_000  # lines; a small index is ranked whole
_COMMON: Final = 20_000  # lines; a word in more of them says little, and costs much
_ENOUGH = 4_000  # lines that have a word
_SEEDS = 250
_LINES_PER_PLACE = 15
_BLOCK_BITS = 3
_BLOCK_SHARE = 0.6
_BEFORE, _AFTER = 1, 2
_MOST_DAY_LINES = 300
_DAY_AT_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a whole generation for one view, read once."""

    generation: int
    lines: int
    last: int
    notes: Mapping[int, Found]
    speakers: Mapping[str, frozenset[str]]
    years: frozenset[int]
    vectors: Vectors | None


def read_snapshot(
    db: apsw.Connection, generation: int, view: View = EVERYTHING, model: Model | None = None
) -> Snapshot:
    """Read what every search of a generation needs."""
    where, values = view.condition()
    columns = "note, path, source, day, first, last, speakers"
    rows = select(db, f"SELECT {columns} FROM notes WHERE {where or 'TRUE'}", tuple(values))  # noqa: S608 - columns of ours
    spoken: Counter[str] = Counter()
    notes: dict[int, Found] = {}
    for note, path, source, day, first, last, speakers in rows:
        when = date.fromisoformat(day) if day else None
        notes[note] = Found(path, source, when, first, last)
        if speakers != "{}":
            spoken.update(json.loads(speakers))
    vectors = Vectors.read(db, model.dims) if model else None
    return Snapshot(
        generation,
        sum(found.last - found.first + 1 for found in notes.values()),
        max((found.last for found in notes.values()), default=0),
        notes,
        speakers_by_word(spoken),
        frozenset(found.day.year for found in notes.values() if found.day),
        vectors if vectors is not None and len(vectors) else None,
    )


def gather(
    db: apsw.Connection,
    snapshot: Snapshot,
    question: Question,
    asked: Sequence[float] | None = None,
    view: View = EVERYTHING,
) -> Pool:
    """The lines worth ranking. `asked` is the question as a vector."""
    reader = _Postings(db, view)
    found = [(stem, reader.lines_with(stem)) for stem in question.terms]
    common = [one for one in found if one[1] and len(one[1]) <= _COMMON]
    terms: list[Term] = []
    own: dict[int, float] = {}
    blocks: dict[int, float] = {}
    rarest_first = sorted(common or [one for one in found if one[1]], key=lambda one: len(one[1]))
    for stem, ids in rarest_first:
        idf = _rarity(snapshot.lines, len(ids))
        terms.append(Term(stem, idf, _bits(ids, snapshot.last), 0))
        if len(own) < _ENOUGH:
            for at in ids:
                own[at] = own.get(at, 0.0) + idf
            for block in {at >> _BLOCK_BITS for at in ids}:
                blocks[block] = blocks.get(block, 0.0) + idf
        else:  # a common word alone brings nobody in; it only raises those who are
            for at in own.keys() & ids:
                own[at] += idf
    if snapshot.lines <= WHOLE_UP_TO:
        wanted = _all(snapshot)
    else:
        most = MOST_LINES if asked is None else MOST_BESIDE_VECTORS
        wanted = _promising(own, blocks, most) | _on_days(snapshot, question)
    vectors = snapshot.vectors
    if vectors is not None and asked is not None:
        wanted.update(vectors.nearest(asked))
    lines = _lines(db, wanted, snapshot.notes)
    near: set[int] = set()
    if vectors is not None and asked is not None:
        near = {other for at in lines for other in range(at - 3, at + 4)}
    cosines = vectors.cosines(asked, near) if near and vectors and asked is not None else {}
    sections = _sections(db, {line.section for line in lines.values()})
    return Pool(terms, lines, snapshot.notes, sections, cosines)


class _Postings:
    """Lines that have a word, of those that may be seen."""

    def __init__(self, db: apsw.Connection, view: View) -> None:
        where, self._values = view.condition()
        joined = (
            " JOIN lines ON lines.id = postings.rowid JOIN notes ON notes.note = lines.note"
            f" WHERE {where} AND "
        )
        self._sql = (
            f"SELECT postings.rowid FROM postings{joined if where else ' WHERE '}"  # noqa: S608 - columns of ours
            f"postings MATCH ? LIMIT {_COMMON + 1}"
        )
        self._db = db

    def lines_with(self, stem: str) -> list[int]:
        quoted = '"' + stem.replace('"', '""') + '"'
        return [at for (at,) in self._db.execute(self._sql, (*self._values, quoted))]


def _rarity(lines: int, having: int) -> float:
    return math.log(1 + (lines - having + 0.5) / (having + 0.5))


def _bits(ids: Iterable[int], last: int) -> bytearray:
    bits = bytearray((last + REACH >> 3) + 4)
    for at in ids:
        bits[at >> 3] |= 1 << (at & 7)
    return bits


def _promising(own: Mapping[int, float], blocks: Mapping[int, float], most: int) -> set[int]:
    """Lines with rare words, lines beside them, and places where many words meet."""
    worth = {at: idf + _BLOCK_SHARE * blocks[at >> _BLOCK_BITS] for at, idf in own.items()}
    best = heapq.nlargest(_SEEDS, worth, key=worth.__getitem__)
    places = heapq.nlargest(most // _LINES_PER_PLACE, blocks, key=blocks.__getitem__)
    wanted: dict[int, None] = {}
    for before, after in ((_BEFORE, _AFTER), (REACH, REACH)):
        for at in best:
            if len(wanted) >= most:
                break
            wanted |= dict.fromkeys(range(at - before, at + after + 1))
    for block in places:
        first = block << _BLOCK_BITS
        wanted |= dict.fromkeys(range(first, first + (1 << _BLOCK_BITS) + 2))
    return set(wanted)


def _all(snapshot: Snapshot) -> set[int]:
    return {at for found in snapshot.notes.values() for at in range(found.first, found.last + 1)}


def _on_days(snapshot: Snapshot, question: Question) -> set[int]:
    """Lines of notes of the days a question speaks of."""
    wanted: set[int] = set()
    if question.moments.spans:
        for found in snapshot.notes.values():
            if question.moments.score(found.day) >= _DAY_AT_LEAST:
                wanted.update(range(found.first, found.last + 1))
            if len(wanted) > _MOST_DAY_LINES:
                break
    return wanted


def _lines(
    db: apsw.Connection, wanted: Iterable[int], notes: Mapping[int, Found]
) -> dict[int, Line]:
    rows = _by_id(db, "SELECT id, note, line, start, speaker, flags, section, text", wanted)
    return {row[0]: Line(*row) for row in rows if row[1] in notes}


def _sections(db: apsw.Connection, wanted: set[int]) -> dict[int, int]:
    """Each heading above the lines, with the one above it."""
    known: dict[int, int] = {}
    ask = wanted - {0}
    while ask:
        known |= dict(_by_id(db, "SELECT id, section", ask))
        known |= {at: 0 for at in ask if at not in known}
        ask = {above for above in known.values() if above and above not in known}
    return known


def _by_id(db: apsw.Connection, what: str, wanted: Iterable[int]) -> list[tuple[Any, ...]]:
    ids = json.dumps(sorted(wanted))
    return select(db, f"{what} FROM lines WHERE id IN (SELECT value FROM json_each(?))", (ids,))  # noqa: S608 - columns of ours
