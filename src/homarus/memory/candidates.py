"""Gather the candidates for a query from the index: lines that match its words, dates or meaning.

FTS5 finds the lines that have a word. Which of them are ranked is decided by how rare their words
are, and how many of the words are near each other.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import takewhile
from typing import Any, Final

import apsw

from homarus.core.errors import CorruptDataError
from homarus.core.fast_dataclass import dataclass
from homarus.memory.query import ParsedQuery, speakers_by_word
from homarus.memory.ranker import REACH, CandidateLine, CandidatePool, NoteInfo, QueryTerm
from homarus.memory.related_words import related_stems
from homarus.memory.stems import content_stems
from homarus.memory.vectors import VectorTable, VisibleRows
from homarus.memory.view import EVERYTHING, MemoryView
from homarus.store.query import select

MAX_LINES: Final = 450
MAX_LINES_WITH_VECTORS: Final = 350
RANK_ALL_MAX_LINES: Final = 1_000  # lines; a smaller index is ranked completely
_COMMON: Final = 20_000  # lines; a word in more of them says little, and is expensive
_ENOUGH = 3_000  # lines that have a word
_SEEDS = 250
_LINES_PER_BLOCK = 20
_MAX_RELATED = 6_000  # lines; related words in more of them are ignored
_RELATED_SHARE = 0.3
_AKIN_CHARS: Final = 4
_AKIN_SHARE: Final = 0.7
_VOCABULARY = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, postings, row)"
_ALIKE = "SELECT term FROM temp.words WHERE term >= ? AND term < ? LIMIT 64"
# As one list in text, which is faster than one row for each line.
_HAVING = (
    "SELECT json_group_array(rowid)"
    " FROM (SELECT rowid FROM postings WHERE postings MATCH ? LIMIT ?)"
)
_MAX_PHRASED = 200
_PHRASED = (
    "SELECT id FROM lines WHERE id IN (SELECT value FROM json_each(?)) AND text LIKE ? LIMIT 200"
)
_BLOCK_BITS = 3
_BLOCK_SHARE = 0.6
_BEFORE, _AFTER = 1, 2
_MAX_DAY_LINES = 300
_MIN_DAY_SCORE = 0.5


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """What every search of one generation needs for one view; it is read once.

    `seen` are the visible rows of `vectors`, `mask` the visible lines, one bit each; both are None
    when all are visible.
    """

    generation: int
    lines: int
    last: int
    notes: Mapping[int, NoteInfo]
    speakers: Mapping[str, frozenset[str]]
    years: frozenset[int]
    vectors: VectorTable | None = None
    seen: VisibleRows | None = None
    mask: bytearray | None = None


def read_snapshot(
    db: apsw.Connection,
    generation: int,
    view: MemoryView = EVERYTHING,
    vectors: VectorTable | None = None,
) -> IndexSnapshot:
    """Read the snapshot of a generation for a view."""
    where, values = view.condition()
    columns = "note, path, source, day, first, last, speakers"
    rows = select(db, f"SELECT {columns} FROM notes WHERE {where or 'TRUE'}", tuple(values))  # noqa: S608 - columns of ours
    speaker_counts: Counter[str] = Counter()
    notes: dict[int, NoteInfo] = {}
    for note, path, source, day, first, last, speakers in rows:
        when = date.fromisoformat(day) if day else None
        notes[note] = NoteInfo(path, source, when, first, last)
        if speakers != "{}":
            speaker_counts.update(json.loads(speakers))
    spans = [(note_info.first, note_info.last) for note_info in notes.values()]
    return IndexSnapshot(
        generation,
        sum(last - first + 1 for first, last in spans),
        max((last for _, last in spans), default=0),
        notes,
        speakers_by_word(speaker_counts),
        frozenset(note_info.day.year for note_info in notes.values() if note_info.day),
        vectors,
        vectors.within(spans) if vectors is not None and where else None,
        _mask(spans) if where else None,
    )


def _mask(spans: Sequence[tuple[int, int]]) -> bytearray:
    last = max((last for _, last in spans), default=0)
    return _bits((at for first, end in spans for at in range(first, end + 1)), last)


@dataclass(slots=True)
class _LineScores:
    """Accumulate the scores of lines, and of the blocks of eight lines around them."""

    own: dict[int, float]
    blocks: dict[int, float]

    def add(self, ids: Sequence[int], idf: float) -> None:
        own, blocks = self.own, self.blocks
        if not own or len(own) + len(ids) <= _ENOUGH:
            for at in ids:
                own[at] = own.get(at, 0.0) + idf
            for block in {at >> _BLOCK_BITS for at in ids}:
                blocks[block] = blocks.get(block, 0.0) + idf
        else:  # a common word alone adds no candidate; it only raises the others
            for at in own.keys() & ids:
                own[at] += idf


def gather_candidates(
    db: apsw.Connection,
    snapshot: IndexSnapshot,
    question: ParsedQuery,
    query_vector: Sequence[float] | None = None,
    view: MemoryView = EVERYTHING,
) -> CandidatePool:
    """Return the lines to rank; `asked` is the vector of the query."""
    reader = _Postings(db, view, snapshot.mask)
    lines_by_stem = {stem: reader.lines_with((stem,)) for stem in question.terms}
    promise = _LineScores({}, {})
    terms = list(_terms(reader, snapshot, lines_by_stem, promise))
    if snapshot.lines <= RANK_ALL_MAX_LINES:
        wanted = _all(snapshot)
    else:
        max_lines = MAX_LINES if query_vector is None else MAX_LINES_WITH_VECTORS
        wanted = _promising(promise, max_lines) | _on_days(snapshot, question)
        wanted |= _with_phrases(db, question, lines_by_stem)
    vectors = snapshot.vectors if query_vector is not None else None
    if vectors is not None and query_vector is not None:
        wanted.update(vectors.nearest(query_vector, within=snapshot.seen))
    lines = _lines(db, wanted, view)
    cosines: Mapping[int, float] = {}
    if vectors is not None and query_vector is not None:
        near = {other for at in lines for other in range(at - 3, at + 4)}
        cosines = vectors.cosines(query_vector, near)
    sections = _sections(db, {line.section for line in lines.values()})
    known = {term.stem for term in terms}
    absent = sum(not ids and stem not in known for stem, ids in lines_by_stem.items())
    missing = absent * _rarity(snapshot.lines, 0)
    return CandidatePool(terms, lines, snapshot.notes, sections, cosines, missing)


def _terms(
    reader: "_Postings",
    snapshot: IndexSnapshot,
    lines_by_stem: Mapping[str, Sequence[int]],
    promise: _LineScores,
) -> Iterator[QueryTerm]:
    """Yield the words of a query, the rarest first, each with its related lines."""
    rare = {stem: ids for stem, ids in lines_by_stem.items() if len(ids) <= _COMMON}
    if not any(rare.values()):
        rare = dict(lines_by_stem)
    for stem, ids in sorted(rare.items(), key=lambda one: len(one[1])):
        idf = _rarity(snapshot.lines, len(ids))
        related = reader.lines_with({*related_stems(stem), *reader.akin(stem)}, _MAX_RELATED)
        if len(related) > _MAX_RELATED:
            related = []
        if not ids and not related:
            continue
        promise.add(ids, idf)
        others = sorted({*related}.difference(ids))
        if not others:
            yield QueryTerm(stem, idf, _bits(ids, snapshot.last))
            continue
        related_idf = min(idf, _rarity(snapshot.lines, len(others)))
        promise.add(others, _RELATED_SHARE * related_idf)
        bits, related_bits = _bits(ids, snapshot.last), _bits(others, snapshot.last)
        yield QueryTerm(stem, idf, bits, related_idf, related_bits)


class _Postings:
    """Find the visible lines that have a word.

    Visibility is known from `mask`; the candidate lines themselves are read with the view once
    more.
    """

    def __init__(self, db: apsw.Connection, view: MemoryView, mask: bytearray | None) -> None:
        where, self._values = view.condition()
        self._db, self._mask = db, mask
        self._seen = (
            "SELECT postings.rowid FROM postings JOIN lines ON lines.id = postings.rowid"  # noqa: S608 - columns of ours
            f" JOIN notes ON notes.note = lines.note WHERE {where or 'TRUE'}"
            " AND postings MATCH ? LIMIT ?"
        )
        db.execute(_VOCABULARY)

    def lines_with(self, stems: Collection[str], max_lines: int = _COMMON) -> list[int]:
        """Return the lines that have any of the words; one more than `most` if there are more."""
        if not stems:
            return []
        quoted = " OR ".join('"' + stem.replace('"', '""') + '"' for stem in stems)
        ids: list[int] = json.loads(select(self._db, _HAVING, (quoted, max_lines + 1))[0][0])
        mask = self._mask
        if mask is None:
            return ids
        if len(ids) > max_lines:  # too many, but only the visible ones count
            rows = self._db.execute(self._seen, (*self._values, quoted, max_lines + 1))
            return [at for (at,) in rows]
        last = len(mask)
        return [at for at in ids if at >> 3 < last and mask[at >> 3] >> (at & 7) & 1]

    def akin(self, stem: str) -> list[str]:
        """Return other words of the notes with the same beginning: `photo` and `photograph`."""
        if len(stem) < _AKIN_CHARS or not stem.isalpha():
            return []
        first = stem[: max(min(len(stem), 5), math.ceil(_AKIN_SHARE * len(stem)))]
        rows = self._db.execute(_ALIKE, (first, f"{first}\U0010ffff"))
        longer = [str(word) for (word,) in rows if shares_stem_prefix(stem, str(word))]
        shorter = [stem[:cut] for cut in range(max(_AKIN_CHARS, len(stem) - 4), len(stem))]
        return [*longer, *shorter]


def shares_stem_prefix(one: str, other: str) -> bool:
    """Return whether two stems share so long a prefix that they belong to one word."""
    short, long = sorted((len(one), len(other)))
    pairs = zip(one, other, strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if one == other or alike < _AKIN_CHARS:
        return False
    return (alike == short and long - short <= 4) or (alike >= 5 and alike >= _AKIN_SHARE * long)


def _rarity(lines: int, having: int) -> float:
    return math.log(1 + (lines - having + 0.5) / (having + 0.5))


def _bits(ids: Iterable[int], last: int) -> bytearray:
    bits = bytearray((last + REACH >> 3) + 4)
    try:
        for at in ids:
            bits[at >> 3] |= 1 << (at & 7)
    except IndexError:
        raise CorruptDataError("its words name lines that are not there") from None
    return bits


def _promising(promise: _LineScores, max_lines: int) -> set[int]:
    """Return lines with rare words, lines next to them, and blocks where many words meet."""
    own, blocks = promise.own, promise.blocks
    worth = {at: idf + _BLOCK_SHARE * blocks[at >> _BLOCK_BITS] for at, idf in own.items()}
    best = sorted(worth, key=worth.__getitem__, reverse=True)[:_SEEDS]
    top_blocks = sorted(blocks, key=blocks.__getitem__, reverse=True)[
        : max_lines // _LINES_PER_BLOCK
    ]
    wanted: dict[int, None] = {}
    for before, after in ((_BEFORE, _AFTER), (REACH, REACH)):
        for at in best:
            if len(wanted) >= max_lines:
                break
            wanted |= dict.fromkeys(range(at - before, at + after + 1))
    for block in top_blocks:
        first = block << _BLOCK_BITS
        wanted |= dict.fromkeys(range(first, first + (1 << _BLOCK_BITS) + 2))
    return set(wanted)


def _all(snapshot: IndexSnapshot) -> set[int]:
    return {
        at
        for note_info in snapshot.notes.values()
        for at in range(note_info.first, note_info.last + 1)
    }


def _on_days(snapshot: IndexSnapshot, question: ParsedQuery) -> set[int]:
    """Return lines of notes of the dates in the query."""
    wanted: set[int] = set()
    if question.times.spans:
        for note_info in snapshot.notes.values():
            if question.times.score(note_info.day) >= _MIN_DAY_SCORE:
                wanted.update(range(note_info.first, note_info.last + 1))
            if len(wanted) > _MAX_DAY_LINES:
                break
    return wanted


def _with_phrases(
    db: apsw.Connection, question: ParsedQuery, lines_by_stem: Mapping[str, Sequence[int]]
) -> set[int]:
    """Return lines that contain a quoted phrase, or at least all of its words."""
    wanted: set[int] = set()
    for phrase in question.phrases:
        lists = [{*lines_by_stem[stem]} for stem in content_stems(phrase) if stem in lines_by_stem]
        if not lists:
            continue
        together = sorted(set.intersection(*lists))
        wanted.update(together[:_MAX_PHRASED])
        if len(together) > _MAX_PHRASED:
            rows = select(db, _PHRASED, (json.dumps(together), f"%{'%'.join(phrase.split())}%"))
            wanted.update(at for (at,) in rows)
    return wanted


def _lines(
    db: apsw.Connection, wanted: Iterable[int], view: MemoryView
) -> dict[int, CandidateLine]:
    """Read the candidate lines themselves; only these can be shown."""
    where, values = view.condition()
    columns = "id, note, line, start, speaker, flags, section, text"
    ids = json.dumps(sorted(wanted))
    seen = f"JOIN notes USING (note) WHERE {where} AND" if where else "WHERE"
    rows = select(
        db,
        f"SELECT {columns} FROM lines {seen} id IN (SELECT value FROM json_each(?))",  # noqa: S608 - columns of ours
        (*values, ids),
    )
    return {row[0]: CandidateLine._make(row) for row in rows}


def _sections(db: apsw.Connection, wanted: set[int]) -> dict[int, int]:
    """Return each heading above the lines with the heading above it."""
    parents: dict[int, int] = {}
    missing = wanted - {0}
    while missing:
        parents |= dict(_by_id(db, "SELECT id, section", missing))
        parents |= {at: 0 for at in missing if at not in parents}
        missing = {above for above in parents.values() if above and above not in parents}
    return parents


def _by_id(db: apsw.Connection, what: str, wanted: Iterable[int]) -> list[tuple[Any, ...]]:
    ids = json.dumps(sorted(wanted))
    return select(db, f"{what} FROM lines WHERE id IN (SELECT value FROM json_each(?))", (ids,))  # noqa: S608 - columns of ours
